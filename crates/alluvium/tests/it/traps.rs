//! Histories of a few steps that break a carelessly built storage engine. Most are tested in the
//! module of their subject, listed in `docs/results/traps.md`. The others are here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alluvium::vfs::{CrashOptions, MemVfs, Vfs};
use alluvium::{
    Clock, Cursor, CursorOptions, Database, Durability, Error, Expiry, Isolation, Keyspace,
    KeyspaceOptions, Options, WriteBatch, WriteOptions,
};
use alluvium_testkit::random::Rng;

use crate::fixture::{all, database, dir, open, rows, table_files, text, tiny};

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// Returns options under which nothing is synced unless the test asks for it.
fn unsynced() -> Options {
    Options {
        sync_interval: Duration::from_secs(3_600),
        memtable_bytes: Some(16 << 20),
        memory_bytes: 64 << 20,
        ..tiny()
    }
}

fn existing(db: &Database, name: &str) -> Keyspace {
    let keyspace = db.existing_keyspace(name).expect("look");
    keyspace.expect("a keyspace")
}

fn files(vfs: &MemVfs, suffix: &str) -> Vec<String> {
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(suffix));
    names.sort();
    names
}

#[test]
fn a_commit_over_two_keyspaces_is_whole_although_only_its_tables_were_synced() {
    for seed in 0..40 {
        let (vfs, db, x) = database(unsynced());
        let y = db
            .keyspace("y", KeyspaceOptions::default())
            .expect("keyspace");
        for n in 0..20 {
            let mut batch = WriteBatch::new();
            batch.put(&x, &key(n), b"link").expect("put");
            batch.put(&y, &key(n), b"count").expect("put");
            db.write(&batch).expect("write");
            if n == 9 {
                db.flush().expect("flush");
            }
        }
        let left = vfs.crash(seed, CrashOptions::POWER_LOSS);
        let db = open(&left, unsynced());
        let [links, counts] = ["k", "y"].map(|name| all(&existing(&db, name)).len());
        assert_eq!(links, counts, "half of a commit is gone");
        assert!(links >= 10, "what was flushed is gone");
    }
}

#[test]
fn dropping_a_keyspace_does_not_overtake_the_copy_of_its_rows() {
    let (vfs, db, y) = database(unsynced());
    y.put(b"row", b"1").expect("put");
    db.sync().expect("sync");
    let x = db
        .keyspace("x", KeyspaceOptions::default())
        .expect("keyspace");
    x.put(b"row", b"1").expect("copy");
    db.drop_keyspace(&y).expect("drop");
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&left, unsynced());
    assert_eq!(text(&existing(&db, "x"), "row").as_deref(), Some("1"));
}

#[test]
fn a_synced_commit_after_a_roll_of_the_log_keeps_the_unsynced_end_of_the_segment_before() {
    let (vfs, db, k) = database(unsynced());
    let segment = files(&vfs, ".wal").pop().expect("a segment");
    let segment = vfs.open_read(&dir().join(segment)).expect("open");
    let segment_bytes = segment.len().expect("length") as usize;
    // Random bytes, because the log does not pack them.
    let (mut rng, mut written, mut count) = (Rng::new(1), 0, 0);
    while written < 2 * segment_bytes {
        k.put(&key(count), &rng.bytes(50_000)).expect("put");
        (written, count) = (written + 50_000, count + 1);
    }
    let mut batch = WriteBatch::new();
    batch.put(&k, b"synced", b"1").expect("put");
    let options = WriteOptions {
        durability: Some(Durability::Sync),
        ..WriteOptions::default()
    };
    db.write_with(&batch, &options).expect("write");
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&left, unsynced());
    assert_eq!(all(&existing(&db, "k")).len(), count as usize + 1);
}

