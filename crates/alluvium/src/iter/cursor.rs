//! Public cursor: rows of one keyspace at one read point, in both directions.
//!
//! The references that pin memtables and tables are guarded by a mutex of the cursor, and the
//! engine may take them while no call is in progress: see `keyspace/resting.rs`. The row that the
//! caller reads between two calls is stored separately.

use std::sync::{Arc, Weak};

use alluvium_mem::process::Owned;

use crate::sync::plain::Mutex;

use crate::clock::HeldTime;
use crate::error::{Error, Result};
use crate::iter::bounds::{Bounds, Direction};
use crate::iter::held_row::HeldRow;
use crate::iter::merge::MergeCursor;
use crate::keyspace::Keyspace;
use crate::keyspace::expiry::EXPIRY_BYTES;
use crate::keyspace::resting::{OpenCursor, Resting};
use crate::read_points::ReadPoint;
use crate::table::PinnedValue;
use crate::txn::read_set::{CursorReads, ReadSet};
use crate::txn::write_cursor::WriteCursor;

/// Rows that a cursor shows. The default is all.
#[derive(Debug, Clone, Default)]
pub struct CursorOptions {
    /// First key, inclusive; empty is the start of the keyspace.
    pub start: Vec<u8>,
    /// End, exclusive; `None` is the end of the keyspace.
    pub end: Option<Vec<u8>>,
    /// Show keys only: separated values are not read, and [`Cursor::value`] is empty.
    pub keys_only: bool,
}

impl CursorOptions {
    /// Selects all rows with the key prefix `prefix`. If the prefix is at least as long as
    /// [`crate::KeyspaceOptions::prefix_filter_bytes`], filters skip tables without rows of it.
    pub fn prefix(prefix: &[u8]) -> CursorOptions {
        let bounds = Bounds::prefix(prefix);
        CursorOptions {
            start: bounds.start,
            end: bounds.end,
            keys_only: false,
        }
    }

    /// Selects rows from `start` (inclusive) to `end` (exclusive).
    pub fn range(start: &[u8], end: &[u8]) -> CursorOptions {
        CursorOptions {
            start: start.to_vec(),
            end: Some(end.to_vec()),
            keys_only: false,
        }
    }
}

/// Position in a keyspace at a fixed read point. Owned and `Send`; keeps the database open.
///
/// Starts before the first row: call a `seek` first. A call that finds a row returns `Ok(true)`;
/// then [`Cursor::key`] and [`Cursor::value`] return the row. An idle cursor keeps the versions
/// that its read point needs from being compacted away, and its row in memory. It does not keep
/// replaced memtables and tables: the engine takes them, and the next call seeks to the position
/// again.
///
/// # Errors
///
/// Every move may return `Corruption` and `Io` from the files that it reads, and `KeyspaceDropped`
/// and `Closed`. After an error the cursor is on no row: seek again.
///
/// # Cost
///
/// A seek searches the memtables and the tables of one group that filters do not rule out; a move
/// is a step in one of them. Deleted rows that are not compacted away are stepped over, unless an
/// earlier scan found their range empty.
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
    /// Row that the caller sees.
    row: HeldRow,
    held: Owned<Held>,
}

/// State that the cursor shares with the database or with its transaction.
struct Held {
    point: ReadPoint,
    /// Keeps rows that have not expired for this cursor from being compacted away.
    _time: HeldTime,
    sources: Arc<RestingMerge>,
    /// Slot in the tree's list of open cursors.
    open: OpenCursor,
    /// Records the cursor's reads for a transaction that must find them unchanged at its commit.
    reads: Option<CursorReads>,
}

/// Merge of a cursor; the engine may take its state while the cursor rests.
struct RestingMerge {
    /// Guards the merge. A call of the cursor holds it for its whole duration, I/O included.
    /// Background threads only try it, and hold it for a few pointer moves. For them it is a leaf;
    /// in a cursor's call, the locks of sources come after it.
    merge: Mutex<MergeCursor>,
}

