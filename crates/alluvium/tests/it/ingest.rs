//! Ingests: the levels of their tables, their visibility to readers, the rows they refuse, and the
//! state after a crash.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, MemVfs, Vfs};
use alluvium::{
    CursorOptions, Database, Durability, Error, Ingested, Isolation, Keyspace, KeyspaceOptions,
    Options, WriteBatch,
};
use alluvium_testkit::random::{Rng, Seeded};
use parking_lot::Mutex;

use crate::driver::chain;
use crate::fixture::{all, assert_error, database, dir, of, open, rows, table_files, text, tiny};
use crate::hooks::{Call, HookVfs};

fn key(n: u32) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

/// Ingests keys of these numbers, all with one value.
fn ingest(k: &Keyspace, db: &Database, keys: impl Iterator<Item = u32>, value: &str) -> Ingested {
    let mut ingest = db.ingest().expect("ingest");
    for n in keys {
        ingest.put(k, &key(n), value.as_bytes()).expect("put");
    }
    ingest.finish().expect("finish")
}

fn value(n: u32) -> String {
    format!("value {n} {}", "x".repeat(60))
}

#[test]
fn an_ingest_into_an_empty_keyspace_is_written_once_and_split_into_groups() {
    let (_vfs, db, k) = database(tiny());
    let mut ingest = db.ingest().expect("ingest");
    for n in 0..5000 {
        ingest.put(&k, &key(n), value(n).as_bytes()).expect("put");
    }
    let ingested = ingest.finish().expect("finish");
    assert_eq!(ingested.rows, 5000);
    assert_eq!(ingested.last_level_bytes, ingested.table_bytes);
    let stats = db.stats().expect("stats");
    assert_eq!(stats.table_bytes_written, ingested.table_bytes);
    assert_eq!(stats.ingested_bytes, ingested.table_bytes);
    let own = of(&stats, "k");
    assert_eq!((own.upper_tables, own.last_tables), (0, ingested.tables));
    assert_eq!(
        (own.table_entries, own.last_bytes),
        (5000, ingested.table_bytes)
    );
    assert!(ingested.tables > 8, "{ingested:?}");
    // Groups of about `table_bytes` each, so that no later compaction rewrites everything.
    let parts = ingested.table_bytes / tiny().table_bytes;
    assert!(parts > 8 && own.groups * 2 >= parts, "{own:?}");
    assert!(own.groups <= parts + 1, "{own:?}");
    db.settle().expect("settle");
    let after = db.stats().expect("stats");
    assert_eq!(after.table_bytes_written, ingested.table_bytes);
    let found = all(&k);
    assert_eq!(found.len(), 5000);
    assert!((0..5000).all(|n| found[n as usize] == (key(n), value(n).into_bytes())));
}

#[test]
fn an_ingest_replaces_existing_rows_in_memory_in_upper_tables_and_in_the_last_level() {
    let (vfs, db, k) = database(tiny());
    let other = db
        .keyspace("other", KeyspaceOptions::default())
        .expect("keyspace");
    other.put(b"a", b"1").expect("put");
    ingest(&k, &db, 0..1000, "last");
    for n in (0..1000).step_by(3) {
        k.put(&key(n), b"upper").expect("put");
    }
    db.flush().expect("flush");
    for n in (0..1000).step_by(5) {
        k.put(&key(n), b"memory").expect("put");
    }
    let ingested = ingest(&k, &db, 400..600, "new");
    assert_eq!(ingested.last_level_bytes, 0);
    let expected = |n: u32| match n {
        400..600 => "new",
        n if n % 5 == 0 => "memory",
        n if n % 3 == 0 => "upper",
        _ => "last",
    };
    let check = |k: &Keyspace| {
        let found = all(k);
        assert_eq!(found.len(), 1000);
        for n in 0..1000 {
            assert_eq!(found[n as usize].1, expected(n).as_bytes(), "{n}");
            let read = text(k, std::str::from_utf8(&key(n)).expect("text"));
            assert_eq!(read.as_deref(), Some(expected(n)), "{n}");
        }
    };
    check(&k);
    db.settle().expect("settle");
    check(&k);
    db.close().expect("close");
    let db = open(&vfs, tiny());
    check(&db.existing_keyspace("k").expect("look").expect("keyspace"));
}

