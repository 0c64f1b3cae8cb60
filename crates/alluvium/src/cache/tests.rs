//! Tests of the cache's memory: which frames stay, and that it stays within its capacity.

use super::*;
use crate::memory::Use;
use alluvium_mem::epoch::Slots;
use alluvium_mem::frames::{Frame, frame_bytes};

/// Slots whose frames hold the number of their slot.
struct Owner {
    cache: Arc<Cache>,
    slots: Arc<Slots<usize>>,
    number: u32,
}

impl Owner {
    fn new(cache: &Arc<Cache>, slots: usize) -> Owner {
        let slots = Arc::new(Slots::new(cache.readers(), slots));
        let owner = Arc::clone(&slots) as Arc<dyn FrameOwner>;
        Owner {
            number: cache.register(owner),
            cache: Arc::clone(cache),
            slots,
        }
    }

    /// Reads a slot as a table does. Returns its frame, with so many bytes on a miss, and whether
    /// it was in the slot or could be put there.
    fn read(&self, slot: usize, bytes: usize) -> (Frame<usize>, bool) {
        if let Some(held) = self.slots.hold(slot) {
            assert_eq!(*held.shape(), slot);
            assert!(held.bytes().iter().all(|byte| *byte == slot as u8));
            return (held.keep(), true);
        }
        let need = frame_bytes::<usize>(0, bytes);
        let claimed = self.cache.claim(self.number, slot as u32, need);
        let is_cached = claimed.is_some();
        let space = claimed.unwrap_or_else(|| Space::alone(need));
        let mut filling = space.fill(slot, 0, bytes);
        filling.parts_mut().1.fill(slot as u8);
        let frame = filling.share();
        assert!(!is_cached || self.slots.fill(slot, frame.clone()).is_ok());
        (frame, is_cached)
    }

    /// Reads slots and checks the cache after each. Returns the number of hits.
    fn read_all(&self, slots: impl Iterator<Item = usize>, bytes: usize) -> usize {
        let mut hits = 0;
        for slot in slots {
            hits += usize::from(self.is_full(slot));
            let (_, is_cached) = self.read(slot, bytes);
            assert!(is_cached, "slot {slot}");
            assert!(self.cache.used_bytes() <= self.cache.capacity_bytes());
        }
        hits
    }

    fn is_full(&self, slot: usize) -> bool {
        self.slots.is_full(slot)
    }

