//! Response-time tables of a step: the share of inserts, deletes and queries in each bucket, and
//! the longest response.

use std::collections::BTreeMap;

use super::super::selection::Group;
use super::super::table::{Table, Tint};
use crate::store::result::{Buckets, Latency, PhaseResult};

const HEADERS: &[&str] = &[
    "engine", "256us", "1ms", "4ms", "16ms", "64ms", "256ms", "1s", "4s", "16s", "gt", "max (s)",
];

/// Kind of operation of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Insert,
    Delete,
    Query,
}

impl Kind {
    /// Returns the kind of an operation; index builds have none. A delete that first reads the
    /// lowest key is timed only as a whole. It counts as a delete, because a queue full of deletes
    /// slows down this operation.
    fn of(operation: &str) -> Option<Kind> {
        match operation {
            "INSERT" => Some(Kind::Insert),
            "DELETE" | "MIN_AND_DELETE" => Some(Kind::Delete),
            "MARKET" | "REGISTER" | "PDC" | "POINTS" => Some(Kind::Query),
            _ => None,
        }
    }
}

/// Returns a table for each kind of operation in a step.
pub fn tables(group: &Group<'_>, phase: &str) -> Vec<Table> {
    let kinds = [
        (Kind::Query, "query"),
        (Kind::Insert, "insert"),
        (Kind::Delete, "delete"),
    ];
    let table = |(kind, name): (Kind, &str)| {
        let title = format!("{phase}: {name} response time (% of statements by upper bound)");
        let mut table = Table::new(title, HEADERS);
        let mut maxima = Vec::new();
        for engine in group.engines_of(phase) {
            // The counts of all repetitions are added.
            let mut sum = Buckets::default();
            let mut longest: Option<f64> = None;
            for phase in group.of(&engine, phase) {
                add(phase, kind, &mut sum, &mut longest);
            }
            if let Some(longest) = longest {
                table.rows.push(vec![group.label(&engine)]);
                for (text, shade) in shares(&sum) {
                    push(&mut table, text, shade);
                }
                push(&mut table, format!("{longest:.3}"), None);
                maxima.push(longest);
            }
        }
        let last = HEADERS.len() - 1;
        let tints = maxima_tints(&maxima).into_iter().enumerate();
        table
            .tints
            .extend(tints.filter_map(|(row, tint)| Some(((row, last), tint?))));
        (!table.rows.is_empty()).then_some(table)
    };
    kinds.into_iter().filter_map(table).collect()
}

/// Adds the responses of one kind from a phase and its background clients.
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

/// Adds a cell to the last row.
fn push(table: &mut Table, text: String, tint: Option<Tint>) {
    if let Some(row) = table.rows.last_mut() {
        row.push(text);
    }
    table.tint_last(tint);
}

/// Formats shares in percent with three decimals and the published gray, one shade for each 5 %. 0
/// is blank, and a share too small to print is `nonzero`.
fn shares(counts: &Buckets) -> Vec<(String, Option<Tint>)> {
    let total: u64 = counts.iter().sum();
    let share = |count: &u64| {
        if *count == 0 {
            return (String::new(), None);
        }
        let percent = *count as f64 * 100.0 / total as f64;
        let text = match format!("{percent:.3}") {
            text if text == "0.000" => "nonzero".to_string(),
            text => text,
        };
        (text, Some(Tint::Share((percent / 5.0).round() as u8)))
    };
    counts.iter().map(share).collect()
}

/// Returns the colors of the longest responses: the top quarter is bad, and the bottom quarter is
/// good unless all are close.
fn maxima_tints(maxima: &[f64]) -> Vec<Option<Tint>> {
    const CLOSE: f64 = 0.8;
    let min = maxima.iter().copied().fold(f64::INFINITY, f64::min);
    let max = maxima.iter().copied().fold(0.0, f64::max);
    let quarter = (max - min) / 4.0;
    let tint = |longest: &f64| match *longest {
        _ if maxima.len() < 2 => None,
        longest if longest >= max - quarter => Some(Tint::Bad),
        longest if longest <= min + quarter && min < CLOSE * max => Some(Tint::Good),
        _ => None,
    };
    maxima.iter().map(tint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent_and_traces_are_named() {
        let first = |counts: Buckets| {
            let shares: Vec<_> = shares(&counts).into_iter().take(3).collect();
            shares
        };
        let share = |text: &str, twentieths| (text.to_string(), Some(Tint::Share(twentieths)));
        let blank = || (String::new(), None);
        assert_eq!(
            first([667, 0, 333, 0, 0, 0, 0, 0, 0, 0]),
            [share("66.700", 13), blank(), share("33.300", 7)]
        );
        assert_eq!(
            first([10_000_000, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            [share("100.000", 20), share("nonzero", 0), blank()]
        );
    }

    #[test]
    fn the_longest_responses_are_colored_by_quarters() {
        let (good, bad) = (Some(Tint::Good), Some(Tint::Bad));
        assert_eq!(maxima_tints(&[0.1, 0.25, 0.5]), [good, None, bad]);
        assert_eq!(maxima_tints(&[0.45, 0.5]), [None, bad]);
        assert_eq!(maxima_tints(&[0.5]), [None]);
    }

    #[test]
    fn operations_are_counted_by_their_kind() {
        assert_eq!(Kind::of("MIN_AND_DELETE"), Some(Kind::Delete));
        assert_eq!(Kind::of("BUILD_INDEX"), None);
        assert_eq!(Kind::of("PDC"), Some(Kind::Query));
    }
}
