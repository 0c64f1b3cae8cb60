//! Interface between a workload and the runner: phases made of clients that prepare and perform
//! operations.
//!
//! The runner owns threads, clocks, pacing, histograms and sampling; a workload owns the
//! operations. Only [`PhaseClient::execute`] is timed.

use std::time::Duration;

use crate::engine::{Durability, Engine, Schema};
use crate::error::EngineError;
use serde::{Deserialize, Serialize};

/// Index into [`Phase::operations`].
pub type OpIndex = usize;

/// Work done by one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows read or written.
    pub rows: u64,
    /// Number of times that the transaction was run again after a conflict.
    pub retries: u64,
    /// Bytes of keys and values that a caller wrote, if the workload counts them.
    pub written_bytes: u64,
}

/// One client of one phase, on a thread of its own.
pub trait PhaseClient: Send {
    /// Chooses the next operation and builds its arguments; not timed. `None`: this client has no
    /// more work.
    fn prepare(&mut self) -> Option<OpIndex>;

    /// Performs the prepared operation against the engine; timed by the runner.
    fn execute(&mut self) -> Result<Done, EngineError>;
}

/// End of a phase; it also ends when its clients run out of work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseEnd {
    /// Ends when its clients have no more work.
    Work,
    /// Ends after this many seconds.
    Seconds(f64),
    /// Ends after this many operations over all clients: the same work for every engine.
    Operations(u64),
}

/// Distribution of intended start times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Equal gaps.
    Even,
    /// Exponential gaps.
    Poisson,
    /// All operations of a second at its start, like the reference Insert Benchmark.
    Burst,
}

impl std::str::FromStr for Arrivals {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Arrivals, EngineError> {
        match text {
            "even" => Ok(Arrivals::Even),
            "poisson" => Ok(Arrivals::Poisson),
            "burst" => Ok(Arrivals::Burst),
            _ => Err(EngineError::Unsupported(format!(
                "arrivals must be even, poisson or burst, not '{text}'"
            ))),
        }
    }
}

/// The total rate of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Operations per second over all clients; positive.
    pub per_second: f64,
    /// Distribution of their start times.
    pub arrivals: Arrivals,
}

/// Background clients that run during a phase, at a rate of their own.
///
/// Their work is measured separately: their operations, response times and CPU are in no number of
/// the phase.
pub struct Background {
    /// Names of their operations, indexed by [`OpIndex`].
    pub operations: &'static [&'static str],
    /// Operations per second over all of them; positive.
    pub per_second: f64,
    /// True if all operations of a second start at its beginning, false if they are evenly spaced.
    pub burst: bool,
    /// Target rows per second, if the target is in rows; the phase is then measured against it.
    pub rows_per_second: Option<f64>,
    /// Minimum length of the phase in seconds, if the background clients end it: it then ends when
    /// they have no more work. `None`: they end with the phase.
    pub leads: Option<f64>,
    /// The clients, one thread each.
    pub clients: Vec<Box<dyn PhaseClient>>,
}

/// One step of a trial.
pub enum Step {
    /// Clients perform operations.
    Phase(Phase),
    /// The engine works off its backlog; the runner measures this as its phase `settle`,
    /// `settle#2`, ...
    Settle,
    /// The database is closed and opened again, outside all phases, so that everything the engine
    /// held in memory is gone. A workload that requests it keeps no stores or connections of its
    /// own.
    Reopen,
}

/// A step in which clients perform operations.
pub struct Phase {
    /// Name in results: `load`, `index`, `warmup`, `request`, `request#2`, ... (`settle` is the
    /// runner's own name).
    pub name: String,
    /// Names of the operations, indexed by [`OpIndex`].
    pub operations: &'static [&'static str],
    /// End of the phase.
    pub end: PhaseEnd,
    /// True if its operations are recorded (false for a warm-up).
    pub recorded: bool,
    /// True if the suite's `rate` and `arrivals` apply.
    pub paced: bool,
    /// The clients, one thread each.
    pub clients: Vec<Box<dyn PhaseClient>>,
    /// Background clients, measured separately.
    pub background: Option<Background>,
}

impl Phase {
    /// Creates a recorded phase that ends with the work of its clients.
    pub fn of_work(
        name: impl Into<String>,
        operations: &'static [&'static str],
        clients: Vec<Box<dyn PhaseClient>>,
    ) -> Phase {
        Phase {
            name: name.into(),
            operations,
            end: PhaseEnd::Work,
            recorded: true,
            paced: false,
            clients,
            background: None,
        }
    }
}

/// Returns steps with their names; the second step of a name ends in `#2`.
pub(crate) fn numbered<T: Clone + PartialEq + ToString>(steps: &[T]) -> Vec<(T, String)> {
    let name = |place: usize| {
        let step = &steps[place];
        let earlier = steps[..place].iter().filter(|other| *other == step).count();
        match earlier {
            0 => step.to_string(),
            n => format!("{}#{}", step.to_string(), n + 1),
        }
    };
    let all = steps.iter().enumerate();
    all.map(|(place, step)| (step.clone(), name(place)))
        .collect()
}

/// A configured workload. The runner opens the engine, then requests one step after another.
pub trait Workload: Send {
    /// Returns name and version, for example `linkbench` and 1. The version changes when the golden
    /// operations change.
    fn identity(&self) -> (&'static str, u32);

    /// Returns the tables that the engine must be opened with.
    fn schema(&self) -> Schema;

    /// Returns the durability class of the steps up to the next [`Step::Reopen`], if it differs
    /// from the trial's.
    fn durability(&self) -> Option<Durability> {
        None
    }

    /// Returns the number of clients and background clients that connect at once, if the setting
    /// `clients` does not determine it.
    fn connections(&self) -> Option<usize> {
        None
    }

    /// Returns a phase's own rate; a rate given for the suite overrides it.
    fn pace(&self, phase: &str) -> Option<Pace> {
        let _ = phase;
        None
    }

    /// Returns the names of the coming phases that a suite's rate applies to, in order. Empty if
    /// all phases have rates of their own or no rate.
    fn paced_phases(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the names of the coming phases, in order, for plans and progress.
    fn phase_names(&self) -> Vec<String>;

    /// Returns every effective setting as text, for the result.
    fn settings(&self) -> Vec<(String, String)>;

    /// Returns the size of the load as (rows, bytes), for progress and disk estimates.
    fn load_estimate(&self) -> (u64, u64);

    /// Returns the memory in bytes of the structures whose size depends on the rows, when all of it
    /// is in use.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Returns the bytes of keys and values that the database holds now; `None` if the workload
    /// does not count them.
    fn stored_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns about `bytes` bytes of keys and values, from rows spread over the whole load. The
    /// laboratory measures the compressibility of the data on them. Empty if the workload offers
    /// none.
    fn sample(&self, bytes: usize) -> Vec<u8> {
        let _ = bytes;
        Vec::new()
    }

    /// Returns the next step on this engine; `None` when all are done. The clients of the previous
    /// step have been dropped. The runner settles at the end, unless that was the last step.
    fn next_step(&mut self, engine: &dyn Engine) -> Result<Option<Step>, EngineError>;

    /// Returns the minimum length of a settle that was the last step, even if the backlog is worked
    /// off earlier. It is the wait of the reference: time in which an engine does its own
    /// background work without requests. It is part of that phase.
    fn settle_at_least(&self) -> Duration {
        Duration::ZERO
    }

    /// Checks row counts and invariants on the idle engine after all phases. `Ok` is a sentence for
    /// the report.
    fn verify(&self, engine: &dyn Engine) -> Result<String, EngineError>;
}
