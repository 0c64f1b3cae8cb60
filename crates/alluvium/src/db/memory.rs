//! The memory number: how it is divided, and the cache that gets what the rest does not use.
//!
//! Memtables have a reserved share that they fill and empty in waves. The cache has what they leave at each moment:
//! it is told when a generation is sealed and when one is in tables. Above their share, up to the ceiling, memtables
//! take from the cache too, so that the sum stays.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::db::options::{Options, TRANSACTION_BYTES_MAX};
use crate::db::shared::Shared;
use crate::keyspace::tree::Tree;

/// Shares of the memory number, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// The memory number itself.
    pub memory_bytes: usize,
    /// Active memtables are sealed at this size.
    pub active_bytes: usize,
    /// Active and sealed memtables together; a flush starts at half of it.
    pub write_bytes: usize,
    /// What the writes of one transaction or batch may take.
    pub transaction_bytes: usize,
}

/// Without any cache every read decodes a block: the memory number is exceeded rather than that.
pub(crate) const CACHE_BYTES_MIN: usize = 1 << 20;

impl MemoryPlan {
    /// Pure, so that tests can show it.
    pub fn new(options: &Options) -> MemoryPlan {
        MemoryPlan::of(options, options.memory_bytes)
    }

    fn of(options: &Options, memory_bytes: usize) -> MemoryPlan {
        let write_bytes = (memory_bytes / 4).clamp(4 << 20, 512 << 20);
        let active_bytes = options
            .memtable_bytes
            .unwrap_or_else(|| (write_bytes / 8).clamp(1 << 20, 32 << 20));
        MemoryPlan {
            memory_bytes,
            active_bytes,
            write_bytes: write_bytes.max(active_bytes * 4),
            transaction_bytes: options
                .transaction_bytes
                .unwrap_or(memory_bytes / 4)
                .min(TRANSACTION_BYTES_MAX),
        }
    }

    /// What all prepared transactions together may take.
    pub fn prepared_bytes(&self) -> usize {
        self.transaction_bytes.saturating_mul(4)
    }

    /// Length of a log segment: two generations, so that one that is filled does not wait for its flush.
    pub fn segment_bytes(&self) -> u64 {
        (2 * self.active_bytes as u64).max(1 << 20)
    }

    /// Sealed bytes at which they are merged into one flush: large flush units are merged less often later.
    pub fn flush_bytes(&self) -> usize {
        self.write_bytes / 2
    }

    /// The ceiling at which commits wait for a flush. Admission control makes it unreachable in practice.
    pub fn ceiling_bytes(&self) -> usize {
        self.write_bytes * 2
    }

    /// What the cache may hold beside `sealed_bytes` of memtables that wait for their flush, an active generation
    /// and the next one, and `resident_bytes` of fences and filters.
    pub fn cache_bytes(&self, sealed_bytes: usize, resident_bytes: usize) -> usize {
        let taken = sealed_bytes + 2 * self.active_bytes + resident_bytes;
        self.memory_bytes.saturating_sub(taken).max(CACHE_BYTES_MIN)
    }
}

impl Shared {
    /// The shares of the memory number of the moment.
    pub fn plan(&self) -> MemoryPlan {
        let memory_bytes = self.memory_bytes.load(Ordering::Relaxed);
        MemoryPlan::of(&self.options, memory_bytes)
    }

    /// Changes the memory number; whoever waits by the old one looks again.
    pub fn set_memory_bytes(&self, memory_bytes: usize) {
        self.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        let active_bytes = self.plan().active_bytes;
        for tree in self.catalog.read().values() {
            tree.set_memtable_bytes(active_bytes);
        }
        self.fit_cache();
        self.cache.trim();
        self.look_at_flushes();
        self.jobs.wake();
    }

    /// Learns what fences and filters of all tables take.
    pub fn note_resident_bytes(&self, bytes: usize) {
        self.resident_bytes.store(bytes, Ordering::Relaxed);
        self.fit_cache();
    }

    /// Whether any row is in memory only.
    pub fn has_memtables(&self) -> bool {
        let catalog = self.catalog.read();
        let empty = |tree: &Arc<Tree>| {
            let state = tree.load();
            state.sealed.is_empty() && state.active.is_empty()
        };
        !catalog.values().all(empty)
    }

    /// Gives the cache what is left at the moment. Cheap: the cache makes room later.
    pub fn fit_cache(&self) {
        let resident_bytes = self.resident_bytes.load(Ordering::Relaxed);
        let bytes = self.plan().cache_bytes(self.sealed_bytes(), resident_bytes);
        self.cache.set_capacity(bytes as u64);
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
        assert_eq!(plan.flush_bytes(), 128 * MIB);
        assert_eq!(plan.cache_bytes(0, 24 * MIB), 936 * MIB);
        assert_eq!(plan.cache_bytes(128 * MIB, 24 * MIB), 808 * MIB);
        assert_eq!(plan.cache_bytes(plan.ceiling_bytes(), 24 * MIB), 424 * MIB);
        assert_eq!(plan.cache_bytes(0, 2000 * MIB), CACHE_BYTES_MIN);
    }
}
