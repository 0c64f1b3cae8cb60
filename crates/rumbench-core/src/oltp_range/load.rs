//! The clients of the load and of the build of indexes. A table is loaded and built by one client.

use std::sync::Arc;

use super::rows::{COLUMNS, ROW_BYTES};
use super::state::Shared;
use crate::engine::{EngineError, Result};
use crate::retry::retried;
use crate::tables::{RowBatch, TableConnection, TableId, TableStore};
use crate::trial::{Done, OpIndex, PhaseClient};

/// Operations of the load.
pub(super) const LOAD_OPERATIONS: &[&str] = &["INSERT"];
/// Operations of the build.
pub(super) const INDEX_OPERATIONS: &[&str] = &["BUILD_INDEX"];
/// The index of k.
const INDEX: usize = 0;

/// Loads every so-manieth table from one on, in the order of ids.
pub(super) struct Loader {
    shared: Arc<Shared>,
    connection: Box<dyn TableConnection>,
    table: usize,
    /// Tables from one that this client loads to the next.
    stride: usize,
    /// The next id.
    next: u64,
    batch: RowBatch,
}

impl Loader {
    pub(super) fn new(
        shared: Arc<Shared>,
        connection: Box<dyn TableConnection>,
        client: usize,
        stride: usize,
    ) -> Loader {
        Loader {
            shared,
            connection,
            table: client,
            stride,
            next: 1,
            batch: RowBatch::new(COLUMNS),
        }
    }
}

impl PhaseClient for Loader {
    fn prepare(&mut self) -> Option<OpIndex> {
        let config = &self.shared.config;
        if self.next > config.rows {
            self.table += self.stride;
            self.next = 1;
        }
        if self.table >= self.shared.tables.len() {
            return None;
        }
        self.batch.clear();
        let end = (self.next + config.load_batch).min(config.rows + 1);
        for id in self.next..end {
            let rows = &self.shared.rows;
            let draws = rows.loaded(self.table, id);
            rows.push(self.table, id, draws, &mut self.batch);
        }
        self.next = end;
        Some(0)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        let rows = self.batch.len() as u64;
        let done = retried(self.shared.backoff, rows, || {
            self.connection.insert(TableId(self.table), &self.batch)
        })?;
        Ok(Done {
            written_bytes: rows * ROW_BYTES,
            ..done
        })
    }
}

/// Builds the index of every so-manieth table from one on.
pub(super) struct Builder {
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<dyn TableStore>,
    pub(super) table: usize,
    pub(super) stride: usize,
}

impl PhaseClient for Builder {
    fn prepare(&mut self) -> Option<OpIndex> {
        (self.table < self.shared.tables.len()).then_some(0)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        let table = self.table;
        self.table += self.stride;
        self.store.build_index(TableId(table), INDEX)?;
        Ok(Done {
            rows: self.shared.tables[table].count_all(),
            ..Done::default()
        })
    }
}
