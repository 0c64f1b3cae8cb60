//! B+-tree over the records: descent, insertion, splits.
//!
//! Readers descend optimistically: after reading a child's version, they check that the parent has
//! not changed since its own version was read. The single writer makes a parent odd before it
//! splits a child and even again after the child. So a reader cannot combine a child's version from
//! after a split with a parent from before it. The root pointer acts as the parent of the root: a
//! new root is stored before the old one is split.
//!
//! The writer splits full inner nodes on its way down, so the parent of a split always has room.
//! Keys are never removed. Hence no leaf is empty except the first, and the smallest key of a leaf
//! equals the separator in its parents. A search that runs off the right end of a leaf thus finds
//! its answer in the next separator.

use std::ops::Range;
use std::ptr::NonNull;

use super::node::{Equal, Node, NodeRef, Probe, SLOTS, Slot};
use super::record::{Entry, RecordRef};
use crate::arena::Arena;
use crate::sync::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

pub(super) struct Tree {
    root: AtomicPtr<Node>,
}

/// Target of a descent: forwards from a key, backwards from a key, or the end.
#[derive(Clone, Copy)]
pub(super) enum Target<'k> {
    AtOrAfter(Probe<'k>),
    After(Probe<'k>),
    Before(Probe<'k>),
    Last,
}

/// A record and its location, valid for the next step as long as the leaf does not change.
#[derive(Clone, Copy)]
pub(super) struct Position<'m> {
    pub(super) record: RecordRef<'m>,
    pub(super) leaf: NodeRef<'m>,
    pub(super) leaf_version: u64,
    pub(super) slot: usize,
    /// Smallest key of the next leaf.
    pub(super) next_leaf: Option<RecordRef<'m>>,
}

/// A leaf that covers a target, and the version to read it at.
struct Leaf<'m> {
    node: NodeRef<'m>,
    version: u64,
    next_leaf: Option<RecordRef<'m>>,
}

/// Result of the writer's descent. `parent` has room for one more child; it is `None` if the root
/// is a leaf with room.
struct WritePath<'m> {
    parent: Option<(NodeRef<'m>, usize)>,
    leaf: NodeRef<'m>,
    is_last_leaf: bool,
}

impl Tree {
    /// # Safety
    ///
    /// The same arena is given to all calls of [`insert`](Self::insert), and outlives the tree.
    pub(super) unsafe fn new(arena: &mut Arena) -> Tree {
        // SAFETY: promised by the caller.
        let root = unsafe { NodeRef::create_leaf(arena) };
        Tree {
            root: AtomicPtr::new(root.as_raw().as_ptr()),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<RecordRef<'_>> {
        let probe = Probe::new(key);
        loop {
            let leaf = self.leaf_for(&Target::AtOrAfter(probe));
            let count = leaf.node.count();
            let slot = leaf.node.rank(0, count, &probe, Equal::After);
            let record = if slot < count {
                leaf.node.record_if(slot, &probe)
            } else {
                None
            };
            if leaf.node.unchanged_since(leaf.version) {
                return record;
            }
        }
    }

    pub(super) fn locate<'m>(&'m self, target: &Target<'_>) -> Option<Position<'m>> {
        loop {
            let leaf = self.leaf_for(target);
            let count = leaf.node.count();
            let slot = target.slot(leaf.node, count);
            let record = slot.filter(|slot| *slot < count);
            let record = record.map(|slot| leaf.node.record(slot));
            if !leaf.node.unchanged_since(leaf.version) {
                continue;
            }
            return match (slot, record) {
                (Some(slot), Some(record)) => Some(Position {
                    record,
                    leaf: leaf.node,
                    leaf_version: leaf.version,
                    slot,
                    next_leaf: leaf.next_leaf,
                }),
                (Some(_), None) => self.first_of(leaf.next_leaf),
                (None, _) => None,
            };
        }
    }

    /// Returns the first record after this one.
    pub(super) fn next<'m>(&'m self, from: &Position<'m>) -> Option<Position<'m>> {
        let slot = from.slot + 1;
        let record = (slot < from.leaf.count()).then(|| from.leaf.record(slot));
        if !from.leaf.unchanged_since(from.leaf_version) {
            return self.locate(&Target::After(Probe::new(from.record.key())));
        }
        match record {
            Some(record) => Some(Position {
                record,
                slot,
                ..*from
            }),
            None => self.first_of(from.next_leaf),
        }
    }

    /// Returns the last record before this one.
    pub(super) fn prev<'m>(&'m self, from: &Position<'m>) -> Option<Position<'m>> {
        if let Some(slot) = from.slot.checked_sub(1) {
            let record = from.leaf.record(slot);
            if from.leaf.unchanged_since(from.leaf_version) {
                return Some(Position {
                    record,
                    slot,
                    ..*from
                });
            }
        }
        self.locate(&Target::Before(Probe::new(from.record.key())))
    }

    /// Returns the position of the smallest key of a leaf. That key exists, so `locate` ends there
    /// and does not recurse again.
    fn first_of<'m>(&'m self, leaf: Option<RecordRef<'m>>) -> Option<Position<'m>> {
        self.locate(&Target::AtOrAfter(Probe::new(leaf?.key())))
    }

    /// Descends to the leaf that covers the target. Restarts whenever it overlaps a split by the
    /// writer.
    fn leaf_for<'m>(&'m self, target: &Target<'_>) -> Leaf<'m> {
        'restart: loop {
            let mut node = self.root();
            let mut version = node.version();
            if self.root().as_raw() != node.as_raw() {
                continue 'restart;
            }
            let mut next_leaf = None;
            while !node.is_leaf() {
                let count = node.count();
                let slot = target.child(node, count);
                let child = node.child(slot);
                child.prefetch();
                if slot + 1 < count {
                    next_leaf = Some(node.record(slot + 1));
                }
                let child_version = child.version();
                if !node.unchanged_since(version) {
                    continue 'restart;
                }
                (node, version) = (child, child_version);
            }
            return Leaf {
                node,
                version,
                next_leaf,
            };
        }
    }

