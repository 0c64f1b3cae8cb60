//! Loom models of the memtable and of frames in slots: every interleaving of one writer and one
//! reader, within a bound on preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p alluvium-mem --release --test loom
//! ```
//!
//! Nodes have three slots under loom, so one insert can split a leaf, an inner node, and grow the
//! tree. Loom sees the atomics of the tree. The `Watched` marker inside records and values checks
//! that they are published before they are read.
#![cfg(loom)]

use std::sync::Arc;

use alluvium_mem::epoch::{Eviction, Limbo, Readers, Slots};
use alluvium_mem::frames::{Frame, Slab, Space};
use alluvium_mem::{Memtable, MemtableOptions};
use loom::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};

/// Enough for any reordering of one change against one descent; each further one multiplies the
/// time by ten.
const PREEMPTIONS: usize = 3;

/// A memtable, and the visible seqno that an engine keeps next to it.
struct Store {
    memtable: Arc<Memtable>,
    visible: AtomicU64,
}

impl Store {
    /// Inserts the keys in this order, with seqnos starting at 1.
    fn with(keys: &[u8]) -> Arc<Store> {
        let store = Store {
            memtable: Arc::new(Memtable::new(&MemtableOptions {
                expected_bytes: 96,
                ..MemtableOptions::default()
            })),
            visible: AtomicU64::new(0),
        };
        for (key, seqno) in keys.iter().zip(1..) {
            store.insert(*key, seqno, 0);
        }
        Arc::new(store)
    }

    fn insert(&self, key: u8, seqno: u64, horizon: u64) {
        let value = [seqno as u8];
        let mut writer = self.memtable.writer();
        writer.insert(&[key], u64::from(key), None, seqno, 2, &value, horizon);
        drop(writer);
        self.visible.store(seqno, Release);
    }

    /// Returns the seqno of the visible version; checks that the value belongs to it.
    fn get(&self, key: u8, read_point: u64) -> Option<u64> {
        let entry = self.memtable.get(&[key], read_point)?;
        assert_eq!(entry.value, [entry.seqno as u8]);
        Some(entry.seqno)
    }
}

/// Runs `write` concurrently with `read` in all interleavings, on a fresh store each time.
fn check(keys: &'static [u8], write: fn(&Store), read: fn(&Store)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.max_branches = 20_000;
    model.check(move || {
        let store = Store::with(keys);
        let writing = Arc::clone(&store);
        let writer = loom::thread::spawn(move || write(&writing));
        read(&store);
        writer.join().expect("the writer ends");
    });
}

#[test]
fn a_get_during_a_leaf_split_finds_the_published_rows() {
    check(
        b"bdf",
        |store| store.insert(b'c', 4, 0),
        |store| {
            assert_eq!(store.get(b'f', 3), Some(3));
            let visible = store.visible.load(Acquire);
            assert_eq!(store.get(b'c', visible), (visible == 4).then_some(4));
        },
    );
}

#[test]
fn a_cursor_during_a_leaf_split_visits_every_key_once() {
    check(
        b"bdf",
        |store| store.insert(b'c', 4, 0),
        |store| {
            let mut cursor = store.memtable.cursor(3);
            assert!(cursor.seek(b"b"));
            for expected in [b'd', b'f'] {
                assert!(cursor.next());
                assert_eq!(cursor.key(), [expected]);
            }
            assert!(!cursor.next());
        },
    );
}

#[test]
fn a_backward_cursor_during_a_leaf_split_visits_every_key_once() {
    check(
        b"bdf",
        |store| store.insert(b'c', 4, 0),
        |store| {
            let mut cursor = store.memtable.cursor(3);
            assert!(cursor.seek_last());
            for expected in [b'd', b'b'] {
                assert!(cursor.prev());
                assert_eq!(cursor.key(), [expected]);
            }
            assert!(!cursor.prev());
        },
    );
}

#[test]
fn a_get_during_a_split_of_root_and_leaf_finds_the_published_rows() {
    // Ascending keys leave full leaves of three: the root is full of leaves, and `d` goes into a
    // full one.
    check(
        b"aceghikmo",
        |store| store.insert(b'd', 10, 0),
        |store| {
            assert_eq!(store.get(b'o', 9), Some(9));
            let visible = store.visible.load(Acquire);
            assert_eq!(store.get(b'd', visible), (visible == 10).then_some(10));
        },
    );
}

