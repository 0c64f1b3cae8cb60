//! Messages between the laboratory and the child process of a trial: JSON, one object per line.
//!
//! The specification is the first line on the child's stdin. A later line `stop` asks it to end its
//! phase. The end of stdin means that the laboratory died; the child then exits at once, so that no
//! trial outlives its laboratory.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rumbench_core::engine::{Durability, EngineFacts};
use serde::{Deserialize, Serialize};

use super::pacing::Rate;
use super::placement::Placement;
use super::plan::Turnover;
use crate::store::result::{Interval, PhaseResult, engine_name};

/// Version of the messages between laboratory and trial, for trials in other builds. Raised when a
/// change of [`TrialSpec`] or [`Event`] could cause one side to misunderstand the other.
pub const PROTOCOL: u32 = 1;

/// Complete specification of one trial: the child needs nothing else.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialSpec {
    /// Engine name.
    pub engine: String,
    /// Variant of the engine. None: the default.
    pub variant: Option<String>,
    /// Workload name.
    pub workload: String,
    /// Settings of the workload.
    pub settings: BTreeMap<String, String>,
    /// Settings of this engine.
    pub engine_settings: BTreeMap<String, String>,
    /// Seed of data, operations and arrivals.
    pub seed: u64,
    /// Durability of every commit.
    pub durability: Durability,
    /// Number of clients that will connect.
    pub clients: usize,
    /// Size of the engine's own cache in bytes.
    pub cache_bytes: u64,
    /// Rate of paced phases. None: the workload's own pace, or a closed loop.
    pub rate: Option<Rate>,
    /// End of the trial, if it ages a database.
    #[serde(default)]
    pub turnover: Option<Turnover>,
    /// Cores of clients and engine.
    #[serde(default)]
    pub placement: Placement,
    /// True if the processor's counters are read.
    #[serde(default)]
    pub profile: bool,
    /// Seconds without a completed request after which the trial is ended. None: no limit.
    #[serde(default)]
    pub stuck_after_s: Option<u64>,
    /// Existing, empty data directory.
    pub directory: PathBuf,
}

impl TrialSpec {
    /// Returns `engine` or `engine:variant`.
    pub fn engine_name(&self) -> String {
        engine_name(&self.engine, self.variant.as_deref(), None)
    }
}

/// Report of a trial's child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The engine is open.
    Opened {
        /// Version, configuration and durability.
        facts: EngineFacts,
        /// Workload settings in effect.
        workload: BTreeMap<String, String>,
        /// Version of the golden operations.
        workload_version: u32,
        /// Estimated bytes that the load will write.
        load_bytes: u64,
        /// Estimated rows that the load will write.
        load_rows: u64,
        /// Names of the upcoming phases.
        phases: Vec<String>,
    },
    /// A phase began.
    PhaseStarted {
        /// Name of the phase.
        name: String,
        /// Duration in seconds, if known.
        seconds: Option<f64>,
        /// Number of operations, if known.
        operations: Option<u64>,
    },
    /// Progress of the current phase, about once a second.
    Progress {
        /// Seconds since the phase began.
        seconds: f64,
        /// Operations so far.
        operations: u64,
        /// Remaining work of a settle, in the engine's words.
        note: String,
        /// Intervals that became complete.
        intervals: Vec<Interval>,
    },
    /// A phase ended.
    Phase {
        /// Measurements of the phase, all intervals included.
        result: Box<PhaseResult>,
    },
    /// A mark for the trial.
    Mark {
        /// Name, with details in parentheses.
        mark: String,
    },
    /// The measurements are complete; the final check begins.
    Measured,
    /// The final check passed.
    Verified {
        /// Result of the check, as a sentence.
        sentence: String,
    },
    /// The trial ended. It is the last event.
    Finished {
        /// Reason of the failure, if the trial failed.
        error: Option<String>,
    },
}

/// Writes events to the child's stdout.
pub struct Emitter {
    /// Guards the stream, so that lines of the sampler and of the main thread do not mix.
    out: Mutex<Box<dyn Write + Send>>,
}

impl Emitter {
    /// Returns an emitter that writes to `out`.
    pub fn new(out: Box<dyn Write + Send>) -> Emitter {
        Emitter {
            out: Mutex::new(out),
        }
    }

    /// Writes one event. Errors are ignored: a laboratory that has stopped reading has also closed
    /// stdin, and the end of stdin ends the child.
    pub fn emit(&self, event: &Event) {
        let Ok(mut line) = serde_json::to_vec(event) else {
            return;
        };
        line.push(b'\n');
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}
