//! OLTP ranges as a workload of the laboratory: its steps, in order, and its checks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::client::{OPERATIONS, OltpClient};
use super::config::{Config, WORKLOAD};
use super::events::Events;
use super::load::{Builder, INDEX_OPERATIONS, LOAD_OPERATIONS, Loader};
use super::rows::{ROW_BYTES, schema};
use super::state::{Shared, TableState, wrong};
use super::tests::{Group, Step as StepDef, TestDef};
use crate::engine::{Engine, Schema};
use crate::error::EngineError;
use crate::random::Random;
use crate::tables::{
    Path, Range, RowBatch, TableConnection, TableId, TableStore, Value, refuse_rows,
};
use crate::trial::{Phase, PhaseClient, Step, Workload, numbered};

/// Version of the workload; changes whenever the golden events, the loaded rows or the SQL
/// statements change.
pub const VERSION: u32 = 4;
/// Number of rows of each table that are read back after the load.
const SAMPLE_ROWS: u64 = 1000;
/// Key of the random generator of the sample.
const SAMPLE_KEY: u64 = 0x7361_6d70;
/// Bytes of an index entry: k and the id.
const ENTRY_BYTES: u64 = 4 + 8;

/// The OLTP-range workload of one configuration.
pub struct OltpRange {
    shared: Arc<Shared>,
    /// Steps with their names.
    plan: Vec<(StepDef, String)>,
    /// Place of the next step in the plan.
    next: usize,
}

type Clients = Result<Vec<Box<dyn PhaseClient>>, EngineError>;

impl OltpRange {
    /// Prepares a trial of this configuration. `backoff` is called before attempt number 2, 3, ...
    /// of a transaction.
    ///
    /// # Errors
    /// Returns [`EngineError::Unsupported`] if the configuration has no valid schema.
    pub fn new(config: Config, backoff: fn(u32)) -> Result<OltpRange, EngineError> {
        let schema = schema(&config).map_err(EngineError::Unsupported)?;
        Ok(OltpRange {
            plan: numbered(&config.steps()),
            shared: Arc::new(Shared::new(config, schema, backoff)),
            next: 0,
        })
    }

    fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the number of clients that load: at most one per table.
    fn loaders(&self) -> usize {
        self.config().clients.min(self.config().tables) as usize
    }

    fn load(&self, store: &dyn TableStore) -> Clients {
        for table in 0..self.shared.tables.len() {
            refuse_rows(&mut *store.connect()?, self.shared.schema, TableId(table))?;
        }
        let loaders = self.loaders();
        let loader = |client| {
            let loader = Loader::new(Arc::clone(&self.shared), store.connect()?, client, loaders);
            Ok(Box::new(loader) as Box<dyn PhaseClient>)
        };
        (0..loaders).map(loader).collect()
    }

    fn builders(&self, store: &Arc<dyn TableStore>) -> Vec<Box<dyn PhaseClient>> {
        let stride = self.loaders();
        let builder = |table| {
            Box::new(Builder {
                shared: Arc::clone(&self.shared),
                store: Arc::clone(store),
                table,
                stride,
            }) as Box<dyn PhaseClient>
        };
        (0..stride).map(builder).collect()
    }

    fn testers(&self, store: &dyn TableStore, place: u64, test: &TestDef, range: u64) -> Clients {
        let writes = test.group == Group::Writes;
        let tester = |client: u32| {
            let number = u64::from(client);
            Ok(Box::new(OltpClient::new(
                Arc::clone(&self.shared),
                store.connect()?,
                Events::new(self.config(), test.kind, range, place, number),
                client as usize,
                store.keeps_rows(),
                writes,
            )) as Box<dyn PhaseClient>)
        };
        (0..self.config().clients).map(tester).collect()
    }

    /// Builds the phase of the step at this place of the plan; `None`: the engine settles.
    fn phase(
        &self,
        store: &Arc<dyn TableStore>,
        place: usize,
    ) -> Result<Option<Phase>, EngineError> {
        let (step, name) = &self.plan[place];
        Ok(Some(match step {
            StepDef::Settle => return Ok(None),
            StepDef::Load => Phase::of_work(name, LOAD_OPERATIONS, self.load(&**store)?),
            StepDef::Index => Phase::of_work(name, INDEX_OPERATIONS, self.builders(store)),
            StepDef::Test {
                test,
                range,
                warmup,
            } => {
                let range = self.config().range_of(test, *range);
                let clients = self.testers(&**store, place as u64, test, range)?;
                Phase {
                    end: self.config().end,
                    recorded: !warmup,
                    paced: !warmup,
                    ..Phase::of_work(name, OPERATIONS, clients)
                }
            }
        }))
    }

