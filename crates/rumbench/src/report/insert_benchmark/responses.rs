//! Response-time tables of a step: which share of inserts, deletes and queries fell into each bucket, and the longest.

use std::collections::BTreeMap;

use super::super::selection::Group;
use super::super::table::Table;
use crate::measure::latency::Buckets;
use crate::store::result::{Latency, PhaseResult};

const HEADERS: &[&str] = &[
    "engine", "256us", "1ms", "4ms", "16ms", "64ms", "256ms", "1s", "4s", "16s", "gt", "max (s)",
];

/// Whose responses a table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Insert,
    Delete,
    Query,
}

impl Kind {
    /// The kind of an operation; building an index is none, nor is a delete that reads the lowest key first.
    fn of(operation: &str) -> Option<Kind> {
        match operation {
            "INSERT" => Some(Kind::Insert),
            "DELETE" => Some(Kind::Delete),
            "MARKET" | "REGISTER" | "PDC" | "POINTS" => Some(Kind::Query),
            _ => None,
        }
    }
}

/// A table for each kind that a step has.
pub fn tables(group: &Group<'_>, phase: &str) -> Vec<Table> {
    let kinds = [
        (Kind::Query, "query"),
        (Kind::Insert, "insert"),
        (Kind::Delete, "delete"),
    ];
    let table = |(kind, name): (Kind, &str)| {
        let title = format!("{phase}: {name} response time (% of statements by upper bound)");
        let mut table = Table::new(title, HEADERS);
        for engine in group.engines_of(phase) {
            // Counts of all repetitions are added.
            let mut sum = Buckets::default();
            let mut longest: Option<f64> = None;
            for phase in group.of(&engine, phase) {
                add(phase, kind, &mut sum, &mut longest);
            }
            if let Some(longest) = longest {
                let mut row = vec![group.label(&engine)];
                row.extend(percentages(&sum));
                row.push(format!("{longest:.3}"));
                table.rows.push(row);
            }
        }
        (!table.rows.is_empty()).then_some(table)
    };
    kinds.into_iter().filter_map(table).collect()
}

/// Adds what a phase and the clients beside it recorded of a kind.
fn add(phase: &PhaseResult, kind: Kind, sum: &mut Buckets, longest: &mut Option<f64>) {
    let mut take = |buckets: &BTreeMap<String, Buckets>, latencies: &BTreeMap<String, Latency>| {
        let of_kind = |name: &str| Kind::of(name) == Some(kind);
        for (_, counts) in buckets.iter().filter(|(name, _)| of_kind(name)) {
            sum.iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
        }
        for (_, latency) in latencies.iter().filter(|(name, _)| of_kind(name)) {
            let seconds = latency.max / 1e6;
            *longest = Some(longest.map_or(seconds, |longest| longest.max(seconds)));
        }
    };
    take(&phase.response_buckets, &phase.latency_us);
    if let Some(background) = &phase.background {
        take(&background.response_buckets, &background.latency_us);
    }
}

/// Percent with three decimals; nothing is blank, and what is too little to be printed is `nonzero`.
fn percentages(counts: &Buckets) -> Vec<String> {
    let total: u64 = counts.iter().sum();
    let percent = |count: &u64| {
        if *count == 0 {
            return String::new();
        }
        let text = format!("{:.3}", *count as f64 * 100.0 / total as f64);
        match text.as_str() {
            "0.000" => "nonzero".to_string(),
            _ => text,
        }
    };
    counts.iter().map(percent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent_and_traces_are_named() {
        let counts = [667, 0, 333, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(percentages(&counts)[..3], ["66.700", "", "33.300"]);
        let counts = [10_000_000, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(percentages(&counts)[..3], ["100.000", "nonzero", ""]);
    }

    #[test]
    fn operations_that_are_no_statement_of_the_reference_are_left_out() {
        assert_eq!(Kind::of("MIN_AND_DELETE"), None);
        assert_eq!(Kind::of("BUILD_INDEX"), None);
        assert_eq!(Kind::of("PDC"), Some(Kind::Query));
    }
}
