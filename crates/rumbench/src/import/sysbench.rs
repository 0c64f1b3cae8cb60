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
        let phase = of_report(&Report::of(source)?, name)?;
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

/// Labels of the lines that each report has once.
const EVENTS: &str = "total number of events:";
const TIMES: [&str; 2] = ["time elapsed:", "total time:"];

/// The text of a file with one report.
struct Report<'a>(&'a Source);

impl<'a> Report<'a> {
    /// Checks that the file has one report.
    fn of(source: &'a Source) -> Result<Report<'a>> {
        let lines = (1..).zip(source.text.lines());
        let mut reports = lines.filter(|(_, line)| line.trim().starts_with(EVENTS));
        let has_time = |line: &str| TIMES.iter().any(|label| line.trim().starts_with(label));
        if reports.next().is_none() || !source.text.lines().any(has_time) {
            return Err(source.refused(
                "no report of sysbench: expected `total number of events:` and `total time:` or `time elapsed:`",
            ));
        }
        match reports.next() {
            Some((line, _)) => Err(source.refused_at(
                line,
                "a second report; give each report a file of its own: STEP=FILE",
            )),
            None => Ok(Report(source)),
        }
    }

    /// Returns the number after a label, without its unit; `None` if no line has the label.
    fn value(&self, label: &str) -> Result<Option<f64>> {
        let lines = (1..).zip(self.0.text.lines());
        let mut values = lines.filter_map(|(n, line)| Some((n, line.trim().strip_prefix(label)?)));
        let Some((line, rest)) = values.next() else {
            return Ok(None);
        };
        let word = rest.split_whitespace().next().unwrap_or_default();
        let plain = word.strip_suffix("ms").or(word.strip_suffix('s'));
        let refused = |why: &str| self.0.refused_at(line, &format!("{label} {why}"));
        match number(plain.unwrap_or(word)).map_err(|why| refused(&why))? {
            None => Err(refused("has no number: the file is cut short")),
            known => Ok(known),
        }
    }
}

fn of_report(report: &Report<'_>, name: String) -> Result<PhaseResult> {
    let elapsed = report.value(TIMES[0])?;
    let seconds = match elapsed {
        None => report.value(TIMES[1])?,
        known => known,
    };
    let seconds = seconds.unwrap_or_default();
    let events = report.value(EVENTS)?.unwrap_or_default();
    let mut phase = unknown_phase(name);
    phase.seconds = seconds;
    phase.operations = events as u64;
    let told = report.value("events/s (eps):")?;
    phase.ops_per_s = told.or((seconds > 0.0).then(|| events / seconds));
    let threads = report.value("Number of threads:")?;
    phase.clients = threads.map(|threads| threads as usize);
    known(&mut phase, "seconds");
    known(&mut phase, "operations");
    if let Some(errors) = report.value("ignored errors:")? {
        phase.errors = errors as u64;
        known(&mut phase, "errors");
    }
    let us = |label: &str| {
        let ms = report.value(label)?;
        Ok::<f64, anyhow::Error>(ms.map_or(f64::NAN, |ms| ms * 1e3))
    };
    let needed = |label: &str| match us(label)? {
        unknown if unknown.is_nan() => {
            let why = format!("the report has no line `{label}`: the file is cut short");
            Err(report.0.refused(&why))
        }
        known => Ok(known),
    };
    let latency = Latency {
        count: phase.operations,
        mean: needed("avg:")?,
        p95: match us("95th percentile:")? {
            // The label of versions up to 0.5.
            unknown if unknown.is_nan() => us("approx.  95 percentile:")?,
            known => known,
        },
        p99: us("99th percentile:")?,
        max: needed("max:")?,
        ..unknown_latency()
    };
    phase.latency_us.insert("EVENT".to_string(), latency);
    let queries = report.value("queries:")?;
    let queries = queries.map(|queries| ("sysbench.queries".to_string(), queries));
    phase.engine_counters.extend(queries);
    Ok(phase)
}
