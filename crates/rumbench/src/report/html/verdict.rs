//! Sentences of the first screen: each engine's rank against the base, and its costs.

use maud::{Markup, html};

use super::bars::{self, Bar, BarTable};
use super::markup::engine_line;
use super::page::View;
use crate::measure::statistics::PAIRS_FOR_VERDICT;
use crate::report::spread;
use crate::report::throughput::{rate, unit};
use crate::store::result::{Comparison, PhaseResult};
use crate::text::and;
use crate::text::{gib, number};

/// Distance from a ratio of 1 up to which engines without a verdict count as equal, as in published
/// reports.
const EQUAL: f64 = 0.05;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rank {
    Above,
    Below,
    Even,
}

/// Ranks by the verdict if there is one, else by the ratio.
fn rank(found: &Comparison) -> Rank {
    match found.verdict.as_str() {
        "higher" => Rank::Above,
        "lower" => Rank::Below,
        "no verdict" => Rank::Even,
        _ if found.ratio > 1.0 + EQUAL => Rank::Above,
        _ if found.ratio < 1.0 - EQUAL => Rank::Below,
        _ => Rank::Even,
    }
}

/// Returns true for the throughput of a phase.
fn is_rate(found: &Comparison) -> bool {
    matches!(found.metric.as_str(), "ops_per_s" | "rows_per_s")
}

/// Renders one sentence for each engine, and a note on their reliability.
pub fn sentences(view: &View<'_>) -> Markup {
    let comparisons = spread::compare_group(view.group, &view.base);
    let sentence = |engine: &str| {
        if engine == view.base {
            of_base(view)
        } else {
            of_other(view, engine, &comparisons)
        }
    };
    // An interrupted suite can have more repetitions than pairs.
    let alone = comparisons
        .iter()
        .all(|found| found.verdict.starts_with("n=1"));
    let pairs = if alone { 1 } else { view.repetitions() };
    html! {
        ul.verdict {
            @for engine in view.group.engines() {
                (engine_line(view.style(&engine), &view.group.label(&engine), sentence(&engine)))
            }
        }
        p.note { (trust(pairs)) }
    }
}

fn trust(repetitions: usize) -> String {
    match repetitions {
        0 | 1 => "One repetition: no spread is known; ratios from 0.95 to 1.05 are called equal."
            .to_string(),
        n if n < PAIRS_FOR_VERDICT => format!(
            "{n} repetitions: a range and no verdict, which needs {PAIRS_FOR_VERDICT}; ratios from 0.95 to 1.05 are called equal."
        ),
        n => format!(
            "{n} repetitions: faster and slower are verdicts, by 98 % t intervals of paired log ratios."
        ),
    }
}

fn of_base(view: &View<'_>) -> String {
    let Some(phase) = view.main_phase() else {
        return "is the base of all ratios; no phase with operations has ended.".to_string();
    };
    let of =
        |value: &dyn Fn(&PhaseResult) -> Option<f64>| view.group.median(&view.base, &phase, value);
    let mut facts = Vec::new();
    facts.extend(of(&rate).map(|rate| format!("{} {}", number(Some(rate)), unit(&phase))));
    facts.extend(
        of(&|p| p.cpu_us_per_op.map(|cpu| cpu.total))
            .map(|us| format!("{} us of CPU/op", number(Some(us)))),
    );
    facts.extend(of(&written).map(|kb| format!("{} KiB written/op", number(Some(kb)))));
    let mut text = format!("is the base of all ratios: in {phase} {}", and(&facts));
    if let Some(size) = settled_size(view) {
        text += &format!("; {} GiB of data at the end", number(Some(size)));
    }
    text + "."
}

/// Returns the KiB written per operation, with the writes of the following settle if it was
/// measured.
pub fn written(phase: &PhaseResult) -> Option<f64> {
    phase.kb_written_per_op_settled.or(phase.kb_written_per_op)
}

fn settled_size(view: &View<'_>) -> Option<f64> {
    let settle = view.group.settles().pop()?;
    view.group.median(&view.base, &settle, |p| {
        p.size_bytes.map(|size| gib(size.data))
    })
}

fn of_other(view: &View<'_>, engine: &str, comparisons: &[Comparison]) -> String {
    let phases = view.phases();
    let rates: Vec<&Comparison> = comparisons
        .iter()
        .filter(|c| c.engine == engine && phases.contains(&c.phase) && is_rate(c))
        .collect();
    if rates.is_empty() {
        return format!("has no phase that {} ended too.", view.base);
    }
    let mut text = throughput(view, &rates);
    let costs = costs(view, engine, comparisons);
    if !costs.is_empty() {
        text += &format!("; it takes {}", and(&costs));
    }
    text + "."
}

fn throughput(view: &View<'_>, rates: &[&Comparison]) -> String {
    let count = |wanted| rates.iter().filter(|c| rank(c) == wanted).count();
    let named = [
        (count(Rank::Above), "faster"),
        (count(Rank::Below), "slower"),
        (count(Rank::Even), "equal"),
    ];
    let parts: Vec<String> = match named.iter().filter(|(n, _)| *n > 0).collect::<Vec<_>>()[..] {
        [(_, word)] if rates.len() > 1 => vec![format!("{word} in all {} phases", rates.len())],
        ref found => found
            .iter()
            .map(|(n, word)| format!("{word} in {n}"))
            .collect(),
    };
    let all = if parts.len() > 1 {
        format!(" of {} phases", rates.len())
    } else {
        String::new()
    };
    let lowest = rates.iter().map(|c| c.ratio).fold(f64::INFINITY, f64::min);
    let highest = rates.iter().map(|c| c.ratio).fold(0.0, f64::max);
    let range = if rates.len() > 1 {
        format!("{lowest:.2} to {highest:.2}")
    } else {
        format!("{lowest:.2}")
    };
    format!(
        "is {}{all} ({range} times the throughput of {})",
        and(&parts),
        view.base
    )
}

