//! Clients of the load and of the index build. One client loads each table and builds its index.

use std::sync::Arc;

use super::columns::COLUMNS;
use super::rows::ROW_BYTES;
use super::state::Shared;
use crate::error::{EngineError, Result};
use crate::retry::retried;
use crate::tables::{RowBatch, TableConnection, TableId, TableStore};
use crate::trial::{Done, OpIndex, PhaseClient};

/// Operations of the load.
pub(super) const LOAD_OPERATIONS: &[&str] = &["INSERT"];
/// Operations of the index build.
pub(super) const INDEX_OPERATIONS: &[&str] = &["BUILD_INDEX"];
/// Number of the index of k.
const INDEX: usize = 0;

/// Client that loads every `stride`-th table, starting at `table`, in the order of ids.
pub(super) struct Loader {
    shared: Arc<Shared>,
    connection: Box<dyn TableConnection>,
    table: usize,
    /// Distance from one table of this client to the next.
    stride: usize,
    /// Next id to load.
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

/// Client that builds the index of every `stride`-th table, starting at `table`.
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
