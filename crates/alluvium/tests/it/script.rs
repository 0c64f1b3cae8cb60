//! A short fixed history of every kind of I/O call, played on a file system that may fail, with a
//! record of the acknowledged operations.

use std::path::Path;
use std::sync::Arc;

use alluvium::vfs::{FaultVfs, MemVfs};
use alluvium::{Database, Durability, Error, KeyspaceOptions, Options, Result, WriteBatch};
use alluvium_testkit::model::{Commit, Model, State, Write};
use alluvium_testkit::op::Op;

use crate::driver::{chain, ingest, state_of};
use crate::fixture::dir;

/// Result of a script.
pub struct Played {
    /// `None` if it could not be opened.
    pub db: Option<Database>,
    /// Everything acknowledged, as commits of the model.
    pub model: Model,
    /// The commit that must survive the loss of all unsynced data.
    pub durable: Commit,
    /// The operation that failed first with anything but a full device. It may or may not have
    /// happened.
    pub failed: Option<(Op, Error)>,
}

/// Returns options under which a few rows are flushed, and every flushed table is due for
/// compaction.
pub fn options(durability: Durability) -> Options {
    Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(400),
        table_bytes: 4096,
        upper_fraction: 0.02,
        durability,
        ..Options::default()
    }
}

fn put(keyspace: &str, key: &str, value: usize) -> (String, Write) {
    let value = format!("{value}").repeat(8).into_bytes();
    (keyspace.to_owned(), Write::Put(key.into(), value))
}

fn delete(keyspace: &str, key: &str) -> (String, Write) {
    (keyspace.to_owned(), Write::Delete(key.into()))
}

/// Returns the operations of the history.
pub fn script() -> Vec<Op> {
    let create = |name: &str| Op::CreateKeyspace(name.to_owned());
    let both = |n| Op::Commit(vec![put("a", "shared", n), put("b", "shared", n)]);
    let own = |n: usize| Op::Commit(vec![put("a", &format!("key{}", n % 4), n)]);
    vec![
        create("a"),
        own(1),
        create("b"),
        both(2),
        own(3),
        own(5),
        Op::Flush,
        Op::Commit(vec![delete("a", "key1"), put("b", "other", 4)]),
        both(5),
        own(6),
        Op::Compact(String::new()),
        Op::Ingest(vec![
            put("a", "key2", 61),
            put("b", "other", 61),
            put("b", "z", 61),
        ]),
        own(7),
        create("c"),
        Op::Commit(vec![put("c", "gone", 8), put("a", "kept", 8)]),
        Op::DropKeyspace("c".to_owned()),
        both(9),
        Op::Reopen,
        own(10),
        create("c"),
        // `c` is empty, so the ingest goes into the last level.
        Op::Ingest(vec![put("c", "again", 11), put("c", "once more", 11)]),
        Op::Commit(vec![put("c", "again", 12), delete("b", "other")]),
        Op::Flush,
        both(12),
        own(13),
    ]
}

/// Plays the script until an operation fails with anything but a full device. An operation that met
/// a full device is tried again after `make_room`.
pub fn play(faults: &FaultVfs, options: &Options, make_room: &mut dyn FnMut()) -> Played {
    let mut played = Played {
        db: None,
        model: Model::new(),
        durable: 0,
        failed: None,
    };
    if let Err(error) = played.perform(faults, options, &Op::Reopen, make_room) {
        played.failed = Some((Op::Reopen, error));
        return played;
    }
    for op in script() {
        match played.perform(faults, options, &op, make_room) {
            Ok(()) => played.acknowledge(&op, options),
            Err(error) => {
                played.failed = Some((op, error));
                return played;
            }
        }
    }
    played
}

/// Tries of an operation that meets a full device.
const TRIES: usize = 3;

impl Played {
    fn perform(
        &mut self,
        faults: &FaultVfs,
        options: &Options,
        op: &Op,
        make_room: &mut dyn FnMut(),
    ) -> Result<()> {
        for _ in 1..TRIES {
            match self.attempt(faults, options, op) {
                Err(Error::NoSpace { .. }) => make_room(),
                other => return other,
            }
        }
        self.attempt(faults, options, op)
    }

    fn attempt(&mut self, faults: &FaultVfs, options: &Options, op: &Op) -> Result<()> {
        if *op == Op::Reopen {
            if let Some(db) = self.db.take() {
                // Commits that close could not sync are as durable as the level has promised.
                let _ = db.close();
            }
            let opened = Database::open_on(Arc::new(faults.clone()), dir(), options.clone());
            self.db = Some(opened?);
            return Ok(());
        }
        let db = self.db.as_ref().expect("open");
        let existing = |name: &str| Ok::<_, Error>(db.existing_keyspace(name)?.expect("exists"));
        match op {
            Op::CreateKeyspace(name) => db.keyspace(name, KeyspaceOptions::default()).map(drop),
            Op::DropKeyspace(name) => db.drop_keyspace(&existing(name)?),
            Op::Flush => db.flush(),
            Op::Compact(_) => db.settle(),
            Op::Ingest(writes) => ingest(db, writes).map(drop),
            Op::Commit(writes) => {
                let mut batch = WriteBatch::new();
                for (name, write) in writes {
                    match write {
                        Write::Put(key, value) => batch.put(&existing(name)?, key, value)?,
                        Write::Delete(key) => batch.delete(&existing(name)?, key)?,
                        other => unreachable!("{other:?} is not in the script"),
                    }
                }
                db.write(&batch)
            }
            other => unreachable!("{other} is not in the script"),
        }
    }

    fn acknowledge(&mut self, op: &Op, options: &Options) {
        op.apply(&mut self.model);
        let synced = match op {
            Op::CreateKeyspace(_)
            | Op::DropKeyspace(_)
            | Op::Ingest(_)
            | Op::Flush
            | Op::Compact(_) => true,
            _ => options.durability == Durability::Sync,
        };
        if synced {
            self.durable = self.model.last_commit();
        }
    }

    /// Opens the remaining files and checks that they hold a prefix of the commits, at least up to
    /// `at_least`, none of them torn. The operation that failed may be included.
    pub fn check(&self, left: &MemVfs, options: &Options, at_least: Commit, context: &str) {
        let db = Database::open_on(Arc::new(left.clone()), dir(), options.clone());
        let db = db.unwrap_or_else(|e| panic!("{context}: cannot open: {}", chain(&e)));
        self.check_state(&state_of(&db), at_least, context);
        let again = db.keyspace("again", KeyspaceOptions::default());
        let written = again.and_then(|keyspace| keyspace.put(b"a", b"1"));
        written.unwrap_or_else(|e| panic!("{context}: cannot write: {}", chain(&e)));
        db.close()
            .unwrap_or_else(|e| panic!("{context}: cannot close: {}", chain(&e)));
    }

    fn check_state(&self, state: &State, at_least: Commit, context: &str) {
        let Err(mismatch) = self.model.find_prefix(state, at_least) else {
            return;
        };
        if let Some((op, _)) = &self.failed {
            let mut further = self.model.clone();
            op.apply(&mut further);
            if *state == further.state() {
                return;
            }
        }
        panic!("{context}: {mismatch}");
    }
}

/// Returns the path of a file in the database directory.
pub fn path_of(name: &str) -> std::path::PathBuf {
    Path::new(dir()).join(name)
}
