//! Response times by operation: the short form of published LinkBench reports and the full
//! percentiles.

use super::selection::Group;
use super::table::Table;
use crate::store::result::Latency;
use crate::text::{count, number};

/// Operations and their short names; node operations first, as published.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("ADD_NODE", "an"),
    ("UPDATE_NODE", "un"),
    ("DELETE_NODE", "dn"),
    ("GET_NODE", "gn"),
    ("ADD_LINK", "al"),
    ("DELETE_LINK", "dl"),
    ("UPDATE_LINK", "ul"),
    ("COUNT_LINK", "cl"),
    ("MULTIGET_LINK", "mg"),
    ("GET_LINKS_LIST", "gll"),
];

/// Name of a column and its getter.
type Figure = (&'static str, fn(&Latency) -> f64);

/// Returns p99, maximum and mean of the ten operations, in milliseconds.
pub fn short(group: &Group<'_>, phase: &str) -> Option<Table> {
    let figures: [Figure; 3] = [("p99", |l| l.p99), ("max", |l| l.max), ("mean", |l| l.mean)];
    let mut table = Table::new(
        format!("{phase}: response time (ms)"),
        &["engine", "figure"],
    );
    table.text_columns = 2;
    table
        .headers
        .extend(SHORT_NAMES.iter().map(|(_, short)| format!("{short} (ms)")));
    for (figure, value) in figures {
        for engine in group.engines() {
            let cells: Vec<String> = SHORT_NAMES
                .iter()
                .map(|(name, _)| {
                    number(group.median(&engine, phase, |phase| {
                        phase
                            .latency_us
                            .get(*name)
                            .map(|latency| value(latency) / 1e3)
                    }))
                })
                .collect();
            if cells.iter().all(|cell| cell == "-") {
                continue;
            }
            let mut row = vec![group.label(&engine), figure.to_string()];
            row.extend(cells);
            table.rows.push(row);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns every percentile of every operation, in microseconds.
pub fn full(group: &Group<'_>, phase: &str) -> Option<Table> {
    const FIGURES: [Figure; 7] = [
        ("mean (us)", |l| l.mean),
        ("p50 (us)", |l| l.p50),
        ("p95 (us)", |l| l.p95),
        ("p99 (us)", |l| l.p99),
        ("p99.9 (us)", |l| l.p999),
        ("p99.99 (us)", |l| l.p9999),
        ("max (us)", |l| l.max),
    ];
    let mut table = Table::new(
        format!("{phase}: response time by operation"),
        &["operation", "engine"],
    );
    table.text_columns = 2;
    table.headers.push("count (op)".to_string());
    table
        .headers
        .extend(FIGURES.iter().map(|(name, _)| (*name).to_string()));
    let engines = group.engines();
    let mut operations: Vec<String> = Vec::new();
    for found in engines.iter().flat_map(|engine| group.of(engine, phase)) {
        for name in found
            .latency_us
            .keys()
            .filter(|name| !operations.contains(name))
            .collect::<Vec<_>>()
        {
            operations.push(name.clone());
        }
    }
    for operation in &operations {
        for engine in &engines {
            let ran = group.median(engine, phase, |phase| {
                let latency = phase.latency_us.get(operation);
                latency.map(|latency| latency.count as f64)
            });
            let Some(known) = ran else {
                continue;
            };
            // Imported response times may come without their count.
            let number_of = count(Some(known).filter(|count| *count > 0.0));
            let mut row = vec![operation.clone(), group.label(engine), number_of];
            row.extend(FIGURES.iter().map(|(_, value)| {
                number(group.median(engine, phase, |phase| {
                    phase.latency_us.get(operation).map(value)
                }))
            }));
            table.rows.push(row);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}
