//! Failures reach every caller that waits for the failed work, and no acknowledged commit is lost.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use alluvium::vfs::{CrashOptions, Vfs};
use alluvium::{
    Database, Durability, Error, Keyspace, KeyspaceOptions, Options, WriteBatch, WriteOptions,
};

use crate::fixture::{assert_error, dir, open, table_files};
use crate::hooks::{Call, HookVfs, stopping_at_table, wait_until};

fn with(durability: Durability) -> Options {
    Options {
        durability,
        sync_interval: Duration::from_millis(5),
        ..Options::default()
    }
}

fn open_on(vfs: &HookVfs, options: Options) -> (Database, Keyspace) {
    let db = Database::open_on(Arc::new(vfs.clone()), dir(), options).expect("open");
    let keyspace = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    (db, keyspace)
}

#[test]
fn a_failed_flush_is_told_to_sync_and_close_of_a_database_without_log() {
    for close in [false, true] {
        let vfs = HookVfs::failing(Call::Create, ".sst", ErrorKind::Other);
        let (db, k) = open_on(&vfs, with(Durability::None));
        k.put(b"x", b"1").expect("put");
        vfs.set(true);
        assert_error!(
            if close { db.close() } else { db.sync() },
            Error::Io { changed: false, .. }
        );
        assert_eq!(k.get(b"x").is_ok(), !close, "reads go on");
        vfs.set(false);
        if !close {
            db.sync().expect("the cause is gone");
        }
    }
}

#[test]
fn sync_returns_only_after_a_sync_that_began_after_the_commit() {
    let (inside, release) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (entered, released) = (Arc::clone(&inside), Arc::clone(&release));
    let vfs = HookVfs::new(move |call, path: &Path| {
        if call == Call::Sync && path.to_string_lossy().ends_with(".wal") {
            entered.store(true, Ordering::SeqCst);
            wait_until(|| released.load(Ordering::SeqCst));
        }
        Ok(())
    });
    let (db, k) = open_on(&vfs, with(Durability::Buffered));
    vfs.set(true);
    k.put(b"x", b"1").expect("put");
    // The background sync that covers the commit has begun and is blocked.
    wait_until(|| inside.load(Ordering::SeqCst));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| tell.send(db.sync().is_ok()).expect("the test listens"));
        let early = told.recv_timeout(Duration::from_millis(100));
        release.store(true, Ordering::SeqCst);
        assert!(early.is_err(), "sync returned before anything was durable");
        assert_eq!(told.recv(), Ok(true));
    });
}

#[test]
fn a_failed_background_sync_is_told_to_sync_commit_and_close() {
    let vfs = HookVfs::failing(Call::Sync, ".wal", ErrorKind::Other);
    let (db, k) = open_on(&vfs, with(Durability::Buffered));
    vfs.set(true);
    // At the latest, the first commit after the failure is refused.
    wait_until(|| k.put(b"x", b"1").is_err());
    assert_error!(db.sync(), Error::Poisoned(_));
    assert_error!(k.put(b"y", b"1"), Error::Poisoned(_));
    assert_error!(db.close(), Error::Poisoned(_));
}

