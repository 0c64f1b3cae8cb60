//! Comparison of two results: ratios of trials of the same repetition, a verdict for each number
//! and one for each engine.
//!
//! [`mod@values`] lists the comparable numbers, [`differences`] the other differences between the
//! results, [`threshold`] the conditions on which a script may fail. Fewer than five pairs give no
//! verdict, however large the ratio.

pub mod differences;
pub mod threshold;
#[cfg(test)]
mod trust;
pub mod values;

use serde::Serialize;

use self::values::{Value, values};
use super::table::Table;
use crate::measure::statistics::{Ratio, median, paired_ratio};
use crate::store::result::TrialResult;
use crate::text::number;

/// Verdict on one number or on one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The new result is better.
    Better,
    /// The new result is worse.
    Worse,
    /// Some numbers are better and some are worse.
    Mixed,
    /// The interval includes 1.
    #[serde(rename = "no-verdict")]
    Undecided,
    /// Two to four pairs: a range without a verdict.
    RangeOnly,
    /// One pair: no spread.
    Alone,
}

impl Verdict {
    /// Returns the printed form.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Mixed => "mixed",
            Verdict::Undecided => "no verdict",
            Verdict::RangeOnly => "range only",
            Verdict::Alone => "n=1, no spread",
        }
    }

    fn of(ratio: &Ratio, higher_is_better: bool) -> Verdict {
        match (ratio.verdict(), higher_is_better) {
            ("higher", true) | ("lower", false) => Verdict::Better,
            ("higher", false) | ("lower", true) => Verdict::Worse,
            ("no verdict", _) => Verdict::Undecided,
            _ if ratio.pairs == 1 => Verdict::Alone,
            _ => Verdict::RangeOnly,
        }
    }
}

/// One number of both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Engine, or both engines if they differ.
    pub engine: String,
    /// Phase.
    pub phase: String,
    /// Metric as in `result.json`; for latencies with operation and percentile.
    pub metric: String,
    /// Unit of `base` and `new`.
    pub unit: &'static str,
    /// Median of the base result.
    pub base: f64,
    /// Median of the new result.
    pub new: f64,
    /// Geometric mean of the paired ratios new / base.
    pub ratio: f64,
    /// Lower end of the interval or range.
    pub ratio_low: f64,
    /// Upper end of the interval or range.
    pub ratio_high: f64,
    /// Number of pairs of repetitions.
    pub pairs: usize,
    /// Verdict from the interval.
    pub verdict: Verdict,
}

/// Compares all numbers that trials of both sides have.
pub fn compare(engine: &str, base: &[&TrialResult], new: &[&TrialResult]) -> Vec<Row> {
    let mut phases: Vec<&str> = Vec::new();
    for phase in base
        .iter()
        .flat_map(|trial| &trial.phases)
        .filter(|phase| phase.name != "warmup")
    {
        if !phases.contains(&phase.name.as_str()) {
            phases.push(&phase.name);
        }
    }
    let mut rows = Vec::new();
    for phase in phases {
        let (mut base, mut new) = (values(base, phase), values(new, phase));
        for (name, value) in std::mem::take(&mut base) {
            if let Some(other) = new.remove(&name) {
                rows.extend(row(engine, phase, &name.1, &value, &other));
            }
        }
    }
    rows
}

fn row(engine: &str, phase: &str, metric: &str, base: &Value, new: &Value) -> Option<Row> {
    let of = |repetition: &u32| new.by_repetition.get(repetition);
    let pairs: Vec<(f64, f64)> = base
        .by_repetition
        .iter()
        .filter_map(|(n, value)| Some((*value, *of(n)?)))
        .collect();
    let ratio = paired_ratio(&pairs)?;
    let middle = |value: &Value| median(&value.by_repetition.values().copied().collect::<Vec<_>>());
    Some(Row {
        engine: engine.to_string(),
        phase: phase.to_string(),
        metric: metric.to_string(),
        unit: base.unit,
        base: middle(base)?,
        new: middle(new)?,
        ratio: ratio.ratio,
        ratio_low: ratio.low,
        ratio_high: ratio.high,
        pairs: ratio.pairs,
        verdict: Verdict::of(&ratio, base.higher_is_better),
    })
}

/// Returns one verdict over all rows.
pub fn overall(rows: &[&Row]) -> Verdict {
    let has = |verdict| rows.iter().any(|row| row.verdict == verdict);
    match (has(Verdict::Better), has(Verdict::Worse)) {
        (true, true) => Verdict::Mixed,
        (true, false) => Verdict::Better,
        (false, true) => Verdict::Worse,
        _ if has(Verdict::Undecided) => Verdict::Undecided,
        _ if has(Verdict::RangeOnly) => Verdict::RangeOnly,
        _ => Verdict::Alone,
    }
}

