//! The shape of a phase in `result.json`, and of its seconds. The rules of `result.rs` hold here too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::figures::{
    Amplification, CountsPerOp, CpuPerOp, CpuSeconds, Latency, ProcessIo, Profile, RssBytes,
    SizeBytes, StoredBytes,
};
use crate::measure::latency::Buckets;

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

    /// Its intervals without the last one where that is no whole second.
    pub fn whole_seconds(&self) -> &[Interval] {
        let whole = (self.seconds.floor() as usize).min(self.intervals.len());
        &self.intervals[..whole]
    }

    /// Operations of each whole second.
    pub fn ops_of_seconds(&self) -> Vec<u64> {
        self.whole_seconds().iter().map(|i| i.ops).collect()
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
    /// Operations that ended in it of the clients beside the phase's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_ops: Option<u64>,
    /// Those by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub background_op_counts: BTreeMap<String, u64>,
    /// Longest response of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_max_us: Option<f64>,
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
