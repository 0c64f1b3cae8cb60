//! A cursor over the keys that a read point sees.
//!
//! Between two steps the cursor holds no lock and reserves nothing but the memtable itself. It remembers where in a leaf
//! it stood; while that leaf is unchanged a step is one slot further, otherwise it descends again from its key.

use std::ptr::NonNull;
use std::sync::Arc;

use super::Memtable;
use super::node::{Node, NodeRef, Probe};
use super::record::{Entry, Record, RecordRef, Version, VersionRef};
use super::tree::{Position, Target, Tree};

/// Walks a memtable in key order, in both directions.
///
/// It stands on a key that has a version at or below the read point, or is not valid. The caller keeps the read
/// point registered (at or above every horizon given to inserts) for as long as the cursor is used.
pub struct MemtableCursor {
    memtable: Arc<Memtable>,
    read_point: u64,
    place: Option<Place>,
}

/// A [`Position`] without its lifetime, and the version that the read point sees there.
///
/// Everything points into the arena of the cursor's own memtable.
struct Place {
    record: NonNull<Record>,
    version: NonNull<Version>,
    leaf: NonNull<Node>,
    leaf_version: u64,
    slot: usize,
    next_leaf: Option<NonNull<Record>>,
}

// SAFETY: the pointers lead into the arena that `memtable` keeps alive, to data that any thread may read.
unsafe impl Send for MemtableCursor {}

// SAFETY: as above; what `&self` offers only reads.
unsafe impl Sync for MemtableCursor {}

impl MemtableCursor {
    pub(super) fn new(memtable: Arc<Memtable>, read_point: u64) -> MemtableCursor {
        MemtableCursor {
            memtable,
            read_point,
            place: None,
        }
    }

    /// Goes to the first key at or after `key`; says whether there is one.
    pub fn seek(&mut self, key: &[u8]) -> bool {
        self.start(&Target::AtOrAfter(Probe::new(key)), Tree::next)
    }

    /// Goes to the last key before `key`; says whether there is one.
    pub fn seek_before(&mut self, key: &[u8]) -> bool {
        self.start(&Target::Before(Probe::new(key)), Tree::prev)
    }

    /// Goes to the first key; says whether there is one.
    pub fn seek_first(&mut self) -> bool {
        self.seek(&[])
    }

    /// Goes to the last key; says whether there is one.
    pub fn seek_last(&mut self) -> bool {
        self.start(&Target::Last, Tree::prev)
    }

    /// Goes to the next key; a cursor without one is no longer valid. Does nothing if it was not.
    #[expect(
        clippy::should_implement_trait,
        reason = "keys are borrowed from the cursor"
    )]
    pub fn next(&mut self) -> bool {
        self.step(Tree::next)
    }

    /// Goes to the previous key; a cursor without one is no longer valid. Does nothing if it was not.
    pub fn prev(&mut self) -> bool {
        self.step(Tree::prev)
    }

    /// Whether the cursor stands on a key.
    pub fn valid(&self) -> bool {
        self.place.is_some()
    }

    /// The key that the cursor stands on.
    ///
    /// # Panics
    ///
    /// If the cursor is not [`valid`](Self::valid).
    pub fn key(&self) -> &[u8] {
        self.place().record().key()
    }

    /// The newest version of the key that the read point sees.
    ///
    /// # Panics
    ///
    /// If the cursor is not [`valid`](Self::valid).
    pub fn entry(&self) -> Entry<'_> {
        // SAFETY: taken from a `VersionRef` of the memtable that `self` keeps alive.
        unsafe { VersionRef::from_raw(self.place().version) }.entry()
    }

    /// All versions of the key that are still linked, newest first, whatever the read point.
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

/// Goes on from a position until the read point sees something.
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
            // SAFETY: taken from a `NodeRef`; the cursor around this place keeps its memtable alive.
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

/// The versions of one key, newest first. Made by [`MemtableCursor::versions`].
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
