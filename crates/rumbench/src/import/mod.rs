//! Results of other programs as trials that compare with ours: db_bench, sysbench, the Insert
//! Benchmark's client.
//!
//! Each of [`db_bench`], [`sysbench`] and [`iibench`] reads text and returns phases with the names
//! of our workloads. Values missing from the text stay unknown: `not_measured` names a missing
//! number that our own results always contain, and a missing response time is absent. Nothing is
//! computed from numbers rounded for readers unless a page of the guide says so.

pub mod db_bench;
pub mod iibench;
pub mod sysbench;

use std::collections::BTreeMap;

use anyhow::Result;
use clap::ValueEnum;
use rumbench_core::engine::{Durability, DurabilityFacts};

use crate::catalog::usage;
use crate::store::result::{Imported, Latency, PhaseResult, TrialResult, base_name};

/// Programs with results that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// db_bench: its output, or a report.tsv of benchmark.sh; compares with kv-sequence
    #[value(name = "db_bench")]
    DbBench,
    /// sysbench: its output, one file per test; compares with oltp-range
    Sysbench,
    /// The Insert Benchmark: 21-column records, or the output of its client; compares with
    /// insert-benchmark
    Iibench,
}

impl Program {
    /// Returns the program's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Program::DbBench => "db_bench",
            Program::Sysbench => "sysbench",
            Program::Iibench => "iibench",
        }
    }

    /// Returns the workload with comparable results.
    pub fn workload(self) -> &'static str {
        match self {
            Program::DbBench => "kv-sequence",
            Program::Sysbench => "oltp-range",
            Program::Iibench => "insert-benchmark",
        }
    }
}

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
    fn refused(&self, why: &str) -> anyhow::Error {
        usage(format!("{}: {why}", self.file))
    }

    /// Returns the step from the command line, or the file's name without its extension.
    fn step(&self) -> &str {
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

/// Reads all files. `clients` is the number of clients for formats that do not contain it.
///
/// # Errors
/// A usage error with the file's name if it is not of this program.
pub fn read(program: Program, sources: &[Source], clients: Option<usize>) -> Result<Vec<Found>> {
    match program {
        Program::DbBench => db_bench::read(sources).map(|found| vec![found]),
        Program::Sysbench => sysbench::read(sources).map(|found| vec![found]),
        Program::Iibench => iibench::read(sources, clients),
    }
}

/// Builds a trial from the results. The durability of its commits is unknown, so it shares a table
/// with other trials only on request.
pub fn trial(
    found: Found,
    engine: String,
    program: Program,
    sources: &[Source],
    durability: Durability,
) -> TrialResult {
    let files: Vec<String> = sources.iter().map(|source| source.file.clone()).collect();
    let mut configuration = found.configuration;
    configuration.insert("imported_from".to_string(), program.name().to_string());
    let unknown = || "unknown: imported".to_string();
    let mut trial = TrialResult {
        engine,
        variant: None,
        engine_version: found.version.unwrap_or_default(),
        host: None,
        point: None,
        repetition: 1,
        seed: 0,
        durability,
        durability_facts: Some(DurabilityFacts {
            process_kill: unknown(),
            power_cut: unknown(),
        }),
        marks: Vec::new(),
        configuration,
        started_at: String::new(),
        ended_at: None,
        cache_state: "unknown: imported".to_string(),
        memory: None,
        verified: None,
        imported: Some(Imported {
            program: program.name().to_string(),
            files: files.clone(),
        }),
        phases: found.phases,
    };
    trial.mark(format!(
        "imported (from {}: {}; rumbench measured none of it)",
        program.name(),
        files.join(", ")
    ));
    trial
}

/// Returns a unique name for a step that may be repeated: `NAME`, `NAME#2`, ...
fn numbered(phases: &[PhaseResult], name: &str) -> String {
    let before = phases.iter().filter(|phase| base_name(&phase.name) == name);
    match before.count() {
        0 => name.to_string(),
        n => format!("{name}#{}", n + 1),
    }
}

/// Returns a phase with a name and no known numbers.
fn unknown_phase(name: String) -> PhaseResult {
    let lacking = ["seconds", "operations", "rows", "errors", "retries"];
    PhaseResult {
        name,
        not_measured: lacking.map(str::to_string).into(),
        ..PhaseResult::default()
    }
}

/// Marks one of the numbers that [`unknown_phase`] lacks as known.
fn known(phase: &mut PhaseResult, name: &str) {
    phase.not_measured.retain(|lacking| lacking != name);
}

/// Returns response times without known values.
fn unknown_latency() -> Latency {
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
fn number(text: &str) -> Option<f64> {
    let plain: String = text.chars().filter(|c| *c != ',').collect();
    plain.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Parses tables with tab-separated columns: each line that contains `column` is the header of the
/// lines after it.
fn columns<'a>(text: &'a str, column: &str) -> Vec<BTreeMap<&'a str, &'a str>> {
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

#[cfg(test)]
mod tests;
