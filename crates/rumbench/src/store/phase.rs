//! Fields of a phase in `result.json`, and of its one-second intervals. The rules of `result.rs` on
//! names, units and absent fields apply here too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::figures::{
    Amplification, Buckets, CountsPerOp, CpuPerOp, CpuSeconds, Latency, ProcessIo, Profile,
    RssBytes, SizeBytes, StoredBytes,
};

/// Results of the background clients, which have a rate of their own. They are in no other number
/// of the phase except errors and written bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BackgroundResult {
    /// Successful operations.
    pub operations: u64,
    /// Requested rate, operations per second.
    pub rate: f64,
    /// `operations` / seconds of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// Response time from the intended start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latency_us: BTreeMap<String, Latency>,
    /// Requested rows per second, if the workload counts rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_rate: Option<f64>,
    /// Rows / seconds of the phase, if `rows_rate` is present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_per_s: Option<f64>,
    /// Number of responses in each class of [`PhaseResult::response_buckets`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response_buckets: BTreeMap<String, Buckets>,
    /// CPU microseconds of the background clients' threads per background operation, laboratory and
    /// engine together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_op: Option<f64>,
}

/// Lateness of operations with a client that was idle at the intended start, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PacingError {
    /// Mean.
    pub mean: f64,
    /// Percentile 99.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// One step of a trial.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PhaseResult {
    /// `load`, `index`, `warmup`, `request`, `request#2`, ..., `settle`.
    pub name: String,
    /// Wall clock seconds, from the release of the clients to the end of the last one.
    pub seconds: f64,
    /// Successful operations.
    pub operations: u64,
    /// Rows that the operations read or wrote.
    pub rows: u64,
    /// Number of client threads, without background clients.
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
    /// Transactions rerun after a conflict.
    pub retries: u64,
    /// Requested rate, operations per second over all clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Operations that had an intended start within the phase but did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_arrivals: Option<u64>,
    /// Lateness of clients that had been idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_error_us: Option<PacingError>,
    /// Response time from the intended start (equals the service time in a closed loop).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latency_us: BTreeMap<String, Latency>,
    /// Number of responses in each class of the classic response-time table. The upper bounds are
    /// 256 us, 1, 4, 16, 64, 256 ms, 1, 4, 16 s; the last class has the longer ones.
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
    /// Voluntary and involuntary switches per operation, of all threads of the process and of a
    /// server's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches_per_op: Option<f64>,
    /// Counts of the processor, under `--profile` if there are counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts_per_op: Option<CountsPerOp>,
    /// CPU time by function, under `--profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Device read requests per operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_per_op: Option<f64>,
    /// KiB read per operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_read_per_op: Option<f64>,
    /// Device write requests per operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_per_op: Option<f64>,
    /// KiB written within the phase, per operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_written_per_op: Option<f64>,
    /// KiB written within the phase and within the settle phase that works off its backlog, per
    /// operation of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_written_per_op_settled: Option<f64>,
    /// KiB written within the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_written: Option<f64>,
    /// Bytes of keys and values that all clients wrote, background clients included, if the
    /// workload counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// Bytes of the rows in the database after a settle, if the workload counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<StoredBytes>,
    /// Results of the background clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundResult>,
    /// Source of the numbers of reads and writes: `device NAME` or `process`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_source: Option<String>,
    /// The process's own input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_io: Option<ProcessIo>,
    /// Sizes at the end of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<SizeBytes>,
    /// Resident memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<RssBytes>,
    /// Whole seconds with less than 10 % of the median throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_seconds: Option<f64>,
    /// Longest time in which no client completed an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_stall_ms: Option<f64>,
    /// Amplification factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amplification: Option<Amplification>,
    /// Intervals of one second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// The engine's counters at the end of the phase.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub engine_counters: BTreeMap<String, f64>,
    /// First errors, as the engine reports them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub error_samples: Vec<String>,
    /// Names of mandatory numbers that were not measured, in imported results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_measured: Vec<String>,
}

impl PhaseResult {
    /// Returns true if the mandatory number `name` was not measured.
    pub fn lacks(&self, name: &str) -> bool {
        self.not_measured.iter().any(|lacking| lacking == name)
    }

    /// Returns true if the phase did operations, or if their number is unknown.
    pub fn has_worked(&self) -> bool {
        self.operations > 0 || self.lacks("operations")
    }

    /// Returns the intervals without an incomplete last second.
    pub fn whole_seconds(&self) -> &[Interval] {
        let whole = (self.seconds.floor() as usize).min(self.intervals.len());
        &self.intervals[..whole]
    }

    /// Returns the operations of each whole second.
    pub fn ops_of_seconds(&self) -> Vec<u64> {
        self.whole_seconds().iter().map(|i| i.ops).collect()
    }

    /// Returns the name without a repeated step's `#n`.
    pub fn base_name(&self) -> &str {
        base_name(&self.name)
    }
}

/// Returns `request` for `request#2`.
pub fn base_name(phase: &str) -> &str {
    phase.split('#').next().unwrap_or(phase)
}

/// One second of a phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Number of the second in the phase, from 0.
    pub second: u64,
    /// Operations that ended in this second.
    pub ops: u64,
    /// Longest response among them.
    pub max_us: f64,
    /// Operations by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub op_counts: BTreeMap<String, u64>,
    /// Longest response by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub op_max_us: BTreeMap<String, f64>,
    /// Operations by response time: below 1 us, then classes of doubling width (1 to 2 us, 2 to 4
    /// us, ...).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_counts: Vec<u64>,
    /// Operations of background clients that ended in this second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_ops: Option<u64>,
    /// The same by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub background_op_counts: BTreeMap<String, u64>,
    /// Longest response of background clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_max_us: Option<f64>,
    /// CPU seconds of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Resident memory at the end of the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// KiB read, from the phase's [`PhaseResult::io_source`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_read: Option<f64>,
    /// KiB written, from the phase's [`PhaseResult::io_source`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_written: Option<f64>,
    /// Allocated bytes of the data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_bytes: Option<u64>,
    /// The engine's counters at the end of the second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub engine_counters: BTreeMap<String, f64>,
}
