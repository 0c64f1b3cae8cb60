//! Opens the files after a failure, finds the commit of their state, and checks the promise.

use std::path::PathBuf;
use std::sync::Arc;

use alluvium::backup::BackupStore;
use alluvium::vfs::{MemVfs, Vfs};
use alluvium::{CursorOptions, Database, KeyspaceOptions, Options};
use alluvium_testkit::model::{Commit, Model, State};

use super::player::{Fate, Promise, backups_dir, copy_dir};
use crate::driver::chain;
use crate::fixture::dir;

/// State found in a database.
#[derive(Debug, Clone)]
pub struct Found {
    /// The commit of the history that left this state.
    pub commit: Commit,
    /// The prepared transactions that it lists.
    pub prepared: Vec<Vec<u8>>,
    /// True if the checkpoint exists; it is then correct.
    pub checkpoint: bool,
    /// True if a backup exists; it is then correct.
    pub backup: bool,
}

/// The expected history.
pub struct Judge<'a> {
    pub model: &'a Model,
    pub options: &'a Options,
    /// The promise at the end of the history: the commits that its copies hold.
    pub last: &'a Promise,
}

/// The result of a check, or the reason why it is wrong.
pub type Verdict<T> = Result<T, String>;

fn told<T>(result: alluvium::Result<T>, what: &str) -> Verdict<T> {
    result.map_err(|e| format!("cannot {what}: {}", chain(&e)))
}

/// Returns all rows, read with cursors, or the first error.
pub fn rows(db: &Database) -> alluvium::Result<State> {
    let mut state = State::new();
    for name in db.keyspace_names()? {
        let keyspace = db.existing_keyspace(&name)?.expect("a listed keyspace");
        let mut cursor = keyspace.cursor(CursorOptions::default())?;
        let (rows, mut more) = (state.entry(name).or_default(), cursor.seek_first()?);
        while more {
            rows.insert(cursor.key().to_vec(), cursor.value().to_vec());
            more = cursor.next()?;
        }
    }
    Ok(state)
}

impl Judge<'_> {
    /// Opens the database, reads everything, and writes to it. If `thorough`, verifies every file
    /// too.
    pub fn look(&self, left: &MemVfs, thorough: bool) -> Verdict<Found> {
        let vfs: Arc<dyn Vfs> = Arc::new(left.clone());
        let opened = Database::open_on(Arc::clone(&vfs), dir(), self.options.clone());
        let db = told(opened, "open")?;
        let prepared = told(db.prepared(), "list prepared transactions")?;
        for xid in &prepared {
            let taken = db.take_prepared(xid).and_then(|taken| taken.rollback());
            told(taken, "roll a prepared transaction back")?;
        }
        let state = told(rows(&db), "read")?;
        let found = self.model.find_prefix(&state, 0);
        let commit = found.map_err(|mismatch| mismatch.to_string())?;
        if thorough {
            let report = told(db.verify(), "verify")?;
            if !report.is_clean() {
                return Err(format!("verify found {report:?}"));
            }
        }
        let checkpoint = self.checkpoint(left, &vfs)?;
        let backup = self.backup(left, &vfs)?;
        let again = db.keyspace("again", KeyspaceOptions::default());
        told(again.and_then(|k| k.put(b"a", b"1")), "write")?;
        told(db.close(), "close")?;
        Ok(Found {
            commit,
            prepared,
            checkpoint,
            backup,
        })
    }

    /// Returns true if the target of the checkpoint exists; it must then be whole.
    fn checkpoint(&self, left: &MemVfs, vfs: &Arc<dyn Vfs>) -> Verdict<bool> {
        let Some(copied) = self.last.checkpoint else {
            return Ok(false);
        };
        if !left.exists(copy_dir()).expect("look") {
            return Ok(false);
        }
        let options = Options {
            read_only: true,
            ..self.options.clone()
        };
        let copy = Database::open_on(Arc::clone(vfs), copy_dir(), options);
        let copy = told(copy, "open the checkpoint")?;
        let state = told(rows(&copy), "read the checkpoint")?;
        self.same(&state, copied.commit, "the checkpoint")?;
        Ok(true)
    }

    /// Returns true if there is a backup; it must then be whole.
    fn backup(&self, left: &MemVfs, vfs: &Arc<dyn Vfs>) -> Verdict<bool> {
        let Some(copied) = self.last.backup else {
            return Ok(false);
        };
        if !left.exists(backups_dir()).expect("look") {
            return Ok(false);
        }
        let store = BackupStore::open_on(Arc::clone(vfs), backups_dir());
        let store = told(store, "open the backups")?;
        let list = told(store.list(), "list the backups")?;
        if let Some((id, error)) = list.damaged.first() {
            return Err(format!("backup {id} is damaged: {}", chain(error)));
        }
        for backup in &list.backups {
            let target = PathBuf::from(format!("restored{}", backup.id));
            told(store.restore(backup.id, &target), "restore a backup")?;
            let restored = Database::open_on(Arc::clone(vfs), &target, self.options.clone());
            let restored = told(restored, "open what was restored")?;
            let state = told(rows(&restored), "read what was restored")?;
            self.same(&state, copied.commit, "the backup")?;
        }
        Ok(!list.backups.is_empty())
    }

    fn same(&self, state: &State, commit: Commit, what: &str) -> Verdict<()> {
        let expected = self.model.state_at(commit);
        if *state == expected {
            return Ok(());
        }
        Err(format!("{what} is not the state of commit {commit}"))
    }
}

impl Found {
    /// Checks that the state keeps a promise; `killed`: the promise for a killed process, instead
    /// of a power loss.
    pub fn keeps(&self, promise: &Promise, killed: bool) -> Verdict<()> {
        let at_least = if killed {
            promise.acked
        } else {
            promise.durable
        };
        if self.commit < at_least {
            let commit = self.commit;
            return Err(format!(
                "promised commits are lost: {at_least} is promised, {commit} is left"
            ));
        }
        if promise.checkpoint.is_some_and(|copied| copied.done) && !self.checkpoint {
            return Err("the checkpoint is lost".into());
        }
        if promise.backup.is_some_and(|copied| copied.done) && !self.backup {
            return Err("the backup is lost".into());
        }
        self.keeps_prepared(promise)
    }

    fn keeps_prepared(&self, promise: &Promise) -> Verdict<()> {
        for (xid, fate) in &promise.prepared {
            let listed = self.prepared.contains(xid);
            let right = match fate {
                Fate::PrepareTried | Fate::Deciding(None) => true,
                Fate::Prepared => listed,
                Fate::Deciding(Some(commit)) => listed == (self.commit < *commit),
            };
            if !right {
                return Err(format!(
                    "prepared transaction {} ({fate:?}), listed: {listed}, commit {}",
                    xid.escape_ascii(),
                    self.commit
                ));
            }
        }
        for xid in &self.prepared {
            if !promise.prepared.contains_key(xid) {
                return Err(format!("{} was never prepared", xid.escape_ascii()));
            }
        }
        Ok(())
    }
}
