//! The block cache: byte accounting and eviction. It has no hash table, because it stores nothing.
//!
//! Each table keeps its decoded blocks in slots of its own, one for each block, so a hit costs one pointer load next to
//! the fence search that a reader makes anyway. What is shared is the memory: an owner charges what it installs, and
//! the cache asks owners to give frames up, in CLOCK order, until the total is within the capacity.
//!
//! The cache has what other uses of the memory budget leave at each moment, so it keeps their accounts as well: see
//! [`crate::memory`]. A change there only sets a number: the next charges and [`Cache::trim`] make room, so that whoever
//! fills a memtable does not pay for the cache unless they are far behind.
//!
//! Lock order: the ring's mutex is a leaf. It is taken on misses only, never on a hit, and nothing is freed under it.

use crate::memory::Use;
use crate::sync::{Mutex, MutexGuard};
// What decides about evictions is known to the models; the other numbers are hints.
use crate::sync::atomic::AtomicU64 as DecidingU64;
use crossbeam_utils::CachePadded;
use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Something whose frames the cache may ask back.
pub trait FrameOwner: Send + Sync {
    /// Lowers the use count of a frame, or gives the frame up where the count is 0.
    fn try_evict(&self, frame: u32) -> Eviction;
}

/// What became of a frame that was asked for.
pub enum Eviction {
    /// It was used since it was last asked for, and stays for now.
    Kept,
    /// The claim on this many bytes is gone. The frame's memory, if there was any left, is handed out to be freed or
    /// used again where no lock is held.
    Evicted(u64, Option<Evicted>),
}

/// The memory of a frame.
pub trait FrameMemory: Any + Send + Sync {
    /// Frees it, to the system as far as that can be, if nobody else holds it: nothing comes in its place.
    fn give_back(self: Arc<Self>);
}

/// The memory of a frame that was given up.
pub type Evicted = Arc<dyn FrameMemory>;

/// Bounds the memory of decoded blocks over all tables of a database. Shared by `Arc`.
pub struct Cache {
    /// What frames and all other uses may take together.
    total: AtomicU64,
    /// What each other use takes. Relaxed, as all numbers here: they order nothing.
    taken: [AtomicU64; Use::ALL.len()],
    /// The most that others took together lately: see [`Cache::capacity_bytes`].
    taken_peak: AtomicU64,
    used: DecidingU64,
    /// Guards the CLOCK order. Every installed frame whose owner lives has exactly one entry.
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

/// Enough that threads on different cores rarely share a counter's cache line.
pub const COUNTER_SHARDS: usize = 16;

/// A frame whose use count is saturated (3) goes at the fourth request, so this many rounds always free something.
const ROUNDS_MAX: usize = 4;

/// Frames that one charge gives up at most: more than it adds, so that a lowered capacity is reached, and few enough
/// for a single read.
const EVICTIONS_PER_CHARGE: usize = 8;

/// Frames that [`Cache::trim`] gives up between two releases of the ring's mutex.
const EVICTIONS_PER_TRIM_STEP: usize = 64;

/// The cache grows back by one byte for this many that were read into it.
const REGROWTH: u64 = 64;

/// Background threads may be behind by one byte for this many of what frames and others may take.
const OVERDUE: u64 = 64;

/// Without any cache every read decodes a block: the memory budget is exceeded rather than that.
pub const CACHE_BYTES_MIN: usize = 1 << 20;

impl Cache {
    /// A cache that keeps at most `total_bytes` of decoded blocks, less what others take.
    pub fn new(total_bytes: u64) -> Cache {
        Cache {
            total: AtomicU64::new(total_bytes),
            taken: std::array::from_fn(|_| AtomicU64::new(0)),
            taken_peak: AtomicU64::new(0),
            used: DecidingU64::new(0),
            ring: Mutex::new(VecDeque::new()),
            counters: std::array::from_fn(|_| CachePadded::default()),
        }
    }

