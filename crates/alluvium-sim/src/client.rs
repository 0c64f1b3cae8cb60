//! Client of a simulated database: performs the operations of a plan and compares the results with
//! the history.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium::{
    Changes, Database, Durability, KeyspaceOptions, Snapshot, WriteBatch, WriteOptions,
};

use crate::history::{Intent, mark};
use crate::places::move_away_and_back;
use crate::plan::{Change, LASTING, Op, PASSING, Read, Where};
use crate::reading::{Source, perform};
use crate::records::{Checked, Passing};
use crate::state::{Stored, Write};
use crate::world::{World, is_exclusive, row};

/// Client of one incarnation.
pub struct Client {
    /// State shared with the other clients.
    pub world: Arc<World>,
    /// Number of the client in the incarnation.
    pub number: usize,
    /// Snapshot, and the range of times in milliseconds at which it may have been taken.
    snapshot: Option<(Snapshot, RangeInclusive<u64>)>,
    /// Stream of changes, if one is open.
    pub(crate) stream: Option<Changes>,
}

impl Change {
    /// Returns the keyspace of the change.
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
    /// Creates a client with this number.
    pub fn new(world: Arc<World>, number: usize) -> Client {
        Client {
            world,
            number,
            snapshot: None,
            stream: None,
        }
    }

    /// Performs one operation.
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
                let watch = &self.world.watch;
                let began = watch.moment(&self.world.db);
                let snapshot = self.world.known(self.world.db.snapshot())?;
                self.snapshot =
                    snapshot.map(|snapshot| (snapshot, watch.since(&self.world.db, began)));
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
            Op::BulkLoad {
                place,
                keys,
                large,
                unique,
            } => self.bulk_load(*place, keys, *large, *unique),
            Op::Checkpoint(copy_use) => self.checkpoint(*copy_use),
            Op::Backup => self.backup(),
            Op::Restore(number) => self.restore(*number),
            Op::DeleteBackup(number) => self.delete_backup(*number),
            Op::Follow(most) => self.follow(*most),
            Op::Unfollow => {
                self.stream = None;
                Ok(())
            }
            Op::Verify => self.verify(),
            Op::MoveDirectory => self.move_directory(),
            Op::SetClock(by_ms) => {
                self.world.records.count("clock set", 1);
                self.world.records.clock.set(*by_ms);
                Ok(())
            }
            Op::DisturbClock(by_ms) => {
                self.world.records.count("glitches of the clock", 1);
                self.world.records.clock.disturb(*by_ms);
                Ok(())
            }
            Op::PassTime(ms) => {
                self.world.records.clock.pass(*ms);
                Ok(())
            }
            Op::SetFilter(on) => self.set_filter(*on),
            Op::SetOptions(place, number) => self.set_options(*place, *number),
            Op::SetMemory(bytes) => self.set_memory(*bytes),
            Op::PowerLoss(kept) => {
                self.world.disk.crash_now(*kept);
                Ok(())
            }
        }
    }

    fn move_directory(&self) -> Checked<()> {
        move_away_and_back(&self.world, || self.durable_call(Database::flush))
    }

    fn batch(&self, changes: &[Change], asked: Option<Durability>, untracked: bool) -> Checked<()> {
        let world = &self.world;
        let tag = world.records.history().intend();
        let mut batch = WriteBatch::new();
        let mut intent = Intent {
            writes: Vec::new(),
            tracked: !untracked,
            left_out: 0,
        };
        for (at, change) in changes.iter().enumerate() {
            let Some(keyspace) = world.keyspace(change.place())? else {
                continue;
            };
            let stored = world.stored(change.place(), tag, at);
            let (result, write) = match change {
                Change::Put(_, key) | Change::Insert(_, key) if untracked && is_exclusive(key) => {
                    // An insert would rely on a row lock that this batch does not take.
                    (batch.delete(&keyspace, key), row(&keyspace, key, None))
                }
                Change::Put(_, key) | Change::Insert(_, key) => (
                    match stored.until_ms {
                        None => batch.put(&keyspace, key, &stored.value),
                        Some(until) => batch.put_until(&keyspace, key, &stored.value, until),
                    },
                    row(&keyspace, key, Some(&stored)),
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
        intent
            .writes
            .push(row(marks, &key, Some(&Stored::lasting(&value))));
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
        let (before, began) = (
            self.world.db.visible_seqno(),
            self.world.watch.moment(&self.world.db),
        );
        let result = perform(read, &keyspace, &Source::Newest);
        let (after, moments) = (
            self.world.db.visible_seqno(),
            self.world.watch.since(&self.world.db, began),
        );
        let Some((seen, at)) = self.world.known(result)? else {
            return Ok(());
        };
        let between = at.map_or(before..=after, |at| at..=at);
        if *between.start() < before || *between.end() > after {
            return Err(format!(
                "a cursor shows {between:?}, opened between {before} and {after}"
            ));
        }
        let id = keyspace.id().0;
        self.world.compare(read, id, &seen, between, moments)
    }

    fn read_snapshot(&self, read: &Read) -> Checked<()> {
        let keyspace = self.world.keyspace(read.place())?;
        let (Some(keyspace), Some((snapshot, taken))) = (keyspace, &self.snapshot) else {
            return Ok(());
        };
        let result = perform(read, &keyspace, &Source::Snapshot(snapshot));
        let Some((seen, _)) = self.world.known(result)? else {
            return Ok(());
        };
        let at = snapshot.seqno();
        let id = keyspace.id().0;
        self.world.compare(read, id, &seen, at..=at, taken.clone())
    }

    /// Makes a call that leaves all earlier commits durable, and notes this in the history.
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

    fn verify(&self) -> Checked<()> {
        let world = &self.world;
        let Some(report) = world.known(world.db.verify())? else {
            return Ok(());
        };
        if report.wrong_insert_count > 0 {
            return Err(format!("wrong inserts: {:?}", report.wrong_inserts));
        }
        let mut damages = report.damages.iter();
        damages.try_for_each(|damage| world.tolerate(damage))
    }

    /// Returns true if the client must stop, because the machine has crashed or a check has failed.
    pub fn is_over(&self) -> bool {
        self.world.stop.load(Ordering::Relaxed) || self.world.disk.is_dead()
    }
}
