//! Division of the memory budget, including the block cache, which gets all unused memory.
//!
//! Memtables have a share that they fill and empty in waves. Tables, background work and
//! transactions take as much as they need. All of it is charged (see [`crate::memory`]), and the
//! cache has the rest at each moment, so that the sum stays constant. A thread that takes memory
//! does not wait for the cache to shrink: background threads trim it, and some room always stays
//! free for the growth of active memtables.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cache::{CACHE_BYTES_MIN, Cache};
use crate::db::options::{Options, TRANSACTION_BYTES_MAX};
use crate::db::shared::Shared;
use crate::keyspace::tree::Tree;
use crate::memory::Use;

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
    /// Decoded blocks in the cache, which has all memory left by the other uses.
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
    pub(super) fn of(cache: &Cache) -> MemoryUse {
        MemoryUse {
            memtable_bytes: cache.taken_bytes(Use::Memtables),
            cache_bytes: cache.used_bytes(),
            table_bytes: cache.taken_bytes(Use::Tables),
            job_bytes: cache.taken_bytes(Use::Jobs),
            transaction_bytes: cache.taken_bytes(Use::Writes),
            commit_bytes: cache.taken_bytes(Use::Commits),
            prepared_bytes: cache.taken_bytes(Use::Prepared),
        }
    }

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

impl MemoryPlan {
    /// Returns the plan of a database without open tables.
    pub fn new(options: &Options) -> MemoryPlan {
        MemoryPlan::of(options, options.memory_bytes, 0)
    }

    /// Returns the plan with open tables of `table_bytes`. The size of active memtables, and so of
    /// log segments, does not depend on them.
    fn of(options: &Options, memory_bytes: usize, table_bytes: usize) -> MemoryPlan {
        let active_bytes = options
            .memtable_bytes
            .unwrap_or_else(|| (memory_bytes / 32).clamp(1 << 20, 32 << 20));
        let write_bytes = |left: usize| (left / 4).clamp(4 << 20, 512 << 20).max(active_bytes * 4);
        MemoryPlan {
            memory_bytes,
            active_bytes,
            write_bytes: write_bytes(memory_bytes.saturating_sub(table_bytes)),
            flush_bytes: write_bytes(memory_bytes) / 2,
            transaction_bytes: options
                .transaction_bytes
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

impl Shared {
    /// Returns the current shares of the memory budget.
    pub fn plan(&self) -> MemoryPlan {
        let memory_bytes = self.memory_bytes.load(Ordering::Relaxed);
        let table_bytes = self.cache.taken_bytes(Use::Tables) as usize;
        MemoryPlan::of(&self.options, memory_bytes, table_bytes)
    }

    /// Changes the memory budget and wakes the threads that wait because of the old one.
    pub fn set_memory_bytes(&self, memory_bytes: usize) {
        self.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        let plan = self.plan();
        for tree in self.catalog.read().values() {
            tree.set_memtable_bytes(plan.active_bytes);
        }
        self.cache.set_total(plan.cache_total_bytes());
        self.cache.forget_peak();
        self.cache.trim();
        self.look_at_flushes();
        self.jobs.wake();
    }

    /// Returns true if any row is only in memory.
    pub fn has_memtables(&self) -> bool {
        let catalog = self.catalog.read();
        let has_rows = |tree: &Arc<Tree>| tree.load().has_memtable_rows();
        catalog.values().any(has_rows)
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
        let cache = Cache::new(plan.cache_total_bytes());
        let left = || cache.capacity_bytes() as usize / MIB;
        cache.take(Use::Memtables, 32 * MIB);
        cache.take(Use::Tables, 24 * MIB);
        assert_eq!(left(), 936);
        cache.take(Use::Memtables, 128 * MIB);
        assert_eq!(left(), 808);
        cache.take(Use::Memtables, plan.ceiling_bytes() - 128 * MIB);
        assert_eq!(left(), 424);
        cache.take(Use::Tables, 2000 * MIB);
        assert_eq!(left(), CACHE_BYTES_MIN / MIB);
        let half_for_tables = MemoryPlan::of(&Options::default(), 1024 * MIB, 512 * MIB);
        assert_eq!(half_for_tables.active_bytes, 32 * MIB);
        assert_eq!(half_for_tables.flush_bytes, 128 * MIB);
        assert_eq!(half_for_tables.ceiling_bytes(), 256 * MIB);
        let full_of_tables = MemoryPlan::of(&Options::default(), 64 * MIB, 80 * MIB);
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
