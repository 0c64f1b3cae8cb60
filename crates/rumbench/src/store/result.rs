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
use super::rate_search::RateSearch;
use super::sweep::Sweep;
use crate::measure::doctor::Finding;
use crate::measure::latency::Buckets;

/// Version of this schema, raised when a reader of the old one would misunderstand the new one. A result without what is new in
/// it is written as version 1: see [`SuiteResult::version`].
pub const SCHEMA_VERSION: u32 = 2;
/// The version before sweeps and hosts.
pub const SCHEMA_PLAIN: u32 = 1;

/// Longest text of a mark.
const MARK_CHARS: usize = 300;

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

    /// Adds a mark once. Engines can say much: what goes beyond [`MARK_CHARS`] is cut.
    pub fn mark(&mut self, mark: impl Into<String>) {
        let mut mark: String = mark.into();
        if let Some((end, _)) = mark.char_indices().nth(MARK_CHARS) {
            mark.truncate(end);
            mark.push_str(" ...");
        }
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

/// What the clients beside those of a phase did, at a rate of their own. In no other number of the phase but errors and
/// written bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BackgroundResult {
    /// Operations that ended well.
    pub operations: u64,
    /// Rate asked for, operations per second.
    pub rate: f64,
    /// `operations` / seconds of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// Response time from the intended start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latency_us: BTreeMap<String, Latency>,
    /// Rows asked for, rows per second, where rows are what counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_rate: Option<f64>,
    /// Rows / seconds of the phase, where `rows_rate` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_per_s: Option<f64>,
    /// Responses by the bounds of the classic response-time table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response_buckets: BTreeMap<String, Buckets>,
    /// CPU of their threads for one of their operations, laboratory and engine together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_op: Option<f64>,
}

/// How well intended starts were kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PacingError {
    /// Mean lateness of an idle client in microseconds.
    pub mean: f64,
    /// Percentile 99 of it.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// One step of a trial.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PhaseResult {
    /// `load`, `index`, `warmup`, `request`, `request#2`, ..., `settle`.
    pub name: String,
    /// Wall clock, from the release of the clients to the end of the last one.
    pub seconds: f64,
    /// Operations that ended well.
    pub operations: u64,
    /// Rows that they read or wrote.
    pub rows: u64,
    /// Threads of clients, without those beside the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<usize>,
    /// `operations / seconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// `rows / seconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_per_s: Option<f64>,
    /// Operations that failed.
    pub errors: u64,
    /// Transactions that were run again after a conflict.
    pub retries: u64,
    /// Rate asked for, operations per second over all clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Intended starts that came before the end of the phase and were not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_arrivals: Option<u64>,
    /// Lateness of clients that had been idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_error_us: Option<PacingError>,
    /// Response time from the intended start (equals the service time in a closed loop).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latency_us: BTreeMap<String, Latency>,
    /// Responses by the bounds of the classic response-time table: 256 us, 1, 4, 16, 64, 256 ms, 1, 4, 16 s, longer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response_buckets: BTreeMap<String, Buckets>,
    /// Service time from the actual start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_us: BTreeMap<String, Latency>,
    /// CPU split per operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_op: Option<CpuPerOp>,
    /// CPU in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<CpuSeconds>,
    /// Voluntary and involuntary switches of all threads of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches_per_op: Option<f64>,
    /// Counts of the processor, under `--profile` and where there are counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts_per_op: Option<CountsPerOp>,
    /// What its processes were doing, under `--profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Device read requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_per_op: Option<f64>,
    /// KiB read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_read_per_op: Option<f64>,
    /// Device write requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_per_op: Option<f64>,
    /// KiB written within the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_written_per_op: Option<f64>,
    /// KiB written within the phase and the settle phase that follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_written_per_op_settled: Option<f64>,
    /// KiB written in the whole phase, of the same source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_written: Option<f64>,
    /// Bytes of keys and values that the clients wrote, the background client included, where the workload counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// What the rows come to that the database holds after a settle, where the workload counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<StoredBytes>,
    /// The client that worked beside those of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundResult>,
    /// Where the numbers of reads and writes come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_source: Option<String>,
    /// The process's own input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_io: Option<ProcessIo>,
    /// Sizes at the end of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<SizeBytes>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<RssBytes>,
    /// Whole seconds with less than 10 % of the median throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_seconds: Option<f64>,
    /// Largest gap between two completions of any client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_stall_ms: Option<f64>,
    /// Amplification factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amplification: Option<Amplification>,
    /// One entry for each second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// The engine's counters at the end of the phase.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub engine_counters: BTreeMap<String, f64>,
    /// The first errors, in the engine's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub error_samples: Vec<String>,
    /// Names of numbers that are always there and were not measured: of imported results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_measured: Vec<String>,
}

impl PhaseResult {
    /// Whether a number that is always there was not measured.
    pub fn lacks(&self, name: &str) -> bool {
        self.not_measured.iter().any(|lacking| lacking == name)
    }

    /// Whether it did operations, as far as is known.
    pub fn has_worked(&self) -> bool {
        self.operations > 0 || self.lacks("operations")
    }

    /// The name without a repeated step's `#n`.
    pub fn base_name(&self) -> &str {
        base_name(&self.name)
    }
}

/// `request` for `request#2`.
pub fn base_name(phase: &str) -> &str {
    phase.split('#').next().unwrap_or(phase)
}

/// One second of a phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Seconds since the start of the phase, counted from 0.
    pub second: u64,
    /// Operations that ended in it.
    pub ops: u64,
    /// Longest response that ended in it.
    pub max_us: f64,
    /// Operations by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub op_counts: BTreeMap<String, u64>,
    /// Longest response by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub op_max_us: BTreeMap<String, f64>,
    /// Operations by response time: below 1 us, then each class twice as long (1 to 2 us, 2 to 4 us, ...).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_counts: Vec<u64>,
    /// CPU seconds of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Resident memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// KiB read from the source of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_read: Option<f64>,
    /// KiB written to the source of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_written: Option<f64>,
    /// Allocated bytes of the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_bytes: Option<u64>,
    /// The engine's counters at the end of the second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub engine_counters: BTreeMap<String, f64>,
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
