//! The clients of large values: who inserts rows, and who asks for them. What they share says which rows must be there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::config::Config;
use super::rows::{COLUMNS, Rows, TABLE};
use crate::engine::EngineError;
use crate::random::Random;
use crate::retry::{retried, retried_with};
use crate::tables::{RowBatch, TableConnection, Value};
use crate::trial::{Done, OpIndex, PhaseClient};

/// Operations of inserts.
pub(super) const INSERT_OPERATIONS: &[&str] = &["INSERT"];
/// Operations of queries.
pub(super) const QUERY_OPERATIONS: &[&str] = &["GET"];
/// What the generators of queries are keyed with.
const QUERY_KEY: u64 = 0x6c67_6574;

/// What all clients of a trial share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) rows: Rows,
    /// The id that is given out next; the first is 1.
    next: AtomicU64,
    /// Every row below can be read, as far as ids have no gaps.
    visible_below: AtomicU64,
    /// Rows inserted.
    inserted: AtomicU64,
    /// Their keys and values.
    bytes: AtomicU64,
    /// Ids have no gaps: no insert has failed.
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

    /// Rows inserted, and the bytes of their keys and values.
    pub(super) fn totals(&self) -> (u64, u64) {
        // Relaxed here and below where only the number matters.
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.inserted), of(&self.bytes))
    }

    /// Whether ids have no gaps.
    pub(super) fn is_exact(&self) -> bool {
        self.exact.load(Ordering::Relaxed)
    }

    /// All rows that were inserted can be read from now on: nobody inserts at the moment.
    pub(super) fn publish(&self) {
        let next = self.next.load(Ordering::Relaxed);
        self.visible_below.store(next, Ordering::Release);
    }

    fn note_inserted(&self, rows: u64, bytes: u64) {
        self.inserted.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn bad_row(id: u64, there: bool) -> EngineError {
        EngineError::Wrong(match there {
            true => format!("row {id} of large has a value that nobody wrote for it"),
            false => format!("row {id} of large is missing"),
        })
    }
}

/// Inserts rows at the high end of the key.
pub(super) struct Inserter {
    shared: Arc<Shared>,
    connection: Box<dyn TableConnection>,
    /// Inserts end below this id.
    end: u64,
    /// Rows of a transaction.
    batch_rows: u64,
    /// Nobody else inserts: its rows become visible in order.
    alone: bool,
    batch: RowBatch,
    /// First id of the batch.
    first: u64,
    /// Bytes of keys and values of the batch.
    bytes: u64,
}

impl Inserter {
    /// Inserts until all ids below `end` are given out. `alone` says that no other client inserts meanwhile.
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

    /// Takes the ids of the next batch; `None`: there are no more. Those of a batch that the end of the queries leaves
    /// without execution were the last: nobody inserts above them.
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
            // Release: who reads it then also finds the rows.
            let below = self.first + rows;
            shared.visible_below.store(below, Ordering::Release);
        }
        Ok(Done {
            written_bytes: self.bytes,
            ..done
        })
    }
}

/// The queries of one client.
#[derive(Debug, Clone)]
pub struct Queries(Random);

impl Queries {
    /// Follows from the seed and the number of the client.
    pub fn new(seed: u64, client: u64) -> Queries {
        Queries(Random::keyed(seed, &[QUERY_KEY, client]))
    }

    /// An id below `end`.
    pub fn id(&mut self, end: u64) -> u64 {
        1 + self.0.below(end - 1)
    }
}

/// Asks for one random row after the other, and compares it.
pub(super) struct Reader {
    pub(super) shared: Arc<Shared>,
    pub(super) connection: Box<dyn TableConnection>,
    pub(super) queries: Queries,
    /// Whether answers can be judged.
    pub(super) judges: bool,
    pub(super) id: u64,
    pub(super) key: RowBatch,
    /// The value of the row that is asked for: made before the query, so that what is timed is a comparison of bytes.
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
