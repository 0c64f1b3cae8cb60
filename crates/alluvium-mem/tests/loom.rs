//! Loom models of the memtable and of shared pointers: every interleaving of one writer and one
//! reader, within a bound on preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p alluvium-mem --release --test loom
//! ```
//!
//! Nodes have three slots under loom, so one insert can split a leaf, an inner node, and grow the
//! tree. Loom sees the atomics of the tree. The `Published` marker inside records and values checks
//! that they are published before they are read.
#![cfg(loom)]

use std::sync::Arc;

use alluvium_mem::epoch::{Limbo, Readers, Slots};
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

/// Value of a slot. Loom refuses a use that races with the drop.
struct Value(loom::cell::UnsafeCell<u32>);

// SAFETY: readers only read it; the drop has the only reference.
unsafe impl Sync for Value {}
// SAFETY: as for `Sync`.
unsafe impl Send for Value {}

impl Value {
    fn check(&self) {
        // SAFETY: loom checks that no write is concurrent.
        self.0.with(|number| assert_eq!(unsafe { *number }, 7));
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: as in `check`.
        self.0.with_mut(|number| unsafe { *number = 0 });
    }
}

/// Runs `read` concurrently with a thread that takes the value out of the slot and frees it. What
/// `read` returns is dropped after both, because loom does not see the order that an `Arc` makes.
fn check_taken<R>(read: fn(&Slots<Value>) -> R)
where
    R: 'static,
{
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let readers = Readers::new();
        let slots = Arc::new(Slots::new(&readers, 1));
        let value = Arc::new(Value(loom::cell::UnsafeCell::new(7)));
        assert!(slots.fill(0, value).is_ok());
        let other = Arc::clone(&slots);
        let taker = loom::thread::spawn(move || {
            let mut limbo = Limbo::new(&readers);
            limbo.add(other.take(0, |_| 1).expect("full"));
            drop(limbo.reclaim());
        });
        let kept = read(&slots);
        taker.join().expect("the taker ends");
        drop(kept);
    });
}

fn check_held(slots: &Slots<Value>) {
    if let Some(value) = slots.hold(0) {
        value.check();
    }
}

#[test]
fn a_value_is_not_freed_before_its_reader_has_left() {
    check_taken(check_held);
}

#[test]
fn a_value_is_not_freed_before_a_later_reader_of_the_same_word_has_left() {
    check_taken(|slots| {
        check_held(slots);
        check_held(slots);
    });
}

#[test]
fn a_kept_value_is_not_freed() {
    check_taken(|slots| {
        let kept = slots.hold(0).map(|value| value.keep());
        kept.inspect(|value| value.check())
    });
}

#[test]
fn a_value_is_not_freed_before_a_reader_without_a_word_has_left() {
    check_taken(|slots| {
        let words = [slots.hold(0), slots.hold(0)];
        let held = slots.hold(0);
        drop(words);
        if let Some(value) = held {
            value.check();
        }
    });
}
