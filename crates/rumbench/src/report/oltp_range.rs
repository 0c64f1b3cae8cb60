//! Tables of OLTP ranges: queries per second by the groups of the published reports with their
//! ratios to the base, the load with its index, and the cost of a query.
//!
//! A query is a statement, as the published numbers count it, including BEGIN and COMMIT of a
//! transaction. A scan is measured in thousands of rows that one client reads per second, and its
//! cost is per thousand rows.

use rumbench_core::oltp_range::Group as TestGroup;
use rumbench_core::oltp_range::tests::of_phase;

use super::selection::Group;
use super::table::Table;
use crate::store::result::{Latency, PhaseResult, SuiteResult};
use crate::text::number;

const GROUPS: [(TestGroup, &str); 4] = [
    (TestGroup::Points, "Point queries"),
    (TestGroup::Ranges, "Range queries without aggregation"),
    (
        TestGroup::Aggregates,
        "Range queries with aggregation or sort",
    ),
    (TestGroup::Writes, "Writes"),
];
const WARMUP: &str = "warmup-";
const LOAD: &str = "load";
const INDEX: &str = "index";

fn is_scan(phase: &str) -> bool {
    of_phase(phase).is_some_and(|test| test.name == "scan")
}

/// Returns the queries of a phase, or the thousands of rows of a scan.
fn items(phase: &PhaseResult) -> Option<f64> {
    let test = of_phase(&phase.name)?;
    if is_scan(&phase.name) && phase.lacks("rows") {
        return None;
    }
    Some(if is_scan(&phase.name) {
        phase.rows as f64 / 1e3
    } else {
        phase.operations as f64 * test.queries as f64
    })
}

/// Returns the compared rate: queries per second, or thousands of rows per second of one client.
fn rate(phase: &PhaseResult) -> Option<f64> {
    if !is_scan(&phase.name) {
        return items(phase).map(|queries| queries / phase.seconds.max(f64::MIN_POSITIVE));
    }
    let mean_us = phase.latency_us.values().next()?.mean;
    Some(items(phase)? / phase.operations.max(1) as f64 / (mean_us / 1e6))
}

/// Returns the load, then a table for each group of tests. Empty for other workloads.
pub fn summaries(suite: &SuiteResult, group: &Group<'_>, base: &str) -> Vec<Table> {
    if suite.workload != "oltp-range" {
        return Vec::new();
    }
    let mut tables = vec![load(group)];
    for (tests, title) in GROUPS {
        tables.extend(summary(group, tests, title, base));
    }
    tables
}

fn load(group: &Group<'_>) -> Table {
    let headers = [
        "engine",
        "load (s)",
        "index (s)",
        "rows per s (rows/s)",
        "cpu (us/row)",
        "wKB (KiB/row)",
    ];
    let mut table = Table::new("Load: rows of all tables, their index included", &headers);
    for engine in group.engines() {
        let of = |name, value: fn(&PhaseResult) -> Option<f64>| group.median(&engine, name, value);
        // An engine without an index phase adds no cost for it.
        let both = |value: fn(&PhaseResult) -> Option<f64>| {
            Some(of(LOAD, value)? + of(INDEX, value).unwrap_or(0.0))
        };
        let rows = of(LOAD, |phase| Some(phase.rows as f64)).filter(|rows| *rows > 0.0);
        let seconds = both(|phase| Some(phase.seconds));
        let per_row = |all: Option<f64>| Some(all? / rows?);
        let cpu = |phase: &PhaseResult| Some(phase.cpu_seconds?.all() * 1e6);
        table.rows.push(vec![
            group.label(&engine),
            number(of(LOAD, |phase| Some(phase.seconds))),
            number(of(INDEX, |phase| Some(phase.seconds))),
            number(rows.zip(seconds).map(|(rows, seconds)| rows / seconds)),
            number(per_row(both(cpu))),
            number(per_row(both(|phase| phase.kb_written))),
        ]);
    }
    table
}

