//! Plays a history on any file system and records the promises that the engine has made.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use alluvium::backup::BackupStore;
use alluvium::vfs::Vfs;
use alluvium::{
    BulkLoadOptions, Database, Durability, Isolation, KeyspaceOptions, Options, Result,
    Transaction, WriteBatch,
};
use alluvium_testkit::model::{Commit, Model, Write};

use super::history::{Decision, Row, Step, keyspace_options};
use crate::driver::ingest;
use crate::fixture::dir;

pub fn copy_dir() -> &'static Path {
    Path::new("copy")
}

pub fn backups_dir() -> &'static Path {
    Path::new("backups")
}

/// Progress of a prepared transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    PrepareTried,
    Prepared,
    /// Its commit, with the commit number, or its rollback (`None`) was tried and perhaps
    /// acknowledged.
    Deciding(Option<Commit>),
}

/// A checkpoint or backup: the commit it holds, and true if the call has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    pub commit: Commit,
    pub done: bool,
}

/// State that must exist after a failure at this moment.
#[derive(Debug, Clone, Default)]
pub struct Promise {
    /// The newest acknowledged commit, which survives the end of the process.
    pub acked: Commit,
    /// The newest commit that is certainly durable.
    pub durable: Commit,
    pub prepared: BTreeMap<Vec<u8>, Fate>,
    pub checkpoint: Option<Copied>,
    pub backup: Option<Copied>,
}

/// Plays the steps of a history and keeps the model and the promise up to date.
pub struct Player {
    pub vfs: Arc<dyn Vfs>,
    pub options: Options,
    pub db: Option<Database>,
    /// Every commit that was begun. The last one may not have happened.
    pub model: Model,
    pub promise: Promise,
    /// The writes of prepared transactions.
    pending: BTreeMap<&'static str, Vec<Row>>,
}

impl Player {
    pub fn new(vfs: Arc<dyn Vfs>, options: Options) -> Player {
        Player {
            vfs,
            options,
            db: None,
            model: Model::new(),
            promise: Promise::default(),
            pending: BTreeMap::new(),
        }
    }

    /// Plays one step. Calls `note` with the promise before and after it.
    pub fn step(&mut self, step: &Step, note: &mut dyn FnMut(&Promise)) -> Result<()> {
        self.begin(step);
        note(&self.promise);
        self.attempt(step)?;
        self.acknowledge(step);
        note(&self.promise);
        Ok(())
    }

    /// Records the effect that the step has if it happens.
    pub fn begin(&mut self, step: &Step) {
        match step {
            Step::Create(name) => drop(self.model.create_keyspace(name)),
            Step::CreateAll(names) => {
                for name in *names {
                    if !self.model.keyspaces().contains(name) {
                        self.model.create_keyspace(name);
                    }
                }
            }
            Step::Drop(name) => drop(self.model.drop_keyspace(name)),
            Step::Batch(rows)
            | Step::Transaction(rows)
            | Step::Ingest(rows)
            | Step::BulkLoad(rows) => drop(self.commit(rows)),
            Step::Prepare(xid, rows) => {
                self.pending.insert(xid, rows.clone());
                self.fate(xid, Fate::PrepareTried);
            }
            Step::Resolve(xid, decision) => {
                let rows = self.pending.remove(xid).expect("it is prepared");
                let commits = *decision == Decision::Commit;
                let commit = commits.then(|| self.commit(&rows));
                self.fate(xid, Fate::Deciding(commit));
            }
            Step::Checkpoint => self.promise.checkpoint = self.copied(false),
            Step::Backup => self.promise.backup = self.copied(false),
            _ => {}
        }
    }

    fn commit(&mut self, rows: &[Row]) -> Commit {
        let writes = rows.iter().map(|(name, write)| (name.as_str(), write));
        self.model.commit(writes)
    }

    fn fate(&mut self, xid: &str, fate: Fate) {
        self.promise.prepared.insert(xid.as_bytes().to_vec(), fate);
    }

    fn copied(&self, done: bool) -> Option<Copied> {
        let commit = self.model.last_commit();
        Some(Copied { commit, done })
    }

    /// Records that the step has happened.
    pub fn acknowledge(&mut self, step: &Step) {
        self.promise.acked = self.model.last_commit();
        match step {
            Step::Prepare(xid, _) => self.fate(xid, Fate::Prepared),
            Step::Checkpoint => self.promise.checkpoint = self.copied(true),
            Step::Backup => self.promise.backup = self.copied(true),
            _ => {}
        }
        let synced = match step {
            Step::Batch(_) | Step::Transaction(_) | Step::Resolve(..) => {
                self.options.durability == Durability::Sync
            }
            Step::CompactRange(_) | Step::Reopen => false,
            // Without rows there is nothing to make durable.
            Step::Ingest(rows) | Step::BulkLoad(rows) => !rows.is_empty(),
            _ => true,
        };
        if synced {
            self.promise.durable = self.promise.acked;
        }
    }

