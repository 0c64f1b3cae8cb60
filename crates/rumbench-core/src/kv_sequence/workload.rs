//! kv-sequence as a workload of the laboratory: its steps, in order, and its checks.

use std::sync::Arc;

use super::client::{ROWS, SequenceClient, Table, columns, operations, wrong};
use super::config::{Config, WORKLOAD};
use super::steps::{self, Action, StepDef};
use super::stream::{Stream, WRITER};
use super::value::Values;
use crate::engine::{Durability, Engine, Schema};
use crate::error::EngineError;
use crate::random::Random;
use crate::tables::{Path, Range, TableConnection, TableSchema, TableStore};
use crate::trial::{Background, Phase, PhaseClient, Step, Workload};

/// Version of the workload; changes whenever the golden operations or the loaded rows change.
pub const VERSION: u32 = 1;
/// Number of rows that are read back after the load.
const SAMPLE_ROWS: u64 = 1000;
/// Key of the random generator of the sample.
const SAMPLE_KEY: u64 = 0x7361_6d70;

/// One step of a trial's list.
#[derive(Debug, Clone)]
struct Planned {
    step: &'static StepDef,
    /// Position among the steps of this name, from 1.
    occurrence: u64,
}

impl Planned {
    fn name(&self) -> String {
        match self.occurrence {
            1 => self.step.name.to_owned(),
            n => format!("{}#{n}", self.step.name),
        }
    }
}

/// Returns the schema of the table of keys and values.
pub fn schema() -> &'static TableSchema {
    TableSchema::key_value("rows")
}

/// A configured kv-sequence.
pub struct KvSequence {
    config: Config,
    schema: &'static TableSchema,
    table: Arc<Table>,
    plan: Vec<Planned>,
    /// Index of the next step in the plan.
    next: usize,
    /// True if the database was opened for that step.
    is_fresh: bool,
}

impl KvSequence {
    /// Creates a trial of this configuration. `backoff` is called before attempt number 2, 3, ...
    /// of a transaction.
    pub fn new(config: Config, backoff: fn(u32)) -> KvSequence {
        let values = Values::new(
            config.seed,
            config.key_bytes,
            config.value_bytes,
            config.compression_ratio,
        );
        KvSequence {
            schema: schema(),
            table: Arc::new(Table {
                values,
                keys: config.keys,
                seed: config.seed,
                backoff,
            }),
            plan: plan(&config.steps()),
            config,
            next: 0,
            is_fresh: true,
        }
    }

    /// Returns the effective configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn client(
        &self,
        store: &dyn TableStore,
        planned: &Planned,
        client: u64,
    ) -> Result<Box<dyn PhaseClient>, EngineError> {
        Ok(Box::new(SequenceClient::new(
            Stream::new(&self.config, planned.step, planned.occurrence, client),
            store.connect()?,
            Arc::clone(&self.table),
            store.keeps_rows(),
        )))
    }

    fn phase(&self, store: &dyn TableStore, planned: &Planned) -> Result<Phase, EngineError> {
        let step = planned.step;
        let count = if step.alone { 1 } else { self.config.clients };
        let clients = (0..u64::from(count)).map(|client| self.client(store, planned, client));
        let clients = clients.collect::<Result<_, EngineError>>()?;
        let background = if step.writer {
            Some(Background {
                operations: operations(Action::Put),
                per_second: self.config.writer_per_second(),
                burst: false,
                rows_per_second: None,
                leads: None,
                clients: vec![self.client(store, planned, WRITER)?],
            })
        } else {
            None
        };
        Ok(Phase {
            name: planned.name(),
            operations: operations(step.action),
            end: self.config.end_of(step),
            recorded: true,
            paced: step.action != Action::Load,
            clients,
            background,
        })
    }

    /// Returns true if the database must be reopened before the next step. A settle works off the
    /// backlog of the step before it, and so belongs to that step.
    fn must_reopen(&self) -> bool {
        let follows = self.plan.get(self.next);
        let starts = follows.is_some_and(|planned| planned.step.action != Action::Settle);
        let unlogged = self.next == 1 && !self.config.load_logged;
        !self.is_fresh && (unlogged || self.config.reopen && starts)
    }

    /// Reads back the first, the last and random rows of a load.
    fn check_sample(&self, connection: &mut dyn TableConnection) -> Result<(), EngineError> {
        let mut random = Random::keyed(self.config.seed, &[SAMPLE_KEY]);
        let some = (0..SAMPLE_ROWS).map(|_| random.below(self.config.keys));
        for number in [0, self.config.keys - 1].into_iter().chain(some) {
            self.table.check(connection, number)?;
        }
        Ok(())
    }

    /// Reads the whole table: every row once, in order, with a value that was written for it.
    fn check_all(&self, connection: &mut dyn TableConnection) -> Result<(), EngineError> {
        let (mut next, mut good) = (0, true);
        let values = &self.table.values;
        connection.scan(ROWS, Path::Primary, Range::ALL, &mut |row| {
            let (key, value) = columns(row);
            good = values.is_key(next, key) && values.is_value(next, value);
            next += u64::from(good);
            good
        })?;
        let keys = self.config.keys;
        if !good {
            return Err(wrong(format!(
                "where row {next} of {keys} must be is another key or a value that was never written for it"
            )));
        }
        if next != keys {
            return Err(wrong(format!("the table ends after {next} of {keys} rows")));
        }
        Ok(())
    }
}

