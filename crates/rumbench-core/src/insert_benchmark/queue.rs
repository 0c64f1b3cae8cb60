//! One table of a trial and how far its inserts and deletes have got; what all clients of a trial share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::config::Config;
use super::rows::{Rows, id_of};
use crate::engine::EngineError;
use crate::random::Random;
use crate::tables::{
    Path, Range, RowBatch, TableConnection, TableId, TableSchema, Value, refuse_rows,
};

/// Rows that are read back after a load.
const SAMPLE_ROWS: u64 = 1000;
/// What the generator of the sample is keyed with.
const SAMPLE_KEY: u64 = 0x7361_6d70;

/// What all clients of a trial share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) schema: &'static TableSchema,
    pub(super) rows: Rows,
    pub(super) queues: Vec<Queue>,
    pub(super) backoff: fn(u32),
}

/// One table: ids go in at the high end and out at the low end.
pub(super) struct Queue {
    pub(super) table: TableId,
    /// The id that is given out next.
    next: AtomicU64,
    /// Every row below is inserted, as far as one client alone inserts.
    inserted_below: AtomicU64,
    /// The id from which the next delete starts; rows below may be gone.
    pub(super) low: AtomicU64,
    inserted: AtomicU64,
    deleted: AtomicU64,
    /// Whether a single client inserts, and one deletes: only then ids become visible in order.
    alone: bool,
    /// No statement has failed: ids have no gaps.
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

    /// Gives out ids for so many rows; the first of them.
    pub(super) fn take_ids(&self, rows: u64) -> u64 {
        // Relaxed: only the number matters.
        self.next.fetch_add(rows, Ordering::Relaxed)
    }

    /// Takes ids back that no statement has used. Another client of the table may have taken later ones: then they remain
    /// a gap, which only a table with a single inserter must not have.
    pub(super) fn return_ids(&self, first: u64, rows: u64) {
        let (taken, relaxed) = (first + rows, Ordering::Relaxed);
        let _ = self.next.compare_exchange(taken, first, relaxed, relaxed);
    }

    /// Rows from `first` on were inserted.
    pub(super) fn note_inserted(&self, first: u64, rows: u64) {
        self.inserted.fetch_add(rows, Ordering::Relaxed);
        if self.alone {
            // Release: who reads it then also finds the rows; see `must_have`.
            self.inserted_below.store(first + rows, Ordering::Release);
        }
    }

    /// Where the next delete of so many rows starts. They may be gone from now on.
    pub(super) fn take_oldest(&self, rows: u64) -> u64 {
        // Acquire and release: a reader that misses a row must find here that it may be gone.
        self.low.fetch_add(rows, Ordering::AcqRel)
    }

    pub(super) fn note_deleted(&self, rows: u64) {
        self.deleted.fetch_add(rows, Ordering::Relaxed);
    }

    /// A statement failed: from now on ids have gaps.
    pub(super) fn note_failure(&self) {
        self.exact.store(false, Ordering::Relaxed);
    }

    /// Whether ids are without gaps and become visible in order.
    pub(super) fn is_exact(&self) -> bool {
        self.alone && self.exact.load(Ordering::Relaxed)
    }

    /// Bounds of the ids that can be asked for: the lowest, and the first above all.
    pub(super) fn bounds(&self) -> (u64, u64) {
        let low = self.low.load(Ordering::Relaxed);
        let high = match self.alone {
            true => self.inserted_below.load(Ordering::Acquire),
            false => self.next.load(Ordering::Relaxed),
        };
        (low, high.max(low + 1))
    }

    /// Whether a row below the bounds' upper end must be there, asked after it was not found.
    pub(super) fn must_have(&self, id: u64) -> bool {
        self.is_exact()
            && id < self.inserted_below.load(Ordering::Acquire)
            && id >= self.low.load(Ordering::Acquire)
    }

    /// Rows that are there.
    pub(super) fn kept(&self) -> u64 {
        let (inserted, deleted) = self.totals();
        inserted.saturating_sub(deleted)
    }

    /// Rows inserted and deleted so far.
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

    /// The table must be empty before the load.
    pub(super) fn check_empty(
        &self,
        connection: &mut dyn TableConnection,
        queue: &Queue,
    ) -> Result<(), EngineError> {
        refuse_rows(connection, self.schema, queue.table)
    }

    /// Counts the rows, and reads the first, the last and random ones back.
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
        wrong(match there {
            true => format!("row {id} of {name} has values that nobody wrote for it"),
            false => format!("row {id} of {name} is missing"),
        })
    }

    /// Walks the whole table: every row once, in order, as its id makes it. Answers how many there are.
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
                "where row {expected} of {name} must be is row {id}, or values that nobody wrote for it"
            )));
        }
        let (inserted, deleted) = queue.totals();
        match rows == queue.kept() {
            true => Ok(rows),
            false => Err(wrong(format!(
                "table {name} holds {rows} rows; {inserted} were inserted and {deleted} deleted"
            ))),
        }
    }
}
