//! How a workload hands its work to the runner: phases made of clients that prepare and perform operations.
//!
//! The runner owns threads, clocks, pacing, histograms and sampling; a workload owns what is done. Only
//! [`PhaseClient::execute`] is timed.

use std::time::Duration;

use crate::engine::{Durability, Engine, EngineError, Schema};
use serde::{Deserialize, Serialize};

/// Index into [`Phase::operations`].
pub type OpIndex = usize;

/// What one operation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows read or written.
    pub rows: u64,
    /// Times that the transaction was run again after a conflict.
    pub retries: u64,
    /// Bytes of keys and values that a caller wrote, where the workload counts them.
    pub written_bytes: u64,
}

/// One client of one phase; lives on its own thread.
pub trait PhaseClient: Send {
    /// Chooses the next operation and builds its arguments; not timed. `None`: this client has no more to do.
    fn prepare(&mut self) -> Option<OpIndex>;

    /// Performs the prepared operation against the engine; timed by the runner.
    fn execute(&mut self) -> Result<Done, EngineError>;
}

/// When a phase ends, besides its clients running out of work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseEnd {
    /// When its clients have no more to do.
    Work,
    /// After this many seconds.
    Seconds(f64),
    /// After this many operations over all clients: the same work for every engine.
    Operations(u64),
}

/// How intended starts are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Equal gaps.
    Even,
    /// Exponential gaps.
    Poisson,
    /// A second's operations all at its start, as the reference Insert Benchmark does it.
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
    /// How they are spread.
    pub arrivals: Arrivals,
}

/// Clients that work beside those of a phase, at a rate of their own.
///
/// What they do is measured apart: their operations, response times and CPU are in no number of the phase.
pub struct Background {
    /// Names of their operations, indexed by [`OpIndex`].
    pub operations: &'static [&'static str],
    /// Operations per second over all of them; positive.
    pub per_second: f64,
    /// All operations of a second at its start, instead of evenly spaced.
    pub burst: bool,
    /// Rows per second that are asked for, where rows are what counts: the phase is then judged by them.
    pub rows_per_second: Option<f64>,
    /// The phase ends when they have no more to do, and not before so many seconds; `None`: they end with the phase.
    pub leads: Option<f64>,
    /// The clients, one thread each.
    pub clients: Vec<Box<dyn PhaseClient>>,
}

/// One step of a trial.
pub enum Step {
    /// Clients perform operations.
    Phase(Phase),
    /// The engine pays its debt; measured as a phase `settle`, `settle#2`, ... of the runner.
    Settle,
    /// The database is closed and opened again, which no phase measures: what the engine held in memory is gone.
    /// A workload that asks for it keeps no stores or connections of its own.
    Reopen,
}

/// A step in which clients perform operations.
pub struct Phase {
    /// Name in results: `load`, `index`, `warmup`, `request`, `request#2`, ... (`settle` is the runner's own name).
    pub name: String,
    /// Names of the operations, indexed by [`OpIndex`].
    pub operations: &'static [&'static str],
    /// When it ends.
    pub end: PhaseEnd,
    /// Whether its operations are recorded (a warm-up is not).
    pub recorded: bool,
    /// Whether the suite's `rate` and `arrivals` apply.
    pub paced: bool,
    /// The clients, one thread each.
    pub clients: Vec<Box<dyn PhaseClient>>,
    /// Clients that are measured apart.
    pub background: Option<Background>,
}

impl Phase {
    /// A recorded phase that ends with the work of its clients.
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

/// Steps with their names; the second of a name is `#2`.
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

/// A workload, configured. The runner opens the engine, then asks for one step after the other.
pub trait Workload: Send {
    /// Name and version, for example `linkbench` and 1: the version changes when the golden operations change.
    fn identity(&self) -> (&'static str, u32);

    /// The tables that the engine must be opened with.
    fn schema(&self) -> Schema;

    /// The durability class of what comes up to the next [`Step::Reopen`], where it is not the trial's.
    fn durability(&self) -> Option<Durability> {
        None
    }

    /// Clients and clients beside them that connect at once, where the setting `clients` does not tell.
    fn connections(&self) -> Option<usize> {
        None
    }

    /// A phase's own rate; a rate that is given for the suite takes its place.
    fn pace(&self, phase: &str) -> Option<Pace> {
        let _ = phase;
        None
    }

    /// Names of the phases that will come to which a rate given for the suite applies, in order; none where all phases have
    /// rates, or no rate, of their own.
    fn paced_phases(&self) -> Vec<String> {
        Vec::new()
    }

    /// Names of the phases that will come, in order, for plans and progress.
    fn phase_names(&self) -> Vec<String>;

    /// Every effective setting as text, for the result.
    fn settings(&self) -> Vec<(String, String)>;

    /// Rows that the load will write, for progress and disk estimates: (rows, bytes).
    fn load_estimate(&self) -> (u64, u64);

    /// Bytes of keys and values that the database holds at the moment; `None` where the workload does not count them.
    fn stored_bytes(&self) -> Option<u64> {
        None
    }

    /// Keys and values of rows of the load, chosen from all of it, about so many bytes of them: what a codec can make of
    /// the data is measured on it. Empty where the workload offers none.
    fn sample(&self, bytes: usize) -> Vec<u8> {
        let _ = bytes;
        Vec::new()
    }

    /// The next step on this engine; `None` when all are done. The clients of the step before have been dropped. The
    /// runner settles at the end, unless that was the last step.
    fn next_step(&mut self, engine: &dyn Engine) -> Result<Option<Step>, EngineError>;

    /// How long the settle that was the last step goes on at least, also where the debt is paid before: what the reference
    /// waits, in which an engine does what it does by itself while nobody asks for anything. It is part of that phase.
    fn settle_at_least(&self) -> Duration {
        Duration::ZERO
    }

    /// Checks row counts and invariants on the quiet engine after all phases. `Ok` is a sentence for the report.
    fn verify(&self, engine: &dyn Engine) -> Result<String, EngineError>;
}
