//! Large values as a workload of the laboratory: its phases, in order, and its checks.

use std::sync::Arc;

use super::client::{INSERT_OPERATIONS, Inserter, QUERY_OPERATIONS, Queries, Reader, Shared};
use super::config::{Config, WORKLOAD};
use super::rows::{Rows, TABLE, schema};
use crate::engine::{Engine, Schema};
use crate::error::EngineError;
use crate::random::Random;
use crate::tables::{
    Path, Range, RowBatch, TableConnection, TableSchema, TableStore, Value, refuse_rows,
};
use crate::trial::{Background, Phase, PhaseClient, PhaseEnd, Step, Workload};

/// Version of the workload; changes whenever the golden rows or queries change.
pub const VERSION: u32 = 1;
/// Number of rows that are read back after the load.
const SAMPLE_ROWS: u64 = 1000;
/// Key of the random generator of the sample.
const SAMPLE_KEY: u64 = 0x7361_6d70;

/// The large-values workload of one configuration.
pub struct LargeValues {
    shared: Arc<Shared>,
    schema: &'static TableSchema,
    /// Place of the next step in [`NAMES`].
    next: usize,
}

const NAMES: [&str; 3] = ["load", "settle", "query"];

impl LargeValues {
    /// Prepares a trial of this configuration. `backoff` is called before attempt number 2, 3, ...
    /// of a transaction.
    ///
    /// # Errors
    /// Returns [`EngineError::Unsupported`] if the table has no valid schema.
    pub fn new(config: Config, backoff: fn(u32)) -> Result<LargeValues, EngineError> {
        Ok(LargeValues {
            shared: Arc::new(Shared::new(config, backoff)),
            schema: schema().map_err(EngineError::Unsupported)?,
            next: 0,
        })
    }

    fn config(&self) -> &Config {
        &self.shared.config
    }

    fn inserter(
        &self,
        store: &dyn TableStore,
        end: u64,
        batch: u64,
        alone: bool,
    ) -> Result<Box<dyn PhaseClient>, EngineError> {
        let shared = Arc::clone(&self.shared);
        let connection = store.connect()?;
        Ok(Box::new(Inserter::new(
            shared, connection, end, batch, alone,
        )))
    }

    fn load(&self, store: &dyn TableStore) -> Result<Phase, EngineError> {
        refuse_rows(&mut *store.connect()?, self.schema, TABLE)?;
        let config = self.config();
        let clients = (0..config.clients).map(|_| {
            let alone = config.clients == 1;
            self.inserter(store, config.rows + 1, config.load_batch, alone)
        });
        let clients = clients.collect::<Result<_, EngineError>>()?;
        Ok(Phase::of_work(NAMES[0], INSERT_OPERATIONS, clients))
    }

    /// Builds the phase of queries by all clients, with one background inserter. If the end is
    /// given in seconds, the phase ends with its inserts, so every engine does the same work.
    fn query(&self, store: &dyn TableStore) -> Result<Phase, EngineError> {
        self.shared.publish();
        let clients = (0..self.config().clients).map(|client| {
            Ok(Box::new(Reader {
                shared: Arc::clone(&self.shared),
                connection: store.connect()?,
                queries: Queries::new(self.config().seed, u64::from(client)),
                judges: store.keeps_rows(),
                id: 0,
                key: RowBatch::new(1),
                expected: Vec::new(),
            }) as Box<dyn PhaseClient>)
        });
        let clients = clients.collect::<Result<_, EngineError>>()?;
        let phase = Phase::of_work(NAMES[2], QUERY_OPERATIONS, clients);
        let end = self.config().end;
        match self.config().insert_rate {
            0 => Ok(Phase { end, ..phase }),
            rate => self.beside(store, phase, end, rate),
        }
    }

    /// Adds background inserts at a rate to a phase.
    fn beside(
        &self,
        store: &dyn TableStore,
        phase: Phase,
        end: PhaseEnd,
        rate: u64,
    ) -> Result<Phase, EngineError> {
        let batch = self.config().background_batch();
        let (rows, leads, end) = match end {
            PhaseEnd::Seconds(seconds) => {
                let rows = (rate as f64 * seconds).round().max(1.0) as u64;
                (rows, Some(seconds), PhaseEnd::Work)
            }
            end => (1 << 50, None, end),
        };
        let last = self.config().rows + 1 + rows;
        Ok(Phase {
            end,
            background: Some(Background {
                operations: INSERT_OPERATIONS,
                per_second: rate as f64 / batch as f64,
                burst: false,
                rows_per_second: Some(rate as f64),
                leads,
                clients: vec![self.inserter(store, last, batch, true)?],
            }),
            ..phase
        })
    }

