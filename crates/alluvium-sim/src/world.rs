//! What the clients of one incarnation share: the database, its disk, the oracle, and which errors the plan explains.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvium::backup::BackupStore;
use alluvium::{Database, Durability, Error, Keyspace, KeyspaceOptions, Options};

use crate::disk::Disk;
use crate::history::{History, State, Stored, Write};
use crate::listener::RecordingListener;
use crate::plan::{EXPIRING, LASTING, PASSING, Read, Where};
use crate::reading::{Seen, expected, shown};
use crate::time::{MachineClock, Watch};

/// Where backups are.
pub const STORE: &str = "/backups";
/// How directories of repaired databases begin.
pub const REPAIRED: &str = "/repaired";

/// What all clients of one incarnation share.
pub struct World {
    /// The database of this incarnation.
    pub db: Database,
    /// Its disk.
    pub disk: Disk,
    /// The oracle.
    pub records: Arc<Records>,
    /// How the database was opened, but for its clock and its listener.
    pub options: Options,
    /// What it knows of the time.
    pub watch: Arc<Watch>,
    /// Who hears its events.
    pub listener: Option<Arc<RecordingListener>>,
    /// What a filter was shown and nobody wrote. Not held over a step.
    pub filter_failure: Arc<Mutex<Option<String>>>,
    /// The keyspace of marks, and those that last.
    pub keyspaces: Vec<Keyspace>,
    /// Transactions that were prepared when it was opened.
    pub inherited: Vec<u64>,
    /// What was visible then.
    pub opened_at: u64,
    /// The store of backups, once somebody has opened it. Not held over a step.
    pub store: Mutex<Option<Arc<BackupStore>>>,
    /// The directory of the database is moved away by a client.
    pub moved: AtomicBool,
    /// Another client has failed, or the incarnation is over.
    pub stop: AtomicBool,
}

/// What outlives an incarnation. No lock of these is held over a step.
#[derive(Default)]
pub struct Records {
    history: Mutex<History>,
    outside: Mutex<Outside>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// The clock of the machine.
    pub clock: Arc<MachineClock>,
}

/// What is known of a database beside its rows.
#[derive(Debug, Default)]
pub struct Outside {
    /// The ids of the keyspaces that last, once they were opened.
    pub lasting: Vec<u32>,
    /// Passing keyspaces by id.
    pub passing: BTreeMap<u32, Passing>,
    /// Transactions that were to be prepared, by their own number.
    pub prepared: BTreeMap<u64, Prepared>,
    /// Backups that were made, by their number.
    pub backups: BTreeMap<u64, Backup>,
    /// Somebody has tried to make a backup, and was not told that it is there.
    pub backup_tried: bool,
    /// Where each client's stream of changes goes on, by its number.
    pub positions: BTreeMap<usize, u64>,
    /// The options of keyspaces that somebody has changed, by id.
    pub settings: BTreeMap<u32, Settings>,
}

/// The options of a keyspace.
#[derive(Debug, Default)]
pub struct Settings {
    /// Those that it may have.
    pub possible: Vec<KeyspaceOptions>,
    /// How many changes are under way.
    pub running: u64,
    /// Some of those under way, or just over, went on at once.
    pub crowded: bool,
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

/// What is known of a backup.
#[derive(Debug, Clone)]
pub struct Backup {
    /// The commit that it holds.
    pub seqno: u64,
    /// The state after that commit; `None` where nobody knows for certain.
    pub state: Option<Arc<State>>,
    /// Somebody has tried to delete it.
    pub delete_tried: bool,
}

/// A failure of the engine, as a text.
pub type Checked<T> = Result<T, String>;

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

    /// Options of another database beside this one, with a watch of its own and without a listener.
    pub fn watched(&self, options: &Options) -> (Options, Arc<Watch>) {
        self.watched_from(options, None)
    }

    /// The same for a database that has recorded this time.
    pub fn watched_from(
        &self,
        options: &Options,
        recorded_ms: Option<u64>,
    ) -> (Options, Arc<Watch>) {
        let watch = Watch::new(&self.clock, recorded_ms);
        let options = Options {
            clock: watch.clock(),
            event_listener: None,
            ..options.clone()
        };
        (options, watch)
    }

    /// The rest.
    pub fn outside(&self) -> MutexGuard<'_, Outside> {
        lock(&self.outside)
    }
}

impl Drop for World {
    /// A listener that calls the database keeps it open.
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.detach();
        }
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
        let keeps_changes = self.options.change_log_bytes > 0;
        let explained = match error {
            Error::KeyspaceDropped(_) | Error::KeyspaceInUse { .. } => true,
            Error::Conflict { .. } | Error::Deadlock { .. } | Error::LockTimeout { .. } => true,
            Error::Io { .. } | Error::NoSpace { .. } => self.disk.has_failed(),
            // A wrong bit in a version number looks like a newer version.
            Error::Corruption { path, .. } | Error::NewerFormat { path, .. } => {
                self.disk.has_flipped_in(path)
            }
            // A newest segment whose first record cannot be read looks empty.
            Error::ChangesLost { .. } => {
                let log = Path::new("any.wal");
                !keeps_changes || self.disk.has_failed() || self.disk.has_flipped_in(log)
            }
            // Another client is about to open the store of backups.
            Error::Locked { path, .. } => path == Path::new(STORE),
            Error::Poisoned(first) if matches!(**first, Error::Internal(_)) => false,
            Error::Poisoned(_) => self.disk.may_have_stopped() || self.disk.has_flipped(),
            _ => false,
        };
        match explained {
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

    /// Compares a read of the newest state, or of a fixed one, with the states of these commits at these times.
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

    /// What the so-manieth write of a commit puts at a place. Rows that may expire go soon, later, or never.
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
            // By the wall clock, which may be wrong, or as users should.
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

/// A name of an error's kind, to be counted.
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

/// The value of the so-manieth write of a commit: unique, and sometimes long.
fn value_of(tag: u64, at: usize) -> Vec<u8> {
    let mut value = format!("v{tag}.{at}.").into_bytes();
    let len = [8, 20, 90, 700][(tag as usize * 7 + at) % 4];
    value.resize(value.len().max(len), b'0' + (tag % 10) as u8);
    value
}

/// A row's change as the history says it: `None` deletes it.
pub fn row(keyspace: &Keyspace, key: &[u8], stored: Option<&Stored>) -> Write {
    Write::Row((keyspace.id().0, key.to_vec()), stored.cloned())
}

/// Whether only who has a row's lock puts it: such rows may be inserted.
pub fn is_exclusive(key: &[u8]) -> bool {
    key.last().is_some_and(|last| last % 3 == 0)
}
