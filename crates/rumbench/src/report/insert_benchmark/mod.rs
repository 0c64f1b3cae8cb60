//! Tables of the Insert Benchmark's reports: the summaries, the record of each step, response
//! times, rates over time.
//!
//! [`record`] has the formulas, [`summary`] the rules for colors. The formulas and rules do not
//! depend on results, so that published values can test them.

pub mod record;
pub mod responses;
pub mod steps;
pub mod summary;

use std::collections::BTreeMap;

use super::selection::Group;
use super::table::Table;
use crate::store::result::{PhaseResult, SuiteResult, TrialResult, base_name};
use crate::text::number;
use record::{Measured, rate_at};
use steps::{is_query, is_write};

/// Rows that `l.x` inserts. The record counts them once for any number of tables.
const ROWS_L_X: f64 = 100.0;
/// Rows over which the last rate is computed, in the form of 2016.
const LAST_ROWS: u64 = 100_000;

/// Returns the three summary tables, and the worst seconds of the background inserts. Empty for
/// other workloads.
pub fn summaries(suite: &SuiteResult, group: &Group<'_>, base: &str) -> Vec<Table> {
    if suite.workload != "insert-benchmark" {
        return Vec::new();
    }
    let mut phases = group.phases();
    phases.retain(|phase| is_write(phase) || is_query(phase));
    let mut tables = vec![
        summary::absolute(group, &phases),
        summary::relative(group, &phases, base),
    ];
    phases.retain(|phase| is_query(phase));
    if !phases.is_empty() {
        tables.push(summary::background(group, &phases));
        tables.extend(summary::worst_seconds(group, &phases));
    }
    tables
}

/// Returns the tables of one step: the record, the record relative to the base, response times, and
/// rates over time.
pub fn step(suite: &SuiteResult, group: &Group<'_>, phase: &str, base: &str) -> Vec<Table> {
    if suite.workload != "insert-benchmark" {
        return Vec::new();
    }
    let cpus = suite.environment.get("cpus");
    let cpus = cpus.and_then(|cpus| cpus.parse().ok()).unwrap_or(1.0);
    let records = records(group, phase, cpus);
    let mut tables = vec![absolute_records(&records, phase)];
    tables.extend(relative_records(&records, phase, base));
    tables.extend(responses::tables(group, phase));
    if is_write(phase) {
        tables.extend(slices(group, phase));
        tables.extend(single_stream(group, phase));
    }
    tables
}

/// Measurements of a step, by trial.
type Records<'a> = Vec<(&'a TrialResult, Measured)>;

fn records<'a>(group: &Group<'a>, phase: &str, cpus: f64) -> Records<'a> {
    let mut records = Vec::new();
    for trial in &group.trials {
        let setting = |key: &str| {
            let text = trial.configuration.get(&format!("workload.{key}"))?;
            text.parse::<f64>().ok()
        };
        let loaded = setting("rows").zip(setting("tables")).map(|(x, c)| x * c);
        for found in steps(trial, phase) {
            records.push((*trial, measured(found, loaded, cpus)));
        }
    }
    records
}

/// Returns the steps with this name that a trial has run.
fn steps<'a>(trial: &'a TrialResult, phase: &str) -> impl Iterator<Item = &'a PhaseResult> {
    let found = trial.phases.iter().filter(move |found| found.name == phase);
    found.filter(|found| found.has_worked())
}

/// Creates an empty table of records.
fn record_table(title: String) -> Table {
    let mut table = Table::new(title, record::COLUMNS);
    // The tag comes last, as in the published records.
    table.text_columns = 0;
    table
}

fn absolute_records(records: &Records<'_>, phase: &str) -> Table {
    let mut table = record_table(format!("{phase}: record, one line for each trial"));
    let lines = records.iter();
    table.rows = lines
        .map(|(trial, of)| record::line(of, &trial.name()))
        .collect();
    table
}

