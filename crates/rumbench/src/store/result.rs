//! The shape of `result.json`: one object for each suite, its trials, phases and intervals.
//!
//! The names are a contract with scripts: fields are added, never renamed. Units are in the names, and an absent field means
//! "not measured". docs/guide/metrics.md describes the same structures for readers.

use std::collections::BTreeMap;

use rumbench_core::engine::{Durability, DurabilityFacts};
use serde::{Deserialize, Serialize};

pub use super::figures::{
    Amplification, CountsPerOp, CpuPerOp, CpuSeconds, HotFunction, Latency, ProcessIo, Profile,
    RssBytes, SizeBytes, StoredBytes,
};
pub use super::phase::{BackgroundResult, Interval, PacingError, PhaseResult, base_name};
use super::rate_search::RateSearch;
use super::sweep::Sweep;
use crate::measure::doctor::Finding;

/// Version of this schema, raised when a reader of the old one would misunderstand the new one. A result without what is new in
/// it is written as version 1: see [`SuiteResult::version`].
pub const SCHEMA_VERSION: u32 = 2;
/// The version before sweeps and hosts.
pub const SCHEMA_PLAIN: u32 = 1;

/// Longest text of a mark.
const MARK_CHARS: usize = 450;

/// Everything that one suite measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SuiteResult {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Version of the laboratory.
    pub rumbench_version: String,
    /// The command line, to run it again.
    pub command: String,
    /// RFC 3339 time of the first trial.
    pub started_at: String,
    /// RFC 3339 times at which it was continued after it had been stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed_at: Vec<String>,
    /// Seed of the first repetition; repetition n uses seed + n - 1.
    pub seed: u64,
    /// Workload name.
    pub workload: String,
    /// Version of the workload's golden operations; numbers of different versions do not compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_version: Option<u32>,
    /// Settings given for the workload and the runner.
    pub settings: BTreeMap<String, String>,
    /// Hardware, kernel, file system, build.
    pub environment: BTreeMap<String, String>,
    /// What of the machine decides or spoils a measurement, as `rumbench doctor` tells it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<Finding>,
    /// What the laboratory itself costs for each phase, measured on the `null` engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// The same where it differs among trials, by [`TrialResult::build_and_point`]; the one above holds for all others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calibrations: BTreeMap<String, Calibration>,
    /// What was varied, and what follows from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// Which rates were looked for, and what was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_search: Option<RateSearch>,
    /// One entry for each trial, in the order in which they ran.
    pub trials: Vec<TrialResult>,
    /// Ratios against the base engine.
    pub comparisons: Vec<Comparison>,
    /// Whether the suite was stopped before its end.
    #[serde(default)]
    pub interrupted: bool,
}

impl SuiteResult {
    /// Of nothing that was run here.
    pub fn empty(workload: &str, command: String, started_at: String) -> SuiteResult {
        SuiteResult {
            schema_version: SCHEMA_PLAIN,
            rumbench_version: env!("CARGO_PKG_VERSION").to_string(),
            command,
            started_at,
            resumed_at: Vec::new(),
            seed: 0,
            workload: workload.to_string(),
            workload_version: None,
            settings: BTreeMap::new(),
            environment: BTreeMap::new(),
            machine: Vec::new(),
            calibration: None,
            calibrations: BTreeMap::new(),
            sweep: None,
            rate_search: None,
            trials: Vec::new(),
            comparisons: Vec::new(),
            interrupted: false,
        }
    }

    /// The oldest schema version whose readers understand this: older ones would take points of a
    /// sweep, or builds of an engine, for repetitions.
    pub fn version(&self) -> u32 {
        let hosts = self.trials.iter().any(|trial| trial.host.is_some());
        match self.sweep.is_some() || self.rate_search.is_some() || hosts {
            true => SCHEMA_VERSION,
            false => SCHEMA_PLAIN,
        }
    }
}

/// Client CPU of the same operation stream on `null`, by phase name without its `#n`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Calibration {
    /// Settings that differed from the suite's, to keep calibration short.
    pub overrides: BTreeMap<String, String>,
    /// CPU of the client thread, user and system, in microseconds per operation.
    pub client_us_per_op: BTreeMap<String, f64>,
    /// The user part of it.
    pub client_user_us_per_op: BTreeMap<String, f64>,
}

/// Memory of a whole trial under `--memory`: its process, and the page cache of its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// What it could take, in bytes.
    pub limit_bytes: u64,
    /// The most that it took at one time, where the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Whether the kernel killed it for want of memory.
    #[serde(default)]
    pub killed: bool,
}