impl Resting for RestingMerge {
    fn let_go(&self) -> bool {
        let Some(mut merge) = self.merge.try_lock() else {
            return false;
        };
        let held = merge.is_stale().then(|| merge.take_state()).flatten();
        drop(merge);
        // Freed after the mutex is released, so that no thread waits for it.
        held.is_some()
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if self.held.is_current() {
            self.keyspace.tree().cursors.close(self.held.open);
        }
    }
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
        let merge = if options.keys_only {
            merge.keys_only()
        } else {
            merge
        };
        let hidden_bytes = now_ms.map_or(0, |_| EXPIRY_BYTES);
        let merge = Mutex::new(merge);
        let sources = Arc::new(RestingMerge { merge });
        let resting: Weak<RestingMerge> = Arc::downgrade(&sources);
        let held = Held {
            open: keyspace.tree().cursors.open(resting),
            point,
            _time: time,
            sources,
            reads: None,
        };
        Cursor {
            keyspace,
            row: HeldRow::new(hidden_bytes),
            held: Owned::new(held),
        }
    }

    /// As [`Cursor::new`], and records reads in `reads`.
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
        cursor.held.reads = Some(reads);
        cursor
    }

    /// Moves and shows the resulting row.
    fn go(
        &mut self,
        mv: impl FnOnce(&mut MergeCursor, &Keyspace, &HeldRow) -> Result<bool>,
    ) -> Result<bool> {
        if !self.held.is_current() {
            self.row.clear();
            return Err(Error::Forked);
        }
        let mut merge = self.held.sources.merge.lock();
        let moved = mv(&mut merge, &self.keyspace, &self.row);
        match moved {
            Ok(true) => merge.show(&mut self.row),
            Ok(false) | Err(_) => self.row.clear(),
        }
        // A thread that replaced the state during the call found the merge in use.
        let replaced = merge.is_stale().then(|| merge.take_state());
        drop(merge);
        drop(replaced);
        moved
    }

    fn seek_to(&mut self, direction: Direction, edge: Option<&[u8]>) -> Result<bool> {
        let found = self.go(|merge, keyspace, _| {
            keyspace.check()?;
            merge.seek(direction, edge)
        })?;
        if let Some(reads) = &self.held.reads {
            let row = found.then(|| self.row.key());
            match direction {
                Direction::Forward => reads.sought(edge.unwrap_or_default(), row),
                Direction::Reverse => reads.sought_before(edge, row),
            }
        }
        Ok(found)
    }

    fn step(&mut self, direction: Direction) -> Result<bool> {
        if !self.row.is_row() {
            return Ok(false);
        }
        let found = self.go(|merge, keyspace, row| {
            if !merge.is_stale() {
                return merge.step(direction);
            }
            keyspace.check()?;
            merge.seek_past(direction, row.key())
        })?;
        if let Some(reads) = &self.held.reads {
            let row = found.then(|| self.row.key());
            match direction {
                Direction::Forward => reads.stepped(row),
                Direction::Reverse => reads.stepped_back(row),
            }
        }
        Ok(found)
    }

    /// Moves to the first row at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.seek_to(Direction::Forward, Some(key))
    }

    /// Moves to the last row before `key`.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        self.seek_to(Direction::Reverse, Some(key))
    }

    /// Moves to the first row.
    pub fn seek_first(&mut self) -> Result<bool> {
        self.seek_to(Direction::Forward, None)
    }

    /// Moves to the last row.
    pub fn seek_last(&mut self) -> Result<bool> {
        self.seek_to(Direction::Reverse, None)
    }

    /// Moves to the next row; finds none before the first seek or past an end.
    #[expect(
        clippy::should_implement_trait,
        reason = "rows are borrowed and errors are returned"
    )]
    pub fn next(&mut self) -> Result<bool> {
        self.step(Direction::Forward)
    }

    /// Moves to the previous row.
    pub fn prev(&mut self) -> Result<bool> {
        self.step(Direction::Reverse)
    }

    /// Returns true if the cursor is on a row.
    pub fn valid(&self) -> bool {
        self.row.is_row()
    }

    /// Returns the current key. Panics if the cursor is not on a row.
    pub fn key(&self) -> &[u8] {
        self.row.key()
    }

    /// Returns the current value. Panics if the cursor is not on a row.
    pub fn value(&self) -> &[u8] {
        self.row.value()
    }

    /// Returns the current value, to keep after the cursor moves. Panics if the cursor is not on a
    /// row.
    pub fn pin_value(&self) -> PinnedValue {
        self.row.pin_value()
    }

    /// Returns the sequence number of the commit that the cursor shows.
    pub fn seqno(&self) -> crate::base::SeqNo {
        self.held.point.seqno()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::db::{Database, Options};
    use crate::keyspace::KeyspaceOptions;
    use crate::vfs::MemVfs;

    #[test]
    fn nothing_of_a_replaced_state_is_left_in_memory_under_cursors_at_rest() {
        let options = Options {
            idle_after: None,
            ..Options::default()
        };
        let db = Database::open_on(Arc::new(MemVfs::new()), "db", options).expect("open");
        let k = db
            .keyspace("k", KeyspaceOptions::default())
            .expect("keyspace");
        let mut cursors = Vec::new();
        let mut held = Vec::new();
        for round in 0..5 {
            k.put(b"a", &[round; 9]).expect("put");
            k.put(b"b", &[round; 9]).expect("put");
            let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
            assert!(cursor.seek_last().expect("seek"));
            cursors.push(cursor);
            let state = k.tree().load_full();
            held.push((
                Arc::downgrade(&state.active.as_ref().expect("written").rows),
                Arc::downgrade(&state.version),
            ));
            drop(state);
            db.flush().expect("flush");
            if round == 3 {
                k.compact_range(&[], None).expect("compact");
            }
        }
        for cursor in &cursors {
            assert!(cursor.held.sources.merge.lock().take_state().is_none());
        }
        for (round, cursor) in (0..5).zip(&mut cursors) {
            assert_eq!((cursor.key(), cursor.value()), (&b"b"[..], &[round; 9][..]));
            assert!(cursor.prev().expect("prev"));
            assert_eq!((cursor.key(), cursor.value()), (&b"a"[..], &[round; 9][..]));
        }
        // Background threads also hold states for a moment.
        db.close().expect("close");
        for (memtable, version) in &held {
            assert!(memtable.upgrade().is_none() && version.upgrade().is_none());
        }
        for (round, cursor) in (0..5).zip(&cursors) {
            assert_eq!((cursor.key(), cursor.value()), (&b"a"[..], &[round; 9][..]));
        }
    }

    #[test]
    fn a_cursor_that_is_in_a_call_is_passed_over_and_asked_again() {
        let db = Database::open_on(Arc::new(MemVfs::new()), "db", Options::default());
        let db = db.expect("open");
        let k = db
            .keyspace("k", KeyspaceOptions::default())
            .expect("keyspace");
        k.put(b"a", b"1").expect("put");
        let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
        assert!(cursor.seek_first().expect("seek"));
        {
            let _call = cursor.held.sources.merge.lock();
            db.flush().expect("a flush waits for no cursor");
        }
        let sources = Arc::clone(&cursor.held.sources);
        assert!(sources.let_go(), "it still had its state");
        assert!(!sources.let_go(), "once is enough");
        assert!(!cursor.next().expect("next"));
    }
}
