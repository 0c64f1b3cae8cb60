//! Streams of changes: every commit in order, from one of them on, as the log has it.
//!
//! Tables cannot tell what was written when: pairs of insert and delete cancel each other, numbers are zeroed, ingests
//! have one number for all their rows. So a [`Changes`] reads the log ([`crate::wal`]), up to what is visible, and gives
//! each record its meaning ([`meaning`]). An open stream keeps the segments that it has not read, within a limit
//! ([`crate::db::old_segments`]); beyond it the stream ends with an error, never with a gap. Nothing of this is on the
//! path of a commit but a look whether somebody waits.

mod meaning;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::time::Instant;

use self::meaning::Meaning;
use crate::base::{KeyspaceId, SeqNo};
use crate::db::old_segments::SegmentPin;
use crate::db::{Database, Durability};
use crate::error::{Error, Result};
use crate::keyspace::KeyspaceOptions;
use crate::wal::{FollowedRecord, LogFollower, LogPlace};

/// The changes of a database from one commit on, in commit order. Owned: it keeps the database open, and may be moved to
/// another thread.
///
/// ```
/// use alluvium::{ChangeKind, Database, KeyspaceOptions, Operation, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path(), Options::default())?;
/// let users = db.keyspace("users", KeyspaceOptions::default())?;
/// let mut changes = db.changes(db.visible_seqno() + 1)?;
/// users.put(b"ada", b"1815")?;
/// let change = changes.next()?.expect("a commit");
/// let ChangeKind::Commit { operations, .. } = &change.kind else {
///     panic!("not a commit");
/// };
/// assert!(matches!(&operations[..], [Operation::Put { key, .. }] if key == b"ada"));
/// assert!(changes.next()?.is_none());
/// assert_eq!(changes.next_seqno(), change.seqno + 1);
/// # Ok::<(), alluvium::Error>(())
/// ```
pub struct Changes {
    db: Database,
    options: ChangesOptions,
    log: LogFollower,
    /// Keeps the segment that `log` stands in and all later ones.
    pin: SegmentPin,
    meaning: Meaning,
    /// Read, and not yet returned.
    records: VecDeque<FollowedRecord>,
}

/// What a stream of changes shows: see [`Database::changes_with`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangesOptions {
    /// Only what no power loss can take away. Without it a stream of a database that commits with
    /// [`Durability::Buffered`] may show commits that are gone after a power loss, and others get their numbers.
    pub durable_only: bool,
    /// Only operations on keyspaces of these names, and changes of them; empty: on all. Commits without any of them are
    /// passed over.
    pub keyspaces: Vec<String>,
}

/// One step in the history of a database.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Its number in the commit order. Numbers rise; not every number is a change.
    pub seqno: SeqNo,
    /// What happened.
    pub kind: ChangeKind,
}

/// What a change is.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A commit. A transaction that was prepared comes once, where it was committed.
    Commit {
        /// To be applied in this order; range deletes come first, and touch nothing of this commit.
        operations: Vec<Operation>,
        /// The id of a transaction that was prepared.
        xid: Option<Vec<u8>>,
    },
    /// An ingest or a bulk load: its rows are not in the log. Read these keyspaces as of now, or copy them. Also there if
    /// it failed for want of space, or by a crash, just before its end; then nothing came.
    Ingest {
        /// Where rows came, and how many.
        keyspaces: Vec<(Arc<ChangedKeyspace>, u64)>,
    },
    /// A keyspace was created.
    KeyspaceCreated {
        /// Which.
        keyspace: Arc<ChangedKeyspace>,
        /// Its options.
        options: Box<KeyspaceOptions>,
    },
    /// A keyspace was dropped with everything in it.
    KeyspaceDropped {
        /// Which.
        keyspace: Arc<ChangedKeyspace>,
    },
    /// A keyspace has other options; its rows are the same. Also there if the change failed as for an ingest.
    OptionsChanged {
        /// Which.
        keyspace: Arc<ChangedKeyspace>,
        /// Its options now.
        options: Box<KeyspaceOptions>,
    },
}

/// One write of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A row was inserted or overwritten.
    Put {
        /// Where.
        keyspace: Arc<ChangedKeyspace>,
        /// Its key.
        key: Vec<u8>,
        /// Its value, large ones too.
        value: Vec<u8>,
        /// From when on it is absent, in milliseconds since 1970; `None`: it does not expire.
        until_ms: Option<u64>,
    },
    /// A row was deleted; there may have been none.
    Delete {
        /// Where.
        keyspace: Arc<ChangedKeyspace>,
        /// Its key.
        key: Vec<u8>,
    },
    /// All rows of a range were deleted that were there before this commit.
    DeleteRange {
        /// Where.
        keyspace: Arc<ChangedKeyspace>,
        /// Its first key.
        start: Vec<u8>,
        /// The first key behind it.
        end: Vec<u8>,
    },
}

/// A keyspace as a stream of changes knows it; it may be dropped by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedKeyspace {
    /// Its number, which no other keyspace of this database ever has.
    pub id: KeyspaceId,
    /// Its name, which another keyspace may have had before or may have later.
    pub name: String,
}

