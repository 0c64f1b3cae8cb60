//! loom models of the protocol: one key with an entry for each commit, and a dropper that drops
//! every permitted entry.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p alluvium --lib --release model`.

use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;

/// One flag for each seqno: true while the key's entry at this seqno exists.
type Entries = Arc<Vec<AtomicBool>>;

fn entries(count: usize) -> Entries {
    Arc::new((0..count).map(|_| AtomicBool::new(true)).collect())
}

/// Publishes every seqno from 1, and drops every permitted entry after each.
fn commit_and_drop(points: &ReadPoints, entries: &Entries) {
    for newest in 1..entries.len() as u64 {
        points.publish(newest);
        let drops = points.horizon_points();
        for older in 0..newest {
            if drops.can_drop(older, older + 1) {
                entries[older as usize].store(false, Ordering::SeqCst);
            }
        }
    }
}

fn read(point: &ReadPoint, entries: &Entries) {
    let seqno = point.seqno() as usize;
    assert!(
        entries[seqno].load(Ordering::SeqCst),
        "entry {seqno} is gone"
    );
}

/// Checks that readers find their entry whenever they register, with this many slots.
fn reader_against_dropper(slots: usize, readers: usize) {
    loom::model(move || {
        let points = ReadPoints::with_slots(0, slots);
        let entries = entries(3);
        let threads: Vec<_> = (0..readers)
            .map(|_| {
                let (points, entries) = (Arc::clone(&points), Arc::clone(&entries));
                thread::spawn(move || read(&points.register(), &entries))
            })
            .collect();
        commit_and_drop(&points, &entries);
        for thread in threads {
            thread.join().expect("no reader fails");
        }
        assert_eq!(points.horizon(), 2);
    });
}

#[test]
fn model_a_reader_in_a_slot_finds_its_entry() {
    reader_against_dropper(1, 1);
}

#[test]
fn model_a_reader_in_the_overflow_map_finds_its_entry() {
    reader_against_dropper(0, 1);
}

#[test]
fn model_two_readers_and_one_slot() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let points = ReadPoints::with_slots(0, 1);
        let entries = entries(2);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (points, entries) = (Arc::clone(&points), Arc::clone(&entries));
                thread::spawn(move || read(&points.register(), &entries))
            })
            .collect();
        commit_and_drop(&points, &entries);
        for thread in threads {
            thread.join().expect("no reader fails");
        }
    });
}

#[test]
fn model_a_clone_outlives_its_source_under_a_dropper() {
    loom::model(|| {
        let points = ReadPoints::with_slots(0, 2);
        let entries = entries(2);
        // The slot before the source's is free again. If a clone took it, a dropper could pass it
        // before the clone, and the source's slot after the source is gone.
        let before = points.register();
        let source = points.register();
        drop(before);
        let reader = {
            let entries = Arc::clone(&entries);
            thread::spawn(move || {
                let clone = source.clone();
                drop(source);
                read(&clone, &entries);
            })
        };
        commit_and_drop(&points, &entries);
        reader.join().expect("no reader fails");
    });
}

#[test]
fn model_sharers_on_two_threads_free_the_slot_once_both_are_done() {
    loom::model(|| {
        let points = ReadPoints::with_slots(0, 1);
        let entries = entries(2);
        let source = points.register();
        let clone = source.clone();
        let reader = {
            let entries = Arc::clone(&entries);
            thread::spawn(move || read(&clone, &entries))
        };
        drop(source);
        commit_and_drop(&points, &entries);
        reader.join().expect("no reader fails");
        assert_eq!(points.horizon(), 1);
    });
}