/// Renders one line for each engine.
pub fn summary(rows: &[Row]) -> String {
    let mut engines: Vec<&str> = rows.iter().map(|row| row.engine.as_str()).collect();
    engines.dedup();
    let mut out = String::new();
    for engine in engines {
        let own: Vec<&Row> = rows.iter().filter(|row| row.engine == engine).collect();
        let count = |verdict| own.iter().filter(|row| row.verdict == verdict).count();
        out += &format!(
            "{engine}: {} ({} better, {} worse, {} without a verdict)\n",
            overall(&own).text(),
            count(Verdict::Better),
            count(Verdict::Worse),
            own.len() - count(Verdict::Better) - count(Verdict::Worse)
        );
    }
    let pairs = rows.iter().map(|row| row.pairs).min().unwrap_or(0);
    if pairs < crate::measure::statistics::PAIRS_FOR_VERDICT {
        out += "fewer than five pairs of repetitions: no verdict, whatever the ratios\n";
    } else if rows.len() >= 25 {
        out += &format!(
            "of {} comparisons about {:.0} would show a verdict by chance\n",
            rows.len(),
            rows.len() as f64 * 0.02
        );
    }
    out
}

/// Returns the table of all rows.
pub fn table(rows: &[Row]) -> Table {
    let headers = [
        "engine", "phase", "metric", "base", "new", "unit", "ratio", "low", "high", "pairs",
        "verdict",
    ];
    let mut table = Table::new("Ratios new / base", &headers);
    table.text_columns = 3;
    for row in rows {
        let range = |value: f64| {
            if row.pairs == 1 {
                "-".to_string()
            } else {
                format!("{value:.3}")
            }
        };
        table.rows.push(vec![
            row.engine.clone(),
            row.phase.clone(),
            row.metric.clone(),
            number(Some(row.base)),
            number(Some(row.new)),
            row.unit.to_string(),
            format!("{:.3}", row.ratio),
            range(row.ratio_low),
            range(row.ratio_high),
            row.pairs.to_string(),
            row.verdict.text().to_string(),
        ]);
    }
    table.notes.push(super::spread::NOTE.to_string());
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// Five repetitions of the sample's first engine, with `change` applied to each.
    fn trials(change: impl Fn(u32, &mut TrialResult)) -> Vec<TrialResult> {
        let one = sample::suite().trials.remove(0);
        let repeated = (1..=5).map(|repetition| {
            let mut trial = TrialResult {
                repetition,
                ..one.clone()
            };
            change(repetition, &mut trial);
            trial
        });
        repeated.collect()
    }

    fn rows(base: &[TrialResult], new: &[TrialResult]) -> Vec<Row> {
        compare(
            "alluvium",
            &base.iter().collect::<Vec<_>>(),
            &new.iter().collect::<Vec<_>>(),
        )
    }

    #[test]
    fn more_operations_are_better_and_more_cpu_is_worse() {
        let base = trials(|_, _| {});
        let new = trials(|_, trial| {
            trial.phases[1].ops_per_s = Some(3000.0);
            trial.phases[1].cpu_us_per_op.as_mut().unwrap().total = 60.0;
        });
        let found = rows(&base, &new);
        let verdict = |metric: &str| {
            found
                .iter()
                .find(|row| row.phase == "request" && row.metric == metric)
                .unwrap()
                .verdict
        };
        assert_eq!(
            (verdict("ops_per_s"), verdict("cpu_us_per_op.total")),
            (Verdict::Better, Verdict::Worse)
        );
        assert_eq!(verdict("latency_us.GET_NODE.p99"), Verdict::Undecided);
        assert_eq!(overall(&found.iter().collect::<Vec<_>>()), Verdict::Mixed);
        assert!(
            summary(&found).starts_with("alluvium: mixed (1 better, 1 worse, "),
            "{}",
            summary(&found)
        );
    }

    #[test]
    fn four_pairs_give_a_range_and_repetitions_without_a_partner_are_left_out() {
        let base = trials(|_, _| {});
        let mut new = trials(|n, trial| trial.phases[1].ops_per_s = Some(3000.0 + f64::from(n)));
        new.remove(0);
        let found = rows(&base, &new);
        let row = found.iter().find(|row| row.metric == "ops_per_s").unwrap();
        assert_eq!((row.pairs, row.verdict), (4, Verdict::RangeOnly));
        assert!(summary(&found).contains("fewer than five pairs"));
    }
}
