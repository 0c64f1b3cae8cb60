//! Block cache: the memory of decoded blocks, its account, and eviction. It has no hash table.
//!
//! Each table keeps its decoded blocks in slots of its own, one for each block, so a hit costs one
//! pointer load in addition to the fence search that a reader makes anyway. Only the memory is
//! shared: a miss asks for a frame, and the cache takes one from a slot that is less used. The
//! frames are pieces of slabs ([`pool`]), so nothing is allocated and freed while the mix of block
//! sizes stays.
//!
//! The capacity is the part of the memory budget that other uses leave: see [`crate::memory`]. It
//! changes at any time; later misses and [`Cache::trim`] return the slabs above it.
//!
//! A reader may still look at an evicted frame, so the frame first waits in a limbo, until no such
//! reader is left; see [`alluvium_mem::epoch`]. Its slab is counted throughout.
//!
//! Lock order: the pool's mutex is a leaf. It is taken only on misses, never on a hit.

mod classes;
mod pool;

use crate::memory::{MemoryBudget, Reclaim};
use crate::sync::{Mutex, THREAD_SHARDS, thread_shard};
// Counters that decide about evictions are part of the loom models; the other numbers are hints.
use crate::sync::atomic::AtomicU64 as DecidingU64;
use alluvium_mem::epoch::Readers;
use alluvium_mem::frames::{AnyFrame, Space};
use crossbeam_utils::CachePadded;
pub use pool::FrameOwner;
use pool::{Free, Pool};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Decoded blocks of all tables of a database, within a limit. Shared by `Arc`.
pub struct Cache {
    budget: Arc<MemoryBudget>,
    /// Bytes of slabs, and those without slabs that are being returned. Changed under the pool's
    /// mutex. Relaxed: the numbers order nothing.
    used: DecidingU64,
    staying: DecidingU64,
    pool: Mutex<Pool>,
    readers: Arc<Readers>,
    counters: [CachePadded<Counters>; THREAD_SHARDS],
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Attempts of a miss to get a frame. An attempt fails only if a cursor or value keeps the evicted
/// frame.
const CLAIMS_MAX: usize = 8;

/// Number of frames that a dropped table returns between two releases of the pool's mutex.
const RETURNED_AT_ONCE: usize = 64;

impl Cache {
    /// Creates a cache that takes the memory left by the other uses of a budget.
    pub fn new(budget: Arc<MemoryBudget>) -> Arc<Cache> {
        let readers = Readers::new();
        let cache = Arc::new(Cache {
            budget,
            used: DecidingU64::new(0),
            staying: DecidingU64::new(0),
            pool: Mutex::new(Pool::new(&readers)),
            readers,
            counters: std::array::from_fn(|_| CachePadded::default()),
        });
        let reclaim: Weak<dyn Reclaim> = Arc::downgrade(&cache) as Weak<dyn Reclaim>;
        cache.budget.set_cache(reclaim);
        cache
    }

    /// Creates a cache with a budget of its own, for tables outside of an open database.
    pub fn of_bytes(total_bytes: u64) -> Arc<Cache> {
        Cache::new(Arc::new(MemoryBudget::new(total_bytes)))
    }

    /// Returns the budget whose rest the cache takes.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Returns the readers of all frames.
    pub fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Returns the current maximum bytes of slabs.
    pub fn capacity_bytes(&self) -> u64 {
        self.budget.left_for_cache()
    }

    /// Frees slabs until the total is within the capacity. For background threads: it may take
    /// milliseconds.
    pub fn trim(&self) {
        self.trim_by(u64::MAX);
    }

    /// Does the same as [`Cache::trim`], but stops after about `bytes`: for a thread that has taken
    /// as much and should not evict for the memory of other threads.
    fn trim_by(&self, bytes: u64) {
        // Most calls find nothing to do, and a thread that loses its processor while it holds the
        // mutex delays every miss.
        if self.is_within() && self.used_bytes() == self.staying_bytes() {
            return;
        }
        let enough = self.staying_bytes().saturating_sub(bytes);
        // Ends: each round makes a slab leave, or frees what has left.
        loop {
            let is_enough = self.is_within() || self.staying_bytes() <= enough;
            let more = self.with_pool(|pool| (!is_enough && pool.shrink()) || pool.reclaim_all());
            if !more {
                return;
            }
        }
    }

