//! State shared by the clients of one incarnation: the database, its disk, the oracle, and the
//! check for errors that the plan explains.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use alluvium::backup::BackupStore;
use alluvium::{Database, Durability, Error, Keyspace, Options};

use crate::disk::{Disk, STORE};
use crate::listener::RecordingListener;
use crate::plan::{EXPIRING, LASTING, PASSING, Read, Where};
use crate::reading::{Seen, expected, shown};
use crate::records::{Checked, Records};
use crate::state::{Stored, Write};
use crate::time::Watch;

/// State shared by all clients of one incarnation.
pub struct World {
    /// Database of this incarnation.
    pub db: Database,
    /// Disk of the database.
    pub disk: Disk,
    /// Oracle.
    pub records: Arc<Records>,
    /// Options of the database, without its clock and its listener.
    pub options: Options,
    /// Expectations about the time that the database uses.
    pub watch: Arc<Watch>,
    /// Listener of its events, if the plan has one.
    pub listener: Option<Arc<RecordingListener>>,
    /// Message about a row shown to a filter but never written. Not held over a step.
    pub filter_failure: Arc<Mutex<Option<String>>>,
    /// Keyspace of marks, then the lasting keyspaces.
    pub keyspaces: Vec<Keyspace>,
    /// Tags of the transactions that were prepared when the database was opened.
    pub inherited: Vec<u64>,
    /// Visible commit number when the database was opened.
    pub opened_at: u64,
    /// Store of backups, once a client has opened it. Not held over a step.
    pub store: Mutex<Option<Arc<BackupStore>>>,
    /// True while a client has moved the database's directory away.
    pub moved: AtomicBool,
    /// True once a client has failed or the incarnation is over.
    pub stop: AtomicBool,
}

impl Drop for World {
    /// Detaches the listener, because a listener that calls the database keeps it open.
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.detach();
        }
    }
}

impl World {
    /// Returns the keyspace of a place, if it exists.
    pub fn keyspace(&self, place: Where) -> Checked<Option<Keyspace>> {
        if let Some(lasting) = self.keyspaces.get(1 + place.0) {
            return Ok(Some(lasting.clone()));
        }
        let name = PASSING[place.0 - LASTING.len()];
        self.known(self.db.existing_keyspace(name))
            .map(Option::flatten)
    }

