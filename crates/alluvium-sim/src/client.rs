//! A client of a simulated database: does the operations of a plan and compares what it gets with the history.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvium::{
    Database, Durability, Error, Keyspace, KeyspaceOptions, Options, Snapshot, WriteBatch,
    WriteOptions,
};

use crate::disk::Disk;
use crate::history::{History, Intent, Write, mark, set_unmarked};
use crate::plan::{Change, Key, LASTING, Op, PASSING, Read, Where};
use crate::reading::{Seen, Source, content, difference, expected, perform, shown};

/// What all clients of one life share.
pub struct World {
    /// The database of this life.
    pub db: Database,
    /// Its disk.
    pub disk: Disk,
    /// The oracle.
    pub records: Arc<Records>,
    /// How the database was opened.
    pub options: Options,
    /// The keyspace of marks, and those that last.
    pub keyspaces: Vec<Keyspace>,
    /// Transactions that were prepared when it was opened.
    pub inherited: Vec<u64>,
    /// What was visible then.
    pub opened_at: u64,
    /// Another client has failed, or the life is over.
    pub stop: AtomicBool,
}

/// What outlives a life. No lock of these is held over a step.
#[derive(Default)]
pub struct Records {
    history: Mutex<History>,
    outside: Mutex<Outside>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

/// What is known of a database beside its rows.
#[derive(Debug, Default)]
pub struct Outside {
    /// Passing keyspaces by id.
    pub passing: BTreeMap<u32, Passing>,
    /// Transactions that were to be prepared, by their own number.
    pub prepared: BTreeMap<u64, Prepared>,
}

/// What is known of a keyspace that was created.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passing {
    /// Somebody has tried to drop it.
    pub drop_tried: bool,
    /// Somebody has done so.
    pub dropped: bool,
}

/// What is known of a transaction that was to be prepared.
#[derive(Debug, Clone, Copy, Default)]
pub struct Prepared {
    /// The prepare was acknowledged.
    pub done: bool,
    /// Somebody has tried to roll it back.
    pub rollback_tried: bool,
}

/// A failure of the engine, as a text.
pub type Checked<T> = Result<T, String>;

/// One client.
pub struct Client {
    /// What it shares.
    pub world: Arc<World>,
    /// Its number in the life.
    pub number: usize,
    snapshot: Option<Snapshot>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Records {
    /// The history.
    pub fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Counts something that a good simulation makes happen now and then.
    pub fn count(&self, what: &'static str, times: u64) {
        *lock(&self.counts).entry(what).or_default() += times;
    }

    /// How often each of them has happened.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.counts).clone()
    }

    /// The rest.
    pub fn outside(&self) -> MutexGuard<'_, Outside> {
        lock(&self.outside)
    }
}

impl World {
    /// The keyspace of a place, if it exists.
    pub fn keyspace(&self, place: Where) -> Checked<Option<Keyspace>> {
        if let Some(lasting) = self.keyspaces.get(1 + place.0) {
            return Ok(Some(lasting.clone()));
        }
        let name = PASSING[place.0 - LASTING.len()];
        self.known(self.db.existing_keyspace(name))
            .map(Option::flatten)
    }

