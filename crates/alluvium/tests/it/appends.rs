//! Rows with a key range of their own are flushed directly into the last level, without a visible
//! difference.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium::vfs::{MemVfs, Vfs};
use alluvium::{
    CursorOptions, Database, Error, Keyspace, KeyspaceOptions, Options, Snapshot, WriteBatch,
};
use alluvium_testkit::model::Direction;
use alluvium_testkit::random::Rng;

use crate::driver::collect;
use crate::fixture::{Row, all, database, dir, open, rows, stats_of_k, table_files, tiny};
use crate::hooks::{Call, HookVfs, stopping_at_table, wait_until};

fn options() -> Options {
    Options {
        memory_bytes: 32 << 20,
        memtable_bytes: Some(4 << 20),
        table_bytes: 512 << 10,
        idle_after: None,
        ..tiny()
    }
}

fn key(n: u32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// Returns a value that does not compress well.
fn value(n: u32) -> Vec<u8> {
    Rng::new(u64::from(n)).bytes(1_000)
}

fn assert_intact(db: &Database) {
    let report = db.verify().expect("verify");
    assert!(report.damage_count == 0, "{:?}", report.damages);
}

fn snapshot_rows(snapshot: &Snapshot, k: &Keyspace) -> Vec<Row> {
    rows(
        snapshot
            .cursor(k, CursorOptions::default())
            .expect("cursor"),
    )
}

#[test]
fn rows_in_the_order_of_their_keys_are_written_once() {
    let (vfs, db, k) = database(options());
    let expected: Vec<Row> = (0..12_000).map(|n| (key(n), value(n))).collect();
    // Two flushes at least, also if the flush thread gets no processor for a while.
    for half in expected.chunks(6_000) {
        for (key, value) in half {
            k.put(key, value).expect("put");
        }
        db.flush().expect("flush");
    }
    db.settle().expect("settle");
    let (stats, of_all) = (stats_of_k(&db), db.stats().expect("stats"));
    // The last flush is small and may lie above the last level.
    assert!(stats.upper_tables <= 1 && stats.groups > 3, "{stats:?}");
    assert_eq!(of_all.compactions, 0);
    assert!(of_all.flushes > 1);
    assert_eq!(all(&k), expected);
    let back = k.cursor(CursorOptions::default()).expect("cursor");
    let back = collect(back, Direction::Backward, usize::MAX);
    assert!(back.iter().eq(expected.iter().rev()));
    assert_intact(&db);
    db.close().expect("close");
    let db = open(&vfs, options());
    let k = db.existing_keyspace("k").expect("open").expect("k");
    assert_eq!(all(&k), expected);
}

#[test]
fn half_of_a_flush_is_enough_where_memory_is_much_smaller_than_a_table() {
    let small = Options {
        memory_bytes: 16 << 20,
        memtable_bytes: None,
        table_bytes: Options::default().table_bytes,
        ..options()
    };
    let (_vfs, db, k) = database(small);
    for n in 0..6_000 {
        k.put(&key(n), &value(n)).expect("put");
        if n % 1_500 == 1_499 {
            // At most as much as one flush writes, and less than a quarter of a table.
            db.flush().expect("flush");
        }
    }
    // A flush that started early may be smaller.
    let stats = stats_of_k(&db);
    assert!(stats.upper_bytes < stats.last_bytes / 4, "{stats:?}");
}

#[test]
fn appends_in_two_places_go_to_the_last_level_and_what_meets_older_rows_above_it() {
    for more in [0, 50, 100, 400] {
        append_in_two_places(2_000 + more, 2_000 - more);
    }
}

/// Appends so many rows in each of two places in each round.
fn append_in_two_places(first: u32, second: u32) {
    let (_vfs, db, k) = database(options());
    for round in 0..4 {
        for n in 0..first {
            k.put(&key(round * first + n), &value(n)).expect("put");
            if n < second {
                let far = key((1 << 24) + round * second + n);
                k.put(&far, &value(n)).expect("put");
            }
        }
        if let Some(late) = (round * first).checked_sub(100) {
            // As with two writers of one place, when one of them is a little late.
            k.put(&key(late), b"late").expect("put");
        }
        db.flush().expect("flush");
        let stats = stats_of_k(&db);
        assert!(stats.upper_bytes <= 8_000 * u64::from(round), "{stats:?}");
        assert!(stats.upper_tables > 0 || round == 0, "{stats:?}");
    }
    db.settle().expect("settle");
    let rows = all(&k);
    assert_eq!(rows.len(), 16_000);
    assert_eq!(rows.iter().filter(|(_, v)| v == b"late").count(), 3);
    assert_intact(&db);
}

#[test]
fn rows_kept_for_a_snapshot_stay_above_the_last_level() {
    let (_vfs, db, k) = database(options());
    let before: Vec<Row> = (0..3_000).map(|n| (key(n), vec![7; 1_000])).collect();
    for (key, value) in &before {
        k.put(key, value).expect("put");
    }
    let snapshot = db.snapshot().expect("snapshot");
    for n in 500..1_500 {
        k.delete(&key(n)).expect("delete");
        k.put(&key(n + 1_000), b"new").expect("put");
    }
    db.flush().expect("flush");
    let stats = stats_of_k(&db);
    assert_eq!((stats.last_tables, stats.table_entries), (0, 5_000));
    assert_eq!(snapshot_rows(&snapshot, &k), before);
    assert_eq!(all(&k).len(), 2_000);
    drop(snapshot);
    k.compact_range(&[], None).expect("compact");
    assert_eq!(stats_of_k(&db).table_entries, 2_000);
    assert_intact(&db);
}

#[test]
fn a_snapshot_that_needs_no_older_versions_is_no_reason_to_write_appends_twice() {
    let (_vfs, db, k) = database(options());
    for n in 0..1_500 {
        k.put(&key(n), &value(n)).expect("put");
    }
    let snapshot = db.snapshot().expect("snapshot");
    for n in 1_500..3_000 {
        k.put(&key(n), &value(n)).expect("put");
    }
    db.flush().expect("flush");
    assert_eq!(stats_of_k(&db).upper_tables, 0);
    assert_eq!(snapshot_rows(&snapshot, &k).len(), 1_500);
    assert_eq!(all(&k).len(), 3_000);
}

#[test]
fn appends_go_above_the_last_level_during_a_compaction() {
    // Flushes write tables 1 and 2, the compaction writes table 3.
    let (vfs, there, go) = stopping_at_table(3);
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let db = Database::open_on(shared, dir(), options()).expect("open");
    let k = db.keyspace("k", KeyspaceOptions::default());
    let k = k.expect("keyspace");
    vfs.set(true);
    for n in [0, 9_000] {
        k.put(&key(n), &value(n)).expect("put");
        db.flush().expect("flush");
    }
    let merging = std::thread::spawn({
        let k = k.clone();
        move || k.compact_range(&[], None)
    });
    wait_until(|| there.load(Ordering::SeqCst));
    // The table of the compaction spans the gap.
    for n in 1_000..3_000 {
        k.put(&key(n), &value(n)).expect("put");
    }
    db.flush().expect("flush");
    let stats = stats_of_k(&db);
    assert_eq!((stats.upper_tables, stats.last_tables), (3, 0));
    go.store(true, Ordering::SeqCst);
    merging.join().expect("join").expect("compact");
    assert_eq!(all(&k).len(), 2_002);
    assert_intact(&db);
}

#[test]
fn a_range_delete_keeps_only_the_groups_that_it_reaches_into_from_appends() {
    let (_vfs, db, k) = database(options());
    let append = |from: u32| {
        for n in from..from + 3_000 {
            k.put(&key(n), &value(n)).expect("put");
        }
    };
    append(0);
    db.flush().expect("flush");
    assert!(stats_of_k(&db).groups > 3);
    // As in an application log with limited retention.
    k.delete_range(&key(0), &key(500)).expect("delete");
    append(3_000);
    db.flush().expect("flush");
    assert!(
        stats_of_k(&db).upper_bytes < 10_000,
        "{:?}",
        stats_of_k(&db)
    );
    assert_eq!(all(&k).len(), 5_500);
    // The append is not flushed below a range delete of the rows that it replaces.
    k.delete_range(&key(5_000), &key(9_000)).expect("delete");
    append(6_000);
    db.flush().expect("flush");
    assert!(stats_of_k(&db).upper_bytes > 1_000_000);
    k.delete_range(&key(8_000), &key(8_500)).expect("delete");
    assert_eq!(all(&k).len(), 7_000);
    db.settle().expect("settle");
    assert_eq!(all(&k).len(), 7_000);
    assert_intact(&db);
}

#[test]
fn a_device_that_fills_up_in_a_flush_of_both_kinds_loses_nothing_and_keeps_no_table_of_a_try() {
    let vfs = MemVfs::with_capacity(24 << 20);
    let db = open(&vfs, options());
    let separating = KeyspaceOptions {
        value_separation_bytes: Some(900),
        ..KeyspaceOptions::default()
    };
    let k = db.keyspace("k", separating).expect("keyspace");
    let mut rows = BTreeMap::new();
    let mut put = |at: u32, n: u32| {
        let done = k.put(&key(at), &value(n));
        if done.is_ok() {
            rows.insert(key(at), value(n));
        }
        done
    };
    // Each append comes with an update of an old row.
    let mut n = 0;
    let full = loop {
        if let Err(full) = put(n, n).and_then(|()| put(n / 2, n)) {
            break full;
        }
        n += 1;
    };
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    vfs.set_capacity(64 << 20);
    while let Err(full) = put(n, n) {
        assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    }
    db.flush().expect("flush");
    db.settle().expect("settle");
    assert!(db.stats().expect("stats").flushes > 1);
    let expected: Vec<Row> = rows.into_iter().collect();
    assert!(all(&k) == expected);
    assert_intact(&db);
    let stats = stats_of_k(&db);
    db.close().expect("close");
    let files = table_files(&vfs).len() as u64;
    assert_eq!(files, stats.upper_tables + stats.last_tables);
}

#[test]
fn a_thread_of_a_flush_that_fails_takes_the_tables_of_the_others_with_it() {
    let created = AtomicUsize::new(0);
    let vfs = HookVfs::new(move |call, path| {
        let is_table = call == Call::Create && path.to_string_lossy().ends_with(".sst");
        if is_table && created.fetch_add(1, Ordering::SeqCst) > 0 {
            return Err(ErrorKind::Other.into());
        }
        Ok(())
    });
    let options = Options {
        table_bytes: 4 << 20,
        ..options()
    };
    let db = Database::open_on(Arc::new(vfs.clone()), dir(), options).expect("open");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
    let expected: Vec<Row> = (0..2_500).map(|n| (key(n), value(n))).collect();
    for (key, value) in &expected {
        k.put(key, value).expect("put");
    }
    vfs.set(true);
    db.flush().expect_err("only one table can be created");
    assert_eq!(table_files(&vfs.files), [""; 0]);
    vfs.set(false);
    db.flush().expect("flush");
    let stats = stats_of_k(&db);
    assert_eq!((stats.last_tables, stats.upper_tables), (2, 0));
    assert_eq!(table_files(&vfs.files).len(), 2);
    assert!(all(&k) == expected);
}

#[test]
fn appends_gaps_that_are_filled_and_random_writes_match_a_model() {
    let mut straight = 0;
    for seed in 0..4 {
        let mut random = Rng::new(seed);
        let (vfs, mut db, mut k) = database(options());
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut held: Option<(Snapshot, Vec<Row>)> = None;
        for _ in 0..40 {
            let mut batch = WriteBatch::new();
            // A run of neighboring keys anywhere, mostly with nothing in between, or keys from the
            // whole range.
            let (from, run) = (
                random.next_u64() as u32 % 1_000,
                !random.next_u64().is_multiple_of(3),
            );
            for n in 0..700_u32 {
                let n = if run {
                    (from << 16) + n
                } else {
                    random.next_u64() as u32 % (1_000 << 16)
                };
                if random.next_u64().is_multiple_of(8) {
                    batch.delete(&k, &key(n)).expect("delete");
                    model.remove(&key(n));
                } else {
                    let value = vec![random.next_u64() as u8; 3_000];
                    batch.put(&k, &key(n), &value).expect("put");
                    model.insert(key(n), value);
                }
            }
            db.write(&batch).expect("write");
            match random.next_u64() % 12 {
                0..5 => straight += u32::from(has_flushed_straight(&db)),
                5 => db.settle().expect("settle"),
                6 => {
                    let rows = model.clone().into_iter().collect();
                    held = Some((db.snapshot().expect("snapshot"), rows));
                }
                7 => {
                    held = None;
                    db.close().expect("close");
                    db = open(&vfs, options());
                    k = db.existing_keyspace("k").expect("open").expect("k");
                }
                _ => {}
            }
            if let Some((snapshot, rows)) = &held {
                assert_eq!(&snapshot_rows(snapshot, &k), rows, "seed {seed}");
            }
        }
        let expected: Vec<Row> = model.into_iter().collect();
        assert!(all(&k) == expected, "seed {seed}");
        assert_intact(&db);
    }
    assert!(straight > 0, "{straight} flushes had appends");
}

/// Flushes. Returns true if the last level has grown without a compaction.
fn has_flushed_straight(db: &Database) -> bool {
    let now = || {
        (
            db.stats().expect("stats").compactions,
            stats_of_k(db).last_bytes,
        )
    };
    let before = now();
    db.flush().expect("flush");
    let after = now();
    before.0 == after.0 && before.1 < after.1
}