#[test]
fn replay_passes_over_what_a_dropped_keyspace_has_in_the_log_and_keeps_its_namesake() {
    let (vfs, db, k) = database(unsynced());
    let other = db
        .keyspace("y", KeyspaceOptions::default())
        .expect("keyspace");
    let mut batch = WriteBatch::new();
    batch.put(&k, b"row", b"kept").expect("put");
    batch.put(&other, b"row", b"dropped").expect("put");
    db.write(&batch).expect("write");
    db.drop_keyspace(&other).expect("drop");
    let again = db
        .keyspace("y", KeyspaceOptions::default())
        .expect("keyspace");
    again.put(b"new", b"1").expect("put");
    let left = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    let db = open(&left, unsynced());
    assert_eq!(text(&existing(&db, "k"), "row").as_deref(), Some("kept"));
    assert_eq!(all(&existing(&db, "y")), [(b"new".to_vec(), b"1".to_vec())]);
}

#[test]
fn a_keyspace_that_is_seldom_written_does_not_hold_the_log() {
    let (vfs, db, busy) = database(tiny());
    let seldom = db
        .keyspace("seldom", KeyspaceOptions::default())
        .expect("keyspace");
    seldom.put(b"row", b"1").expect("put");
    let first = files(&vfs, ".wal");
    for round in 0..6 {
        for n in 0..200 {
            busy.put(&key(n), &[round; 60]).expect("put");
        }
        db.flush().expect("flush");
    }
    let left = files(&vfs, ".wal");
    // The newest of the first segments may have been created in advance.
    assert!(!left.contains(&first[0]), "{first:?}, then {left:?}");
    assert_eq!(text(&seldom, "row").as_deref(), Some("1"));
}

#[test]
fn a_table_that_no_manifest_names_is_moved_aside_then_deleted_and_its_number_not_used_again() {
    let (vfs, db, k) = database(tiny());
    k.put(b"row", b"1").expect("put");
    db.close().expect("close");
    let stray = vfs.create(&dir().join("000999.sst")).expect("create");
    stray
        .write_at(b"the table of an edit that was torn", 0)
        .expect("write");
    stray.sync().expect("sync");
    vfs.sync_dir(dir()).expect("sync");
    let aside = dir().join("unreferenced");
    let db = open(&vfs, tiny());
    assert_eq!(vfs.list(&aside).expect("list"), ["000999.sst"]);
    // Later tables have a larger number, even if the next power loss restores the file's old name.
    let k = existing(&db, "k");
    k.put(b"more", b"2").expect("put");
    db.flush().expect("flush");
    let newest = table_files(&vfs).pop().expect("a table");
    assert!(newest.as_str() > "000999.sst", "{newest}");
    db.close().expect("close");
    let db = open(&vfs, tiny());
    assert!(vfs.list(&aside).expect("list").is_empty());
    assert_eq!(all(&existing(&db, "k")).len(), 2);
}

#[test]
fn no_border_comes_between_the_versions_of_a_key() {
    let (_vfs, db, k) = database(tiny());
    for n in 0..60 {
        k.put(&key(n), &[0; 200]).expect("put");
    }
    let mut snapshots = Vec::new();
    for version in 1..60 {
        k.put(&key(30), &[version; 500]).expect("put");
        snapshots.push((version, db.snapshot().expect("snapshot")));
    }
    // Tables are cut at 4 KiB, and the versions of the key take 30 KB.
    db.settle().expect("settle");
    k.compact_range(&[], None).expect("compact");
    for (version, snapshot) in &snapshots {
        let value = snapshot.get(&k, &key(30)).expect("get").expect("a row");
        assert_eq!(value[..], [*version; 500]);
        let cursor = snapshot.cursor(&k, CursorOptions::default());
        let seen = rows(cursor.expect("cursor"));
        assert_eq!((seen.len(), seen[30].1[0]), (60, *version));
    }
}

/// Returns a database with rows 0 to 100. Rows 10 to 90 are deleted, and a scan has recorded their
/// dead interval.
fn with_dead_interval() -> (MemVfs, Database, Keyspace) {
    let (vfs, db, k) = database(unsynced());
    for n in 0..100 {
        k.put(&key(n), b"1").expect("put");
    }
    for n in 10..90 {
        k.delete(&key(n)).expect("delete");
    }
    assert_eq!(all(&k).len(), 20);
    (vfs, db, k)
}