/// Returns the steps with their occurrences. A step that settles is followed by a settle, unless
/// the list already has one there.
fn plan(wanted: &[&'static StepDef]) -> Vec<Planned> {
    let mut plan: Vec<Planned> = Vec::new();
    let mut add = |step: &'static StepDef| {
        let earlier = plan.iter().filter(|planned| planned.step == step).count();
        plan.push(Planned {
            step,
            occurrence: earlier as u64 + 1,
        });
    };
    let mut wanted = wanted.iter().peekable();
    while let Some(step) = wanted.next() {
        add(step);
        let settled = wanted
            .peek()
            .is_some_and(|next| next.action == Action::Settle);
        if let Some(settle) = steps::find("settle").filter(|_| step.settles && !settled) {
            add(settle);
        }
    }
    plan
}

impl Workload for KvSequence {
    fn identity(&self) -> (&'static str, u32) {
        (WORKLOAD, VERSION)
    }

    fn schema(&self) -> Schema {
        Schema::Tables(self.schema)
    }

    fn paced_phases(&self) -> Vec<String> {
        let paced =
            |planned: &&Planned| !matches!(planned.step.action, Action::Load | Action::Settle);
        let all = self.plan.iter().filter(paced);
        all.map(Planned::name).collect()
    }

    fn phase_names(&self) -> Vec<String> {
        self.plan.iter().map(Planned::name).collect()
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.config.settings()
    }

    fn load_estimate(&self) -> (u64, u64) {
        let keys = self.config.keys;
        (keys, keys.saturating_mul(self.config.row_bytes()))
    }

    fn durability(&self) -> Option<Durability> {
        let loads = self.next == 0;
        (loads && !self.config.load_logged).then_some(Durability::None)
    }

    fn next_step(&mut self, engine: &dyn Engine) -> Result<Option<Step>, EngineError> {
        let store = engine.table_store(self.schema)?;
        // The load is the first step. Its sample is read before a reopening, so that the cache is
        // cold afterwards.
        if self.next == 1 && !self.is_fresh && store.keeps_rows() {
            self.check_sample(&mut *store.connect()?)?;
        }
        if self.must_reopen() {
            self.is_fresh = true;
            return Ok(Some(Step::Reopen));
        }
        let Some(planned) = self.plan.get(self.next).cloned() else {
            return Ok(None);
        };
        self.next += 1;
        self.is_fresh = false;
        match planned.step.action {
            Action::Settle => Ok(Some(Step::Settle)),
            _ => self
                .phase(&*store, &planned)
                .map(|phase| Some(Step::Phase(phase))),
        }
    }

    fn verify(&self, engine: &dyn Engine) -> Result<String, EngineError> {
        let store = engine.table_store(self.schema)?;
        if !store.keeps_rows() {
            return Ok("not checked: this engine keeps no rows".to_owned());
        }
        self.check_all(&mut *store.connect()?)?;
        Ok(format!(
            "{} rows in order, each with its own key and a value that was written for it",
            self.config.keys
        ))
    }
}
