//! Query clients: they read ranges of an index, or rows by primary key, and check every returned
//! row.

use std::sync::Arc;

use super::queue::{Shared, wrong};
use super::stream::Queries;
use crate::error::EngineError;
use crate::retry::retried_with;
use crate::tables::{Path, Range, RowBatch, TableConnection, Value};
use crate::trial::{Done, OpIndex, PhaseClient};

/// Operations of range queries, one per index.
pub(super) const RANGE_OPERATIONS: &[&str] = &["MARKET", "REGISTER", "PDC"];
/// Operations of queries by primary key.
pub(super) const POINT_OPERATIONS: &[&str] = &["POINTS"];

/// Client that reads the rows starting at a random value of an index.
pub(super) struct RangeReader {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: usize,
    pub(super) connection: Box<dyn TableConnection>,
    pub(super) queries: Queries,
    pub(super) judges: bool,
    /// Index and first value of the next query.
    pub(super) next: (usize, u64),
}

/// Most columns of an index entry: three of the index, and the key.
const ENTRY_COLUMNS: usize = 4;

impl PhaseClient for RangeReader {
    fn prepare(&mut self) -> Option<OpIndex> {
        self.next = self.queries.range(&self.shared.rows);
        Some(self.next.0)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        let (shared, (index, start)) = (&*self.shared, self.next);
        let queue = &shared.queues[self.queue];
        let of = shared.schema.table(queue.table);
        let path = Path::Index(index);
        let from = [Value::Unsigned(start)];
        let range = Range {
            from: &from,
            limit: shared.config.query_rows,
            ..Range::ALL
        };
        let (mut rows, mut good) = (0, true);
        let mut last = [0; ENTRY_COLUMNS];
        let ((), retries) = retried_with(shared.backoff, || {
            (rows, good) = (0, true);
            // The lower bound of all entries of the range.
            last = [start, 0, 0, 0];
            self.connection
                .scan(queue.table, path, range, &mut |entry| {
                    let mut this = [0; ENTRY_COLUMNS];
                    for (place, value) in entry.iter().enumerate().take(ENTRY_COLUMNS) {
                        this[place] = value.unsigned().unwrap_or(u64::MAX);
                    }
                    let id = entry.last().and_then(|id| id.unsigned()).unwrap_or(0);
                    let places = of.path_columns(path);
                    good &=
                        this > last && shared.rows.has_columns(queue.table.0, id, places, entry);
                    last = this;
                    rows += 1;
                    // The last row ends the scan itself, so the engine does not step to an unused
                    // row.
                    rows < shared.config.query_rows
                })
        })?;
        if self.judges && !good {
            let name = of.index_name(index);
            return Err(wrong(format!(
                "a range of {name} from {start} on has entries out of order or of no row: the last is {last:?}"
            )));
        }
        Ok(Done {
            rows: rows as u64,
            retries,
            ..Done::default()
        })
    }
}

/// Client that reads random rows by their ids.
pub(super) struct PointReader {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: usize,
    pub(super) connection: Box<dyn TableConnection>,
    pub(super) queries: Queries,
    pub(super) judges: bool,
    pub(super) ids: Vec<u64>,
    pub(super) keys: RowBatch,
}

impl PhaseClient for PointReader {
    fn prepare(&mut self) -> Option<OpIndex> {
        let bounds = self.shared.queues[self.queue].bounds();
        self.ids.clear();
        self.keys.clear();
        for _ in 0..self.shared.config.query_rows {
            let id = self.queries.id(bounds);
            self.ids.push(id);
            self.keys.push(Value::Unsigned(id));
        }
        Some(0)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        let shared = &*self.shared;
        let queue = &shared.queues[self.queue];
        let (mut rows, mut bad, mut missing) = (0, None, None);
        let ids = &self.ids;
        let ((), retries) = retried_with(shared.backoff, || {
            (rows, bad, missing) = (0, None, None);
            self.connection
                .get(queue.table, &self.keys, &mut |place, row| {
                    let id = ids[place];
                    match row {
                        None => missing = missing.max(Some(id)),
                        Some(row) => {
                            rows += 1;
                            if !shared.rows.is_row(queue.table.0, id, row) {
                                bad = Some(id);
                            }
                        }
                    }
                })
        })?;
        if self.judges {
            if let Some(id) = bad {
                return Err(shared.bad_row(queue, id, true));
            }
            // Deletes run during the query: only a row that no client has begun to delete must
            // exist.
            if let Some(id) = missing.filter(|id| queue.must_have(*id)) {
                return Err(shared.bad_row(queue, id, false));
            }
        }
        Ok(Done {
            rows,
            retries,
            ..Done::default()
        })
    }
}
