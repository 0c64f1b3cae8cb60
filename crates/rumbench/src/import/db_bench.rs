//! db_bench: its own output, and the `report.tsv` that benchmark.sh makes of it.
//!
//! Columns are found by name, because their positions differ between versions. Percentiles come
//! from exponential buckets and are interpolated. `c_wgb`, `w_amp`, `stall%` and similar columns
//! are counters of RocksDB and remain counters under their own names: published `w_amp` counts a
//! flush twice, so it is not the write amplification of a device.

use anyhow::Result;

use super::found::{
    Found, Row, Source, columns, known, number, numbered, unknown_latency, unknown_phase,
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
/// A usage error for a file without a result, or with a text where a number is expected.
pub fn read(sources: &[Source]) -> Result<Found> {
    let mut found = Found::default();
    for source in sources {
        let before = found.phases.len();
        let rows = columns(source, "ops_sec")?;
        for row in &rows {
            let test = row.text("test").unwrap_or_default();
            let name = test.split('.').next().filter(|name| !name.is_empty());
            let Some(name) = source.step.as_deref().or(name) else {
                return Err(row.refused("the row has no test; name it: STEP=FILE"));
            };
            let name = numbered(&found.phases, name);
            found.version = row.text("version").map(str::to_string);
            found.phases.extend(of_row(row, name, test)?);
        }
        if rows.is_empty() {
            of_output(source, &mut found)?;
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
fn of_row(row: &Row<'_>, name: String, test: &str) -> Result<Option<PhaseResult>> {
    let Some(per_s) = row.number("ops_sec")? else {
        return Ok(None);
    };
    let mut phase = rated(name, per_s);
    let threads = test
        .split('.')
        .find_map(|part| part.strip_prefix('t')?.parse().ok());
    phase.clients = threads;
    let us = |column: &str| Ok::<f64, anyhow::Error>(row.number(column)?.unwrap_or(f64::NAN));
    phase.latency_us.insert(
        operation_of(&phase),
        Latency {
            mean: us("usec_op")?,
            p50: us("p50")?,
            p99: us("p99")?,
            p999: us("p99.9")?,
            p9999: us("p99.99")?,
            max: us("pmax")?,
            ..unknown_latency()
        },
    );
    for name in COUNTERS {
        if let Some(value) = row.number(name)? {
            phase
                .engine_counters
                .insert(format!("db_bench.{name}"), value);
        }
    }
    Ok(Some(phase))
}

/// Returns a phase with a rate; also in rows if an operation is a row.
fn rated(name: String, per_s: f64) -> PhaseResult {
    let mut phase = unknown_phase(name);
    phase.ops_per_s = Some(per_s);
    phase.rows_per_s = counts_rows(&phase.name).then_some(per_s);
    phase
}

/// Kinds of operations by which db_bench names its histograms: those of our operations that are of
/// the kind, the first one for a step that has others.
const KINDS: &[(&str, &[&str])] = &[
    ("read", &["GET", "MULTIGET"]),
    ("write", &["PUT", "LOAD"]),
    ("delete", &["DELETE"]),
    ("seek", &["SCAN", "SCAN_REVERSE"]),
];

/// Returns the operation of a step that is in [`OPERATIONS`].
fn known_operation(phase: &PhaseResult) -> Option<&'static str> {
    let base = phase.base_name();
    let known = OPERATIONS.iter().find(|(step, _)| base.starts_with(step));
    known.map(|(_, operation)| *operation)
}

/// Returns the name of a step's operation.
fn operation_of(phase: &PhaseResult) -> String {
    known_operation(phase).map_or_else(|| phase.base_name().to_uppercase(), str::to_string)
}

/// Returns the name of the operation whose histogram follows a line `Microseconds per KIND:`. A
/// step of several kinds has one for each. The first one of a step that is not in [`OPERATIONS`]
/// has the step's name.
fn operation_of_kind(phase: &PhaseResult, kind: &str) -> String {
    let own = operation_of(phase);
    let is_known = known_operation(phase).is_some();
    if kind == "op" || (!is_known && phase.latency_us.is_empty()) {
        return own;
    }
    match KINDS.iter().find(|(name, _)| *name == kind) {
        Some((_, all)) if all.contains(&own.as_str()) => own,
        Some((_, all)) => all[0].to_string(),
        None => kind.to_uppercase(),
    }
}

/// Parses the output of db_bench: a line for each benchmark, followed by response times with
/// `--histogram`.
fn of_output(source: &Source, found: &mut Found) -> Result<()> {
    // Operation of the histogram that follows; histograms of the library's statistics have none.
    let mut operation: Option<String> = None;
    for (place, line) in (1..).zip(source.text.lines()) {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let (name, rest) = (name.trim(), rest.trim());
        let words = Words {
            source,
            line: place,
            words: line
                .split([' ', '\t', ';'])
                .filter(|word| !word.is_empty())
                .collect(),
        };
        match name {
            "RocksDB" => found.version = rest.strip_prefix("version ").map(str::to_string),
            "Keys" | "Values" | "Entries" => {
                let setting = format!("db_bench.{}", name.to_lowercase());
                found.configuration.insert(setting, rest.to_string());
            }
            "Count" | "Min" | "Percentiles" => {
                if let Some((phase, operation)) = found.phases.last_mut().zip(operation.as_deref())
                {
                    of_histogram(&words, phase, operation)?;
                }
                operation = operation.filter(|_| name != "Percentiles");
            }
            _ if name.starts_with("Microseconds per ") => {
                let kind = name.rsplit(' ').next().unwrap_or_default();
                let phase = found.phases.last();
                operation = phase.map(|phase| operation_of_kind(phase, kind));
            }
            _ if rest.contains("micros/op") && !name.contains(' ') => {
                let step = source.step.as_deref().unwrap_or(name);
                let name = numbered(&found.phases, step);
                found.phases.push(of_line(&words, name)?);
                operation = None;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Words of a line of the output.
struct Words<'a> {
    source: &'a Source,
    /// Number of the line, counted from 1.
    line: usize,
    words: Vec<&'a str>,
}

impl Words<'_> {
    /// Returns the number before a unit, if the line has the unit.
    fn before(&self, unit: &str) -> Result<Option<f64>> {
        let place = self.words.iter().position(|word| *word == unit);
        self.number(place.and_then(|place| place.checked_sub(1)))
    }

    /// Returns the number after a name, if the line has the name.
    fn after(&self, name: &str) -> Result<Option<f64>> {
        let place = self.words.iter().position(|word| *word == name);
        self.number(place.map(|place| place + 1))
    }

    fn number(&self, place: Option<usize>) -> Result<Option<f64>> {
        let Some(place) = place else {
            return Ok(None);
        };
        let word = self.words.get(place).copied().unwrap_or_default();
        let refused = |why: &str| self.source.refused_at(self.line, why);
        match number(word).map_err(|why| refused(&why))? {
            None => Err(refused("a number is missing: the file is cut short")),
            known => Ok(known),
        }
    }
}

/// Parses `0.993 micros/op 1006611 ops/sec 39.737 seconds 40000000 operations;  403.2 MB/s`; older
/// versions have no seconds and operations.
fn of_line(words: &Words<'_>, name: String) -> Result<PhaseResult> {
    let Some(per_s) = words.before("ops/sec")? else {
        let why = "no rate in ops/sec: the line is cut short, or of LevelDB's db_bench, which prints none";
        return Err(words.source.refused_at(words.line, why));
    };
    let mut phase = rated(name, per_s);
    if let Some((seconds, operations)) = words.before("seconds")?.zip(words.before("operations")?) {
        phase.seconds = seconds;
        phase.operations = operations as u64;
        known(&mut phase, "seconds");
        known(&mut phase, "operations");
        if counts_rows(&phase.name) {
            phase.rows = phase.operations;
            known(&mut phase, "rows");
        }
    }
    let mean = words.before("micros/op")?.unwrap_or(f64::NAN);
    // With several threads this is wall time of all threads per operation, not a response time of
    // one caller; response times come from the histogram.
    phase.engine_counters = [("db_bench.micros_per_op".to_string(), mean)].into();
    Ok(phase)
}

/// Parses one line of a histogram: `Count: N Average: A ...`, `Min: .. Median: .. Max: M`,
/// `Percentiles: P50: .. P99: ..`.
fn of_histogram(words: &Words<'_>, phase: &mut PhaseResult, operation: &str) -> Result<()> {
    let entry = phase.latency_us.entry(operation.to_string());
    let latency = entry.or_insert_with(unknown_latency);
    if let Some(count) = words.after("Count:")? {
        if latency.count > 0 {
            let why = format!("a second histogram of {operation} in one step");
            return Err(words.source.refused_at(words.line, &why));
        }
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
        if let Some(value) = words.after(name)? {
            *figure = value;
        }
    }
    Ok(())
}