/// One engine, one workload, one repetition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialResult {
    /// Engine name without its variant.
    pub engine: String,
    /// The variant, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The engine's own version text; empty when it never opened.
    pub engine_version: String,
    /// The other build that ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// What a sweep set for this trial, `KEY=VALUE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// Counted from 1.
    pub repetition: u32,
    /// Seed of this trial.
    pub seed: u64,
    /// The durability class asked for.
    pub durability: Durability,
    /// What the class means on this engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability_facts: Option<DurabilityFacts>,
    /// Warnings that a reader must see beside the numbers.
    pub marks: Vec<String>,
    /// Effective configuration of engine and workload.
    pub configuration: BTreeMap<String, String>,
    /// RFC 3339 time of its start.
    pub started_at: String,
    /// RFC 3339 time of its end; absent while it runs, and of one that was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Whether the page cache was dropped before, or why not.
    pub cache_state: String,
    /// What bounded its memory, and how much it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// What the final check found, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// Another program measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Imported>,
    /// Its steps.
    pub phases: Vec<PhaseResult>,
}

impl TrialResult {
    /// `engine`, `engine:variant` or either with `@host`, as on the command line.
    pub fn name(&self) -> String {
        let host = self.host.as_ref().map(|host| host.name.as_str());
        engine_name(
            &self.engine,
            self.variant.as_deref(),
            host.filter(|name| !name.is_empty()),
        )
    }

    /// The name, and in a sweep what was set: trials of equal ones are repetitions.
    pub fn contestant(&self) -> String {
        match &self.point {
            Some(point) => format!("{} {point}", self.name()),
            None => self.name(),
        }
    }

    /// What decides the laboratory's own cost: the build that ran the trial, as `@HOST`, and what a sweep set.
    pub fn build_and_point(&self) -> String {
        let host = self.host.as_ref().map(|host| format!("@{}", host.name));
        let parts: Vec<String> = host.into_iter().chain(self.point.clone()).collect();
        parts.join(" ")
    }

    /// Whether a mark with this name (before any parenthesis) is present.
    pub fn has_mark(&self, name: &str) -> bool {
        self.marks
            .iter()
            .any(|mark| mark.split(" (").next() == Some(name))
    }

    /// Adds a mark once, without its middle if it is long.
    pub fn mark(&mut self, mark: impl Into<String>) {
        let mark = shortened(mark.into());
        if !self.marks.contains(&mark) {
            self.marks.push(mark);
        }
    }
}

/// An engine as the command line names it.
pub fn engine_name(engine: &str, variant: Option<&str>, host: Option<&str>) -> String {
    let variant = variant.map(|variant| format!(":{variant}"));
    let host = host.map(|host| format!("@{host}"));
    let parts = [variant, host].into_iter().flatten();
    std::iter::once(engine.to_string()).chain(parts).collect()
}

/// Another build of the laboratory that ran a trial.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name on the command line; empty where one build ran all trials.
    pub name: String,
    /// Its binary.
    pub path: String,
    /// Its version.
    pub rumbench_version: String,
    /// Its commit, with a remark where files had changed.
    pub commit: String,
    /// Its compiler.
    pub compiler: String,
    /// Profile, optimisation, target, flags.
    pub compiler_flags: String,
}

/// Where a trial comes from that another program measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// The program.
    pub program: String,
    /// Files that were read.
    pub files: Vec<String>,
}

/// One engine against the base in one metric of one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What a sweep set for both, `KEY=VALUE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// Base engine.
    pub base: String,
    /// Compared engine.
    pub engine: String,
    /// Phase name.
    pub phase: String,
    /// Metric name, see `rumbench list metrics`.
    pub metric: String,
    /// Geometric mean of the paired ratios engine / base.
    pub ratio: f64,
    /// Lower end of the interval (five pairs or more) or of the range.
    pub ratio_low: f64,
    /// Upper end.
    pub ratio_high: f64,
    /// `higher`, `lower`, `no verdict`, or why there is none.
    pub verdict: String,
}

/// Engines can say much: of more than [`MARK_CHARS`] characters the middle is cut. What failed is told first, and of a log that
/// is told with it the last lines, or errors that are told behind them, say why.
fn shortened(mark: String) -> String {
    let chars = mark.chars().count();
    if chars <= MARK_CHARS {
        return mark;
    }
    let first: String = mark.chars().take(MARK_CHARS / 3).collect();
    let last = mark.chars().skip(chars - MARK_CHARS * 2 / 3);
    format!("{first} ... {}", last.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_marks_keep_what_failed_and_the_end_of_the_log() {
        let log = "a line of a log | ".repeat(100);
        let mark = shortened(format!("failed (cannot open it: {log}unknown variable)"));
        assert!(mark.starts_with("failed (cannot open it: a line"));
        assert!(mark.ends_with(" | unknown variable)"));
        assert_eq!(mark.chars().count(), MARK_CHARS + " ... ".len());
        let exact = "\u{e9}".repeat(MARK_CHARS);
        assert_eq!(shortened(exact.clone()), exact);
    }
}
