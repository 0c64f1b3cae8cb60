//! One table of a trial with the progress of its inserts and deletes, and the state shared by all
//! clients.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::config::Config;
use super::rows::{Rows, id_of};
use crate::error::EngineError;
use crate::random::Random;
use crate::tables::{
    Path, Range, RowBatch, TableConnection, TableId, TableSchema, Value, refuse_rows,
};

/// Number of rows that are read back after a load.
const SAMPLE_ROWS: u64 = 1000;
/// Key of the random generator of the sample.
const SAMPLE_KEY: u64 = 0x7361_6d70;

/// State that all clients of a trial share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) schema: &'static TableSchema,
    pub(super) rows: Rows,
    pub(super) queues: Vec<Queue>,
    pub(super) backoff: fn(u32),
}

/// One table: inserts add the highest ids, deletes remove the lowest.
pub(super) struct Queue {
    pub(super) table: TableId,
    /// Next id to give out.
    next: AtomicU64,
    /// Every row below is inserted; valid only if a single client inserts.
    inserted_below: AtomicU64,
    /// First id of the next delete; rows below may be gone.
    pub(super) low: AtomicU64,
    inserted: AtomicU64,
    deleted: AtomicU64,
    /// True if a single client inserts and a single client deletes: only then ids become visible in
    /// order.
    alone: bool,
    /// True if no statement has failed: ids have no gaps.
    exact: AtomicBool,
}

impl Queue {
    pub(super) fn new(table: usize, alone: bool) -> Queue {
        Queue {
            table: TableId(table),
            next: AtomicU64::new(1),
            inserted_below: AtomicU64::new(1),
            low: AtomicU64::new(1),
            inserted: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
            alone,
            exact: AtomicBool::new(true),
        }
    }

    /// Gives out ids for `rows` rows and returns the first.
    pub(super) fn take_ids(&self, rows: u64) -> u64 {
        // Relaxed: only the number matters.
        self.next.fetch_add(rows, Ordering::Relaxed)
    }

    /// Returns ids that no statement has used. If another client of the table has taken later ids,
    /// they remain a gap; a table with a single inserter has no such gap.
    pub(super) fn return_ids(&self, first: u64, rows: u64) {
        let (taken, relaxed) = (first + rows, Ordering::Relaxed);
        let _ = self.next.compare_exchange(taken, first, relaxed, relaxed);
    }

    /// Records that `rows` rows were inserted, starting at `first`.
    pub(super) fn note_inserted(&self, first: u64, rows: u64) {
        self.inserted.fetch_add(rows, Ordering::Relaxed);
        if self.alone {
            // Release: a thread that reads it also finds the rows; see `must_have`.
            self.inserted_below.store(first + rows, Ordering::Release);
        }
    }

    /// Returns the first id of the next delete of `rows` rows. These rows may be gone after this
    /// call.
    pub(super) fn take_oldest(&self, rows: u64) -> u64 {
        // Acquire and release: after it misses a row, a reader must see here that the row may be
        // gone.
        self.low.fetch_add(rows, Ordering::AcqRel)
    }

    pub(super) fn note_deleted(&self, rows: u64) {
        self.deleted.fetch_add(rows, Ordering::Relaxed);
    }

    /// Records that a statement failed: ids may have gaps after this call.
    pub(super) fn note_failure(&self) {
        self.exact.store(false, Ordering::Relaxed);
    }

    /// Returns true if ids have no gaps and become visible in order.
    pub(super) fn is_exact(&self) -> bool {
        self.alone && self.exact.load(Ordering::Relaxed)
    }

    /// Returns the bounds of the ids for queries: the lowest, and the highest plus one.
    pub(super) fn bounds(&self) -> (u64, u64) {
        let low = self.low.load(Ordering::Relaxed);
        let high = if self.alone {
            self.inserted_below.load(Ordering::Acquire)
        } else {
            self.next.load(Ordering::Relaxed)
        };
        (low, high.max(low + 1))
    }

