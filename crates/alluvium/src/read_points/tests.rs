//! Read points with one thread, and with many readers against a dropper.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use super::*;

#[test]
fn a_point_reads_what_was_published_when_it_registered() {
    let points = ReadPoints::new(7);
    let before = points.register();
    points.publish(9);
    assert_eq!(before.seqno(), 7);
    assert_eq!(points.register().seqno(), 9);
    assert_eq!(points.visible(), 9);
}

#[test]
fn the_horizon_follows_the_oldest_point() {
    let points = ReadPoints::new(5);
    let five = points.register();
    points.publish(8);
    let eight = points.register();
    points.publish(10);
    assert_eq!(points.horizon(), 5);
    assert_eq!(points.horizon_points().registered(), [5, 8]);
    drop(five);
    assert_eq!(points.horizon(), 8);
    drop(eight);
    assert_eq!(points.horizon(), 10);
    assert_eq!(points.horizon_points().horizon(), 10);
}

#[test]
fn an_entry_goes_only_if_a_published_one_covers_it_for_every_point() {
    let points = ReadPoints::new(10);
    let _ten = points.register();
    points.publish(20);
    let _twenty = points.register();
    points.publish(30);
    let drops = points.horizon_points();
    // (older, newer), with or without a reader between them.
    assert!(
        drops.can_drop(1, 10),
        "the reader at 10 reads the newer one"
    );
    assert!(
        !drops.can_drop(10, 11),
        "the reader at 10 reads the older one"
    );
    assert!(!drops.can_drop(5, 15));
    assert!(drops.can_drop(11, 20));
    assert!(drops.can_drop(11, 12));
    assert!(!drops.can_drop(20, 30));
    assert!(drops.can_drop(21, 30));
    assert!(!drops.can_drop(21, 31), "31 is not published");
    assert!(!drops.can_drop(12, 12), "one entry does not cover itself");
}

#[test]
fn a_clone_keeps_its_point_after_its_source_is_gone() {
    for slots in [0, 4] {
        let points = ReadPoints::with_slots(3, slots);
        let source = points.register();
        let clone = source.clone();
        points.publish(4);
        drop(source);
        assert_eq!(clone.seqno(), 3);
        assert_eq!(points.horizon(), 3);
        drop(clone);
        assert_eq!(points.horizon(), 4);
    }
}

#[test]
fn points_beyond_the_slots_are_kept_too() {
    let points = ReadPoints::with_slots(0, 2);
    let mut held = Vec::new();
    for seqno in 1..=6 {
        points.publish(seqno);
        held.push(points.register());
        held.push(points.register());
    }
    points.publish(7);
    assert_eq!(points.horizon_points().registered(), [1, 2, 3, 4, 5, 6]);
    held.drain(..2);
    assert_eq!(points.horizon(), 2);
    held.clear();
    assert_eq!(points.horizon(), 7);
    assert!(points.overflow.lock().is_empty());
}

#[test]
fn a_slot_is_used_again_by_the_thread_that_left_it() {
    let points = ReadPoints::new(1);
    let slot = || match &points.register().place {
        Place::Slot(slot) => Arc::as_ptr(slot),
        Place::Overflow(_) => panic!("all slots but one are free"),
    };
    let first = slot();
    for _ in 0..1_000 {
        assert_eq!(slot(), first);
    }
}

/// Readers of one key that is constantly overwritten, and a dropper that drops every permitted
/// entry.
#[test]
fn no_reader_misses_its_entry_while_a_dropper_runs() {
    const COMMITS: u64 = 20_000;
    for slots in [1, 3, 64] {
        let points = ReadPoints::with_slots(0, slots);
        // One flag for each seqno: true while the key's entry exists.
        let exists: Vec<AtomicBool> = (0..=COMMITS).map(|_| AtomicBool::new(true)).collect();
        let applied = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for seqno in 1..=COMMITS {
                    applied.store(seqno, Ordering::Release);
                    points.publish(seqno);
                }
            });
            scope.spawn(|| {
                let mut kept = vec![0];
                let mut next = 1;
                while next <= COMMITS {
                    let upto = applied.load(Ordering::Acquire);
                    kept.extend(next..=upto);
                    next = upto + 1;
                    let drops = points.horizon_points();
                    let mut newer = u64::MAX;
                    for &seqno in kept.iter().rev() {
                        if drops.can_drop(seqno, newer) {
                            exists[seqno as usize].store(false, Ordering::SeqCst);
                        }
                        newer = seqno;
                    }
                    kept.retain(|&seqno| exists[seqno as usize].load(Ordering::Relaxed));
                }
            });
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let mut point = points.register();
                        // The source is dropped at once: the clone alone must hold the point.
                        point = point.clone();
                        thread::yield_now();
                        let seqno = point.seqno();
                        assert!(
                            exists[seqno as usize].load(Ordering::SeqCst),
                            "{slots} slots: the entry at {seqno} is gone"
                        );
                        if seqno == COMMITS {
                            break;
                        }
                    }
                });
            }
        });
        assert_eq!(points.horizon_points().registered(), []);
    }
}
