//! A client's transaction, and what its isolation level promised.
//!
//! All reads of a snapshot or serializable transaction must be those of one commit's state, under its own writes. Where
//! such a transaction commits as number *c*, no commit between that state and *c* may have written a row that it wrote or
//! locked (no lost update); a serializable one must have read what the state before *c* has (it could have run alone at
//! its place in the order of commits). Each read of a read committed one is that of some state since the call began, and
//! rows that it has locked keep what it read until its commit.

use std::ops::RangeInclusive;

use alluvium::{
    Error, Isolation, Keyspace, PreparedTransaction, Savepoint, Transaction, TransactionOptions,
};

use crate::client::{Checked, Client, World, is_exclusive, row, value_of};
use crate::history::{Intent, Row, Write, apply, mark};
use crate::plan::{Change, Ending, Key, Op, Read, Step};
use crate::reading::{Seen, Source, expected, perform, shown};

/// One read.
struct Noted {
    read: Read,
    keyspace: u32,
    seen: Seen,
    /// The transaction's own writes at that time.
    own: Vec<Write>,
    /// The commits of which one must be what was read.
    between: RangeInclusive<u64>,
}

/// A transaction that is under way.
struct Running<'a> {
    world: &'a World,
    transaction: Transaction,
    isolation: Isolation,
    tag: u64,
    own: Vec<Write>,
    /// Rows that were written or locked, each with the newest commit that may lie before its lock.
    locked: Vec<(Row, u64)>,
    savepoints: Vec<(Savepoint, usize, usize)>,
    noted: Vec<Noted>,
    /// What was visible around its beginning.
    began: RangeInclusive<u64>,
}

impl Client {
    pub(crate) fn transaction(&self, op: &Op) -> Checked<()> {
        let Op::Transaction {
            isolation,
            optimistic,
            steps,
            ending,
        } = op
        else {
            return Ok(());
        };
        let world = &*self.world;
        let options = TransactionOptions {
            isolation: *isolation,
            optimistic: *optimistic,
            ..TransactionOptions::default()
        };
        let before = world.db.visible_seqno();
        let Some(transaction) = world.known(world.db.begin_with(options))? else {
            return Ok(());
        };
        let tag = world.records.history().intend();
        let mut running = Running {
            world,
            transaction,
            isolation: *isolation,
            tag,
            own: Vec::new(),
            locked: Vec::new(),
            savepoints: Vec::new(),
            noted: Vec::new(),
            began: before..=world.db.visible_seqno(),
        };
        for (at, step) in steps.iter().enumerate() {
            if let Err(error) = running.step(step, at)? {
                world.tolerate(&error)?;
                return running.check_reads().map(drop);
            }
        }
        running.end(self.number, *ending)
    }
}

