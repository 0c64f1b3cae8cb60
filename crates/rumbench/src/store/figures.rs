//! What a phase took and cost, as parts of `result.json`: response times, CPU, I/O, sizes, memory, amplification.
//!
//! The names are a contract as those of `result`, which offers them all.

use serde::{Deserialize, Serialize};

/// Number of a structure whose numbers are known together, but for imported results: not a number there, and absent in JSON.
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

/// Latency of one operation type in microseconds. Of imported results some figures are unknown.
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
    /// Largest, exact.
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub max: f64,
}

/// CPU microseconds per operation. `total` is the sum of client, both engine parts and server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuPerOp {
    /// Sum of the next four.
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
    /// Every CPU of the machine, whoever used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<f64>,
    /// Cross-check of `engine_foreground`: thread CPU clocks around every 64th call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_foreground_sampled: Option<f64>,
}

/// Seconds of CPU in a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// The whole process, without the laboratory's sampler.
    pub process: f64,
    /// Client threads.
    pub client_threads: f64,
    /// User mode part of the client threads.
    pub client_threads_user: f64,
    /// Waiting for the next intended start, part of the client threads.
    pub waiting: f64,
    /// The threads of the background clients, in none of the others but `process`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub background_client: f64,
    /// The laboratory's sampler.
    pub sampler: f64,
    /// The processes of a server, in none of the others but `machine`; absent for embedded engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<f64>,
    /// Whether the engine is a server whose processes could not be seen, so that `server` is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub server_unseen: bool,
    /// All CPUs of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<f64>,
    /// In which the host of a virtual machine had given a CPU that was wanted to others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stolen: f64,
}

impl CpuSeconds {
    /// The laboratory with its engine, or with the processes of its server.
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
    /// Bytes that this process caused to be written, cancelled ones (truncated before writing) subtracted.
    pub write_bytes: u64,
    /// Read system calls.
    pub read_calls: u64,
    /// Write system calls.
    pub write_calls: u64,
}

impl ProcessIo {
    /// Both together.
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
    /// Files that hold data.
    pub data: u64,
    /// The whole directory, logs included.
    pub directory: u64,
    /// Largest `directory` seen during the phase.
    pub peak: u64,
}

/// Keys and values of the rows of a database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredBytes {
    /// As clients wrote them.
    pub raw: u64,
    /// As a dense codec would store them, from a sample of the load.
    pub compressed: u64,
}

/// Resident memory of the process.
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
    /// Bytes written per byte that the client wrote, where it is known what it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<f64>,
    /// The same with the bytes of the settle phase that pays the phase's debt.
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

/// On which functions the CPU time of a phase went, as far as samples tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Samples that were taken.
    pub samples: u64,
    /// Samples that the kernel could not store.
    #[serde(default)]
    pub lost: u64,
    /// The flame graph, in the folder of the result; beside it lie the stacks as text.
    pub graph: String,
    /// The functions that took most, by what they did themselves.
    pub functions: Vec<HotFunction>,
}

/// One function of a profile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HotFunction {
    /// Its name; of the kernel's functions with `_[k]`.
    pub name: String,
    /// Share of the samples in which it was running itself.
    pub own_share: f64,
    /// Share of the samples in which it was on the stack.
    pub share: f64,
}

/// Counts of the processor and of the kernel for one operation; of the engine, its server and the laboratory together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CountsPerOp {
    /// Instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
    /// Cycles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<f64>,
    /// Accesses that the last cache did not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_misses: Option<f64>,
    /// Loads whose page the processor had to look up in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlb_misses: Option<f64>,
    /// Branches that were guessed wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_misses: Option<f64>,
    /// Pages that the kernel had to bring, or give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_faults: Option<f64>,
}