    /// Returns the result of a call, or `None` for an error explained by the plan (see
    /// [`World::tolerate`]).
    pub fn known<T>(&self, result: alluvium::Result<T>) -> Checked<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.tolerate(&error).map(|()| None),
        }
    }

    /// Fails unless the plan explains this error.
    pub fn tolerate(&self, error: &Error) -> Checked<()> {
        let message = format!("{error} ({error:?})");
        self.records.count(kind_of(error), 1);
        let keeps_changes = self.options.change_log_bytes > 0;
        let explained = match error {
            Error::KeyspaceDropped(_) | Error::KeyspaceInUse { .. } => true,
            Error::Conflict { .. } | Error::Deadlock { .. } | Error::LockTimeout { .. } => true,
            Error::Io { .. } | Error::NoSpace { .. } => self.disk.has_failed(),
            // A wrong bit in a version number looks like a newer version.
            Error::Corruption { path, .. } | Error::NewerFormat { path, .. } => {
                self.disk.has_flipped_in(path)
            }
            // A newest segment with an unreadable first record looks empty.
            Error::ChangesLost { .. } => {
                let log = Path::new("any.wal");
                !keeps_changes || self.disk.has_failed() || self.disk.has_flipped_in(log)
            }
            // Another client is about to open the store of backups.
            Error::Locked { path, .. } => path == Path::new(STORE),
            Error::Poisoned(first) if matches!(**first, Error::Internal(_)) => false,
            Error::Poisoned(_) => self.disk.may_have_poisoned() || self.disk.has_flipped(),
            _ => false,
        };
        if explained {
            Ok(())
        } else {
            Err(format!("unexpected error: {message}"))
        }
    }

    /// Returns the durability of a commit.
    pub fn durability(&self, asked: Option<Durability>) -> Durability {
        asked.unwrap_or(self.options.durability)
    }

    /// Records the result of a commit. Returns its number if it was acknowledged.
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

    /// Compares a read with the states of these commits at these times.
    pub fn compare(
        &self,
        read: &Read,
        id: u32,
        seen: &Seen,
        between: RangeInclusive<u64>,
        moments: RangeInclusive<u64>,
    ) -> Checked<()> {
        let history = self.records.history();
        if history.is_uncertain(*between.end()) {
            return Ok(());
        }
        self.records.count("reads compared", 1);
        let times = history.times(moments.clone());
        let same = |seqno: u64| {
            let state = history.at(seqno);
            times
                .iter()
                .any(|time| history.admits(read, id, &state, *time, seen))
        };
        if between.clone().any(same) {
            return Ok(());
        }
        let wanted = expected(read, id, &history.at(*between.end()), *moments.end());
        let (seen, wanted) = (shown(seen), shown(&wanted));
        Err(format!(
            "keyspace {id}, {read:?}\n  saw {seen}\n  the state of commit {} has {wanted}, and no other of {between:?} has what was seen at {moments:?} ms",
            between.end()
        ))
    }

    /// Returns the value that the n-th write of a commit stores. In the expiring keyspace it
    /// expires soon, late, or never.
    pub fn stored(&self, place: Where, tag: u64, at: usize) -> Stored {
        let mut stored = Stored::lasting(&value_of(tag, at));
        if place == EXPIRING {
            let after = [
                None,
                Some(0),
                Some(1),
                Some(4),
                Some(30),
                Some(400),
                Some(9_000),
                Some(60_000),
            ];
            let after = after[(tag as usize * 5 + at) % after.len()];
            // Relative to the wall clock, which may be wrong, or to the database's time, as users
            // should do.
            let now = match tag % 2 {
                0 => self.records.clock.now_ms(),
                _ => self.watch.moment(&self.db).time_ms(),
            };
            stored.until_ms = after.map(|after| now + after);
            if let Some(until) = stored.until_ms {
                self.records.history().expect_deadline(until);
            }
        }
        stored
    }
}

/// Returns the name under which an error is counted.
fn kind_of(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } => "calls that met an I/O error",
        Error::NoSpace { .. } => "calls that found no space",
        Error::Corruption { .. } | Error::NewerFormat { .. } => "calls that met a wrong bit",
        Error::Internal(_) => "defects of the engine",
        Error::Poisoned { .. } => "calls that met the poison",
        Error::Conflict { .. } => "conflicts",
        Error::Deadlock { .. } => "deadlocks",
        Error::LockTimeout { .. } => "lock timeouts",
        Error::KeyspaceDropped(_) | Error::KeyspaceInUse { .. } => "refusals of a keyspace",
        Error::ChangesLost { .. } => "streams of changes that came too late",
        _ => "other errors",
    }
}

/// Returns the value of the n-th write of a commit: unique, and sometimes long.
fn value_of(tag: u64, at: usize) -> Vec<u8> {
    let mut value = format!("v{tag}.{at}.").into_bytes();
    let len = [8, 20, 90, 700][(tag as usize * 7 + at) % 4];
    value.resize(value.len().max(len), b'0' + (tag % 10) as u8);
    value
}

/// Returns the history's record of a row change: `None` deletes the row.
pub fn row(keyspace: &Keyspace, key: &[u8], stored: Option<&Stored>) -> Write {
    Write::Row((keyspace.id().0, key.to_vec()), stored.cloned())
}

/// Returns whether a row is written only under its row lock: such rows may be inserted.
pub fn is_exclusive(key: &[u8]) -> bool {
    key.last().is_some_and(|last| last % 3 == 0)
}