    /// The most bytes of frames that are kept at the moment: what other uses leave, but not less than
    /// [`CACHE_BYTES_MIN`].
    ///
    /// Others take and give back in waves, as memtables fill and are flushed. What frames leave behind when they give way
    /// is holes of the allocator, which nobody else can use: a cache that grew again after each wave would make the
    /// process larger by a whole wave. So it gives way at once, and grows again by little for each block that is read.
    pub fn capacity_bytes(&self) -> u64 {
        let total = self.total.load(Ordering::Relaxed);
        let least = total.min(CACHE_BYTES_MIN as u64);
        let peak = self.taken_peak.load(Ordering::Relaxed);
        total.saturating_sub(peak).max(least)
    }

    /// Changes what frames and other uses may take together. Frames above it are given up by later charges, or by
    /// [`Cache::trim`].
    pub fn set_total(&self, total_bytes: u64) {
        self.total.store(total_bytes, Ordering::Relaxed);
    }

    /// Another use takes this much more.
    pub fn take(&self, what: Use, bytes: usize) {
        self.taken[what as usize].fetch_add(bytes as u64, Ordering::Relaxed);
        self.taken_peak
            .fetch_max(self.all_taken(), Ordering::Relaxed);
    }

    /// As [`Cache::take`], for one who shall not pay for the cache unless those who should are far behind: then it gives
    /// up twice as much as is taken, to catch up. That is a hundred blocks or two for a chunk of a memtable.
    pub fn take_and_help(&self, what: Use, bytes: usize) {
        self.take(what, bytes);
        let late = self.total.load(Ordering::Relaxed) / OVERDUE;
        if self.used_bytes() > self.capacity_bytes() + late {
            self.trim_by(2 * bytes as u64);
        }
    }

    fn all_taken(&self) -> u64 {
        self.taken.iter().map(|t| t.load(Ordering::Relaxed)).sum()
    }

    /// Lets the cache have at once what others have given back. For when the waves are over: the database is idle, or
    /// was told to settle.
    pub fn forget_peak(&self) {
        self.taken_peak.store(self.all_taken(), Ordering::Relaxed);
    }

    /// Lets the cache have a little more of what others have given back, for a block of `bytes` that was read.
    fn lower_peak(&self, bytes: u64) {
        let (peak, taken) = (self.taken_peak.load(Ordering::Relaxed), self.all_taken());
        // A peak that another thread raises at this moment may be lost until the next one takes something.
        if peak > taken {
            let lower = peak.saturating_sub(bytes / REGROWTH).max(taken);
            self.taken_peak.store(lower, Ordering::Relaxed);
        }
    }

