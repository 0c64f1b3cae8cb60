//! Input files and the phases that are built from them, for all programs.

use std::collections::BTreeMap;

use crate::catalog::usage;
use crate::store::result::{Latency, PhaseResult, base_name};

/// Input file, with the step from the command line.
#[derive(Debug, Clone)]
pub struct Source {
    /// Step given on the command line; `None` if the file or its name contains it.
    pub step: Option<String>,
    /// File name, for messages.
    pub file: String,
    /// Content of the file.
    pub text: String,
}

impl Source {
    /// Returns a usage error about this file.
    pub fn refused(&self, why: &str) -> anyhow::Error {
        usage(format!("{}: {why}", self.file))
    }

    /// Returns the step from the command line, or the file's name without its extension.
    pub fn step(&self) -> &str {
        let stem = std::path::Path::new(&self.file).file_stem();
        let stem = stem.and_then(|stem| stem.to_str()).unwrap_or_default();
        self.step.as_deref().unwrap_or(stem)
    }
}

/// Results of one engine.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Engine name, if the file contains it.
    pub engine: Option<String>,
    /// Engine version, if the file contains it.
    pub version: Option<String>,
    /// Settings in the file.
    pub configuration: BTreeMap<String, String>,
    /// Steps in order.
    pub phases: Vec<PhaseResult>,
}

/// Returns a unique name for a step that may be repeated: `NAME`, `NAME#2`, ...
pub fn numbered(phases: &[PhaseResult], name: &str) -> String {
    let before = phases.iter().filter(|phase| base_name(&phase.name) == name);
    match before.count() {
        0 => name.to_string(),
        n => format!("{name}#{}", n + 1),
    }
}

/// Returns a phase with a name and no known numbers.
pub fn unknown_phase(name: String) -> PhaseResult {
    let lacking = ["seconds", "operations", "rows", "errors", "retries"];
    PhaseResult {
        name,
        not_measured: lacking.map(str::to_string).into(),
        ..PhaseResult::default()
    }
}

/// Marks one of the numbers that [`unknown_phase`] lacks as known.
pub fn known(phase: &mut PhaseResult, name: &str) {
    phase.not_measured.retain(|lacking| lacking != name);
}

/// Returns response times without known values.
pub fn unknown_latency() -> Latency {
    Latency {
        count: 0,
        mean: f64::NAN,
        p50: f64::NAN,
        p95: f64::NAN,
        p99: f64::NAN,
        p999: f64::NAN,
        p9999: f64::NAN,
        max: f64::NAN,
    }
}

/// Parses a number, possibly with commas between thousands.
pub fn number(text: &str) -> Option<f64> {
    let plain: String = text.chars().filter(|c| *c != ',').collect();
    plain.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Parses tables with tab-separated columns: each line that contains `column` is the header of the
/// lines after it.
pub fn columns<'a>(text: &'a str, column: &str) -> Vec<BTreeMap<&'a str, &'a str>> {
    let mut header: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line
            .trim_start_matches('#')
            .split('\t')
            .map(str::trim)
            .collect();
        if cells.contains(&column) {
            header = cells;
        } else if cells.len() > 1 && !header.is_empty() {
            rows.push(header.iter().copied().zip(cells).collect());
        }
    }
    rows
}
