//! Online verification: the damage it finds, and a clean report for a database without damage.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use alluvium::vfs::{MemVfs, Vfs};
use alluvium::{
    Clock, Database, Durability, Error, Expiry, Keyspace, KeyspaceOptions, Options, VerifyReport,
    WriteBatch, WriteOptions,
};
use alluvium_testkit::random::Rng;

use crate::fixture::{assert_error, contents, database, dir, open, table_files, tiny};
use crate::script::path_of;

/// Returns an open database with tables of every kind, a manifest of several edits and a log of
/// several segments.
fn filled() -> (MemVfs, Database, Keyspace) {
    // The damaged files must stay: an idle database, on a busy machine, would compact them.
    let (vfs, db, k) = database(Options {
        idle_after: None,
        ..tiny()
    });
    let mut rng = Rng::new(3);
    let mut fill = |from: u32| {
        for n in from..from + 120 {
            let key = n.wrapping_mul(2_654_435_761).to_be_bytes();
            k.put(&key, &rng.bytes(60)).expect("put");
        }
    };
    fill(0);
    db.settle().expect("settle");
    fill(100);
    k.delete_range(&[1], &[2]).expect("delete a range");
    db.flush().expect("flush");
    fill(200);
    db.sync().expect("sync");
    wait_for_removals(&vfs, &db);
    (vfs, db, k)
}

/// Waits until replaced tables are removed, and returns the report of the tables that are left: a
/// thread that looks for work may hold a table a little longer.
fn wait_for_removals(vfs: &MemVfs, db: &Database) -> VerifyReport {
    loop {
        let report = clean(db);
        if report.tables == table_files(vfs).len() as u64 {
            return report;
        }
        thread::yield_now();
    }
}

fn clean(db: &Database) -> VerifyReport {
    let report = db.verify().expect("verify");
    assert!(report.is_clean(), "{report:?}");
    report
}

fn path(error: &Error) -> PathBuf {
    match error {
        Error::Corruption { path, .. } | Error::Io { path, .. } => path.clone(),
        other => panic!("{other}"),
    }
}

fn damaged_files(db: &Database) -> BTreeSet<PathBuf> {
    let report = db.verify().expect("verify");
    assert_eq!(report.damage_count, report.damages.len() as u64);
    report.damages.iter().map(path).collect()
}

fn flip(vfs: &MemVfs, name: &str, at: u64) {
    let file = vfs.open(&path_of(name)).expect("open");
    let mut byte = [0];
    file.read_at(&mut byte, at).expect("read");
    byte[0] ^= 1 << (at % 8);
    file.write_at(&byte, at).expect("write");
}

#[test]
fn a_whole_database_is_read_and_is_clean() {
    let (vfs, db, _) = filled();
    // A compaction that is due may replace tables between the two reads of the file list.
    let report = wait_for_removals(&vfs, &db);
    assert!(report.entries > 100 && report.log_segments > 0 && report.log_records > 0);
    assert_eq!(report.groups_skipped, 0);
    let before = db.stats().expect("stats");
    let mut read = 0;
    db.verify_with(&mut |bytes| read += bytes).expect("verify");
    assert!(read > 1000, "the pause is told what was read: {read}");
    let after = db.stats().expect("stats");
    assert_eq!(after.cache_used_bytes, before.cache_used_bytes);
    assert_eq!(after.cache_misses, before.cache_misses);
    db.close().expect("close");
    assert_error!(db.verify(), Error::Closed);
    for options in [
        Options {
            read_only: true,
            ..tiny()
        },
        Options {
            durability: Durability::None,
            ..tiny()
        },
        tiny(),
    ] {
        clean(&open(&vfs, options));
    }
}

#[test]
fn every_damaged_byte_of_a_table_is_found_while_the_database_is_open() {
    let (vfs, db, _) = filled();
    // No compaction may replace a table during the test.
    db.settle().expect("settle");
    wait_for_removals(&vfs, &db);
    for name in table_files(&vfs) {
        let file = vfs.open_read(&path_of(&name)).expect("open");
        let len = file.len().expect("length");
        for at in (0..len).step_by(397) {
            flip(&vfs, &name, at);
            let found = damaged_files(&db);
            assert_eq!(found, BTreeSet::from([path_of(&name)]), "byte {at}");
            flip(&vfs, &name, at);
        }
    }
    clean(&db);
}

#[test]
fn every_damaged_byte_of_log_and_manifest_is_found_while_the_database_is_open() {
    let (vfs, db, _) = filled();
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(".wal") || name == "CURRENT");
    let current = String::from_utf8(contents(&vfs, "CURRENT")).expect("text");
    names.push(current.split(' ').nth(2).expect("a name").to_owned());
    assert!(names.len() > 2);
    for name in names {
        // A segment created in advance is empty, and the engine removes it once it is not needed.
        let Some(bytes) = vfs
            .open_read(&path_of(&name))
            .ok()
            .map(|_| contents(&vfs, &name))
        else {
            assert!(name.ends_with(".wal"), "{name}");
            continue;
        };
        // Nothing was written after the last byte that is not zero.
        let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        for at in (0..used as u64).step_by(149) {
            flip(&vfs, &name, at);
            let report = db.verify().expect("verify");
            // The mark after the last edit of the manifest may be lost: nothing depends on it.
            let spared = name.ends_with(".manifest") && at + 40 >= used as u64;
            assert!(report.damage_count > 0 || spared, "{name} byte {at}");
            flip(&vfs, &name, at);
        }
    }
    clean(&db);
}