impl Running<'_> {
    /// Does a step. The outer error is a failure of the engine, the inner one that of the call.
    fn step(&mut self, step: &Step, at: usize) -> Checked<alluvium::Result<()>> {
        Ok(match step {
            Step::Read(read) => {
                let Some(keyspace) = self.world.keyspace(read.place())? else {
                    return Ok(Ok(()));
                };
                self.read(read, &keyspace)
            }
            Step::GetForUpdate(place, key) => match self.world.keyspace(*place)? {
                Some(keyspace) => self.read_locked(&keyspace, key).map(drop),
                None => Ok(()),
            },
            Step::Change(change) => match self.world.keyspace(change.place())? {
                Some(keyspace) => self.change(change, &keyspace, at),
                None => Ok(()),
            },
            Step::Savepoint => {
                let savepoint = self.transaction.savepoint();
                let lengths = (self.own.len(), self.locked.len());
                self.savepoints.push((savepoint, lengths.0, lengths.1));
                Ok(())
            }
            Step::RollbackTo => match self.savepoints.last() {
                Some((savepoint, own, locked)) => {
                    self.own.truncate(*own);
                    self.locked.truncate(*locked);
                    self.transaction.rollback_to(*savepoint)
                }
                None => Ok(()),
            },
        })
    }

    fn note(&mut self, read: Read, keyspace: &Keyspace, seen: Seen, between: RangeInclusive<u64>) {
        let fixed = self.isolation != Isolation::ReadCommitted;
        self.noted.push(Noted {
            read,
            keyspace: keyspace.id().0,
            seen,
            own: self.own.clone(),
            between: if fixed { self.began.clone() } else { between },
        });
    }

    fn read(&mut self, read: &Read, keyspace: &Keyspace) -> alluvium::Result<()> {
        let before = self.world.db.visible_seqno();
        let source = Source::Transaction(&self.transaction);
        let (seen, _) = perform(read, keyspace, &source)?;
        let after = self.world.db.visible_seqno();
        self.note(read.clone(), keyspace, seen, before..=after);
        Ok(())
    }

    /// Whether the row is there.
    fn read_locked(&mut self, keyspace: &Keyspace, key: &Key) -> alluvium::Result<bool> {
        let before = self.world.db.visible_seqno();
        let value = self.transaction.get_for_update(keyspace, key)?;
        let after = self.world.db.visible_seqno();
        self.locked.push(((keyspace.id().0, key.to_vec()), after));
        let place = crate::plan::Where(0);
        let read = Read::Get(place, key.clone());
        let found = value.is_some();
        let seen = vec![value.map(|value| (key.to_vec(), value.to_vec()))];
        self.note(read, keyspace, seen, before..=after);
        Ok(found)
    }

    fn change(&mut self, change: &Change, keyspace: &Keyspace, at: usize) -> alluvium::Result<()> {
        let transaction = &self.transaction;
        let value = value_of(self.tag, at);
        let (key, write) = match change {
            Change::Put(_, key) => {
                transaction.put(keyspace, key, &value)?;
                (key, row(keyspace, key, Some(&value)))
            }
            Change::Insert(_, key) => {
                let absent = !self.read_locked(keyspace, key)? && is_exclusive(key);
                match absent {
                    true => self.transaction.insert(keyspace, key, &value)?,
                    false => self.transaction.put(keyspace, key, &value)?,
                }
                (key, row(keyspace, key, Some(&value)))
            }
            Change::Delete(_, key) => {
                transaction.delete(keyspace, key)?;
                (key, row(keyspace, key, None))
            }
            Change::DeleteRange(_, start, end) => {
                transaction.delete_range(keyspace, start, end)?;
                let id = keyspace.id().0;
                self.own
                    .push(Write::Range(id, start.to_vec(), end.to_vec()));
                return Ok(());
            }
        };
        let visible = self.world.db.visible_seqno();
        self.locked.push(((keyspace.id().0, key.to_vec()), visible));
        self.own.push(write);
        Ok(())
    }

    /// Checks that the reads go together. Returns the newest state that they may be of.
    fn check_reads(&self) -> Checked<u64> {
        let newest = *self.began.end();
        let history = self.world.records.history();
        if history.is_uncertain(history.last()) {
            return Ok(newest);
        }
        drop(history);
        if self.isolation == Isolation::ReadCommitted {
            for noted in &self.noted {
                let matching = noted.between.clone().rev().find(|at| self.fits(noted, *at));
                matching
                    .ok_or_else(|| self.explain(noted, *noted.between.end(), "read committed"))?;
            }
            return Ok(newest);
        }
        let all_fit = |at: &u64| self.noted.iter().all(|noted| self.fits(noted, *at));
        if let Some(at) = self.began.clone().rev().find(all_fit) {
            return Ok(at);
        }
        let wrong = self.noted.iter().find(|noted| !self.fits(noted, newest));
        let what = "no state of its beginning explains its reads; against the newest";
        Err(wrong.map_or_else(String::new, |noted| self.explain(noted, newest, what)))
    }

    fn state_for(&self, noted: &Noted, at: u64) -> crate::history::State {
        let mut state = (*self.world.records.history().at(at)).clone();
        apply(&mut state, &noted.own);
        state
    }

    fn fits(&self, noted: &Noted, at: u64) -> bool {
        expected(&noted.read, noted.keyspace, &self.state_for(noted, at)) == noted.seen
    }

    fn explain(&self, noted: &Noted, at: u64, what: &str) -> String {
        let wanted = expected(&noted.read, noted.keyspace, &self.state_for(noted, at));
        format!(
            "a {:?} transaction (began at {:?}): {what}, commit {at}\n  keyspace {}, {:?}\n  saw {}\n  instead of {}",
            self.isolation,
            self.began,
            noted.keyspace,
            noted.read,
            shown(&noted.seen),
            shown(&wanted)
        )
    }

    fn end(mut self, client: usize, ending: Ending) -> Checked<()> {
        let point = self.check_reads()?;
        if ending == Ending::Rollback {
            self.transaction.rollback();
            return Ok(());
        }
        let prepares = ending != Ending::Commit;
        // An undecided one keeps the lock of its mark: it gets a row of its own.
        let place = if prepares {
            1000 + self.tag as usize
        } else {
            client
        };
        let (key, value) = mark(place, self.tag);
        let marks = &self.world.keyspaces[0];
        if let Err(error) = self.transaction.put(marks, &key, &value) {
            return self.world.tolerate(&error);
        }
        self.own.push(row(marks, &key, Some(&value)));
        let intent = Intent {
            writes: self.own.clone(),
            tracked: true,
        };
        self.world.records.history().say(self.tag, intent);
        match prepares {
            true => self.prepare(point, ending),
            false => self.commit(point),
        }
    }

    fn commit(self, point: u64) -> Checked<()> {
        let Running {
            world,
            transaction,
            isolation,
            tag,
            locked,
            noted,
            ..
        } = self;
        let durability = world.durability(None);
        let Some(seqno) = world.committed(tag, transaction.commit(), durability)? else {
            return Ok(());
        };
        world.records.count("transactions", 1);
        check_locked(world, isolation, point, &locked, seqno)?;
        if isolation != Isolation::Serializable {
            return Ok(());
        }
        let reads = noted.len() as u64;
        world
            .records
            .count("reads of serializable transactions compared", reads);
        let history = world.records.history();
        if history.is_uncertain(seqno) {
            return Ok(());
        }
        for noted in &noted {
            let mut state = (*history.at(seqno - 1)).clone();
            apply(&mut state, &noted.own);
            let wanted = expected(&noted.read, noted.keyspace, &state);
            if wanted != noted.seen {
                return Err(format!(
                    "a serializable transaction committed as {seqno} has read what the commit before did not leave\n  keyspace {}, {:?}\n  saw {}\n  instead of {}",
                    noted.keyspace,
                    noted.read,
                    shown(&noted.seen),
                    shown(&wanted)
                ));
            }
        }
        Ok(())
    }

    fn prepare(self, point: u64, ending: Ending) -> Checked<()> {
        let Running {
            world,
            transaction,
            isolation,
            tag,
            locked,
            ..
        } = self;
        let prepared = |change: &dyn Fn(&mut crate::client::Prepared)| {
            change(world.records.outside().prepared.entry(tag).or_default());
        };
        prepared(&|_| ());
        let transaction = match transaction.prepare(&tag.to_be_bytes()) {
            Ok(transaction) => transaction,
            Err(error) => {
                if !matches!(error, Error::Io { .. } | Error::Poisoned { .. }) {
                    world.records.outside().prepared.remove(&tag);
                }
                return world.tolerate(&error);
            }
        };
        if !world.disk.is_dead() {
            world.records.count("transactions prepared", 1);
            prepared(&|p| p.done = true);
        }
        match ending {
            Ending::PrepareCommit => {
                let seqno = decide(world, transaction, tag, true)?;
                seqno.map_or(Ok(()), |at| {
                    check_locked(world, isolation, point, &locked, at)
                })
            }
            Ending::PrepareRollback => decide(world, transaction, tag, false).map(drop),
            _ => Ok(()),
        }
    }
}