    /// Counts the rows of a table, and reads back the first, the last and random ones.
    fn check_load(
        &self,
        connection: &mut dyn TableConnection,
        table: usize,
    ) -> Result<(), EngineError> {
        let (rows, name) = (self.config().rows, self.shared.name(table));
        let found = connection.count(TableId(table))?;
        if found != rows {
            return Err(wrong(format!(
                "table {name} holds {found} rows; {rows} were inserted"
            )));
        }
        let mut random = Random::keyed(self.config().seed, &[SAMPLE_KEY, table as u64]);
        let some = (0..SAMPLE_ROWS).map(|_| 1 + random.below(rows));
        let ids: Vec<u64> = [1, rows].into_iter().chain(some).collect();
        let mut keys = RowBatch::new(1);
        ids.iter().for_each(|id| keys.push(Value::Unsigned(*id)));
        let mut bad = None;
        connection.get(TableId(table), &keys, &mut |place, row| {
            let found = row.and_then(|row| self.shared.rows.look_at(table, row));
            let good = |id| found.is_some_and(|it| it.id == id && it.k == it.inserted_k);
            if !good(ids[place]) {
                bad = Some(ids[place]);
            }
        })?;
        match bad {
            None => Ok(()),
            Some(id) => Err(wrong(format!(
                "row {id} of {name} is missing or has values that were never written for it"
            ))),
        }
    }

    /// Walks a whole table and returns the number of rows. Every row that must exist appears once,
    /// in order and whole, and there is no other row. No update of k is lost.
    fn check_all(
        &self,
        connection: &mut dyn TableConnection,
        table: usize,
    ) -> Result<u64, EngineError> {
        let (shared, state) = (&*self.shared, &self.shared.tables[table]);
        let (exact, name) = (shared.is_exact(), shared.name(table));
        let (mut rows, mut added, mut last, mut bad) = (0, 0, 0, None);
        connection.scan(TableId(table), Path::Primary, Range::ALL, &mut |row| {
            let found = shared.rows.look_at(table, row);
            let good = found.filter(|it| it.id > last && (!exact || state.has(it.id)));
            let Some(found) = good else {
                bad = row.first().and_then(|id| id.unsigned()).or(Some(0));
                return false;
            };
            rows += 1;
            added += found.k - found.inserted_k;
            last = found.id;
            true
        })?;
        if let Some(id) = bad {
            return Err(wrong(format!(
                "row {id} of {name} must not be there, or has values that were never written for it"
            )));
        }
        let (expected, adds) = (state.count_all(), state.adds.load(Ordering::Relaxed));
        if exact && rows != expected {
            return Err(wrong(format!(
                "table {name} holds {rows} rows; {expected} must be there"
            )));
        }
        let lost = state.adds_lost.load(Ordering::Relaxed);
        if exact && (added > adds || (added < adds && !lost)) {
            return Err(wrong(format!(
                "the k of {name} were raised by {added}; {adds} updates were acknowledged"
            )));
        }
        Ok(rows)
    }
}

impl Workload for OltpRange {
    fn identity(&self) -> (&'static str, u32) {
        (WORKLOAD, VERSION)
    }

    fn schema(&self) -> Schema {
        Schema::Tables(self.shared.schema)
    }

    fn paced_phases(&self) -> Vec<String> {
        let tests = self
            .plan
            .iter()
            .filter(|(step, _)| matches!(step, StepDef::Test { warmup, .. } if !warmup));
        tests.map(|(_, name)| name.clone()).collect()
    }

    fn phase_names(&self) -> Vec<String> {
        self.plan.iter().map(|(_, name)| name.clone()).collect()
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.config().settings()
    }

    fn load_estimate(&self) -> (u64, u64) {
        let config = self.config();
        let rows = config.rows.saturating_mul(u64::from(config.tables));
        (rows, rows.saturating_mul(ROW_BYTES + ENTRY_BYTES))
    }

    fn memory_bytes(&self) -> u64 {
        self.shared
            .tables
            .iter()
            .map(TableState::memory_bytes)
            .sum()
    }

    fn next_step(&mut self, engine: &dyn Engine) -> Result<Option<Step>, EngineError> {
        let store = engine.table_store(self.shared.schema)?;
        // The load is the first step.
        if self.next == 1 && store.keeps_rows() {
            for table in 0..self.shared.tables.len() {
                self.check_load(&mut *store.connect()?, table)?;
            }
        }
        if self.next == self.plan.len() {
            return Ok(None);
        }
        let phase = self.phase(&store, self.next)?;
        self.next += 1;
        Ok(Some(phase.map_or(Step::Settle, Step::Phase)))
    }

    fn verify(&self, engine: &dyn Engine) -> Result<String, EngineError> {
        let store = engine.table_store(self.shared.schema)?;
        if !store.keeps_rows() {
            return Ok("not checked: this engine keeps no rows".to_owned());
        }
        let (mut rows, mut indexes) = (0, 0);
        for table in 0..self.shared.tables.len() {
            let mut connection = store.connect()?;
            rows += self.check_all(&mut *connection, table)?;
            indexes = connection.check(TableId(table))?;
        }
        let tables = self.shared.tables.len();
        Ok(format!(
            "{rows} rows in {tables} tables, in order and each as it was written last or before; no update of k is lost; \
             the entries of {indexes} indexes a table are equal to the rows"
        ))
    }
}
