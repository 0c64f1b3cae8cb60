//! Results of other programs as trials that compare with ours: db_bench, sysbench, the Insert
//! Benchmark's client.
//!
//! Each of [`db_bench`], [`sysbench`] and [`iibench`] reads text and returns phases with the names
//! of our workloads. Values missing from the text stay unknown: `not_measured` names a missing
//! number that our own results always contain, and a missing response time is absent. Nothing is
//! computed from numbers rounded for readers unless a page of the guide says so.

pub mod db_bench;
mod found;
pub mod iibench;
pub mod sysbench;

use anyhow::Result;
use clap::ValueEnum;
use rumbench_core::engine::{Durability, DurabilityFacts};

use crate::store::result::{Imported, PhaseResult, TrialResult};
pub use found::{Found, Source};

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
    for (operation, percentile, max) in above_the_maximum(&trial.phases) {
        trial.mark(format!(
            "percentile-above-maximum ({operation}: {percentile} us, maximum {max} us)"
        ));
    }
    trial.mark(format!(
        "imported (from {}: {}; rumbench measured none of it)",
        program.name(),
        files.join(", ")
    ));
    trial
}

/// Returns the operations with a percentile above the maximum, the largest percentile, and the
/// maximum: some programs interpolate between the borders of their buckets.
fn above_the_maximum(phases: &[PhaseResult]) -> Vec<(String, f64, f64)> {
    let mut above = Vec::new();
    for phase in phases {
        for (operation, latency) in &phase.latency_us {
            let percentiles = [
                latency.p50,
                latency.p95,
                latency.p99,
                latency.p999,
                latency.p9999,
            ];
            // `f64::max` ignores unknown values, which are NaN.
            let largest = percentiles.into_iter().fold(f64::NAN, f64::max);
            if largest > latency.max {
                above.push((
                    format!("{} of {}", operation, phase.name),
                    largest,
                    latency.max,
                ));
            }
        }
    }
    above
}

#[cfg(test)]
mod tests;
