//! Division of the memory budget, including the block cache, which gets all unused memory.
//!
//! Memtables have a share that they fill and empty in waves. Tables, background work and
//! transactions take as much as they need. All of it is charged (see [`crate::memory`]), and the
//! cache has the rest at each moment, so that the sum stays constant. A thread that takes memory
//! seldom waits for the cache to shrink: background threads trim it. A commit evicts blocks only
//! when the cache is well over its share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cache::Cache;
use crate::db::options::{Options, TRANSACTION_BYTES_MAX};
use crate::error::{Error, Result};
use crate::memory::{CACHE_BYTES_MIN, CHARGE_STEP, Charge, MemoryBudget, Use};

/// Memory of an open database: the accounts of all uses, the cache, and the plan that divides the
/// budget.
pub(crate) struct Memory {
    pub budget: Arc<MemoryBudget>,
    pub cache: Arc<Cache>,
    /// Memory budget in bytes. Relaxed: a thread that reads a stale value uses the old budget once
    /// more.
    memory_bytes: AtomicUsize,
    /// As in [`Options`].
    memtable_bytes: Option<usize>,
    transaction_bytes: Option<usize>,
}

/// Shares of the memory budget, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// The memory budget.
    pub memory_bytes: usize,
    /// Size at which active memtables are sealed.
    pub active_bytes: usize,
    /// Limit for active and sealed memtables together: a quarter of the memory that open tables
    /// leave. Sealed memtables above it slow writers down.
    pub write_bytes: usize,
    /// Sealed bytes at which memtables are flushed together: larger flushes need fewer compactions
    /// later. Half of the limit for memtables in a database without tables.
    pub flush_bytes: usize,
    /// Limit for the writes of one transaction or batch.
    pub transaction_bytes: usize,
}

/// Smallest result of [`MemoryPlan::fresh_bytes`]: sealing for less is not worthwhile, however
/// small memtables are configured.
const FRESH_BYTES_MIN: usize = 1 << 20;

/// Use of the memory budget, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Memtables with their filters and range deletes: active ones, sealed ones waiting for their
    /// flush, and those kept by open cursors.
    pub memtable_bytes: u64,
    /// Memory of the block cache, free frames included. It has all memory left by the other uses.
    pub cache_bytes: u64,
    /// Fences, filters, range deletes and other metadata of open tables.
    pub table_bytes: u64,
    /// Buffers of flushes, compactions, ingests and bulk loads.
    pub job_bytes: u64,
    /// Writes and locks of open transactions; those below 64 KiB are not counted.
    pub transaction_bytes: u64,
    /// Batches and commits in progress, with the log's copies; those below 64 KiB are not counted.
    pub commit_bytes: u64,
    /// Prepared transactions.
    pub prepared_bytes: u64,
}

impl MemoryUse {
    /// Returns the sum of all uses, to be compared with [`Options::memory_bytes`].
    pub fn total(&self) -> u64 {
        self.memtable_bytes
            + self.cache_bytes
            + self.table_bytes
            + self.job_bytes
            + self.transaction_bytes
            + self.commit_bytes
            + self.prepared_bytes
    }
}

/// [`Options::memtable_bytes`] and [`Options::transaction_bytes`].
type Sizes = (Option<usize>, Option<usize>);

impl MemoryPlan {
    /// Returns the plan of a database without open tables.
    pub fn new(options: &Options) -> MemoryPlan {
        let sizes = (options.memtable_bytes, options.transaction_bytes);
        MemoryPlan::of(sizes, options.memory_bytes, 0)
    }

    /// Returns the plan with open tables of `table_bytes`. The size of active memtables, and so of
    /// log segments, does not depend on them.
    fn of(sizes: Sizes, memory_bytes: usize, table_bytes: usize) -> MemoryPlan {
        let (memtable_bytes, transaction_bytes) = sizes;
        let active_bytes =
            memtable_bytes.unwrap_or_else(|| (memory_bytes / 32).clamp(1 << 20, 32 << 20));
        let write_bytes = |left: usize| (left / 4).clamp(4 << 20, 512 << 20).max(active_bytes * 4);
        MemoryPlan {
            memory_bytes,
            active_bytes,
            write_bytes: write_bytes(memory_bytes.saturating_sub(table_bytes)),
            flush_bytes: write_bytes(memory_bytes) / 2,
            transaction_bytes: transaction_bytes
                .unwrap_or(memory_bytes / 4)
                .min(TRANSACTION_BYTES_MAX),
        }
    }

    /// Returns the limit for all prepared transactions together.
    pub fn prepared_bytes(&self) -> usize {
        self.transaction_bytes.saturating_mul(4)
    }

    /// Returns the length of a log segment: two generations, so that a full generation does not
    /// wait for its flush.
    pub fn segment_bytes(&self) -> u64 {
        (2 * self.active_bytes as u64).max(1 << 20)
    }

    /// Returns the active bytes above which sealing may help scans: a table costs a scan the same
    /// whatever its size.
    pub fn worth_sealing_bytes(&self) -> usize {
        self.active_bytes / 4
    }

    /// Returns the total size of empty memtables, one for each written keyspace, at which they are
    /// sealed however little was written.
    pub fn fresh_bytes(&self) -> usize {
        self.active_bytes.max(FRESH_BYTES_MIN)
    }

