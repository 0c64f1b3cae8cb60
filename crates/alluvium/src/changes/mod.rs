//! Streams of changes: every commit in log order, starting at any commit that the log still holds.
//!
//! Tables do not record when a row was written: inserts and their deletes cancel each other,
//! sequence numbers are zeroed, and all rows of an ingest have one number. So a [`Changes`] reads
//! the log ([`crate::wal`]) up to the newest visible commit, and interprets each record
//! ([`meaning`]).
//!
//! An open stream keeps the segments that it has not read, within a limit
//! ([`crate::db::old_segments`]). Beyond the limit the stream ends with an error, never with a gap.
//! The only cost for a commit is a check for waiting streams.

mod change;
mod meaning;

pub use change::{Change, ChangeKind, ChangedKeyspace, Operation};

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::time::Instant;

use self::meaning::Meaning;
use crate::base::SeqNo;
use crate::commit::old_segments::SegmentPin;
use crate::db::{Database, Durability};
use crate::error::{Error, Result};
use crate::wal::{FollowedRecord, LogFollower, LogPlace};

/// Stream of the changes of a database in commit order. It is owned: it keeps the database open and
/// may be moved to another thread.
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
    /// Keeps the current segment of `log` and all later ones.
    pin: SegmentPin,
    meaning: Meaning,
    /// Records that are read and not yet returned.
    records: VecDeque<FollowedRecord>,
}

/// Options of a stream of changes, see [`Database::changes_with`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangesOptions {
    /// If true, returns only commits that survive any power loss. If false and the database commits
    /// with [`Durability::Buffered`], the stream may return commits that a power loss removes, and
    /// other commits may then get their numbers. So may, at every durability, the steps of prepared
    /// transactions that wait for no sync, and the number of a prepare whose sync has not ended.
    pub durable_only: bool,
    /// Names of keyspaces to return operations and changes of; empty: all. Commits without any of
    /// them are skipped.
    pub keyspaces: Vec<String>,
}

impl Database {
    /// Returns the changes from commit `from` on: 1 for the first commit,
    /// [`Database::visible_seqno`] plus one for the next.
    ///
    /// The stream returns visible commits, durable or not: see [`ChangesOptions::durable_only`].
    /// The log keeps only the commits that recovery still needs, so `from` must be recent. Set
    /// [`crate::Options::change_log_bytes`] to keep more of the log.
    ///
    /// # Errors
    ///
    /// `ChangesLost` if the log does not reach back to `from`. `InvalidArgument` for a database
    /// without a log and for a `from` more than one above the newest commit: a caller with such a
    /// number has seen a commit that a power loss removed. `Closed`, `Io`, `Corruption`.
    ///
    /// # Cost
    ///
    /// Opens each segment from the newest back to that of `from`. An open stream keeps the segments
    /// that it has not read, up to [`crate::Options::memory_bytes`].
    pub fn changes(&self, from: SeqNo) -> Result<Changes> {
        self.changes_with(from, ChangesOptions::default())
    }

    /// Returns the changes as [`Database::changes`] does, with options.
    pub fn changes_with(&self, from: SeqNo, options: ChangesOptions) -> Result<Changes> {
        let shared = self.shared();
        shared.core.access.check_open()?;
        if shared.core.options.durability == Durability::None {
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
        // First, so that no segment is removed while the log is examined.
        let pin = shared.old_segments.pin_all();
        let log = LogPlace {
            vfs: Arc::clone(&shared.core.files.vfs),
            dir: shared.core.files.dir.clone(),
            database_uid: shared.uid,
            logged_from: shared.commits.env.progress.opened_at,
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
    /// Returns the next change; `None` at the end of the visible commits (or of the durable ones,
    /// with [`ChangesOptions::durable_only`]). More may follow: call it again, or [`Changes::wait`]
    /// first.
    ///
    /// # Errors
    ///
    /// `ChangesLost` if unread commits are no longer kept: copy the database and start after the
    /// copy. `Corruption` names segment and offset. `Io`, `Closed`. After an error the position of
    /// the stream is unchanged.
    ///
    /// # Cost
    ///
    /// Reads the log in pieces and takes no lock that a commit needs, with one exception: for a
    /// created, dropped or altered keyspace it waits for the commits in progress.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Change>> {
        self.db.shared().core.access.check_open()?;
        // Ends: each round takes a record, and the records up to the end are finite.
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

    /// Returns the number to resume from: the stream has returned or skipped everything below it.
    pub fn next_seqno(&self) -> SeqNo {
        let front = self.records.front().map(|record| record.seqno);
        front.unwrap_or(self.log.next_seqno())
    }

    /// Sleeps until there is more to read; a commit wakes it. Returns false if `timeout` expires
    /// first. The new records may be ones that this stream skips.
    ///
    /// # Errors
    ///
    /// `Closed` if the database is closed meanwhile; `Poisoned` if no more commits can follow.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        /// A failure of the database may not wake every waiting stream.
        const LOOK_AGAIN: Duration = Duration::from_secs(1);
        let shared = self.db.shared();
        let until = Instant::now().checked_add(timeout);
        shared.core.access.check_open()?;
        let mut log = shared.commits.log.lock();
        // Ends: at the timeout.
        loop {
            shared.core.access.check_open()?;
            if self.end() >= self.next_seqno() {
                return Ok(true);
            }
            shared.core.poison.check()?;
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Ok(false);
            }
            let again = now + LOOK_AGAIN;
            let until = until.map_or(again, |until| until.min(again));
            shared.commits.env.progress.grew.wait_until(&mut log, until);
        }
    }

    /// Returns the newest number that may be returned now.
    fn end(&self) -> SeqNo {
        let (shared, visible) = (self.db.shared(), self.db.visible_seqno());
        if self.options.durable_only {
            visible.min(shared.commits.env.progress.durable())
        } else {
            visible
        }
    }

    /// Reads on in the log. Returns true if there are records to return.
    fn read_more(&mut self) -> Result<bool> {
        let end = self.end();
        let read = self.log.read(end, &mut self.records);
        self.advance_pin();
        // Records read before an error are returned first; the error then occurs again.
        if self.records.is_empty() {
            read.map(|()| false)
        } else {
            Ok(true)
        }
    }

    fn advance_pin(&mut self) {
        if let Some(segment) = self.log.segment() {
            self.pin.advance(segment);
        }
    }
}