    /// Estimates the share of the keys before `key`, from 0 to 1, from the places in the nodes on
    /// the way to it.
    pub(super) fn share_before(&self, key: &[u8]) -> f64 {
        let probe = Probe::new(key);
        let target = Target::AtOrAfter(probe);
        'restart: loop {
            let mut node = self.root();
            let mut version = node.version();
            if self.root().as_raw() != node.as_raw() {
                continue 'restart;
            }
            let (mut before, mut width) = (0.0, 1.0);
            while !node.is_leaf() {
                let count = node.count();
                let slot = target.child(node, count);
                let (left, own) = shares(node, slot, count);
                let child = node.child(slot);
                let child_version = child.version();
                if !node.unchanged_since(version) {
                    continue 'restart;
                }
                before += width * left;
                width *= own;
                (node, version) = (child, child_version);
            }
            let count = node.count();
            let slot = node.rank(0, count, &probe, Equal::After);
            if node.unchanged_since(version) {
                return before + width * slot as f64 / count.max(1) as f64;
            }
        }
    }

    fn root(&self) -> NodeRef<'_> {
        let root = NonNull::new(self.root.load(Acquire)).expect("there is always a root");
        // SAFETY: stored with release by `new` or `grow`; the arena outlives the tree.
        unsafe { NodeRef::from_raw(root) }
    }
}

/// Children that are weighed on each side of the one that a descent takes.
const WEIGHED: usize = 2;

/// Returns the share of an inner node's keys in the children before `slot`, and in the child there.
/// Weighs that child, the last one, which inserts in key order leave partly filled, and a few on
/// each side, because one part of the keys may have been inserted in order and another not.
fn shares(node: NodeRef<'_>, slot: usize, count: usize) -> (f64, f64) {
    let last = count - 1;
    let own = weight(node.child(slot));
    let left = weights(node, 0..slot);
    let right = if slot == last {
        0.0
    } else {
        weights(node, slot + 1..last) + weight(node.child(last))
    };
    let all = left + own + right;
    (left / all, own / all)
}

/// Estimates the sum of the weights of some children.
fn weights(node: NodeRef<'_>, children: Range<usize>) -> f64 {
    let weighed = children.len().min(WEIGHED);
    if weighed == 0 {
        return 0.0;
    }
    // In the middles of parts of equal length.
    let place = |part: usize| children.start + (2 * part + 1) * children.len() / (2 * weighed);
    let sum: f64 = (0..weighed)
        .map(|part| weight(node.child(place(part))))
        .sum();
    sum / weighed as f64 * children.len() as f64
}

/// Estimates the keys of a child from the nodes on the way to a leaf in its middle.
fn weight(child: NodeRef<'_>) -> f64 {
    let (mut node, mut keys) = (child, 1.0);
    loop {
        let slots = node.count();
        keys *= slots.max(1) as f64;
        if node.is_leaf() || slots == 0 {
            return keys;
        }
        node = node.child(slots / 2);
    }
}