    /// The result of a call that may only fail for what the disk or a drop has done.
    pub fn known<T>(&self, result: alluvium::Result<T>) -> Checked<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.tolerate(&error).map(|()| None),
        }
    }

    /// Whether the plan explains an error.
    pub fn tolerate(&self, error: &Error) -> Checked<()> {
        let message = format!("{error} ({error:?})");
        self.records.count(kind_of(error), 1);
        let explained = match error {
            Error::KeyspaceDropped(_) | Error::KeyspaceInUse { .. } => true,
            Error::Conflict { .. } | Error::Deadlock { .. } | Error::LockTimeout { .. } => true,
            Error::Io { .. } | Error::NoSpace { .. } => self.disk.has_failed(),
            // A wrong bit in a version number looks like a newer version.
            Error::Corruption { .. } | Error::NewerFormat { .. } => self.disk.has_flipped(),
            Error::Poisoned { .. } => self.disk.has_failed() || self.disk.has_flipped(),
            _ => false,
        };
        match explained && !message.contains("panicked") {
            true => Ok(()),
            false => Err(format!("unexpected error: {message}")),
        }
    }

    /// The durability that a commit gets.
    pub fn durability(&self, asked: Option<Durability>) -> Durability {
        asked.unwrap_or(self.options.durability)
    }

    /// Notes the end of a commit. Its number, if it was acknowledged.
    pub fn committed(
        &self,
        tag: u64,
        result: alluvium::Result<()>,
        durability: Durability,
    ) -> Checked<Option<u64>> {
        let dead = self.disk.is_dead();
        match result {
            Ok(()) if dead => Ok(None),
            Ok(()) => {
                self.records.count("commits", 1);
                let durable = durability == Durability::Sync;
                self.records.history().acknowledge(tag, durable).map(Some)
            }
            Err(error) => {
                let uncertain = matches!(
                    error,
                    Error::Io { .. } | Error::Poisoned { .. } | Error::Corruption { .. }
                );
                if !dead && !uncertain {
                    self.records.history().forget(tag);
                }
                self.tolerate(&error).map(|()| None)
            }
        }
    }

    /// Compares a read of the newest state, or of a fixed one, with the states of these commits.
    pub fn compare(
        &self,
        read: &Read,
        id: u32,
        seen: &Seen,
        between: RangeInclusive<u64>,
    ) -> Checked<()> {
        let history = self.records.history();
        if history.is_uncertain(*between.end()) {
            return Ok(());
        }
        self.records.count("reads compared", 1);
        let same = |seqno: u64| expected(read, id, &history.at(seqno)) == *seen;
        if between.clone().any(same) {
            return Ok(());
        }
        let wanted = expected(read, id, &history.at(*between.end()));
        let (seen, wanted) = (shown(seen), shown(&wanted));
        Err(format!(
            "keyspace {id}, {read:?}\n  saw {seen}\n  the state of commit {} has {wanted}, and no other of {between:?} has what was seen",
            between.end()
        ))
    }
}

/// A name of an error's kind, to be counted.
fn kind_of(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } => "calls that met an I/O error",
        Error::NoSpace { .. } => "calls that found no space",
        Error::Corruption { .. } | Error::NewerFormat { .. } => "calls that met a wrong bit",
        Error::Poisoned { .. } => "calls that met the poison",
        Error::Conflict { .. } => "conflicts",
        Error::Deadlock { .. } => "deadlocks",
        Error::LockTimeout { .. } => "lock timeouts",
        Error::KeyspaceDropped(_) | Error::KeyspaceInUse { .. } => "refusals of a keyspace",
        _ => "other errors",
    }
}

/// The value of the so-manieth write of a commit: unique, and sometimes long.
pub fn value_of(tag: u64, at: usize) -> Vec<u8> {
    let mut value = format!("v{tag}.{at}.").into_bytes();
    let len = [8, 20, 90, 700][(tag as usize * 7 + at) % 4];
    value.resize(value.len().max(len), b'0' + (tag % 10) as u8);
    value
}

/// A row's change as the history says it.
pub fn row(keyspace: &Keyspace, key: &[u8], value: Option<&[u8]>) -> Write {
    Write::Row((keyspace.id().0, key.to_vec()), value.map(Arc::from))
}

impl Change {
    /// Where it writes.
    pub fn place(&self) -> Where {
        match self {
            Change::Put(place, _)
            | Change::Insert(place, _)
            | Change::Delete(place, _)
            | Change::DeleteRange(place, _, _) => *place,
        }
    }
}

impl Client {
    /// A client of this number.
    pub fn new(world: Arc<World>, number: usize) -> Client {
        Client {
            world,
            number,
            snapshot: None,
        }
    }

    /// Does one operation.
    pub fn perform(&mut self, op: &Op) -> Checked<()> {
        match op {
            Op::Batch {
                changes,
                durability,
                untracked,
            } => self.batch(changes, *durability, *untracked),
            Op::Transaction { .. } => self.transaction(op),
            Op::Read(read) => self.read_newest(read),
            Op::TakeSnapshot => {
                self.snapshot = self.world.known(self.world.db.snapshot())?;
                Ok(())
            }
            Op::ReadSnapshot(read) => self.read_snapshot(read),
            Op::DropSnapshot => {
                self.snapshot = None;
                Ok(())
            }
            Op::Flush => self.durable_call(Database::flush),
            Op::Sync => self.durable_call(Database::sync),
            Op::Settle => self.durable_call(Database::settle),
            Op::CompactRange(place) => self.compact(*place),
            Op::Create(place) => self.create(*place),
            Op::Drop(place) => self.drop_keyspace(*place),
            Op::Ingest(place, keys) => self.ingest(*place, keys),
            Op::Checkpoint => self.checkpoint(),
            Op::Verify => self.verify(),
        }
    }