#[test]
fn rows_above_tombstones_are_not_put_below_them() {
    let (_vfs, db, k) = database(Options {
        // Nothing is compacted unless the test asks for it.
        upper_fraction: 1.0,
        memtable_bytes: Some(1 << 20),
        ..tiny()
    });
    let snapshot = db.snapshot().expect("snapshot");
    for n in 0..100 {
        k.put(&key(n), b"old").expect("put");
        k.delete(&key(n)).expect("delete");
    }
    // In memory, then in a table.
    for round in 0..2 {
        let text_of_round = format!("round {round}");
        let ingested = ingest(&k, &db, 10..90, &text_of_round);
        assert_eq!(
            ingested.last_level_bytes, 0,
            "the tombstones share the range"
        );
        assert_eq!(all(&k).len(), 80);
        assert_eq!(text(&k, "key000010"), Some(text_of_round));
        for n in 10..90 {
            k.delete(&key(n)).expect("delete");
        }
        db.flush().expect("flush");
        assert!(all(&k).is_empty());
    }
    // Beyond the tombstones there is room in the last level.
    let ingested = ingest(&k, &db, 200..300, "beyond");
    assert_eq!(ingested.last_level_bytes, ingested.table_bytes);
    assert_eq!(all(&k).len(), 100);
    assert!(
        rows(
            snapshot
                .cursor(&k, CursorOptions::default())
                .expect("cursor")
        )
        .is_empty()
    );
}

#[test]
fn an_older_snapshot_does_not_see_an_ingest_also_after_compactions() {
    for existing in [false, true] {
        let (_vfs, db, k) = database(tiny());
        if existing {
            for n in 0..300 {
                k.put(&key(n), b"old").expect("put");
            }
        }
        let before = all(&k);
        let snapshot = db.snapshot().expect("snapshot");
        let txn = db.begin(Isolation::Snapshot).expect("begin");
        ingest(&k, &db, 0..400, "new");
        let after = db.snapshot().expect("snapshot");
        for round in 0..3 {
            let seen = |s: &alluvium::Snapshot| {
                rows(s.cursor(&k, CursorOptions::default()).expect("cursor"))
            };
            assert_eq!(seen(&snapshot), before, "round {round}");
            let old = snapshot.get(&k, &key(7)).expect("get");
            assert_eq!(old.as_deref(), existing.then_some(&b"old"[..]));
            assert_eq!(seen(&after).len(), 400, "round {round}");
            assert!(seen(&after).iter().all(|(_, value)| value == b"new"));
            for n in (0..400).step_by(2) {
                k.put(&key(n), format!("round {round}").as_bytes())
                    .expect("put");
            }
            db.settle().expect("settle");
        }
        // The transaction's write is on top of rows that it has not seen.
        let conflict = txn
            .put(&k, &key(399), b"mine")
            .and_then(|()| txn.commit().map(drop));
        assert_error!(conflict, Error::Conflict { .. });
    }
}

#[test]
fn a_serializable_transaction_that_read_a_range_conflicts_with_an_ingest_into_it() {
    for touched in [false, true] {
        let (_vfs, db, k) = database(tiny());
        let other = db
            .keyspace("other", KeyspaceOptions::default())
            .expect("keyspace");
        other.put(b"a", b"1").expect("put");
        let txn = db.begin(Isolation::Serializable).expect("begin");
        let range = CursorOptions::range(&key(100), &key(200));
        assert!(rows(txn.cursor(&k, range).expect("cursor")).is_empty());
        txn.put(&other, b"b", b"2").expect("put");
        let from = if touched { 150 } else { 200 };
        ingest(&k, &db, from..300, "new");
        match txn.commit() {
            Ok(_) => assert!(!touched, "a phantom"),
            Err(Error::Conflict { .. }) => assert!(touched),
            Err(error) => panic!("{}", chain(&error)),
        }
    }
}

