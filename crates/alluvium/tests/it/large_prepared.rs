//! Transactions larger than their memory that are prepared: their tables, locks and decisions, over
//! restarts and on a full device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{Database, Error, Keyspace, KeyspaceOptions, PreparedTransaction};

use crate::fixture::{all, assert_error, database, dir, open};
use crate::hooks::{Call, HookVfs, wait_until};
use crate::large_transactions::{key, put, run_files, small};
use crate::two_phase::{impatient, reopen};

/// Prepares 500 rows as `x`, which overwrite 10 of 20 committed ones.
fn prepared_in_tables(db: &Database, k: &Keyspace) -> PreparedTransaction {
    for n in 490..510 {
        k.put(&key(n), b"before").expect("put");
    }
    let txn = impatient(db);
    put(&txn, k, 0..500, 1);
    txn.prepare(b"x").expect("prepare")
}

fn decide(prepared: PreparedTransaction, commits: bool) {
    let decided = match commits {
        true => prepared.commit(),
        false => prepared.rollback(),
    };
    decided.expect("decide");
}

fn assert_locked(db: &Database, k: &Keyspace) {
    let other = impatient(db);
    let refused = other.put(k, &key(7), b"other");
    assert_error!(refused, Error::LockTimeout { .. });
}

fn assert_intact(db: &Database) {
    let report = db.verify().expect("verify");
    assert!(report.is_clean(), "{report:?}");
}

fn take(db: &Database) -> PreparedTransaction {
    assert_eq!(db.prepared().expect("list"), [b"x"]);
    db.take_prepared(b"x").expect("take")
}

