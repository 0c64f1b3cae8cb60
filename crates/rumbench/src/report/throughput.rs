//! Throughput by phase, absolute and relative; the CPU split; the settle rows.

use super::marks;
use super::selection::Group;
use super::table::Table;
use crate::store::result::{CpuPerOp, PhaseResult, base_name};
use crate::text::{count, gib, number};

/// Returns true if a phase is measured in rows rather than operations: an operation of a load is a
/// batch.
pub fn counts_rows(phase: &str) -> bool {
    matches!(
        base_name(phase),
        "load" | "index" | "fillseq" | "l.i0" | "l.x" | "l.i1" | "l.i2"
    )
}

/// Returns a number per operation, or per row in phases measured in rows.
pub fn per_item(phase: &PhaseResult, value: Option<f64>) -> Option<f64> {
    if !counts_rows(&phase.name) {
        return value;
    }
    // An operation of an imported load is a row.
    if phase.lacks("rows") {
        return value;
    }
    (phase.rows > 0).then(|| value.map(|v| v * phase.operations as f64 / phase.rows as f64))?
}

/// Returns the unit of [`rate`].
pub fn unit(phase: &str) -> &'static str {
    if counts_rows(phase) { "rows/s" } else { "op/s" }
}

/// Returns the unit to which costs of a phase refer.
pub fn item(phase: &str) -> &'static str {
    if counts_rows(phase) { "row" } else { "op" }
}

/// Returns the rows per second of a load, or the operations per second of other phases.
pub fn rate(phase: &PhaseResult) -> Option<f64> {
    if counts_rows(&phase.name) {
        phase.rows_per_s
    } else {
        phase.ops_per_s
    }
}

/// Returns the throughput of engines by phase.
pub fn absolute(group: &Group<'_>) -> Table {
    let phases = group.phases();
    let mut table = Table::new(
        "Absolute: throughput by phase, median of repetitions",
        &["engine"],
    );
    table.headers.extend(
        phases
            .iter()
            .map(|phase| format!("{phase} ({})", unit(phase))),
    );
    table.headers.push("repetitions".to_string());
    for engine in group.engines() {
        let mut row = vec![group.label(&engine)];
        for phase in &phases {
            let value = group.median(&engine, phase, rate);
            let missed = |phase: &PhaseResult| {
                marks::rate_unmet(phase) || marks::background_rate_unmet(phase)
            };
            let unmet = group.of(&engine, phase).any(missed);
            row.push(format!(
                "{}{}",
                number(value),
                if unmet { " !" } else { "" }
            ));
        }
        let repetitions = group
            .trials
            .iter()
            .filter(|trial| trial.name() == engine)
            .count();
        row.push(repetitions.to_string());
        table.rows.push(row);
    }
    if table.rows.iter().flatten().any(|cell| cell.ends_with(" !")) {
        table
            .notes
            .push("! below 95 % of the rate that was asked for".to_string());
    }
    table
}