    /// Another use takes this much less.
    pub fn give_back(&self, what: Use, bytes: usize) {
        self.taken[what as usize].fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// What another use takes now.
    pub fn taken_bytes(&self, what: Use) -> u64 {
        self.taken[what as usize].load(Ordering::Relaxed)
    }

    /// Gives frames up until the total is within the capacity. For background threads: it may take milliseconds.
    pub fn trim(&self) {
        self.trim_by(u64::MAX);
    }

    /// As [`Cache::trim`], but ends when about `bytes` were given up: for one who has taken as much, and shall not pay for
    /// what others have taken.
    pub fn trim_by(&self, bytes: u64) {
        let enough = self.used_bytes().saturating_sub(bytes);
        // Ends: each step gives frames up, or finds none to give up.
        while !self.is_within() && self.used_bytes() > enough {
            let evicted = self.evict(self.ring.lock(), EVICTIONS_PER_TRIM_STEP);
            if evicted.is_empty() {
                return;
            }
            evicted.into_iter().for_each(FrameMemory::give_back);
        }
    }

    /// Whether frames take no more than they may.
    pub fn is_within(&self) -> bool {
        self.used_bytes() <= self.capacity_bytes()
    }

    /// The bytes that frames take now. A block that a reader still holds after its eviction is not counted.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How many lookups found their block.
    pub fn hits(&self) -> u64 {
        let hits = self.counters.iter().map(|c| c.hits.load(Ordering::Relaxed));
        hits.sum()
    }

    /// How many lookups had to read their block.
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

    /// Takes over the eviction of a frame that `owner` has just installed, and makes room. Returns what was given up,
    /// for the caller to use again.
    ///
    /// Called once for each installed frame, after it is in place, so that an eviction always finds it.
    pub fn charge(&self, bytes: u64, owner: Weak<dyn FrameOwner>, frame: u32) -> Vec<Evicted> {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.lower_peak(bytes);
        let mut ring = self.ring.lock();
        ring.push_back(RingEntry { owner, frame });
        // Dropped tables leave their entries behind. Looking at two for each one added keeps them few, also where
        // the cache never fills up and the loop below never runs.
        for _ in 0..2 {
            if let Some(entry) = ring.pop_front()
                && entry.owner.strong_count() > 0
            {
                ring.push_back(entry);
            }
        }
        self.evict(ring, EVICTIONS_PER_CHARGE)
    }

    /// Returns the bytes of frames that their owner has dropped by itself.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Gives up to `frames_max` frames up, until the total is within the capacity.
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
            // Its table went meanwhile: all its blocks are freed with it.
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

/// Which of [`COUNTER_SHARDS`] counters the calling thread adds to.
pub fn thread_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // No destructor, so it does not matter which runtime owns the thread.
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    if cfg!(feature = "simulation") {
        // What threads share must not depend on which simulations ran before.
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
        let cache = Cache::new(30);
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
        let cache = Cache::new(10_000);
        for frame in 0..100 {
            cache.charge(10, weak(&owner), frame);
        }
        cache.set_total(500);
        assert_eq!(cache.used_bytes(), 1000, "the change itself evicts nothing");
        let evicted = cache.charge(10, weak(&owner), 100);
        assert_eq!(evicted.len(), EVICTIONS_PER_CHARGE);
        for frame in 101..120 {
            cache.charge(10, weak(&owner), frame);
        }
        assert_eq!(cache.used_bytes(), 500);
        cache.set_total(25);
        cache.trim();
        assert_eq!(cache.used_bytes(), 20);
    }

    #[test]
    fn what_others_took_comes_back_slowly_or_when_the_waves_are_over() {
        let owner = owner(&[0; 200]);
        let cache = Cache::new(10 << 20);
        cache.take(Use::Memtables, 6 << 20);
        cache.give_back(Use::Memtables, 5 << 20);
        assert_eq!(cache.capacity_bytes(), 4 << 20);
        for frame in 0..64 {
            cache.charge(1 << 20, weak(&owner), frame);
            cache.release(1 << 20);
        }
        assert_eq!(cache.capacity_bytes(), 5 << 20, "64 MiB were read");
        cache.take(Use::Jobs, 1 << 20);
        assert_eq!(cache.capacity_bytes(), 5 << 20, "within the last peak");
        cache.forget_peak();
        assert_eq!(cache.capacity_bytes(), 8 << 20);
    }

    #[test]
    fn whoever_takes_more_makes_room_where_nobody_else_came_to_it() {
        const MIB: usize = 1 << 20;
        let owner = owner(&[0; 20_000]);
        let cache = Cache::new(16 * MIB as u64);
        for frame in 0..14 {
            cache.charge(MIB as u64, weak(&owner), frame);
        }
        cache.take_and_help(Use::Memtables, 2 * MIB + MIB / 4);
        assert_eq!(cache.used_bytes(), 14 * MIB as u64, "a sixty-fourth late");
        let before = cache.used_bytes();
        cache.take_and_help(Use::Memtables, MIB);
        assert!(cache.used_bytes() < before);
    }

    #[test]
    fn entries_of_dropped_owners_do_not_pile_up() {
        let cache = Cache::new(u64::MAX);
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
