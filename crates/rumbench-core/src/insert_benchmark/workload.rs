//! The Insert Benchmark as a workload of the laboratory: its steps, in order, and its checks.

use std::sync::Arc;
use std::time::Duration;

use super::config::{Config, Spread, WORKLOAD};
use super::coupling::{LEAD, Side, couple};
use super::queue::{Queue, Shared, wrong};
use super::reader::{POINT_OPERATIONS, PointReader, RANGE_OPERATIONS, RangeReader};
use super::rows::{Rows, schema};
use super::steps::{Action, Step as StepDef, Writes};
use super::stream::{Queries, Statements};
use super::writer::{
    Builder, Deleter, INDEX_OPERATIONS, Inserter, LOAD_OPERATIONS, WRITE_OPERATIONS,
};
use crate::engine::{Engine, Schema};
use crate::error::EngineError;
use crate::tables::{RowBatch, TableStore};
use crate::trial::{Background, Phase, PhaseClient, PhaseEnd, Step, Workload, numbered};

/// Version of the workload; changes whenever the golden operations or the loaded rows change.
pub const VERSION: u32 = 1;

/// The Insert Benchmark workload of one configuration.
pub struct InsertBenchmark {
    shared: Arc<Shared>,
    /// Steps with their names.
    plan: Vec<(StepDef, String)>,
    /// Place of the next step in the plan.
    next: usize,
    /// Rows of each table before the current step.
    kept: Vec<u64>,
}

type Clients = Result<Vec<Box<dyn PhaseClient>>, EngineError>;

impl InsertBenchmark {
    /// Prepares a trial of this configuration. `backoff` is called before attempt number 2, 3, ...
    /// of a transaction.
    ///
    /// # Errors
    /// Returns [`EngineError::Unsupported`] if the configuration has no valid schema.
    pub fn new(config: Config, backoff: fn(u32)) -> Result<InsertBenchmark, EngineError> {
        let alone = config.clients == config.tables();
        let queues = (0..config.tables()).map(|table| Queue::new(table as usize, alone));
        let schema = schema(&config).map_err(EngineError::Unsupported)?;
        Ok(InsertBenchmark {
            plan: numbered(&config.steps()),
            shared: Arc::new(Shared {
                schema,
                rows: Rows::new(&config),
                queues: queues.collect(),
                config,
                backoff,
            }),
            next: 0,
            kept: Vec::new(),
        })
    }

