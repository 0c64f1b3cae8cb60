//! Transactions larger than their memory: own reads, savepoints, locks and the commit of writes
//! that are in temporary tables.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{
    CursorOptions, Database, Error, Isolation, Keyspace, KeyspaceOptions, LockMode, Options,
    Savepoint, Transaction, TransactionOptions,
};
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::collect;
use crate::fixture::{Row, all, assert_error, database, dir, open, rows, text, tiny};
use crate::hooks::{Call, HookVfs, wait_until};
use alluvium_testkit::model::Direction;

/// Transactions of 40 rows of 100 bytes fill the memory.
fn small() -> Options {
    Options {
        transaction_bytes: Some(8_000),
        ..tiny()
    }
}

fn begin(db: &Database) -> Transaction {
    let options = TransactionOptions {
        lock_timeout: Some(Duration::ZERO),
        ..TransactionOptions::default()
    };
    db.begin_with(options).expect("begin")
}

fn run_files(vfs: &MemVfs) -> usize {
    let names = vfs.list(dir()).expect("list");
    names.iter().filter(|name| name.ends_with(".run")).count()
}

fn key(n: usize) -> Vec<u8> {
    format!("{n:05}").into_bytes()
}

/// Puts rows whose value tells the round.
fn put(txn: &Transaction, k: &Keyspace, keys: impl Iterator<Item = usize>, round: u8) {
    for n in keys {
        txn.put(k, &key(n), &[round; 100]).expect("put");
    }
}

/// Content of two keyspaces.
type Model = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

/// Transaction and its expected own reads.
struct Checked<'a> {
    txn: Transaction,
    keyspaces: [&'a Keyspace; 2],
    model: Model,
    savepoints: Vec<(Savepoint, Model)>,
}

impl Checked<'_> {
    fn step(&mut self, rng: &mut Rng, keys: usize) {
        let at = rng.below(2);
        let (k, key) = (self.keyspaces[at], key(rng.below(keys)));
        match rng.weighted(&[60, 15, 4, 3, 3, 15]) {
            0 => {
                let len = rng.range(0..200);
                let value = rng.bytes(len);
                self.txn.put(k, &key, &value).expect("put");
                self.model[at].insert(key, value);
            }
            1 => {
                self.txn.delete(k, &key).expect("delete");
                self.model[at].remove(&key);
            }
            2 => {
                let savepoint = self.txn.savepoint();
                self.savepoints.push((savepoint, self.model.clone()));
            }
            3 if !self.savepoints.is_empty() => {
                let place = rng.below(self.savepoints.len());
                self.savepoints.truncate(place + 1);
                let (savepoint, model) = &self.savepoints[place];
                self.txn.rollback_to(*savepoint).expect("rollback");
                self.model.clone_from(model);
            }
            4 if !self.savepoints.is_empty() => {
                let place = rng.below(self.savepoints.len());
                self.txn.release(self.savepoints[place].0);
                self.savepoints.truncate(place);
            }
            _ => {
                let found = self.txn.get(k, &key).expect("get");
                assert_eq!(found.as_deref(), self.model[at].get(&key).map(|v| &v[..]));
                if found.is_none() && rng.percent(50) {
                    self.txn.insert(k, &key, b"new").expect("insert");
                    self.model[at].insert(key, b"new".to_vec());
                }
            }
        }
    }

    fn check(&self) {
        for (k, model) in self.keyspaces.iter().zip(&self.model) {
            let expected: Vec<Row> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            let cursor = || {
                self.txn
                    .cursor(k, CursorOptions::default())
                    .expect("cursor")
            };
            assert_eq!(rows(cursor()), expected);
            let mut backward = collect(cursor(), Direction::Backward, usize::MAX);
            backward.reverse();
            assert_eq!(backward, expected);
        }
    }
}

