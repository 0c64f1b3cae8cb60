//! Shape of `result.json`: one object for each suite, its trials, phases and intervals.
//!
//! The names are a contract with scripts: fields are added, never renamed. Units are in the names,
//! and an absent field means "not measured". docs/guide/metrics.md describes the same structures
//! for readers.

use std::collections::BTreeMap;

use rumbench_core::engine::{Durability, DurabilityFacts};
use serde::{Deserialize, Serialize};

pub use super::figures::{
    Amplification, BUCKET_BOUNDS_US, Buckets, CountsPerOp, CpuPerOp, CpuSeconds, HotFunction,
    Latency, ProcessIo, Profile, RssBytes, SizeBytes, StoredBytes,
};
use super::finding::Finding;
pub use super::phase::{BackgroundResult, Interval, PacingError, PhaseResult, base_name};
use super::rate_search::RateSearch;
use super::sweep::Sweep;

/// Version of this schema, raised if a reader of the old one would misunderstand the new one. A
/// result without the additions of version 2 is written as version 1: see [`SuiteResult::version`].
pub const SCHEMA_VERSION: u32 = 2;
/// The version before sweeps and hosts.
pub const SCHEMA_PLAIN: u32 = 1;

/// Maximum length of a mark, in characters.
const MARK_CHARS: usize = 450;

/// All measurements of one suite.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SuiteResult {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Version of the laboratory.
    pub rumbench_version: String,
    /// Command line, to run the suite again.
    pub command: String,
    /// Time of the first trial, RFC 3339.
    pub started_at: String,
    /// Times at which the stopped suite was continued, RFC 3339.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed_at: Vec<String>,
    /// Seed of the first repetition; repetition n uses seed + n - 1.
    pub seed: u64,
    /// Workload name.
    pub workload: String,
    /// Version of the workload's golden operations; numbers of different versions are not
    /// comparable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_version: Option<u32>,
    /// Settings given for the workload and the runner.
    pub settings: BTreeMap<String, String>,
    /// Hardware, kernel, file system, build.
    pub environment: BTreeMap<String, String>,
    /// Properties of the machine that decide or spoil a measurement, as in `rumbench doctor`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<Finding>,
    /// CPU cost of the laboratory itself for each phase, measured on the `null` engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Calibrations that differ among trials, by [`TrialResult::build_and_point`]; `calibration`
    /// holds for all others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calibrations: BTreeMap<String, Calibration>,
    /// Varied setting of a sweep, and its results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// Rates that were tried, and the result of the search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_search: Option<RateSearch>,
    /// One entry for each trial, in the order in which they ran.
    pub trials: Vec<TrialResult>,
    /// Ratios against the base engine.
    pub comparisons: Vec<Comparison>,
    /// True if the suite was stopped before its end.
    #[serde(default)]
    pub interrupted: bool,
}

impl SuiteResult {
    /// Returns the calibration that holds for a trial: of its point, of its build, or of the suite.
    pub fn calibration_of(&self, trial: &TrialResult) -> Option<&Calibration> {
        let key = trial.build_and_point();
        let build = key.split(' ').next().unwrap_or_default();
        let own = [&key, build].map(|key| self.calibrations.get(key));
        own.into_iter()
            .flatten()
            .next()
            .or(self.calibration.as_ref())
    }

    /// Returns a result without trials.
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

