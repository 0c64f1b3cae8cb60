//! What the laboratory says to the child process of a trial and what the child answers: JSON, one object a line.
//!
//! The specification is the first line on the child's stdin. A later line `stop` asks it to end its phase; the end of stdin means
//! that the laboratory died, and the child exits at once, so that no trial outlives its laboratory.

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

/// Version of what laboratory and trial say to each other, for trials in other builds: raised when [`TrialSpec`] or [`Event`] change
/// so that one side would misunderstand the other.
pub const PROTOCOL: u32 = 1;

/// One trial, complete: the child needs nothing else.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialSpec {
    /// Engine name.
    pub engine: String,
    /// Variant.
    pub variant: Option<String>,
    /// Workload name.
    pub workload: String,
    /// Settings of the workload.
    pub settings: BTreeMap<String, String>,
    /// Settings of this engine.
    pub engine_settings: BTreeMap<String, String>,
    /// Seed of data, operations and arrivals.
    pub seed: u64,
    /// Class of every commit.
    pub durability: Durability,
    /// Clients that will connect.
    pub clients: usize,
    /// The engine's own cache.
    pub cache_bytes: u64,
    /// Rate of paced phases.
    pub rate: Option<Rate>,
    /// When to end, where the trial ages a database.
    #[serde(default)]
    pub turnover: Option<Turnover>,
    /// On which cores clients and engine run.
    #[serde(default)]
    pub placement: Placement,
    /// Whether the processor's counters are read.
    #[serde(default)]
    pub profile: bool,
    /// Without an end of any request for so many seconds the trial is ended.
    #[serde(default)]
    pub stuck_after_s: Option<u64>,
    /// Existing, empty data directory.
    pub directory: PathBuf,
}

impl TrialSpec {
    /// `engine` or `engine:variant`.
    pub fn engine_name(&self) -> String {
        engine_name(&self.engine, self.variant.as_deref(), None)
    }
}

/// What a trial's child process reports.
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
        /// Bytes that the load will write, estimated.
        load_bytes: u64,
        /// Rows that the load will write, estimated.
        load_rows: u64,
        /// Names of the phases that will come.
        phases: Vec<String>,
    },
    /// A phase began.
    PhaseStarted {
        /// Its name.
        name: String,
        /// Seconds it will take, when that is known.
        seconds: Option<f64>,
        /// Operations it will take, when that is known.
        operations: Option<u64>,
    },
    /// About once a second.
    Progress {
        /// Seconds since the phase began.
        seconds: f64,
        /// Operations so far.
        operations: u64,
        /// What settling still has to do, in the engine's words.
        note: String,
        /// Intervals that became complete.
        intervals: Vec<Interval>,
    },
    /// A phase ended.
    Phase {
        /// What it measured, all intervals included.
        result: Box<PhaseResult>,
    },
    /// A mark for the trial.
    Mark {
        /// Name, with details in parentheses.
        mark: String,
    },
    /// Nothing more is measured; the final check begins.
    Measured,
    /// The final check passed.
    Verified {
        /// What was found.
        sentence: String,
    },
    /// The trial ended. Nothing comes after it.
    Finished {
        /// Why it failed, if it did.
        error: Option<String>,
    },
}

/// Writes events to the child's stdout.
pub struct Emitter {
    /// Guards the stream, so that lines of the sampler and of the main thread do not mix.
    out: Mutex<Box<dyn Write + Send>>,
}

impl Emitter {
    /// Writes to any stream.
    pub fn new(out: Box<dyn Write + Send>) -> Emitter {
        Emitter {
            out: Mutex::new(out),
        }
    }

    /// Writes one event. A laboratory that no longer listens also closed stdin, which ends the child; so errors are ignored.
    pub fn emit(&self, event: &Event) {
        let Ok(mut line) = serde_json::to_vec(event) else {
            return;
        };
        line.push(b'\n');
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}