/// Returns each record divided by that of the base in the same repetition. `None` without a pair.
fn relative_records(records: &Records<'_>, phase: &str, base: &str) -> Option<Table> {
    let mut table = record_table(format!("{phase}: record relative to {base}"));
    let others = records.iter().filter(|(trial, _)| trial.name() != base);
    table.rows = others
        .filter_map(|(trial, of)| {
            let is_base =
                |other: &TrialResult| other.name() == base && other.repetition == trial.repetition;
            let (_, base) = records.iter().find(|(other, _)| is_base(other))?;
            Some(record::relative(of, base, &trial.name()))
        })
        .collect();
    (!table.rows.is_empty()).then_some(table)
}

/// Collects the inputs of a record.
fn measured(phase: &PhaseResult, loaded: Option<f64>, cpus: f64) -> Measured {
    let seconds = phase.seconds.max(f64::MIN_POSITIVE);
    // Imported records contain only the rate.
    let known = !phase.lacks("seconds") && !phase.lacks("operations");
    let per_s = if known {
        Some(phase.operations as f64 / seconds)
    } else {
        phase.ops_per_s
    };
    let a_second = |per_op: Option<f64>| Some(per_op? * per_s?);
    let writes = is_write(&phase.name);
    let background = phase.background.as_ref();
    let inserted = match base_name(&phase.name) {
        "l.i0" => loaded,
        "l.x" => loaded.map(|loaded| loaded + ROWS_L_X),
        _ => Some(phase.rows as f64),
    };
    let longest = |latencies: &BTreeMap<String, crate::store::result::Latency>| {
        let of = |name: &String| !writes || name == "INSERT";
        let maxima = latencies.iter().filter(|entry| of(entry.0));
        maxima
            .map(|(_, latency)| latency.max / 1e6)
            .reduce(f64::max)
    };
    let (cpups, cpus) = processors(phase, cpus);
    let rates = rates(phase);
    Measured {
        writes,
        ips: match (writes, known) {
            (true, true) if loaded.is_some() => inserted.map(|rows| rows / seconds),
            (true, _) => phase.rows_per_s,
            (false, false) => imported(phase, "ips"),
            (false, true) => background.and_then(|background| background.rows_per_s),
        },
        qps: if writes { Some(0.0) } else { phase.ops_per_s },
        rps: a_second(phase.reads_per_op),
        rkbps: a_second(phase.kb_read_per_op),
        wps: a_second(phase.writes_per_op),
        wkbps: a_second(phase.kb_written_per_op),
        csps: a_second(phase.context_switches_per_op),
        cpups,
        cpus,
        data_bytes: phase.size_bytes.map(|size| size.data),
        directory_bytes: phase.size_bytes.map(|size| size.directory),
        rss_bytes: match imported(phase, "rss_gib") {
            None => phase.rss_bytes.map(|rss| rss.peak),
            Some(gib) => Some((gib * f64::from(1 << 30)) as u64),
        },
        max_op_seconds: longest(&phase.latency_us),
        p50: rate_at(&rates, 0.50).or(imported(phase, "p50")),
        p99: rate_at(&rates, 0.99).or(imported(phase, "p99")),
    }
}

/// Returns a column of an imported record without a field in results of its own.
fn imported(phase: &PhaseResult, column: &str) -> Option<f64> {
    let counter = format!("iibench.{column}");
    phase.engine_counters.get(&counter).copied()
}

/// Returns the percentage of the machine's processors in use, and their number.
fn processors(phase: &PhaseResult, cpus: f64) -> (Option<f64>, f64) {
    let Some(cpups) = imported(phase, "cpups") else {
        let machine = phase.cpu_seconds.and_then(|cpu| cpu.machine);
        let seconds = phase.seconds.max(f64::MIN_POSITIVE);
        return (
            machine.map(|machine| 100.0 * machine / (seconds * cpus)),
            cpus,
        );
    };
    // An imported record also has the cost of an operation, from which the number of processors
    // follows.
    let machine_us = phase.cpu_us_per_op.and_then(|cpu| cpu.machine);
    let in_use = machine_us
        .zip(phase.ops_per_s)
        .map(|(us, per_s)| us * per_s / 1e6);
    (
        Some(cpups),
        in_use.map_or(cpus, |in_use| in_use / (cpups / 100.0)),
    )
}

/// Returns the number of rows per insert of a step.
fn batch(phase: &PhaseResult) -> f64 {
    let inserts = phase.latency_us.get("INSERT").map_or(0, |all| all.count);
    phase.rows as f64 / inserts.max(1) as f64
}