    /// Returns the effective configuration.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    fn clients(&self) -> usize {
        self.config().clients as usize
    }

    /// Returns the table of a client.
    fn queue_of(&self, client: usize) -> usize {
        client % self.shared.queues.len()
    }

    /// Returns a client's share of the rows of its table.
    fn share(&self, rows: u64, client: usize) -> u64 {
        let queues = self.shared.queues.len();
        let (sharers, place) = ((self.clients() / queues) as u64, (client / queues) as u64);
        rows / sharers + u64::from(place < rows % sharers)
    }

    fn inserter(
        &self,
        store: &dyn TableStore,
        client: usize,
        statements: Statements,
        side: Option<Side>,
    ) -> Result<Box<dyn PhaseClient>, EngineError> {
        Ok(Box::new(Inserter::new(
            Arc::clone(&self.shared),
            self.queue_of(client),
            store.connect()?,
            statements,
            side,
        )))
    }

    /// Creates the coupled insert and delete clients.
    fn writers(
        &self,
        store: &dyn TableStore,
        batch: u64,
        rows_of: impl Fn(usize) -> u64,
    ) -> Clients {
        let sharers = (self.clients() / self.shared.queues.len()) as u64;
        let mut clients: Vec<Box<dyn PhaseClient>> = Vec::new();
        for client in 0..self.clients() {
            // Deletes may be ahead by at most the loaded rows.
            let there = self.config().rows / (batch * sharers);
            let (inserts, deletes) = couple(there.min(LEAD));
            let statements = Statements::new(rows_of(client), batch);
            clients.push(self.inserter(store, client, statements.clone(), Some(inserts))?);
            clients.push(Box::new(Deleter {
                shared: Arc::clone(&self.shared),
                queue: self.queue_of(client),
                connection: store.connect()?,
                statements,
                side: deletes,
                judges: store.keeps_rows(),
                since_lowest: None,
                rows: 0,
                reads_lowest: false,
            }));
        }
        Ok(clients)
    }

    fn load_phase(&self, store: &dyn TableStore) -> Result<Phase, EngineError> {
        for queue in &self.shared.queues {
            self.shared.check_empty(&mut *store.connect()?, queue)?;
            if self.config().indexes_at_start() {
                for index in 0..self.config().indexes {
                    store.build_index(queue.table, index)?;
                }
            }
        }
        let (rows, batch) = (self.config().rows, self.config().load_batch);
        let clients = (0..self.clients()).map(|client| {
            let statements = Statements::new(self.share(rows, client), batch);
            self.inserter(store, client, statements, None)
        });
        Ok(Phase::of_work(
            "",
            LOAD_OPERATIONS,
            clients.collect::<Clients>()?,
        ))
    }

    fn index_phase(&self, store: &Arc<dyn TableStore>) -> Phase {
        let clients = (0..self.shared.queues.len()).map(|queue| {
            Box::new(Builder {
                shared: Arc::clone(&self.shared),
                queue,
                store: Arc::clone(store),
                next: None,
            }) as Box<dyn PhaseClient>
        });
        Phase::of_work("", INDEX_OPERATIONS, clients.collect())
    }

    fn write_phase(&self, store: &dyn TableStore, writes: Writes) -> Result<Phase, EngineError> {
        let rows = self.config().rows_of(writes);
        let batch = self.config().batch_of(writes);
        let clients = self.writers(store, batch, |client| self.share(rows, client))?;
        Ok(Phase::of_work("", WRITE_OPERATIONS, clients))
    }

    /// Builds a phase of queries with background inserts and deletes. If the end is given in
    /// seconds, the phase ends with its inserts, so every engine does the same work.
    fn query_phase(
        &self,
        store: &dyn TableStore,
        rate: u64,
        operations: &'static [&'static str],
        readers: Vec<Box<dyn PhaseClient>>,
    ) -> Result<Phase, EngineError> {
        let config = self.config();
        let batch = config.background_batch(rate);
        let (rows, leads, end) = match config.end {
            PhaseEnd::Seconds(seconds) => {
                let rows = (rate as f64 * seconds).round().max(1.0) as u64;
                (rows, Some(seconds), PhaseEnd::Work)
            }
            end => (u64::MAX, None, end),
        };
        let rows_per_second = (rate * self.clients() as u64) as f64;
        Ok(Phase {
            end,
            background: Some(Background {
                operations: WRITE_OPERATIONS,
                // One insert and one delete per batch.
                per_second: 2.0 * rows_per_second / batch as f64,
                burst: config.spread == Spread::Burst,
                rows_per_second: Some(rows_per_second),
                leads,
                clients: self.writers(store, batch, |_| rows)?,
            }),
            ..Phase::of_work("", operations, readers)
        })
    }

    fn readers(
        &self,
        place: usize,
        reader: impl Fn(usize, Queries) -> Result<Box<dyn PhaseClient>, EngineError>,
    ) -> Clients {
        let config = self.config();
        let schema = self.shared.schema;
        let clients = (0..self.clients()).map(|client| {
            let table = schema.table(self.shared.queues[self.queue_of(client)].table);
            let indexes = 0..table.indexes.len();
            let first = indexes.filter_map(|index| table.index_columns(index).next());
            let queries = Queries::new(config, first.collect(), place as u64, client as u64);
            reader(client, queries)
        });
        clients.collect()
    }

    /// Builds the phase of the step at this place of the plan.
    fn phase_of(
        &self,
        store: &Arc<dyn TableStore>,
        place: usize,
        step: StepDef,
    ) -> Result<Phase, EngineError> {
        let (shared, judges) = (&self.shared, store.keeps_rows());
        match step.0 {
            Action::Load | Action::Settle => self.load_phase(&**store),
            Action::Index => Ok(self.index_phase(store)),
            Action::Write(writes) => self.write_phase(&**store, writes),
            Action::Ranges(rate) => {
                let readers = self.readers(place, |client, queries| {
                    Ok(Box::new(RangeReader {
                        shared: Arc::clone(shared),
                        queue: self.queue_of(client),
                        connection: store.connect()?,
                        queries,
                        judges,
                        next: (0, 0),
                    }))
                })?;
                self.query_phase(&**store, rate, RANGE_OPERATIONS, readers)
            }
            Action::Points(rate) => {
                let readers = self.readers(place, |client, queries| {
                    Ok(Box::new(PointReader {
                        shared: Arc::clone(shared),
                        queue: self.queue_of(client),
                        connection: store.connect()?,
                        queries,
                        judges,
                        ids: Vec::new(),
                        keys: RowBatch::new(1),
                    }))
                })?;
                self.query_phase(&**store, rate, POINT_OPERATIONS, readers)
            }
        }
    }

    /// Checks the tables after a step: rows and contents after loads, as many deletes as inserts
    /// after writes.
    fn check_after(&self, store: &dyn TableStore, step: StepDef) -> Result<(), EngineError> {
        if !store.keeps_rows() || !matches!(step.0, Action::Load | Action::Index | Action::Write(_))
        {
            return Ok(());
        }
        for (queue, before) in self.shared.queues.iter().zip(&self.kept) {
            self.shared.check_counts(&mut *store.connect()?, queue)?;
            let kept = queue.kept();
            if matches!(step.0, Action::Write(_)) && kept != *before {
                return Err(wrong(format!(
                    "table {} held {before} rows before {step} and {kept} after it: deletes are not equal to inserts",
                    self.shared.name(queue)
                )));
            }
        }
        Ok(())
    }
}

