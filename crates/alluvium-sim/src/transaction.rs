//! Client's transaction, and checks of its isolation level.
//!
//! - All reads of a snapshot or serializable transaction must come from the state of one commit,
//!   under the transaction's own writes.
//! - If such a transaction commits as number *c*, no commit between that state and *c* may have
//!   written a row that it wrote or locked (no lost update).
//! - The reads of a serializable transaction must also match the state before *c*: it could have
//!   run alone at its place in the order of commits.
//! - A read that locks its row sees the newest commit. Since the read point, only commits without
//!   the row's lock can have written the row: untracked ones, and range deletes. After such a
//!   commit the read is exempt.
//! - Each read of a read-committed transaction comes from some state since the call began. Rows
//!   that it has locked keep their value until its commit.
//!
//! The time that decides about expired rows is fixed like the state.

use std::ops::RangeInclusive;

use alluvium::{
    Durability, Error, Isolation, Keyspace, PreparedTransaction, Savepoint, Transaction,
    TransactionOptions,
};

use alluvium::internal::{has_spilled, is_in_tables, spill};

use crate::client::Client;
use crate::history::{History, Intent, mark, set_unmarked};
use crate::lost_updates::check_locked;
use crate::plan::{Change, Ending, Key, Op, Read, Step};
use crate::reading::{Seen, Source, expected, perform, shown};
use crate::records::{Checked, Prepared};
use crate::state::{Row, State, Stored, Write, apply};
use crate::time::Moment;
use crate::world::{World, is_exclusive, row};

/// One recorded read.
struct Noted {
    read: Read,
    keyspace: u32,
    seen: Seen,
    /// Writes of the transaction at that time.
    own: Vec<Write>,
    /// Commits one of which must have the state that was read.
    between: RangeInclusive<u64>,
    /// Moments between which the time of the read lies.
    moments: RangeInclusive<u64>,
    /// Visible commit after a read that locks its row, and the row.
    locked: Option<(Row, u64)>,
}

/// Transaction in progress.
struct Running<'a> {
    world: &'a World,
    transaction: Transaction,
    isolation: Isolation,
    tag: u64,
    own: Vec<Write>,
    /// Indexes in `own` of inserts of absent rows.
    inserts: Vec<usize>,
    /// Rows written or locked, each with the newest commit that may precede its lock.
    locked: Vec<(Row, u64)>,
    savepoints: Vec<(Savepoint, usize, usize)>,
    /// Moves its writes to files after some steps.
    spills: bool,
    noted: Vec<Noted>,
    /// Visible commits around the moment of its read point.
    began: RangeInclusive<u64>,
    /// Times around the moment of its read point.
    began_ms: RangeInclusive<u64>,
}

impl Noted {
    /// Returns the expected result in this state, under the transaction's own writes.
    fn wanted(&self, state: &State, now_ms: u64) -> Seen {
        if self.own.is_empty() {
            return expected(&self.read, self.keyspace, state, now_ms);
        }
        let mut state = state.clone();
        apply(&mut state, &self.own);
        expected(&self.read, self.keyspace, &state, now_ms)
    }

    /// Returns true if the result is allowed after this commit, under the transaction's own writes.
    fn fits(&self, history: &History, at: u64, now_ms: u64) -> bool {
        let (read, id, seen) = (&self.read, self.keyspace, &self.seen);
        let state = &*history.at(at);
        let admitted = if self.own.is_empty() {
            history.admits(read, id, state, now_ms, seen)
        } else {
            let mut state = state.clone();
            apply(&mut state, &self.own);
            history.admits(read, id, &state, now_ms, seen)
        };
        let is_exempt = |(row, upto): &(Row, u64)| history.has_unlocked_between(at, *upto + 1, row);
        admitted || self.locked.as_ref().is_some_and(is_exempt)
    }
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
            // Half of them, without a choice of its own that would change all later ones.
            late_read_point: steps.len() % 2 == 1,
            ..TransactionOptions::default()
        };
        let mut is_late = options.late_read_point;
        let begin = (world.db.visible_seqno(), world.watch.moment(&world.db));
        let Some(transaction) = world.known(world.db.begin_with(options))? else {
            return Ok(());
        };
        let tag = world.records.history().intend();
        // Not with range deletes, which are then refused. No choice of its own, that would change
        // all later ones.
        let deletes_range = |step: &Step| matches!(step, Step::Change(Change::DeleteRange(..)));
        let spills = tag.is_multiple_of(3) && !steps.iter().any(deletes_range);
        let mut running = Running {
            world,
            transaction,
            isolation: *isolation,
            tag,
            own: Vec::new(),
            inserts: Vec::new(),
            locked: Vec::new(),
            savepoints: Vec::new(),
            spills,
            noted: Vec::new(),
            began: begin.0..=world.db.visible_seqno(),
            began_ms: world.watch.since(&world.db, begin.1),
        };
        for (at, step) in steps.iter().enumerate() {
            let done = running.step(step, at)?;
            if is_late && running.has_read_point() {
                is_late = false;
                running.has_begun(begin);
            }
            if let Err(error) = done {
                world.tolerate(&error)?;
                return running.check_reads().map(drop);
            }
        }
        if is_late {
            running.has_begun(begin);
        }
        running.end(self.number, *ending)
    }
}