/// Returns the throughput of engines by phase, divided by the base.
pub fn relative(group: &Group<'_>, base: &str) -> Table {
    let phases = group.phases();
    let title = format!("Relative: throughput by phase, divided by {base}");
    let mut table = Table::new(title, &["engine"]);
    table
        .headers
        .extend(phases.iter().map(|phase| format!("{phase} (ratio)")));
    for engine in group.engines() {
        let mut row = vec![group.label(&engine)];
        for phase in &phases {
            let of = |name: &str| group.median(name, phase, rate);
            let ratio = of(&engine).zip(of(base)).map(|(mine, base)| mine / base);
            row.push(ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")));
        }
        table.rows.push(row);
    }
    table
}

/// Returns the CPU time in one phase, split by its users, with stalls, errors and retries. If an
/// engine is a server, two columns are added: its CPU time, and that of its clients in user mode.
/// The rest of the clients' time is the kernel's share of each round trip.
pub fn cpu(group: &Group<'_>, phase: &str) -> Table {
    /// Index of the client's column in user mode.
    const CLIENT_USER: usize = 3;
    /// Index of the server's column.
    const SERVER: usize = 6;
    let mut table = Table::new(
        format!("{phase}: CPU and quality of service"),
        &[
            "engine",
            "CPU total (us/op)",
            "client (us/op)",
            "engine foreground (us/op)",
            "engine background (us/op)",
            "machine (us/op)",
            "stalls (s)",
            "longest stall (ms)",
            "errors (op)",
            "retries (txn)",
        ],
    );
    let engines = group.engines_of(phase);
    let server = |phase: &PhaseResult| phase.cpu_us_per_op?.server;
    let is_server = |engine: &String| group.median(engine, phase, server).is_some();
    let has_server = engines.iter().any(is_server);
    if has_server {
        let user = "client, user mode (us/op)".to_string();
        table.headers.insert(CLIENT_USER, user);
        table.headers.insert(SERVER, "server (us/op)".to_string());
    }
    for engine in engines {
        let cpu = |value: fn(&CpuPerOp) -> Option<f64>| {
            number(group.median(&engine, phase, |phase| {
                phase.cpu_us_per_op.as_ref().and_then(value)
            }))
        };
        let other =
            |value: fn(&PhaseResult) -> Option<f64>| number(group.median(&engine, phase, value));
        let mut row = vec![
            group.label(&engine),
            cpu(|cpu| Some(cpu.total)),
            cpu(|cpu| cpu.client),
            cpu(|cpu| Some(cpu.engine_foreground)),
            cpu(|cpu| Some(cpu.engine_background)),
            cpu(|cpu| cpu.machine),
            other(|phase| phase.stall_seconds),
            other(|phase| phase.longest_stall_ms),
            count(group.median(&engine, phase, |phase| {
                (!phase.lacks("errors")).then_some(phase.errors as f64)
            })),
            count(group.median(&engine, phase, |phase| {
                (!phase.lacks("retries")).then_some(phase.retries as f64)
            })),
        ];
        if has_server {
            row.insert(CLIENT_USER, cpu(|cpu| cpu.client_user));
            row.insert(SERVER, cpu(|cpu| cpu.server));
        }
        table.rows.push(row);
    }
    table
}

/// Returns the cost of each settle, and the sizes after it.
pub fn settles(group: &Group<'_>) -> Vec<Table> {
    let names = group.settles();
    names
        .iter()
        .filter_map(|name| settle(group, name))
        .collect()
}

fn settle(group: &Group<'_>, name: &str) -> Option<Table> {
    let mut table = Table::new(
        format!("{name}: the engine works off its backlog; sizes are taken after it"),
        &[
            "engine",
            "time (s)",
            "CPU (s)",
            "written (MiB)",
            "data (GiB)",
            "directory (GiB)",
            "space amplification (ratio)",
        ],
    );
    let compressed = |phase: &PhaseResult| phase.amplification?.space_compressed;
    let engines = group.engines_of(name);
    let has = |engine: &String| group.median(engine, name, compressed).is_some();
    let against_compressed = engines.iter().any(has);
    if against_compressed {
        let header = "data / compressed rows (ratio)".to_string();
        table.headers.push(header);
    }
    for engine in engines {
        let of =
            |value: fn(&PhaseResult) -> Option<f64>| number(group.median(&engine, name, value));
        let mut row = vec![
            group.label(&engine),
            of(|phase| Some(phase.seconds)),
            of(|phase| phase.cpu_seconds.map(|cpu| cpu.all())),
            of(|phase| phase.kb_written.map(|kb| kb / 1024.0)),
            of(|phase| phase.size_bytes.map(|size| gib(size.data))),
            of(|phase| phase.size_bytes.map(|size| gib(size.directory))),
            of(|phase| {
                phase
                    .amplification
                    .and_then(|amplification| amplification.space)
            }),
        ];
        if against_compressed {
            row.push(of(compressed));
        }
        table.rows.push(row);
    }
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{sample, selection};

    #[test]
    fn servers_bring_columns_for_themselves_and_for_their_clients_in_user_mode() {
        let mut suite = sample::suite();
        let headers = |suite: &crate::store::result::SuiteResult| {
            let groups = selection::groups(suite, true);
            let table = cpu(&groups[0], "request");
            assert!(
                table
                    .rows
                    .iter()
                    .all(|row| row.len() == table.headers.len())
            );
            (table.headers.clone(), table.rows.clone())
        };
        let (plain, _) = headers(&suite);
        for trial in &mut suite.trials {
            for phase in &mut trial.phases {
                if let Some(cpu) = &mut phase.cpu_us_per_op {
                    (cpu.client_user, cpu.server) = (Some(1.25), Some(77.5));
                }
            }
        }
        let (with, rows) = headers(&suite);
        assert_eq!(with.len(), plain.len() + 2);
        let place = |name: &str| with.iter().position(|header| header == name).unwrap();
        assert!(
            rows[0][place("client, user mode (us/op)")].starts_with("1.2"),
            "{:?}",
            rows[0]
        );
        assert!(
            rows[0][place("server (us/op)")].starts_with("77"),
            "{:?}",
            rows[0]
        );
        assert_eq!(
            place("client (us/op)") + 1,
            place("client, user mode (us/op)")
        );
    }
}
