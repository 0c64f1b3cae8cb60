//! Clients of large values: they insert rows and query them. Their shared state says which rows
//! must exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::config::Config;
use super::rows::{COLUMNS, Rows, TABLE};
use crate::error::EngineError;
use crate::random::Random;
use crate::retry::{retried, retried_with};
use crate::tables::{RowBatch, TableConnection, Value};
use crate::trial::{Done, OpIndex, PhaseClient};

/// Operations of inserts.
pub(super) const INSERT_OPERATIONS: &[&str] = &["INSERT"];
/// Operations of queries.
pub(super) const QUERY_OPERATIONS: &[&str] = &["GET"];
/// Key of the random generators of queries.
const QUERY_KEY: u64 = 0x6c67_6574;

/// State that all clients of a trial share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) rows: Rows,
    /// Next id to give out; the first is 1.
    next: AtomicU64,
    /// Every row below can be read, as far as ids have no gaps.
    visible_below: AtomicU64,
    /// Number of inserted rows.
    inserted: AtomicU64,
    /// Bytes of the keys and values of the inserted rows.
    bytes: AtomicU64,
    /// True if no insert has failed: ids have no gaps.
    exact: AtomicBool,
    pub(super) backoff: fn(u32),
}

impl Shared {
    pub(super) fn new(config: Config, backoff: fn(u32)) -> Shared {
        Shared {
            rows: Rows::new(&config),
            config,
            next: AtomicU64::new(1),
            visible_below: AtomicU64::new(1),
            inserted: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            exact: AtomicBool::new(true),
            backoff,
        }
    }

    /// Returns the inserted rows, and the bytes of their keys and values.
    pub(super) fn totals(&self) -> (u64, u64) {
        // Relaxed, as everywhere in this file where only the number matters.
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.inserted), of(&self.bytes))
    }

    /// Returns true if ids have no gaps.
    pub(super) fn is_exact(&self) -> bool {
        self.exact.load(Ordering::Relaxed)
    }

    /// Makes all inserted rows visible to queries. The caller ensures that no client inserts at
    /// this time.
    pub(super) fn publish(&self) {
        let next = self.next.load(Ordering::Relaxed);
        self.visible_below.store(next, Ordering::Release);
    }

    fn note_inserted(&self, rows: u64, bytes: u64) {
        self.inserted.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn bad_row(id: u64, there: bool) -> EngineError {
        EngineError::Wrong(if there {
            format!("row {id} of large has a value that was never written for it")
        } else {
            format!("row {id} of large is missing")
        })
    }
}

/// Client that inserts rows at the high end of the key range.
pub(super) struct Inserter {
    shared: Arc<Shared>,
    connection: Box<dyn TableConnection>,
    /// Upper bound (exclusive) of the ids to insert.
    end: u64,
    /// Rows of a transaction.
    batch_rows: u64,
    /// True if no other client inserts, so that rows become visible in order.
    alone: bool,
    batch: RowBatch,
    /// First id of the batch.
    first: u64,
    /// Bytes of the keys and values of the batch.
    bytes: u64,
}

impl Inserter {
    /// Creates a client that inserts until all ids below `end` are given out. `alone`: no other
    /// client inserts meanwhile.
    pub(super) fn new(
        shared: Arc<Shared>,
        connection: Box<dyn TableConnection>,
        end: u64,
        batch_rows: u64,
        alone: bool,
    ) -> Inserter {
        Inserter {
            shared,
            connection,
            end,
            batch_rows,
            alone,
            batch: RowBatch::new(COLUMNS),
            first: 0,
            bytes: 0,
        }
    }

    fn rows(&self) -> u64 {
        self.batch.len() as u64
    }

    /// Takes the ids of the next batch; `None` if none are left. If the queries end before a batch
    /// is executed, it is the last batch: no client inserts above it.
    fn take_ids(&self) -> Option<(u64, u64)> {
        let (end, most) = (self.end, self.batch_rows);
        let rows = |next: u64| end.saturating_sub(next).min(most);
        let take = |next| Some(next + rows(next)).filter(|after| *after > next);
        let first = self
            .shared
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .ok()?;
        Some((first, rows(first)))
    }
}

impl PhaseClient for Inserter {
    fn prepare(&mut self) -> Option<OpIndex> {
        let (first, rows) = self.take_ids()?;
        self.first = first;
        self.batch.clear();
        for id in first..first + rows {
            self.shared.rows.push(id, &mut self.batch);
        }
        self.bytes = rows * 8 + self.batch.value_bytes() as u64;
        Some(0)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        let (shared, rows) = (&*self.shared, self.rows());
        let inserted = retried(shared.backoff, rows, || {
            self.connection.insert(TABLE, &self.batch)
        });
        if inserted.is_err() {
            shared.exact.store(false, Ordering::Relaxed);
        }
        let done = inserted?;
        shared.note_inserted(rows, self.bytes);
        if self.alone {
            // Release: a thread that reads it also finds the rows.
            let below = self.first + rows;
            shared.visible_below.store(below, Ordering::Release);
        }
        Ok(Done {
            written_bytes: self.bytes,
            ..done
        })
    }
}

/// Queries of one client.
#[derive(Debug, Clone)]
pub struct Queries(Random);

impl Queries {
    /// Creates the queries that the seed and the number of the client determine.
    pub fn new(seed: u64, client: u64) -> Queries {
        Queries(Random::keyed(seed, &[QUERY_KEY, client]))
    }

    /// Draws an id below `end`.
    pub fn id(&mut self, end: u64) -> u64 {
        1 + self.0.below(end - 1)
    }
}

/// Client that queries random rows one by one and compares each with the expected value.
pub(super) struct Reader {
    pub(super) shared: Arc<Shared>,
    pub(super) connection: Box<dyn TableConnection>,
    pub(super) queries: Queries,
    /// True if answers are checked.
    pub(super) judges: bool,
    pub(super) id: u64,
    pub(super) key: RowBatch,
    /// Expected value of the queried row. It is generated before the query, so the timed part only
    /// compares bytes.
    pub(super) expected: Vec<u8>,
}

impl PhaseClient for Reader {
    fn prepare(&mut self) -> Option<OpIndex> {
        // Acquire pairs with the inserter's release.
        let end = self.shared.visible_below.load(Ordering::Acquire);
        if end < 2 {
            return None;
        }
        self.id = self.queries.id(end);
        self.key.clear();
        self.key.push(Value::Unsigned(self.id));
        self.expected.clear();
        self.shared.rows.append_value(self.id, &mut self.expected);
        Some(0)
    }

    fn execute(&mut self) -> Result<Done, EngineError> {
        let (id, expected) = (self.id, &self.expected);
        let (mut there, mut good) = (false, false);
        let ((), retries) = retried_with(self.shared.backoff, || {
            (there, good) = (false, false);
            self.connection.get(TABLE, &self.key, &mut |_, row| {
                if let Some(row) = row {
                    (there, good) = (true, Rows::is_row(id, expected, row));
                }
            })
        })?;
        if self.judges && !good && (there || self.shared.is_exact()) {
            return Err(Shared::bad_row(id, there));
        }
        Ok(Done {
            rows: u64::from(there),
            retries,
            ..Done::default()
        })
    }
}
