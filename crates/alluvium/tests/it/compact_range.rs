//! Compaction of a range on request: the groups it compacts, the groups it leaves alone, and the
//! time of its return.

use std::sync::atomic::{AtomicBool, Ordering};

use alluvium::{CursorOptions, Database, Error, Keyspace, Options};

use crate::fixture::{all, assert_error, database, of, rows, tiny};
use crate::hooks::wait_until;

fn key(n: u32) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

/// Returns options under which nothing is compacted unless the test asks for it.
fn options() -> Options {
    Options {
        memtable_bytes: Some(1 << 20),
        upper_fraction: 1.0,
        ..tiny()
    }
}

fn put(k: &Keyspace, range: std::ops::Range<u32>, value: &[u8]) {
    for n in range {
        k.put(&key(n), &[value, &[n as u8; 40]].concat())
            .expect("put");
    }
}

#[test]
fn everything_of_the_keyspace_is_in_the_last_level_and_deleted_rows_are_gone() {
    let (_vfs, db, k) = database(options());
    put(&k, 0..1000, b"first");
    db.flush().expect("flush");
    put(&k, 0..1000, b"second");
    (0..500).for_each(|n| k.delete(&key(n)).expect("delete"));
    let before = all(&k);
    k.compact_range(&[], None).expect("compact");
    let stats = db.stats().expect("stats");
    let own = of(&stats, "k");
    assert_eq!((own.upper_tables, own.table_entries), (0, 500));
    assert_eq!(own.rows_estimate, 500);
    assert!(all(&k) == before);
    // Nothing is left to do.
    k.compact_range(&[], None).expect("compact");
    let after = db.stats().expect("stats");
    assert_eq!(after.table_bytes_written, stats.table_bytes_written);
}

#[test]
fn groups_outside_the_range_are_left_alone() {
    let (_vfs, db, k) = database(options());
    let mut ingest = db.ingest().expect("ingest");
    for n in 0..4000 {
        ingest
            .put(&k, &key(n), format!("{n}").as_bytes())
            .expect("put");
    }
    ingest.finish().expect("finish");
    put(&k, 0..4000, b"above");
    db.flush().expect("flush");
    let own = |f: fn(&alluvium::KeyspaceStats) -> u64| f(of(&db.stats().expect("stats"), "k"));
    let (groups, upper) = (own(|k| k.groups), own(|k| k.upper_tables));
    assert!(groups > 3 && upper == groups, "{upper} of {groups}");
    k.compact_range(&key(0), Some(&key(1))).expect("compact");
    assert_eq!(own(|k| k.upper_tables), upper - 1);
    k.compact_range(b"z", None).expect("compact");
    k.compact_range(b"b", Some(b"a")).expect("nothing");
    assert_eq!(
        own(|k| k.upper_tables),
        upper - 2,
        "the last group reaches to the end"
    );
    k.compact_range(&[], None).expect("compact");
    assert_eq!(own(|k| k.upper_tables), 0);
    assert_eq!(all(&k).len(), 4000);
}

#[test]
fn it_ends_while_writers_go_on_and_with_its_keyspace_and_database() {
    let (_vfs, db, k) = database(Options {
        compaction_threads: 2,
        ..tiny()
    });
    put(&k, 0..500, b"first");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                put(&k, 0..300, b"again");
            }
        });
        for _ in 0..5 {
            k.compact_range(&key(100), Some(&key(200)))
                .expect("compact");
        }
        stop.store(true, Ordering::Relaxed);
    });
    k.compact_range(&[], None).expect("compact");
    assert_eq!(of(&db.stats().expect("stats"), "k").upper_tables, 0);
    assert_eq!(all(&k).len(), 500);
    db.drop_keyspace(&k).expect("drop");
    assert_error!(k.compact_range(&[], None), Error::KeyspaceDropped(_));
    db.close().expect("close");
    assert_error!(k.compact_range(&[], None), Error::Closed);
}

/// Call that reclaims the entries kept for a released snapshot.
type Ask = fn(&Database, &Keyspace) -> alluvium::Result<()>;

#[test]
fn what_a_released_snapshot_had_kept_is_reclaimed_on_request_while_another_keyspace_is_written_to()
{
    let asks: [(&str, Ask); 2] = [
        ("settle", |db, _| db.settle()),
        ("compact_range", |_, k| k.compact_range(&[], None)),
    ];
    for (name, ask) in asks {
        let (_vfs, db, k) = database(Options {
            idle_after: None,
            ..options()
        });
        let busy = db.keyspace("busy", Default::default()).expect("keyspace");
        let entries = || of(&db.stats().expect("stats"), "k").table_entries;
        put(&k, 0..2000, b"first");
        k.compact_range(&[], None).expect("compact");
        let snapshot = db.snapshot().expect("snapshot");
        let old = all(&k);
        // Less than half of each group, so that no compaction is due.
        put(&k, 0..300, b"second");
        (300..400).for_each(|n| k.delete(&key(n)).expect("delete"));
        k.compact_range(&[], None).expect("compact");
        assert_eq!(entries(), 2400, "{name}: the snapshot keeps them");
        ask(&db, &k).expect("nothing to do");
        assert_eq!(entries(), 2400, "{name}: it keeps them still");
        let seen = rows(
            snapshot
                .cursor(&k, CursorOptions::default())
                .expect("cursor"),
        );
        assert!(seen == old, "{name}");
        put(&busy, 0..10, b"busy");
        drop(snapshot);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    put(&busy, 0..10, b"busy");
                }
            });
            ask(&db, &k).expect("reclaim");
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(entries(), 1900, "{name}");
        assert_eq!(all(&k).len(), 1900, "{name}");
        // A second call finds nothing to do.
        db.flush().expect("flush");
        db.settle().expect("settle");
        let written = db.stats().expect("stats").table_bytes_written;
        ask(&db, &k).expect("nothing to do");
        assert_eq!(
            db.stats().expect("stats").table_bytes_written,
            written,
            "{name}"
        );
    }
}

#[test]
fn groups_half_of_which_a_released_snapshot_had_kept_are_rewritten_without_a_call() {
    let (_vfs, db, k) = database(Options {
        idle_after: None,
        ..options()
    });
    let busy = db.keyspace("busy", Default::default()).expect("keyspace");
    put(&k, 0..1000, b"first");
    k.compact_range(&[], None).expect("compact");
    let snapshot = db.snapshot().expect("snapshot");
    put(&k, 0..1000, b"second");
    k.compact_range(&[], None).expect("compact");
    let entries = || of(&db.stats().expect("stats"), "k").table_entries;
    assert_eq!(entries(), 2000, "the snapshot keeps them");
    drop(snapshot);
    put(&busy, 0..10, b"busy");
    db.flush().expect("an event");
    wait_until(|| entries() == 1000);
}