/// Commits a prepared transaction or rolls it back. Returns the number of its commit.
pub(crate) fn decide(
    world: &World,
    transaction: PreparedTransaction,
    tag: u64,
    commit: bool,
) -> Checked<Option<u64>> {
    if commit {
        let durability = world.durability(None);
        let result = transaction.commit();
        // A commit that found no space stays prepared.
        return world.committed(tag, result, durability);
    }
    let tried = |prepared: &mut crate::client::Prepared| prepared.rollback_tried = true;
    tried(world.records.outside().prepared.entry(tag).or_default());
    world.known(transaction.rollback()).map(|_| None)
}

/// What a transaction that was prepared before the database was opened has locked, stays as it was until its commit.
pub(crate) fn check_inherited(world: &World, tag: u64, seqno: u64) -> Checked<()> {
    let rows = world.records.history().intent(tag).map(Intent::rows);
    let locked: Vec<_> = rows.into_iter().flatten().map(|row| (row, 0)).collect();
    check_locked(world, Isolation::Snapshot, world.opened_at, &locked, seqno)
}

/// No lost update: nobody whom locks should have kept away wrote what was written or locked.
fn check_locked(
    world: &World,
    isolation: Isolation,
    point: u64,
    locked: &[(Row, u64)],
    seqno: u64,
) -> Checked<()> {
    let history = world.records.history();
    if history.is_uncertain(seqno) {
        return Ok(());
    }
    for (row, visible) in locked {
        let from = match isolation {
            Isolation::ReadCommitted => *visible,
            _ => point,
        };
        let others = history.tracked_between(from, seqno, row);
        if !others.is_empty() {
            return Err(format!(
                "lost update: a {isolation:?} transaction of state {from} committed as {seqno}, and its row {} of keyspace {} was written by {others:?} in between",
                row.1.escape_ascii(),
                row.0
            ));
        }
    }
    Ok(())
}

/// The tag of a prepared transaction's id.
pub(crate) fn tag_of_xid(xid: &[u8]) -> Checked<u64> {
    let bytes: [u8; 8] = xid
        .try_into()
        .map_err(|_| format!("a strange xid: {xid:?}"))?;
    Ok(u64::from_be_bytes(bytes))
}
