//! Prepared transactions: neither lost nor half there, whatever fails between the two phases.

use std::sync::Arc;
use std::time::Duration;

use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{
    CursorOptions, Database, Durability, Error, Isolation, Keyspace, KeyspaceOptions, Options,
    PreparedTransaction, Result, Transaction, TransactionOptions,
};
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::chain;
use crate::fixture::{all, assert_error, database, dir, open, rows, text, tiny};
use crate::script;

fn impatient(db: &Database) -> Transaction {
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

fn reopen(vfs: &MemVfs, options: Options) -> (Database, Keyspace) {
    let db = open(vfs, options);
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    (db, k)
}

fn segments(vfs: &MemVfs) -> Vec<String> {
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(".wal"));
    names.sort();
    names
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
        most = most.max(segments(&vfs).len());
        assert!(
            segments(&vfs).iter().all(|s| !first.contains(s)),
            "the segment of the prepare goes"
        );
    }
    assert!(most <= 3, "{most} segments");
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let mut current = left;
    for _ in 0..4 {
        // Again and again, as far as recovery gets by itself.
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

/// The features that a reader of the newest segment must know.
fn features(vfs: &MemVfs) -> u32 {
    let newest = segments(vfs).pop().expect("a segment");
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
    assert_eq!(features(&vfs), 0b011);
    let prepared = prepare(&db, &k, b"x", "b").expect("prepare");
    assert_eq!(features(&vfs), 0b111);
    drop(prepared);
    db.close().expect("close");
    let (db, _k) = reopen(&vfs, tiny());
    assert_eq!(features(&vfs), 0b111);
    db.take_prepared(b"x")
        .expect("take")
        .commit()
        .expect("commit");
    db.flush().expect("flush");
    db.close().expect("close");
    let (_db, _k) = reopen(&vfs, tiny());
    assert_eq!(features(&vfs), 0b011, "a session without any");
}

/// How far a transaction of the script has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Unknown,
    /// The call has failed: it may or may not have happened.
    PrepareTried,
    Prepared,
    CommitTried,
    /// Acknowledged, not yet known durable.
    Committed,
    RollbackTried,
    RolledBack,
    /// And durable.
    CommittedForGood,
    RolledBackForGood,
}

/// One step of the script. The number is the transaction's; its id is its number modulo `IDS`.
#[derive(Debug, Clone, Copy)]
enum Step {
    Put(u8),
    Flush,
    Reopen,
    Prepare(usize),
    Commit(usize),
    Rollback(usize),
}

const TXNS: usize = 6;
/// The last transaction has the id of the first one.
const IDS: usize = 5;

const STEPS: [Step; 32] = {
    use Step::*;
    [
        Put(1),
        Prepare(0),
        Put(2),
        Prepare(1),
        Flush,
        Put(3),
        Commit(0),
        Put(4),
        Prepare(2),
        Flush,
        Rollback(1),
        Put(5),
        Put(6),
        Reopen,
        Put(7),
        Flush,
        Commit(2),
        Prepare(3),
        Flush,
        Prepare(4),
        Put(8),
        Reopen,
        Rollback(3),
        Flush,
        Prepare(5),
        Put(9),
        Flush,
        Put(10),
        Commit(5),
        Reopen,
        Put(11),
        Commit(4),
    ]
};

struct Played {
    db: Option<Database>,
    fates: [Fate; TXNS],
}

fn xid(txn: usize) -> Vec<u8> {
    format!("transaction {}", txn % IDS).into_bytes()
}

fn both(db: &Database) -> Result<[Keyspace; 2]> {
    let keyspace = |name| db.keyspace(name, KeyspaceOptions::default());
    Ok([keyspace("k")?, keyspace("l")?])
}

impl Played {
    fn run(faults: &FaultVfs, options: &Options) -> Played {
        let mut played = Played {
            db: None,
            fates: [Fate::Unknown; TXNS],
        };
        let steps = std::iter::once(&Step::Reopen).chain(&STEPS);
        for step in steps {
            if played.step(faults, options, *step).is_err() {
                break;
            }
        }
        played
    }