/// Returns the rows inserted, or queries, in each whole second. Empty for `l.x`, which mainly
/// builds indexes.
fn rates(phase: &PhaseResult) -> Vec<f64> {
    if base_name(&phase.name) == "l.x" {
        return Vec::new();
    }
    let seconds = phase.whole_seconds().iter();
    if is_write(&phase.name) {
        let batch = batch(phase);
        let inserts = seconds.map(|second| second.op_counts.get("INSERT").copied());
        inserts
            .map(|inserts| inserts.unwrap_or(0) as f64 * batch)
            .collect()
    } else {
        seconds.map(|second| second.ops as f64).collect()
    }
}

/// Returns the mean insert rates of ten equal parts of a step. `None` if every trial is shorter
/// than ten seconds.
fn slices(group: &Group<'_>, phase: &str) -> Option<Table> {
    let mut headers = vec!["engine".to_string()];
    headers.extend((1..=10).map(|tenth| format!("{tenth}/10")));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let mut table = Table::new(
        format!("{phase}: insert rate over time (rows/s in each tenth of the step)"),
        &headers,
    );
    let repeats = group.trials.iter().any(|trial| trial.repetition > 1);
    for engine in group.engines_of(phase) {
        let trials = group.trials.iter().filter(|trial| trial.name() == engine);
        let measured =
            trials.flat_map(|trial| steps(trial, phase).map(move |found| (trial, rates(found))));
        for (trial, rates) in measured.filter(|(_, rates)| rates.len() >= 10) {
            let label = group.label(&engine);
            let mut row = vec![if repeats {
                format!("{label} #{}", trial.repetition)
            } else {
                label
            }];
            row.extend((0..10).map(|tenth| {
                let part = &rates[tenth * rates.len() / 10..(tenth + 1) * rates.len() / 10];
                number(Some(part.iter().sum::<f64>() / part.len() as f64))
            }));
            table.rows.push(row);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the table of 2016: one stream of inserts with all indexes in place.
fn single_stream(group: &Group<'_>, phase: &str) -> Option<Table> {
    let form = |trial: &&&TrialResult| {
        let form = trial.configuration.get("workload.form");
        form.is_some_and(|form| form == "2016")
    };
    let mut table = Table::new(
        format!("{phase}: one stream of inserts"),
        &[
            "engine",
            "rows",
            "seconds (s)",
            "average ips (rows/s)",
            "last ips (rows/s)",
        ],
    );
    for trial in group.trials.iter().filter(form) {
        for found in steps(trial, phase) {
            table.rows.push(vec![
                trial.name(),
                number(Some(found.rows as f64)),
                number(Some(found.seconds)),
                number(found.rows_per_s),
                number(last_rate(&rates(found))),
            ]);
        }
    }
    table.notes.push(format!(
        "last ips: over the last whole seconds that together inserted {LAST_ROWS} rows"
    ));
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the mean rate of the last whole seconds that together have [`LAST_ROWS`] rows, or of all
/// seconds if there are fewer rows.
fn last_rate(rates: &[f64]) -> Option<f64> {
    let (mut rows, mut seconds) = (0.0, 0);
    for rate in rates.iter().rev() {
        rows += rate;
        seconds += 1;
        if rows >= LAST_ROWS as f64 {
            break;
        }
    }
    (seconds > 0).then(|| rows / f64::from(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_build_has_no_rate_of_inserts_over_time() {
        let step = |name: &str| PhaseResult {
            name: name.to_string(),
            seconds: 1.0,
            rows: 10,
            intervals: vec![crate::store::result::Interval::default()],
            ..PhaseResult::default()
        };
        assert_eq!(rates(&step("l.i1")), [0.0]);
        assert!(rates(&step("l.x")).is_empty());
    }

    #[test]
    fn the_last_rate_is_that_of_the_last_hundred_thousand_rows() {
        assert_eq!(last_rate(&[90_000.0, 60_000.0, 50_000.0]), Some(55_000.0));
        assert_eq!(last_rate(&[10.0, 20.0]), Some(15.0));
        assert_eq!(last_rate(&[]), None);
    }
}
