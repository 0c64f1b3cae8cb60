//! Input files and the phases that are built from them, for all programs.

use std::collections::BTreeMap;

use anyhow::Result;

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

    /// Returns a usage error about a line of this file, counted from 1.
    pub fn refused_at(&self, line: usize, why: &str) -> anyhow::Error {
        usage(format!("{} line {line}: {why}", self.file))
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
    let is_free = |name: &str| phases.iter().all(|phase| phase.name != name);
    if is_free(name) {
        return name.to_string();
    }
    let mut numbered = (2..).map(|n: u32| format!("{}#{n}", base_name(name)));
    // Ends at the number of phases plus one.
    numbered.find(|name| is_free(name)).unwrap_or_default()
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

/// Cells without a value.
const UNKNOWN: &[&str] = &["", "-", "na", "n/a"];

/// Parses a number; `None` if the cell says that it is not known. The error names the text and what
/// is wrong with it.
pub fn number(text: &str) -> std::result::Result<Option<f64>, String> {
    let text = text.trim();
    if UNKNOWN
        .iter()
        .any(|unknown| text.eq_ignore_ascii_case(unknown))
    {
        return Ok(None);
    }
    // No program separates thousands, and a decimal comma must not pass for that.
    if text.contains(',') {
        return Err(format!("`{text}` has a comma; decimals begin with a point"));
    }
    match text.parse::<f64>() {
        Ok(value) if value < 0.0 => Err(format!("`{text}` is below zero")),
        Ok(value) if value.is_finite() => Ok(Some(value)),
        Ok(_) => Err(format!("`{text}` is not finite")),
        Err(_) => Err(format!("`{text}` is no number")),
    }
}

/// A line of a table.
pub struct Row<'a> {
    source: &'a Source,
    /// Number of the line, counted from 1.
    line: usize,
    cells: BTreeMap<&'a str, &'a str>,
}

impl<'a> Row<'a> {
    /// Returns the text of a column, if the table has it.
    pub fn text(&self, column: &str) -> Option<&'a str> {
        self.cells.get(column).copied()
    }

    /// Returns the number of a column; `None` if the table lacks the column or it is not known.
    ///
    /// # Errors
    /// A usage error with the line if the cell is no number.
    pub fn number(&self, column: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(column) else {
            return Ok(None);
        };
        number(text).map_err(|why| self.refused(&format!("column {column}: {why}")))
    }

    /// Returns a usage error about this line.
    pub fn refused(&self, why: &str) -> anyhow::Error {
        self.source.refused_at(self.line, why)
    }
}

/// Parses tables with tab-separated columns: each line that contains `column` is the header of the
/// lines after it.
///
/// # Errors
/// A usage error for a line with another number of columns than its header: the file was cut short.
pub fn columns<'a>(source: &'a Source, column: &str) -> Result<Vec<Row<'a>>> {
    let mut header: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        let cells: Vec<&str> = text
            .trim_start_matches('#')
            .split('\t')
            .map(str::trim)
            .collect();
        if cells.contains(&column) {
            header = cells;
        } else if cells.len() > 1 && !header.is_empty() {
            if cells.len() != header.len() {
                let (has, wants) = (cells.len(), header.len());
                return Err(source.refused_at(line, &format!("{has} of {wants} columns")));
            }
            let cells = header.iter().copied().zip(cells).collect();
            rows.push(Row {
                source,
                line,
                cells,
            });
        }
    }
    Ok(rows)
}
