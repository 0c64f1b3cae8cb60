//! Tests of frames in slots: what readers hold stays valid, and every frame is returned once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alluvium_mem::epoch::{Eviction, Limbo, Readers, Slots, USES_MAX};
use alluvium_mem::frames::{AnyFrame, Frame, Place, Slab, Space};

fn filled(space: Space, number: u64) -> Frame<u64> {
    let mut filling = space.fill(number, 2, 3);
    let (words, bytes) = filling.parts_mut();
    words.fill(number);
    bytes.fill(number as u8);
    filling.share()
}

fn check(frame: &Frame<u64>, number: u64) {
    assert_eq!(*frame.shape(), number);
    assert_eq!(frame.words(), &[number; 2]);
    assert_eq!(frame.bytes(), &[number as u8; 3]);
}

/// Slots with readers and a slab of their own.
struct Fixture {
    slots: Slots<u64>,
    slab: Slab,
    limbo: Limbo,
}

impl Fixture {
    /// One slot, which is full.
    fn new(number: u64) -> Fixture {
        let readers = Readers::new();
        let fixture = Fixture {
            slots: Slots::new(&readers, 1),
            slab: Slab::new(0, 128, 4),
            limbo: Limbo::new(&readers),
        };
        assert!(fixture.slots.fill(0, fixture.frame(0, number)).is_ok());
        fixture
    }

    fn frame(&self, index: u32, number: u64) -> Frame<u64> {
        filled(self.slab.claim(index).expect("free"), number)
    }

    fn evict(&mut self, index: u32, used_too: bool) -> Eviction {
        let frame = self.slab.address(index);
        self.slots.evict(0, frame, used_too, &mut self.limbo)
    }

    fn reclaim(&mut self) -> Vec<AnyFrame> {
        let returned = self.limbo.reclaim();
        returned.into_iter().map(|(_, frame)| frame).collect()
    }
}

#[test]
fn an_evicted_frame_is_returned_after_its_readers_have_left() {
    let Fixture {
        slots,
        slab,
        mut limbo,
    } = Fixture::new(7);
    let held = slots.hold(0).expect("full");
    let place = Place { slab: 0, index: 0 };
    let evicted = slots.evict(0, slab.address(0), true, &mut limbo);
    assert_eq!(evicted, Eviction::Evicted);
    assert!(!slots.is_full(0) && slots.hold(0).is_none());
    for _ in 0..3 {
        assert!(limbo.reclaim().is_empty());
    }
    assert_eq!(limbo.len(), 1);
    check(&held, 7);
    drop(held);
    let mut returned = limbo.reclaim();
    assert!(limbo.is_empty() && !slab.is_free(0));
    let (at, frame) = returned.pop().expect("returned");
    assert_eq!((at, frame.place()), (place, Some(place)));
    drop(frame);
    assert!(slab.is_free(0));
}

#[test]
fn a_reader_that_comes_later_does_not_delay_a_return() {
    let mut fixture = Fixture::new(7);
    assert_eq!(fixture.evict(0, true), Eviction::Evicted);
    assert!(fixture.slots.fill(0, fixture.frame(1, 8)).is_ok());
    let slots = std::mem::replace(&mut fixture.slots, Slots::new(&Readers::new(), 0));
    let early = slots.hold(0);
    assert!(
        fixture.reclaim().is_empty(),
        "same epoch: not known to be later"
    );
    drop(early);
    let late = slots.hold(0);
    assert_eq!(fixture.reclaim().len(), 1);
    drop(late);
}

#[test]
fn a_kept_frame_outlives_slots_and_slab() {
    let fixture = Fixture::new(7);
    let kept = fixture.slots.hold(0).expect("full").keep();
    drop(fixture);
    check(&kept, 7);
}

#[test]
fn a_full_slot_refuses_another_frame_and_is_emptied_once() {
    let mut fixture = Fixture::new(7);
    let refused = fixture.slots.fill(0, fixture.frame(1, 8));
    check(&refused.expect_err("full"), 8);
    assert!(fixture.slab.is_free(1));
    assert_eq!(fixture.evict(1, true), Eviction::Other, "not its frame");
    let removed = fixture.slots.remove_all().count();
    assert_eq!((removed, fixture.evict(0, true)), (1, Eviction::Other));
    assert!(fixture.slab.is_free(0));
}

