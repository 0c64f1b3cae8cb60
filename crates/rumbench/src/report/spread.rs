//! Ratios with their spread over repetitions, for the report and for `comparisons` in
//! `result.json`.

use super::selection::{Group, group_trials};
use super::table::Table;
use super::throughput::counts_rows;
use crate::measure::statistics::{Ratio, paired_ratio};
use crate::store::result::{Comparison, PhaseResult, TrialResult};

/// Note that explains both ends of a ratio.
pub const NOTE: &str = "low and high: 98 % t interval of the log ratios with five pairs or more, smallest and largest ratio with fewer";

/// Name of a compared metric and its getter.
type Compared = (&'static str, fn(&PhaseResult) -> Option<f64>);

const COMPARED: &[Compared] = &[
    ("ops_per_s", |phase| {
        phase.ops_per_s.filter(|_| !counts_rows(&phase.name))
    }),
    ("rows_per_s", |phase| {
        phase.rows_per_s.filter(|_| counts_rows(&phase.name))
    }),
    ("cpu_us_per_op.total", |phase| {
        phase.cpu_us_per_op.map(|cpu| cpu.total)
    }),
    ("kb_written_per_op", |phase| phase.kb_written_per_op),
    ("kb_written_per_op_settled", |phase| {
        phase.kb_written_per_op_settled
    }),
    ("size_bytes.data", settled_bytes),
];

/// Returns the size after a settle; other sizes are not comparable, because they depend on the
/// compaction backlog.
fn settled_bytes(phase: &PhaseResult) -> Option<f64> {
    let size = phase.size_bytes.filter(|_| phase.base_name() == "settle")?;
    Some(size.data as f64)
}

/// Compares the engines within each group of equal durability with `base` or the group's first
/// engine.
pub fn compare(trials: &[TrialResult], base: &str) -> Vec<Comparison> {
    let usable = trials
        .iter()
        .filter(|trial| !trial.has_mark("wrong-answer") && trial.durability_facts.is_some());
    group_trials(usable, false)
        .iter()
        .flat_map(|group| {
            let mut found = compare_group(group, &group.base(Some(base)));
            for comparison in &mut found {
                comparison.point.clone_from(&group.point);
            }
            found
        })
        .collect()
}

/// Compares the engines of one group with `base`.
pub fn compare_group(group: &Group<'_>, base: &str) -> Vec<Comparison> {
    let mut found = Vec::new();
    let mut phases = group.phases();
    phases.retain(|phase| phase != "warmup");
    phases.extend(group.settles());
    for engine in group.engines().iter().filter(|engine| *engine != base) {
        for phase in &phases {
            for (metric, value) in COMPARED {
                let pairs = pairs(group, base, engine, phase, *value);
                if let Some(ratio) = paired_ratio(&pairs) {
                    found.push(comparison(base, engine, phase, metric, &ratio));
                }
            }
        }
    }
    found
}

/// Returns the values of base and engine in the same repetition, from trials that ran next to each
/// other.
fn pairs(
    group: &Group<'_>,
    base: &str,
    engine: &str,
    phase: &str,
    value: fn(&PhaseResult) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let of = |name: &str, repetition: u32| {
        let trial = group
            .trials
            .iter()
            .find(|trial| trial.name() == name && trial.repetition == repetition)?;
        trial
            .phases
            .iter()
            .find(|found| found.name == phase)
            .and_then(value)
    };
    let last = group
        .trials
        .iter()
        .map(|trial| trial.repetition)
        .max()
        .unwrap_or(0);
    (1..=last)
        .filter_map(|repetition| of(base, repetition).zip(of(engine, repetition)))
        .collect()
}

fn comparison(base: &str, engine: &str, phase: &str, metric: &str, ratio: &Ratio) -> Comparison {
    Comparison {
        point: None,
        base: base.to_string(),
        engine: engine.to_string(),
        phase: phase.to_string(),
        metric: metric.to_string(),
        ratio: ratio.ratio,
        ratio_low: ratio.low,
        ratio_high: ratio.high,
        verdict: ratio.verdict().to_string(),
    }
}

/// Returns the spread of a group as a table. `None` if there is nothing to compare.
pub fn table(group: &Group<'_>, base: &str) -> Option<Table> {
    let comparisons = compare_group(group, base);
    let mut table = Table::new(
        format!("Spread: ratios to {base} of trials in the same repetition"),
        &[
            "engine", "phase", "metric", "ratio", "low", "high", "verdict",
        ],
    );
    table.text_columns = 3;
    for found in &comparisons {
        let alone = found.verdict.starts_with("n=1");
        let range = |value: f64| {
            if alone {
                "-".to_string()
            } else {
                format!("{value:.3}")
            }
        };
        table.rows.push(vec![
            group.label(&found.engine),
            found.phase.clone(),
            found.metric.clone(),
            format!("{:.3}", found.ratio),
            range(found.ratio_low),
            range(found.ratio_high),
            found.verdict.clone(),
        ]);
    }
    table.notes.push(NOTE.to_string());
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn engines_with_different_durability_are_not_compared() {
        let mut suite = sample::suite();
        assert!(!compare(&suite.trials, "alluvium").is_empty());
        suite.trials[1]
            .durability_facts
            .as_mut()
            .unwrap()
            .process_kill = "some".to_string();
        assert!(compare(&suite.trials, "alluvium").is_empty());
    }

    #[test]
    fn five_repetitions_give_a_verdict() {
        let suite = sample::suite();
        let mut trials = Vec::new();
        for repetition in 1..=5 {
            for mut trial in suite.trials.iter().cloned() {
                trial.repetition = repetition;
                trials.push(trial);
            }
        }
        let found = compare(&trials, "alluvium");
        let ops = found
            .iter()
            .find(|c| c.metric == "ops_per_s" && c.phase == "request")
            .unwrap();
        assert_eq!((ops.verdict.as_str(), ops.ratio), ("lower", 0.5));
    }
}
