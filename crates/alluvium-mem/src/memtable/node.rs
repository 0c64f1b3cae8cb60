//! Nodes of the tree, each a sequence lock over its slots.
//!
//! The writer makes a node's version odd, changes slots, and makes it even again ([`Change`]). A
//! reader takes an even version, reads the slots it needs, and checks that the version is still the
//! same. If it is not, the reader discards everything it read. All slots are atomics, so a torn
//! read is stale or mixed, never undefined. It is also never dangling:
//!
//! - A slot below any count that was ever stored holds a pointer, and slots never become null
//!   again. Counts are stored with release after their slots and loaded with acquire before them.
//! - Pointers are stored with release and loaded with acquire, and their targets live until the
//!   arena is dropped.
//!
//! A slot holds the head of a key (its first eight bytes as a big-endian number) and the record
//! with the whole key. Because of the head, most comparisons touch only the node. In an inner node
//! slot `i` also holds child `i`, and its key is the smallest key of that child. Slot 0 covers
//! everything below slot 1, so its key is never compared.

use std::alloc::Layout;
use std::cmp::Ordering as Order;
use std::hint::select_unpredictable;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};

use super::record::{Record, RecordRef};
use crate::arena::Arena;
use crate::sync::{
    AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    Spin, Watched, fence,
};

/// Slots of a node. Few under loom and miri, so that their short runs split nodes and grow the
/// tree.
pub(super) const SLOTS: usize = if cfg!(loom) {
    3
} else if cfg!(miri) {
    6
} else {
    64
};

#[repr(C, align(64))]
pub(super) struct Node {
    /// Odd while the writer is changing the node.
    version: AtomicU64,
    count: AtomicUsize,
    is_leaf: bool,
    published: Watched,
    heads: [AtomicU64; SLOTS],
    records: [AtomicPtr<Record>; SLOTS],
}

#[repr(C)]
struct Inner {
    node: Node,
    children: [AtomicPtr<Node>; SLOTS],
}

/// A node in an arena that lives at least as long as `'m`.
#[derive(Clone, Copy)]
pub(super) struct NodeRef<'m> {
    /// Has the provenance of the whole chunk, because an inner node's children follow it.
    ptr: NonNull<Node>,
    arena: PhantomData<&'m Node>,
}

/// Contents of one slot; `child` in inner nodes only.
#[derive(Clone, Copy)]
pub(super) struct Slot<'m> {
    pub(super) head: u64,
    pub(super) record: RecordRef<'m>,
    pub(super) child: Option<NodeRef<'m>>,
}

/// A key to look for, with its head.
#[derive(Clone, Copy)]
pub(super) struct Probe<'k> {
    pub(super) head: u64,
    pub(super) key: &'k [u8],
}

/// Position of a key equal to the probe, relative to the probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Equal {
    Before,
    After,
}

impl<'k> Probe<'k> {
    pub(super) fn new(key: &'k [u8]) -> Probe<'k> {
        let head = match key.first_chunk::<8>() {
            Some(first) => u64::from_be_bytes(*first),
            None => {
                let mut first = [0; 8];
                first[..key.len()].copy_from_slice(key);
                u64::from_be_bytes(first)
            }
        };
        Probe { head, key }
    }
}

impl Node {
    fn new(is_leaf: bool) -> Node {
        Node {
            version: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            is_leaf,
            published: Watched::new(),
            heads: std::array::from_fn(|_| AtomicU64::new(0)),
            records: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }
}

impl<'m> NodeRef<'m> {
    /// # Safety
    ///
    /// The arena outlives `'m`.
    pub(super) unsafe fn create_leaf(arena: &mut Arena) -> Self {
        let ptr = arena.alloc(Layout::new::<Node>()).cast();
        // SAFETY: fresh memory of the right layout.
        unsafe {
            ptr.write(Node::new(true));
            NodeRef::from_raw(ptr)
        }
    }

