//! Clients of the load and of the phase that builds indexes.

use std::ops::Range;
use std::sync::Arc;

use super::checks::Shared;
use crate::error::Result;
use crate::retry::retried;
use crate::tables::{RowBatch, TableConnection, TableId, TableStore};
use crate::trial::{Done, OpIndex, PhaseClient};

/// Operation name of a load.
pub(super) const LOAD_OPERATIONS: &[&str] = &["LOAD"];
/// Operation name of an index build.
pub(super) const INDEX_OPERATIONS: &[&str] = &["BUILD_INDEX"];

/// Client that loads its share of each table in the order of insertion.
pub(super) struct Loader {
    shared: Arc<Shared>,
    connection: Box<dyn TableConnection>,
    /// Number of the client, and number of clients.
    client: (u64, u64),
    batch_rows: u64,
    table: usize,
    /// Next row and end of its share.
    rows: (u64, u64),
    batch: RowBatch,
    first: u64,
}

impl Loader {
    pub(super) fn new(
        shared: Arc<Shared>,
        connection: Box<dyn TableConnection>,
        client: (u64, u64),
        batch_rows: u64,
    ) -> Loader {
        let mut loader = Loader {
            shared,
            connection,
            client,
            batch_rows,
            table: 0,
            rows: (0, 0),
            batch: RowBatch::default(),
            first: 0,
        };
        loader.enter(0);
        loader
    }

    /// Moves to its share of a table.
    fn enter(&mut self, table: usize) {
        let of = &self.shared.definition.tables[table];
        let (client, clients) = self.client;
        let bound =
            |place: u64| (u128::from(of.rows) * u128::from(place) / u128::from(clients)) as u64;
        self.rows = (bound(client), bound(client + 1));
        self.batch = RowBatch::new(1 + of.columns.len());
        self.table = table;
    }
}

impl PhaseClient for Loader {
    fn prepare(&mut self) -> Option<OpIndex> {
        while self.rows.0 == self.rows.1 {
            if self.table + 1 == self.shared.definition.tables.len() {
                return None;
            }
            self.enter(self.table + 1);
        }
        self.first = self.rows.0;
        let end = (self.first + self.batch_rows).min(self.rows.1);
        self.rows.0 = end;
        self.batch.clear();
        for row in self.first..end {
            let place = (self.table, row);
            self.shared.rows.push_row(place, |_| 0, &mut self.batch);
        }
        Some(0)
    }

    fn execute(&mut self) -> Result<Done> {
        let rows = self.batch.len() as u64;
        let done = retried(self.shared.backoff, rows, || {
            self.connection.insert(TableId(self.table), &self.batch)
        })?;
        let population = &self.shared.populations[self.table];
        for row in self.first..self.first + rows {
            population.note_inserted(row);
        }
        Ok(done)
    }
}

/// Client that builds one index after another, or all of a table at once if the engine can.
pub(super) struct Builder {
    shared: Arc<Shared>,
    store: Arc<dyn TableStore>,
    /// Remaining tables and their index ranges, the next table last.
    left: Vec<(usize, Range<usize>)>,
}

impl Builder {
    pub(super) fn new(shared: Arc<Shared>, store: Arc<dyn TableStore>) -> Builder {
        let tables = shared.definition.tables.iter().enumerate().rev();
        let left = tables
            .map(|(table, of)| (table, 0..of.indexes.len()))
            .filter(|(_, indexes)| !indexes.is_empty())
            .collect();
        Builder {
            shared,
            store,
            left,
        }
    }
}

/// Returns all indexes as pairs of table and index.
pub(super) fn indexes(shared: &Shared) -> impl Iterator<Item = (usize, usize)> + '_ {
    let tables = shared.definition.tables.iter().enumerate();
    tables.flat_map(|(table, of)| (0..of.indexes.len()).map(move |index| (table, index)))
}

impl PhaseClient for Builder {
    fn prepare(&mut self) -> Option<OpIndex> {
        (!self.left.is_empty()).then_some(0)
    }

    fn execute(&mut self) -> Result<Done> {
        let Some((table, indexes)) = self.left.pop() else {
            return Ok(Done::default());
        };
        let rest = self.store.build_next(TableId(table), indexes.clone())?..indexes.end;
        if !rest.is_empty() {
            self.left.push((table, rest));
        }
        Ok(Done {
            rows: self.shared.populations[table].count(),
            ..Done::default()
        })
    }
}
