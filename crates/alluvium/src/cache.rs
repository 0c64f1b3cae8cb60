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
//! A reader may still look at an evicted frame, so its memory first waits in a limbo, until no such
//! reader is left; see [`alluvium_mem::epoch`]. It is charged until then.
//!
//! Lock order: the ring's mutex is a leaf. It is taken only on misses, never on a hit, and nothing
//! is freed under it.

use crate::memory::{MemoryBudget, Reclaim};
use crate::sync::Mutex;
// Counters that decide about evictions are part of the loom models; the other numbers are hints.
use crate::sync::atomic::AtomicU64 as DecidingU64;
use alluvium_mem::epoch::{Limbo, Readers, Returned, Taken};
use crossbeam_utils::CachePadded;
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
    /// The frame's content, with the bytes that it was charged; `None` if the frame was empty.
    Evicted(Option<Taken>),
}

/// Decoded blocks of all tables of a database, within a limit. Shared by `Arc`.
pub struct Cache {
    budget: Arc<MemoryBudget>,
    /// Bytes of frames, evicted ones in the limbo included. Relaxed: the number orders nothing.
    used: DecidingU64,
    /// Bytes in the limbo. Changes under the ring's mutex; read without it as a hint.
    in_limbo: DecidingU64,
    ring: Mutex<Ring>,
    readers: Arc<Readers>,
    counters: [CachePadded<Counters>; COUNTER_SHARDS],
}