#[test]
fn several_keyspaces_are_ingested_as_one_commit() {
    let (vfs, db, k) = database(tiny());
    let others: Vec<_> = ["a", "b"]
        .map(|name| {
            db.keyspace(name, KeyspaceOptions::default())
                .expect("keyspace")
        })
        .into();
    k.put(&key(3), b"before").expect("put");
    let before = db.visible_seqno();
    let mut ingest = db.ingest().expect("ingest");
    for n in 0..500 {
        for keyspace in others.iter().chain([&k]) {
            ingest.put(keyspace, &key(n), b"new").expect("put");
        }
    }
    assert_eq!(text(&k, "key000003").as_deref(), Some("before"));
    assert!(all(&others[0]).is_empty());
    let ingested = ingest.finish().expect("finish");
    assert_eq!((ingested.rows, ingested.seqno), (1500, before + 1));
    assert_eq!(db.visible_seqno(), before + 1);
    // Durable immediately, whatever the durability of commits.
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    for db in [db, open(&left, tiny())] {
        for name in ["a", "b", "k"] {
            let keyspace = db.existing_keyspace(name).expect("look").expect("keyspace");
            let found = all(&keyspace);
            assert!(
                found.len() == 500 && found.iter().all(|(_, v)| v == b"new"),
                "{name}"
            );
        }
    }
}

#[test]
fn rows_out_of_order_are_refused_and_nothing_is_installed() {
    let (vfs, db, k) = database(tiny());
    for second in [key(5), key(4), Vec::new()] {
        let mut ingest = db.ingest().expect("ingest");
        ingest.put(&k, &key(5), b"1").expect("put");
        let refused = ingest.put(&k, &second, b"2");
        assert_error!(refused, Error::OutOfOrder { .. });
        assert_error!(ingest.put(&k, &key(9), b"3"), Error::OutOfOrder { .. });
        assert_error!(ingest.finish(), Error::OutOfOrder { .. });
        assert!(all(&k).is_empty());
    }
    assert!(table_files(&vfs).is_empty());
    // An empty key is a key, if it is the first.
    let mut ingest = db.ingest().expect("ingest");
    ingest.put(&k, b"", b"empty").expect("put");
    ingest.put(&k, b"\0", b"zero").expect("put");
    ingest.finish().expect("finish");
    assert_eq!(all(&k).len(), 2);
}

#[test]
fn a_dropped_ingest_leaves_no_files() {
    let (vfs, db, k) = database(tiny());
    let mut ingest = db.ingest().expect("ingest");
    for n in 0..2000 {
        ingest.put(&k, &key(n), value(n).as_bytes()).expect("put");
    }
    assert!(table_files(&vfs).len() > 3);
    drop(ingest);
    assert!(table_files(&vfs).is_empty());
    assert_eq!(
        db.ingest()
            .and_then(alluvium::Ingest::finish)
            .expect("finish")
            .rows,
        0
    );
    assert!(all(&k).is_empty());
}

#[test]
fn an_ingest_ends_with_its_keyspace_and_with_its_database() {
    let (vfs, db, k) = database(tiny());
    let mut lost = db.ingest().expect("ingest");
    lost.put(&k, b"a", b"1").expect("put");
    db.drop_keyspace(&k).expect("drop");
    assert_error!(lost.finish(), Error::KeyspaceDropped(_));
    assert!(table_files(&vfs).is_empty());
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    let (mut put, mut finish) = (db.ingest().expect("ingest"), db.ingest().expect("ingest"));
    put.put(&k, b"a", b"1").expect("put");
    finish.put(&k, b"a", b"1").expect("put");
    db.close().expect("close");
    assert_error!(put.put(&k, b"b", b"1"), Error::Closed);
    assert_error!(finish.finish(), Error::Closed);
    drop(put);
    drop(db);
    let db = open(&vfs, tiny());
    assert!(all(&db.existing_keyspace("k").expect("look").expect("keyspace")).is_empty());
    assert!(table_files(&vfs).is_empty(), "what was left is moved aside");
}

#[test]
fn an_ingest_that_outlives_its_database_leaves_the_directory_alone() {
    let (vfs, db, k) = database(tiny());
    let unfinished = || {
        let mut ingest = db.ingest().expect("ingest");
        for n in 0..1000 {
            ingest.put(&k, &key(n), value(n).as_bytes()).expect("put");
        }
        ingest
    };
    let (dropped, finished) = (unfinished(), unfinished());
    let files = table_files(&vfs);
    assert!(files.len() > 3);
    db.close().expect("close");
    // The directory may belong to another database by now.
    drop(dropped);
    assert_error!(finished.finish(), Error::Closed);
    let mut left = table_files(&vfs);
    left.retain(|name| files.contains(name));
    assert_eq!(left, files);
    let db = open(&vfs, tiny());
    assert!(table_files(&vfs).is_empty(), "moved aside");
    db.close().expect("close");
}