    /// Returns true if the row must exist. The caller asks after a query did not find it.
    pub(super) fn must_have(&self, id: u64) -> bool {
        self.is_exact()
            && id < self.inserted_below.load(Ordering::Acquire)
            && id >= self.low.load(Ordering::Acquire)
    }

    /// Returns the number of rows in the table.
    pub(super) fn kept(&self) -> u64 {
        let (inserted, deleted) = self.totals();
        inserted.saturating_sub(deleted)
    }

    /// Returns the rows inserted and deleted so far.
    pub(super) fn totals(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.inserted), of(&self.deleted))
    }
}

pub(super) fn wrong(message: String) -> EngineError {
    EngineError::Wrong(message)
}

impl Shared {
    pub(super) fn name(&self, queue: &Queue) -> &str {
        &self.schema.table(queue.table).name
    }

    /// Checks before the load that the table is empty.
    pub(super) fn check_empty(
        &self,
        connection: &mut dyn TableConnection,
        queue: &Queue,
    ) -> Result<(), EngineError> {
        refuse_rows(connection, self.schema, queue.table)
    }

    /// Counts the rows, and reads back the first, the last and random ones.
    pub(super) fn check_counts(
        &self,
        connection: &mut dyn TableConnection,
        queue: &Queue,
    ) -> Result<(), EngineError> {
        let (inserted, deleted) = queue.totals();
        let found = connection.count(queue.table)?;
        if found != queue.kept() {
            return Err(wrong(format!(
                "table {} holds {found} rows; {inserted} were inserted and {deleted} deleted",
                self.name(queue)
            )));
        }
        if !queue.is_exact() || found == 0 {
            return Ok(());
        }
        let (low, high) = queue.bounds();
        let mut random = Random::keyed(self.config.seed, &[SAMPLE_KEY]);
        let some = (0..SAMPLE_ROWS).map(|_| low + random.below(high - low));
        let ids: Vec<u64> = [low, high - 1].into_iter().chain(some).collect();
        let mut keys = RowBatch::new(1);
        ids.iter().for_each(|id| keys.push(Value::Unsigned(*id)));
        let mut bad = None;
        connection.get(queue.table, &keys, &mut |place, row| {
            let id = ids[place];
            let good = row.is_some_and(|row| self.rows.is_row(queue.table.0, id, row));
            if !good {
                bad = Some((id, row.is_some()));
            }
        })?;
        bad.map_or(Ok(()), |(id, there)| Err(self.bad_row(queue, id, there)))
    }

    pub(super) fn bad_row(&self, queue: &Queue, id: u64, there: bool) -> EngineError {
        let name = self.name(queue);
        wrong(if there {
            format!("row {id} of {name} has values that were never written for it")
        } else {
            format!("row {id} of {name} is missing")
        })
    }

    /// Walks the whole table and returns the number of rows. Every row must appear once, in order,
    /// with the contents of its id.
    pub(super) fn check_all(
        &self,
        connection: &mut dyn TableConnection,
        queue: &Queue,
    ) -> Result<u64, EngineError> {
        let exact = queue.is_exact();
        let (low, _) = queue.bounds();
        let (mut rows, mut bad) = (0, None);
        connection.scan(queue.table, Path::Primary, Range::ALL, &mut |row| {
            let id = id_of(row).unwrap_or(0);
            let in_place = !exact || id == low + rows;
            if !in_place || !self.rows.is_row(queue.table.0, id, row) {
                bad = Some((id, low + rows));
                return false;
            }
            rows += 1;
            true
        })?;
        let name = self.name(queue);
        if let Some((id, expected)) = bad {
            return Err(wrong(format!(
                "where row {expected} of {name} must be is row {id}, or values that were never written for it"
            )));
        }
        let (inserted, deleted) = queue.totals();
        if rows == queue.kept() {
            Ok(rows)
        } else {
            Err(wrong(format!(
                "table {name} holds {rows} rows; {inserted} were inserted and {deleted} deleted"
            )))
        }
    }
}