#[test]
fn an_insert_during_a_get_in_the_same_leaf_is_seen_once_published() {
    check(
        b"df",
        |store| store.insert(b'b', 3, 0),
        |store| {
            assert_eq!(store.get(b'd', 2), Some(1));
            let visible = store.visible.load(Acquire);
            assert_eq!(store.get(b'b', visible), (visible == 3).then_some(3));
        },
    );
}

#[test]
fn a_reader_at_the_horizon_keeps_its_version_while_older_ones_are_unlinked() {
    check(
        b"aaa",
        |store| {
            store.insert(b'a', 4, 3);
            store.insert(b'a', 5, 3);
        },
        |store| {
            assert_eq!(store.get(b'a', 3), Some(3));
            let visible = store.visible.load(Acquire);
            assert_eq!(store.get(b'a', visible), Some(visible));
            let mut cursor = store.memtable.cursor(3);
            assert!(cursor.seek_first());
            let seqnos = cursor.versions().map(|version| version.seqno);
            assert!(seqnos.is_sorted_by(|newer, older| newer > older));
            assert_eq!(cursor.entry().seqno, 3);
        },
    );
}

#[test]
fn a_reader_at_the_horizon_keeps_its_version_while_a_long_chain_is_trimmed() {
    check(
        b"aaaaaaaaa",
        |store| store.insert(b'a', 10, 5),
        |store| {
            assert_eq!(store.get(b'a', 5), Some(5));
            assert_eq!(store.get(b'a', 8), Some(8));
        },
    );
}

/// Content of a frame. The watch in its header fails the model if a thread writes the content while
/// another one reads it.
fn filled(space: Space, number: u64) -> Frame<u64> {
    let mut filling = space.fill(number, 1, 0);
    filling.parts_mut().0[0] = number;
    filling.share()
}

fn check_content(frame: &Frame<u64>) {
    assert_eq!((*frame.shape(), frame.words()), (7, &[7][..]));
}

/// Runs `read` concurrently with a thread that evicts the frame and fills it again.
fn check_evicted<R>(read: fn(&Slots<u64>) -> R)
where
    R: 'static,
{
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let readers = Readers::new();
        let slots = Arc::new(Slots::new(&readers, 1));
        let slab = Slab::new(0, 512, 1);
        let frame = filled(slab.claim(0).expect("free"), 7);
        assert!(slots.fill(0, frame).is_ok());
        let (other, frames) = (Arc::clone(&slots), slab.clone());
        let evictor = loom::thread::spawn(move || {
            let mut limbo = Limbo::new(&readers);
            let evicted = other.evict(0, frames.address(0), true, &mut limbo);
            assert_eq!(evicted, Eviction::Evicted);
            let free = limbo.reclaim().pop();
            if let Some(space) = free.and_then(|(_, frame)| frame.into_space().ok()) {
                drop(filled(space, 8));
            }
        });
        let kept = read(&slots);
        // Any thread may claim a frame without references.
        if let Some(space) = slab.claim(0) {
            drop(filled(space, 9));
        }
        drop(kept);
        evictor.join().expect("the evictor ends");
    });
}

fn check_held(slots: &Slots<u64>) {
    if let Some(frame) = slots.hold(0) {
        check_content(&frame);
    }
}

#[test]
fn a_frame_is_not_filled_before_its_reader_has_left() {
    check_evicted(check_held);
}

#[test]
fn a_frame_is_not_filled_before_a_later_reader_of_the_same_word_has_left() {
    check_evicted(|slots| {
        check_held(slots);
        check_held(slots);
    });
}

#[test]
fn a_kept_frame_is_not_filled() {
    check_evicted(|slots| {
        let kept = slots.hold(0).map(|frame| frame.keep());
        kept.inspect(check_content)
    });
}

#[test]
fn a_frame_is_not_filled_before_a_reader_without_a_word_has_left() {
    check_evicted(|slots| {
        let words = [slots.hold(0), slots.hold(0)];
        let held = slots.hold(0);
        drop(words);
        if let Some(frame) = held {
            check_content(&frame);
        }
    });
}

#[test]
fn threads_that_claim_one_frame_take_turns() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let slab = Slab::new(0, 512, 1);
        let other = slab.clone();
        let thread = loom::thread::spawn(move || {
            if let Some(space) = other.claim(0) {
                let frame = filled(space, 7);
                let second = frame.clone();
                drop(frame);
                check_content(&second);
            }
        });
        if let Some(space) = slab.claim(0) {
            let frame = filled(space, 7);
            check_content(&frame);
        }
        thread.join().expect("the other thread ends");
        assert!(slab.is_free(0));
    });
}