impl Running<'_> {
    /// Returns true if the transaction has a read point that it keeps. A late one is not taken by a
    /// read that only its own range delete answers.
    fn has_read_point(&self) -> bool {
        let point = self.transaction.read_point();
        !matches!(point, Ok(None))
    }

    /// Notes that the read point was taken between `begin` and now.
    fn has_begun(&mut self, begin: (u64, Moment)) {
        self.began = begin.0..=self.world.db.visible_seqno();
        self.began_ms = self.world.watch.since(&self.world.db, begin.1);
    }

    /// Performs a step. The outer error is a failure of the engine, the inner one is the error of
    /// the call.
    fn step(&mut self, step: &Step, at: usize) -> Checked<alluvium::Result<()>> {
        if self.spills
            && at % 2 == 1
            && let Err(error) = spill(&self.transaction)
        {
            return Ok(Err(error));
        }
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
                    self.inserts.retain(|at| at < own);
                    self.locked.truncate(*locked);
                    self.transaction.rollback_to(*savepoint)
                }
                None => Ok(()),
            },
        })
    }

    /// Records a read that began with this visible commit, at this time.
    fn note(&mut self, read: Read, keyspace: &Keyspace, seen: Seen, began: (u64, Moment)) {
        let (between, moments) = match self.isolation {
            Isolation::ReadCommitted => {
                let after = self.world.db.visible_seqno();
                (
                    began.0..=after,
                    self.world.watch.since(&self.world.db, began.1),
                )
            }
            _ => (self.began.clone(), self.began_ms.clone()),
        };
        self.noted.push(Noted {
            read,
            keyspace: keyspace.id().0,
            seen,
            own: self.own.clone(),
            between,
            moments,
            locked: None,
        });
    }

    fn read(&mut self, read: &Read, keyspace: &Keyspace) -> alluvium::Result<()> {
        let began = (
            self.world.db.visible_seqno(),
            self.world.watch.moment(&self.world.db),
        );
        let source = Source::Transaction(&self.transaction);
        let (seen, _) = perform(read, keyspace, &source)?;
        self.note(read.clone(), keyspace, seen, began);
        Ok(())
    }

    /// Reads and locks a row. Returns whether it exists.
    fn read_locked(&mut self, keyspace: &Keyspace, key: &Key) -> alluvium::Result<bool> {
        let began = (
            self.world.db.visible_seqno(),
            self.world.watch.moment(&self.world.db),
        );
        let value = self.transaction.get_for_update(keyspace, key)?;
        let after = self.world.db.visible_seqno();
        let row = (keyspace.id().0, key.to_vec());
        self.locked.push((row.clone(), after));
        let place = crate::plan::Where(0);
        let read = Read::Get(place, key.clone());
        let found = value.is_some();
        let seen = vec![value.map(|value| (key.to_vec(), value.to_vec()))];
        self.note(read, keyspace, seen, began);
        if let Some(noted) = self.noted.last_mut() {
            noted.locked = Some((row, after));
        }
        Ok(found)
    }

    fn change(&mut self, change: &Change, keyspace: &Keyspace, at: usize) -> alluvium::Result<()> {
        let mut stored = self.world.stored(change.place(), self.tag, at);
        let (key, write) = match change {
            Change::Put(_, key) => {
                self.put(keyspace, key, &stored)?;
                (key, row(keyspace, key, Some(&stored)))
            }
            Change::Insert(_, key) => {
                if !self.read_locked(keyspace, key)? && is_exclusive(key) {
                    stored.until_ms = None;
                    self.transaction.insert(keyspace, key, &stored.value)?;
                    self.inserts.push(self.own.len());
                } else {
                    self.put(keyspace, key, &stored)?
                }
                (key, row(keyspace, key, Some(&stored)))
            }
            Change::Delete(_, key) => {
                self.transaction.delete(keyspace, key)?;
                (key, row(keyspace, key, None))
            }
            Change::DeleteRange(_, start, end) => {
                self.transaction.delete_range(keyspace, start, end)?;
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

    fn put(&self, keyspace: &Keyspace, key: &Key, stored: &Stored) -> alluvium::Result<()> {
        match stored.until_ms {
            None => self.transaction.put(keyspace, key, &stored.value),
            Some(until) => self
                .transaction
                .put_until(keyspace, key, &stored.value, until),
        }
    }

    /// Checks that the reads are consistent. Returns the newest commit with a state that explains
    /// them.
    fn check_reads(&self) -> Checked<u64> {
        let newest = *self.began.end();
        let history = self.world.records.history();
        if history.is_uncertain(history.last()) {
            return Ok(newest);
        }
        drop(history);
        if self.isolation == Isolation::ReadCommitted {
            for noted in &self.noted {
                let times = self.times(&noted.moments);
                let fits = |at: &u64| times.iter().any(|time| self.fits(noted, *at, *time));
                let matching = noted.between.clone().rev().find(fits);
                matching
                    .ok_or_else(|| self.explain(noted, *noted.between.end(), "read committed"))?;
            }
            return Ok(newest);
        }
        let times = self.times(&self.began_ms);
        let all_fit = |at: &u64| {
            let at_time = |time: &u64| self.noted.iter().all(|noted| self.fits(noted, *at, *time));
            times.iter().any(at_time)
        };
        if let Some(at) = self.began.clone().rev().find(all_fit) {
            return Ok(at);
        }
        let last = *self.began_ms.end();
        let wrong = |noted: &&Noted| !self.fits(noted, newest, last);
        let wrong = self.noted.iter().find(wrong).or(self.noted.first());
        let what = "no state of its beginning explains its reads; against the newest";
        Err(wrong.map_or_else(String::new, |noted| self.explain(noted, newest, what)))
    }

    fn times(&self, moments: &RangeInclusive<u64>) -> Vec<u64> {
        self.world.records.history().times(moments.clone())
    }

    fn fits(&self, noted: &Noted, at: u64, now_ms: u64) -> bool {
        let history = self.world.records.history();
        noted.fits(&history, at, now_ms)
    }

    fn explain(&self, noted: &Noted, at: u64, what: &str) -> String {
        let state = self.world.records.history().at(at);
        let wanted = noted.wanted(&state, *noted.moments.end());
        format!(
            "a {:?} transaction (began at {:?}, {:?} ms): {what}, commit {at}\n  keyspace {}, {:?}\n  saw {}\n  instead of {}",
            self.isolation,
            self.began,
            noted.moments,
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
        // An undecided transaction keeps the lock on its mark, so it gets a row of its own.
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
        let mark = row(marks, &key, Some(&Stored::lasting(&value)));
        self.own.push(mark);
        let writes = if prepares {
            self.lasting_writes()
        } else {
            self.own.clone()
        };
        let intent = Intent {
            left_out: self.own.len() - writes.len(),
            writes,
            tracked: true,
        };
        self.world.records.history().say(self.tag, intent);
        if prepares {
            self.prepare(point, ending)
        } else {
            self.commit(point)
        }
    }

    /// Returns the writes without inserts that the transaction has deleted itself, and without
    /// those deletes. The log has neither. Without an operation no lock outlasts a restart, so
    /// others may write the row before the commit.
    fn lasting_writes(&self) -> Vec<Write> {
        let touches = |row: &Row| {
            let own = self.own.iter().enumerate();
            let of_row = |write: &Write| matches!(write, Write::Row(other, _) if other == row);
            own.filter(move |(_, write)| of_row(write))
                .collect::<Vec<_>>()
        };
        let is_canceled = |write: &&Write| {
            let Write::Row(row, _) = write else {
                return false;
            };
            let touches = touches(row);
            let inserted = touches
                .first()
                .is_some_and(|(at, _)| self.inserts.contains(at));
            inserted && matches!(touches.last(), Some((_, Write::Row(_, None))))
        };
        let own = self.own.iter();
        own.filter(|write| !is_canceled(write)).cloned().collect()
    }

    fn commit(self, point: u64) -> Checked<()> {
        let Running {
            world,
            transaction,
            isolation,
            tag,
            locked,
            noted,
            began_ms,
            ..
        } = self;
        let (result, durability) = if has_spilled(&transaction) {
            world.records.count("transactions with writes in files", 1);
            let result = committing(tag, true, || transaction.commit());
            (result, Durability::Sync)
        } else {
            (transaction.commit(), world.durability(None))
        };
        let Some(seqno) = world.committed(tag, result, durability)? else {
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
        let at = seqno - 1;
        let times = history.times(began_ms);
        let all_fit = |time: &u64| {
            let mut noted = noted.iter();
            noted.all(|noted| noted.fits(&history, at, *time))
        };
        if times.iter().any(all_fit) {
            return Ok(());
        }
        let last = *times.last().unwrap_or(&0);
        let wrong = noted.iter().find(|n| !n.fits(&history, at, last));
        let wrong = wrong.or(noted.first()).map(|noted| {
            let wanted = shown(&noted.wanted(&history.at(at), last));
            let (keyspace, read, seen) = (noted.keyspace, &noted.read, shown(&noted.seen));
            format!("keyspace {keyspace}, {read:?}\n  saw {seen}\n  instead of {wanted}")
        });
        Err(format!(
            "a serializable transaction committed as {seqno} has read what the commit before did not leave\n  {}",
            wrong.unwrap_or_default()
        ))
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
        let prepared = |change: &dyn Fn(&mut Prepared)| {
            change(world.records.outside().prepared.entry(tag).or_default());
        };
        prepared(&|_| ());
        let durability = match ending {
            Ending::PrepareOrdered(durability) => durability,
            _ => Durability::Sync,
        };
        if has_spilled(&transaction) {
            let what = "transactions prepared with writes in files";
            world.records.count(what, 1);
        }
        let transaction = match transaction.prepare_with(&tag.to_be_bytes(), durability) {
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
            // A power loss may take back a prepare that is not synced.
            prepared(&|p| p.done = durability == Durability::Sync);
        }
        match ending {
            Ending::PrepareCommit | Ending::PrepareOrdered(_) => {
                let seqno = match ending {
                    Ending::PrepareCommit => decide(world, transaction, tag, true)?,
                    _ => commit_ordered(world, transaction, tag)?,
                };
                seqno.map_or(Ok(()), |at| {
                    check_locked(world, isolation, point, &locked, at)
                })
            }
            Ending::PrepareRollback => decide(world, transaction, tag, false).map(drop),
            _ => Ok(()),
        }
    }
}

/// Calls `commit`. If it is an ingest, its log record has no operations that tell the tag.
fn committing<T>(tag: u64, is_ingest: bool, commit: impl FnOnce() -> T) -> T {
    set_unmarked(is_ingest.then_some(tag));
    let result = commit();
    set_unmarked(None);
    result
}

/// Commits a prepared transaction as a coordinator does. Returns the number of its commit.
fn commit_ordered(
    world: &World,
    mut transaction: PreparedTransaction,
    tag: u64,
) -> Checked<Option<u64>> {
    let is_ingest = is_in_tables(&transaction);
    let ordered = committing(tag, is_ingest, || transaction.commit_ordered());
    let result = ordered.and_then(|()| transaction.commit());
    world.records.count("ordered commits", 1);
    world.committed(tag, result, Durability::Buffered)
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
        let is_ingest = is_in_tables(&transaction);
        let result = committing(tag, is_ingest, || transaction.commit());
        // A commit that found no space stays prepared.
        return world.committed(tag, result, durability);
    }
    let tried = |prepared: &mut Prepared| prepared.rollback_tried = true;
    tried(world.records.outside().prepared.entry(tag).or_default());
    world.known(transaction.rollback()).map(|_| None)
}

/// Returns the tag encoded in a prepared transaction's id.
pub(crate) fn tag_of_xid(xid: &[u8]) -> Checked<u64> {
    let bytes: [u8; 8] = xid
        .try_into()
        .map_err(|_| format!("a strange xid: {xid:?}"))?;
    Ok(u64::from_be_bytes(bytes))
}
