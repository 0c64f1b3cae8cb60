//! Transactions larger than their memory: own reads, savepoints, locks and the commit of writes
//! that are in temporary tables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{
    CursorOptions, Database, Error, Isolation, Keyspace, KeyspaceOptions, LockMode, Options,
    Savepoint, Transaction,
};
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::collect;
use crate::fixture::{Row, all, assert_error, database, dir, open, rows, text, tiny};
use crate::hooks::wait_until;
use crate::two_phase::impatient;
use alluvium_testkit::model::Direction;

/// Transactions of 40 rows of 100 bytes fill the memory.
pub fn small() -> Options {
    Options {
        transaction_bytes: Some(8_000),
        ..tiny()
    }
}

pub fn run_files(vfs: &MemVfs) -> usize {
    let names = vfs.list(dir()).expect("list");
    names.iter().filter(|name| name.ends_with(".run")).count()
}

pub fn key(n: usize) -> Vec<u8> {
    format!("{n:05}").into_bytes()
}

/// Puts rows whose value tells the round.
pub fn put(txn: &Transaction, k: &Keyspace, keys: impl Iterator<Item = usize>, round: u8) {
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
            txn: impatient(&db),
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
    let txn = impatient(&db);
    txn.get_for_update(&k, &key(7)).expect("lock");
    let savepoint = txn.savepoint();
    put(&txn, &k, 0..500, 1);
    assert!(run_files(&vfs) > 1, "the writes are in files");
    assert!(
        db.stats().expect("stats").row_locks < 200,
        "and their locks are not in the lock table"
    );
    let refused = |n| {
        let other = impatient(&db);
        assert_error!(other.put(&k, &key(n), b"x"), Error::LockTimeout { .. });
        let shared = other.lock(&k, &key(n), LockMode::Shared);
        assert_error!(shared, Error::LockTimeout { .. });
    };
    [0, 250, 499].into_iter().for_each(refused);
    txn.put(&k, &key(3), b"again").expect("its own lock");
    txn.rollback_to(savepoint).expect("rollback");
    refused(7);
    let other = impatient(&db);
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
    let txn = impatient(&db);
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
        let txn = impatient(&db);
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
    let old = impatient(&db);
    old.get(&k, b"x").expect("read point");
    let txn = impatient(&db);
    put(&txn, &k, 0..500, 1);
    txn.commit().expect("commit");
    assert!(old.get(&k, &key(3)).expect("get").is_none());
    assert_error!(old.put(&k, &key(3), b"2"), Error::Conflict { .. });
}

#[test]
fn a_cursor_shows_the_writes_before_its_opening_and_not_those_of_a_rollback() {
    let (_vfs, db, k) = database(small());
    let txn = impatient(&db);
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
    let txn = impatient(&db);
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
    let txn = impatient(&db);
    txn.delete_range(&k, b"0", b"1").expect("delete");
    assert!(matches!(fill(&txn), Error::TransactionTooLarge { .. }));
    txn.rollback();
    let txn = db.begin(Isolation::Serializable).expect("begin");
    assert!(matches!(fill(&txn), Error::TransactionTooLarge { .. }));
}

#[test]
fn files_go_with_a_rollback_and_after_a_crash() {
    let (vfs, db, k) = database(small());
    let txn = impatient(&db);
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
        let txn = impatient(&db);
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

/// A spill cannot free writes that an open cursor still shows. Their unused capacity counts as
/// memory as well, and depends on their number.
#[test]
fn a_cursor_over_spilled_writes_leaves_room_for_later_ones() {
    for rows in (10_000..26_000).step_by(1_000) {
        let options = Options {
            memory_bytes: 8 << 20,
            ..Options::default()
        };
        let db = open(&MemVfs::new(), options);
        let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
        let txn = db.begin(Isolation::Snapshot).expect("begin");
        let put = |n: usize| txn.put(&k, &key(n), b"value");
        (0..rows).for_each(|n| put(n).expect("put"));
        let mut cursor = txn.cursor(&k, CursorOptions::default()).expect("cursor");
        assert!(cursor.seek_first().expect("seek"));
        for n in rows..rows + 20_000 {
            put(n).unwrap_or_else(|error| panic!("{rows} rows, then row {n}: {error}"));
        }
        txn.commit().expect("commit");
    }
}

/// After a spill as before it, a statement cannot give back the lock of a row that it has written.
#[test]
fn a_row_written_after_a_spill_stays_locked() {
    let vfs = MemVfs::new();
    let db = open(&vfs, small());
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
    let txn = db.begin(Isolation::ReadCommitted).expect("begin");
    put(&txn, &k, 0..200, 1);
    assert!(run_files(&vfs) > 0);
    put(&txn, &k, 200..201, 1);
    assert!(!txn.unlock(&k, &key(200)).expect("unlock"));
    let other = impatient(&db);
    assert_error!(other.put(&k, &key(200), b"v"), Error::LockTimeout { .. });
}