#[test]
fn a_used_frame_survives_as_many_evictions_as_it_has_uses() {
    let mut fixture = Fixture::new(7);
    for uses in [0, 2, USES_MAX + 5] {
        (0..uses).for_each(|_| drop(fixture.slots.hold(0)));
        for _ in 0..uses.min(USES_MAX) {
            assert_eq!(fixture.evict(0, false), Eviction::Used);
        }
        assert_eq!(fixture.evict(0, false), Eviction::Evicted);
        assert_eq!(fixture.reclaim().len(), 1);
        assert!(fixture.slots.fill(0, fixture.frame(0, 8)).is_ok());
    }
    drop(fixture.slots.hold(0));
    assert_eq!(fixture.evict(0, true), Eviction::Evicted, "used too");
}

#[test]
fn frames_of_a_dropped_limbo_are_freed_by_another_one_or_with_the_readers() {
    for another in [true, false] {
        let readers = Readers::new();
        let (slots, slab) = (Slots::new(&readers, 1), Slab::new(0, 128, 1));
        let frame = filled(slab.claim(0).expect("free"), 7);
        assert!(slots.fill(0, frame).is_ok());
        let held = slots.hold(0);
        let mut limbo = Limbo::new(&readers);
        let frame = slab.address(0);
        assert_eq!(slots.evict(0, frame, true, &mut limbo), Eviction::Evicted);
        drop(limbo);
        assert!(!slab.is_free(0));
        drop(held);
        if another {
            drop(Limbo::new(&readers).reclaim());
            assert!(slab.is_free(0));
        }
        drop((slots, readers));
        assert!(slab.is_free(0));
    }
}

#[test]
fn a_reader_without_a_word_delays_every_return() {
    let mut fixture = Fixture::new(7);
    let slots = std::mem::replace(&mut fixture.slots, Slots::new(&Readers::new(), 0));
    let mut held: Vec<_> = (0..200).map(|_| slots.hold(0)).collect();
    // The last one found no word.
    let last = held.pop();
    drop(held);
    let frame = fixture.slab.address(0);
    let evicted = slots.evict(0, frame, true, &mut fixture.limbo);
    assert_eq!(evicted, Eviction::Evicted);
    for _ in 0..3 {
        assert!(fixture.reclaim().is_empty());
    }
    drop(last);
    assert_eq!(fixture.reclaim().len(), 1);
}

#[test]
#[should_panic(expected = "other readers may use the frame")]
fn a_limbo_refuses_frames_of_other_readers() {
    let mut fixture = Fixture::new(7);
    fixture.limbo = Fixture::new(8).limbo;
    fixture.evict(0, true);
}

#[test]
fn readers_on_other_threads_see_only_valid_frames() {
    const SLOTS: usize = 4;
    let readers = Readers::new();
    let slots: Slots<u64> = Slots::new(&readers, SLOTS);
    let slab = Slab::new(0, 128, 16);
    let stop = AtomicBool::new(false);
    let rounds = if cfg!(miri) { 50 } else { 50_000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut kept = None;
                while !stop.load(Ordering::Relaxed) {
                    for at in 0..SLOTS {
                        if let Some(held) = slots.hold(at) {
                            let number = *held.shape();
                            assert_eq!(number % SLOTS as u64, at as u64);
                            check(&held, number);
                            if number % 7 == 0 {
                                kept = Some((number, held.keep()));
                            }
                        }
                        if let Some((number, frame)) = &kept {
                            check(frame, *number);
                        }
                    }
                }
            });
        }
        let mut limbo = Limbo::new(&readers);
        let mut filled_frames = [0; SLOTS];
        let mut returned = 0;
        for round in 0..rounds {
            let slot = round % SLOTS;
            let index = filled_frames[slot];
            slots.evict(slot, slab.address(index), true, &mut limbo);
            if limbo.len() >= 4 {
                returned += limbo.reclaim().len();
            }
            let free = (0..slab.frames()).find_map(|index| Some((index, slab.claim(index)?)));
            if let Some((index, space)) = free {
                assert!(slots.fill(slot, filled(space, round as u64)).is_ok());
                filled_frames[slot] = index;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(returned > 0 || cfg!(miri));
    });
    drop((slots, readers));
    let left = (0..slab.frames()).filter(|&index| !slab.is_free(index));
    assert_eq!(left.count(), 0);
}

#[test]
fn slots_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Slots<u64>>();
    is_shared::<Frame<u64>>();
    is_shared::<Arc<Slab>>();
}