    fn step(&mut self, faults: &FaultVfs, options: &Options, step: Step) -> Result<()> {
        if let Step::Reopen = step {
            if let Some(db) = self.db.take() {
                db.close()?;
                self.all_is_durable();
            }
            let opened = Database::open_on(Arc::new(faults.clone()), dir(), options.clone())?;
            both(&opened)?;
            self.db = Some(opened);
            return Ok(());
        }
        let db = self.db.clone().expect("open");
        let synced = options.durability == Durability::Sync;
        match step {
            Step::Put(n) => {
                for k in both(&db)? {
                    k.put(b"n", &[n; 90])?;
                }
                if synced {
                    self.all_is_durable();
                }
            }
            Step::Flush => {
                db.flush()?;
                self.all_is_durable();
            }
            Step::Prepare(n) => {
                self.fates[n] = Fate::PrepareTried;
                let txn = db.begin(Isolation::Snapshot)?;
                for k in both(&db)? {
                    txn.insert(&k, &[b't', n as u8], &[n as u8; 90])?;
                }
                drop(txn.prepare(&xid(n))?);
                self.all_is_durable();
                self.fates[n] = Fate::Prepared;
            }
            Step::Commit(n) => {
                self.fates[n] = Fate::CommitTried;
                db.take_prepared(&xid(n))?.commit()?;
                self.fates[n] = Fate::Committed;
                if synced {
                    self.all_is_durable();
                }
            }
            Step::Rollback(n) => {
                self.fates[n] = Fate::RollbackTried;
                db.take_prepared(&xid(n))?.rollback()?;
                self.fates[n] = Fate::RolledBack;
            }
            Step::Reopen => unreachable!(),
        }
        Ok(())
    }

    /// The log was synced: what was acknowledged stays so.
    fn all_is_durable(&mut self) {
        for fate in &mut self.fates {
            *fate = match *fate {
                Fate::Committed => Fate::CommittedForGood,
                Fate::RolledBack => Fate::RolledBackForGood,
                other => other,
            };
        }
    }

    /// Opens what is left and checks every transaction; decides on those that are listed, and checks again.
    fn check(&self, left: &MemVfs, options: &Options, context: &str) {
        let opened = Database::open_on(Arc::new(left.clone()), dir(), options.clone());
        let db = opened.unwrap_or_else(|e| panic!("{context}: cannot open: {}", chain(&e)));
        let Some(states) = self.check_fates(&db, context) else {
            return;
        };
        let [k, l] = both(&db).expect("keyspaces");
        let decides = states.iter().any(|(_, listed)| *listed);
        for (n, (visible, listed)) in states.into_iter().enumerate() {
            if !listed {
                continue;
            }
            let other = impatient(&db);
            let refused = other.put(&l, &[b't', n as u8], b"other");
            assert!(
                matches!(refused, Err(Error::LockTimeout { .. })),
                "{context}: {n} is not locked: {refused:?}"
            );
            let taken = db.take_prepared(&xid(n)).expect("take");
            assert!(!visible);
            let commit = n % 2 == 0;
            let decided = if commit {
                taken.commit()
            } else {
                taken.rollback()
            };
            decided.unwrap_or_else(|e| panic!("{context}: cannot decide on {n}: {}", chain(&e)));
            for k in [&k, &l] {
                let found = k.get(&[b't', n as u8]).expect("get").is_some();
                assert_eq!(found, commit, "{context}: {n} after the decision");
            }
        }
        assert!(db.prepared().expect("list").is_empty(), "{context}");
        if !decides {
            return;
        }
        let before = [all(&k), all(&l)];
        db.close()
            .unwrap_or_else(|e| panic!("{context}: cannot close: {}", chain(&e)));
        let db = open(left, options.clone());
        assert!(db.prepared().expect("list").is_empty(), "{context}");
        let after = both(&db).expect("keyspaces").map(|k| all(&k));
        assert_eq!(after, before, "{context}: reopened");
    }

    /// What is visible and listed of each transaction; `None` where the keyspaces were not yet made.
    fn check_fates(&self, db: &Database, context: &str) -> Option<Vec<(bool, bool)>> {
        let mut keyspaces = Vec::new();
        for name in ["k", "l"] {
            keyspaces.push(db.existing_keyspace(name).expect("look")?);
        }
        let listed = db.prepared().expect("list");
        let mut states = Vec::new();
        for (n, &fate) in self.fates.iter().enumerate() {
            let seen = keyspaces.iter().map(|k| {
                let cursor = k.cursor(CursorOptions::prefix(&[b't', n as u8]));
                rows(cursor.expect("cursor")).len() == 1
            });
            let seen: Vec<bool> = seen.collect();
            assert_eq!(seen[0], seen[1], "{context}: half of {n}, {fate:?}");
            // Transactions 0 and 5 have one id: the list means the later one once that was tried.
            let mine = match n {
                0 => self.fates[5] == Fate::Unknown,
                5 => self.fates[5] != Fate::Unknown,
                _ => true,
            };
            let state = (seen[0], mine && listed.contains(&xid(n)));
            let allowed: &[(bool, bool)] = match fate {
                Fate::Unknown => &[(false, false)],
                Fate::PrepareTried | Fate::RollbackTried | Fate::RolledBack => {
                    &[(false, false), (false, true)]
                }
                Fate::Prepared => &[(false, true)],
                Fate::CommitTried | Fate::Committed => &[(true, false), (false, true)],
                Fate::CommittedForGood => &[(true, false)],
                Fate::RolledBackForGood => &[(false, false)],
            };
            assert!(
                allowed.contains(&state),
                "{context}: {n} is {fate:?}, visible and listed: {state:?}"
            );
            states.push(state);
        }
        Some(states)
    }
}

