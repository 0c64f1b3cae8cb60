//! Ordered set of a transaction's own writes in all keyspaces, with savepoints; also a folded write
//! batch.
//!
//! A commit has one sequence number, so the set has each key once, with the combined effect of all
//! writes to it:
//!
//! | before        | insert | put | delete            |
//! |---------------|--------|-----|-------------------|
//! | nothing       | insert | put | delete            |
//! | insert        | put    | put | nothing to commit |
//! | put or delete | put    | put | delete            |
//!
//! A put on top of anything is a covering put: if "delete, insert" of a key became an insert, a
//! later delete would cancel it and the older row would reappear. If an insert and its delete
//! cancel, the key stays in the set as a delete for the transaction's own reads; there is only
//! nothing to commit.
//!
//! A range delete resets the keys in its range to "nothing to commit". It is stored separately from
//! the keys: it hides rows committed before, and does not affect later writes.
//!
//! The module `versions` keeps overwritten versions for savepoints and cursors.
//!
//! Keys and values are in one arena, and the order in an `Index` of entry numbers, so a write makes
//! no allocation of its own.

mod index;
mod own_ranges;
mod sections;
mod versions;

use std::ops::{Bound, Range};
use std::sync::Arc;

use crate::base::{KEY_BYTES_MAX, KeyspaceId, VALUE_BYTES_MAX, ValueKind, prefix_end};
use crate::memory::Charge;
use crate::range_deletes::{KeyRange, RangeHistory, union};
use crate::sync::plain::Mutex;

use index::{Index, Position, Probe};
use own_ranges::OwnRanges;

/// No space is reclaimed below this footprint in bytes.
const COMPACT_BYTES_MIN: usize = 64 * 1024;

/// Memory of a key of the set besides the bytes of key and value: its entry and its place in the
/// order. More than its overhead in a commit's payload.
pub const WRITE_OVERHEAD: usize = size_of::<Entry>() + 24;

/// Writes of one transaction or batch.
#[derive(Debug)]
pub struct WriteSet {
    /// Keys and values, in the order of their writes.
    arena: Vec<u8>,
    /// One entry per key, in the order of their first writes.
    entries: Vec<Entry>,
    index: Index,
    /// Overwritten versions, in the order in which they were overwritten.
    history: Vec<Replaced>,
    ranges: OwnRanges,
    savepoints: Vec<Savepoint>,
    next_savepoint: u64,
    /// Stamps of the open views.
    views: Vec<u64>,
    /// Stamp of the latest write. Never decreases.
    stamp: u64,
    len: usize,
    bytes: usize,
    /// Footprint at which to check again if space can be reclaimed.
    compact_at: usize,
    /// Set if only open views still need the set; with the charge for its memory.
    retired: Option<Option<Charge>>,
}

/// Writes that a transaction shares with its cursors.
pub type SharedWrites = Arc<Mutex<WriteSet>>;

/// Savepoint of one [`WriteSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SavepointId(u64);

/// Point in the history of a [`WriteSet`]. A cursor opened then sees the set as of this point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct View(u64);

/// Key of the set with its latest write, or its latest as of a [`View`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteEntry<'a> {
    /// Keyspace of the key.
    pub keyspace: KeyspaceId,
    /// Key as written, without the keyspace.
    pub key: &'a [u8],
    /// [`ValueKind::Insert`], [`ValueKind::Put`] or [`ValueKind::Delete`].
    pub kind: ValueKind,
    /// Value; empty for a delete.
    pub value: &'a [u8],
}

#[derive(Debug)]
struct Entry {
    keyspace: KeyspaceId,
    key: Span,
    head: Version,
}

/// Bytes in the arena.
#[derive(Debug, Clone, Copy)]
struct Span {
    offset: usize,
    len: u32,
}

#[derive(Debug, Clone, Copy)]
struct Version {
    stamp: u64,
    value: Span,
    /// `None` if there is nothing to commit: an insert was canceled by its delete, or a range
    /// delete came after.
    kind: Option<ValueKind>,
    /// Index of the previous version in the history.
    older: Option<u32>,
}

#[derive(Debug)]
struct Replaced {
    entry: u32,
    version: Version,
}

#[derive(Debug)]
struct Savepoint {
    id: SavepointId,
    stamp: u64,
    arena: usize,
    entries: usize,
    history: usize,
    ranges: OwnRanges,
}

