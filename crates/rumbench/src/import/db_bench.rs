//! db_bench: its own output, and the `report.tsv` that benchmark.sh makes of it.
//!
//! Columns are found by name, because their positions differ between versions. Percentiles come
//! from exponential buckets and are interpolated. `c_wgb`, `w_amp`, `stall%` and similar columns
//! are counters of RocksDB and remain counters under their own names: published `w_amp` counts a
//! flush twice, so it is not the write amplification of a device.

use std::collections::BTreeMap;

use anyhow::Result;

use super::found::{
    Found, Source, columns, known, number, numbered, unknown_latency, unknown_phase,
};
use crate::report::throughput::counts_rows;
use crate::store::result::{Latency, PhaseResult};

/// Columns of a report without an equivalent in our results.
const COUNTERS: &[&str] = &[
    "mb_sec", "c_wgb", "w_amp", "c_mbps", "c_wsecs", "c_csecs", "b_rgb", "b_wgb", "uptime",
    "stall%", "Nstall", "u_cpu", "s_cpu", "rss",
];

/// Operation of a step in kv-sequence, by prefix of the step's name; other steps use their own name
/// in upper case.
const OPERATIONS: &[(&str, &str)] = &[
    ("fillseq", "LOAD"),
    ("revrange", "SCAN_REVERSE"),
    ("fwdrange", "SCAN"),
    ("multireadrandom", "MULTIGET"),
    ("overwrite", "PUT"),
    ("fill", "PUT"),
    ("readrandom", "GET"),
    ("readwhilewriting", "GET"),
    ("seekrandom", "SCAN"),
];

/// Reads all files as the steps of one trial.
///
/// # Errors
/// A usage error for a file without a result.
pub fn read(sources: &[Source]) -> Result<Found> {
    let mut found = Found::default();
    for source in sources {
        let before = found.phases.len();
        let rows = columns(&source.text, "ops_sec");
        for row in &rows {
            let test = row.get("test").copied().unwrap_or_default();
            let name = test.split('.').next().filter(|name| !name.is_empty());
            let Some(name) = source.step.as_deref().or(name) else {
                return Err(source.refused("a row has no test; name it: STEP=FILE"));
            };
            let name = numbered(&found.phases, name);
            found.version = row.get("version").map(|version| (*version).to_string());
            found.phases.extend(of_row(row, name, test));
        }
        if rows.is_empty() {
            of_output(source, &mut found);
        }
        if found.phases.len() == before {
            return Err(source.refused(
                "no result of db_bench: expected lines such as `fillseq : 0.9 micros/op 1000000 ops/sec ...`, or a report.tsv with a column ops_sec",
            ));
        }
    }
    Ok(found)
}

/// Converts one row of a report. A row without a rate belongs to a failed step.
fn of_row(row: &BTreeMap<&str, &str>, name: String, test: &str) -> Option<PhaseResult> {
    let value = |column: &str| row.get(column).and_then(|text| number(text));
    let mut phase = rated(name, value("ops_sec")?);
    let threads = test
        .split('.')
        .find_map(|part| part.strip_prefix('t')?.parse().ok());
    phase.clients = threads;
    let us = |column: &str| value(column).unwrap_or(f64::NAN);
    insert(
        &mut phase,
        Latency {
            mean: us("usec_op"),
            p50: us("p50"),
            p99: us("p99"),
            p999: us("p99.9"),
            p9999: us("p99.99"),
            max: us("pmax"),
            ..unknown_latency()
        },
    );
    let counters = COUNTERS
        .iter()
        .filter_map(|name| Some((*name, value(name)?)));
    phase.engine_counters = counters
        .map(|(name, value)| (format!("db_bench.{name}"), value))
        .collect();
    Some(phase)
}

/// Returns a phase with a rate; also in rows if an operation is a row.
fn rated(name: String, per_s: f64) -> PhaseResult {
    let mut phase = unknown_phase(name);
    phase.ops_per_s = Some(per_s);
    phase.rows_per_s = counts_rows(&phase.name).then_some(per_s);
    phase
}

fn insert(phase: &mut PhaseResult, latency: Latency) {
    let base = phase.base_name();
    let known = OPERATIONS.iter().find(|(step, _)| base.starts_with(step));
    let name = known.map_or(base.to_uppercase(), |(_, operation)| {
        (*operation).to_string()
    });
    phase.latency_us.insert(name, latency);
}

/// Parses the output of db_bench: a line for each benchmark, followed by response times with
/// `--histogram`.
fn of_output(source: &Source, found: &mut Found) {
    for line in source.text.lines() {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let (name, rest) = (name.trim(), rest.trim());
        match name {
            "RocksDB" => found.version = rest.strip_prefix("version ").map(str::to_string),
            "Keys" | "Values" | "Entries" => {
                let setting = format!("db_bench.{}", name.to_lowercase());
                found.configuration.insert(setting, rest.to_string());
            }
            "Count" | "Min" | "Percentiles" => {
                if let Some(phase) = found.phases.last_mut() {
                    of_histogram(line, phase);
                }
            }
            _ if rest.contains("micros/op") && !name.contains(' ') => {
                let step = source.step.as_deref().unwrap_or(name);
                let name = numbered(&found.phases, step);
                found.phases.extend(of_line(rest, name));
            }
            _ => {}
        }
    }
}

/// Parses `0.993 micros/op 1006611 ops/sec 39.737 seconds 40000000 operations;  403.2 MB/s`; older
/// versions have no seconds and operations.
fn of_line(text: &str, name: String) -> Option<PhaseResult> {
    let words: Vec<&str> = text
        .split([' ', ';'])
        .filter(|word| !word.is_empty())
        .collect();
    let before = |unit: &str| {
        let place = words.iter().position(|word| *word == unit)?;
        number(words.get(place.checked_sub(1)?)?)
    };
    let mut phase = rated(name, before("ops/sec")?);
    if let Some((seconds, operations)) = before("seconds").zip(before("operations")) {
        phase.seconds = seconds;
        phase.operations = operations as u64;
        known(&mut phase, "seconds");
        known(&mut phase, "operations");
        if counts_rows(&phase.name) {
            phase.rows = phase.operations;
            known(&mut phase, "rows");
        }
    }
    let mean = before("micros/op").unwrap_or(f64::NAN);
    // With several threads this is wall time of all threads per operation, not a response time of
    // one caller; response times come from the histogram.
    phase.engine_counters = [("db_bench.micros_per_op".to_string(), mean)].into();
    Some(phase)
}

/// Parses one line of a histogram: `Count: N Average: A ...`, `Min: .. Median: .. Max: M`,
/// `Percentiles: P50: .. P99: ..`.
fn of_histogram(line: &str, phase: &mut PhaseResult) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        number(words.get(place + 1)?)
    };
    if phase.latency_us.is_empty() {
        insert(phase, unknown_latency());
    }
    let Some(latency) = phase.latency_us.values_mut().next() else {
        return;
    };
    if let Some(count) = after("Count:") {
        latency.count = count as u64;
    }
    for (name, figure) in [
        ("Average:", &mut latency.mean),
        ("Max:", &mut latency.max),
        ("P50:", &mut latency.p50),
        ("P99:", &mut latency.p99),
        ("P99.9:", &mut latency.p999),
        ("P99.99:", &mut latency.p9999),
    ] {
        if let Some(value) = after(name) {
            *figure = value;
        }
    }
}
