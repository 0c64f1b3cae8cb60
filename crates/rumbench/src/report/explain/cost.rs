//! Costs that set an engine apart from the base, and their part of the throughput ratio.
//!
//! For embedded engines the account is exact: an operation takes longer or shorter on its client's
//! thread, partly in processor time and otherwise in waiting. For servers only the total processor
//! time is known. There a cost accounts for the share of the ratio that would remain if throughput
//! followed this cost alone: `ln(ratio of costs) / ln(ratio of throughputs)`. A cost explains
//! nothing and is left out if it is small against an operation's time, or differs in the other
//! direction.

use super::account::{self, EQUAL, Reason, Side};
use super::finding::{Figure, Finding, Kind, Scene};
use crate::report::throughput::{counts_rows, unit};
use crate::store::result::{Comparison, PhaseResult};
use crate::text::{gib, number};
use crate::text::{percent, times};

/// Smallest ratio of sizes that is mentioned.
const WORTH: f64 = 1.25;

/// Returns the sentence about an engine. `None` for the base itself, or without a comparison.
pub fn finding(scene: &Scene<'_>, engine: &str, phase: &str) -> Option<Finding> {
    if engine == scene.base {
        return None;
    }
    let (metric, item) = if counts_rows(phase) {
        ("rows_per_s", "row")
    } else {
        ("ops_per_s", "op")
    };
    let same = |found: &&Comparison| {
        found.engine == engine && found.phase == phase && found.metric == metric
    };
    let found = scene.comparisons.iter().find(same)?;
    let own = account::side(scene, engine, phase)?;
    let base = account::side(scene, &scene.base, phase)?;
    let (ratio, rates) = (found.ratio, rates(found, &own, &base));
    let figure = |metric: &str| figure(scene, engine, phase, metric);
    if is_equal(found) {
        let text = format!(
            "is as fast as {} ({} times, {rates}).",
            scene.base,
            times(ratio)
        );
        return Some(scene.finding(Kind::Cost, engine, phase, text, vec![figure(metric)]));
    }
    let (account, exact) = reasons(&own, &base, ratio, item);
    let mut text = format!(
        "has {} times the throughput of {} ({rates}): ",
        times(ratio),
        scene.base
    );
    text += &in_words(&account, exact);
    let mut metrics: Vec<&str> = account
        .iter()
        .flat_map(|reason| reason.metrics.clone())
        .collect();
    let brief = match account.first() {
        Some(Reason {
            name, share: part, ..
        }) => {
            format!(
                "of its {} times the throughput of {}, {name} accounts for {}",
                times(ratio),
                scene.base,
                share(*part)
            )
        }
        None => format!(
            "no measured cost explains its {} times the throughput of {}",
            times(ratio),
            scene.base
        ),
    };
    if exact {
        let told = |reason: &Reason| reason.metrics != ["cpu_us_per_op.total"];
        for reason in account::of_costs(&own, &base, ratio, item)
            .into_iter()
            .filter(told)
        {
            text += &format!("; {} differ too", reason.text);
            metrics.extend(reason.metrics);
        }
    }
    metrics.push(metric);
    let figures = metrics.into_iter().map(figure).collect();
    let finding = scene.finding(Kind::Cost, engine, phase, text + ".", figures);
    Some(finding.in_brief(brief))
}

fn rates(found: &Comparison, own: &Side, base: &Side) -> String {
    // The ratio comes from pairs of trials, not from these medians.
    let medians = if found.verdict.starts_with("n=1") {
        ""
    } else {
        "medians "
    };
    let [own, base] = [own, base].map(|side| number(Some(side.per_s)));
    format!("{medians}{own} against {base} {}", unit(&found.phase))
}

/// Returns the reasons for the ratio, and true if they are the exact account.
fn reasons(own: &Side, base: &Side, ratio: f64, item: &str) -> (Vec<Reason>, bool) {
    let threads = own.thread.zip(base.thread);
    let exact = threads.map(|(a, b)| account::of_threads(own, base, a, b, item));
    match exact.filter(|reasons| !reasons.is_empty()) {
        Some(reasons) => (reasons, true),
        None => (account::of_costs(own, base, ratio, item), false),
    }
}

fn in_words(reasons: &[Reason], exact: bool) -> String {
    if reasons.is_empty() {
        return "no measured cost explains it".to_string();
    }
    let told = reasons.iter().enumerate().map(|(i, reason)| {
        let (text, share) = (&reason.text, share(reason.share));
        match (exact, i) {
            (true, _) => format!("{text}, {share} of the difference in time"),
            (false, 0) => {
                format!("{text}: it differs most, and alone would account for {share} of the ratio")
            }
            (false, _) => format!("{text}, alone {share} of it"),
        }
    });
    told.collect::<Vec<_>>().join("; ")
}

/// Returns a metric of `result.json` as a figure: medians of the repetitions of both sides.
fn figure(scene: &Scene<'_>, engine: &str, phase: &str, metric: &str) -> Figure {
    let of = |engine: &str| {
        scene
            .group
            .median(engine, phase, |found| value(found, metric))
    };
    Figure::against(metric, of(engine), of(&scene.base))
}