/// Everything that changes files, and nothing that only reads.
const CHANGES: [IoCall; 7] = [
    IoCall::Create,
    IoCall::Write,
    IoCall::Sync,
    IoCall::SyncDir,
    IoCall::Allocate,
    IoCall::Rename,
    IoCall::Remove,
];

fn stop_at(nth: u64, calls: &[IoCall], effect: FaultEffect) -> Fault {
    Fault {
        calls: calls.to_vec(),
        nth,
        sticky: true,
        effect,
    }
}

/// Stops at calls a few apart, beginning anywhere: the runs together meet all of them.
fn stop_everywhere(durability: Durability, rng: &mut Rng) {
    let options = script::options(durability);
    let mut nth = rng.range(1..4) as u64;
    loop {
        let vfs = MemVfs::new();
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        let effect = *rng.pick(&[FaultEffect::Error, FaultEffect::ShortWrite]);
        faults.arm(stop_at(nth, &CHANGES, effect));
        let played = Played::run(&faults, &options);
        let loss = *rng.pick(&[
            CrashOptions::LOSE_UNSYNCED,
            CrashOptions::POWER_LOSS,
            CrashOptions::PROCESS_KILLED,
        ]);
        let seed = rng.next_u64();
        let context = format!("{durability:?}, stopped at call {nth}, {loss:?} {seed}");
        played.check(&vfs.crash(seed, loss), &options, &context);
        if !faults.tripped() {
            let last = [Fate::Committed, Fate::CommittedForGood];
            assert!(nth > 60 && last.contains(&played.fates[4]), "{nth}");
            return;
        }
        nth += rng.range(1..4) as u64;
    }
}

#[test]
fn wherever_the_device_stops_a_prepared_transaction_is_whole_or_listed_under_sync() {
    Seeded::run("wherever_the_device_stops (sync)", 1, |rng| {
        stop_everywhere(Durability::Sync, rng);
    });
}

#[test]
fn wherever_the_device_stops_a_prepared_transaction_is_whole_or_listed_under_buffered() {
    Seeded::run("wherever_the_device_stops (buffered)", 1, |rng| {
        stop_everywhere(Durability::Buffered, rng);
    });
}

#[test]
fn power_loss_during_recovery_loses_no_prepared_transaction() {
    Seeded::run("power_loss_during_recovery (prepared)", 1, |rng| {
        let options = script::options(Durability::Sync);
        // In the last third of the script there are tables, carried prepares and resolved ones.
        let vfs = MemVfs::new();
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        let nth = rng.range(60..130) as u64;
        faults.arm(stop_at(nth, &CHANGES, FaultEffect::Error));
        let played = Played::run(&faults, &options);
        for nth in (1..400).step_by(2) {
            let first = vfs.crash(rng.next_u64(), CrashOptions::POWER_LOSS);
            let again = FaultVfs::new(Arc::new(first.clone()));
            again.arm(stop_at(nth, &[], FaultEffect::Error));
            let opened = Database::open_on(Arc::new(again.clone()), dir(), options.clone());
            let flushed = opened.and_then(|db| db.flush().map(|()| db));
            let seed = rng.next_u64();
            let second = first.crash(seed, CrashOptions::POWER_LOSS);
            let context = format!("recovery stopped at call {nth}, seed {seed}");
            played.check(&second, &options, &context);
            drop(flushed);
            if !again.tripped() {
                return;
            }
        }
    });
}

#[test]
fn a_full_device_leaves_a_prepared_transaction_to_be_decided_later() {
    let (vfs, db, k) = database(tiny());
    let faults = FaultVfs::new(Arc::new(vfs.clone()));
    drop((db, k));
    let db = Database::open_on(Arc::new(faults.clone()), dir(), tiny()).expect("open");
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    faults.arm(stop_at(1, &[IoCall::Allocate], FaultEffect::NoSpace));
    // The first prepare needs a segment whose header allows it.
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