#[test]
fn reads_savepoints_and_the_commit_agree_with_a_model() {
    Seeded::run("large_transactions_agree_with_a_model", 12, |rng| {
        let (vfs, db, k) = database(small());
        let other = db
            .keyspace("other", KeyspaceOptions::default())
            .expect("keyspace");
        let mut model = Model::default();
        for n in 0..200 {
            let (at, value) = (n % 2, rng.bytes(30));
            [&k, &other][at].put(&key(n), &value).expect("put");
            model[at].insert(key(n), value);
        }
        let keys = *rng.pick(&[50, 600, 5_000]);
        let mut checked = Checked {
            txn: begin(&db),
            keyspaces: [&k, &other],
            model,
            savepoints: Vec::new(),
        };
        let steps = rng.range(200..4_000);
        for n in 0..steps {
            checked.step(rng, keys);
            if n % 500 == 499 {
                checked.check();
            }
        }
        checked.check();
        let Checked { txn, model, .. } = checked;
        txn.commit().expect("commit");
        let same = |k: &Keyspace, model: &BTreeMap<Vec<u8>, Vec<u8>>| {
            let found: BTreeMap<_, _> = all(k).into_iter().collect();
            assert_eq!(found, *model);
        };
        same(&k, &model[0]);
        same(&other, &model[1]);
        db.close().expect("close");
        assert_eq!(run_files(&vfs), 0, "the commit removes all files");
        let db = open(&vfs.crash(1, CrashOptions::POWER_LOSS), small());
        for (name, model) in ["k", "other"].iter().zip(&model) {
            let k = db
                .existing_keyspace(name)
                .expect("keyspace")
                .expect("found");
            same(&k, model);
        }
        assert_eq!(db.verify().expect("verify").damage_count, 0);
    });
}

#[test]
fn rows_in_files_are_locked_until_the_end_and_free_after_a_rollback_to_a_savepoint() {
    let (vfs, db, k) = database(small());
    let txn = begin(&db);
    txn.get_for_update(&k, &key(7)).expect("lock");
    let savepoint = txn.savepoint();
    put(&txn, &k, 0..500, 1);
    assert!(run_files(&vfs) > 1, "the writes are in files");
    assert!(
        db.stats().expect("stats").row_locks < 200,
        "and their locks are not in the lock table"
    );
    let refused = |n| {
        let other = begin(&db);
        assert_error!(other.put(&k, &key(n), b"x"), Error::LockTimeout { .. });
        let shared = other.lock(&k, &key(n), LockMode::Shared);
        assert_error!(shared, Error::LockTimeout { .. });
    };
    [0, 250, 499].into_iter().for_each(refused);
    txn.put(&k, &key(3), b"again").expect("its own lock");
    txn.rollback_to(savepoint).expect("rollback");
    refused(7);
    let other = begin(&db);
    for n in (8..500).filter(|n| *n != 250) {
        other.put(&k, &key(n), b"y").expect("free");
    }
    other.commit().expect("commit");
    txn.commit().expect("commit");
    assert_eq!(all(&k).len(), 491);
    assert_eq!(db.stats().expect("stats").row_locks, 0);
}

#[test]
fn an_insert_that_is_deleted_after_a_savepoint_stays_deleted() {
    let (_vfs, db, k) = database(small());
    let txn = begin(&db);
    txn.insert(&k, b"brief", b"1").expect("insert");
    let savepoint = txn.savepoint();
    txn.delete(&k, b"brief").expect("delete");
    put(&txn, &k, 0..500, 1);
    assert!(txn.get(&k, b"brief").expect("get").is_none());
    txn.rollback_to(savepoint).expect("rollback");
    assert!(txn.get(&k, b"brief").expect("get").is_some());
    txn.delete(&k, b"brief").expect("delete");
    put(&txn, &k, 0..500, 2);
    txn.commit().expect("commit");
    assert_eq!(all(&k).len(), 500);
}

#[test]
fn a_writer_waits_for_a_row_in_files_and_gets_it_at_the_end() {
    for commits in [true, false] {
        let (_vfs, db, k) = database(small());
        let txn = begin(&db);
        put(&txn, &k, 0..500, 1);
        thread::scope(|scope| {
            let waiters: Vec<_> = [100, 100, 200]
                .into_iter()
                .enumerate()
                .map(|(client, n)| {
                    let (db, k) = (&db, &k);
                    scope.spawn(move || match client {
                        0 => k.put(&key(n), b"batch"),
                        _ => {
                            let waiter = db.begin(Isolation::ReadCommitted)?;
                            let found = waiter.get_for_update(k, &key(n))?;
                            assert!(commits || client == 1 || found.is_none());
                            assert!(!commits || found.is_some());
                            waiter.commit()
                        }
                    })
                })
                .collect();
            wait_until(|| db.lock_waits().expect("waits").len() == 3);
            if commits {
                txn.commit().expect("commit");
            } else {
                drop(txn);
            }
            for waiter in waiters {
                waiter.join().expect("no panic").expect("granted");
            }
        });
        assert_eq!(text(&k, "00100").as_deref(), Some("batch"));
        assert_eq!(db.stats().expect("stats").row_locks, 0);
    }
}