fn value(phase: &PhaseResult, metric: &str) -> Option<f64> {
    let cpu = phase.cpu_us_per_op;
    match metric {
        "ops_per_s" => phase.ops_per_s,
        "rows_per_s" => phase.rows_per_s,
        "cpu_us_per_op.total" => cpu.map(|cpu| cpu.total),
        "cpu_us_per_op.client" => cpu?.client,
        "cpu_us_per_op.engine_foreground" => cpu.map(|cpu| cpu.engine_foreground),
        "cpu_us_per_op.machine" => cpu?.machine,
        "reads_per_op" => phase.reads_per_op,
        "kb_read_per_op" => phase.kb_read_per_op,
        "kb_written_per_op" => phase.kb_written_per_op,
        "context_switches_per_op" => phase.context_switches_per_op,
        _ => None,
    }
}

/// Decides equality by the verdict if there is one, else by a ratio near 1.
fn is_equal(found: &Comparison) -> bool {
    match found.verdict.as_str() {
        "higher" | "lower" => false,
        "no verdict" => true,
        _ => (found.ratio - 1.0).abs() < EQUAL,
    }
}

fn share(share: f64) -> String {
    match share {
        more if more > 1.05 => "more than all".to_string(),
        all if all > 0.95 => "all".to_string(),
        part => percent(part),
    }
}

/// Compares the size of the data with the base, after the last settle or else after the last phase
/// with sizes.
pub fn space(scene: &Scene<'_>) -> Vec<Finding> {
    let data = |engine: &str, phase: &str| {
        scene
            .group
            .median(engine, phase, |p| p.size_bytes.map(|size| gib(size.data)))
    };
    let mut phases = scene.phases();
    phases.extend(scene.group.settles().pop());
    let Some(last) = phases
        .iter()
        .rfind(|phase| data(&scene.base, phase).is_some())
    else {
        return Vec::new();
    };
    let Some(base) = data(&scene.base, last).filter(|base| *base > 0.0) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for engine in scene
        .group
        .engines_of(last)
        .iter()
        .filter(|engine| **engine != scene.base)
    {
        let Some(own) = data(engine, last).filter(|own| *own > 0.0) else {
            continue;
        };
        let factor = own / base;
        if factor < WORTH && factor > 1.0 / WORTH {
            continue;
        }
        let text = format!(
            "holds its data in {} times the space of {} ({} against {} GiB).",
            times(factor),
            scene.base,
            number(Some(own)),
            number(Some(base))
        );
        let bytes = |gib: f64| Some(gib * f64::from(1 << 30));
        let figure = Figure::against("size_bytes.data", bytes(own), bytes(base));
        findings.push(scene.finding(Kind::Cost, engine, last, text, vec![figure]));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::selection::groups;
    use crate::store::result::SuiteResult;

    /// Returns the finding about the second engine's requests.
    fn said(suite: &SuiteResult) -> Finding {
        let found = groups(suite, false);
        let scene = Scene::new(suite, &found[0], 0, "alluvium".to_string());
        finding(&scene, "sqlite", "request").unwrap()
    }

    /// Two clients; an operation takes 1000 us on their threads for the base and 2000 us for the
    /// other engine.
    fn suite(cpu: [f64; 2], reads: [f64; 2]) -> SuiteResult {
        let mut suite = sample::suite();
        for (i, trial) in suite.trials.iter_mut().enumerate() {
            let phase = &mut trial.phases[1];
            phase.clients = Some(2);
            phase.ops_per_s = Some(2000.0 / (i + 1) as f64);
            phase.reads_per_op = Some(reads[i]);
            let of = phase.cpu_us_per_op.as_mut().unwrap();
            (of.client, of.engine_foreground) = (Some(10.0), cpu[i] - 10.0);
        }
        suite
    }

    #[test]
    fn the_account_of_an_embedded_engine_is_exact() {
        let found = said(&suite([600.0, 1400.0], [0.0, 3.0]));
        assert_eq!(
            found.text,
            "has 0.50 times the throughput of alluvium (1,000 against 2,000 op/s): CPU on the clients' threads, 1,400 against 600 \
             us/op, 80 % of the difference in time; waiting, mostly for device reads, 600 against 400 us/op, 20 % of the difference in \
             time; device reads (3.00 against 0 reads/op, against none) differ too."
        );
        assert_eq!(found.figures[0].metric, "cpu_us_per_op.engine_foreground");
        assert_eq!(
            (found.figures[0].value, found.figures[0].base),
            (Some(1390.0), Some(590.0))
        );
    }

    #[test]
    fn a_cost_that_differs_the_other_way_explains_nothing() {
        let found = said(&suite([900.0, 200.0], [0.0, 0.0]));
        assert!(!found.text.contains("CPU on"), "{}", found.text);
        assert!(
            found.text.contains("more than all of the difference"),
            "{}",
            found.text
        );
    }

    #[test]
    fn equal_engines_have_no_reason() {
        let mut equal = suite([600.0, 900.0], [0.0, 0.0]);
        equal.trials[1].phases[1].ops_per_s = Some(1990.0);
        let text = said(&equal).text;
        assert_eq!(
            text,
            "is as fast as alluvium (0.99 times, 1,990 against 2,000 op/s)."
        );
    }
}
