//! Block cache: byte accounting and eviction. It has no hash table, because it stores nothing.
//!
//! Each table keeps its decoded blocks in slots of its own, one for each block, so a hit costs one
//! pointer load in addition to the fence search that a reader makes anyway. Only the memory is
//! shared: an owner charges the frames that it installs, and the cache asks owners to evict frames,
//! in CLOCK order, until the total is within the capacity.
//!
//! The capacity is the part of the memory budget that other uses leave: see [`crate::memory`]. It
//! changes at any time; later charges and [`Cache::trim`] evict the frames above it.
//!
//! Lock order: the ring's mutex is a leaf. It is taken only on misses, never on a hit, and nothing
//! is freed under it.

use crate::memory::{MemoryBudget, Reclaim};
use crate::sync::{Mutex, MutexGuard};
// Counters that decide about evictions are part of the loom models; the other numbers are hints.
use crate::sync::atomic::AtomicU64 as DecidingU64;
use crossbeam_utils::CachePadded;
use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Owner of frames that the cache may ask to evict.
pub trait FrameOwner: Send + Sync {
    /// Lowers the use count of a frame, or evicts the frame if the count is 0.
    fn try_evict(&self, frame: u32) -> Eviction;
}

/// Result of an eviction request.
pub enum Eviction {
    /// The frame was used since the last request, and stays for now.
    Kept,
    /// The charge for this many bytes is released. The frame's memory, if any was left, is returned
    /// to be freed or reused without a lock.
    Evicted(u64, Option<Evicted>),
}

/// Memory of a frame.
pub trait FrameMemory: Any + Send + Sync {
    /// Frees the memory, to the operating system as far as possible, unless another reference
    /// exists. No new frame replaces it.
    fn give_back(self: Arc<Self>);
}

/// Memory of an evicted frame.
pub type Evicted = Arc<dyn FrameMemory>;

/// Decoded blocks of all tables of a database, within a limit. Shared by `Arc`.
pub struct Cache {
    budget: Arc<MemoryBudget>,
    /// Bytes of frames. Relaxed: the number orders nothing.
    used: DecidingU64,
    /// Guards the CLOCK order. Every installed frame with a live owner has exactly one entry.
    ring: Mutex<VecDeque<RingEntry>>,
    counters: [CachePadded<Counters>; COUNTER_SHARDS],
}

struct RingEntry {
    owner: Weak<dyn FrameOwner>,
    frame: u32,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Large enough that threads on different cores rarely share a counter's cache line.
pub const COUNTER_SHARDS: usize = 16;

/// A frame with a saturated use count (3) is evicted at the fourth request, so this many rounds
/// always free something.
const ROUNDS_MAX: usize = 4;

/// Maximum number of frames that one charge evicts: more than it adds, to reach a lowered capacity,
/// and few enough for a single read.
const EVICTIONS_PER_CHARGE: usize = 8;

/// Number of frames that [`Cache::trim`] evicts between two releases of the ring's mutex.
const EVICTIONS_PER_TRIM_STEP: usize = 64;

impl Cache {
    /// Creates a cache that takes the memory left by the other uses of a budget.
    pub fn new(budget: Arc<MemoryBudget>) -> Arc<Cache> {
        let cache = Arc::new(Cache {
            budget,
            used: DecidingU64::new(0),
            ring: Mutex::new(VecDeque::new()),
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

    /// Returns the current maximum bytes of frames.
    pub fn capacity_bytes(&self) -> u64 {
        self.budget.left_for_cache()
    }

    /// Evicts frames until the total is within the capacity. For background threads: it may take
    /// milliseconds.
    pub fn trim(&self) {
        self.trim_by(u64::MAX);
    }

    /// Does the same as [`Cache::trim`], but stops after about `bytes`: for a thread that has taken
    /// as much and should not evict for the memory of other threads.
    fn trim_by(&self, bytes: u64) {
        let enough = self.used_bytes().saturating_sub(bytes);
        // Terminates: each step evicts frames, or finds none to evict.
        while !self.is_within() && self.used_bytes() > enough {
            let evicted = self.evict(self.ring.lock(), EVICTIONS_PER_TRIM_STEP);
            if evicted.is_empty() {
                return;
            }
            evicted.into_iter().for_each(FrameMemory::give_back);
        }
    }

    /// Returns true if frames are within the capacity.
    pub fn is_within(&self) -> bool {
        self.used_bytes() <= self.capacity_bytes()
    }

    /// Returns the current bytes of frames. A block that a reader still holds after its eviction is
    /// not counted.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
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

    /// Takes over the eviction of a frame that `owner` has just installed, and makes room. Returns
    /// the evicted memory for the caller to reuse.
    ///
    /// Called once for each installed frame, after it is in place, so that an eviction always finds
    /// it.
    pub fn charge(&self, bytes: u64, owner: Weak<dyn FrameOwner>, frame: u32) -> Vec<Evicted> {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.budget.lower_peak(bytes);
        let mut ring = self.ring.lock();
        ring.push_back(RingEntry { owner, frame });
        // Dropped tables leave their entries in the ring. Checking two for each added entry keeps
        // them few, even if the cache never fills up and eviction never runs.
        for _ in 0..2 {
            if let Some(entry) = ring.pop_front()
                && entry.owner.strong_count() > 0
            {
                ring.push_back(entry);
            }
        }
        self.evict(ring, EVICTIONS_PER_CHARGE)
    }

    /// Releases the bytes of frames that their owner has dropped by itself.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Evicts up to `frames_max` frames, until the total is within the capacity.
    fn evict(
        &self,
        mut ring: MutexGuard<'_, VecDeque<RingEntry>>,
        frames_max: usize,
    ) -> Vec<Evicted> {
        let mut evicted = Vec::new();
        let mut unowned = Vec::new();
        let steps_max = ring.len() * ROUNDS_MAX;
        for _ in 0..steps_max {
            if self.is_within() || evicted.len() >= frames_max {
                break;
            }
            let Some(entry) = ring.pop_front() else {
                break;
            };
            let Some(owner) = entry.owner.upgrade() else {
                continue;
            };
            match owner.try_evict(entry.frame) {
                Eviction::Kept => ring.push_back(entry),
                Eviction::Evicted(bytes, memory) => {
                    self.release(bytes);
                    evicted.extend(memory);
                }
            }
            // The table was dropped meanwhile: all its blocks are freed with it.
            if Arc::strong_count(&owner) == 1 {
                unowned.push(owner);
            }
        }
        drop(ring);
        drop(unowned);
        evicted
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
        if self.used_bytes() > self.capacity_bytes() + late {
            self.trim_by(bytes);
        }
    }
}

/// Returns the index of the calling thread's shard, below [`COUNTER_SHARDS`].
pub fn thread_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // No destructor, so the runtime that owns the thread does not matter.
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    if cfg!(feature = "simulation") {
        // State shared by threads must not depend on simulations that ran before.
        return 0;
    }
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % COUNTER_SHARDS);
        }
        shard.get()
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::Use;
    use std::sync::Arc;

