//! Figures of a phase, as parts of `result.json`: response times, CPU, I/O, sizes, memory,
//! amplification.
//!
//! The names are a contract, like those of `result`, which reexports them all.

use serde::{Deserialize, Serialize};

/// Returns the value of unknown numbers in structures that normally know all of theirs. Only
/// imported results have them; NaN here, absent in JSON.
fn unknown() -> f64 {
    f64::NAN
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_unknown(number: &f64) -> bool {
    number.is_nan()
}

/// Latency of one operation type in microseconds. Some figures of imported results are unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Operations recorded.
    pub count: u64,
    /// Arithmetic mean.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub mean: f64,
    /// Percentile 50.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub p50: f64,
    /// Percentile 95.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub p95: f64,
    /// Percentile 99.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub p99: f64,
    /// Percentile 99.9.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub p999: f64,
    /// Percentile 99.99.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub p9999: f64,
    /// Maximum, exact.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub max: f64,
}

/// Upper bounds of the response-time buckets of the reference Insert Benchmark in microseconds,
/// inclusive. Longer responses have a bucket of their own.
pub const BUCKET_BOUNDS_US: [u64; 9] = [
    256, 1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000,
];

/// Number of responses in each bucket.
pub type Buckets = [u64; BUCKET_BOUNDS_US.len() + 1];

/// CPU microseconds per operation. `total` is the sum of client, both engine parts and server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuPerOp {
    /// Sum of `client`, `engine_foreground`, `engine_background` and `server`.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub total: f64,
    /// The laboratory's own part of the client threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<f64>,
    /// User mode part of `client`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_user: Option<f64>,
    /// The engine's part of the client threads. Without calibration it includes the client.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub engine_foreground: f64,
    /// The engine's own threads.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub engine_background: f64,
    /// Server processes; absent for embedded engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<f64>,
    /// All CPUs of the machine, for any process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<f64>,
    /// Cross-check of `engine_foreground`: thread CPU clocks around every 64th call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_foreground_sampled: Option<f64>,
}

/// CPU seconds in a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// Whole process, without the laboratory's sampler.
    pub process: f64,
    /// Client threads.
    pub client_threads: f64,
    /// User mode part of the client threads.
    pub client_threads_user: f64,
    /// Part of the client threads spent waiting for the next intended start.
    pub waiting: f64,
    /// Threads of the background clients; included only in `process`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub background_client: f64,
    /// The laboratory's sampler.
    pub sampler: f64,
    /// Processes of a server; included only in `machine`. Absent for embedded engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<f64>,
    /// True if the processes of a server engine are not visible, so that `server` is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub server_unseen: bool,
    /// All CPUs of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<f64>,
    /// Seconds in which the host of a virtual machine gave a requested CPU to others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stolen: f64,
}

impl CpuSeconds {
    /// Returns the sum of the laboratory with its engine and the processes of its server.
    pub fn all(&self) -> f64 {
        self.process + self.server.unwrap_or(0.0)
    }
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

/// Input and output as the kernel counts it for the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessIo {
    /// Bytes fetched from the device for this process.
    pub read_bytes: u64,
    /// Bytes that this process caused to be written, minus those truncated before writing.
    pub write_bytes: u64,
    /// Read system calls.
    pub read_calls: u64,
    /// Write system calls.
    pub write_calls: u64,
}

impl ProcessIo {
    /// Returns the sum of both.
    pub fn and(self, other: ProcessIo) -> ProcessIo {
        ProcessIo {
            read_bytes: self.read_bytes + other.read_bytes,
            write_bytes: self.write_bytes + other.write_bytes,
            read_calls: self.read_calls + other.read_calls,
            write_calls: self.write_calls + other.write_calls,
        }
    }
}

/// Allocated bytes of the data directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeBytes {
    /// Data files.
    pub data: u64,
    /// The whole directory, logs included.
    pub directory: u64,
    /// Largest `directory` seen during the phase.
    pub peak: u64,
}

/// Bytes of keys and values of all rows of a database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredBytes {
    /// As clients wrote them.
    pub raw: u64,
    /// As a dense codec would store them, from a sample of the load.
    pub compressed: u64,
}

/// Resident memory of the process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RssBytes {
    /// Largest resident set seen.
    pub peak: u64,
    /// Its anonymous part at the end of the phase: heap and stacks, no mapped files.
    pub anonymous: u64,
}

/// Amplification factors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Amplification {
    /// Bytes written per byte that the client wrote, if its number is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<f64>,
    /// The same, plus the bytes written in the following settle phase, which completes the phase's
    /// backlog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_settled: Option<f64>,
    /// Device reads per operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<f64>,
    /// Data bytes per byte that the client loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<f64>,
    /// Data bytes per byte of the compressed rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_compressed: Option<f64>,
}

/// CPU time of a phase by function, from samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Number of samples.
    pub samples: u64,
    /// Number of samples that the kernel could not store.
    #[serde(default)]
    pub lost: u64,
    /// Flame graph, relative to the result folder; the stacks as text are next to it.
    pub graph: String,
    /// Functions with the most samples of their own.
    pub functions: Vec<HotFunction>,
}

/// One function of a profile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HotFunction {
    /// Function name; kernel functions end with `_[k]`.
    pub name: String,
    /// Share of the samples in which the function itself was running.
    pub own_share: f64,
    /// Share of the samples in which the function was on the stack.
    pub share: f64,
}

/// Processor and kernel counts per operation, for the engine, its server and the laboratory
/// together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CountsPerOp {
    /// Instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
    /// Cycles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<f64>,
    /// Misses of the last-level cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_misses: Option<f64>,
    /// Loads that missed the TLB: the processor had to look up their page in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlb_misses: Option<f64>,
    /// Mispredicted branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_misses: Option<f64>,
    /// Pages that the kernel had to read or allocate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_faults: Option<f64>,
}