/// Returns true if a cursor finds the row with a seek into the middle of an interval. A cursor that
/// steps from a live row before it would not look for intervals.
fn finds(mut cursor: Cursor, n: u32) -> bool {
    cursor.seek(&key(n)).expect("seek") && cursor.key() == key(n)
}

fn cursor(k: &Keyspace) -> Cursor {
    k.cursor(CursorOptions::default()).expect("cursor")
}

#[test]
fn a_commit_into_a_dead_interval_is_found() {
    let (_vfs, db, k) = with_dead_interval();
    k.put(&key(45), b"2").expect("put");
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    txn.insert(&k, &key(46), b"3").expect("insert");
    txn.commit().expect("commit");
    assert!(finds(cursor(&k), 45) && finds(cursor(&k), 46));
    assert_eq!(all(&k).len(), 22);
}

#[test]
fn an_ingest_into_a_dead_interval_is_found() {
    let (_vfs, db, k) = with_dead_interval();
    let mut ingest = db.ingest().expect("ingest");
    for n in 40..50 {
        ingest.put(&k, &key(n), b"2").expect("put");
    }
    ingest.finish().expect("finish");
    assert!(finds(cursor(&k), 45));
    assert_eq!(all(&k).len(), 30);
    assert_eq!(k.get(&key(45)).expect("get").as_deref(), Some(&b"2"[..]));
}

#[test]
fn deletes_that_are_rolled_back_leave_no_dead_interval() {
    let (_vfs, db, k) = database(unsynced());
    for n in 0..100 {
        k.put(&key(n), b"1").expect("put");
    }
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    for n in 10..90 {
        txn.delete(&k, &key(n)).expect("delete");
    }
    for _ in 0..2 {
        let own = txn.cursor(&k, CursorOptions::default()).expect("cursor");
        assert_eq!(rows(own).len(), 20);
        assert!(finds(cursor(&k), 50), "nobody else's rows are dead");
        assert_eq!(all(&k).len(), 100);
    }
    txn.rollback();
    assert!(finds(cursor(&k), 50));
    assert_eq!(all(&k).len(), 100);
}

#[test]
fn rows_that_have_expired_leave_no_dead_interval_for_an_older_snapshot() {
    let time = Arc::new(AtomicU64::new(1_000));
    let clock = Arc::clone(&time);
    let options = Options {
        clock: Clock::custom(move || clock.load(Ordering::Relaxed)),
        ..unsynced()
    };
    let db = open(&MemVfs::new(), options);
    let expiring = KeyspaceOptions {
        expiry: Expiry::PerRow,
        ..KeyspaceOptions::default()
    };
    let k = db.keyspace("k", expiring).expect("keyspace");
    for n in 0..100 {
        let until = if (10..90).contains(&n) {
            2_000
        } else {
            u64::MAX
        };
        k.put_until(&key(n), b"1", until).expect("put");
    }
    let old = db.snapshot().expect("snapshot");
    time.store(3_000, Ordering::Relaxed);
    assert_eq!(all(&k).len(), 20);
    let seen = || old.cursor(&k, CursorOptions::default()).expect("cursor");
    assert!(finds(seen(), 50));
    assert_eq!(rows(seen()).len(), 100);
}

#[test]
fn no_change_of_the_manifest_overtakes_commits_before_it() {
    type Change = fn(&Database, &Keyspace);
    let changes: [(&str, Change); 4] = [
        ("an ingest", |db, k| {
            let mut ingest = db.ingest().expect("ingest");
            ingest.put(k, b"ingested", b"1").expect("put");
            ingest.finish().expect("finish");
        }),
        ("a new keyspace", |db, _| {
            let options = KeyspaceOptions::default();
            db.keyspace("new", options).expect("keyspace");
        }),
        ("a drop", |db, k| db.drop_keyspace(k).expect("drop")),
        ("other options", |_, k| {
            let expect_hits = true;
            let options = KeyspaceOptions {
                expect_hits,
                ..k.options()
            };
            k.set_options(options).expect("set");
        }),
    ];
    for (what, change) in changes {
        let (vfs, db, k) = database(unsynced());
        let other = db
            .keyspace("other", KeyspaceOptions::default())
            .expect("keyspace");
        other.put(b"before", b"1").expect("put");
        change(&db, &k);
        other.put(b"behind", b"1").expect("put");
        let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
        let other = existing(&open(&left, unsynced()), "other");
        assert_eq!(text(&other, "before").as_deref(), Some("1"), "{what}");
        assert_eq!(text(&other, "behind"), None, "nothing syncs it: {what}");
    }
}

