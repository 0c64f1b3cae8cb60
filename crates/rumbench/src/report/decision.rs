//! Lines for a purchase decision: the device, the space and the CPUs that the numbers of a phase
//! require.
//!
//! Nothing here is measured again. The years are for a device with a limit on the terabytes written
//! in total. It takes the engine's writes without a pause, including those of the following settle.
//! Wear inside the device is not included; it differs by device and by how full the device is.

use super::selection::Group;
use super::sweep::{Whole, has_points};
use super::table::Table;
use super::throughput::counts_rows;
use crate::run::search::label;
use crate::store::rate_search::RateSearch;
use crate::store::result::{CpuPerOp, PhaseResult, SuiteResult};
use crate::text::number;

/// Default endurance in terabytes written, as makers warrant it for consumer devices of 1 TB.
pub const ENDURANCE_TB: f64 = 600.0;
/// Bytes in a terabyte as makers of devices count it.
const TB: f64 = 1e12;
/// Seconds in a mean year of the Gregorian calendar.
const SECONDS_PER_YEAR: f64 = 365.2425 * 86_400.0;
/// Operations per second for which CPUs are counted.
const RATE: f64 = 10_000.0;

/// Conclusions from one engine's numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Line {
    per_s: Option<f64>,
    written_mb_per_s: Option<f64>,
    years: Option<f64>,
    tb_per_billion: Option<f64>,
    databases_per_tb: Option<f64>,
    cores: Option<f64>,
}

/// Row of the table: an engine in a group.
struct Row<'a> {
    group: &'a Group<'a>,
    engine: String,
}

/// Returns the table of one group for its last phase that is not a load. `None` without
/// measurements.
pub fn table(suite: &SuiteResult, group: &Group<'_>, endurance_tb: Option<f64>) -> Option<Table> {
    let phase = main_phase(&[group])?;
    let engines = group.engines();
    let rows = engines.into_iter().map(|engine| Row { group, engine });
    of_rows(suite, &phase, &rows.collect::<Vec<_>>(), endurance_tb)
}

/// Returns the table over all points of a sweep. For a search it has only the share of the highest
/// rate.
pub fn of_points(
    suite: &SuiteResult,
    whole: &Whole<'_>,
    endurance_tb: Option<f64>,
) -> Option<Table> {
    let groups: Vec<&Group<'_>> = whole.points.iter().collect();
    let phase = main_phase(&groups)?;
    let meant = |group: &&&Group<'_>, engine: &String| match &suite.rate_search {
        Some(search) => is_share(search, group, engine),
        None => true,
    };
    let mut rows = Vec::new();
    for engine in whole.engines() {
        let own = groups.iter().filter(|group| meant(group, &engine));
        rows.extend(own.map(|group| Row {
            group,
            engine: engine.clone(),
        }));
    }
    of_rows(suite, &phase, &rows, endurance_tb)
}

/// Returns true if the group ran at the rate for which an engine's response times are reported.
fn is_share(search: &RateSearch, group: &Group<'_>, engine: &str) -> bool {
    let found = search.engines.iter().find(|found| found.engine == engine);
    let rate = found.and_then(|found| found.share_rate);
    rate.is_some_and(|rate| group.point.as_deref() == Some(label(rate).as_str()))
}