    /// Frames of 10 bytes with a use count each.
    struct Owner {
        uses: Mutex<Vec<u32>>,
    }

    impl FrameMemory for u32 {
        fn give_back(self: Arc<u32>) {}
    }

    impl FrameOwner for Owner {
        fn try_evict(&self, frame: u32) -> Eviction {
            let mut uses = self.uses.lock();
            let uses = &mut uses[frame as usize];
            match *uses {
                0 => Eviction::Evicted(10, Some(Arc::new(frame))),
                _ => {
                    *uses -= 1;
                    Eviction::Kept
                }
            }
        }
    }

    fn owner(uses: &[u32]) -> Arc<Owner> {
        Arc::new(Owner {
            uses: Mutex::new(uses.to_vec()),
        })
    }

    fn weak(owner: &Arc<Owner>) -> Weak<dyn FrameOwner> {
        Arc::downgrade(owner) as Weak<dyn FrameOwner>
    }

    #[test]
    fn unused_frames_go_first_and_the_total_stays_within_the_capacity() {
        let owner = owner(&[3, 0, 3, 0, 3]);
        let cache = Cache::of_bytes(30);
        for frame in 0..5 {
            cache.charge(10, weak(&owner), frame);
            assert!(cache.used_bytes() <= 30);
        }
        let left: Vec<u32> = cache.ring.lock().iter().map(|e| e.frame).collect();
        assert!(!left.contains(&1) && !left.contains(&3), "{left:?}");
    }

    #[test]
    fn a_lower_capacity_is_reached_by_a_trim_or_by_a_few_charges() {
        let owner = owner(&[0; 200]);
        let cache = Cache::of_bytes(10_000);
        for frame in 0..100 {
            cache.charge(10, weak(&owner), frame);
        }
        cache.budget.set_total(500);
        assert_eq!(cache.used_bytes(), 1000, "the change itself evicts nothing");
        let evicted = cache.charge(10, weak(&owner), 100);
        assert_eq!(evicted.len(), EVICTIONS_PER_CHARGE);
        for frame in 101..120 {
            cache.charge(10, weak(&owner), frame);
        }
        assert_eq!(cache.used_bytes(), 500);
        cache.budget.set_total(25);
        cache.trim();
        assert_eq!(cache.used_bytes(), 20);
    }

    #[test]
    fn the_cache_regrows_slowly_or_at_once_when_idle() {
        let owner = owner(&[0; 200]);
        let cache = Cache::of_bytes(10 << 20);
        cache.budget.add(Use::Memtables, 6 << 20);
        cache.budget.subtract(Use::Memtables, 5 << 20);
        assert_eq!(cache.capacity_bytes(), 4 << 20);
        for frame in 0..64 {
            cache.charge(1 << 20, weak(&owner), frame);
            cache.release(1 << 20);
        }
        assert_eq!(cache.capacity_bytes(), 5 << 20, "64 MiB were read");
        cache.budget.add(Use::Jobs, 1 << 20);
        assert_eq!(cache.capacity_bytes(), 5 << 20, "within the last peak");
        cache.budget.forget_peak();
        assert_eq!(cache.capacity_bytes(), 8 << 20);
    }

    #[test]
    fn foreground_threads_evict_only_if_trimming_is_far_behind() {
        const MIB: usize = 1 << 20;
        let owner = owner(&[0; 20_000]);
        let cache = Cache::of_bytes(16 * MIB as u64);
        for frame in 0..14 {
            cache.charge(MIB as u64, weak(&owner), frame);
        }
        cache.budget.add_and_help(Use::Memtables, 2 * MIB + MIB / 4);
        assert_eq!(cache.used_bytes(), 14 * MIB as u64, "a sixty-fourth late");
        let before = cache.used_bytes();
        cache.budget.add_and_help(Use::Memtables, MIB);
        assert!(cache.used_bytes() < before);
    }

    #[test]
    fn entries_of_dropped_owners_do_not_pile_up() {
        let cache = Cache::of_bytes(u64::MAX);
        for _ in 0..100 {
            let owner = owner(&[0; 50]);
            for frame in 0..50 {
                cache.charge(10, weak(&owner), frame);
            }
            cache.release(500);
        }
        assert!(cache.ring.lock().len() <= 150);
        assert_eq!(cache.used_bytes(), 0);
    }
}