impl Workload for InsertBenchmark {
    fn identity(&self) -> (&'static str, u32) {
        (WORKLOAD, VERSION)
    }

    fn schema(&self) -> Schema {
        Schema::Tables(self.shared.schema)
    }

    fn phase_names(&self) -> Vec<String> {
        self.plan.iter().map(|(_, name)| name.clone()).collect()
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.config().settings()
    }

    fn load_estimate(&self) -> (u64, u64) {
        let config = self.config();
        let rows = config.rows.saturating_mul(u64::from(config.tables()));
        (rows, rows.saturating_mul(config.row_bytes()))
    }

    fn next_step(&mut self, engine: &dyn Engine) -> Result<Option<Step>, EngineError> {
        let store = engine.table_store(self.shared.schema)?;
        if let Some((before, _)) = self.next.checked_sub(1).map(|place| &self.plan[place]) {
            self.check_after(&*store, *before)?;
        }
        let Some((step, name)) = self.plan.get(self.next).cloned() else {
            return Ok(None);
        };
        let place = self.next;
        self.next += 1;
        self.kept = self.shared.queues.iter().map(Queue::kept).collect();
        if step.0 == Action::Settle {
            return Ok(Some(Step::Settle));
        }
        let phase = self.phase_of(&store, place, step)?;
        Ok(Some(Step::Phase(Phase { name, ..phase })))
    }

    fn settle_at_least(&self) -> Duration {
        // The reference does not wait at the end.
        if self.next < self.plan.len() {
            self.shared.config.settle_at_least()
        } else {
            Duration::ZERO
        }
    }

    fn verify(&self, engine: &dyn Engine) -> Result<String, EngineError> {
        let store = engine.table_store(self.shared.schema)?;
        if !store.keeps_rows() {
            return Ok("not checked: this engine keeps no rows".to_owned());
        }
        let (mut rows, mut deletes, mut indexes) = (0, 0, 0);
        for queue in &self.shared.queues {
            let mut connection = store.connect()?;
            rows += self.shared.check_all(&mut *connection, queue)?;
            deletes += queue.totals().1;
            indexes = connection.check(queue.table)?;
        }
        let tables = self.shared.queues.len();
        Ok(format!(
            "{rows} rows in {tables} tables, in order and each as its id makes it, after {deletes} deletes of the oldest; \
             the entries of {indexes} indexes a table are equal to the rows"
        ))
    }
}
