//! Readers concurrent with the writer find everything published, in order, and nothing newer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_mem::{Memtable, MemtableOptions};

use crate::model::{Random, ShowSeed, hash};

const KEYS: u64 = if cfg!(miri) { 24 } else { 3_000 };
const COMMITS: u64 = if cfg!(miri) { 100 } else { 60_000 };
const READERS: usize = 3;

/// State that the engine keeps outside of the memtable: the visible seqno, and one registered read
/// point per reader.
struct Shared {
    memtable: Arc<Memtable>,
    visible: AtomicU64,
    registered: [AtomicU64; READERS],
}

/// Returns the number of the key that commit `seqno` writes. Every round writes each key once, in
/// an order of its own.
fn key_of(seqno: u64) -> u64 {
    let (round, turn) = ((seqno - 1) / KEYS, (seqno - 1) % KEYS);
    (turn * [1, 7, 11, 13][round as usize % 4] + round) % KEYS
}

/// Returns the last commit up to `read_point` that wrote this key.
fn newest_commit(key: u64, read_point: u64) -> Option<u64> {
    let back = (0..2 * KEYS).map_while(|back| read_point.checked_sub(back));
    back.take_while(|seqno| *seqno > 0)
        .find(|seqno| key_of(*seqno) == key)
}

fn encode(key: u64) -> Vec<u8> {
    [b"shared head", &key.to_be_bytes()[..]].concat()
}

fn write(shared: &Shared) {
    for seqno in 1..=COMMITS {
        // A reader registers before it reads `visible`, so its read point is at or above this.
        let oldest = shared.registered.iter().map(|r| r.load(Ordering::SeqCst));
        let horizon = oldest.min().unwrap_or(0).min(seqno - 1);
        let key = encode(key_of(seqno));
        let mut writer = shared.memtable.writer();
        let value = seqno.to_le_bytes();
        writer.insert(&key, hash(&key), None, seqno, 2, &value, horizon);
        drop(writer);
        shared.visible.store(seqno, Ordering::Release);
    }
}

fn read(shared: &Shared, reader: usize, random: &mut Random) {
    let mut read_point = 0;
    while read_point < COMMITS {
        read_point = shared.visible.load(Ordering::Acquire);
        // Monotonic: all earlier read points are released, this one is held until the next
        // iteration.
        shared.registered[reader].store(read_point, Ordering::SeqCst);
        for _ in 0..20 {
            let key = random.below(KEYS);
            let found = shared.memtable.get(&encode(key), read_point);
            let expected = newest_commit(key, read_point);
            assert_eq!(found.map(|entry| entry.seqno), expected);
            assert!(found.is_none() || shared.memtable.may_contain(hash(&encode(key))));
        }
        scan(shared, random, read_point);
    }
}

/// Scans from a random key. Every key exists after the first round; during it, only the keys
/// written so far do.
fn scan(shared: &Shared, random: &mut Random, read_point: u64) {
    let (start, forwards) = (random.below(KEYS), random.below(2) == 0);
    let mut cursor = shared.memtable.cursor(read_point);
    let mut left = 100;
    let mut expected = if forwards {
        cursor.seek(&encode(start));
        start
    } else {
        cursor.seek_before(&encode(start + 1));
        start
    };
    while left > 0 {
        left -= 1;
        let seen = cursor.valid().then(|| cursor.key().to_vec());
        let commit = newest_commit(expected, read_point);
        if let Some(commit) = commit {
            assert_eq!(seen, Some(encode(expected)));
            let entry = cursor.entry();
            assert_eq!(
                (entry.seqno, entry.value),
                (commit, &commit.to_le_bytes()[..])
            );
            if forwards {
                cursor.next()
            } else {
                cursor.prev()
            };
        } else {
            assert_ne!(seen, Some(encode(expected)));
        }
        if forwards && expected + 1 < KEYS {
            expected += 1;
        } else if !forwards && expected > 0 {
            expected -= 1;
        } else {
            assert!(!cursor.valid());
            return;
        }
    }
}

#[test]
fn concurrent_readers_see_exactly_the_published_rows() {
    let shared = Shared {
        memtable: Arc::new(Memtable::new(&MemtableOptions {
            expected_bytes: 1 << 20,
            ..MemtableOptions::default()
        })),
        visible: AtomicU64::new(0),
        registered: [const { AtomicU64::new(0) }; READERS],
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(&shared));
        for reader in 0..READERS {
            let shared = &shared;
            scope.spawn(move || {
                let seed = 100 + reader as u64;
                let _seed = ShowSeed(seed);
                read(shared, reader, &mut Random(seed));
            });
        }
    });
    assert_eq!(shared.memtable.entries() as u64, COMMITS);
}

#[test]
fn a_cursor_moves_to_another_thread_and_outlives_the_handle() {
    let memtable = Arc::new(Memtable::new(&MemtableOptions::default()));
    memtable.writer().insert(b"key", 1, None, 1, 2, b"value", 0);
    let mut cursor = memtable.cursor(1);
    drop(memtable);
    let value = std::thread::spawn(move || {
        assert!(cursor.seek_first());
        cursor.entry().value.to_vec()
    });
    assert_eq!(value.join().expect("no panic"), b"value");
}
