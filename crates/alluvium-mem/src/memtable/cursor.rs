//! Cursor over the keys that are visible at a read point.
//!
//! Between two steps the cursor holds no lock and only keeps the memtable alive. It remembers its
//! slot in a leaf. While that leaf is unchanged a step moves one slot further; otherwise the cursor
//! descends again from its key.

use std::ptr::NonNull;
use std::sync::Arc;

use super::Memtable;
use super::node::{Node, NodeRef, Probe};
use super::record::{Entry, Record, RecordRef, Version, VersionRef};
use super::tree::{Position, Target, Tree};

/// Walks a memtable in key order, in both directions.
///
/// The cursor is either on a key with a version at or below the read point, or invalid. The caller
/// keeps the read point registered (at or above every horizon given to inserts) for as long as it
/// uses the cursor.
pub struct MemtableCursor {
    memtable: Arc<Memtable>,
    read_point: u64,
    place: Option<Place>,
}

/// A [`Position`] without its lifetime, and the version visible at the read point.
///
/// All pointers lead into the arena of the cursor's own memtable.
struct Place {
    record: NonNull<Record>,
    version: NonNull<Version>,
    leaf: NonNull<Node>,
    leaf_version: u64,
    slot: usize,
    next_leaf: Option<NonNull<Record>>,
}

// SAFETY: the pointers lead into the arena that `memtable` keeps alive, to data that any thread may
// read.
unsafe impl Send for MemtableCursor {}

// SAFETY: as above; the methods on `&self` only read.
unsafe impl Sync for MemtableCursor {}

impl MemtableCursor {
    pub(super) fn new(memtable: Arc<Memtable>, read_point: u64) -> MemtableCursor {
        MemtableCursor {
            memtable,
            read_point,
            place: None,
        }
    }

    /// Moves to the first key at or after `key`; returns whether there is one.
    pub fn seek(&mut self, key: &[u8]) -> bool {
        self.start(&Target::AtOrAfter(Probe::new(key)), Tree::next)
    }

    /// Moves to the last key before `key`; returns whether there is one.
    pub fn seek_before(&mut self, key: &[u8]) -> bool {
        self.start(&Target::Before(Probe::new(key)), Tree::prev)
    }

    /// Moves to the first key; returns whether there is one.
    pub fn seek_first(&mut self) -> bool {
        self.seek(&[])
    }

    /// Moves to the last key; returns whether there is one.
    pub fn seek_last(&mut self) -> bool {
        self.start(&Target::Last, Tree::prev)
    }

    /// Moves to the next key; becomes invalid if there is none. Does nothing if already invalid.
    #[expect(
        clippy::should_implement_trait,
        reason = "keys are borrowed from the cursor"
    )]
    pub fn next(&mut self) -> bool {
        self.step(Tree::next)
    }

    /// Moves to the previous key; becomes invalid if there is none. Does nothing if already
    /// invalid.
    pub fn prev(&mut self) -> bool {
        self.step(Tree::prev)
    }

    /// Returns whether the cursor is on a key.
    pub fn valid(&self) -> bool {
        self.place.is_some()
    }

    /// Returns the key at the cursor.
    ///
    /// # Panics
    ///
    /// If the cursor is not [`valid`](Self::valid).
    pub fn key(&self) -> &[u8] {
        self.place().record().key()
    }

    /// Returns the newest version of the key visible at the read point.
    ///
    /// # Panics
    ///
    /// If the cursor is not [`valid`](Self::valid).
    pub fn entry(&self) -> Entry<'_> {
        // SAFETY: taken from a `VersionRef` of the memtable that `self` keeps alive.
        unsafe { VersionRef::from_raw(self.place().version) }.entry()
    }

    /// Returns all versions of the key that are still linked, newest first, regardless of the read
    /// point.
    ///
    /// # Panics
    ///
    /// If the cursor is not [`valid`](Self::valid).
    pub fn versions(&self) -> Versions<'_> {
        Versions {
            next: Some(self.place().record().newest()),
        }
    }

    fn place(&self) -> &Place {
        self.place.as_ref().expect("the cursor stands on a key")
    }

    fn start(&mut self, target: &Target<'_>, step: Step) -> bool {
        let tree = &self.memtable.tree;
        self.place = settle(tree, tree.locate(target), self.read_point, step);
        self.valid()
    }

    fn step(&mut self, step: Step) -> bool {
        let Some(place) = &self.place else {
            return false;
        };
        let tree = &self.memtable.tree;
        let position = step(tree, &place.position());
        self.place = settle(tree, position, self.read_point, step);
        self.valid()
    }
}

type Step = for<'m> fn(&'m Tree, &Position<'m>) -> Option<Position<'m>>;

/// Steps on from a position until a key has a version visible at the read point.
fn settle<'m>(
    tree: &'m Tree,
    mut position: Option<Position<'m>>,
    read_point: u64,
    step: Step,
) -> Option<Place> {
    loop {
        let found = position?;
        if let Some(version) = found.record.visible_at(read_point) {
            return Some(Place::new(&found, version));
        }
        position = step(tree, &found);
    }
}

impl Place {
    fn new(position: &Position<'_>, version: VersionRef<'_>) -> Place {
        Place {
            record: position.record.as_raw(),
            version: version.as_raw(),
            leaf: position.leaf.as_raw(),
            leaf_version: position.leaf_version,
            slot: position.slot,
            next_leaf: position.next_leaf.map(RecordRef::as_raw),
        }
    }

    fn record(&self) -> RecordRef<'_> {
        // SAFETY: taken from a `RecordRef`; the cursor around this place keeps its memtable alive.
        unsafe { RecordRef::from_raw(self.record) }
    }

    fn position(&self) -> Position<'_> {
        Position {
            record: self.record(),
            // SAFETY: taken from a `NodeRef`; the cursor around this place keeps its memtable
            // alive.
            leaf: unsafe { NodeRef::from_raw(self.leaf) },
            leaf_version: self.leaf_version,
            slot: self.slot,
            // SAFETY: as for the record.
            next_leaf: self
                .next_leaf
                .map(|raw| unsafe { RecordRef::from_raw(raw) }),
        }
    }
}

/// Versions of one key, newest first. Made by [`MemtableCursor::versions`].
pub struct Versions<'m> {
    next: Option<VersionRef<'m>>,
}

impl<'m> Iterator for Versions<'m> {
    type Item = Entry<'m>;

    fn next(&mut self) -> Option<Entry<'m>> {
        let version = self.next?;
        self.next = version.older();
        Some(version.entry())
    }
}