    fn full(&self) -> usize {
        (0..self.slots.len())
            .filter(|&slot| self.is_full(slot))
            .count()
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn memory_is_full_of_frames_that_are_used() {
    let cache = Cache::of_bytes(MIB);
    let owner = Owner::new(&cache, 2_000);
    for round in 0..20 {
        let hits = owner.read_all(0..100, 4_000);
        assert!(
            round == 0 || hits > 90,
            "{hits} of the used ones were there"
        );
        let others = 100 + round * 90..190 + round * 90;
        owner.read_all(others, 4_000);
    }
    assert!(owner.full() > 230, "{} of 1 MiB", owner.full());
}

/// Returns a nearly full cache of 16 MiB whose budget was then lowered to 4 MiB.
fn lowered_to_a_quarter() -> (Arc<Cache>, Owner) {
    let cache = Cache::of_bytes(16 * MIB);
    let owner = Owner::new(&cache, 4_000);
    owner.read_all(0..3_000, 4_000);
    cache.budget.set_total(4 * MIB);
    (cache, owner)
}

#[test]
fn a_lower_capacity_is_reached_by_a_trim_and_a_higher_one_by_misses() {
    let (cache, owner) = lowered_to_a_quarter();
    let before = cache.used_bytes();
    assert!(before > 10 * MIB, "the change itself evicts nothing");
    cache.trim();
    assert!(cache.used_bytes() <= 4 * MIB && owner.full() > 500);
    cache.budget.set_total(16 * MIB);
    owner.read_all(0..3_000, 4_000);
    assert!(cache.used_bytes() > 10 * MIB);
    cache.budget.set_total(0);
    cache.trim();
    assert_eq!((cache.used_bytes(), owner.full()), (0, 0));
}

#[test]
fn the_cache_gives_memory_to_other_uses_and_takes_it_back_with_the_next_misses() {
    let cache = Cache::of_bytes(16 * MIB);
    let owner = Owner::new(&cache, 4_000);
    owner.read_all(0..4_000, 4_000);
    cache.budget.add_and_reclaim(Use::Memtables, 10 << 20);
    assert!(cache.used_bytes() <= 6 * MIB);
    cache.budget.subtract(Use::Memtables, 10 << 20);
    owner.read_all(0..4_000, 4_000);
    assert!(cache.used_bytes() > 13 * MIB);
}

#[test]
fn foreground_threads_evict_only_if_trimming_is_far_behind() {
    let cache = Cache::of_bytes(16 * MIB);
    let owner = Owner::new(&cache, 4_000);
    owner.read_all(0..3_900, 4_000);
    let full = cache.used_bytes();
    let free = 16 * MIB - full;
    cache
        .budget
        .add_and_help(Use::Memtables, (free + MIB / 4) as usize);
    assert_eq!(cache.used_bytes(), full, "a sixty-fourth late");
    cache.budget.add_and_help(Use::Memtables, MIB as usize);
    assert!(cache.used_bytes() < full);
}

#[test]
fn a_frame_of_a_dropped_owner_is_not_looked_for_in_a_shorter_one() {
    let cache = Cache::of_bytes(MIB);
    let mut owner = Owner::new(&cache, 1_000);
    let (kept, _) = owner.read(900, 4_000);
    cache.unregister(owner.number);
    let slots = Arc::get_mut(&mut owner.slots).expect("the only user");
    cache.give_back(slots.remove_all());
    let shorter = Owner::new(&cache, 1);
    assert_eq!(shorter.number, owner.number);
    let other = Owner::new(&cache, 1_000);
    other.read_all(0..600, 4_000);
    assert_eq!(*kept.shape(), 900);
    drop(kept);
    other.read_all(0..600, 4_000);
}

#[test]
fn a_reader_that_stands_still_delays_only_what_it_looks_at() {
    let cache = Cache::of_bytes(MIB);
    let owner = Owner::new(&cache, 2_000);
    owner.read_all(0..200, 4_000);
    let held = owner.slots.hold(199).expect("cached");
    let cached = (200..1_000).filter(|&slot| owner.read(slot, 4_000).1);
    let cached = cached.count();
    assert!((50..200).contains(&cached), "{cached}");
    assert!(cache.used_bytes() <= MIB && owner.full() > 200);
    assert_eq!(*held.shape(), 199);
    drop(held);
    owner.read_all(1_000..2_000, 4_000);
}

#[test]
fn sizes_that_are_rare_take_frames_of_a_common_one() {
    let cache = Cache::of_bytes(8 * MIB);
    let owner = Owner::new(&cache, 1_000);
    owner.read_all(0..100, 4_000);
    let before = cache.used_bytes();
    for slot in 100..110 {
        owner.read(slot, 3_700 + 10 * (slot % 20));
    }
    assert_eq!(cache.used_bytes(), before);
}

#[test]
fn other_uses_of_the_budget_take_memory_at_once() {
    let cache = Cache::of_bytes(16 * MIB);
    let owner = Owner::new(&cache, 4_000);
    owner.read_all(0..3_800, 4_000);
    cache
        .budget
        .add_and_reclaim(Use::Memtables, 8 * MIB as usize);
    assert!(cache.used_bytes() <= 8 * MIB);
    assert!(cache.used_bytes() > 5 * MIB, "not more than necessary");
}

#[test]
fn a_size_that_is_read_takes_the_memory_of_one_that_is_not() {
    let cache = Cache::of_bytes(8 * MIB);
    let small = Owner::new(&cache, 10_000);
    let large = Owner::new(&cache, 10_000);
    small.read_all(0..6_000, 1_000);
    let before = small.full();
    for _ in 0..4 {
        large.read_all(0..400, 9_000);
    }
    assert!(
        before > 5_000 && small.full() < before * 3 / 4,
        "{before}, {}",
        small.full()
    );
    let hits = large.read_all(0..400, 9_000);
    assert!(hits > 300, "{hits}");
    for round in 0..10 {
        small.read_all(0..3_000, 1_000);
        if round % 4 == 0 {
            large.read_all(0..100, 9_000);
        }
    }
    let hits = small.read_all(0..3_000, 1_000);
    assert!(hits > 2_000, "{hits}");
}

#[test]
fn many_sizes_share_the_memory() {
    let cache = Cache::of_bytes(4 * MIB);
    let owner = Owner::new(&cache, 4_000);
    let mut uncached = 0;
    for round in 0..5 {
        for slot in 0..2_000 {
            let (_, is_cached) = owner.read(slot, 200 + (slot * 7_919 + round) % 5_000);
            uncached += usize::from(!is_cached);
            assert!(cache.used_bytes() <= 4 * MIB, "{slot}");
        }
    }
    assert!(uncached < 100, "{uncached}");
    assert!(owner.full() > 700, "{}", owner.full());
}

#[test]
fn kept_frames_stay_what_they_are_and_are_used_again_afterwards() {
    let cache = Cache::of_bytes(MIB);
    let owner = Owner::new(&cache, 2_000);
    let kept: Vec<_> = (0..1_000).map(|slot| owner.read(slot, 4_000)).collect();
    let cached = kept.iter().filter(|(_, is_cached)| *is_cached).count();
    assert!(cached > 200 && cached < 262, "{cached}");
    assert!(cache.used_bytes() <= MIB);
    for (slot, (frame, _)) in kept.iter().enumerate() {
        assert_eq!(*frame.shape(), slot);
        assert!(frame.bytes().iter().all(|byte| *byte == slot as u8));
    }
    drop(kept);
    owner.read_all(1_000..2_000, 4_000);
    assert!(owner.full() > 200, "{}", owner.full());
}

#[test]
fn a_slab_leaves_after_the_last_user_of_a_frame_or_is_taken_back() {
    for taken_back in [false, true] {
        let cache = Cache::of_bytes(MIB);
        let owner = Owner::new(&cache, 1_000);
        owner.read_all(0..240, 4_000);
        let (kept, _) = owner.read(100, 4_000);
        cache.budget.set_total(0);
        cache.trim();
        let slab = cache.used_bytes();
        assert!(slab > 0 && slab < MIB / 8 && owner.full() == 0, "{slab}");
        assert!(cache.is_within(), "nothing more can be done");
        if taken_back {
            cache.budget.set_total(slab);
            owner.read_all(0..3, 4_000);
            assert_eq!((cache.used_bytes(), owner.full()), (slab, 3));
            cache.budget.set_total(0);
        }
        assert_eq!(*kept.shape(), 100);
        drop(kept);
        cache.trim();
        assert_eq!(cache.used_bytes(), 0);
    }
}

#[test]
fn a_lower_capacity_is_reached_by_misses_alone() {
    let (cache, owner) = lowered_to_a_quarter();
    for slot in 3_000..3_200 {
        owner.read(slot, 4_000);
    }
    assert!(cache.used_bytes() <= 4 * MIB && owner.full() > 500);
}

#[test]
fn a_kept_frame_in_a_large_slab_does_not_stop_a_cache_that_became_small() {
    let cache = Cache::of_bytes(64 * MIB);
    let owner = Owner::new(&cache, 20_000);
    owner.read_all(0..14_000, 4_000);
    let (kept, _) = owner.read(13_900, 4_000);
    cache.budget.set_total(MIB);
    cache.trim();
    assert_eq!(cache.used_bytes(), 2 * MIB, "the slab of the kept frame");
    for _ in 0..3 {
        for slot in 0..200 {
            assert!(owner.read(slot, 4_000).1);
        }
    }
    assert_eq!(owner.full(), 200);
    assert_eq!(*kept.shape(), 13_900);
}

#[test]
fn a_frame_that_was_kept_while_its_slab_left_and_came_back_is_free_in_the_end() {
    let cache = Cache::of_bytes(MIB);
    let owner = Owner::new(&cache, 2_000);
    let (kept, _) = owner.read(0, 4_000);
    // Until the frame is evicted, and in the list of free ones.
    let misses = (1..300).take_while(|&slot| {
        owner.read(slot, 4_000);
        owner.is_full(0)
    });
    assert!(misses.count() < 298);
    cache.budget.set_total(0);
    cache.trim();
    let slab = cache.used_bytes();
    cache.budget.set_total(slab);
    owner.read_all(1_000..1_001, 4_000);
    assert_eq!(cache.used_bytes(), slab, "it came back");
    drop(kept);
    owner.read_all(1_001..1_100, 4_000);
    let frames = owner.full() + cache.free_frames();
    assert_eq!(frames as u64, slab / 4_096, "all frames of the slab");
}

#[test]
fn a_size_that_only_hits_keeps_its_memory_beside_one_that_only_misses() {
    let cache = Cache::of_bytes(8 * MIB);
    let hot = Owner::new(&cache, 4_000);
    let cold = Owner::new(&cache, 20_000);
    hot.read_all(0..3_000, 1_000);
    for round in 0..60 {
        let hits = hot.read_all(0..3_000, 1_000);
        assert!(hits > 2_700, "round {round}: {hits}");
        cold.read_all(round * 300..round * 300 + 300, 9_000);
    }
}

#[test]
fn a_large_frame_evicts_about_its_own_size() {
    let cache = Cache::of_bytes(2 * MIB);
    let owner = Owner::new(&cache, 2_000);
    owner.read_all(0..480, 4_000);
    let before = owner.full();
    assert!(owner.read(1_000, 300 << 10).1 && owner.is_full(1_000));
    assert!(owner.full() > before - 200, "{} of {before}", owner.full());
}

#[test]
fn content_larger_than_the_capacity_is_not_cached() {
    let cache = Cache::of_bytes(4 * MIB);
    let owner = Owner::new(&cache, 10);
    assert!(!owner.read(0, 5 << 20).1);
    assert!(owner.read(1, 3 << 20).1 && owner.is_full(1));
    assert!(owner.read(2, 3 << 20).1 && !owner.is_full(1));
    assert!(cache.used_bytes() <= 4 * MIB);
}

#[test]
fn frames_of_a_dropped_owner_are_free_for_others() {
    let cache = Cache::of_bytes(MIB);
    let other = Owner::new(&cache, 1_000);
    let mut owner = Owner::new(&cache, 1_000);
    owner.read_all(0..240, 4_000);
    let (kept, _) = owner.read(7, 4_000);
    cache.unregister(owner.number);
    let slots = Arc::get_mut(&mut owner.slots).expect("the only user");
    cache.give_back(slots.remove_all());
    other.read_all(0..200, 4_000);
    assert_eq!(other.full(), 200, "nothing was evicted");
    assert_eq!(*kept.shape(), 7);
    drop(kept);
    // Its number is used again, with fewer slots.
    let next = Owner::new(&cache, 10);
    assert_eq!(next.number, owner.number);
    other.read_all(200..900, 4_000);
}

#[test]
fn threads_that_miss_and_trim_leave_every_frame_right() {
    let cache = Cache::of_bytes(2 * MIB);
    let owner = Owner::new(&cache, 600);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (owner, cache) = (&owner, &cache);
            scope.spawn(move || {
                let mut kept = None;
                for round in 0..20_000usize {
                    let slot = (round * 7_919 + thread * 31) % 600;
                    let bytes = 3_000 + slot % 3 * 700;
                    if let Some(held) = owner.slots.hold(slot) {
                        assert!(*held.shape() == slot && held.bytes()[bytes - 1] == slot as u8);
                        if round % 50 == 0 {
                            kept = Some((slot, held.keep()));
                        }
                        continue;
                    }
                    let need = frame_bytes::<usize>(0, bytes);
                    let Some(space) = cache.claim(owner.number, slot as u32, need) else {
                        continue;
                    };
                    let mut filling = space.fill(slot, 0, bytes);
                    filling.parts_mut().1.fill(slot as u8);
                    let _ = owner.slots.fill(slot, filling.share());
                    if let Some((slot, frame)) = &kept {
                        assert_eq!((frame.shape(), frame.bytes()[0]), (slot, *slot as u8));
                    }
                }
            });
        }
        for round in 0..200 {
            cache.budget.set_total(MIB + round % 3 * (MIB / 2));
            cache.trim();
            std::thread::yield_now();
        }
    });
    cache.budget.set_total(0);
    cache.trim();
    assert_eq!((cache.used_bytes(), owner.full()), (0, 0));
}
