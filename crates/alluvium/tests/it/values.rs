//! Large values, which are stored in value files, separate from their keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium::vfs::{CrashOptions, MemVfs, Vfs};
use alluvium::{
    BulkLoadOptions, Clock, CompactionFilter, CursorOptions, Database, Error, Expiry,
    FilterDecision, Keyspace, KeyspaceOptions, Options, SeqNo, WriteBatch,
};
use alluvium_testkit::model::Direction;
use alluvium_testkit::random::Rng;

use crate::driver::collect;
use crate::fixture::{all, assert_error, dir, open, tiny};

/// Returns options under which each flushed table is due for compaction.
fn eager() -> Options {
    Options {
        memtable_bytes: Some(1),
        upper_fraction: 0.02,
        ..tiny()
    }
}

fn separating(expiry: Expiry) -> KeyspaceOptions {
    KeyspaceOptions {
        value_separation_bytes: Some(1000),
        expiry,
        ..KeyspaceOptions::default()
    }
}

fn database() -> (MemVfs, Database, Keyspace) {
    let vfs = MemVfs::new();
    let db = open(&vfs, eager());
    let k = db
        .keyspace("k", separating(Expiry::Never))
        .expect("keyspace");
    (vfs, db, k)
}

fn value_files(vfs: &MemVfs) -> Vec<String> {
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(".val"));
    names.sort();
    names
}

fn key(n: usize) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

/// Returns a value of 500 to 1500 bytes, so that about half of the values are separated.
fn value(n: usize, round: u64) -> Vec<u8> {
    let mut rng = Rng::new(round << 32 | n as u64);
    let length = 500 + rng.below(1000);
    rng.bytes(length)
}

fn put(db: &Database, k: &Keyspace, keys: std::ops::Range<usize>, round: u64) {
    let mut batch = WriteBatch::new();
    keys.for_each(|n| batch.put(k, &key(n), &value(n, round)).expect("put"));
    db.write(&batch).expect("write");
}

fn rows(keys: std::ops::Range<usize>, round: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    keys.map(|n| (key(n), value(n, round))).collect()
}

#[test]
fn large_values_read_the_same_from_memory_files_and_after_reopening() {
    let (vfs, db, k) = database();
    put(&db, &k, 0..100, 1);
    for step in ["memory", "flushed", "settled", "reopened"] {
        match step {
            "memory" => {}
            "flushed" => db.flush().expect("flush"),
            _ => db.settle().expect("settle"),
        }
        if step == "reopened" {
            db.close().expect("close");
            let db = open(&vfs, eager());
            let k = db.existing_keyspace("k").expect("look").expect("keyspace");
            assert_eq!(all(&k), rows(0..100, 1));
            return;
        }
        assert_eq!(all(&k), rows(0..100, 1), "{step}");
        let cursor = k.cursor(CursorOptions::default()).expect("cursor");
        let reverse = collect(cursor, Direction::Backward, 200);
        assert!(
            reverse.into_iter().eq(rows(0..100, 1).into_iter().rev()),
            "{step}"
        );
        for n in 0..100 {
            let found = k.get(&key(n)).expect("get").expect("a row");
            assert_eq!(found[..], value(n, 1)[..], "{step} {n}");
            let length = k.read(&key(n), |v| v.map(<[u8]>::len)).expect("read");
            assert_eq!(length, Some(found.len()));
        }
    }
}

#[test]
fn compactions_move_pointers_and_leave_the_values_in_place() {
    let (vfs, db, k) = database();
    put(&db, &k, 0..100, 1);
    db.flush().expect("flush");
    let files = value_files(&vfs);
    assert!(!files.is_empty());
    for round in 0..5 {
        // Small rows between the large ones make the compactions rewrite all tables.
        for n in 0..20 {
            k.put(&[&key(n * 5)[..], b"x"].concat(), &[round; 20])
                .expect("put");
        }
        db.settle().expect("settle");
    }
    assert_eq!(value_files(&vfs), files);
    let stats = db.stats().expect("stats");
    assert!(stats.compactions > 0, "{stats:?}");
}