#[test]
fn commits_and_reads_go_on_during_an_ingest() {
    let (_vfs, db, k) = database(tiny());
    for n in 0..500 {
        k.put(&key(n), b"old").expect("put");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut counted = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                counted += 1;
                let mut batch = WriteBatch::new();
                for n in [1000, 250] {
                    batch.put(&k, &key(n), &counted.to_be_bytes()).expect("put");
                }
                db.write(&batch).expect("write");
            }
            counted
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let snapshot = db.snapshot().expect("snapshot");
                let found = rows(
                    snapshot
                        .cursor(&k, CursorOptions::default())
                        .expect("cursor"),
                );
                let new = found.iter().filter(|(_, value)| value == b"new").count();
                // Key 250 may have been written again since.
                assert!([0, 399, 400].contains(&new), "{new} rows of the ingest");
            }
        });
        for round in 0..10 {
            ingest(&k, &db, 100..500, "new");
            for n in (100..500).filter(|n| *n != 250) {
                assert_eq!(
                    k.get(&key(n)).expect("get").as_deref(),
                    Some(&b"new"[..]),
                    "{round}"
                );
            }
            let mut batch = WriteBatch::new();
            (100..500).for_each(|n| batch.put(&k, &key(n), b"old").expect("put"));
            db.write(&batch).expect("write");
        }
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().expect("writer") > 0);
    });
    db.settle().expect("settle");
    assert_eq!(all(&k).len(), 501);
}

#[test]
fn rows_in_a_deleted_range_beyond_the_last_row_are_not_put_below_it() {
    for flushed in [false, true] {
        let (_vfs, db, k) = database(Options {
            upper_fraction: 1.0,
            memtable_bytes: Some(1 << 20),
            ..tiny()
        });
        ingest(&k, &db, 0..100, "old");
        // With the snapshot open, no compaction may drop the range delete.
        let snapshot = db.snapshot().expect("snapshot");
        k.delete_range(&key(50), &key(300)).expect("delete");
        if flushed {
            db.flush().expect("flush");
        }
        let ingested = ingest(&k, &db, 200..250, "new");
        assert_eq!(ingested.last_level_bytes, 0, "the range delete shares it");
        for _ in 0..2 {
            assert_eq!(all(&k).len(), 100);
            assert_eq!(text(&k, "key000200").as_deref(), Some("new"));
            assert_eq!(text(&k, "key000060"), None);
            db.settle().expect("settle");
        }
        drop(snapshot);
    }
}