    /// # Safety
    ///
    /// The arena outlives `'m`.
    pub(super) unsafe fn create_inner(arena: &mut Arena) -> Self {
        let ptr = arena.alloc(Layout::new::<Inner>()).cast::<Inner>();
        // SAFETY: fresh memory of the right layout.
        unsafe {
            ptr.write(Inner {
                node: Node::new(false),
                children: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
            });
            NodeRef::from_raw(ptr.cast())
        }
    }

    /// # Safety
    ///
    /// `ptr` was made by one of the two functions above in an arena that outlives `'m`. It was
    /// obtained by an acquire load of the pointer, or never left the thread.
    pub(super) unsafe fn from_raw(ptr: NonNull<Node>) -> Self {
        NodeRef {
            ptr,
            arena: PhantomData,
        }
    }

    pub(super) fn as_raw(self) -> NonNull<Node> {
        self.ptr
    }

    pub(super) fn is_leaf(self) -> bool {
        self.node().is_leaf
    }

    /// Returns the version to read the node at; waits for a change to end.
    pub(super) fn version(self) -> u64 {
        let mut spin = Spin::new();
        loop {
            // Pairs with the end of a change: all of that change is visible.
            let version = self.node().version.load(Acquire);
            if version.is_multiple_of(2) {
                return version;
            }
            spin.wait();
        }
    }

    /// Returns whether the node is unchanged, so that all reads since [`version`](Self::version)
    /// are consistent.
    pub(super) fn unchanged_since(self, version: u64) -> bool {
        // If the reader saw a slot stored by a change, this fence pairs with the fence at the start
        // of that change. The version loaded below is then at least the odd one.
        fence(Acquire);
        self.node().version.load(Relaxed) == version
    }

    pub(super) fn count(self) -> usize {
        self.node().count.load(Acquire)
    }

    pub(super) fn is_full(self) -> bool {
        self.count() == SLOTS
    }

    /// Returns the record of a slot below the count.
    pub(super) fn record(self, slot: usize) -> RecordRef<'m> {
        let record = NonNull::new(self.node().records[slot].load(Acquire));
        let record = record.expect("slots below the count are set");
        // SAFETY: published by the release store of `Change`; records live as long as the arena.
        unsafe { RecordRef::from_raw(record) }
    }

    /// Returns the child in a slot below the count of an inner node.
    pub(super) fn child(self, slot: usize) -> NodeRef<'m> {
        let child = NonNull::new(self.inner().children[slot].load(Acquire));
        let child = child.expect("slots below the count are set");
        // SAFETY: published by the release store of `Change`; nodes live as long as the arena.
        unsafe { NodeRef::from_raw(child) }
    }