#[test]
fn garbage_is_collected_and_files_without_a_pointer_are_removed() {
    let (vfs, db, k) = database();
    put(&db, &k, 0..100, 1);
    db.settle().expect("settle");
    let first = value_files(&vfs);
    for round in 2..6 {
        put(&db, &k, 0..100, round);
        db.settle().expect("settle");
        let now = value_files(&vfs);
        assert!(
            first.iter().all(|old| !now.contains(old)),
            "{first:?} {now:?}"
        );
        assert_eq!(all(&k), rows(0..100, round));
    }
    let mut batch = WriteBatch::new();
    (0..100).for_each(|n| batch.delete(&k, &key(n)).expect("delete"));
    db.write(&batch).expect("write");
    db.settle().expect("settle");
    assert_eq!(value_files(&vfs), [""; 0]);
    assert!(all(&k).is_empty());
}

#[test]
fn garbage_is_collected_in_groups_without_writes() {
    let (vfs, db, k) = database();
    put(&db, &k, 0..100, 1);
    db.settle().expect("settle");
    let first = value_files(&vfs);
    // Less than half of the keys, and all at the beginning: the later groups are not due for
    // compaction.
    for round in 2..4 {
        put(&db, &k, 0..40, round);
        db.settle().expect("settle");
    }
    let now = value_files(&vfs);
    assert!(
        first.iter().all(|old| !now.contains(old)),
        "{first:?} {now:?}"
    );
    let mut expected = rows(0..40, 3);
    expected.extend(rows(40..100, 1));
    assert_eq!(all(&k), expected);
}

#[test]
fn a_value_that_packs_to_almost_nothing_is_not_moved_for_ever() {
    let (vfs, db, k) = database();
    k.put(b"a", &[7; 2000]).expect("put");
    db.settle().expect("settle");
    let files = value_files(&vfs);
    for n in 0..3 {
        k.put(b"b", &[n]).expect("put");
        db.settle().expect("settle");
    }
    assert_eq!(value_files(&vfs), files);
}

#[test]
fn a_reader_keeps_the_value_files_that_it_may_still_need() {
    let (_vfs, db, k) = database();
    put(&db, &k, 0..50, 1);
    db.settle().expect("settle");
    let snapshot = db.snapshot().expect("snapshot");
    let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
    assert!(cursor.seek_first().expect("seek"));
    for round in 2..5 {
        put(&db, &k, 0..50, round);
        db.settle().expect("settle");
    }
    let old = snapshot
        .cursor(&k, CursorOptions::default())
        .expect("cursor");
    assert_eq!(crate::fixture::rows(old), rows(0..50, 1));
    assert!(cursor.next().expect("next"));
    assert_eq!(cursor.value(), value(1, 1));
}

#[test]
fn a_damaged_value_is_an_error_that_names_its_file() {
    let (vfs, db, k) = database();
    put(&db, &k, 0..50, 1);
    db.settle().expect("settle");
    db.close().expect("close");
    let files = value_files(&vfs);
    let path = dir().join(&files[0]);
    let file = vfs.open(&path).expect("open");
    let mut byte = [0];
    file.read_at(&mut byte, 40).expect("read");
    file.write_at(&[byte[0] ^ 1], 40).expect("write");
    let db = open(&vfs, eager());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    let errors = (0..50).filter_map(|n| k.get(&key(n)).err());
    let errors: Vec<Error> = errors.collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(matches!(&errors[0], Error::Corruption { path: at, offset: 0, .. } if *at == path));
    let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
    let mut found = cursor.seek_first();
    while matches!(found, Ok(true)) {
        found = cursor.next();
    }
    assert_error!(found, Error::Corruption { .. });
    let keys_only = CursorOptions {
        keys_only: true,
        ..CursorOptions::default()
    };
    let cursor = k.cursor(keys_only).expect("cursor");
    assert_eq!(
        collect(cursor, Direction::Forward, 99).len(),
        50,
        "keys need no values"
    );
}

#[test]
fn a_missing_or_cut_value_file_is_found_when_the_database_is_opened() {
    for cut in [None, Some(0), Some(70)] {
        let (vfs, db, k) = database();
        put(&db, &k, 0..50, 1);
        db.settle().expect("settle");
        drop(k);
        db.close().expect("close");
        let path = dir().join(&value_files(&vfs)[0]);
        match cut {
            None => vfs.remove(&path).expect("remove"),
            Some(length) => {
                let file = vfs.open(&path).expect("open");
                file.truncate(length).expect("truncate");
            }
        }
        let opened = Database::open_on(Arc::new(vfs.clone()), dir(), eager());
        assert_error!(opened, Error::Corruption { .. });
    }
}

