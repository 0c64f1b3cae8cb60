//! The Insert Benchmark: the 21-column records of published reports, and the lines that its client
//! prints each second.
//!
//! A record belongs to one step and one DBMS, its tag; a file holds the records of one step. The
//! client's lines have 17 numbers; several files of one step are its clients, and their numbers are
//! added up. In insert steps an operation is a row, in others a query.

use anyhow::Result;
use rumbench_core::insert_benchmark::STEPS;

use super::found::{
    Found, Row, Source, columns, known, number, numbered, unknown_latency, unknown_phase,
};
use crate::report::throughput::counts_rows;
use crate::store::result::{
    BackgroundResult, CpuPerOp, Interval, Latency, PhaseResult, SizeBytes, base_name,
};

/// Numbers in a line of the client.
const CLIENT_COLUMNS: usize = 17;
const GIB: f64 = (1u64 << 30) as f64;

/// Reads all files: one trial for each tag of records, one for the output of clients. `clients` is
/// the number of clients of records, which do not contain it.
///
/// # Errors
/// A usage error for a file in neither format, of an unknown step, cut short, or with a text where
/// a number is expected.
pub fn read(sources: &[Source], clients: Option<usize>) -> Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    for source in sources {
        // Published step names end with a position: `qr100.L1`.
        let step = source.step();
        let step = step.split_once(".L").map_or(step, |(step, _)| step);
        if !STEPS.iter().any(|(name, _)| *name == base_name(step)) {
            return Err(source.refused(&format!(
                "`{step}` is no step of insert-benchmark (rumbench list phases); name it: STEP=FILE"
            )));
        }
        let records = columns(source, "wkbpi")?;
        let lines = if records.is_empty() {
            client_lines(source)?
        } else {
            Vec::new()
        };
        if records.is_empty() && lines.is_empty() {
            return Err(source.refused(
                "neither 21-column records (with a line of their names, ips to tag) nor a client's lines of 17 numbers",
            ));
        }
        for record in &records {
            let of = of_engine(&mut found, Some(record.text("tag").unwrap_or_default()));
            let name = numbered(&of.phases, step);
            of.phases.extend(of_record(record, name, clients)?);
        }
        if !lines.is_empty() {
            add_client(of_engine(&mut found, None), step, &lines);
        }
    }
    Ok(found)
}

/// Returns the entry of an engine, and adds it if it is new.
fn of_engine<'a>(found: &'a mut Vec<Found>, tag: Option<&str>) -> &'a mut Found {
    let place = found.iter().position(|of| of.engine.as_deref() == tag);
    let place = place.unwrap_or_else(|| {
        found.push(Found {
            engine: tag.map(str::to_string),
            ..Found::default()
        });
        found.len() - 1
    });
    &mut found[place]
}

/// Returns the operation of a step's maximum response time.
fn operation(step: &str) -> &'static str {
    match step {
        _ if counts_rows(step) => "INSERT",
        _ if step.starts_with("qp") => "POINTS",
        _ => "RANGE",
    }
}

/// Returns the rows per second that each client inserts in the background of queries: the number in
/// the step's name.
fn asked(step: &str) -> Option<f64> {
    step.strip_prefix("qr")
        .or(step.strip_prefix("qp"))?
        .parse()
        .ok()
}

fn background(step: &str, clients: usize, rows_per_s: Option<f64>) -> Option<BackgroundResult> {
    let rate = asked(step)? * clients as f64;
    Some(BackgroundResult {
        operations: 0,
        rate,
        rows_rate: Some(rate),
        rows_per_s,
        ..BackgroundResult::default()
    })
}

/// Columns without a field in results, and the counters that keep them.
const KEPT: &[(&str, &str)] = &[
    ("rss", "iibench.rss_gib"),
    ("cpups", "iibench.cpups"),
    ("p50", "iibench.p50"),
    ("p99", "iibench.p99"),
];

