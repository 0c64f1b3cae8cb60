//! Comparable numbers of a phase: all with a better direction, by the names that `--fail-if` and
//! `list metrics` use.

use std::collections::BTreeMap;

use crate::measure::metrics;
use crate::report::throughput::counts_rows;
use crate::store::result::{Latency, PhaseResult, TrialResult};

/// Name of a metric and its getter.
type Found<T> = (&'static str, fn(&T) -> Option<f64>);

/// Numbers of a phase, in the order of the rows.
pub const NUMBERS: &[Found<PhaseResult>] = &[
    ("ops_per_s", |phase| {
        phase.ops_per_s.filter(|_| !counts_rows(&phase.name))
    }),
    ("rows_per_s", |phase| {
        phase.rows_per_s.filter(|_| counts_rows(&phase.name))
    }),
    ("cpu_us_per_op.total", |phase| {
        Some(phase.cpu_us_per_op?.total)
    }),
    ("context_switches_per_op", |phase| {
        phase.context_switches_per_op
    }),
    ("kb_read_per_op", |phase| phase.kb_read_per_op),
    ("kb_written_per_op", |phase| phase.kb_written_per_op),
    ("kb_written_per_op_settled", |phase| {
        phase.kb_written_per_op_settled
    }),
    ("size_bytes.data", |phase| {
        Some(
            phase
                .size_bytes
                .filter(|_| phase.base_name() == "settle")?
                .data as f64,
        )
    }),
    ("rss_bytes.peak", |phase| Some(phase.rss_bytes?.peak as f64)),
    ("stall_seconds", |phase| phase.stall_seconds),
    ("longest_stall_ms", |phase| phase.longest_stall_ms),
];

/// Figures of a latency, as `latency_us.OPERATION.FIGURE`.
pub const FIGURES: &[Found<Latency>] = &[
    ("mean", |latency| Some(latency.mean)),
    ("p50", |latency| Some(latency.p50)),
    ("p95", |latency| Some(latency.p95)),
    ("p99", |latency| Some(latency.p99)),
    ("p999", |latency| Some(latency.p999)),
    ("p9999", |latency| Some(latency.p9999)),
    ("max", |latency| Some(latency.max)),
];

/// One number in all repetitions.
#[derive(Debug, Clone)]
pub struct Value {
    /// Unit, as in `list metrics`.
    pub unit: &'static str,
    /// True if higher values are better.
    pub higher_is_better: bool,
    /// Values by repetition.
    pub by_repetition: BTreeMap<u32, f64>,
}

/// A number's position among the rows, and its name.
pub type Key = (usize, String);

/// Collects all numbers of a phase.
pub fn values(trials: &[&TrialResult], phase: &str) -> BTreeMap<Key, Value> {
    let mut found = BTreeMap::new();
    for trial in trials {
        let Some(phase) = trial.phases.iter().find(|found| found.name == phase) else {
            continue;
        };
        let mut put = |key: Key, empty: Value, value: Option<f64>| {
            if let Some(value) = value {
                let entry = found.entry(key).or_insert(empty);
                entry.by_repetition.insert(trial.repetition, value);
            }
        };
        for (place, (name, value)) in NUMBERS.iter().enumerate() {
            let metric = metrics::find(name);
            let better = metric.and_then(|metric| metric.higher_is_better);
            let empty = Value {
                unit: metric.map_or("", |metric| metric.unit),
                higher_is_better: better.unwrap_or(false),
                by_repetition: BTreeMap::new(),
            };
            put((place, (*name).to_string()), empty, value(phase));
        }
        for (operation, latency) in &phase.latency_us {
            for (figure, value) in FIGURES {
                let empty = Value {
                    unit: "us",
                    higher_is_better: false,
                    by_repetition: BTreeMap::new(),
                };
                let key = (NUMBERS.len(), format!("latency_us.{operation}.{figure}"));
                put(key, empty, value(latency).filter(|us| us.is_finite()));
            }
        }
    }
    found
}

/// Returns the names that a threshold may use.
pub fn names() -> Vec<String> {
    let numbers = NUMBERS.iter().map(|(name, _)| (*name).to_string());
    let latencies = FIGURES
        .iter()
        .map(|(figure, _)| format!("latency_us.{figure}"));
    numbers.chain(latencies).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compared_number_is_a_metric_with_a_better_side() {
        for (name, _) in NUMBERS {
            let metric = metrics::find(name);
            assert!(
                metric.is_some_and(|metric| metric.higher_is_better.is_some()),
                "{name}"
            );
        }
    }
}
