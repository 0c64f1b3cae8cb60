//! The public cursor: rows of one keyspace at one read point, in both directions.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::HeldTime;
use crate::error::Result;
use crate::iter::merge::{Bounds, MergeCursor};
use crate::keyspace::Keyspace;
use crate::read_points::ReadPoint;
use crate::table::PinnedValue;
use crate::txn::read_set::{CursorReads, ReadSet};
use crate::txn::write_cursor::WriteCursor;

/// Which rows a cursor sees. The default is all.
#[derive(Debug, Clone, Default)]
pub struct CursorOptions {
    /// First key, inclusive; empty is the start of the keyspace.
    pub start: Vec<u8>,
    /// End, exclusive; `None` is the end of the keyspace.
    pub end: Option<Vec<u8>>,
    /// Whether only keys are wanted: then values that are stored apart are not read, and [`Cursor::value`] may be empty.
    pub keys_only: bool,
}

impl CursorOptions {
    /// All rows whose keys start with `prefix`. Where the prefix is at least as long as
    /// [`crate::KeyspaceOptions::prefix_filter_bytes`], filters skip what holds nothing of it.
    pub fn prefix(prefix: &[u8]) -> CursorOptions {
        let bounds = Bounds::prefix(prefix);
        CursorOptions {
            start: bounds.start,
            end: bounds.end,
            keys_only: false,
        }
    }

    /// Rows from `start` (inclusive) to `end` (exclusive).
    pub fn range(start: &[u8], end: &[u8]) -> CursorOptions {
        CursorOptions {
            start: start.to_vec(),
            end: Some(end.to_vec()),
            keys_only: false,
        }
    }
}

/// A position in a keyspace at a fixed read point. Owned and `Send`; keeps the database open.
///
/// Starts before the first row: call a `seek` first. A call that finds a row returns `Ok(true)`; then
/// [`Cursor::key`] and [`Cursor::value`] give it. While idle it keeps the versions that its read point needs, and
/// the tables of its last call, from being freed.
///
/// # Errors
///
/// Every move may meet `Corruption` and `Io` from the files that it reads. A seek also gets `KeyspaceDropped` and
/// `Closed`, while a cursor that is on its way finishes on what it holds. After an error seek again.
///
/// # Cost
///
/// A seek searches the memtables and the tables of one group that filters do not rule out; a move is a step in one of
/// them. Deleted rows that are not merged away are stepped over, unless an earlier scan has found their range empty.
///
/// ```
/// use alluvium::{CursorOptions, Database, KeyspaceOptions, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path(), Options::default())?;
/// let events = db.keyspace("events", KeyspaceOptions::default())?;
/// for time in [10, 20, 30_u32] {
///     events.put(&[b"ann/", &time.to_be_bytes()[..]].concat(), b"login")?;
/// }
/// // Newest first.
/// let mut cursor = events.cursor(CursorOptions::prefix(b"ann/"))?;
/// let mut found = cursor.seek_last()?;
/// let mut times = Vec::new();
/// while found {
///     times.push(cursor.key()[7]);
///     found = cursor.prev()?;
/// }
/// assert_eq!(times, [30, 20, 10]);
/// # Ok::<(), alluvium::Error>(())
/// ```
pub struct Cursor {
    keyspace: Keyspace,
    point: ReadPoint,
    /// Keeps what has not expired for this cursor from being merged away.
    _time: HeldTime,
    merge: MergeCursor,
    /// Notes what it reads for a transaction that must find it unchanged at its commit.
    reads: Option<CursorReads>,
}

impl Cursor {
    pub(crate) fn new(
        keyspace: Keyspace,
        point: ReadPoint,
        time: HeldTime,
        options: CursorOptions,
        writes: Option<WriteCursor>,
    ) -> Cursor {
        let bounds = Bounds {
            start: options.start,
            end: options.end,
        };
        let now_ms = keyspace.expires().then(|| time.now_ms());
        let tree = keyspace.tree().clone();
        let merge = MergeCursor::new(tree, point.seqno(), now_ms, bounds, writes);
        let merge = match options.keys_only {
            true => merge.keys_only(),
            false => merge,
        };
        Cursor {
            keyspace,
            point,
            _time: time,
            merge,
            reads: None,
        }
    }

    /// As [`Cursor::new`], noting in `reads` what is read.
    pub(crate) fn tracked(
        keyspace: Keyspace,
        point: ReadPoint,
        time: HeldTime,
        options: CursorOptions,
        writes: Option<WriteCursor>,
        reads: Arc<Mutex<ReadSet>>,
    ) -> Cursor {
        let tree = Arc::clone(keyspace.tree());
        let reads = CursorReads::new(reads, tree, options.start.clone(), options.end.clone());
        let mut cursor = Cursor::new(keyspace, point, time, options, writes);
        cursor.reads = Some(reads);
        cursor
    }

    /// Moves to the first row at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.keyspace.check()?;
        let found = self.merge.seek(key)?;
        if let Some(reads) = &self.reads {
            reads.sought(key, found.then(|| self.merge.key()));
        }
        Ok(found)
    }

    /// Moves to the last row before `key`.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        self.seek_back(Some(key))
    }

    fn seek_back(&mut self, key: Option<&[u8]>) -> Result<bool> {
        self.keyspace.check()?;
        let found = self.merge.seek_before(key)?;
        if let Some(reads) = &self.reads {
            reads.sought_before(key, found.then(|| self.merge.key()));
        }
        Ok(found)
    }

    /// Moves to the first row.
    pub fn seek_first(&mut self) -> Result<bool> {
        self.seek(&[])
    }

    /// Moves to the last row.
    pub fn seek_last(&mut self) -> Result<bool> {
        self.seek_back(None)
    }

    /// Moves to the next row; from before the first call or past an end it finds none.
    #[expect(
        clippy::should_implement_trait,
        reason = "rows are borrowed and errors are returned"
    )]
    pub fn next(&mut self) -> Result<bool> {
        let was_valid = self.merge.valid();
        let found = self.merge.next()?;
        if let Some(reads) = self.reads.as_ref().filter(|_| was_valid) {
            reads.stepped(found.then(|| self.merge.key()));
        }
        Ok(found)
    }

    /// Moves to the previous row.
    pub fn prev(&mut self) -> Result<bool> {
        let was_valid = self.merge.valid();
        let found = self.merge.prev()?;
        if let Some(reads) = self.reads.as_ref().filter(|_| was_valid) {
            reads.stepped_back(found.then(|| self.merge.key()));
        }
        Ok(found)
    }

    /// Whether the cursor is on a row.
    pub fn valid(&self) -> bool {
        self.merge.valid()
    }

    /// The current key. Panics where the cursor is not on a row.
    pub fn key(&self) -> &[u8] {
        self.merge.key()
    }

    /// The current value. Panics where the cursor is not on a row.
    pub fn value(&self) -> &[u8] {
        self.merge.value()
    }

    /// The current value, to keep after the cursor moves. Panics where the cursor is not on a row.
    pub fn pin_value(&self) -> PinnedValue {
        self.merge.pin_value()
    }

    /// The commit that the cursor shows.
    pub fn seqno(&self) -> crate::base::SeqNo {
        self.point.seqno()
    }
}
