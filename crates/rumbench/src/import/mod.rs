//! Results of other programs as trials that stand beside ours: db_bench, sysbench, the Insert Benchmark's client.
//!
//! Each of [`db_bench`], [`sysbench`] and [`iibench`] reads text and gives phases with the names of our workloads. What a program does
//! not say stays unknown: a number that is always there in results of our own is named in `not_measured` instead, and a figure of
//! response times is absent. Nothing is computed from numbers that were rounded for reading unless a page of the guide says so.

pub mod db_bench;
pub mod iibench;
pub mod sysbench;

use std::collections::BTreeMap;

use anyhow::Result;
use clap::ValueEnum;
use rumbench_core::engine::{Durability, DurabilityFacts};

use crate::catalog::usage;
use crate::store::result::{Imported, Latency, PhaseResult, TrialResult, base_name};

/// Programs whose results can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// db_bench: what it prints, or a report.tsv of benchmark.sh; stands beside kv-sequence
    #[value(name = "db_bench")]
    DbBench,
    /// sysbench: what it prints, one file a test; stands beside oltp-range
    Sysbench,
    /// The Insert Benchmark: 21-column records, or what its client prints; stands beside insert-benchmark
    Iibench,
}

impl Program {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Program::DbBench => "db_bench",
            Program::Sysbench => "sysbench",
            Program::Iibench => "iibench",
        }
    }

    /// The workload beside which its results stand.
    pub fn workload(self) -> &'static str {
        match self {
            Program::DbBench => "kv-sequence",
            Program::Sysbench => "oltp-range",
            Program::Iibench => "insert-benchmark",
        }
    }
}

/// A file with what the command line says of it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Step that it is of, where the file does not say it.
    pub step: Option<String>,
    /// Its name, as it is shown.
    pub file: String,
    /// What is in it.
    pub text: String,
}

impl Source {
    /// A usage error about this file.
    fn refused(&self, why: &str) -> anyhow::Error {
        usage(format!("{}: {why}", self.file))
    }

    /// The step that was named, or the file's name without its ending.
    fn step(&self) -> &str {
        let stem = std::path::Path::new(&self.file).file_stem();
        let stem = stem.and_then(|stem| stem.to_str()).unwrap_or_default();
        self.step.as_deref().unwrap_or(stem)
    }
}

/// What was read of one engine.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Its name, where the file says it.
    pub engine: Option<String>,
    /// Its version, where the file says it.
    pub version: Option<String>,
    /// What the file says of its own settings.
    pub configuration: BTreeMap<String, String>,
    /// Steps in order.
    pub phases: Vec<PhaseResult>,
}

/// Reads all files. `clients` is for what does not say of how many clients it is.
///
/// # Errors
/// A usage error with file and line for what is not of this program.
pub fn read(program: Program, sources: &[Source], clients: Option<usize>) -> Result<Vec<Found>> {
    match program {
        Program::DbBench => db_bench::read(sources).map(|found| vec![found]),
        Program::Sysbench => sysbench::read(sources).map(|found| vec![found]),
        Program::Iibench => iibench::read(sources, clients),
    }
}

/// A trial of what was found. Nothing is known of what its commits survive, so it shares a table with others only when asked.
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

/// The name of a step that may have come before: `NAME`, `NAME#2`, ...
fn numbered(phases: &[PhaseResult], name: &str) -> String {
    let before = phases.iter().filter(|phase| base_name(&phase.name) == name);
    match before.count() {
        0 => name.to_string(),
        n => format!("{name}#{}", n + 1),
    }
}

/// A phase of which nothing is known but its name.
fn unknown_phase(name: String) -> PhaseResult {
    let lacking = ["seconds", "operations", "rows", "errors", "retries"];
    PhaseResult {
        name,
        not_measured: lacking.map(str::to_string).into(),
        ..PhaseResult::default()
    }
}

/// Sets one of the numbers that [`unknown_phase`] lacks.
fn known(phase: &mut PhaseResult, name: &str) {
    phase.not_measured.retain(|lacking| lacking != name);
}

/// Response times of which nothing is known.
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

/// A number, possibly with thousands separated by commas.
fn number(text: &str) -> Option<f64> {
    let plain: String = text.chars().filter(|c| *c != ',').collect();
    plain.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The tables of a text whose columns are separated by tabs: each line that holds `column` names the columns of those after it.
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