    /// Returns true if the slabs are within the capacity, except those that wait for the last user
    /// of one of their frames.
    pub fn is_within(&self) -> bool {
        self.staying_bytes() <= self.capacity_bytes()
    }

    /// Returns the current bytes of slabs. A frame that a cursor or a pinned value keeps is counted
    /// with its slab.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn staying_bytes(&self) -> u64 {
        self.staying.load(Ordering::Relaxed)
    }

    /// Runs `work` under the pool's mutex. The slabs that the pool returns are freed without it.
    fn with_pool<T>(&self, work: impl FnOnce(&mut Pool) -> T) -> T {
        let mut pool = self.pool.lock();
        let result = work(&mut pool);
        self.used.store(pool.bytes(), Ordering::Relaxed);
        self.staying.store(pool.staying_bytes(), Ordering::Relaxed);
        let returned = pool.returned();
        drop(pool);
        drop(returned);
        result
    }

    /// Returns the number of lookups that found their block.
    pub fn hits(&self) -> u64 {
        let hits = self.counters.iter().map(|c| c.hits.load(Ordering::Relaxed));
        hits.sum()
    }

    /// Returns the number of lookups that had to read their block.
    pub fn misses(&self) -> u64 {
        let misses = self
            .counters
            .iter()
            .map(|c| c.misses.load(Ordering::Relaxed));
        misses.sum()
    }

    /// Counts a lookup that found its block.
    pub fn count_hit(&self) {
        self.shard().hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a lookup that did not find its block.
    pub fn count_miss(&self) {
        self.shard().misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Registers slots. Their frames are evicted through the result, which is a number.
    pub fn register(&self, owner: Arc<dyn FrameOwner>) -> u32 {
        self.pool.lock().register(owner)
    }

    /// Ends the registration of slots. The cache does not touch them any more.
    pub fn unregister(&self, owner: u32) {
        let owner = self.pool.lock().unregister(owner);
        drop(owner);
    }

    /// Returns a frame of at least `bytes` for a slot of a registered owner. `None` if the cache
    /// has none: it is too small, cursors and values keep its frames, or a reader that lost its
    /// processor in the middle of a read delays evicted ones.
    pub fn claim(&self, owner: u32, slot: u32, bytes: usize) -> Option<Space> {
        let capacity = self.capacity_bytes();
        for _ in 0..CLAIMS_MAX {
            let free = self.with_pool(|pool| pool.claim((owner, slot), bytes, capacity));
            // The memory of an evicted frame is touched without the mutex.
            let space = match free? {
                Free::Evicted(frame) => frame.into_space().ok(),
                Free::Idle(space) => Some(space),
            };
            if space.is_some() {
                return space;
            }
        }
        None
    }

    /// Takes back frames that their owner has removed from its slots, and that no reader holds
    /// without a reference.
    pub fn give_back(&self, frames: impl Iterator<Item = AnyFrame>) {
        let mut frames = frames
            .filter_map(|frame| Some((frame.place()?, frame)))
            .peekable();
        while frames.peek().is_some() {
            let some: Vec<_> = frames.by_ref().take(RETURNED_AT_ONCE).collect();
            self.with_pool(|pool| {
                for (place, frame) in some {
                    pool.list_free(place, Some(frame));
                }
            });
        }
    }

    /// Returns the number of free frames.
    #[cfg(test)]
    pub fn free_frames(&self) -> usize {
        self.with_pool(|pool| pool.free_frames())
    }

    fn shard(&self) -> &Counters {
        &self.counters[thread_shard()]
    }
}

impl Reclaim for Cache {
    fn reclaim(&self, bytes: u64) {
        self.trim_by(bytes);
    }

    fn reclaim_if_late(&self, bytes: u64, late: u64) {
        if self.staying_bytes() > self.capacity_bytes() + late {
            self.trim_by(bytes);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
