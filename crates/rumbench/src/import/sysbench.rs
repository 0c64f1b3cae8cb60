//! sysbench: the report at the end of a test, in the formats of versions 0.5 to 1.1.
//!
//! The output does not name its test, so the file's name or `STEP=FILE` does. One event is one
//! operation, as in oltp-range. A report has response times in milliseconds and one percentile: the
//! 95th by default, or the 99th.

use anyhow::Result;
use rumbench_core::oltp_range::tests::of_phase;

use super::found::{Found, Source, known, number, numbered, unknown_latency, unknown_phase};
use crate::store::result::{Latency, PhaseResult};

/// Reads each file as one test.
///
/// # Errors
/// A usage error for a file that is no report or of an unknown test.
pub fn read(sources: &[Source]) -> Result<Found> {
    let mut found = Found::default();
    for source in sources {
        let step = source.step();
        if of_phase(step).is_none() {
            return Err(source.refused(&format!(
                "`{step}` is no test of oltp-range (rumbench list phases); name it: STEP=FILE"
            )));
        }
        let name = numbered(&found.phases, step);
        let Some(phase) = of_report(&source.text, name) else {
            return Err(source.refused(
                "no report of sysbench: expected `total number of events:` and `total time:` or `time elapsed:`",
            ));
        };
        let version = source
            .text
            .lines()
            .find_map(|line| line.strip_prefix("sysbench "));
        if let Some(version) = version.and_then(|line| line.split([' ', ':']).next()) {
            let version = version.to_string();
            found
                .configuration
                .insert("sysbench.version".to_string(), version);
        }
        found.phases.push(phase);
    }
    Ok(found)
}

/// Returns the number after a label, without its unit.
fn value(text: &str, label: &str) -> Option<f64> {
    let of = |line: &str| {
        let rest = line.trim().strip_prefix(label)?.trim();
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
        number(&rest[..end.unwrap_or(rest.len())])
    };
    text.lines().find_map(of)
}

fn of_report(text: &str, name: String) -> Option<PhaseResult> {
    let seconds = value(text, "time elapsed:").or_else(|| value(text, "total time:"))?;
    let events = value(text, "total number of events:")?;
    let mut phase = unknown_phase(name);
    phase.seconds = seconds;
    phase.operations = events as u64;
    let told = value(text, "events/s (eps):");
    phase.ops_per_s = told.or((seconds > 0.0).then(|| events / seconds));
    phase.clients = value(text, "Number of threads:").map(|threads| threads as usize);
    known(&mut phase, "seconds");
    known(&mut phase, "operations");
    if let Some(errors) = value(text, "ignored errors:") {
        phase.errors = errors as u64;
        known(&mut phase, "errors");
    }
    let ms = |label: &str| value(text, label).map_or(f64::NAN, |ms| ms * 1e3);
    let latency = Latency {
        count: phase.operations,
        mean: ms("avg:"),
        p95: ms("95th percentile:"),
        p99: ms("99th percentile:"),
        max: ms("max:"),
        ..unknown_latency()
    };
    phase.latency_us.insert("EVENT".to_string(), latency);
    let queries = value(text, "queries:");
    let queries = queries.map(|queries| ("sysbench.queries".to_string(), queries));
    phase.engine_counters.extend(queries);
    Some(phase)
}
