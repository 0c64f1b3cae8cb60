//! Two-phase commit while the device stops: a prepared transaction is whole or listed, whichever
//! call was the last.

use std::sync::Arc;

use alluvium::vfs::{CrashOptions, FaultEffect, FaultVfs, IoCall, MemVfs};
use alluvium::{
    CursorOptions, Database, Durability, Error, Isolation, Keyspace, KeyspaceOptions, Options,
    Result,
};
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::chain;
use crate::fixture::{all, dir, open, rows, stop_at};
use crate::script;
use crate::two_phase::impatient;

/// Progress of a transaction of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Unknown,
    /// The call has failed: it may or may not have happened.
    PrepareTried,
    Prepared,
    CommitTried,
    /// Acknowledged, not certainly durable yet.
    Committed,
    RollbackTried,
    RolledBack,
    /// Committed and durable.
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

    /// Records that the log was synced, so that all acknowledged decisions are durable.
    fn all_is_durable(&mut self) {
        for fate in &mut self.fates {
            *fate = match *fate {
                Fate::Committed => Fate::CommittedForGood,
                Fate::RolledBack => Fate::RolledBackForGood,
                other => other,
            };
        }
    }

    /// Opens the files that are left and checks every transaction. Then decides on the listed ones
    /// and checks again.
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

    /// Returns whether each transaction is visible and whether it is listed, or `None` if the
    /// keyspaces do not exist yet.
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
            // Transactions 0 and 5 have one id, so the list means 5 once 5 was tried.
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

/// All kinds of calls that change files, without read-only ones.
const CHANGES: [IoCall; 7] = [
    IoCall::Create,
    IoCall::Write,
    IoCall::Sync,
    IoCall::SyncDir,
    IoCall::Allocate,
    IoCall::Rename,
    IoCall::Remove,
];

/// Stops at calls a few apart, beginning anywhere: the runs together cover all calls.
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