#[test]
fn a_deadlock_with_rows_in_files_is_found() {
    let (_vfs, db, k) = database(small());
    k.put(b"hot", b"1").expect("put");
    let txn = db.begin(Isolation::ReadCommitted).expect("begin");
    put(&txn, &k, 0..500, 1);
    let other = db.begin(Isolation::ReadCommitted).expect("begin");
    other.put(&k, b"hot", b"2").expect("put");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.put(&k, &key(9), b"3"));
        wait_until(|| db.lock_waits().expect("waits").len() == 1);
        assert_error!(txn.put(&k, b"hot", b"4"), Error::Deadlock { .. });
        drop(txn);
        waiting.join().expect("no panic").expect("granted");
    });
}

#[test]
fn another_transaction_with_an_older_snapshot_gets_a_conflict() {
    let (_vfs, db, k) = database(small());
    let old = begin(&db);
    old.get(&k, b"x").expect("read point");
    let txn = begin(&db);
    put(&txn, &k, 0..500, 1);
    txn.commit().expect("commit");
    assert!(old.get(&k, &key(3)).expect("get").is_none());
    assert_error!(old.put(&k, &key(3), b"2"), Error::Conflict { .. });
}

#[test]
fn a_cursor_shows_the_writes_before_its_opening_and_not_those_of_a_rollback() {
    let (_vfs, db, k) = database(small());
    let txn = begin(&db);
    put(&txn, &k, 0..300, 1);
    let mut early = txn.cursor(&k, CursorOptions::default()).expect("cursor");
    assert!(early.seek_first().expect("seek"));
    put(&txn, &k, 150..450, 2);
    let mut seen = vec![early.value()[0]];
    while early.next().expect("next") {
        seen.push(early.value()[0]);
    }
    assert_eq!(seen, [1; 300]);
    let savepoint = txn.savepoint();
    put(&txn, &k, 0..2_000, 3);
    let mut late = txn.cursor(&k, CursorOptions::default()).expect("cursor");
    assert!(late.seek_first().expect("seek"));
    txn.rollback_to(savepoint).expect("rollback");
    let mut seen = Vec::new();
    while late.next().expect("next") {
        seen.push(late.value()[0]);
    }
    assert_eq!(seen.len(), 449);
    assert!(seen.iter().all(|round| *round < 3), "rolled back");
}

#[test]
fn what_a_large_transaction_cannot_do_is_refused() {
    let (_vfs, db, k) = database(small());
    let txn = begin(&db);
    put(&txn, &k, 0..500, 1);
    let refused = txn.delete_range(&k, b"0", b"1");
    assert_error!(refused, Error::InvalidArgument(_));
    let refused = txn.delete_prefix(&k, b"0");
    assert_error!(refused, Error::InvalidArgument(_));
    drop(txn);
    assert_eq!(all(&k), [], "rolled back");

    let fill = |txn: &Transaction| {
        let mut puts = (0..500).map(|n| txn.put(&k, &key(n), &[1; 100]));
        puts.find_map(Result::err).expect("an error")
    };
    let txn = begin(&db);
    txn.delete_range(&k, b"0", b"1").expect("delete");
    assert!(matches!(fill(&txn), Error::TransactionTooLarge { .. }));
    txn.rollback();
    let txn = db.begin(Isolation::Serializable).expect("begin");
    assert!(matches!(fill(&txn), Error::TransactionTooLarge { .. }));
}

#[test]
fn files_go_with_a_rollback_and_after_a_crash() {
    let (vfs, db, k) = database(small());
    let txn = begin(&db);
    put(&txn, &k, 0..500, 1);
    assert!(run_files(&vfs) > 0);
    let left = vfs.crash(1, CrashOptions::PROCESS_KILLED);
    assert!(run_files(&left) > 0);
    let again = open(&left, small());
    assert_eq!(run_files(&left), 0);
    let k_again = again.existing_keyspace("k").expect("open").expect("found");
    assert_eq!(all(&k_again), []);
    drop(txn);
    db.close().expect("close");
    assert_eq!(run_files(&vfs), 0);
}

