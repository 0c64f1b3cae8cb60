//! Prepared transactions: neither lost nor half there, whatever fails between the two phases.

use std::sync::Arc;
use std::time::Duration;

use alluvium::vfs::{CrashOptions, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{
    Database, Durability, Error, Isolation, Keyspace, KeyspaceOptions, Options,
    PreparedTransaction, Result, Transaction, TransactionOptions,
};

use crate::fixture::{
    all, assert_error, contents, database, dir, open, segments, stop_at, text, tiny,
};
use crate::hooks::wait_until;

pub fn impatient(db: &Database) -> Transaction {
    let options = TransactionOptions {
        lock_timeout: Some(Duration::ZERO),
        ..TransactionOptions::default()
    };
    db.begin_with(options).expect("begin")
}

/// Prepares a transaction that writes `key`.
fn prepare(db: &Database, k: &Keyspace, xid: &[u8], key: &str) -> Result<PreparedTransaction> {
    let txn = impatient(db);
    txn.put(k, key.as_bytes(), b"prepared")?;
    txn.prepare(xid)
}

pub fn reopen(vfs: &MemVfs, options: Options) -> (Database, Keyspace) {
    let db = open(vfs, options);
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    (db, k)
}

#[test]
fn a_prepared_transaction_is_invisible_and_locked_until_it_is_committed() {
    let (_vfs, db, k) = database(tiny());
    let before = db.begin(Isolation::Snapshot).expect("begin");
    let prepared = prepare(&db, &k, b"x1", "a").expect("prepare");
    assert_eq!(prepared.xid(), b"x1");
    assert_eq!(db.prepared().expect("list"), [b"x1"]);
    assert_eq!(text(&k, "a"), None);
    assert_error!(
        impatient(&db).put(&k, b"a", b"other"),
        Error::LockTimeout { .. }
    );
    prepared.commit().expect("commit");
    assert!(db.prepared().expect("list").is_empty());
    assert_eq!(text(&k, "a").as_deref(), Some("prepared"));
    assert_error!(before.put(&k, b"a", b"late"), Error::Conflict { .. });
    impatient(&db)
        .put(&k, b"a", b"other")
        .expect("the row is free");
}

#[test]
fn a_rolled_back_one_leaves_nothing_and_its_id_may_be_used_again() {
    let (_vfs, db, k) = database(tiny());
    let prepared = prepare(&db, &k, b"x", "a").expect("prepare");
    prepared.rollback().expect("rollback");
    assert!(db.prepared().expect("list").is_empty() && all(&k).is_empty());
    let again = prepare(&db, &k, b"x", "a").expect("the row and the id are free");
    again.commit().expect("commit");
    assert_eq!(all(&k).len(), 1);
}

#[test]
fn after_power_loss_it_is_listed_locked_and_can_be_decided_either_way() {
    for durability in [Durability::Buffered, Durability::Sync] {
        for commit in [true, false] {
            let options = Options {
                durability,
                ..tiny()
            };
            let (vfs, db, k) = database(options.clone());
            let prepared = prepare(&db, &k, b"x", "a").expect("prepare");
            let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
            let (db2, k2) = reopen(&left, options.clone());
            assert_eq!(db2.prepared().expect("list"), [b"x"]);
            assert_eq!(text(&k2, "a"), None);
            let other = impatient(&db2);
            assert_error!(other.put(&k2, b"a", b"other"), Error::LockTimeout { .. });
            let taken = db2.take_prepared(b"x").expect("take");
            if commit {
                taken.commit().expect("commit");
            } else {
                taken.rollback().expect("rollback");
            }
            assert_eq!(text(&k2, "a").is_some(), commit);
            other.rollback();
            impatient(&db2).put(&k2, b"a", b"other").expect("free");
            db2.close().expect("close");
            let (db3, k3) = reopen(&left, options);
            assert!(db3.prepared().expect("list").is_empty());
            assert_eq!(text(&k3, "a").is_some(), commit);
            drop(prepared);
        }
    }
}

#[test]
fn a_flush_makes_a_rollback_durable_that_has_changed_no_row() {
    let (vfs, db, k) = database(tiny());
    let prepared = prepare(&db, &k, b"x", "a").expect("prepare");
    db.flush().expect("flush");
    prepared.rollback().expect("rollback");
    db.flush().expect("flush");
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let (db, _) = reopen(&left, tiny());
    assert!(db.prepared().expect("list").is_empty());
}

#[test]
fn a_dropped_handle_decides_nothing_and_only_one_is_out_at_a_time() {
    let (vfs, db, k) = database(tiny());
    let prepared = prepare(&db, &k, b"x", "a").expect("prepare");
    assert_error!(db.take_prepared(b"x"), Error::InvalidArgument(_));
    drop(prepared);
    let taken = db.take_prepared(b"x").expect("take");
    assert_error!(db.take_prepared(b"x"), Error::InvalidArgument(_));
    assert_error!(db.take_prepared(b"y"), Error::InvalidArgument(_));
    assert_error!(
        impatient(&db).put(&k, b"a", b"other"),
        Error::LockTimeout { .. }
    );
    drop(taken);
    db.close().expect("close");
    let (db, k) = reopen(&vfs, tiny());
    db.take_prepared(b"x")
        .expect("take")
        .commit()
        .expect("commit");
    assert_eq!(text(&k, "a").as_deref(), Some("prepared"));
}

#[test]
fn what_cannot_be_prepared_is_refused_and_rolled_back() {
    let (_vfs, db, k) = database(tiny());
    let first = prepare(&db, &k, b"x", "a").expect("prepare");
    assert_error!(prepare(&db, &k, b"x", "b"), Error::InvalidArgument(_));
    let long = vec![7; alluvium::XID_BYTES_MAX + 1];
    assert_error!(prepare(&db, &k, &long, "b"), Error::InvalidArgument(_));
    for (isolation, optimistic) in [
        (Isolation::Serializable, false),
        (Isolation::Snapshot, true),
    ] {
        let options = TransactionOptions {
            isolation,
            optimistic,
            ..TransactionOptions::default()
        };
        let txn = db.begin_with(options).expect("begin");
        txn.put(&k, b"b", b"1").expect("put");
        assert_error!(txn.prepare(b"y"), Error::InvalidArgument(_));
    }
    assert_eq!(db.prepared().expect("list"), [b"x"]);
    let free = prepare(&db, &k, &long[1..], "b").expect("the row is free");
    free.commit().expect("commit");
    first.commit().expect("commit");
    assert_eq!(all(&k).len(), 2);
}

#[test]
fn without_a_log_nothing_can_be_prepared_and_nothing_prepared_can_be_opened() {
    let unlogged = Options {
        durability: Durability::None,
        ..tiny()
    };
    let (_vfs, db, k) = database(unlogged.clone());
    assert_error!(prepare(&db, &k, b"x", "a"), Error::InvalidArgument(_));
    let (vfs, db, k) = database(tiny());
    drop(prepare(&db, &k, b"x", "a").expect("prepare"));
    db.close().expect("close");
    let opened = Database::open_on(Arc::new(vfs.clone()), dir(), unlogged.clone());
    assert_error!(opened, Error::InvalidArgument(_));
    let (db, _k) = reopen(&vfs, tiny());
    db.take_prepared(b"x")
        .expect("take")
        .commit()
        .expect("commit");
    db.close().expect("close");
    let (db, k) = reopen(&vfs, unlogged);
    assert_eq!(text(&k, "a").as_deref(), Some("prepared"));
    drop(db);
}

#[test]
fn the_prepared_writer_of_a_keyspace_is_named_until_its_decision() {
    let (vfs, db, k) = database(tiny());
    let other = db.keyspace("other", KeyspaceOptions::default());
    let other = other.expect("keyspace");
    let open = impatient(&db);
    open.put(&k, b"b", b"not prepared").expect("put");
    assert_eq!(db.prepared_writer(&k).expect("look"), None);
    let prepared = prepare(&db, &k, b"x", "a").expect("prepare");
    assert_eq!(db.prepared_writer(&k).expect("look"), Some(b"x".to_vec()));
    drop((open, prepared));
    assert_eq!(db.prepared_writer(&other).expect("look"), None);
    db.close().expect("close");
    let (db, k) = reopen(&vfs, tiny());
    assert_eq!(db.prepared_writer(&k).expect("look"), Some(b"x".to_vec()));
    let taken = db.take_prepared(b"x").expect("take");
    taken.commit().expect("commit");
    assert_eq!(db.prepared_writer(&k).expect("look"), None);
}

#[test]
fn a_keyspace_with_prepared_writes_cannot_be_dropped() {
    let (vfs, db, k) = database(tiny());
    drop(prepare(&db, &k, b"x", "a").expect("prepare"));
    for round in 0..2 {
        match db.drop_keyspace(&k) {
            Err(Error::KeyspaceInUse { keyspace, xid }) => {
                assert_eq!((keyspace.as_str(), &xid[..]), ("k", &b"x"[..]), "{round}");
            }
            other => panic!("{other:?}"),
        }
    }
    db.close().expect("close");
    let (db, k) = reopen(&vfs, tiny());
    assert_error!(db.drop_keyspace(&k), Error::KeyspaceInUse { .. });
    let taken = db.take_prepared(b"x").expect("take");
    taken.rollback().expect("rollback");
    db.drop_keyspace(&k).expect("drop");
}

#[test]
fn more_than_may_be_in_memory_cannot_be_prepared() {
    let options = Options {
        transaction_bytes: Some(1000),
        ..tiny()
    };
    let (_vfs, db, k) = database(options);
    let prepare = |n: u8| {
        let txn = impatient(&db);
        txn.put(&k, &[n], &[n; 800]).expect("put");
        txn.prepare(&[n])
    };
    for n in 0..4 {
        drop(prepare(n).expect("prepare"));
    }
    assert_error!(prepare(4), Error::TransactionTooLarge { .. });
    db.take_prepared(&[0])
        .expect("take")
        .commit()
        .expect("commit");
    drop(prepare(4).expect("there is room again"));
}

#[test]
fn a_forgotten_prepare_does_not_hold_the_log_and_is_not_lost_with_it() {
    let (vfs, db, k) = database(tiny());
    drop(prepare(&db, &k, b"old", "old").expect("prepare"));
    let first = segments(&vfs);
    let mut most = 0;
    for round in 0..6 {
        for n in 0..200_u32 {
            k.put(&n.to_be_bytes(), &[round; 60]).expect("put");
        }
        db.flush().expect("flush");
        let with_header = |name: &String| header_of(&vfs, name) != [0; 8];
        most = most.max(segments(&vfs).iter().filter(|s| with_header(s)).count());
        assert!(
            segments(&vfs).iter().all(|s| !first.contains(s)),
            "the segment of the prepare goes"
        );
    }
    assert!(most <= 3, "{most} segments");
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let mut current = left;
    for _ in 0..4 {
        // Repeatedly, as far as recovery gets by itself.
        let (db, k) = reopen(&current, tiny());
        assert_eq!(db.prepared().expect("list"), [b"old"]);
        db.flush().expect("flush");
        k.put(b"n", b"1").expect("put");
        db.flush().expect("flush");
        assert!(segments(&current).len() <= 3, "{:?}", segments(&current));
        current = current.crash(2, CrashOptions::LOSE_UNSYNCED);
    }
    let (db, k) = reopen(&current, tiny());
    db.take_prepared(b"old")
        .expect("take")
        .commit()
        .expect("commit");
    assert_eq!(text(&k, "old").as_deref(), Some("prepared"));
}

#[test]
fn sessions_that_only_recovery_flushes_do_not_keep_the_log_for_a_forgotten_prepare() {
    let (mut vfs, mut db, mut k) = database(tiny());
    drop(prepare(&db, &k, b"old", "old").expect("prepare"));
    for n in 0..8_u8 {
        // The put fills the memtables, and no later write follows.
        k.put(&[n], &[7; 9000]).expect("put");
        vfs = vfs.crash(1, CrashOptions::PROCESS_KILLED);
        (db, k) = reopen(&vfs, tiny());
        wait_until(|| db.stats().expect("stats").flushes > 0);
        wait_until(|| segments(&vfs).len() <= 3);
    }
    assert_eq!(db.prepared().expect("list"), [b"old"]);
}

#[test]
fn what_recovery_flushes_does_not_take_a_prepare_with_its_segment() {
    let (vfs, db, k) = database(tiny());
    drop(prepare(&db, &k, b"old", "old").expect("prepare"));
    // Larger than a segment: the log moves on, and nothing is sealed before the crash.
    k.put(b"large", &[7; 1_200_000]).expect("put");
    let mut current = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    for _ in 0..3 {
        let (db, _k) = reopen(&current, tiny());
        db.flush().expect("flush what was replayed");
        assert_eq!(db.prepared().expect("list"), [b"old"]);
        current = current.crash(2, CrashOptions::LOSE_UNSYNCED);
    }
    let (db, k) = reopen(&current, tiny());
    db.take_prepared(b"old")
        .expect("take")
        .commit()
        .expect("commit");
    assert_eq!(all(&k).len(), 2);
}

/// Returns the first bytes of a segment, or zeros for a file created in advance, which the engine
/// may remove at any time.
fn header_of(vfs: &MemVfs, name: &str) -> [u8; 8] {
    let mut bytes = [0; 8];
    if let Ok(file) = vfs.open_read(&dir().join(name)) {
        file.read_at(&mut bytes, 0).expect("read");
    }
    bytes
}

/// Feature bit of a segment that may hold records of prepared transactions.
const PREPARED: u32 = 0b100;

/// Returns the features that a reader of the newest segment must support.
fn features(vfs: &MemVfs) -> u32 {
    let mut begun = segments(vfs);
    begun.retain(|name| header_of(vfs, name) != [0; 8]);
    let newest = begun.pop().expect("a segment");
    let file = vfs.open_read(&dir().join(newest)).expect("open");
    let mut bytes = [0; 4];
    file.read_at(&mut bytes, 12).expect("read");
    u32::from_le_bytes(bytes)
}

#[test]
fn only_a_log_that_may_hold_prepared_transactions_is_refused_by_older_builds() {
    let (vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    db.flush().expect("flush");
    assert_eq!(features(&vfs) & PREPARED, 0);
    let prepared = prepare(&db, &k, b"x", "b").expect("prepare");
    assert_eq!(features(&vfs) & PREPARED, PREPARED);
    drop(prepared);
    db.close().expect("close");
    let (db, _k) = reopen(&vfs, tiny());
    assert_eq!(features(&vfs) & PREPARED, PREPARED);
    db.take_prepared(b"x")
        .expect("take")
        .commit()
        .expect("commit");
    db.flush().expect("flush");
    db.close().expect("close");
    let (_db, _k) = reopen(&vfs, tiny());
    assert_eq!(features(&vfs) & PREPARED, 0, "a session without any");
}

#[test]
fn a_full_device_leaves_a_prepared_transaction_to_be_decided_later() {
    let (vfs, db, k) = database(tiny());
    let faults = FaultVfs::new(Arc::new(vfs.clone()));
    drop((db, k));
    let db = Database::open_on(Arc::new(faults.clone()), dir(), tiny()).expect("open");
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    faults.arm(stop_at(1, &[IoCall::Allocate], FaultEffect::NoSpace));
    // The first prepare needs a segment with a header that allows it.
    assert_error!(prepare(&db, &k, b"x", "a"), Error::NoSpace { .. });
    assert!(db.prepared().expect("list").is_empty());
    faults.disarm();
    let prepared = prepare(&db, &k, b"x", "a").expect("prepare");
    faults.arm(stop_at(1, &[IoCall::Allocate], FaultEffect::NoSpace));
    assert_error!(
        db.flush().and_then(|()| {
            k.put(b"b", b"1")?;
            db.flush()
        }),
        Error::NoSpace { .. }
    );
    faults.disarm();
    prepared.commit().expect("commit");
    db.flush().expect("flush");
    assert_eq!(all(&k).len(), 2);
}

#[test]
fn a_large_prepared_transaction_leaves_small_commits_their_segments() {
    let (vfs, db, k) = database(Options {
        memory_bytes: 32 << 20,
        idle_after: None,
        ..Options::default()
    });
    let txn = impatient(&db);
    for n in 0..60_u64 {
        txn.put(&k, &n.to_be_bytes(), &[1; 100_000]).expect("put");
    }
    let prepared = txn.prepare(b"large").expect("prepare");
    // Without the files that are only prepared for later: they have no header.
    let begun = || {
        let mut names = segments(&vfs);
        names.retain(|name| contents(&vfs, name)[..8] != [0; 8]);
        names.len()
    };
    let before = begun();
    for n in 0..2_000_u64 {
        k.put(&[b"small", &n.to_be_bytes()[..]].concat(), &[2; 100])
            .expect("put");
    }
    let made = begun() - before;
    assert!(made <= 2, "{made} segments for 200 KB");
    prepared.commit().expect("commit");
    assert_eq!(all(&k).len(), 2_060);
}