#[test]
fn a_compaction_whose_group_was_split_by_an_ingest_is_abandoned() {
    let (began, begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let vfs = HookVfs::new(move |call, path: &Path| {
        let merging = std::thread::current().name() == Some("alv-compaction");
        if merging && call == Call::Create && path.extension().is_some_and(|e| e == "sst") {
            let _ = began.send(());
            let _ = may_go_on.lock().recv();
        }
        Ok(())
    });
    vfs.set(true);
    let options = Options {
        upper_fraction: 0.02,
        ..tiny()
    };
    let db = Database::open_on(Arc::new(vfs.clone()), dir(), options).expect("open");
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    let mut rng = Rng::new(1);
    for n in 0..100 {
        k.put(&key(n * 100), &rng.bytes(200)).expect("put");
    }
    db.flush().expect("flush");
    begun.recv().expect("a merge begins");
    let before = of(&db.stats().expect("stats"), "k").groups;
    let mut ingest = db.ingest().expect("ingest");
    for n in 0..2000 {
        ingest.put(&k, &key(n), &rng.bytes(50)).expect("put");
    }
    let ingested = ingest.finish().expect("finish");
    assert_eq!(ingested.last_level_bytes, 0, "the group is busy");
    assert!(of(&db.stats().expect("stats"), "k").groups > before + 8);
    let expected = all(&k);
    assert_eq!(expected.len(), 2000 + 80);
    vfs.set(false);
    drop(go_on);
    db.settle().expect("settle");
    assert!(all(&k) == expected);
    assert!(of(&db.stats().expect("stats"), "k").last_bytes > ingested.table_bytes / 2);
}

/// Stops an ingest into three keyspaces, one of them empty, at call `nth`, and checks that all or
/// none of it is left. Returns true if the fault tripped.
fn ingest_that_stops_at(nth: u64, durability: Durability, sticky: bool, seed: u64) -> bool {
    let vfs = MemVfs::new();
    let faults = FaultVfs::new(Arc::new(vfs.clone()));
    let options = Options {
        durability,
        ..tiny()
    };
    let db = Database::open_on(Arc::new(faults.clone()), dir(), options.clone()).expect("open");
    let names = ["a", "b", "c"];
    let keyspaces = names.map(|n| {
        db.keyspace(n, KeyspaceOptions::default())
            .expect("keyspace")
    });
    for n in 0..40 {
        keyspaces[0].put(&key(n), b"old").expect("put");
        keyspaces[1].put(&key(n), b"old").expect("put");
    }
    db.flush().expect("flush");
    keyspaces[0].put(&key(7), b"old").expect("put");
    db.sync().expect("sync");
    faults.arm(Fault {
        calls: Vec::new(),
        nth,
        sticky,
        effect: FaultEffect::Error,
    });
    let ingested = (|| {
        let mut ingest = db.ingest()?;
        for n in 0..40 {
            for keyspace in &keyspaces {
                ingest.put(keyspace, &key(n), value(n).as_bytes())?;
            }
        }
        ingest.finish()
    })();
    let tripped = faults.tripped();
    faults.disarm();
    let losses = [
        CrashOptions::PROCESS_KILLED,
        CrashOptions::LOSE_UNSYNCED,
        CrashOptions::POWER_LOSS,
    ];
    let loss = losses[seed as usize % 3];
    let context = format!("call {nth}, sticky {sticky}, {durability:?}, {loss:?}, seed {seed}");
    check_all_or_nothing(&vfs.crash(seed, loss), &options, ingested.is_ok(), &context);
    tripped
}

/// Checks the state that a crash left of `ingest_that_stops_at`.
fn check_all_or_nothing(left: &MemVfs, options: &Options, acknowledged: bool, context: &str) {
    let db = Database::open_on(Arc::new(left.clone()), dir(), options.clone())
        .unwrap_or_else(|e| panic!("{context}: {}", chain(&e)));
    let keyspace = |name| db.existing_keyspace(name).expect("look").expect("keyspace");
    let found = ["a", "b", "c"].map(|name| all(&keyspace(name)));
    let values = || found.iter().flatten().map(|(_, value)| value);
    let new = values().filter(|v| v.starts_with(b"value")).count();
    let old = values().filter(|v| *v == b"old").count();
    let whole = (new, old) == (120, 0);
    assert!(
        whole || (new, old) == (0, 80),
        "{context}: {new} new, {old} old"
    );
    assert!(whole || !acknowledged, "{context}: acknowledged and lost");
    db.close().expect("close");
    drop(db);
    // Two more openings remove all leftover files.
    drop(open(left, options.clone()));
    drop(open(left, options.clone()));
    let aside = left.list(&dir().join("unreferenced")).unwrap_or_default();
    assert!(aside.is_empty(), "{context}: {aside:?}");
}

#[test]
fn an_ingest_that_stops_at_any_call_is_there_as_a_whole_or_not_at_all() {
    Seeded::run("an_ingest_that_stops_at_any_call", 1, |rng| {
        for durability in [Durability::Sync, Durability::Buffered, Durability::None] {
            let mut nth = 2;
            // Once or for good, in turn.
            while ingest_that_stops_at(nth / 2, durability, nth % 2 == 0, rng.next_u64()) {
                nth += 1;
            }
            assert!(nth > 30, "an ingest makes calls");
        }
    });
}

#[test]
fn an_ingest_without_a_log_does_not_overtake_commits_before_it() {
    let (vfs, db, k) = database(Options {
        durability: Durability::None,
        ..tiny()
    });
    let other = db
        .keyspace("other", KeyspaceOptions::default())
        .expect("keyspace");
    other.put(b"before", b"1").expect("put");
    ingest(&k, &db, 0..10, "new");
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&left, tiny());
    let other = db
        .existing_keyspace("other")
        .expect("look")
        .expect("keyspace");
    assert_eq!(text(&other, "before").as_deref(), Some("1"));
}