/// Returns the phases of a group of tests, sorted by name and then by range.
fn tests_of(group: &Group<'_>, tests: TestGroup) -> Vec<String> {
    let mut phases = group.phases();
    phases.retain(|phase| {
        let of_group = of_phase(phase).is_some_and(|test| test.group == tests);
        of_group && !phase.starts_with(WARMUP)
    });
    phases.sort_by_key(|phase| {
        let (name, rest) = phase.split_once([':', '#']).unwrap_or((phase, ""));
        let range: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (
            name.to_string(),
            range.parse::<u64>().unwrap_or(0),
            phase.clone(),
        )
    });
    phases
}

fn summary(group: &Group<'_>, tests: TestGroup, title: &str, base: &str) -> Option<Table> {
    let engines = group.engines();
    let title = format!("{title}: queries per second, and divided by {base}");
    let mut table = Table::new(title, &["test"]);
    let headers = engines
        .iter()
        .map(|engine| format!("{} (1/s)", group.label(engine)));
    table.headers.extend(headers);
    let others = || engines.iter().filter(|engine| *engine != base);
    let headers = others().map(|engine| format!("{} (ratio)", group.label(engine)));
    table.headers.extend(headers);
    for phase in tests_of(group, tests) {
        let of = |engine: &str| group.median(engine, &phase, rate);
        let mut row = vec![phase.clone()];
        row.extend(engines.iter().map(|engine| number(of(engine))));
        row.extend(others().map(|engine| {
            let ratio = of(engine).zip(of(base)).map(|(mine, base)| mine / base);
            ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}"))
        }));
        if is_scan(&phase) {
            let note = "scan: thousands of rows per second of one client";
            table.notes.push(note.to_string());
        }
        table.rows.push(row);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the rate and cost of a query in one test.
pub fn columns(suite: &SuiteResult, group: &Group<'_>, phase: &str) -> Option<Table> {
    if suite.workload != "oltp-range" || of_phase(phase).is_none() {
        return None;
    }
    let unit = if is_scan(phase) { "1000 rows" } else { "query" };
    let mut table = Table::new(format!("{phase}: rate and cost"), &["engine"]);
    table.headers.extend([
        format!("rate ({unit}/s)"),
        "events (1/s)".to_string(),
        "rows (rows/s)".to_string(),
        "mean (ms)".to_string(),
        "p95 (ms)".to_string(),
        "max (ms)".to_string(),
        format!("cpu/o (us/{unit})"),
        format!("cs/o (1/{unit})"),
        format!("r/o (1/{unit})"),
        format!("rKB/o (KiB/{unit})"),
        format!("wKB/o (KiB/{unit})"),
    ]);
    for engine in group.engines_of(phase) {
        let of = |value: &dyn Fn(&PhaseResult) -> Option<f64>| {
            number(group.median(&engine, phase, value))
        };
        let each = |value: fn(&PhaseResult) -> Option<f64>| {
            of(&|phase| Some(value(phase)? * phase.operations as f64 / items(phase)?))
        };
        let ms = |value: fn(&Latency) -> f64| {
            of(&|phase| Some(value(phase.latency_us.values().next()?) / 1e3))
        };
        table.rows.push(vec![
            group.label(&engine),
            of(&|phase| Some(items(phase)? / phase.seconds)),
            of(&|phase| phase.ops_per_s),
            of(&|phase| phase.rows_per_s),
            ms(|latency| latency.mean),
            ms(|latency| latency.p95),
            ms(|latency| latency.max),
            each(|phase| Some(phase.cpu_us_per_op.as_ref()?.total)),
            each(|phase| phase.context_switches_per_op),
            each(|phase| phase.reads_per_op),
            each(|phase| phase.kb_read_per_op),
            each(|phase| phase.kb_written_per_op),
        ]);
    }
    Some(table)
}