/// Guarded by one mutex, because an eviction moves a frame from one to the other.
struct Ring {
    /// CLOCK order. Every installed frame with a live owner has exactly one entry.
    entries: VecDeque<RingEntry>,
    limbo: Limbo,
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

/// Share of the capacity that is kept free of frames for those in the limbo, up to
/// [`RESERVE_BYTES_MAX`], so that about sixteen usual blocks are reclaimed together.
const RESERVE_SHARE: u64 = 128;
const RESERVE_BYTES_MAX: u64 = 128 << 10;

/// Share of the capacity in the limbo at which no frame is installed. Only a reader that lost its
/// processor in the middle of a read makes the limbo that large.
const CLOGGED_SHARE: u64 = 16;

impl Cache {
    /// Creates a cache that takes the memory left by the other uses of a budget.
    pub fn new(budget: Arc<MemoryBudget>) -> Arc<Cache> {
        let readers = Readers::new();
        let cache = Arc::new(Cache {
            budget,
            used: DecidingU64::new(0),
            in_limbo: DecidingU64::new(0),
            ring: Mutex::new(Ring {
                entries: VecDeque::new(),
                limbo: Limbo::new(&readers),
            }),
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
            let mut ring = self.ring.lock();
            let (evicted, unowned) = self.evict(&mut ring, EVICTIONS_PER_TRIM_STEP);
            let returned = self.reclaim(&mut ring);
            drop(ring);
            if evicted == 0 && returned.is_empty() {
                return;
            }
            drop((unowned, returned));
        }
    }

    /// Returns true if frames are within the capacity.
    pub fn is_within(&self) -> bool {
        self.used_bytes() <= self.capacity_bytes()
    }

    /// Returns the current bytes of frames. An evicted block that a cursor or a pinned value keeps
    /// is not counted.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the bytes of evicted frames that wait until no reader looks at them.
    pub fn limbo_bytes(&self) -> u64 {
        self.in_limbo.load(Ordering::Relaxed)
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

    /// Returns true if a new frame of this many bytes may be installed.
    pub fn admits(&self, bytes: u64) -> bool {
        let capacity = self.capacity_bytes();
        if bytes > capacity {
            return false;
        }
        let is_clogged = || self.limbo_bytes() > capacity / CLOGGED_SHARE;
        if is_clogged() {
            let returned = self.reclaim(&mut self.ring.lock());
            drop(returned);
        }
        !is_clogged()
    }

    /// Takes over the eviction of a frame that `owner` has just installed, and makes room. Returns
    /// memory of evicted frames for the caller to reuse.
    ///
    /// Called once for each installed frame, after it is in place, so that an eviction always finds
    /// it.
    pub fn charge(&self, bytes: u64, owner: Weak<dyn FrameOwner>, frame: u32) -> Vec<Returned> {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.budget.lower_peak(bytes);
        let mut ring = self.ring.lock();
        let entries = &mut ring.entries;
        entries.push_back(RingEntry { owner, frame });
        // Dropped tables leave their entries in the ring. Checking two for each added entry keeps
        // them few, even if the cache never fills up and eviction never runs.
        for _ in 0..2 {
            if let Some(entry) = entries.pop_front()
                && entry.owner.strong_count() > 0
            {
                entries.push_back(entry);
            }
        }
        let (_, unowned) = self.evict(&mut ring, EVICTIONS_PER_CHARGE);
        let returned = if self.is_within() {
            Vec::new()
        } else {
            self.reclaim(&mut ring)
        };
        drop(ring);
        drop(unowned);
        returned
    }

    /// Releases the bytes of frames that their owner has dropped by itself.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Frees frames that their owner has emptied by itself, as soon as no reader looks at them.
    pub fn discard(&self, taken: impl Iterator<Item = Taken>) {
        let mut taken = taken.peekable();
        while taken.peek().is_some() {
            let mut ring = self.ring.lock();
            for taken in taken.by_ref().take(EVICTIONS_PER_TRIM_STEP) {
                self.add_to_limbo(&mut ring, taken);
            }
            let returned = self.reclaim(&mut ring);
            drop(ring);
            drop(returned);
        }
    }

    fn add_to_limbo(&self, ring: &mut Ring, taken: Taken) {
        ring.limbo.add(taken);
        self.in_limbo.store(ring.limbo.bytes(), Ordering::Relaxed);
    }

    /// Returns the memory of evicted frames that no reader looks at, and releases their bytes.
    fn reclaim(&self, ring: &mut Ring) -> Vec<Returned> {
        if ring.limbo.is_empty() {
            return Vec::new();
        }
        let before = ring.limbo.bytes();
        let returned = ring.limbo.reclaim();
        let after = ring.limbo.bytes();
        self.in_limbo.store(after, Ordering::Relaxed);
        self.release(before - after);
        returned
    }

    /// Evicts up to `frames_max` frames, until those left are within the capacity without the
    /// reserve. Returns their number, and owners to be dropped without the ring's mutex.
    fn evict(&self, ring: &mut Ring, frames_max: usize) -> (usize, Vec<Arc<dyn FrameOwner>>) {
        let capacity = self.capacity_bytes();
        let target = capacity - (capacity / RESERVE_SHARE).min(RESERVE_BYTES_MAX);
        let mut evicted = 0;
        let mut unowned = Vec::new();
        let steps_max = ring.entries.len() * ROUNDS_MAX;
        for _ in 0..steps_max {
            let installed = self.used_bytes().saturating_sub(ring.limbo.bytes());
            if installed <= target || evicted >= frames_max {
                break;
            }
            let Some(entry) = ring.entries.pop_front() else {
                break;
            };
            let Some(owner) = entry.owner.upgrade() else {
                continue;
            };
            match owner.try_evict(entry.frame) {
                Eviction::Kept => ring.entries.push_back(entry),
                Eviction::Evicted(None) => {}
                Eviction::Evicted(Some(taken)) => {
                    evicted += 1;
                    self.add_to_limbo(ring, taken);
                }
            }
            // The table was dropped meanwhile: all its blocks are freed with it.
            if Arc::strong_count(&owner) == 1 {
                unowned.push(owner);
            }
        }
        (evicted, unowned)
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
    use alluvium_mem::epoch::Slots;
    use std::sync::Arc;

    /// Frames of 10 bytes with a use count each.
    struct Owner {
        uses: Mutex<Vec<u32>>,
        readers: Arc<Readers>,
    }

    impl Owner {
        fn new(cache: &Cache, uses: &[u32]) -> Arc<Owner> {
            Arc::new(Owner {
                uses: Mutex::new(uses.to_vec()),
                readers: Arc::clone(cache.readers()),
            })
        }

        fn weak(self: &Arc<Self>) -> Weak<dyn FrameOwner> {
            Arc::downgrade(self) as Weak<dyn FrameOwner>
        }
    }

    impl FrameOwner for Owner {
        fn try_evict(&self, frame: u32) -> Eviction {
            let mut uses = self.uses.lock();
            let uses = &mut uses[frame as usize];
            if *uses > 0 {
                *uses -= 1;
                return Eviction::Kept;
            }
            let slots = Slots::new(&self.readers, 1);
            assert!(slots.fill(0, Arc::new(())).is_ok());
            Eviction::Evicted(slots.take(0, |()| 10))
        }
    }

    #[test]
    fn unused_frames_go_first_and_the_total_stays_within_the_capacity() {
        let cache = Cache::of_bytes(30);
        let owner = Owner::new(&cache, &[3, 0, 3, 0, 3]);
        for frame in 0..5 {
            cache.charge(10, owner.weak(), frame);
            assert!(cache.used_bytes() <= 30);
        }
        let left: Vec<u32> = cache.ring.lock().entries.iter().map(|e| e.frame).collect();
        assert!(!left.contains(&1) && !left.contains(&3), "{left:?}");
    }

    #[test]
    fn a_lower_capacity_is_reached_by_a_trim_or_by_a_few_charges() {
        let cache = Cache::of_bytes(10_000);
        let owner = Owner::new(&cache, &[0; 200]);
        for frame in 0..100 {
            cache.charge(10, owner.weak(), frame);
        }
        cache.budget.set_total(500);
        assert_eq!(cache.used_bytes(), 1000, "the change itself evicts nothing");
        let evicted = cache.charge(10, owner.weak(), 100);
        assert_eq!(evicted.len(), EVICTIONS_PER_CHARGE);
        for frame in 101..120 {
            cache.charge(10, owner.weak(), frame);
        }
        assert_eq!(cache.used_bytes(), 490, "the capacity without the reserve");
        cache.budget.set_total(25);
        cache.trim();
        assert_eq!(cache.used_bytes(), 20);
    }

    #[test]
    fn the_cache_regrows_slowly_or_at_once_when_idle() {
        let cache = Cache::of_bytes(10 << 20);
        let owner = Owner::new(&cache, &[0; 200]);
        cache.budget.add(Use::Memtables, 6 << 20);
        cache.budget.subtract(Use::Memtables, 5 << 20);
        assert_eq!(cache.capacity_bytes(), 4 << 20);
        for frame in 0..64 {
            cache.charge(1 << 20, owner.weak(), frame);
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
        let cache = Cache::of_bytes(16 * MIB as u64);
        let owner = Owner::new(&cache, &[0; 20_000]);
        for frame in 0..14 {
            cache.charge(MIB as u64, owner.weak(), frame);
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
            let owner = Owner::new(&cache, &[0; 50]);
            for frame in 0..50 {
                cache.charge(10, owner.weak(), frame);
            }
            cache.release(500);
        }
        assert!(cache.ring.lock().entries.len() <= 150);
        assert_eq!(cache.used_bytes(), 0);
    }
}
