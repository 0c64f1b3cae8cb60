//! Summary of large values: rate and cost of inserts, size of the database relative to its
//! compressed rows, and the rate of queries during inserts. It includes the columns of the
//! published tables (ips, GB, CPU per insert, qps).

use super::selection::Group;
use super::table::Table;
use super::throughput::per_item;
use crate::store::result::{PhaseResult, SuiteResult};
use crate::text::{gib, number};

const LOAD: &str = "load";
const SETTLE: &str = "settle";
const QUERY: &str = "query";

/// Returns the tables of inserts and sizes, and of queries. Empty for other workloads.
pub fn summaries(suite: &SuiteResult, group: &Group<'_>) -> Vec<Table> {
    if suite.workload != "large-values" {
        return Vec::new();
    }
    vec![inserts(group), queries(group)]
}

/// Formats lengths and share of random bytes, from the settings recorded in a trial.
fn values(group: &Group<'_>) -> String {
    let configuration = group.trials.first().map(|trial| &trial.configuration);
    let setting = |key: &str| {
        let key = format!("workload.{key}");
        let found = configuration.and_then(|settings| settings.get(&key).cloned());
        found.unwrap_or_else(|| "?".to_string())
    };
    format!(
        "values of {} to {} bytes, {} % random",
        setting("value_min"),
        setting("value_max"),
        setting("random_percent")
    )
}

fn inserts(group: &Group<'_>) -> Table {
    const MIB: f64 = (1 << 20) as f64;
    let title = format!("Summary: inserts and size, {}", values(group));
    let headers = [
        "engine",
        "ips (rows/s)",
        "load (MiB/s)",
        "cpupi (us/row)",
        "wkbpi settled (KiB/row)",
        "write amplification (ratio)",
        "rows (GiB)",
        "compressed rows (GiB)",
        "data (GiB)",
        "data / rows (ratio)",
        "data / compressed rows (ratio)",
    ];
    let mut table = Table::new(title, &headers);
    for engine in group.engines() {
        let load = |value: fn(&PhaseResult) -> Option<f64>| group.median(&engine, LOAD, value);
        let settled = |value: fn(&PhaseResult) -> Option<f64>| group.median(&engine, SETTLE, value);
        let cells = [
            load(|phase| phase.rows_per_s),
            load(|phase| Some(phase.written_bytes? as f64 / MIB / phase.seconds)),
            load(|phase| per_item(phase, Some(phase.cpu_us_per_op.as_ref()?.total))),
            load(|phase| per_item(phase, phase.kb_written_per_op_settled)),
            load(|phase| phase.amplification?.write_settled),
            settled(|phase| Some(gib(phase.stored_bytes?.raw))),
            settled(|phase| Some(gib(phase.stored_bytes?.compressed))),
            settled(|phase| Some(gib(phase.size_bytes?.data))),
            settled(|phase| phase.amplification?.space),
            settled(|phase| phase.amplification?.space_compressed),
        ];
        let mut row = vec![group.label(&engine)];
        row.extend(cells.map(number));
        table.rows.push(row);
    }
    table.notes.push(
        "compressed rows: zstd level 3 of a sample, one frame; sizes after the settle that follows the load"
            .to_string(),
    );
    table
}

fn queries(group: &Group<'_>) -> Table {
    let headers = [
        "engine",
        "qps (1/s)",
        "p50 (us)",
        "p99 (us)",
        "pmax (us)",
        "cpupq (us/op)",
        "rkbpq (KiB/op)",
        "inserts (rows/s)",
        "inserts asked (rows/s)",
        "insert p99 (us)",
        "data / compressed rows after it (ratio)",
    ];
    let title = "Summary: queries by key, background inserts at a rate";
    let mut table = Table::new(title, &headers);
    for engine in group.engines_of(QUERY) {
        let of = |value: fn(&PhaseResult) -> Option<f64>| group.median(&engine, QUERY, value);
        let after = |phase: &PhaseResult| phase.amplification?.space_compressed;
        let cells = [
            of(|phase| phase.ops_per_s),
            of(|phase| Some(phase.latency_us.get("GET")?.p50)),
            of(|phase| Some(phase.latency_us.get("GET")?.p99)),
            of(|phase| Some(phase.latency_us.get("GET")?.max)),
            of(|phase| Some(phase.cpu_us_per_op.as_ref()?.total)),
            of(|phase| phase.kb_read_per_op),
            of(|phase| phase.background.as_ref()?.rows_per_s),
            of(|phase| phase.background.as_ref()?.rows_rate),
            of(|phase| Some(phase.background.as_ref()?.latency_us.get("INSERT")?.p99)),
            group.median(&engine, "settle#2", after),
        ];
        let mut row = vec![group.label(&engine)];
        row.extend(cells.map(number));
        table.rows.push(row);
    }
    table
}
