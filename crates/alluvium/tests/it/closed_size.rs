//! Size of a closed database: its data, the manifest, and at most 1 MiB that the next opening may
//! need; and the log of a settled one.

use std::path::Path;
use std::sync::Arc;

use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{Database, Durability, Options};

use crate::driver::{chain, state_of};
use crate::fixture::{assert_error, dir, open, segments};
use crate::hooks::wait_until;

/// Returns options with enough memory that segments and the ballast file have their full sizes.
fn large(memory_bytes: usize) -> Options {
    Options {
        memory_bytes,
        ..Options::default()
    }
}

fn put_one_row(db: &Database) {
    let k = db.keyspace("k", Default::default()).expect("keyspace");
    k.put(b"a", b"1").expect("put");
}

fn bytes(vfs: &MemVfs) -> u64 {
    let names = vfs.list(dir()).expect("list").into_iter();
    names.map(|name| len(vfs, &dir().join(name))).sum()
}

fn len(vfs: &MemVfs, path: &Path) -> u64 {
    vfs.open_read(path)
        .and_then(|file| file.len())
        .expect("length")
}

#[test]
fn a_closed_database_with_one_row_takes_a_megabyte_whatever_its_memory() {
    for memory_bytes in [64 << 20, 256 << 20, 1 << 30] {
        for durability in [Durability::Buffered, Durability::Sync, Durability::None] {
            let vfs = MemVfs::new();
            let options = Options {
                durability,
                ..large(memory_bytes)
            };
            let db = open(&vfs, options.clone());
            put_one_row(&db);
            db.close().expect("close");
            let most = (1 << 20) + (256 << 10);
            assert!(bytes(&vfs) <= most, "{durability:?}: {} bytes", bytes(&vfs));
            let before = segments(&vfs).len();
            // Sessions without a commit leave no files, and a session with tables is no larger.
            for _ in 0..3 {
                let db = open(&vfs, options.clone());
                assert_eq!(state_of(&db)["k"].len(), 1);
                db.close().expect("close");
            }
            assert!(segments(&vfs).len() <= before + 1, "{:?}", segments(&vfs));
            let db = open(&vfs, options.clone());
            db.settle().expect("settle");
            db.close().expect("close");
            assert!(bytes(&vfs) <= most, "{durability:?}: {} bytes", bytes(&vfs));
        }
    }
}

#[test]
fn a_settled_database_has_one_small_segment() {
    let vfs = MemVfs::new();
    let db = open(&vfs, large(256 << 20));
    let k = db.keyspace("k", Default::default()).expect("keyspace");
    for round in 0..3_u8 {
        for row in 0..3_000_u32 {
            k.put(&row.to_be_bytes(), &[round; 4_000]).expect("put");
        }
        db.settle().expect("settle");
        let log = || -> Vec<u64> {
            let names = segments(&vfs).into_iter();
            names.map(|name| len(&vfs, &dir().join(name))).collect()
        };
        // The sync thread may be about to remove a file that it was preparing.
        wait_until(|| log().len() == 1);
        assert_eq!(log(), [2 << 20], "a whole segment has 16 MiB");
    }
    db.close().expect("close");
}

#[test]
fn a_cut_segment_that_loses_more_of_its_end_is_damage() {
    let vfs = MemVfs::new();
    let db = open(&vfs, large(64 << 20));
    put_one_row(&db);
    db.close().expect("close");
    let [name] = &segments(&vfs)[..] else {
        panic!("one segment: {:?}", segments(&vfs));
    };
    let path = dir().join(name);
    let end = len(&vfs, &path);
    assert!(end < 4096, "{end} bytes");
    // Down to the header without records, which is indistinguishable from an interrupted creation.
    for length in (80..end).rev() {
        let cut = vfs.crash(0, CrashOptions::PROCESS_KILLED);
        let file = cut.open(&path).expect("open");
        file.truncate(length).expect("truncate");
        let opened = Database::open_on(Arc::new(cut.clone()), dir(), large(64 << 20));
        assert_error!(opened, alluvium::Error::Corruption { .. });
    }
}

#[test]
fn a_close_that_fails_or_stops_anywhere_loses_nothing() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let options = Options {
            durability,
            ..large(64 << 20)
        };
        for (sticky, nth) in [true, false]
            .into_iter()
            .flat_map(|s| (1..40).map(move |n| (s, n)))
        {
            let vfs = MemVfs::new();
            let faults = FaultVfs::new(Arc::new(vfs.clone()));
            let db = Database::open_on(Arc::new(faults.clone()), dir(), options.clone());
            let db = db.expect("open");
            put_one_row(&db);
            db.sync().expect("sync");
            faults.arm(Fault {
                calls: Vec::new(),
                nth,
                sticky,
                effect: FaultEffect::Error,
            });
            let closed = db.close();
            faults.disarm();
            drop(db);
            let context = format!("{durability:?}, call {nth}, sticky {sticky}: {closed:?}");
            let losses = [CrashOptions::PROCESS_KILLED, CrashOptions::LOSE_UNSYNCED];
            let power = (0..4).map(|seed| (nth * 4 + seed, CrashOptions::POWER_LOSS));
            for (seed, loss) in losses.map(|loss| (0, loss)).into_iter().chain(power) {
                let left = vfs.crash(seed, loss);
                let opened = Database::open_on(Arc::new(left), dir(), options.clone());
                let db = opened.unwrap_or_else(|e| panic!("{context}, {loss:?}: {}", chain(&e)));
                assert_eq!(state_of(&db)["k"].len(), 1, "{context}, {loss:?}");
            }
        }
    }
}

#[test]
fn a_cut_that_fails_does_not_fail_the_close() {
    for call in [IoCall::Length, IoCall::Allocate] {
        let vfs = MemVfs::new();
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        let db = Database::open_on(Arc::new(faults.clone()), dir(), large(64 << 20));
        let db = db.expect("open");
        put_one_row(&db);
        faults.arm(Fault {
            calls: vec![call],
            nth: 1,
            sticky: true,
            effect: FaultEffect::Error,
        });
        db.close().expect("close");
        let db = open(&vfs, large(64 << 20));
        assert_eq!(state_of(&db)["k"].len(), 1);
    }
}