fn costs(view: &View<'_>, engine: &str, comparisons: &[Comparison]) -> Vec<String> {
    let Some(phase) = view.main_phase() else {
        return Vec::new();
    };
    let ratio = |phase: &str, metric: &str| {
        let found = comparisons
            .iter()
            .find(|c| c.engine == engine && c.phase == phase && c.metric == metric)?;
        Some(format!("{:.2} times", found.ratio))
    };
    let written =
        ratio(&phase, "kb_written_per_op_settled").or_else(|| ratio(&phase, "kb_written_per_op"));
    let mut costs = Vec::new();
    costs
        .extend(ratio(&phase, "cpu_us_per_op.total").map(|r| format!("{r} the CPU per operation")));
    costs.extend(written.map(|r| format!("{r} the KiB written")));
    if let Some(last) = costs.last_mut() {
        *last += &format!(" in {phase}");
    }
    let settle = view.group.settles().pop();
    costs.extend(
        settle
            .and_then(|settle| ratio(&settle, "size_bytes.data"))
            .map(|r| format!("{r} the space")),
    );
    costs
}

/// Renders for each phase the throughput of all engines relative to the base.
pub fn relative_bars(view: &View<'_>) -> Markup {
    let comparisons = spread::compare_group(view.group, &view.base);
    let mut widest = 1.0f64;
    for found in comparisons.iter().filter(|found| is_rate(found)) {
        for ratio in [found.ratio, found.ratio_low, found.ratio_high] {
            widest = widest.max(ratio.log2().abs().min(10.0));
        }
    }
    let table = |phase: &String| {
        let mut table = BarTable::new(phase.clone(), &["ratio", unit(phase)]);
        for engine in view.group.engines_of(phase) {
            let mut found = comparisons.iter().filter(|found| is_rate(found));
            let found = found.find(|found| found.engine == engine && found.phase == *phase);
            let (bar, ratio) = relative(view, &engine, found, widest);
            let rate = number(view.group.median(&engine, phase, rate));
            table
                .rows
                .push((view.group.label(&engine), bar, vec![ratio, rate]));
        }
        table
    };
    html! {
        p.note {
            "Throughput relative to " (view.base) ". Right of the middle is faster; each line is a "
            "factor of two. Whiskers: interval or range over repetitions."
        }
        div.cards {
            @for phase in view.phases() { (table(&phase)) }
        }
    }
}

fn relative(
    view: &View<'_>,
    engine: &str,
    found: Option<&Comparison>,
    widest: f64,
) -> (Bar, String) {
    let place = |ratio: f64| (ratio.log2() / widest).clamp(-1.0, 1.0) / 2.0 + 0.5;
    let lines = (-(widest as i64)..=widest as i64).map(|i| i as f64 / widest / 2.0 + 0.5);
    let mut bar = Bar {
        lines: lines.collect(),
        strong: Some(0.5),
        ..Bar::default()
    };
    if engine == view.base {
        return (bar, "1".to_string());
    }
    let Some(found) = found else {
        return (bar, "-".to_string());
    };
    let (from, to) = (place(found.ratio.min(1.0)), place(found.ratio.max(1.0)));
    bar.segments
        .push((bars::engine_class(view.style(engine)), from, to));
    if !found.verdict.starts_with("n=1") {
        bar.whisker = Some((place(found.ratio_low), place(found.ratio_high)));
    }
    (bar, format!("{:.2}", found.ratio))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::selection::groups;

    #[test]
    fn each_engine_gets_one_sentence_with_its_ratios() {
        let suite = sample::suite();
        let found = groups(&suite, false);
        let styles = found[0].engines();
        let view = View {
            suite: &suite,
            group: &found[0],
            number: 0,
            base: "alluvium".to_string(),
            styles: &styles,
            detail: crate::report::html::page::DETAILS[0],
        };
        let text = of_other(
            &view,
            "sqlite",
            &spread::compare_group(&found[0], "alluvium"),
        );
        assert_eq!(
            text,
            "is slower in 1 and equal in 1 of 2 phases (0.50 to 1.00 times the throughput of alluvium); it takes \
             1.00 times the CPU per operation, 1.00 times the KiB written in request and 1.00 times the space."
        );
        let base = of_base(&view);
        assert_eq!(
            base,
            "is the base of all ratios: in request 2,000 op/s, 30.0 us of CPU/op and 2.50 KiB written/op; 1.00 GiB of data at the end."
        );
        assert_eq!(sentences(&view).0.matches("<li ").count(), 2);
    }

    #[test]
    fn a_verdict_counts_more_than_the_ratio() {
        let comparison = |ratio: f64, verdict: &str| Comparison {
            point: None,
            base: String::new(),
            engine: String::new(),
            phase: String::new(),
            metric: String::new(),
            ratio,
            ratio_low: ratio,
            ratio_high: ratio,
            verdict: verdict.to_string(),
        };
        assert_eq!(rank(&comparison(1.5, "no verdict")), Rank::Even);
        assert_eq!(rank(&comparison(1.01, "higher")), Rank::Above);
        assert_eq!(rank(&comparison(1.04, "range only")), Rank::Even);
        assert_eq!(rank(&comparison(0.9, "n=1, no spread")), Rank::Below);
    }
}