/// The writer's side. Only one thread at a time runs this, and no other thread changes the data it
/// reads.
impl Tree {
    /// Adds a version, to the existing record of the key if there is one. Returns true if the key
    /// is new.
    ///
    /// # Safety
    ///
    /// The arena is the one passed to [`new`](Self::new), and no other thread is in this function.
    pub(super) unsafe fn insert(
        &self,
        arena: &mut Arena,
        key: &[u8],
        new: Entry<'_>,
        horizon: u64,
    ) -> bool {
        let probe = Probe::new(key);
        let path = self.leaf_for_writing(arena, &probe);
        let (leaf, count) = (path.leaf, path.leaf.count());
        let slot = leaf.rank(0, count, &probe, Equal::After);
        if slot < count
            && let Some(record) = leaf.record_if(slot, &probe)
        {
            record.push(arena, new, horizon);
            return false;
        }
        let new = Slot {
            head: probe.head,
            // SAFETY: the arena outlives the tree.
            record: unsafe { RecordRef::create(arena, key, new) },
            child: None,
        };
        match path.parent {
            Some(parent) if count == SLOTS => {
                let appends = path.is_last_leaf && slot == count;
                let at = if appends { count } else { count / 2 };
                self.split(arena, parent, leaf, at, Some((slot, new)));
            }
            _ => leaf.change().insert(slot, new),
        }
        true
    }

    /// Descends to the leaf of the key, and makes room for a split of that leaf on the way.
    fn leaf_for_writing<'m>(&'m self, arena: &mut Arena, probe: &Probe<'_>) -> WritePath<'m> {
        let target = Target::AtOrAfter(*probe);
        let mut node = self.root();
        if node.is_full() {
            node = self.grow(arena, node);
        }
        let mut parent = None;
        let mut is_last_leaf = true;
        while !node.is_leaf() {
            let slot = target.child(node, node.count());
            let is_last = is_last_leaf && slot + 1 == node.count();
            let child = node.child(slot);
            child.prefetch();
            if !child.is_leaf() && child.is_full() {
                let appends = is_last && target.child(child, SLOTS) + 1 == SLOTS;
                let at = if appends { SLOTS - 1 } else { SLOTS / 2 };
                self.split(arena, (node, slot), child, at, None);
                // The halves have room: the next iteration descends.
                continue;
            }
            is_last_leaf = is_last;
            parent = Some((node, slot));
            node = child;
        }
        WritePath {
            parent,
            leaf: node,
            is_last_leaf,
        }
    }

    /// Adds a new root above a full one. Readers may use either until the old one is split.
    fn grow<'m>(&'m self, arena: &mut Arena, old: NodeRef<'m>) -> NodeRef<'m> {
        // SAFETY: the arena outlives the tree.
        let root = unsafe { NodeRef::create_inner(arena) };
        let first = Slot {
            head: 0,
            record: old.record(0),
            child: Some(old),
        };
        root.change().insert(0, first);
        self.root.store(root.as_raw().as_ptr(), Release);
        root
    }

    /// Moves the slots of `node` from `at` up to a new right neighbor, adds the neighbor to the
    /// parent, and inserts `new` on its side of the border.
    ///
    /// The neighbor is filled before readers can reach it; the old node and its parent are odd only
    /// for the remaining steps.
    fn split<'m>(
        &'m self,
        arena: &mut Arena,
        (parent, parent_slot): (NodeRef<'m>, usize),
        node: NodeRef<'m>,
        at: usize,
        new: Option<(usize, Slot<'m>)>,
    ) {
        // SAFETY: the arena outlives the tree.
        let right = unsafe {
            if node.is_leaf() {
                NodeRef::create_leaf(arena)
            } else {
                NodeRef::create_inner(arena)
            }
        };
        let (left_new, right_new) = match new {
            Some((slot, new)) if slot > at || at == node.count() => (None, Some((slot - at, new))),
            left => (left, None),
        };
        let mut filling = right.change();
        filling.append(node, at);
        if let Some((slot, new)) = right_new {
            filling.insert(slot, new);
        }
        drop(filling);

        let mut parent_change = parent.change();
        let mut node_change = node.change();
        node_change.truncate(at);
        if let Some((slot, new)) = left_new {
            node_change.insert(slot, new);
        }
        parent_change.insert(parent_slot + 1, right.as_child());
        // The order matters: the child becomes readable first (see the top of this file).
        drop(node_change);
        drop(parent_change);
    }
}

impl Target<'_> {
    /// Returns the slot of the child to descend to in an inner node.
    fn child(&self, node: NodeRef<'_>, count: usize) -> usize {
        let end = match self {
            Target::AtOrAfter(probe) | Target::After(probe) => {
                node.rank(1, count, probe, Equal::Before)
            }
            Target::Before(probe) => node.rank(1, count, probe, Equal::After),
            Target::Last => count,
        };
        end - 1
    }

    /// Returns the slot to stop at in a leaf: the count if it lies after this leaf, `None` if there
    /// is no such key at all.
    fn slot(&self, leaf: NodeRef<'_>, count: usize) -> Option<usize> {
        match self {
            Target::AtOrAfter(probe) => Some(leaf.rank(0, count, probe, Equal::After)),
            Target::After(probe) => Some(leaf.rank(0, count, probe, Equal::Before)),
            Target::Before(probe) => leaf.rank(0, count, probe, Equal::After).checked_sub(1),
            Target::Last => count.checked_sub(1),
        }
    }
}