    fn batch(&self, changes: &[Change], asked: Option<Durability>, untracked: bool) -> Checked<()> {
        let world = &self.world;
        let tag = world.records.history().intend();
        let mut batch = WriteBatch::new();
        let mut intent = Intent {
            writes: Vec::new(),
            tracked: !untracked,
        };
        for (at, change) in changes.iter().enumerate() {
            let Some(keyspace) = world.keyspace(change.place())? else {
                continue;
            };
            let value = value_of(tag, at);
            let (result, write) = match change {
                Change::Put(_, key) | Change::Insert(_, key) if untracked && is_exclusive(key) => {
                    // Inserts rely on locks that this one does not take.
                    (batch.delete(&keyspace, key), row(&keyspace, key, None))
                }
                Change::Put(_, key) | Change::Insert(_, key) => (
                    batch.put(&keyspace, key, &value),
                    row(&keyspace, key, Some(&value)),
                ),
                Change::Delete(_, key) => (batch.delete(&keyspace, key), row(&keyspace, key, None)),
                Change::DeleteRange(_, start, end) => (
                    batch.delete_range(&keyspace, start, end),
                    Write::Range(keyspace.id().0, start.to_vec(), end.to_vec()),
                ),
            };
            if world.known(result)?.is_some() {
                intent.writes.push(write);
            }
        }
        let (key, value) = mark(self.number, tag);
        let marks = &world.keyspaces[0];
        batch.put(marks, &key, &value).map_err(|e| e.to_string())?;
        intent.writes.push(row(marks, &key, Some(&value)));
        world.records.history().say(tag, intent);
        let options = WriteOptions {
            durability: asked,
            untracked,
        };
        let result = world.db.write_with(&batch, &options);
        world
            .committed(tag, result, world.durability(asked))
            .map(drop)
    }

    fn read_newest(&self, read: &Read) -> Checked<()> {
        let Some(keyspace) = self.world.keyspace(read.place())? else {
            return Ok(());
        };
        let before = self.world.db.visible_seqno();
        let result = perform(read, &keyspace, &Source::Newest);
        let after = self.world.db.visible_seqno();
        let Some((seen, at)) = self.world.known(result)? else {
            return Ok(());
        };
        let between = at.map_or(before..=after, |at| at..=at);
        if *between.start() < before || *between.end() > after {
            return Err(format!(
                "a cursor shows {between:?}, opened between {before} and {after}"
            ));
        }
        self.world.compare(read, keyspace.id().0, &seen, between)
    }

    fn read_snapshot(&self, read: &Read) -> Checked<()> {
        let (Some(keyspace), Some(snapshot)) = (self.world.keyspace(read.place())?, &self.snapshot)
        else {
            return Ok(());
        };
        let result = perform(read, &keyspace, &Source::Snapshot(snapshot));
        let Some((seen, _)) = self.world.known(result)? else {
            return Ok(());
        };
        let at = snapshot.seqno();
        let id = keyspace.id().0;
        self.world.compare(read, id, &seen, at..=at)
    }

    /// A call after which everything before it is durable.
    fn durable_call(&self, call: fn(&Database) -> alluvium::Result<()>) -> Checked<()> {
        let world = &self.world;
        let before = world.db.visible_seqno();
        if world.known(call(&world.db))?.is_some() && !world.disk.is_dead() {
            world.records.history().make_durable(before);
        }
        Ok(())
    }

    fn compact(&self, place: Where) -> Checked<()> {
        match self.world.keyspace(place)? {
            Some(keyspace) => self
                .world
                .known(keyspace.compact_range(b"", None))
                .map(drop),
            None => Ok(()),
        }
    }

    fn create(&self, place: Where) -> Checked<()> {
        let world = &self.world;
        let name = PASSING[place.0 - LASTING.len()];
        let created = world.known(world.db.keyspace(name, KeyspaceOptions::default()))?;
        if let Some(keyspace) = created.filter(|_| !world.disk.is_dead()) {
            world
                .records
                .outside()
                .passing
                .entry(keyspace.id().0)
                .or_default();
        }
        Ok(())
    }

