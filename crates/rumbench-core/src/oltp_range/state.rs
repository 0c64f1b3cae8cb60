//! Rows that must exist: the state of the tables, shared by all clients of a trial.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::config::Config;
use super::rows::{Found, Rows};
use crate::error::EngineError;
use crate::tables::{TableId, TableSchema};

/// State that all clients of a trial share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) schema: &'static TableSchema,
    pub(super) rows: Rows,
    pub(super) tables: Vec<TableState>,
    /// True if no write has failed, so that the effects of all statements are known.
    exact: AtomicBool,
    pub(super) backoff: fn(u32),
}

impl Shared {
    pub(super) fn new(config: Config, schema: &'static TableSchema, backoff: fn(u32)) -> Shared {
        let tables = (0..config.tables).map(|_| TableState::new(&config));
        Shared {
            rows: Rows::new(&config),
            schema,
            tables: tables.collect(),
            config,
            exact: AtomicBool::new(true),
            backoff,
        }
    }

    pub(super) fn name(&self, table: usize) -> &str {
        &self.schema.table(TableId(table)).name
    }

    pub(super) fn is_exact(&self) -> bool {
        // Relaxed, as for all counters below: clients of a step are joined before the next step
        // reads.
        self.exact.load(Ordering::Relaxed)
    }

    /// Records that a statement failed: its effect is unknown.
    pub(super) fn note_failure(&self) {
        self.exact.store(false, Ordering::Relaxed);
    }
}

/// State of one table.
pub(super) struct TableState {
    rows: u64,
    /// One bit for each loaded row, set before the row is deleted.
    gone: Vec<AtomicU64>,
    /// Number of rows inserted by each client. Client c of n inserts every n-th id above the load,
    /// so an id that was prepared but not executed leaves no gap.
    inserted: Vec<AtomicU64>,
    /// Number of updates of k that began.
    adds_begun: AtomicU64,
    pub(super) adds: AtomicU64,
    /// True if rows were deleted: the additions to their k are lost.
    pub(super) adds_lost: AtomicBool,
}

impl TableState {
    fn new(config: &Config) -> TableState {
        let zeros = |count: u64| (0..count).map(|_| AtomicU64::new(0)).collect();
        TableState {
            rows: config.rows,
            gone: zeros(config.rows / 64 + 1),
            inserted: zeros(u64::from(config.clients)),
            adds_begun: AtomicU64::new(0),
            adds: AtomicU64::new(0),
            adds_lost: AtomicBool::new(false),
        }
    }

    /// Returns the memory of the rows' bits in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val(&self.gone[..]) as u64
    }

    fn bit(&self, id: u64) -> (&AtomicU64, u64) {
        (&self.gone[(id / 64) as usize], 1 << (id % 64))
    }

    /// Returns true if a loaded row was deleted.
    pub(super) fn is_gone(&self, id: u64) -> bool {
        let (word, bit) = self.bit(id);
        word.load(Ordering::Acquire) & bit != 0
    }

    /// Records that a loaded row is about to be deleted. Returns true if it was gone already.
    pub(super) fn note_gone(&self, id: u64) -> bool {
        let (word, bit) = self.bit(id);
        word.fetch_or(bit, Ordering::AcqRel) & bit != 0
    }

    /// Records that a loaded row was inserted again.
    pub(super) fn note_back(&self, id: u64) {
        let (word, bit) = self.bit(id);
        word.fetch_and(!bit, Ordering::AcqRel);
    }

    /// Returns the id of a client's next insert.
    pub(super) fn next_insert(&self, client: usize) -> u64 {
        let count = self.inserted[client].load(Ordering::Relaxed);
        self.rows + 1 + count * self.inserted.len() as u64 + client as u64
    }

    pub(super) fn note_inserted(&self, client: usize) {
        self.inserted[client].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_add_begun(&self) {
        self.adds_begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_added(&self, there: bool) {
        self.adds.fetch_add(u64::from(there), Ordering::Relaxed);
    }

    /// Returns true if the row exists.
    pub(super) fn has(&self, id: u64) -> bool {
        if (1..=self.rows).contains(&id) {
            return !self.is_gone(id);
        }
        let Some(above) = id.checked_sub(self.rows + 1) else {
            return false;
        };
        let clients = self.inserted.len() as u64;
        let inserted = &self.inserted[(above % clients) as usize];
        above / clients < inserted.load(Ordering::Relaxed)
    }

    /// Returns the number of rows that exist from one id up to (not including) another.
    pub(super) fn count(&self, from: u64, to: u64) -> u64 {
        (from..to).filter(|id| self.has(*id)).count() as u64
    }

    /// Returns the number of all rows that exist.
    pub(super) fn count_all(&self) -> u64 {
        let gone: u64 = self
            .gone
            .iter()
            .map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()))
            .sum();
        let inserted = self.inserted.iter();
        let inserted: u64 = inserted.map(|count| count.load(Ordering::Relaxed)).sum();
        self.rows + inserted - gone
    }

    /// Returns true if the recorded updates can explain the value of k.
    pub(super) fn could_be(&self, found: Found) -> bool {
        found.k - found.inserted_k <= self.adds_begun.load(Ordering::Relaxed)
    }
}

pub(super) fn wrong(message: String) -> EngineError {
    EngineError::Wrong(message)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn table_state_tracks_inserts_and_deletes() {
        let pairs = [("rows", "100"), ("clients", "3")];
        let table = TableState::new(&Config::from_pairs(pairs).unwrap());
        assert_eq!((table.count_all(), table.count(95, 110)), (100, 6));
        assert!(!table.note_gone(97) && table.note_gone(97));
        assert_eq!((table.count_all(), table.count(95, 110)), (99, 5));
        table.note_back(97);
        assert_eq!((table.next_insert(0), table.next_insert(2)), (101, 103));
        table.note_inserted(2);
        assert_eq!(table.next_insert(2), 106);
        let there: Vec<u64> = (98..120).filter(|id| table.has(*id)).collect();
        assert_eq!(there, [98, 99, 100, 103]);
        assert!(!table.has(0));
        assert_eq!(table.count_all(), 101);
    }
}