impl Database {
    /// The changes from commit `from` on: 1 for the first, one more than [`Database::visible_seqno`] for what comes next.
    ///
    /// What is committed and visible is shown, whether durable or not: see [`ChangesOptions::durable_only`]. Where the log
    /// has no older commits than recovery needs, which is soon the case, `from` must be recent; keep more of it with
    /// [`crate::Options::change_log_bytes`].
    ///
    /// # Errors
    ///
    /// `ChangesLost` where the log does not reach back to `from`. `InvalidArgument` for a `from` of which nothing is known
    /// yet: whoever has seen the commit before it has seen one that a power loss took away; and for a database without a
    /// log. `Closed`, `Io`, `Corruption`.
    ///
    /// # Cost
    ///
    /// A look at each segment from the newest back to that of `from`. An open stream keeps those that it has not read, up
    /// to [`crate::Options::memory_bytes`].
    pub fn changes(&self, from: SeqNo) -> Result<Changes> {
        self.changes_with(from, ChangesOptions::default())
    }

    /// As [`Database::changes`] with options.
    pub fn changes_with(&self, from: SeqNo, options: ChangesOptions) -> Result<Changes> {
        let shared = self.shared();
        shared.check_open()?;
        if shared.options.durability == Durability::None {
            let message =
                "the database keeps no log (durability none), which changes are read from";
            return Err(Error::InvalidArgument(message.into()));
        }
        let (from, visible) = (from.max(1), self.visible_seqno());
        if from > visible + 1 {
            let message = format!(
                "changes from commit {from} on were asked for, but the newest is {visible}: \
                 copy the database again if it has lost commits that were seen"
            );
            return Err(Error::InvalidArgument(message));
        }
        // First, so that nothing goes while the log is looked at.
        let pin = shared.old_segments.pin_all();
        let log = LogPlace {
            vfs: Arc::clone(&shared.vfs),
            dir: shared.dir.clone(),
            database_uid: shared.uid,
            logged_from: shared.opened_at,
        };
        let log = LogFollower::begin(log, from, visible)?;
        let mut changes = Changes {
            db: self.clone(),
            options,
            log,
            pin,
            meaning: Meaning::new(shared),
            records: VecDeque::new(),
        };
        changes.advance_pin();
        Ok(changes)
    }
}

impl Changes {
    /// The next change; `None` at the end of what is visible (or durable, where only that was asked for). More may come:
    /// call it again, or [`Changes::wait`] first.
    ///
    /// # Errors
    ///
    /// `ChangesLost` once commits that were not read yet are no longer kept: copy the database and begin behind the copy.
    /// `Corruption` names segment and offset; `Io`, `Closed`. After an error the stream stands where it stood.
    ///
    /// # Cost
    ///
    /// The log is read in pieces, past every lock of a commit. A change of a keyspace waits for the commits under way.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Change>> {
        self.db.shared().check_open()?;
        // Ends: each round takes a record, of which there are finitely many up to the end.
        loop {
            let Some(record) = self.records.front() else {
                if !self.read_more()? {
                    return Ok(None);
                }
                continue;
            };
            let (seqno, shared) = (record.seqno, self.db.shared());
            let wanted = &self.options.keyspaces;
            let kind = self.meaning.of(shared, record, wanted)?;
            self.records.pop_front();
            if let Some(kind) = kind {
                return Ok(Some(Change { seqno, kind }));
            }
        }
    }

    /// Where to resume: everything below this number has been returned, or is nothing that this stream shows.
    pub fn next_seqno(&self) -> SeqNo {
        let front = self.records.front().map(|record| record.seqno);
        front.unwrap_or(self.log.next_seqno())
    }

    /// Waits until there is more to read, without polling. Returns whether there is; `false` when `timeout` is over. What
    /// came may be nothing that this stream shows.
    ///
    /// # Errors
    ///
    /// `Closed` when the database is closed meanwhile; `Poisoned` where nothing more will come.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        /// A failure of the database may not wake everybody.
        const LOOK_AGAIN: Duration = Duration::from_secs(1);
        let shared = self.db.shared();
        let until = Instant::now().checked_add(timeout);
        shared.check_open()?;
        let mut log = shared.log.lock();
        // Ends: with the timeout.
        loop {
            shared.check_open()?;
            if self.end() >= self.next_seqno() {
                return Ok(true);
            }
            shared.poison.check()?;
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Ok(false);
            }
            let again = now + LOOK_AGAIN;
            let until = until.map_or(again, |until| until.min(again));
            shared.log_grew.wait_until(&mut log, until);
        }
    }

    /// The newest number that may be returned now.
    fn end(&self) -> SeqNo {
        let (shared, visible) = (self.db.shared(), self.db.visible_seqno());
        match self.options.durable_only {
            true => visible.min(shared.durable_seqno()),
            false => visible,
        }
    }

    /// Reads on in the log. Returns whether that brought anything.
    fn read_more(&mut self) -> Result<bool> {
        let end = self.end();
        let read = self.log.read(end, &mut self.records);
        self.advance_pin();
        // What came before an error is returned first; the error comes again.
        match self.records.is_empty() {
            true => read.map(|()| false),
            false => Ok(true),
        }
    }

    fn advance_pin(&mut self) {
        if let Some(segment) = self.log.segment() {
            self.pin.advance(segment);
        }
    }
}