impl View {
    /// Sees every write up to the moment of its use. Need not be opened.
    pub const LATEST: View = View(u64::MAX);

    /// Returns the stamp of the newest write that the view sees.
    pub(super) fn stamp(self) -> u64 {
        self.0
    }
}

impl WriteSet {
    /// Creates an empty set. Allocates nothing.
    pub fn new() -> WriteSet {
        WriteSet {
            arena: Vec::new(),
            entries: Vec::new(),
            index: Index::default(),
            history: Vec::new(),
            ranges: OwnRanges::default(),
            savepoints: Vec::new(),
            next_savepoint: 0,
            views: Vec::new(),
            stamp: 0,
            len: 0,
            bytes: 0,
            compact_at: COMPACT_BYTES_MIN,
            retired: None,
        }
    }

    /// Adds a write, folded with earlier writes of the same key.
    ///
    /// `kind` is insert, put or delete; a delete's value is ignored. The caller has checked the
    /// lengths.
    pub fn put(&mut self, keyspace: KeyspaceId, key: &[u8], kind: ValueKind, value: &[u8]) {
        debug_assert!(key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX);
        assert!(
            matches!(kind, ValueKind::Insert | ValueKind::Put | ValueKind::Delete),
            "a write set holds inserts, puts and deletes"
        );
        let value = if kind.is_tombstone() { &[] } else { value };
        self.stamp += 1;
        match self.find(keyspace, key) {
            Ok(position) => {
                let entry = self.index.entry(position);
                self.overwrite(entry, kind, value);
            }
            Err(position) => self.add(position, keyspace, key, kind, value),
        }
        self.compact();
    }

    /// Adds a range delete of the keys from `start` (inclusive) to `end` (exclusive). The caller
    /// has checked them.
    pub fn delete_range(&mut self, keyspace: KeyspaceId, start: &[u8], end: &[u8]) {
        debug_assert!(start < end && end.len() <= KEY_BYTES_MAX);
        self.stamp += 1;
        let mut position = self.after_or_at(keyspace, start);
        while let Some(entry) = self.index.get(position) {
            let written = &self.entries[entry as usize];
            if written.keyspace != keyspace || self.bytes_of(written.key) >= end {
                break;
            }
            // Entries that already read as deleted need no change.
            if written.head.kind.is_some() {
                self.replace(entry, None, &[]);
            }
            position = self.index.after(position);
        }
        self.ranges.add(keyspace, (start, end), self.stamp);
        self.compact();
    }

    /// Adds a range delete of every key that begins with `prefix`.
    pub fn delete_prefix(&mut self, keyspace: KeyspaceId, prefix: &[u8]) {
        match prefix_end(prefix) {
            Some(end) => self.delete_range(keyspace, prefix, &end),
            None => {
                // No key sorts after the keys with this prefix: the range reaches to the largest
                // possible key, and that key needs a delete of its own.
                let largest = vec![0xFF; KEY_BYTES_MAX];
                if prefix < &largest[..] {
                    self.delete_range(keyspace, prefix, &largest);
                }
                self.put(keyspace, &largest, ValueKind::Delete, &[]);
            }
        }
    }

    /// Returns the range deletes of a keyspace by their stamps, if there are any. They are newer
    /// than every commit.
    pub fn range_deletes(&self, keyspace: KeyspaceId) -> Option<&RangeHistory> {
        self.ranges.of(keyspace)
    }

    /// Returns the ranges that a commit would delete, by keyspace, then key. Those of a keyspace
    /// neither overlap nor touch.
    pub fn deleted_ranges(&self) -> impl Iterator<Item = (KeyspaceId, KeyRange<'_>)> {
        self.ranges.iter().flat_map(|(keyspace, history)| {
            let mut ranges = Vec::new();
            history.for_each(|range, _| ranges.push(range));
            union(ranges)
                .into_iter()
                .map(move |range| (keyspace, range))
        })
    }

    /// Returns true if a range delete of the set covers the key.
    pub fn deletes(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
        let ranges = self.ranges.of(keyspace);
        ranges.is_some_and(|ranges| ranges.find(key, View::LATEST.0).is_some())
    }

    /// Returns the latest write of a key. A key reads as deleted if it is in a deleted range or if
    /// its insert and delete canceled.
    pub fn get(&self, keyspace: KeyspaceId, key: &[u8]) -> Option<(ValueKind, &[u8])> {
        let Ok(position) = self.find(keyspace, key) else {
            let hidden = self.deletes(keyspace, key);
            return hidden.then_some((ValueKind::Delete, &[]));
        };
        let head = &self.entries[self.index.entry(position) as usize].head;
        Some((head.read_kind(), self.bytes_of(head.value)))
    }