    /// Counts the rows, and reads back the first, the last and random ones.
    fn check_load(&self, connection: &mut dyn TableConnection) -> Result<(), EngineError> {
        let rows = self.config().rows;
        let found = connection.count(TABLE)?;
        if found != rows {
            return Err(EngineError::Wrong(format!(
                "table large holds {found} rows; {rows} were inserted"
            )));
        }
        let mut random = Random::keyed(self.config().seed, &[SAMPLE_KEY]);
        let some = (0..SAMPLE_ROWS).map(|_| 1 + random.below(rows));
        let (mut key, mut expected) = (RowBatch::new(1), Vec::new());
        // Reads one row at a time: a thousand values of 512 KiB need not be in memory together.
        for id in [1, rows].into_iter().chain(some) {
            key.clear();
            key.push(Value::Unsigned(id));
            expected.clear();
            self.shared.rows.append_value(id, &mut expected);
            let mut bad = Some(false);
            connection.get(TABLE, &key, &mut |_, row| {
                if let Some(row) = row {
                    bad = (!Rows::is_row(id, &expected, row)).then_some(true);
                }
            })?;
            if let Some(there) = bad {
                return Err(Shared::bad_row(id, there));
            }
        }
        Ok(())
    }

    /// Walks the whole table and returns the number of rows. Every row must appear once, in order,
    /// with the value of its id.
    fn check_all(&self, connection: &mut dyn TableConnection) -> Result<u64, EngineError> {
        let exact = self.shared.is_exact();
        let (mut rows, mut bad, mut expected) = (0, None, Vec::new());
        connection.scan(TABLE, Path::Primary, Range::ALL, &mut |row| {
            rows += 1;
            let id = row.first().and_then(|id| id.unsigned()).unwrap_or(0);
            expected.clear();
            self.shared.rows.append_value(id, &mut expected);
            if (exact && id != rows) || !Rows::is_row(id, &expected, row) {
                bad = Some(id);
            }
            bad.is_none()
        })?;
        if let Some(id) = bad {
            return Err(EngineError::Wrong(format!(
                "where row {rows} of large must be is row {id}, or a value that was never written for it"
            )));
        }
        let (inserted, _) = self.shared.totals();
        // A failed insert may have left its rows.
        if rows != inserted && (exact || rows < inserted) {
            return Err(EngineError::Wrong(format!(
                "table large holds {rows} rows; {inserted} were inserted"
            )));
        }
        Ok(rows)
    }
}

impl Workload for LargeValues {
    fn identity(&self) -> (&'static str, u32) {
        (WORKLOAD, VERSION)
    }

    fn schema(&self) -> Schema {
        Schema::Tables(self.schema)
    }

    fn phase_names(&self) -> Vec<String> {
        NAMES.map(str::to_owned).to_vec()
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.config().settings()
    }

    fn load_estimate(&self) -> (u64, u64) {
        let rows = self.config().rows;
        (rows, rows.saturating_mul(self.config().row_bytes()))
    }

    fn stored_bytes(&self) -> Option<u64> {
        Some(self.shared.totals().1)
    }

    fn sample(&self, bytes: usize) -> Vec<u8> {
        let config = self.config();
        let rows = &self.shared.rows;
        rows.sample(config.rows, bytes, config.row_bytes())
    }

    fn next_step(&mut self, engine: &dyn Engine) -> Result<Option<Step>, EngineError> {
        let store = engine.table_store(self.schema)?;
        if self.next == 1 && store.keeps_rows() {
            self.check_load(&mut *store.connect()?)?;
        }
        self.next += 1;
        Ok(match self.next {
            1 => Some(Step::Phase(self.load(&*store)?)),
            2 => Some(Step::Settle),
            3 => Some(Step::Phase(self.query(&*store)?)),
            _ => None,
        })
    }

    fn verify(&self, engine: &dyn Engine) -> Result<String, EngineError> {
        let store = engine.table_store(self.schema)?;
        if !store.keeps_rows() {
            return Ok("not checked: this engine keeps no rows".to_owned());
        }
        let rows = self.check_all(&mut *store.connect()?)?;
        Ok(format!("{rows} rows in order, each as its id makes it"))
    }
}