    /// Returns the sealed bytes at which commits wait for a flush: half of the memory left by open
    /// tables. The other half is for the tables that the flush makes, active memtables and jobs.
    /// Admission control makes the ceiling unreachable in practice.
    pub fn ceiling_bytes(&self) -> usize {
        self.write_bytes * 2
    }

    /// Returns the limit for all open transactions together, see [`Options::transaction_bytes`].
    pub fn open_transactions_bytes(&self) -> usize {
        self.transaction_bytes.max(self.memory_bytes / 2)
    }

    /// Returns the limit for the cache and everything that is charged to it. The rest is for the
    /// active generation of memtables, which may grow while no thread trims the cache.
    pub fn cache_total_bytes(&self) -> u64 {
        let left = self.memory_bytes.saturating_sub(self.active_bytes);
        left.max(CACHE_BYTES_MIN) as u64
    }
}

impl Memory {
    /// Creates the memory of a database with these options, without uses.
    pub fn new(options: &Options) -> Memory {
        let total = MemoryPlan::new(options).cache_total_bytes();
        let budget = Arc::new(MemoryBudget::new(total));
        Memory {
            cache: Cache::new(Arc::clone(&budget)),
            budget,
            memory_bytes: AtomicUsize::new(options.memory_bytes),
            memtable_bytes: options.memtable_bytes,
            transaction_bytes: options.transaction_bytes,
        }
    }

    /// Returns the current shares of the memory budget.
    pub fn plan(&self) -> MemoryPlan {
        let memory_bytes = self.memory_bytes.load(Ordering::Relaxed);
        let table_bytes = self.budget.bytes(Use::Tables) as usize;
        let sizes = (self.memtable_bytes, self.transaction_bytes);
        MemoryPlan::of(sizes, memory_bytes, table_bytes)
    }

    /// Changes the memory budget and shrinks the cache to it.
    pub fn set_bytes(&self, memory_bytes: usize) {
        self.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        self.budget.set_total(self.plan().cache_total_bytes());
        self.cache.trim();
    }

    /// Charges constant `bytes` until the result is dropped; `None` for less than a step.
    pub fn charge(&self, what: Use, bytes: usize) -> Option<Charge> {
        Charge::of(&self.budget, what, bytes)
    }

    /// Refuses a commit above the limit for one transaction.
    pub fn check_commit_bytes(&self, bytes: usize) -> Result<()> {
        let limit = self.plan().transaction_bytes;
        if bytes > limit {
            Err(Error::TransactionTooLarge { bytes, limit })
        } else {
            Ok(())
        }
    }

    /// Refuses a write of a transaction that already takes `held` bytes, if open transactions
    /// together would exceed their limit. Transactions that are too small to be counted are never
    /// refused.
    pub fn check_open_transactions(&self, held: usize, more: usize) -> Result<()> {
        if held < CHARGE_STEP {
            return Ok(());
        }
        let bytes = self.budget.bytes(Use::Writes) as usize + more;
        let limit = self.plan().open_transactions_bytes();
        if bytes > limit {
            Err(Error::TransactionTooLarge { bytes, limit })
        } else {
            Ok(())
        }
    }

    /// Returns the bytes of all uses.
    pub fn in_use(&self) -> MemoryUse {
        let bytes = |what| self.budget.bytes(what);
        MemoryUse {
            memtable_bytes: bytes(Use::Memtables),
            cache_bytes: self.cache.used_bytes(),
            table_bytes: bytes(Use::Tables),
            job_bytes: bytes(Use::Jobs),
            transaction_bytes: bytes(Use::Writes),
            commit_bytes: bytes(Use::Commits),
            prepared_bytes: bytes(Use::Prepared),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_cache_has_what_memtables_and_tables_leave() {
        let plan = MemoryPlan::new(&Options {
            memory_bytes: 1024 * MIB,
            ..Options::default()
        });
        assert_eq!(plan.active_bytes, 32 * MIB);
        assert_eq!(plan.flush_bytes, 128 * MIB);
        let budget = MemoryBudget::new(plan.cache_total_bytes());
        let left = || budget.left_for_cache() as usize / MIB;
        budget.add(Use::Memtables, 32 * MIB);
        budget.add(Use::Tables, 24 * MIB);
        assert_eq!(left(), 936);
        budget.add(Use::Memtables, 128 * MIB);
        assert_eq!(left(), 808);
        budget.add(Use::Memtables, plan.ceiling_bytes() - 128 * MIB);
        assert_eq!(left(), 424);
        budget.add(Use::Tables, 2000 * MIB);
        assert_eq!(left(), CACHE_BYTES_MIN / MIB);
        let half_for_tables = MemoryPlan::of((None, None), 1024 * MIB, 512 * MIB);
        assert_eq!(half_for_tables.active_bytes, 32 * MIB);
        assert_eq!(half_for_tables.flush_bytes, 128 * MIB);
        assert_eq!(half_for_tables.ceiling_bytes(), 256 * MIB);
        let full_of_tables = MemoryPlan::of((None, None), 64 * MIB, 80 * MIB);
        assert_eq!(full_of_tables.active_bytes, 2 * MIB);
        assert_eq!(full_of_tables.ceiling_bytes(), 16 * MIB);
        let all_for_memtables = MemoryPlan::new(&Options {
            memory_bytes: 64 * MIB,
            memtable_bytes: Some(64 * MIB),
            ..Options::default()
        });
        let total = all_for_memtables.cache_total_bytes();
        assert_eq!(total, CACHE_BYTES_MIN as u64);
    }
}