/// Compaction filter that removes a row if its value begins with an even byte, and replaces the
/// value if it begins with 3.
struct Odd;

impl CompactionFilter for Odd {
    fn filter(&self, _: &[u8], value: &[u8], _: SeqNo) -> FilterDecision {
        match value.first() {
            Some(first) if first % 2 == 0 => FilterDecision::Remove,
            Some(3) => FilterDecision::Replace(vec![5; 2000]),
            _ => FilterDecision::Keep,
        }
    }
}

#[test]
fn expiry_and_filters_work_on_large_values() {
    let time = Arc::new(AtomicU64::new(1000));
    let source = Arc::clone(&time);
    let options = Options {
        clock: Clock::custom(move || source.load(Ordering::Relaxed)),
        ..eager()
    };
    let vfs = MemVfs::new();
    let db = open(&vfs, options);
    let k = db
        .keyspace("k", separating(Expiry::PerRow))
        .expect("keyspace");
    for n in 0..6u8 {
        k.put_until(&[n], &vec![n; 1500], 2000 + u64::from(n))
            .expect("put");
    }
    db.settle().expect("settle");
    let shown = || -> Vec<(u8, u8, usize)> {
        let rows = all(&k).into_iter();
        rows.map(|(key, value)| (key[0], value[0], value.len()))
            .collect()
    };
    let every: Vec<_> = (0..6).map(|n| (n, n, 1500)).collect();
    assert_eq!(shown(), every);
    k.set_compaction_filter(Some(Arc::new(Odd))).expect("set");
    k.put(&[9], b"1").expect("put");
    db.settle().expect("settle");
    let odd = [(1, 1, 1500), (3, 5, 2000), (5, 5, 1500), (9, b'1', 1)];
    assert_eq!(shown(), odd);
    time.store(2003, Ordering::Relaxed);
    assert_eq!(shown(), odd[2..]);
    k.put(&[9], b"3").expect("put");
    db.settle().expect("settle");
    assert_eq!(shown(), [(5, 5, 1500), (9, b'3', 1)]);
}

#[test]
fn an_ingest_stores_large_values_apart_and_a_dropped_one_removes_them() {
    let (vfs, db, k) = database();
    let mut ingest = db.ingest().expect("ingest");
    for n in 0..100 {
        ingest.put(&k, &key(n), &value(n, 0)).expect("put");
    }
    assert!(!value_files(&vfs).is_empty());
    drop(ingest);
    assert!(value_files(&vfs).is_empty());
    let mut load = db.bulk_load(BulkLoadOptions::default()).expect("load");
    for n in (0..100).rev() {
        load.put(&k, &key(n), &value(n, 1)).expect("put");
    }
    let ingested = load.finish().expect("finish");
    assert_eq!(ingested.last_level_bytes, ingested.table_bytes);
    assert_eq!(value_files(&vfs).len(), 1);
    drop((db, k));
    let db = open(&vfs, eager());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    let expected: Vec<_> = (0..100).map(|n| (key(n), value(n, 1))).collect();
    assert!(all(&k) == expected);
}

/// Compactions remove the tables that point into one value file one by one; the file goes with the
/// last.
#[test]
fn a_value_file_stays_while_any_table_points_into_it() {
    let (vfs, db, k) = database();
    put(&db, &k, 0..100, 1);
    db.settle().expect("settle");
    let first = value_files(&vfs);
    // The first groups are compacted and release their tables; the later groups keep theirs.
    for round in 2..5 {
        put(&db, &k, 0..10, round);
        db.settle().expect("settle");
        let mut expected = rows(0..10, round);
        expected.extend(rows(10..100, 1));
        // Opened by name, because a reader with an open file could still read a removed one.
        let left = vfs.crash(1, CrashOptions::PROCESS_KILLED);
        let again = open(&left, eager());
        let there = again.existing_keyspace("k").expect("look");
        assert_eq!(all(&there.expect("keyspace")), expected, "round {round}");
    }
    assert!(first.iter().any(|name| value_files(&vfs).contains(name)));
    // An unneeded file goes with its last handle, at the latest when the database is closed.
    let expected = all(&k);
    drop((db, k));
    let db = open(&vfs, eager());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert_eq!(all(&k), expected);
}