    /// Returns the number of keys that a commit would write, without range deletes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of the keys and values that a commit would write, range deletes included.
    pub fn bytes(&self) -> usize {
        self.bytes + self.ranges.key_bytes()
    }

    /// Returns the memory of the writes to commit and of the versions kept for savepoints and
    /// views. Space that will be reclaimed is not counted. Called for every write, so it takes
    /// constant time.
    pub fn memory_bytes(&self) -> usize {
        let needed = !self.savepoints.is_empty() || !self.views.is_empty();
        let bytes = if needed { self.arena.len() } else { self.bytes };
        let history = self.history.len() * size_of::<Replaced>();
        let places = self.entries.len() * WRITE_OVERHEAD;
        bytes + places + history + self.ranges.memory_bytes()
    }

    /// Returns the memory allocated now, unused capacity included.
    pub fn allocated_bytes(&self) -> usize {
        self.arena.capacity()
            + self.entries.capacity() * size_of::<Entry>()
            + self.index.allocated_bytes()
            + self.history.capacity() * size_of::<Replaced>()
            + self.ranges.memory_bytes()
    }

    /// Removes all writes and keeps the memory. Earlier savepoints and views are no longer valid.
    pub fn clear(&mut self) {
        let old = std::mem::take(self);
        *self = WriteSet {
            arena: cleared(old.arena),
            entries: cleared(old.entries),
            index: old.index.cleared(),
            next_savepoint: old.next_savepoint,
            stamp: old.stamp,
            ..WriteSet::new()
        };
    }