    /// Makes the engine's call for a step.
    pub fn attempt(&mut self, step: &Step) -> Result<()> {
        if matches!(step, Step::Reopen) {
            return self.reopen();
        }
        let db = self.db.clone().expect("open");
        let keyspace = |name: &str| db.keyspace(name, keyspace_options(name));
        match step {
            Step::Create(name) => keyspace(name).map(drop),
            Step::CreateAll(names) => {
                let wanted = names.iter().map(|name| (*name, keyspace_options(name)));
                db.keyspaces(&wanted.collect::<Vec<_>>()).map(drop)
            }
            Step::Drop(name) => db.drop_keyspace(&keyspace(name)?),
            Step::Batch(rows) => db.write(&batch(&db, rows)?),
            Step::Transaction(rows) => transaction(&db, rows)?.commit(),
            Step::Ingest(rows) => ingest(&db, rows).map(drop),
            Step::BulkLoad(rows) => bulk_load(&db, rows),
            Step::Flush => db.flush(),
            Step::Settle => db.settle(),
            Step::CompactRange(name) => keyspace(name)?.compact_range(&[], None),
            Step::ChangeOptions(name) => {
                let options = KeyspaceOptions {
                    block_bytes: 2048,
                    ..keyspace_options(name)
                };
                keyspace(name)?.set_options(options)
            }
            Step::Sync => db.sync(),
            Step::Prepare(xid, rows) => transaction(&db, rows)?.prepare(xid.as_bytes()).map(drop),
            Step::Resolve(xid, Decision::Commit) => db.take_prepared(xid.as_bytes())?.commit(),
            Step::Resolve(xid, Decision::Rollback) => db.take_prepared(xid.as_bytes())?.rollback(),
            Step::Checkpoint => db.checkpoint(copy_dir()).map(drop),
            Step::Backup => {
                let store = BackupStore::open_on(Arc::clone(&self.vfs), backups_dir())?;
                store.create(&db).map(drop)
            }
            Step::Reopen => unreachable!(),
        }
    }

    fn reopen(&mut self) -> Result<()> {
        if let Some(db) = self.db.take()
            && db.close().is_ok()
        {
            self.promise.durable = self.promise.acked;
        }
        self.db = Some(Database::open_on(
            Arc::clone(&self.vfs),
            dir(),
            self.options.clone(),
        )?);
        Ok(())
    }
}

fn batch(db: &Database, rows: &[Row]) -> Result<WriteBatch> {
    let mut batch = WriteBatch::new();
    for (name, write) in rows {
        let keyspace = db.keyspace(name, keyspace_options(name))?;
        match write {
            Write::Put(key, value) => batch.put(&keyspace, key, value)?,
            Write::Insert(key, value) => batch.insert(&keyspace, key, value)?,
            Write::Delete(key) => batch.delete(&keyspace, key)?,
            Write::DeleteRange(from, to) if from < to => batch.delete_range(&keyspace, from, to)?,
            Write::DeleteRange(..) => {}
        }
    }
    Ok(batch)
}

fn transaction(db: &Database, rows: &[Row]) -> Result<Transaction> {
    let txn = db.begin(Isolation::Snapshot)?;
    for (name, write) in rows {
        let keyspace = db.keyspace(name, keyspace_options(name))?;
        match write {
            Write::Put(key, value) => txn.put(&keyspace, key, value)?,
            Write::Insert(key, value) => txn.insert(&keyspace, key, value)?,
            Write::Delete(key) => txn.delete(&keyspace, key)?,
            Write::DeleteRange(from, to) if from < to => txn.delete_range(&keyspace, from, to)?,
            Write::DeleteRange(..) => {}
        }
    }
    Ok(txn)
}

fn bulk_load(db: &Database, rows: &[Row]) -> Result<()> {
    let mut load = db.bulk_load(BulkLoadOptions::default())?;
    for (name, write) in rows.iter().rev() {
        let Write::Put(key, value) = write else {
            unreachable!("only puts are loaded");
        };
        load.put(&db.keyspace(name, keyspace_options(name))?, key, value)?;
    }
    load.finish().map(drop)
}