/// Converts a record. One without a rate belongs to a step that was not run.
fn of_record(
    record: &Row<'_>,
    name: String,
    clients: Option<usize>,
) -> Result<Option<PhaseResult>> {
    let value = |column: &str| record.number(column);
    let writes = counts_rows(&name);
    let (ips, qps) = (value("ips")?, value("qps")?);
    let Some(per_s) = (if writes { ips } else { qps }) else {
        return Ok(None);
    };
    let mut phase = unknown_phase(name);
    phase.ops_per_s = Some(per_s);
    phase.rows_per_s = ips.filter(|_| writes);
    let per_op = |a_second: Option<f64>| a_second.filter(|_| per_s > 0.0).map(|all| all / per_s);
    phase.reads_per_op = value("rpq")?;
    phase.kb_read_per_op = value("rkbpq")?;
    // Records give writes per insert, even in query steps; results give them per operation.
    phase.writes_per_op = per_op(value("wps")?);
    let kb = value("wkbpi")?.zip(ips).map(|(kb, ips)| kb * ips);
    phase.kb_written_per_op = per_op(kb.or(value("wmbps")?.map(|mb| mb * 1024.0)));
    phase.context_switches_per_op = value("cspq")?;
    phase.cpu_us_per_op = value("cpupq")?.map(|us| CpuPerOp {
        total: f64::NAN,
        engine_foreground: f64::NAN,
        engine_background: f64::NAN,
        machine: Some(us),
        ..CpuPerOp::default()
    });
    let sizes = value("dbgb1")?.zip(value("dbgb2")?);
    phase.size_bytes = sizes.map(|(data, directory)| SizeBytes {
        data: (data * GIB) as u64,
        directory: (directory * GIB) as u64,
        // The only sample is also the maximum.
        peak: (directory * GIB) as u64,
    });
    if let Some(seconds) = value("maxop")? {
        let latency = Latency {
            max: seconds * 1e6,
            ..unknown_latency()
        };
        let name = operation(phase.base_name()).to_string();
        phase.latency_us.insert(name, latency);
    }
    phase.clients = clients;
    // The requested insert rate depends on the number of clients.
    phase.background = clients.and_then(|clients| background(phase.base_name(), clients, ips));
    for (column, counter) in KEPT {
        if let Some(value) = value(column)? {
            phase.engine_counters.insert((*counter).to_string(), value);
        }
    }
    if let Some(ips) = ips.filter(|_| !writes) {
        phase.engine_counters.insert("iibench.ips".to_string(), ips);
    }
    Ok(Some(phase))
}

/// Parses the lines of a client: 17 numbers separated by tabs or spaces. Other lines are text.
fn client_lines(source: &Source) -> Result<Vec<Vec<f64>>> {
    let mut lines = Vec::new();
    let mut short = None;
    for (place, line) in (1..).zip(source.text.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_number = |word: &&str| word.parse::<f64>().is_ok();
        let is_data = words.len() > 1 && is_number(&words[0]) && is_number(&words[1]);
        if !is_data {
            continue;
        }
        if words.len() != CLIENT_COLUMNS {
            short = short.or(Some((place, words.len())));
            continue;
        }
        let numbers = words.iter().map(|word| match number(word) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(source.refused_at(place, "a number is missing")),
            Err(why) => Err(source.refused_at(place, &why)),
        });
        lines.push(numbers.collect::<Result<_>>()?);
    }
    match short {
        // Without a whole line it is no output of a client.
        Some((place, has)) if !lines.is_empty() => {
            Err(source.refused_at(place, &format!("{has} of {CLIENT_COLUMNS} numbers")))
        }
        _ => Ok(lines),
    }
}

/// Adds the lines of one client to its step.
fn add_client(found: &mut Found, step: &str, lines: &[Vec<f64>]) {
    let Some(last) = lines.last() else {
        return;
    };
    let writes = counts_rows(step);
    let place = found.phases.iter().position(|phase| phase.name == step);
    let place = place.unwrap_or_else(|| {
        let mut phase = unknown_phase(step.to_string());
        for name in ["seconds", "operations", "retries"] {
            known(&mut phase, name);
        }
        if writes {
            known(&mut phase, "rows");
        }
        found.phases.push(phase);
        found.phases.len() - 1
    });
    let phase = &mut found.phases[place];
    let (inserted, queries) = (last[11], last[13]);
    phase.seconds = phase.seconds.max(last[1]);
    phase.operations += if writes { inserted } else { queries } as u64;
    phase.rows += if writes { inserted as u64 } else { 0 };
    phase.retries += last[14..].iter().sum::<f64>() as u64;
    phase.clients = Some(phase.clients.unwrap_or(0) + 1);
    let per_s = phase.operations as f64 / phase.seconds.max(f64::MIN_POSITIVE);
    phase.ops_per_s = Some(per_s);
    phase.rows_per_s = writes.then_some(per_s);
    if !writes {
        let before = phase.background.take().unwrap_or_default();
        let rows = before.operations + inserted as u64;
        let rows_per_s = rows as f64 / phase.seconds.max(f64::MIN_POSITIVE);
        let beside = background(step, phase.clients.unwrap_or(1), Some(rows_per_s));
        phase.background = beside.map(|beside| BackgroundResult {
            operations: rows,
            ops_per_s: Some(rows_per_s),
            ..beside
        });
    }
    let longest = if writes { 8 } else { 10 };
    let name = operation(step).to_string();
    let latency = phase.latency_us.entry(name).or_insert_with(unknown_latency);
    let maxima = lines.iter().map(|line| line[longest]);
    // f64::max ignores an unknown value, which is NaN.
    latency.max = maxima.fold(latency.max, f64::max);
    add_intervals(&mut phase.intervals, lines, writes);
}

/// Adds the seconds of a client. Its intervals are each about a second long: the n-th is the n-th
/// second.
fn add_intervals(intervals: &mut Vec<Interval>, lines: &[Vec<f64>], writes: bool) {
    let (rate, longest) = if writes { (2, 8) } else { (6, 10) };
    for (second, line) in lines.iter().enumerate() {
        if intervals.len() <= second {
            intervals.push(Interval {
                second: second as u64,
                ..Interval::default()
            });
        }
        let interval = &mut intervals[second];
        interval.ops += (line[rate] * line[0]).round() as u64;
        interval.max_us = interval.max_us.max(line[longest]);
    }
}
