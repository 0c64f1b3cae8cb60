//! Write clients: inserts, deletes, and the builder of indexes.

use std::sync::Arc;

use super::config::ROWS_L_X;
use super::coupling::Side;
use super::queue::{Queue, Shared, wrong};
use super::rows::{COLUMNS, id_of};
use super::stream::Statements;
use crate::error::EngineError;
use crate::retry::{retried, retried_with};
use crate::tables::{Path, Range, RowBatch, TableConnection, TableStore, Value};
use crate::trial::{Done, OpIndex, PhaseClient};

/// Operations of loads.
pub(super) const LOAD_OPERATIONS: &[&str] = &["INSERT"];
/// Operations of the index step.
pub(super) const INDEX_OPERATIONS: &[&str] = &["INSERT", "BUILD_INDEX"];
/// Operations of steps that insert and delete.
pub(super) const WRITE_OPERATIONS: &[&str] = &["INSERT", "DELETE", "MIN_AND_DELETE"];

/// Client that inserts its share of rows at the high end of a table.
pub(super) struct Inserter {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: usize,
    pub(super) connection: Box<dyn TableConnection>,
    pub(super) statements: Statements,
    pub(super) side: Option<Side>,
    batch: RowBatch,
    first: u64,
    /// True while the rows of the batch are prepared but not inserted.
    prepared: bool,
}

impl Inserter {
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: usize,
        connection: Box<dyn TableConnection>,
        statements: Statements,
        side: Option<Side>,
    ) -> Inserter {
        Inserter {
            shared,
            queue,
            connection,
            statements,
            side,
            batch: RowBatch::new(COLUMNS),
            first: 0,
            prepared: false,
        }
    }
}

/// Fills a batch with new rows of a queue and returns the first id.
fn fill(shared: &Shared, queue: &Queue, rows: u64, batch: &mut RowBatch) -> u64 {
    let first = queue.take_ids(rows);
    batch.clear();
    for id in first..first + rows {
        shared.rows.push(queue.table.0, id, batch);
    }
    first
}

impl PhaseClient for Inserter {
    fn prepare(&mut self) -> Option<OpIndex> {
        if self.statements.left() == 0 || !self.side.as_ref().is_none_or(Side::wait) {
            return None;
        }
        let rows = self.statements.next()?;
        let queue = &self.shared.queues[self.queue];
        self.first = fill(&self.shared, queue, rows, &mut self.batch);
        self.prepared = true;
        Some(0)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        self.prepared = false;
        let queue = &self.shared.queues[self.queue];
        let rows = self.batch.len() as u64;
        let done = retried(self.shared.backoff, rows, || {
            self.connection.insert(queue.table, &self.batch)
        });
        match &done {
            Ok(_) => queue.note_inserted(self.first, rows),
            Err(_) => queue.note_failure(),
        }
        if let Some(side) = &self.side {
            side.step();
        }
        done
    }
}

impl Drop for Inserter {
    /// Returns unused ids: a phase may end between `prepare` and `execute`.
    fn drop(&mut self) {
        if self.prepared {
            let queue = &self.shared.queues[self.queue];
            queue.return_ids(self.first, self.batch.len() as u64);
        }
    }
}

/// Client that deletes rows at the low end of a table, as many as the inserter adds.
pub(super) struct Deleter {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: usize,
    pub(super) connection: Box<dyn TableConnection>,
    pub(super) statements: Statements,
    pub(super) side: Side,
    /// True if answers are checked.
    pub(super) judges: bool,
    /// Statements since the last read of the lowest key; `None` before the first read.
    pub(super) since_lowest: Option<u64>,
    /// Rows of the next statement.
    pub(super) rows: u64,
    /// True if the next statement reads the lowest key first.
    pub(super) reads_lowest: bool,
}

