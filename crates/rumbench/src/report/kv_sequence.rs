//! Columns of db_bench's reports for one step of kv-sequence, with its counting errors corrected.
//!
//! A multi-get or a scan always counts as one operation, and rows have a column of their own. The
//! costs of a load are per row, because its operations are commits. Write amplification is the
//! bytes that reached the device, divided by the bytes from clients, so a flush counts once. A
//! background writer has its own columns.

use super::selection::Group;
use super::table::Table;
use super::throughput::{counts_rows, per_item};
use crate::store::result::{CpuPerOp, Latency, PhaseResult, SuiteResult};
use crate::text::{gib, number};

const HEADERS: &[&str] = &[
    "engine",
    "ops_sec (1/s)",
    "rows_sec (1/s)",
    "mb_sec (MiB/s)",
    "usec_op (us)",
    "p50 (us)",
    "p99 (us)",
    "p99.9 (us)",
    "p99.99 (us)",
    "pmax (us)",
    "cpu (us/op)",
    "background cpu (us/op)",
    "wkb_op (KiB/op)",
    "w_amp (ratio)",
    "w_amp settled (ratio)",
    "lsm_sz (GiB)",
    "rss (GiB)",
];

const WRITER_HEADERS: &[&str] = &[
    "writer (1/s)",
    "writer asked (1/s)",
    "writer p99 (us)",
    "writer pmax (us)",
    "writer cpu (us/op)",
];

/// Returns the columns of one step. `None` for other workloads.
pub fn columns(suite: &SuiteResult, group: &Group<'_>, phase: &str) -> Option<Table> {
    if suite.workload != "kv-sequence" {
        return None;
    }
    let engines = group.engines_of(phase);
    let has_writer = |engine: &String| {
        let mut phases = group.of(engine, phase);
        phases.any(|phase| phase.background.is_some())
    };
    let writer = engines.iter().any(has_writer);
    let mut table = Table::new(format!("{phase}: db_bench columns"), HEADERS);
    if counts_rows(phase) {
        for header in &mut table.headers {
            *header = header.replace("/op)", "/row)");
        }
    }
    if writer {
        let headers = WRITER_HEADERS.iter().map(|header| (*header).to_string());
        table.headers.extend(headers);
    }
    for engine in &engines {
        let mut row = row(group, engine, phase);
        if writer {
            row.extend(writer_cells(group, engine, phase));
        }
        table.rows.push(row);
    }
    Some(table)
}

/// Returns the bytes of one row, from the settings recorded in a trial.
fn row_bytes(group: &Group<'_>, engine: &str) -> Option<f64> {
    let trial = group.trials.iter().find(|trial| trial.name() == engine)?;
    let bytes = |key: &str| trial.configuration.get(key)?.parse::<f64>().ok();
    Some(bytes("workload.key_bytes")? + bytes("workload.value_bytes")?)
}

/// Returns the latency of the step's only type of operation.
fn latency(phase: &PhaseResult) -> Option<&Latency> {
    phase.latency_us.values().next()
}

fn row(group: &Group<'_>, engine: &str, phase: &str) -> Vec<String> {
    const MIB: f64 = (1 << 20) as f64;
    let of =
        |value: &dyn Fn(&PhaseResult) -> Option<f64>| number(group.median(engine, phase, value));
    let time = |value: fn(&Latency) -> f64| of(&|phase| latency(phase).map(value));
    let each =
        |value: &dyn Fn(&PhaseResult) -> Option<f64>| of(&|phase| per_item(phase, value(phase)));
    let cpu = |value: fn(&CpuPerOp) -> f64| each(&|phase| phase.cpu_us_per_op.as_ref().map(value));
    let row_bytes = row_bytes(group, engine);
    vec![
        group.label(engine),
        of(&|phase| phase.ops_per_s),
        of(&|phase| phase.rows_per_s),
        of(&|phase| Some(phase.rows_per_s? * row_bytes? / MIB)),
        time(|latency| latency.mean),
        time(|latency| latency.p50),
        time(|latency| latency.p99),
        time(|latency| latency.p999),
        time(|latency| latency.p9999),
        time(|latency| latency.max),
        cpu(|cpu| cpu.total),
        cpu(|cpu| cpu.engine_background),
        each(&|phase| phase.kb_written_per_op),
        of(&|phase| phase.amplification?.write),
        of(&|phase| phase.amplification?.write_settled),
        of(&|phase| phase.size_bytes.map(|size| gib(size.data))),
        of(&|phase| phase.rss_bytes.map(|rss| gib(rss.peak))),
    ]
}

fn writer_cells(group: &Group<'_>, engine: &str, phase: &str) -> Vec<String> {
    let of =
        |value: &dyn Fn(&PhaseResult) -> Option<f64>| number(group.median(engine, phase, value));
    let time = |value: fn(&Latency) -> f64| {
        of(&|phase| {
            let writer = phase.background.as_ref()?;
            writer.latency_us.values().next().map(value)
        })
    };
    vec![
        of(&|phase| phase.background.as_ref()?.ops_per_s),
        of(&|phase| phase.background.as_ref().map(|writer| writer.rate)),
        time(|latency| latency.p99),
        time(|latency| latency.max),
        of(&|phase| phase.background.as_ref()?.cpu_us_per_op),
    ]
}