    fn drop_keyspace(&self, place: Where) -> Checked<()> {
        let world = &self.world;
        let Some(keyspace) = world.keyspace(place)? else {
            return Ok(());
        };
        let (before, id) = (world.db.visible_seqno(), keyspace.id().0);
        let passing = |change: fn(&mut Passing)| {
            change(world.records.outside().passing.entry(id).or_default());
        };
        passing(|p| p.drop_tried = true);
        let result = world.db.drop_keyspace(&keyspace);
        if world.known(result)?.is_some() && !world.disk.is_dead() {
            world.records.count("keyspaces dropped", 1);
            passing(|p| p.dropped = true);
            world.records.history().make_durable(before);
        }
        Ok(())
    }

    fn ingest(&self, place: Where, keys: &[Key]) -> Checked<()> {
        let world = &self.world;
        let Some(keyspace) = world.keyspace(place)? else {
            return Ok(());
        };
        let Some(mut ingest) = world.known(world.db.ingest())? else {
            return Ok(());
        };
        let tag = world.records.history().intend();
        let mut intent = Intent::default();
        for (at, key) in keys.iter().filter(|key| !is_exclusive(key)).enumerate() {
            let value = value_of(tag, at);
            if world.known(ingest.put(&keyspace, key, &value))?.is_none() {
                return Ok(());
            }
            intent.writes.push(row(&keyspace, key, Some(&value)));
        }
        if intent.writes.is_empty() {
            return Ok(());
        }
        world.records.history().say(tag, intent);
        set_unmarked(Some(tag));
        let result = ingest.finish();
        set_unmarked(None);
        world.records.count("ingests", u64::from(result.is_ok()));
        let told = result.as_ref().ok().map(|ingested| ingested.seqno);
        let seqno = world.committed(tag, result.map(drop), Durability::Sync)?;
        match seqno == told || world.disk.is_dead() {
            true => Ok(()),
            false => Err(format!("an ingest says {told:?}, its number is {seqno:?}")),
        }
    }

    fn checkpoint(&self) -> Checked<()> {
        let world = &self.world;
        let number = world.records.history().intend();
        let target = PathBuf::from(format!("/copy-{number}"));
        let before = world.db.visible_seqno();
        let Some(info) = world.known(world.db.checkpoint(&target))? else {
            return Ok(());
        };
        if info.seqno < before && !world.disk.is_dead() {
            return Err(format!(
                "a checkpoint holds {}, {before} was visible",
                info.seqno
            ));
        }
        let options = Options {
            read_only: true,
            ..world.options.clone()
        };
        let disk = Arc::new(world.disk.clone());
        let Some(copy) = world.known(Database::open_on(disk, &target, options))? else {
            return Ok(());
        };
        let Some(found) = world.known(content(&copy))? else {
            return Ok(());
        };
        world.records.count("checkpoints compared", 1);
        let history = world.records.history();
        let same = history.find(info.seqno, &found.ids, &found.rows);
        let exact = same.is_some_and(|at| at >= info.seqno);
        if !exact && !history.is_uncertain(info.seqno) {
            let difference = difference(&history.at(info.seqno), &found);
            return Err(format!(
                "a checkpoint of commit {} differs: {difference}",
                info.seqno
            ));
        }
        Ok(())
    }

    fn verify(&self) -> Checked<()> {
        let world = &self.world;
        let Some(report) = world.known(world.db.verify())? else {
            return Ok(());
        };
        let harmed = world.disk.has_failed() || world.disk.has_flipped();
        if report.wrong_insert_count > 0 {
            return Err(format!("wrong inserts: {:?}", report.wrong_inserts));
        }
        match report.damages.is_empty() || harmed {
            true => Ok(()),
            false => Err(format!("damages: {:?}", report.damages)),
        }
    }

    /// Whether the client is to stop: the machine is gone, or something has failed.
    pub fn is_over(&self) -> bool {
        self.world.stop.load(Ordering::Relaxed) || self.world.disk.is_dead()
    }
}

/// Whether only who has a row's lock puts it: such rows may be inserted.
pub fn is_exclusive(key: &[u8]) -> bool {
    key.last().is_some_and(|last| last % 3 == 0)
}