impl Deleter {
    fn delete(&mut self) -> Result<Done, EngineError> {
        let queue = &self.shared.queues[self.queue];
        let from = [Value::Unsigned(queue.take_oldest(self.rows))];
        let rows = self.rows as usize;
        let (found, retries) = retried_with(self.shared.backoff, || {
            self.connection.delete_first(queue.table, &from, rows)
        })?;
        queue.note_deleted(found as u64);
        if self.judges && found != rows && queue.is_exact() {
            let name = self.shared.name(queue);
            return Err(wrong(format!(
                "{found} instead of {rows} rows of {name} were deleted from {from:?} on"
            )));
        }
        // Deleted rows do not count: the rows of a step are the inserted ones.
        Ok(Done {
            retries,
            ..Done::default()
        })
    }

    /// Reads the lowest key, the start of the next delete. Returns the number of retries.
    fn read_lowest(&mut self) -> Result<u64, EngineError> {
        let queue = &self.shared.queues[self.queue];
        let one = Range {
            limit: 1,
            ..Range::ALL
        };
        let (inserted, deleted) = queue.totals();
        let mut lowest = None;
        let ((), retries) = retried_with(self.shared.backoff, || {
            self.connection
                .scan(queue.table, Path::Primary, one, &mut |row| {
                    lowest = id_of(row);
                    false
                })
        })?;
        let (low, _) = queue.bounds();
        if self.judges && queue.is_exact() {
            // A table can be empty for a moment and then has no lowest key.
            if lowest != Some(low) && (lowest.is_some() || inserted > deleted) {
                let name = self.shared.name(queue);
                return Err(wrong(format!(
                    "the lowest key of {name} is {lowest:?}, not {low}"
                )));
            }
        }
        Ok(retries)
    }
}

impl PhaseClient for Deleter {
    fn prepare(&mut self) -> Option<OpIndex> {
        if self.statements.left() == 0 || !self.side.wait() {
            return None;
        }
        self.rows = self.statements.next()?;
        let resync = self.shared.config.resync;
        let since = self.since_lowest.map(|since| since + 1);
        self.reads_lowest = since.is_none_or(|since| resync > 0 && since >= resync);
        self.since_lowest = if self.reads_lowest { Some(0) } else { since };
        Some(if self.reads_lowest { 2 } else { 1 })
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        // The read is one operation with its delete, so that it takes no start of its own at a
        // rate.
        let lowest = if self.reads_lowest {
            self.read_lowest()
        } else {
            Ok(0)
        };
        let done = lowest.and_then(|retries| {
            let done = self.delete()?;
            Ok(Done {
                retries: done.retries + retries,
                ..done
            })
        });
        if done.is_err() {
            self.shared.queues[self.queue].note_failure();
        }
        self.side.step();
        done
    }
}

/// Client that inserts a few rows, then builds the indexes one by one, or all at once if the engine
/// can.
pub(super) struct Builder {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: usize,
    pub(super) store: Arc<dyn TableStore>,
    /// Next index; `None`: the rows are inserted first.
    pub(super) next: Option<usize>,
}

impl PhaseClient for Builder {
    fn prepare(&mut self) -> Option<OpIndex> {
        match self.next {
            None => Some(0),
            Some(index) => (index < self.shared.config.indexes).then_some(1),
        }
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        let queue = &self.shared.queues[self.queue];
        let Some(index) = self.next else {
            self.next = Some(0);
            let mut batch = RowBatch::new(COLUMNS);
            let first = fill(&self.shared, queue, ROWS_L_X, &mut batch);
            let mut connection = self.store.connect()?;
            let inserted = retried(self.shared.backoff, ROWS_L_X, || {
                connection.insert(queue.table, &batch)
            });
            match &inserted {
                Ok(_) => queue.note_inserted(first, ROWS_L_X),
                Err(_) => queue.note_failure(),
            }
            return inserted;
        };
        let indexes = index..self.shared.config.indexes;
        self.next = Some(self.store.build_next(queue.table, indexes)?);
        // The rows of a table count once, for any number of indexes.
        let (inserted, deleted) = queue.totals();
        Ok(Done {
            rows: match index {
                0 => (inserted - deleted).saturating_sub(ROWS_L_X),
                _ => 0,
            },
            ..Done::default()
        })
    }
}