    /// Returns true if the set has range deletes.
    pub fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Returns true if a commit would write nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.ranges.is_empty()
    }

    /// Returns the keys that a commit would write, ordered by keyspace, then key; each key once.
    pub fn iter(&self) -> impl Iterator<Item = WriteEntry<'_>> {
        let in_order = self.index.iter();
        in_order.filter_map(|entry| {
            let head = &self.entries[entry as usize].head;
            head.kind.map(|_| self.show(entry, head))
        })
    }

    /// Returns the first key within the bound, as of the view.
    pub fn next(
        &self,
        keyspace: KeyspaceId,
        from: Bound<&[u8]>,
        view: View,
    ) -> Option<WriteEntry<'_>> {
        let mut position = match from {
            Bound::Unbounded => self.after_or_at(keyspace, &[]),
            Bound::Included(key) => self.after_or_at(keyspace, key),
            Bound::Excluded(key) => match self.find(keyspace, key) {
                Ok(position) => self.index.after(position),
                Err(position) => position,
            },
        };
        // Terminates at the end of the keyspace; skips keys that the view does not see.
        loop {
            let entry = self.index.get(position)?;
            if self.entries[entry as usize].keyspace != keyspace {
                return None;
            }
            if let Some(version) = self.version_at(entry, view) {
                return Some(self.show(entry, version));
            }
            position = self.index.after(position);
        }
    }

    /// Returns the last key within the bound, as of the view.
    pub fn prev(
        &self,
        keyspace: KeyspaceId,
        from: Bound<&[u8]>,
        view: View,
    ) -> Option<WriteEntry<'_>> {
        let beyond = match from {
            Bound::Unbounded => match keyspace.0.checked_add(1) {
                Some(next) => self.after_or_at(KeyspaceId(next), &[]),
                None => self.index.end(),
            },
            Bound::Excluded(key) => self.after_or_at(keyspace, key),
            Bound::Included(key) => match self.find(keyspace, key) {
                Ok(position) => self.index.after(position),
                Err(position) => position,
            },
        };
        let mut position = self.index.before(beyond)?;
        loop {
            let entry = self.index.get(position)?;
            if self.entries[entry as usize].keyspace != keyspace {
                return None;
            }
            if let Some(version) = self.version_at(entry, view) {
                return Some(self.show(entry, version));
            }
            position = self.index.before(position)?;
        }
    }

    fn add(
        &mut self,
        position: Position,
        keyspace: KeyspaceId,
        key: &[u8],
        kind: ValueKind,
        value: &[u8],
    ) {
        let entry = u32::try_from(self.entries.len()).expect("fewer than 2^32 keys in a write set");
        self.index
            .insert(position, Probe::new(keyspace, key), entry);
        // For both at once: a second growth could move the arena to memory that other threads used.
        make_room(&mut self.arena, key.len() + value.len());
        let key = self.store(key);
        let head = Version {
            stamp: self.stamp,
            value: self.store(value),
            kind: Some(kind),
            older: None,
        };
        make_room(&mut self.entries, 1);
        self.entries.push(Entry {
            keyspace,
            key,
            head,
        });
        self.count(entry);
    }

    fn overwrite(&mut self, entry: u32, kind: ValueKind, value: &[u8]) {
        let kind = fold(self.entries[entry as usize].head.kind, kind);
        self.replace(entry, kind, value);
    }

    fn set_head(&mut self, entry: u32, version: Version) {
        self.uncount(entry);
        self.entries[entry as usize].head = version;
        self.count(entry);
    }

    fn count(&mut self, entry: u32) {
        let entry = &self.entries[entry as usize];
        if entry.head.kind.is_some() {
            self.len += 1;
            self.bytes += entry.key.len as usize + entry.head.value.len as usize;
        }
    }

    fn uncount(&mut self, entry: u32) {
        let entry = &self.entries[entry as usize];
        if entry.head.kind.is_some() {
            self.len -= 1;
            self.bytes -= entry.key.len as usize + entry.head.value.len as usize;
        }
    }

    fn show(&self, entry: u32, version: &Version) -> WriteEntry<'_> {
        let entry = &self.entries[entry as usize];
        WriteEntry {
            keyspace: entry.keyspace,
            key: self.bytes_of(entry.key),
            kind: version.read_kind(),
            value: self.bytes_of(version.value),
        }
    }

    fn find(&self, keyspace: KeyspaceId, key: &[u8]) -> Result<Position, Position> {
        let key_of = |entry: u32| self.bytes_of(self.entries[entry as usize].key);
        self.index.find(Probe::new(keyspace, key), key, key_of)
    }

    fn after_or_at(&self, keyspace: KeyspaceId, key: &[u8]) -> Position {
        self.find(keyspace, key).unwrap_or_else(|position| position)
    }

    fn bytes_of(&self, span: Span) -> &[u8] {
        &self.arena[span.range()]
    }

    fn store(&mut self, bytes: &[u8]) -> Span {
        let offset = self.arena.len();
        make_room(&mut self.arena, bytes.len());
        self.arena.extend_from_slice(bytes);
        Span::new(offset, bytes.len())
    }

    fn store_at(&mut self, offset: usize, bytes: &[u8]) -> Span {
        let span = Span::new(offset, bytes.len());
        self.arena[span.range()].copy_from_slice(bytes);
        span
    }
}

/// Vectors of this size in bytes and more grow by a quarter.
const LARGE_BYTES: usize = 256 << 10;

/// Makes room for more elements. A large vector grows by a quarter instead of doubling: unused
/// capacity counts as the transaction's memory, and a cursor may keep it after a spill.
fn make_room<T>(all: &mut Vec<T>, more: usize) {
    if all.capacity() - all.len() >= more {
        return;
    }
    if all.capacity() * size_of::<T>() < LARGE_BYTES {
        all.reserve(more);
    } else {
        all.reserve_exact(more.max(all.capacity() / 4));
    }
}

fn cleared<T>(mut all: Vec<T>) -> Vec<T> {
    all.clear();
    all
}

impl Default for WriteSet {
    fn default() -> WriteSet {
        WriteSet::new()
    }
}

impl Version {
    /// Returns the kind that the transaction's own reads find.
    fn read_kind(&self) -> ValueKind {
        self.kind.unwrap_or(ValueKind::Delete)
    }
}

impl Span {
    fn new(offset: usize, len: usize) -> Span {
        let len = u32::try_from(len).expect("keys and values are shorter than 4 GiB");
        Span { offset, len }
    }

    fn range(self) -> Range<usize> {
        self.offset..self.offset + self.len as usize
    }
}

/// Combines a write with the one before it, by the table at the top.
fn fold(before: Option<ValueKind>, write: ValueKind) -> Option<ValueKind> {
    match (before, write) {
        (None, write) => Some(write),
        (Some(ValueKind::Insert), ValueKind::Delete) => None,
        (Some(_), ValueKind::Delete) => Some(ValueKind::Delete),
        (Some(_), _) => Some(ValueKind::Put),
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
