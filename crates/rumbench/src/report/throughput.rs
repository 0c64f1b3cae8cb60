//! Throughput by phase, absolute and relative; the CPU split; the settle rows.

use super::selection::Group;
use super::table::{Table, number};

/// Engines against phases, operations per second.
pub fn absolute(group: &Group<'_>) -> Table {
    let phases = group.phases();
    let mut table = Table::new("Absolute: operations/s by phase, median of repetitions", &["engine"]);
    table.headers.extend(phases.iter().map(|phase| format!("{phase} (op/s)")));
    table.headers.push("repetitions".to_string());
    for engine in group.engines() {
        let mut row = vec![group.label(&engine)];
        for phase in &phases {
            let value = group.median(&engine, phase, |phase| phase.ops_per_s);
            let unmet = group.of(&engine, phase).any(super::marks::rate_unmet);
            row.push(format!("{}{}", number(value), if unmet { " !" } else { "" }));
        }
        let repetitions = group.trials.iter().filter(|trial| trial.name() == engine).count();
        row.push(repetitions.to_string());
        table.rows.push(row);
    }
    if table.rows.iter().flatten().any(|cell| cell.ends_with(" !")) {
        table.notes.push("! below 95 % of the rate that was asked for".to_string());
    }
    table
}

/// The same divided by the base.
pub fn relative(group: &Group<'_>, base: &str) -> Table {
    let phases = group.phases();
    let title = format!("Relative: operations/s by phase, divided by {base}");
    let mut table = Table::new(title, &["engine"]);
    table.headers.extend(phases.iter().map(|phase| format!("{phase} (ratio)")));
    for engine in group.engines() {
        let mut row = vec![group.label(&engine)];
        for phase in &phases {
            let of = |name: &str| group.median(name, phase, |phase| phase.ops_per_s);
            let ratio = of(&engine).zip(of(base)).map(|(mine, base)| mine / base);
            row.push(ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")));
        }
        table.rows.push(row);
    }
    table
}

/// Who used the CPU in one phase.
pub fn cpu(group: &Group<'_>, phase: &str) -> Option<Table> {
    let mut table = Table::new(
        format!("{phase}: CPU and quality of service"),
        &[
            "engine", "CPU total (us/op)", "client (us/op)", "engine foreground (us/op)",
            "engine background (us/op)", "machine (us/op)", "stalls (s)", "longest stall (ms)",
            "errors", "retries",
        ],
    );
    for engine in group.engines() {
        let cpu = |value: fn(&crate::store::result::CpuPerOp) -> Option<f64>| {
            number(group.median(&engine, phase, |phase| phase.cpu_us_per_op.as_ref().and_then(value)))
        };
        let other = |value: fn(&crate::store::result::PhaseResult) -> Option<f64>| {
            number(group.median(&engine, phase, value))
        };
        table.rows.push(vec![
            group.label(&engine),
            cpu(|cpu| Some(cpu.total)),
            cpu(|cpu| cpu.client),
            cpu(|cpu| Some(cpu.engine_foreground)),
            cpu(|cpu| Some(cpu.engine_background)),
            cpu(|cpu| cpu.machine),
            other(|phase| phase.stall_seconds),
            other(|phase| phase.longest_stall_ms),
            other(|phase| Some(phase.errors as f64)),
            other(|phase| Some(phase.retries as f64)),
        ]);
    }
    Some(table)
}

/// What paying the debt cost, and the sizes after it.
pub fn settle(group: &Group<'_>) -> Option<Table> {
    let mut table = Table::new(
        "settle: the engine pays its debt; sizes are taken after it",
        &[
            "engine", "time (s)", "CPU (s)", "written (MiB)", "data (GiB)", "directory (GiB)",
            "space amplification (ratio)",
        ],
    );
    for engine in group.engines() {
        if group.of(&engine, "settle").next().is_none() {
            continue;
        }
        let of = |value: fn(&crate::store::result::PhaseResult) -> Option<f64>| {
            number(group.median(&engine, "settle", value))
        };
        table.rows.push(vec![
            group.label(&engine),
            of(|phase| Some(phase.seconds)),
            of(|phase| phase.cpu_seconds.map(|cpu| cpu.process)),
            of(|phase| phase.kb_written.map(|kb| kb / 1024.0)),
            of(|phase| phase.size_bytes.map(|size| super::linkbench::gib(size.data))),
            of(|phase| phase.size_bytes.map(|size| super::linkbench::gib(size.directory))),
            of(|phase| phase.amplification.and_then(|amplification| amplification.space)),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}