/// Returns the last phase that is neither a load nor the warm-up.
fn main_phase(groups: &[&Group<'_>]) -> Option<String> {
    let phases = groups.iter().flat_map(|group| group.phases());
    let phases = phases.filter(|phase| phase != "warmup");
    let phases: Vec<String> = phases.collect();
    let work = phases.iter().rev().find(|phase| !counts_rows(phase));
    work.or(phases.last()).cloned()
}

fn of_rows(
    suite: &SuiteResult,
    phase: &str,
    rows: &[Row<'_>],
    endurance_tb: Option<f64>,
) -> Option<Table> {
    let endurance = endurance_tb.unwrap_or(ENDURANCE_TB);
    let points = has_points(suite);
    let item = if counts_rows(phase) { "row" } else { "op" };
    let mut table = Table::new(
        format!("What {phase} means for a decision"),
        &[
            "engine",
            &format!("throughput ({item}/s)"),
            "written (MB/s)",
            &format!("device life (years of {} TBW)", number(Some(endurance))),
            &format!("device writes (TB per 10^9 {item})"),
            "databases per TB",
            &format!("cores per 10,000 {item}/s"),
        ],
    );
    if points {
        table.headers.insert(1, "at".to_string());
        table.text_columns = 2;
    }
    for row in rows {
        let line = line(row.group, &row.engine, phase, endurance);
        let alone = Line {
            per_s: line.per_s,
            ..Line::default()
        };
        // Throughput alone is no basis for a decision.
        if line == alone {
            continue;
        }
        let mut cells = vec![
            row.group.label(&row.engine),
            number(line.per_s),
            number(line.written_mb_per_s),
            number(line.years),
            number(line.tb_per_billion),
            number(line.databases_per_tb),
            number(line.cores),
        ];
        if points {
            cells.insert(1, row.group.point.clone().unwrap_or_default());
        }
        table.rows.push(cells);
    }
    table.notes.push(format!(
        "life: {} TB may be written (--endurance), at the throughput of this row, day and night; databases: directories as they are after the last settle; cores: without the laboratory's own. `rumbench explain device_years` has the formulas.",
        number(Some(endurance))
    ));
    (!table.rows.is_empty()).then_some(table)
}

fn line(group: &Group<'_>, engine: &str, phase: &str, endurance_tb: f64) -> Line {
    let rows = counts_rows(phase);
    // The total is divided by items, so that loads are counted per row.
    let items = move |phase: &PhaseResult| if rows { phase.rows } else { phase.operations };
    let per_item = move |of: &PhaseResult, per_op: Option<f64>| {
        // An operation of an imported load is a row.
        if of.lacks("operations") || of.lacks("rows") {
            return per_op;
        }
        let count = items(of);
        (count > 0).then(|| per_op.map(|value| value * of.operations as f64 / count as f64))?
    };
    let median = |value: &dyn Fn(&PhaseResult) -> Option<f64>| group.median(engine, phase, value);
    let per_s = median(&|of| if rows { of.rows_per_s } else { of.ops_per_s });
    let written = median(&|of| {
        per_item(of, of.kb_written_per_op_settled.or(of.kb_written_per_op)).map(|kb| kb * 1024.0)
    });
    let bytes_per_s = per_s.zip(written).map(|(per_s, bytes)| per_s * bytes);
    let cpu = median(&|of| per_item(of, of.cpu_us_per_op.map(|cpu| of_engine(&cpu))));
    let settle = group.settles().pop();
    let directory = settle.and_then(|settle| {
        group.median(engine, &settle, |of| {
            of.size_bytes.map(|size| size.directory as f64)
        })
    });
    let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
    Line {
        per_s,
        written_mb_per_s: bytes_per_s.map(|bytes| bytes / 1e6),
        years: positive(bytes_per_s).map(|bytes| endurance_tb * TB / bytes / SECONDS_PER_YEAR),
        tb_per_billion: written.map(|bytes| bytes * 1e9 / TB),
        databases_per_tb: positive(directory).map(|bytes| TB / bytes),
        cores: cpu.map(|us| us * RATE / 1e6),
    }
}

/// Returns the CPU time of the engine and its server. Without calibration it includes the client,
/// which cannot be separated.
fn of_engine(cpu: &CpuPerOp) -> f64 {
    cpu.engine_foreground + cpu.engine_background + cpu.server.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::selection::groups;

    #[test]
    fn years_databases_and_cores_follow_from_the_numbers_of_the_phase() {
        let mut suite = sample::suite();
        suite.trials.truncate(1);
        let request = &mut suite.trials[0].phases[1];
        request.ops_per_s = Some(10_000.0);
        // 2 KiB per operation: 20.48 MB/s.
        request.kb_written_per_op_settled = Some(2.0);
        let found = groups(&suite, false);
        let line = line(&found[0], "alluvium", "request", 600.0);
        let close = |found: Option<f64>, wanted: f64| {
            let found = found.unwrap();
            assert!((found / wanted - 1.0).abs() < 1e-4, "{found} {wanted}");
        };
        close(line.written_mb_per_s, 20.48);
        close(line.years, 600e12 / 20.48e6 / 31_556_952.0);
        close(line.tb_per_billion, 2.048);
        // The directory has 1 GiB after the settle.
        close(line.databases_per_tb, 931.3226);
        // 20 us in the foreground, 8 in the background; the client's 2 do not belong to the engine.
        close(line.cores, 0.28);
    }

    #[test]
    fn what_was_not_measured_has_no_line() {
        let mut suite = sample::suite();
        suite.trials.truncate(1);
        for phase in &mut suite.trials[0].phases {
            phase.kb_written_per_op_settled = None;
            phase.kb_written_per_op = None;
            phase.size_bytes = None;
            phase.cpu_us_per_op = None;
        }
        let found = groups(&suite, false);
        let line = line(&found[0], "alluvium", "request", 600.0);
        let per_s = suite.trials[0].phases[1].ops_per_s;
        assert_eq!(
            line,
            Line {
                per_s,
                ..Line::default()
            }
        );
        // Without writes there is no wear and no number of years.
        suite.trials[0].phases[1].kb_written_per_op = Some(0.0);
        let found = groups(&suite, false);
        let line = super::line(&found[0], "alluvium", "request", 600.0);
        assert_eq!((line.years, line.written_mb_per_s), (None, Some(0.0)));
    }
}