#[test]
fn a_prepared_large_transaction_is_committed_or_rolled_back_by_its_handle() {
    for commits in [true, false] {
        let (vfs, db, k) = database(small());
        let mut prepared = prepared_in_tables(&db, &k);
        // Its rows are in tables.
        wait_until(|| run_files(&vfs) == 0);
        assert_eq!(all(&k).len(), 20);
        assert_error!(db.drop_keyspace(&k), Error::KeyspaceInUse { .. });
        // A row in its tables is locked, another one is not.
        assert_locked(&db, &k);
        let other = impatient(&db);
        other.put(&k, &key(505), b"other").expect("put");
        other.commit().expect("commit");
        if commits {
            prepared.commit_ordered().expect("order");
            prepared
                .commit_ordered()
                .expect("the second call does nothing");
            prepared.commit().expect("commit");
            assert_eq!(all(&k).len(), 510);
            let found = k.get(&key(495)).expect("get");
            assert_eq!(found.as_deref(), Some(&[1; 100][..]));
        } else {
            prepared.rollback().expect("rollback");
            assert_eq!(all(&k).len(), 20);
            assert_intact(&db);
        }
        k.put(&key(7), b"free").expect("put");
        assert_eq!(db.prepared().expect("list"), Vec::<Vec<u8>>::new());
        let before = all(&k);
        db.close().expect("close");
        drop((k, db));
        let (again, k) = reopen(&vfs, small());
        assert_eq!(all(&k), before);
        assert_eq!(again.prepared().expect("list"), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn a_prepared_large_transaction_and_its_locks_outlast_a_power_loss() {
    for commits in [true, false] {
        let (vfs, db, k) = database(small());
        drop(prepared_in_tables(&db, &k));
        let left = vfs.crash(1, CrashOptions::POWER_LOSS);
        // Twice: the first open writes its manifest anew.
        drop(open(&left, small()));
        let (again, k) = reopen(&left, small());
        assert_eq!(all(&k).len(), 20, "earlier commits are as durable");
        assert_locked(&again, &k);
        assert_intact(&again);
        decide(take(&again), commits);
        k.put(&key(7), b"free").expect("put");
        again.flush().expect("flush");
        let rows = all(&k);
        assert_eq!(rows.len(), if commits { 510 } else { 21 });
        let left = left.crash(2, CrashOptions::POWER_LOSS);
        let (again, k) = reopen(&left, small());
        assert_eq!(all(&k), rows);
        assert_eq!(again.prepared().expect("list"), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn an_id_that_the_log_has_decided_before_is_prepared_in_tables_after_a_restart() {
    let (vfs, db, k) = database(small());
    let before = impatient(&db);
    before.put(&k, b"small", b"1").expect("put");
    let prepared = before.prepare(b"x").expect("prepare");
    prepared.rollback().expect("roll back");
    // No row is in a memtable, so no flush releases the log's records of that transaction.
    let txn = impatient(&db);
    put(&txn, &k, 0..500, 1);
    drop(txn.prepare(b"x").expect("prepare"));
    let left = vfs.crash(1, CrashOptions::POWER_LOSS);
    let again = open(&left, small());
    take(&again).commit().expect("commit");
    let k = again.existing_keyspace("k").expect("open").expect("found");
    assert_eq!(all(&k).len(), 500);
}

#[test]
fn a_checkpoint_has_a_prepared_large_transaction_of_its_own() {
    let (vfs, db, k) = database(small());
    let prepared = prepared_in_tables(&db, &k);
    let target = dir().with_file_name("copy");
    db.checkpoint(&target).expect("checkpoint");
    prepared.rollback().expect("rollback");
    let copy = Database::open_on(Arc::new(vfs.clone()), &target, small()).expect("open");
    take(&copy).commit().expect("commit");
    let k_copy = copy.existing_keyspace("k").expect("open").expect("found");
    assert_eq!((all(&k_copy).len(), all(&k).len()), (510, 20));
}

#[test]
fn a_prepare_in_tables_that_fails_leaves_nothing_and_frees_its_rows() {
    let calls = [IoCall::Create, IoCall::Write, IoCall::Sync];
    for call in calls {
        let memory = MemVfs::new();
        let vfs = Arc::new(FaultVfs::new(Arc::new(memory.clone())));
        let db = Database::open_on(Arc::clone(&vfs) as Arc<dyn Vfs>, dir(), small()).expect("open");
        let k = db
            .keyspace("k", KeyspaceOptions::default())
            .expect("keyspace");
        let txn = impatient(&db);
        put(&txn, &k, 0..500, 1);
        vfs.arm(Fault {
            calls: vec![call],
            nth: 1,
            sticky: true,
            effect: FaultEffect::NoSpace,
        });
        let failed = txn.prepare(b"x").map(drop);
        vfs.disarm();
        assert!(failed.is_err(), "{call:?}");
        assert!(db.prepared().expect("list").is_empty());
        if matches!(failed, Err(Error::NoSpace { .. })) {
            k.put(&key(7), b"free").expect("put");
            let txn = impatient(&db);
            put(&txn, &k, 10..500, 1);
            txn.prepare(b"x")
                .expect("prepare")
                .commit()
                .expect("commit");
            assert_eq!(all(&k).len(), 491);
        }
        drop(k);
        // Poisoned after a failed sync.
        let _ = db.close();
        assert_eq!(run_files(&memory), 0, "{call:?}");
    }
}

#[test]
fn a_row_that_others_waited_for_stays_locked_after_a_rollback_and_a_prepare() {
    let (_vfs, db, k) = database(small());
    let is_locked = |n: usize| {
        let other = impatient(&db);
        matches!(
            other.put(&k, &key(n), b"other"),
            Err(Error::LockTimeout { .. })
        )
    };
    let txn = impatient(&db);
    let savepoint = txn.savepoint();
    put(&txn, &k, 0..500, 1);
    // The row is in a layer: the request enters this transaction as its owner.
    assert!(is_locked(7));
    txn.rollback_to(savepoint).expect("rollback");
    put(&txn, &k, 7..8, 2);
    let prepared = txn.prepare(b"x").expect("prepare");
    assert!(is_locked(7));
    prepared.commit().expect("commit");
    assert!(!is_locked(7));
}

#[test]
fn a_decision_finds_room_for_its_edit_on_a_full_device() {
    for commits in [true, false] {
        // Fails one allocation for the manifest.
        let is_full = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&is_full);
        let vfs = HookVfs::new(move |call, path| {
            let manifest = path.to_string_lossy().ends_with(".manifest");
            match call == Call::Allocate && manifest && own.swap(false, Ordering::SeqCst) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        });
        let db = Database::open_on(Arc::new(vfs.clone()), dir(), small()).expect("open");
        vfs.set(true);
        let k = db
            .keyspace("k", KeyspaceOptions::default())
            .expect("keyspace");
        let txn = impatient(&db);
        put(&txn, &k, 0..500, 1);
        let prepared = txn.prepare(b"x").expect("prepare");
        // Until the next edit has to make the manifest longer.
        is_full.store(true, Ordering::SeqCst);
        let full = (0..).find_map(|n| {
            let options = KeyspaceOptions {
                block_bytes: 1024 << (n % 2),
                ..KeyspaceOptions::default()
            };
            k.set_options(options).err()
        });
        assert!(matches!(full, Some(Error::NoSpace { .. })), "{full:?}");
        is_full.store(true, Ordering::SeqCst);
        decide(prepared, commits);
        assert!(!is_full.load(Ordering::SeqCst), "the edit was the next one");
        assert_eq!(all(&k).len(), if commits { 500 } else { 0 });
        assert!(db.prepared().expect("list").is_empty());
        k.put(&key(7), b"free").expect("put");
    }
}