    /// Returns this filled node as a slot of its parent.
    pub(super) fn as_child(self) -> Slot<'m> {
        Slot {
            head: self.head(0),
            record: self.record(0),
            child: Some(self),
        }
    }

    /// Returns the record of a slot, if its key is the probe's. Does not touch records with another
    /// head, so they cause no cache misses.
    pub(super) fn record_if(self, slot: usize, probe: &Probe<'_>) -> Option<RecordRef<'m>> {
        if self.head(slot) != probe.head {
            return None;
        }
        Some(self.record(slot)).filter(|record| record.key() == probe.key)
    }

    /// Returns the number of slots before `count` that lie before the probe, assuming that those
    /// before `from` do.
    pub(super) fn rank(self, from: usize, count: usize, probe: &Probe<'_>, equal: Equal) -> usize {
        let first = self.partition(from, count, |head| head < probe.head);
        if first == count || self.head(first) != probe.head {
            return first;
        }
        let end = self.partition(first + 1, count, |head| head == probe.head);
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low + (high - low) / 2;
            let before = match self.record(middle).key().cmp(probe.key) {
                Order::Less => true,
                Order::Equal => equal == Equal::Before,
                Order::Greater => false,
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Starts a change. Only the writer may call this, and only once at a time for a node.
    pub(super) fn change(self) -> Change<'m> {
        let version = self.node().version.load(Relaxed);
        debug_assert!(version.is_multiple_of(2));
        self.node().version.store(version + 1, Relaxed);
        // Keeps the stores of the change after the odd version; pairs with the fence in
        // `unchanged_since`.
        fence(Release);
        Change {
            target: self,
            version,
        }
    }

    /// Brings the lines that a search reads into the cache in parallel, before the search loads
    /// them one by one.
    pub(super) fn prefetch(self) {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        for offset in (0..offset_of!(Node, records)).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = self.ptr.as_ptr().cast::<i8>().wrapping_add(offset);
            // SAFETY: a prefetch is a hint without an effect visible to the program.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
        }
    }

    fn head(self, slot: usize) -> u64 {
        self.node().heads[slot].load(Relaxed)
    }

    fn slot(self, slot: usize) -> Slot<'m> {
        Slot {
            head: self.head(slot),
            record: self.record(slot),
            child: (!self.is_leaf()).then(|| self.child(slot)),
        }
    }

    /// Returns the first slot in `from..to` with a head that does not satisfy `before`, or `to`. No
    /// branch depends on a head.
    fn partition(self, from: usize, to: usize, before: impl Fn(u64) -> bool) -> usize {
        let (mut base, mut left) = (from, to.saturating_sub(from));
        if left == 0 {
            return to;
        }
        while left > 1 {
            let half = left / 2;
            base = select_unpredictable(before(self.head(base + half)), base + half, base);
            left -= half;
        }
        base + usize::from(before(self.head(base)))
    }

    fn node(self) -> &'m Node {
        // SAFETY: `from_raw` promises a published node that lives as long as `'m`; all its mutable
        // fields are atomic.
        let node = unsafe { self.ptr.as_ref() };
        node.published.read();
        node
    }

    fn inner(self) -> &'m Inner {
        assert!(!self.is_leaf());
        // SAFETY: a node that is not a leaf was made as the first field of an `Inner`. The pointer
        // may reach all of it, since it comes from the arena and not from a reference to the node.
        unsafe { self.ptr.cast::<Inner>().as_ref() }
    }
}

/// A change in progress. It ends when this is dropped, and readers continue.
pub(super) struct Change<'m> {
    target: NodeRef<'m>,
    version: u64,
}

impl<'m> Change<'m> {
    /// Inserts a slot and moves those from `at` up by one.
    pub(super) fn insert(&mut self, at: usize, slot: Slot<'m>) {
        let count = self.target.count();
        assert!(at <= count && count < SLOTS);
        // From the back, so that a slot is copied before it is overwritten. One array at a time
        // compiles well.
        let node = self.target.node();
        for pair in node.heads[at..=count].windows(2).rev() {
            pair[1].store(pair[0].load(Relaxed), Relaxed);
        }
        for pair in node.records[at..=count].windows(2).rev() {
            pair[1].store(pair[0].load(Relaxed), Release);
        }
        if slot.child.is_some() {
            for pair in self.target.inner().children[at..=count].windows(2).rev() {
                pair[1].store(pair[0].load(Relaxed), Release);
            }
        }
        self.store(at, slot);
        self.target.node().count.store(count + 1, Release);
    }

    /// Appends the slots of another node, starting at `at`.
    pub(super) fn append(&mut self, other: NodeRef<'m>, at: usize) {
        for i in at..other.count() {
            self.insert(self.target.count(), other.slot(i));
        }
    }

    /// Drops the slots from `count` up. Their contents stay for readers that still look there.
    pub(super) fn truncate(&mut self, count: usize) {
        assert!(count <= self.target.count());
        self.target.node().count.store(count, Release);
    }

    fn store(&mut self, at: usize, slot: Slot<'m>) {
        let node = self.target.node();
        node.heads[at].store(slot.head, Relaxed);
        node.records[at].store(slot.record.as_raw().as_ptr(), Release);
        if let Some(child) = slot.child {
            self.target.inner().children[at].store(child.as_raw().as_ptr(), Release);
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // Pairs with the load in `NodeRef::version`.
        let version = &self.target.node().version;
        version.store(self.version + 2, Release);
    }
}