#[test]
fn the_check_goes_on_after_the_first_damage_and_names_each_place() {
    let (vfs, db, _) = filled();
    // So that no compaction removes the damaged tables meanwhile.
    db.settle().expect("settle");
    let tables = table_files(&vfs);
    assert!(tables.len() > 2, "{tables:?}");
    // Two blocks of one table; they are at its beginning.
    let first = tables
        .iter()
        .max_by_key(|name| contents(&vfs, name).len())
        .expect("a table");
    flip(&vfs, first, 30);
    flip(&vfs, first, contents(&vfs, first).len() as u64 - 300);
    let second = tables.iter().find(|name| *name != first).expect("another");
    vfs.remove(&path_of(second)).expect("remove");
    let report = db.verify().expect("verify");
    let mut files: Vec<_> = report.damages.iter().map(path).collect();
    files.dedup();
    let expected = BTreeSet::from([path_of(first), path_of(second)]);
    assert_eq!(files.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert!(report.groups_skipped > 0);
    assert_eq!(report.tables, tables.len() as u64, "all were tried");
    assert!(!report.is_clean());
}

#[test]
fn two_damaged_blocks_of_a_table_are_two_damages() {
    let (vfs, db, k) = database(Options {
        memtable_bytes: Some(1 << 20),
        table_bytes: 1 << 20,
        ..tiny()
    });
    let mut rng = Rng::new(4);
    for n in 0..400_u32 {
        k.put(&n.to_be_bytes(), &rng.bytes(200)).expect("put");
    }
    db.flush().expect("flush");
    let [table] = &table_files(&vfs)[..] else {
        panic!("one table")
    };
    let third = contents(&vfs, table).len() as u64 / 3;
    flip(&vfs, table, third);
    flip(&vfs, table, 2 * third);
    let report = db.verify().expect("verify");
    assert_eq!(report.damage_count, 2, "{report:?}");
    let offsets: BTreeSet<u64> = report
        .damages
        .iter()
        .map(|error| match error {
            Error::Corruption { offset, .. } => *offset,
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(offsets.len(), 2);
}

/// Inserts a row that debug builds do not check.
fn insert_unseen(db: &Database, k: &Keyspace, key: &[u8], value: &[u8]) {
    let mut batch = WriteBatch::new();
    batch.insert(k, key, value).expect("insert");
    let options = WriteOptions {
        untracked: true,
        ..WriteOptions::default()
    };
    db.write_with(&batch, &options).expect("write");
}

#[test]
fn an_insert_over_a_live_row_is_reported_and_a_legal_one_is_not() {
    let (_vfs, db, k) = database(tiny());
    k.put(b"live", b"1").expect("put");
    k.put(b"deleted", b"1").expect("put");
    k.put(b"in a range", b"1").expect("put");
    let _kept = db.snapshot().expect("snapshot");
    db.flush().expect("flush");
    k.delete(b"deleted").expect("delete");
    k.delete_prefix(b"in").expect("delete");
    db.flush().expect("flush");
    k.insert(b"deleted", b"2").expect("insert");
    k.insert(b"in a range", b"2").expect("insert");
    k.insert(b"new", b"2").expect("insert");
    clean(&db);
    insert_unseen(&db, &k, b"live", b"2");
    for when in ["in memory", "flushed", "settled under a snapshot"] {
        let report = db.verify().expect("verify");
        assert_eq!(report.damage_count, 0);
        let [wrong] = &report.wrong_inserts[..] else {
            panic!("{when}: {report:?}")
        };
        assert_eq!((&wrong.keyspace[..], &wrong.key[..]), ("k", &b"live"[..]));
        assert_eq!(wrong.seqno, db.visible_seqno());
        match when {
            "in memory" => db.flush().expect("flush"),
            _ => db.settle().expect("settle"),
        }
    }
}

#[test]
fn an_insert_with_expiring_rows_is_a_put_and_never_wrong() {
    let now = Arc::new(AtomicU64::new(1_000));
    let own = Arc::clone(&now);
    let options = Options {
        clock: Clock::custom(move || own.load(Ordering::SeqCst)),
        ..tiny()
    };
    let db = open(&MemVfs::new(), options);
    let expiring = KeyspaceOptions {
        expiry: Expiry::After(Duration::from_millis(500)),
        ..KeyspaceOptions::default()
    };
    let k = db.keyspace("k", expiring).expect("keyspace");
    k.put(b"row", b"1").expect("put");
    let _kept = db.snapshot().expect("snapshot");
    db.flush().expect("flush");
    now.store(2_000, Ordering::SeqCst);
    k.insert(b"row", b"2").expect("insert");
    clean(&db);
    db.flush().expect("flush");
    clean(&db);
    insert_unseen(&db, &k, b"row", b"3");
    clean(&db);
    k.delete(b"row").expect("delete");
    db.settle().expect("settle");
    now.store(1_000, Ordering::SeqCst);
    assert_eq!(k.get(b"row").expect("get"), None);
}

#[test]
fn a_busy_database_is_clean() {
    let (_vfs, db, k) = database(tiny());
    let goes_on = Arc::new(());
    let seen = Arc::downgrade(&goes_on);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(6);
            let mut present = BTreeSet::new();
            for round in 0_u32.. {
                let key = (rng.below(300) as u32).to_be_bytes();
                let value = rng.bytes(50);
                if present.insert(key) {
                    k.insert(&key, &value).expect("insert");
                } else if rng.percent(50) {
                    k.put(&key, &value).expect("put");
                } else {
                    k.delete(&key).expect("delete");
                    present.remove(&key);
                }
                if round % 500 == 0 {
                    let other = db.keyspace("other", KeyspaceOptions::default());
                    db.drop_keyspace(&other.expect("keyspace")).expect("drop");
                    if seen.strong_count() == 0 {
                        return;
                    }
                }
            }
        });
        let _goes_on = goes_on;
        for _ in 0..40 {
            clean(&db);
        }
    });
}