    /// Returns the oldest schema version that is sufficient for this result. Older readers would
    /// mistake points of a sweep, or builds of an engine, for repetitions.
    pub fn version(&self) -> u32 {
        let hosts = self.trials.iter().any(|trial| trial.host.is_some());
        if self.sweep.is_some() || self.rate_search.is_some() || hosts {
            SCHEMA_VERSION
        } else {
            SCHEMA_PLAIN
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
    /// User mode part of it.
    pub client_user_us_per_op: BTreeMap<String, f64>,
    /// Memory of the laboratory in a trial, without the structures whose size depends on the rows:
    /// from the largest anonymous memory of the trial on `null`, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub laboratory_bytes: Option<u64>,
}

/// Memory of a whole trial under `--memory`: its process, and the page cache of its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Limit that was asked for, in bytes.
    pub limit_bytes: u64,
    /// Memory that the laboratory itself may use above the limit, in bytes.
    #[serde(default)]
    pub laboratory_bytes: u64,
    /// Largest use at one time, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// True if the kernel killed the trial because of the limit.
    #[serde(default)]
    pub killed: bool,
}

/// Trial: one engine, one workload, one repetition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialResult {
    /// Engine name without its variant.
    pub engine: String,
    /// Variant, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Version text of the engine; empty if it never opened.
    pub engine_version: String,
    /// Other build that ran the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Setting of this trial in a sweep, `KEY=VALUE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// Repetition, counted from 1.
    pub repetition: u32,
    /// Seed of this trial.
    pub seed: u64,
    /// Requested durability class.
    pub durability: Durability,
    /// Meaning of the class on this engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability_facts: Option<DurabilityFacts>,
    /// Warnings that a reader must see next to the numbers.
    pub marks: Vec<String>,
    /// Effective configuration of engine and workload.
    pub configuration: BTreeMap<String, String>,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// End time, RFC 3339; absent while the trial runs or if it was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// State of the page cache at the start: dropped, or the reason why not.
    pub cache_state: String,
    /// Memory limit and use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// Result of the final check, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// Source, if another program measured the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Imported>,
    /// Phases in order.
    pub phases: Vec<PhaseResult>,
}

impl TrialResult {
    /// Returns `engine`, `engine:variant` or either with `@host`, as on the command line.
    pub fn name(&self) -> String {
        engine_name(&self.engine, self.variant.as_deref(), self.host.as_ref())
    }

    /// Returns the name, and in a sweep the setting: trials with equal values are repetitions.
    pub fn contestant(&self) -> String {
        match &self.point {
            Some(point) => format!("{} {point}", self.name()),
            None => self.name(),
        }
    }

    /// Returns the factors of the laboratory's own cost: the build that ran the trial, as `@HOST`,
    /// and the setting of a sweep.
    pub fn build_and_point(&self) -> String {
        let host = self.host.as_ref().map(|host| format!("@{}", host.name));
        let parts: Vec<String> = host.into_iter().chain(self.point.clone()).collect();
        parts.join(" ")
    }

    /// Returns true if a mark with this name (before any parenthesis) is present.
    pub fn has_mark(&self, name: &str) -> bool {
        self.marks
            .iter()
            .any(|mark| mark.split(" (").next() == Some(name))
    }

    /// Adds a mark once; a long one is shortened in the middle.
    pub fn mark(&mut self, mark: impl Into<String>) {
        let mark = shortened(mark.into());
        if !self.marks.contains(&mark) {
            self.marks.push(mark);
        }
    }
}

/// Returns the name of an engine as on the command line: `engine`, `engine:variant` or either with
/// `@host`.
pub fn engine_name(engine: &str, variant: Option<&str>, host: Option<&Host>) -> String {
    let variant = variant.map(|variant| format!(":{variant}"));
    let host = host.filter(|host| !host.name.is_empty());
    let host = host.map(|host| format!("@{}", host.name));
    let parts = [variant, host].into_iter().flatten();
    std::iter::once(engine.to_string()).chain(parts).collect()
}

/// Other build of the laboratory that ran a trial.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Name on the command line; empty if one build ran all trials.
    pub name: String,
    /// Path of its binary.
    pub path: String,
    /// Version of that build.
    pub rumbench_version: String,
    /// Commit of that build, with a remark if files had changed.
    pub commit: String,
    /// Compiler of that build.
    pub compiler: String,
    /// Profile, optimization, target, flags.
    pub compiler_flags: String,
}

/// Source of a trial that another program measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Name of the program.
    pub program: String,
    /// Files that were read.
    pub files: Vec<String>,
}

/// Comparison of one engine with the base in one metric of one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Setting of both in a sweep, `KEY=VALUE`.
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
    /// Upper end of the same.
    pub ratio_high: f64,
    /// `higher`, `lower`, `no verdict`, or the reason for no verdict.
    pub verdict: String,
}

/// Cuts the middle of a mark longer than [`MARK_CHARS`], because engines can report much. The
/// failure comes first; the last lines of a log, or errors after it, give the reason.
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
