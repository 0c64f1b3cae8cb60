//! Tests of shared pointers: what readers hold stays valid, and everything is returned once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use alluvium_mem::epoch::{Limbo, Readers, Slots};

/// Counts its drops.
struct Value {
    number: u64,
    dropped: Arc<AtomicU64>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.number = u64::MAX;
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn value(number: u64, dropped: &Arc<AtomicU64>) -> Arc<Value> {
    Arc::new(Value {
        number,
        dropped: Arc::clone(dropped),
    })
}

/// One full slot, and a limbo for its value.
fn full(number: u64, dropped: &Arc<AtomicU64>) -> (Slots<Value>, Limbo) {
    let readers = Readers::new();
    let slots = Slots::new(&readers, 1);
    assert!(slots.fill(0, value(number, dropped)).is_ok());
    (slots, Limbo::new(&readers))
}

fn drops(dropped: &Arc<AtomicU64>) -> u64 {
    dropped.load(Ordering::Relaxed)
}

#[test]
fn a_taken_value_is_returned_after_its_readers_have_left() {
    let dropped = Arc::default();
    let (slots, mut limbo) = full(7, &dropped);
    let held = slots.hold(0).expect("full");
    limbo.add(slots.take(0, |value| value.number).expect("full"));
    assert!(!slots.is_full(0) && slots.hold(0).is_none());
    assert_eq!((limbo.len(), limbo.bytes()), (1, 7));
    for _ in 0..3 {
        assert!(limbo.reclaim().is_empty());
    }
    assert_eq!(held.number, 7);
    drop(held);
    let returned = limbo.reclaim();
    assert_eq!((returned.len(), limbo.len(), limbo.bytes()), (1, 0, 0));
    let returned = returned.into_iter().map(|r| r.downcast::<Value>());
    let returned: Vec<_> = returned.map(|r| r.expect("a value")).collect();
    assert_eq!((returned[0].number, drops(&dropped)), (7, 0));
    drop(returned);
    assert_eq!(drops(&dropped), 1);
}

#[test]
fn a_reader_that_comes_later_does_not_delay_a_return() {
    let dropped = Arc::default();
    let (slots, mut limbo) = full(7, &dropped);
    limbo.add(slots.take(0, |_| 1).expect("full"));
    assert!(slots.fill(0, value(8, &dropped)).is_ok());
    let early = slots.hold(0);
    assert!(
        limbo.reclaim().is_empty(),
        "same epoch: not known to be later"
    );
    drop(early);
    let late = slots.hold(0);
    assert_eq!(limbo.reclaim().len(), 1);
    drop(late);
}

#[test]
fn a_kept_value_outlives_slots_and_limbo() {
    let dropped = Arc::default();
    let (slots, limbo) = full(7, &dropped);
    let kept = slots.hold(0).expect("full").keep();
    drop((slots, limbo));
    assert_eq!((kept.number, drops(&dropped)), (7, 0));
    drop(kept);
    assert_eq!(drops(&dropped), 1);
}

#[test]
fn a_full_slot_refuses_another_value_and_is_emptied_once() {
    let dropped = Arc::default();
    let (mut slots, _limbo) = full(7, &dropped);
    let refused = slots.fill(0, value(8, &dropped)).expect_err("full");
    assert_eq!(refused.number, 8);
    let removed: Vec<_> = slots.remove_all().map(|value| value.number).collect();
    assert_eq!(removed, [7]);
    assert!(slots.take(0, |_| 0).is_none());
}

#[test]
fn values_of_a_dropped_limbo_are_freed_by_another_one_or_with_the_readers() {
    for another in [true, false] {
        let dropped = Arc::default();
        let readers = Readers::new();
        let slots = Slots::new(&readers, 1);
        assert!(slots.fill(0, value(7, &dropped)).is_ok());
        let held = slots.hold(0);
        let mut limbo = Limbo::new(&readers);
        limbo.add(slots.take(0, |_| 0).expect("full"));
        drop(limbo);
        assert_eq!(drops(&dropped), 0);
        drop(held);
        if another {
            Limbo::new(&readers).reclaim();
            assert_eq!(drops(&dropped), 1);
        }
        drop((slots, readers));
        assert_eq!(drops(&dropped), 1);
    }
}

#[test]
fn a_reader_without_a_word_delays_every_return() {
    let dropped = Arc::default();
    let (slots, mut limbo) = full(7, &dropped);
    let mut held: Vec<_> = (0..200).map(|_| slots.hold(0)).collect();
    // The last one found no word.
    let last = held.pop();
    drop(held);
    limbo.add(slots.take(0, |_| 0).expect("full"));
    for _ in 0..3 {
        assert!(limbo.reclaim().is_empty());
    }
    drop(last);
    assert_eq!(limbo.reclaim().len(), 1);
}

#[test]
#[should_panic(expected = "other readers may use the value")]
fn a_limbo_refuses_values_of_other_readers() {
    let dropped = Arc::default();
    let (slots, _) = full(7, &dropped);
    let (_, mut limbo) = full(8, &dropped);
    limbo.add(slots.take(0, |_| 0).expect("full"));
}

#[test]
fn readers_on_other_threads_see_only_valid_values() {
    const SLOTS: usize = 4;
    let dropped = Arc::default();
    let readers = Readers::new();
    let slots: Slots<Value> = Slots::new(&readers, SLOTS);
    let stop = AtomicBool::new(false);
    let rounds = if cfg!(miri) { 50 } else { 50_000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for at in 0..SLOTS {
                        if let Some(value) = slots.hold(at) {
                            assert_eq!(value.number % SLOTS as u64, at as u64);
                        }
                    }
                }
            });
        }
        let mut limbo = Limbo::new(&readers);
        for round in 0..rounds {
            let at = round % SLOTS;
            if let Some(taken) = slots.take(at, |_| 1) {
                limbo.add(taken);
            }
            assert!(slots.fill(at, value(round as u64, &dropped)).is_ok());
            if limbo.len() >= 8 {
                drop(limbo.reclaim());
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop((slots, readers));
    assert_eq!(drops(&dropped), rounds as u64);
}