#[test]
fn a_table_that_a_failed_manifest_sync_may_have_named_is_kept() {
    let vfs = HookVfs::failing(Call::Sync, ".manifest", ErrorKind::Other);
    let (db, k) = open_on(&vfs, with(Durability::Buffered));
    k.put(b"x", b"1").expect("put");
    vfs.set(true);
    assert_error!(db.flush(), Error::Poisoned(_));
    drop((db, k));
    vfs.set(false);
    // The edit reached the kernel: a process that starts now reads it.
    let (_db, k) = open_on(&vfs, with(Durability::Buffered));
    assert_eq!(k.get(b"x").expect("get").as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_close_ends_the_wait_of_a_commit_at_the_ceiling_while_the_flush_goes_on() {
    let (vfs, there, go) = stopping_at_table(1);
    let options = Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(4_000),
        ..with(Durability::Buffered)
    };
    let (db, k) = open_on(&vfs, options);
    vfs.set(true);
    let writer = {
        let k = k.clone();
        std::thread::spawn(move || {
            // Ends: the flush is blocked, so memtables reach their ceiling, and the commit at the
            // ceiling fails.
            loop {
                if let Err(error) = k.put(b"x", &[7; 200_000]) {
                    return error;
                }
            }
        })
    };
    wait_until(|| there.load(Ordering::SeqCst));
    let waits = || db.stats().is_ok_and(|stats| stats.ceiling_waits > 0);
    wait_until(waits);
    let closing = {
        let db = db.clone();
        std::thread::spawn(move || db.close())
    };
    let error = writer.join().expect("join");
    assert!(matches!(error, Error::Closed), "{error:?}");
    go.store(true, Ordering::SeqCst);
    closing.join().expect("join").expect("close");
}

/// Returns a file system that panics in `call` on files with this ending while the hook is on. The
/// engine must catch this defect.
fn panicking(call: Call, ending: &'static str) -> HookVfs {
    HookVfs::new(move |at, path| {
        let there = at == call && path.to_string_lossy().ends_with(ending);
        assert!(!there, "this panic is part of the test");
        Ok(())
    })
}

#[test]
fn a_panic_of_the_flush_thread_is_a_defect_of_the_engine() {
    let vfs = panicking(Call::Create, ".sst");
    let (db, k) = open_on(&vfs, with(Durability::Buffered));
    k.put(b"x", b"1").expect("put");
    vfs.set(true);
    let is_defect = |error: Error| match error {
        Error::Poisoned(first) => assert!(matches!(*first, Error::Internal(_)), "{first:?}"),
        other => panic!("{other:?}"),
    };
    is_defect(db.flush().expect_err("the flush thread is gone"));
    is_defect(k.put(b"x", b"2").expect_err("poisoned"));
    is_defect(db.close().expect_err("poisoned"));
}

#[test]
fn a_panic_of_a_leader_is_a_defect_of_the_engine() {
    let vfs = panicking(Call::Sync, ".wal");
    let (_db, k) = open_on(&vfs, with(Durability::Sync));
    vfs.set(true);
    match k.put(b"x", b"1") {
        Err(Error::Poisoned(first)) => assert!(matches!(*first, Error::Internal(_)), "{first:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_check_of_a_database_whose_manifest_failed_reports_and_does_not_panic() {
    let vfs = HookVfs::failing(Call::Sync, ".manifest", ErrorKind::Other);
    let (db, k) = open_on(&vfs, with(Durability::Buffered));
    k.put(b"x", b"1").expect("put");
    vfs.set(true);
    assert_error!(db.flush(), Error::Poisoned(_));
    vfs.set(false);
    let report = db.verify().expect("verify");
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn a_buffered_commit_of_a_sync_database_is_synced_in_the_background() {
    let synced = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&synced);
    let vfs = HookVfs::new(move |call, path: &Path| {
        if call == Call::Sync && path.to_string_lossy().ends_with(".wal") {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let (db, k) = open_on(&vfs, with(Durability::Sync));
    let mut batch = WriteBatch::new();
    batch.put(&k, b"x", b"1").expect("put");
    let buffered = WriteOptions {
        durability: Some(Durability::Buffered),
        ..WriteOptions::default()
    };
    vfs.set(true);
    db.write_with(&batch, &buffered).expect("write");
    wait_until(|| synced.load(Ordering::SeqCst) > 0);
}

#[test]
fn a_drop_does_not_overtake_commits_of_a_database_without_log() {
    let vfs = HookVfs::new(|_, _| Ok(()));
    let (db, x) = open_on(&vfs, with(Durability::None));
    let y = db
        .keyspace("y", KeyspaceOptions::default())
        .expect("keyspace");
    y.put(b"row", b"1").expect("put");
    db.flush().expect("flush");
    x.put(b"row", b"1").expect("put");
    db.drop_keyspace(&y).expect("drop");
    let after = vfs.files.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&after, with(Durability::None));
    let x = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    assert!(
        x.get(b"row").expect("get").is_some(),
        "the row is in neither keyspace"
    );
}

#[test]
fn a_full_device_refuses_commits_at_the_ceiling_and_service_resumes() {
    let vfs = HookVfs::failing(Call::Create, ".sst", ErrorKind::StorageFull);
    let options = Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(1 << 20),
        ..with(Durability::Buffered)
    };
    let (db, k) = open_on(&vfs, options);
    vfs.set(true);
    let mut kept = 0u64;
    let refused = loop {
        // Large values: admission control delays a commit by at most a second.
        match k.put(&kept.to_be_bytes(), &[7; 200_000]) {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    vfs.set(false);
    wait_until(|| k.put(b"more", b"1").is_ok());
    wait_until(|| db.flush().is_ok());
    for i in 0..kept {
        assert!(
            k.get(&i.to_be_bytes()).expect("get").is_some(),
            "row {i} of {kept} is lost"
        );
    }
}

#[test]
fn calls_that_flush_pile_up_nothing_on_a_full_device() {
    let vfs = HookVfs::failing(Call::Create, ".sst", ErrorKind::StorageFull);
    let (db, k) = open_on(&vfs, with(Durability::Buffered));
    vfs.set(true);
    let sealed = [0, 1, 2].map(|_| {
        // A full device accepts deletes too.
        k.delete(b"x").expect("delete");
        assert_error!(db.flush(), Error::NoSpace { .. });
        assert_error!(db.checkpoint("copy"), Error::NoSpace { .. });
        db.stats().expect("stats").sealed_bytes
    });
    assert!(sealed[0] > 0);
    assert_eq!(sealed, [sealed[0]; 3]);
    vfs.set(false);
    wait_until(|| db.flush().is_ok());
    assert_eq!(db.stats().expect("stats").sealed_bytes, 0);
}

#[test]
fn flushes_that_find_no_space_leave_no_tables_behind() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    // The first keyspace's table finds space, the second one's does not.
    let vfs = HookVfs::new(move |call, path: &Path| {
        let table = call == Call::Create && path.to_string_lossy().ends_with(".sst");
        if table && count.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    let (db, k) = open_on(&vfs, with(Durability::Buffered));
    let other = db
        .keyspace("other", KeyspaceOptions::default())
        .expect("keyspace");
    k.put(b"x", b"1").expect("put");
    other.put(b"x", b"1").expect("put");
    vfs.set(true);
    assert_error!(db.flush(), Error::NoSpace { .. });
    assert_eq!(table_files(&vfs.files), Vec::<String>::new());
    vfs.set(false);
    wait_until(|| db.flush().is_ok());
    assert_eq!(
        vfs.files
            .list(dir())
            .expect("list")
            .iter()
            .filter(|n| n.ends_with(".sst"))
            .count(),
        2
    );
}

#[test]
fn a_flush_of_replayed_commits_claims_none_that_were_replayed_later() {
    let options = Options {
        memtable_bytes: Some(4_000),
        ..with(Durability::Sync)
    };
    let vfs = HookVfs::failing(Call::Create, ".sst", ErrorKind::StorageFull);
    let (db, k) = open_on(&vfs, options.clone());
    vfs.set(true);
    for i in 0..60u64 {
        k.put(&i.to_be_bytes(), &[7; 50]).expect("put");
    }
    // The manifest now has a sequence number above all of them, and no table has any of the rows.
    db.keyspace("later", KeyspaceOptions::default())
        .expect("keyspace");
    let first = vfs.files.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&first, options.clone());
    wait_until(|| !table_files(&first).is_empty() && db.stats().expect("stats").flushes > 0);
    let second = first.crash(2, CrashOptions::LOSE_UNSYNCED);
    let db = open(&second, options);
    let k = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    let rows = (0..60u64).filter(|i| k.get(&i.to_be_bytes()).expect("get").is_some());
    assert_eq!(rows.count(), 60);
}
