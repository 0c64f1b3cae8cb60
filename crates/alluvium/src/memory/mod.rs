//! Memory budget of a database: an account for each use, and the rest for the block cache.
//!
//! The block cache has the bytes that all other uses leave, so each change of an account changes
//! the cache's capacity. A change only sets a number: later reads and background threads free the
//! slabs above the capacity. Memtables and open tables charge themselves exactly, for as long as
//! any reference to them exists. Other uses go through a [`Charge`], which follows their bytes in
//! steps: less than a step is never counted, and no row touches an atomic shared with other
//! threads.
//!
//! Accounts cover allocated memory, unused capacity included, as far as the engine can count it.
//! The remainder is the allocator's (see `docs/guide/keyspaces.md`), stacks, and the
//! buffers of up to 32 idle readers.

mod charge;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};

pub use charge::{CHARGE_STEP, Charge};

/// Use of memory other than cached blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Memtables with their filters and range deletes, from their creation until the last reference
    /// is dropped.
    Memtables,
    /// Open tables: fences, filters, range deletes, properties and the cache's slots; and dead
    /// intervals of keyspaces.
    Tables,
    /// Buffers of flushes, compactions, ingests and bulk loads.
    Jobs,
    /// Writes and locks of open transactions.
    Writes,
    /// Batches and commits in progress: the operations, and the log's copy of them.
    Commits,
    /// Prepared transactions.
    Prepared,
}

impl Use {
    /// All uses, in the order of their numbers.
    pub const ALL: [Use; 6] = [
        Use::Memtables,
        Use::Tables,
        Use::Jobs,
        Use::Writes,
        Use::Commits,
        Use::Prepared,
    ];
}

/// Memory that can be freed at any time: the block cache.
pub trait Reclaim: Send + Sync {
    /// Frees about `bytes`, unless its memory is within [`MemoryBudget::left_for_cache`].
    fn reclaim(&self, bytes: u64);

    /// Does the same as [`Reclaim::reclaim`] for a foreground thread: only if the memory exceeds
    /// its limit by more than `late` bytes.
    fn reclaim_if_late(&self, bytes: u64, late: u64);
}

/// Accounts of a database's memory. Shared by `Arc`.
pub struct MemoryBudget {
    /// Maximum bytes of all uses and the cache together.
    total: AtomicU64,
    /// Bytes of each use. Relaxed, as all numbers here: they order nothing.
    used: [AtomicU64; Use::ALL.len()],
    /// The cache, once it exists.
    cache: OnceLock<Weak<dyn Reclaim>>,
}

/// Minimum bytes of the cache. Without any cache every read decodes a block, so the memory budget
/// is exceeded instead.
pub const CACHE_BYTES_MIN: usize = 1 << 20;

/// Divisor of the total: excess of the cache up to this fraction is left to the background threads.
const OVERDUE: u64 = 64;

impl MemoryBudget {
    /// Creates a budget of `total_bytes` without uses.
    pub fn new(total_bytes: u64) -> MemoryBudget {
        MemoryBudget {
            total: AtomicU64::new(total_bytes),
            used: std::array::from_fn(|_| AtomicU64::new(0)),
            cache: OnceLock::new(),
        }
    }

    /// Names the cache that gives memory back to other uses. Only the first call has an effect.
    pub fn set_cache(&self, cache: Weak<dyn Reclaim>) {
        let _ = self.cache.set(cache);
    }

    /// Changes the maximum bytes of all uses and the cache together. Evicts nothing by itself.
    pub fn set_total(&self, total_bytes: u64) {
        self.total.store(total_bytes, Ordering::Relaxed);
    }

    /// Returns the current maximum bytes of the cache: the bytes that all uses leave, but at least
    /// [`CACHE_BYTES_MIN`].
    ///
    /// Uses grow and shrink in waves, as memtables fill and are flushed. The cache follows both
    /// ways at once: a wave evicts the blocks that were used the longest time ago, and those that
    /// fill its place afterwards are hit until the next one.
    pub fn left_for_cache(&self) -> u64 {
        let total = self.total.load(Ordering::Relaxed);
        let least = total.min(CACHE_BYTES_MIN as u64);
        let used: u64 = self.used.iter().map(|t| t.load(Ordering::Relaxed)).sum();
        total.saturating_sub(used).max(least)
    }

    /// Adds `bytes` to a use.
    pub fn add(&self, what: Use, bytes: usize) {
        self.used[what as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Adds `bytes` to a use and evicts as many from the cache if it is above its limit.
    pub fn add_and_reclaim(&self, what: Use, bytes: usize) {
        self.add(what, bytes);
        if let Some(cache) = self.cache() {
            cache.reclaim(bytes as u64);
        }
    }

    /// Does the same as [`MemoryBudget::add`] for foreground threads: evicts only if the cache
    /// exceeds its limit by more than a 64th of the total, because background threads trim too
    /// slowly. Then it evicts twice as many bytes as are added, to catch up: one or two
    /// slabs for a chunk of a memtable.
    pub fn add_and_help(&self, what: Use, bytes: usize) {
        self.add(what, bytes);
        let late = self.total.load(Ordering::Relaxed) / OVERDUE;
        if let Some(cache) = self.cache() {
            cache.reclaim_if_late(2 * bytes as u64, late);
        }
    }

    fn cache(&self) -> Option<std::sync::Arc<dyn Reclaim>> {
        self.cache.get().and_then(Weak::upgrade)
    }

    /// Subtracts `bytes` from a use.
    pub fn subtract(&self, what: Use, bytes: usize) {
        self.used[what as usize].fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the current bytes of a use.
    pub fn bytes(&self, what: Use) -> u64 {
        self.used[what as usize].load(Ordering::Relaxed)
    }
}