#[test]
fn rows_of_a_keyspace_that_no_manifest_has_created_are_damage_of_the_log() {
    let content = |vfs: &MemVfs, name: &str| {
        let file = vfs.open_read(&dir().join(name)).expect("open");
        let mut bytes = vec![0; file.len().expect("length") as usize];
        file.read_at(&mut bytes, 0).expect("read");
        bytes
    };
    let (vfs, db, k) = database(unsynced());
    k.put(b"row", b"1").expect("put");
    let before = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    let y = db
        .keyspace("y", KeyspaceOptions::default())
        .expect("keyspace");
    y.put(b"row", b"2").expect("put");
    // The old manifest with the current log.
    let left = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    for name in files(&before, ".manifest") {
        let bytes = content(&before, &name);
        let path = dir().join(name);
        left.remove(&path).expect("remove");
        let file = left.create(&path).expect("create");
        file.write_at(&bytes, 0).expect("write");
    }
    let opened = Database::open_on(Arc::new(left), dir(), unsynced());
    match opened {
        Err(Error::Corruption { path, found, .. }) => {
            assert!(path.extension().is_some_and(|e| e == "wal"), "{path:?}");
            assert!(found.contains("never created"), "{found}");
        }
        Err(other) => panic!("{}", crate::driver::chain(&other)),
        Ok(_) => panic!("rows of an unknown keyspace were passed over"),
    }
}

#[test]
fn a_thousand_keyspaces_with_a_row_each_take_little_memory() {
    let (_vfs, db, _) = database(Options {
        memory_bytes: 256 << 20,
        memtable_bytes: None,
        ..unsynced()
    });
    let keyspaces: Vec<_> = (0..1000)
        .map(|n| {
            let keyspace = db.keyspace(&format!("k{n}"), KeyspaceOptions::default());
            let keyspace = keyspace.expect("keyspace");
            keyspace.put(b"row", b"1").expect("put");
            keyspace
        })
        .collect();
    let used = db.stats().expect("stats").memory.memtable_bytes;
    assert!(used < 1000 * (192 << 10), "{used} bytes");
    drop(keyspaces);
}

#[test]
fn a_row_put_into_a_dead_interval_is_found_whatever_has_become_of_the_tree() {
    for work in ["nothing", "flush", "settle", "split", "compact"] {
        let (_vfs, db, k) = database(tiny());
        for n in 0..600 {
            k.put(&key(n), &[7; 100]).expect("put");
        }
        db.settle().expect("settle");
        for n in 20..580 {
            k.delete(&key(n)).expect("delete");
        }
        assert_eq!(all(&k).len(), 40);
        match work {
            "flush" => db.flush().expect("flush"),
            "settle" => db.settle().expect("settle"),
            "compact" => k.compact_range(&key(100), Some(&key(300))).expect("merge"),
            "split" => {
                let mut ingest = db.ingest().expect("ingest");
                for n in 580..900 {
                    ingest.put(&k, &key(n), &[8; 100]).expect("put");
                }
                ingest.finish().expect("finish");
            }
            _ => {}
        }
        let before = all(&k).len();
        for n in (20..580).step_by(40) {
            k.put(&key(n), b"new").expect("put");
            assert!(finds(cursor(&k), n), "{work}: row {n}");
        }
        assert_eq!(all(&k).len(), before + 14, "{work}");
        db.flush().expect("flush");
        assert_eq!(all(&k).len(), before + 14, "{work}, flushed");
    }
}