#[test]
fn a_failure_of_the_files_leaves_the_earlier_writes() {
    for calls in [IoCall::Create, IoCall::Write] {
        let vfs = Arc::new(FaultVfs::new(Arc::new(MemVfs::new())));
        let db = Database::open_on(Arc::clone(&vfs) as Arc<dyn Vfs>, dir(), small()).expect("open");
        let k = db
            .keyspace("k", KeyspaceOptions::default())
            .expect("keyspace");
        let txn = begin(&db);
        put(&txn, &k, 0..30, 1);
        vfs.arm(Fault {
            calls: vec![calls],
            nth: 1,
            sticky: true,
            effect: FaultEffect::NoSpace,
        });
        let failed = (30..100).find_map(|n| txn.put(&k, &key(n), &[1; 100]).err());
        assert!(matches!(failed, Some(Error::NoSpace { .. })), "{failed:?}");
        vfs.disarm();
        put(&txn, &k, 30..500, 1);
        txn.commit().expect("commit");
        assert_eq!(all(&k).len(), 500);
    }
}

/// Prepares 500 rows as `x`, which overwrite 10 of 20 committed ones.
fn prepared_in_tables(db: &Database, k: &Keyspace) -> alluvium::PreparedTransaction {
    for n in 490..510 {
        k.put(&key(n), b"before").expect("put");
    }
    let txn = begin(db);
    put(&txn, k, 0..500, 1);
    txn.prepare(b"x").expect("prepare")
}

fn assert_intact(db: &Database) {
    let report = db.verify().expect("verify");
    assert!(report.is_clean(), "{report:?}");
}

fn take(db: &Database) -> alluvium::PreparedTransaction {
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
        let other = begin(&db);
        let refused = other.put(&k, &key(7), b"other");
        assert_error!(refused, Error::LockTimeout { .. });
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
        let again = open(&vfs, small());
        let k = again.existing_keyspace("k").expect("open").expect("found");
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
        let again = open(&left, small());
        let k = again.existing_keyspace("k").expect("open").expect("found");
        assert_eq!(all(&k).len(), 20, "earlier commits are as durable");
        let other = begin(&again);
        let refused = other.put(&k, &key(7), b"other");
        assert_error!(refused, Error::LockTimeout { .. });
        drop(other);
        assert_intact(&again);
        let prepared = take(&again);
        if commits {
            prepared.commit().expect("commit");
        } else {
            prepared.rollback().expect("rollback");
        }
        k.put(&key(7), b"free").expect("put");
        again.flush().expect("flush");
        let rows = all(&k);
        assert_eq!(rows.len(), if commits { 510 } else { 21 });
        let left = left.crash(2, CrashOptions::POWER_LOSS);
        let again = open(&left, small());
        let k = again.existing_keyspace("k").expect("open").expect("found");
        assert_eq!(all(&k), rows);
        assert_eq!(again.prepared().expect("list"), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn an_id_that_the_log_has_decided_before_is_prepared_in_tables_after_a_restart() {
    let (vfs, db, k) = database(small());
    let before = begin(&db);
    before.put(&k, b"small", b"1").expect("put");
    let prepared = before.prepare(b"x").expect("prepare");
    prepared.rollback().expect("roll back");
    // No row is in a memtable, so no flush releases the log's records of that transaction.
    let txn = begin(&db);
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
        let txn = begin(&db);
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
            let txn = begin(&db);
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
        let other = begin(&db);
        matches!(
            other.put(&k, &key(n), b"other"),
            Err(Error::LockTimeout { .. })
        )
    };
    let txn = begin(&db);
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
        let txn = begin(&db);
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
        let decided = match commits {
            true => prepared.commit(),
            false => prepared.rollback(),
        };
        decided.expect("decide");
        assert!(!is_full.load(Ordering::SeqCst), "the edit was the next one");
        assert_eq!(all(&k).len(), if commits { 500 } else { 0 });
        assert!(db.prepared().expect("list").is_empty());
        k.put(&key(7), b"free").expect("put");
    }
}
