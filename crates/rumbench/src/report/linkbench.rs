//! Columns of published LinkBench reports, so that their readers can compare.
//!
//! `cpuq` is the machine's busy share divided by the rate and not multiplied by the number of CPUs,
//! as published; it compares only on equal machines. Load and index count inserted rows (`ips`, per
//! row), all other phases requests (`qps`, per request).

use super::selection::Group;
use super::table::Table;
use super::throughput::{counts_rows, per_item};
use crate::store::result::{CpuPerOp, PhaseResult, SuiteResult};
use crate::text::{gib, number};

fn engine_us(cpu: &CpuPerOp) -> f64 {
    cpu.engine_foreground + cpu.engine_background + cpu.server.unwrap_or(0.0)
}

/// Returns the published columns of one phase. `None` for other workloads.
pub fn columns(suite: &SuiteResult, group: &Group<'_>, phase: &str) -> Option<Table> {
    if suite.workload != "linkbench" {
        return None;
    }
    let cpus = suite.environment.get("cpus");
    let cpus: f64 = cpus.and_then(|n| n.parse().ok()).unwrap_or(1.0);
    let mut table = Table::new(format!("{phase}: LinkBench columns"), &["engine"]);
    table.headers.extend(headers(counts_rows(phase)));
    let engines = group.engines_of(phase);
    for engine in &engines {
        table.rows.push(row(group, engine, phase, cpus));
    }
    let source = |engine: &String| {
        let mut phases = group.of(engine, phase);
        phases.find_map(|phase| phase.io_source.as_deref())
    };
    if let Some(source) = engines.iter().find_map(source) {
        let note = format!("reads and writes counted by: {source}");
        table.notes.push(note);
    }
    Some(table)
}

/// Returns names and units of the columns after the engine, as [`row`] fills them.
fn headers(rows: bool) -> [String; 13] {
    let (rate, item, unit) = if rows {
        ("ips", "i", "row")
    } else {
        ("qps", "q", "op")
    };
    [
        format!("{rate} (1/s)"),
        "secs (s)".to_string(),
        format!("rp{item} (1/{unit})"),
        format!("rkbp{item} (KiB/{unit})"),
        format!("wkbp{item} (KiB/{unit})"),
        format!("wkbp{item} settled (KiB/{unit})"),
        format!("csp{item} (1/{unit})"),
        format!("cpup{item} (us/{unit})"),
        format!("csecp{item} (us/{unit})"),
        format!("dsecp{item} (us/{unit})"),
        "dbgb1 (GiB)".to_string(),
        "dbgb2 (GiB)".to_string(),
        "rss (GiB)".to_string(),
    ]
}

/// Returns one engine's medians.
fn row(group: &Group<'_>, engine: &str, phase: &str, cpus: f64) -> Vec<String> {
    let of =
        |value: &dyn Fn(&PhaseResult) -> Option<f64>| number(group.median(engine, phase, value));
    let each =
        |value: &dyn Fn(&PhaseResult) -> Option<f64>| of(&|phase| per_item(phase, value(phase)));
    let cpu = |value: &dyn Fn(&CpuPerOp) -> Option<f64>| {
        each(&|phase| phase.cpu_us_per_op.as_ref().and_then(value))
    };
    let rate = |phase: &PhaseResult| {
        if counts_rows(&phase.name) {
            phase.rows_per_s
        } else {
            phase.ops_per_s
        }
    };
    vec![
        group.label(engine),
        of(&rate),
        of(&|phase| Some(phase.seconds)),
        each(&|phase| phase.reads_per_op),
        each(&|phase| phase.kb_read_per_op),
        each(&|phase| phase.kb_written_per_op),
        each(&|phase| phase.kb_written_per_op_settled),
        each(&|phase| phase.context_switches_per_op),
        cpu(&|cpu| cpu.machine.map(|us| us / cpus)),
        cpu(&|cpu| cpu.client),
        cpu(&|cpu| Some(engine_us(cpu))),
        of(&|phase| phase.size_bytes.map(|size| gib(size.data))),
        of(&|phase| phase.size_bytes.map(|size| gib(size.directory))),
        of(&|phase| phase.rss_bytes.map(|rss| gib(rss.peak))),
    ]
}
