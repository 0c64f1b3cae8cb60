//! Registry of read points: the commits that readers still read at. It decides which entries may be
//! dropped.
//!
//! Every snapshot, cursor, transaction and single read registers before it loads a version of the
//! tree. Code that drops, cancels, unlinks or zeroes an entry asks only
//! [`ReadPoints::horizon_points`], never the current visible seqno: a reader may have read that
//! seqno and be about to use it.
//! # Protocol
//!
//! `visible` is the newest published seqno, `announced` the newest seqno that a dropper has taken
//! as its bound. A slot holds the point of one registration, or FREE.
//!
//! ```text
//! reader:  s := visible                      dropper:  c := visible
//!          slot: FREE -> s                             announced := max(announced, c)
//!          fence                                       fence
//!          while announced > s:                        read all slots in use, and the overflow map
//!              s := visible; slot := s; fence          bound c, points = those read that are < c
//!
//! **Claim.** A reader that ends with point p either has p >= c, or the dropper saw p (or looked
//! after the reader released it). **Proof.** The fences are sequentially consistent, so the
//! reader's last one and the dropper's have an order. If the dropper's is first, the reader's last
//! load of `announced` returns at least c, and the reader ends only with p at least that. If the
//! reader's is first, the store of p comes before it and the dropper's load of the slot after the
//! dropper's fence. So the dropper finds p or its successor in the slot: FREE. The number of slots
//! in use is raised before a slot above it is claimed, and loaded after the dropper's fence, so the
//! same holds for it. A reader that found no free slot loads `visible` and enters the overflow map
//! in one critical section. A dropper that locks the mutex later sees the entry; one that locked it
//! earlier had loaded c before, so p >= c.
//!
//! **Why that is enough.** [`DropPoints::can_drop`] permits dropping an entry only if a newer one
//! of the same key has seqno <= c and no seen point is between them. A reader with p >= c reads the
//! newer one or a still newer one; a reader with p < c was seen. This stays true forever: old drop
//! points are conservative, never wrong.
//!
//! The reader's loop terminates: it repeats only if a newer commit was published *and* announced
//! since its last load. A clone shares the slot of its source under a count. It must not take a
//! slot of its own: a dropper could pass that slot before the clone took it and reach the source's
//! slot after the source was gone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::base::SeqNo;
use crate::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Mutex, step};

/// Value of a free slot. Larger than every seqno.
const FREE: u64 = u64::MAX;

/// Slots of a database: further simultaneous registrations are correct but slower, under a mutex.
const SLOTS: usize = 256;

/// Number of slots between the first hints of two threads: enough for a transaction, its cursors
/// and a single read.
#[cfg(not(loom))]
const HINT_STRIDE: usize = 4;

/// One registration. Padded, because readers on different cores write to adjacent slots at the same
/// time.
struct Slot {
    /// Registered point or FREE. FREE is stored with release and pairs with the acquire loads of
    /// droppers and of the next thread that claims the slot: all reads at this point happen before.
    /// Points are ordered by the fences.
    seqno: AtomicU64,
    /// Number of [`ReadPoint`]s that share the slot. Only meaningful while it is claimed.
    shared_by: AtomicU32,
}

/// Read points of one database.
pub struct ReadPoints {
    /// Newest published seqno. Stored (release) by the committer alone, in
    /// [`publish`](Self::publish). Pairs with the load (acquire) in [`visible`](Self::visible), so
    /// that a reader at s finds every entry of the commits up to s.
    visible: CachePadded<AtomicU64>,
    /// Raised (release) by droppers after they loaded `visible`. Pairs with the load (acquire) of
    /// readers, which then find `visible` at least as high.
    announced: CachePadded<AtomicU64>,
    /// Exclusive upper bound of the indexes of slots ever claimed. Spares a dropper the walk over
    /// the others.
    in_use: CachePadded<AtomicUsize>,
    slots: Box<[Arc<CachePadded<Slot>>]>,
    /// Registrations that found no slot: point and count. A leaf in the lock order; held for one
    /// map operation.
    overflow: Mutex<BTreeMap<SeqNo, usize>>,
}

/// Registered point: entries that a reader at this seqno needs are kept until it and its clones are
/// dropped.
///
/// Owned and `Send`. Register it before loading the version of the tree that is read with it.
pub struct ReadPoint {
    seqno: SeqNo,
    place: Place,
}

/// Location of a registration.
enum Place {
    /// A reference to the slot itself, not to the registry: all readers would contend for the
    /// registry's reference count.
    Slot(Arc<CachePadded<Slot>>),
    Overflow(Arc<ReadPoints>),
}

/// Points registered at one moment: the only authority on entries that may be dropped.
///
/// Stays valid, though more and more conservative, however long it is kept, so a job or a group
/// commit takes it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropPoints {
    visible: SeqNo,
    registered: Vec<SeqNo>,
}

impl ReadPoints {
    /// Creates the registry of a database with the newest published commit `visible`.
    pub fn new(visible: SeqNo) -> Arc<ReadPoints> {
        ReadPoints::with_slots(visible, SLOTS)
    }

    fn with_slots(visible: SeqNo, slots: usize) -> Arc<ReadPoints> {
        let free = || {
            Arc::new(CachePadded::new(Slot {
                seqno: AtomicU64::new(FREE),
                shared_by: AtomicU32::new(0),
            }))
        };
        Arc::new(ReadPoints {
            visible: CachePadded::new(AtomicU64::new(visible)),
            announced: CachePadded::new(AtomicU64::new(0)),
            in_use: CachePadded::new(AtomicUsize::new(0)),
            slots: (0..slots).map(|_| free()).collect(),
            overflow: Mutex::new(BTreeMap::new()),
        })
    }

    /// Returns the newest published seqno. Not a read point: the entries that a reader at it needs
    /// are not kept.
    pub fn visible(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes the commits up to `seqno` visible to readers that register from now on.
    ///
    /// Called by the committer alone, in commit order, after readers can find the entries.
    pub fn publish(&self, seqno: SeqNo) {
        debug_assert!(seqno >= self.visible(), "publication goes forward only");
        step();
        self.visible.store(seqno, Ordering::Release);
        step();
    }

    /// Registers the newest published seqno as a read point.
    pub fn register(self: &Arc<Self>) -> ReadPoint {
        let mut seqno = self.visible();
        step();
        let Some(slot) = self.claim_slot(seqno) else {
            return self.register_in_overflow();
        };
        slot.shared_by.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.announced.load(Ordering::Acquire) > seqno {
            seqno = self.visible();
            slot.seqno.store(seqno, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        ReadPoint {
            seqno,
            place: Place::Slot(Arc::clone(slot)),
        }
    }

    /// Puts `seqno` into a free slot, starting from this thread's last one; returns `None` if all
    /// are taken.
    fn claim_slot(&self, seqno: SeqNo) -> Option<&Arc<CachePadded<Slot>>> {
        let count = self.slots.len();
        let hint = hint::get().min(count);
        for index in (hint..count).chain(0..hint) {
            let slot = &self.slots[index];
            if slot.seqno.load(Ordering::Relaxed) != FREE {
                continue;
            }
            // Acquire: the thread that raised it did so before this thread's fence.
            if self.in_use.load(Ordering::Acquire) <= index {
                self.in_use.fetch_max(index + 1, Ordering::Release);
            }
            let (claim, refusal) = (Ordering::Acquire, Ordering::Relaxed);
            let claimed = slot.seqno.compare_exchange(FREE, seqno, claim, refusal);
            if claimed.is_ok() {
                hint::set(index);
                return Some(slot);
            }
        }
        None
    }

    #[cold]
    fn register_in_overflow(self: &Arc<Self>) -> ReadPoint {
        let mut overflow = self.overflow.lock();
        // Loaded under the mutex: see the proof.
        let seqno = self.visible();
        *overflow.entry(seqno).or_insert(0) += 1;
        drop(overflow);
        ReadPoint {
            seqno,
            place: Place::Overflow(Arc::clone(self)),
        }
    }

    /// Returns the points that currently decide which entries may be dropped.
    ///
    /// Costs a load for each slot ever in use (at most 256 cache lines): take it once for a job or
    /// a group commit.
    pub fn horizon_points(&self) -> DropPoints {
        let mut registered = Vec::new();
        let visible = self.for_each_point(|point| registered.push(point));
        registered.sort_unstable();
        registered.dedup();
        DropPoints {
            visible,
            registered,
        }
    }

    /// Returns the oldest point that any reader reads at, now or later: at or below it only the
    /// newest entry of a key matters.
    pub fn horizon(&self) -> SeqNo {
        let mut oldest = SeqNo::MAX;
        let visible = self.for_each_point(|point| oldest = oldest.min(point));
        oldest.min(visible)
    }

    /// Dropper's side of the protocol: returns c and passes every registered point below it to
    /// `seen`.
    fn for_each_point(&self, mut seen: impl FnMut(SeqNo)) -> SeqNo {
        let bound = self.visible();
        step();
        self.announced.fetch_max(bound, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        step();
        let in_use = self.in_use.load(Ordering::Relaxed);
        for slot in &self.slots[..in_use] {
            let point = slot.seqno.load(Ordering::Acquire);
            // A free slot holds the largest number and is skipped here too.
            if point < bound {
                seen(point);
            }
        }
        for (&point, _) in self.overflow.lock().range(..bound) {
            seen(point);
        }
        bound
    }
}

impl fmt::Debug for ReadPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadPoints")
            .field("visible", &self.visible())
            .finish_non_exhaustive()
    }
}

impl ReadPoint {
    /// Returns the newest seqno that this point reads.
    pub fn seqno(&self) -> SeqNo {
        self.seqno
    }
}

impl Clone for ReadPoint {
    fn clone(&self) -> ReadPoint {
        let place = match &self.place {
            Place::Slot(slot) => {
                // Relaxed: the source keeps the slot claimed, and incrementing a count needs no
                // order.
                let before = slot.shared_by.fetch_add(1, Ordering::Relaxed);
                assert!(before < u32::MAX, "too many clones of one read point");
                Place::Slot(Arc::clone(slot))
            }
            Place::Overflow(registry) => {
                *registry.overflow.lock().entry(self.seqno).or_insert(0) += 1;
                Place::Overflow(Arc::clone(registry))
            }
        };
        ReadPoint {
            seqno: self.seqno,
            place,
        }
    }
}

impl Drop for ReadPoint {
    fn drop(&mut self) {
        match &self.place {
            Place::Slot(slot) => {
                // With a count of one no other thread can clone or drop; this spares the common
                // case a second locked instruction. Acquire and release: the reads of all sharers
                // come before the slot is free.
                if slot.shared_by.load(Ordering::Acquire) == 1
                    || slot.shared_by.fetch_sub(1, Ordering::AcqRel) == 1
                {
                    slot.seqno.store(FREE, Ordering::Release);
                }
            }
            Place::Overflow(registry) => {
                let mut overflow = registry.overflow.lock();
                if let Some(count) = overflow.get_mut(&self.seqno) {
                    *count -= 1;
                    if *count == 0 {
                        overflow.remove(&self.seqno);
                    }
                }
            }
        }
    }
}

impl fmt::Debug for ReadPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadPoint").field(&self.seqno).finish()
    }
}

impl DropPoints {
    /// Creates drop points with these numbers, for tests.
    #[cfg(test)]
    pub fn new(visible: SeqNo, registered: Vec<SeqNo>) -> DropPoints {
        DropPoints {
            visible,
            registered,
        }
    }

    /// Returns the registered points below the bound, ascending, without duplicates.
    #[cfg(test)]
    pub fn registered(&self) -> &[SeqNo] {
        &self.registered
    }

    /// Returns the oldest of the registered points and the bound.
    pub fn horizon(&self) -> SeqNo {
        self.registered.first().copied().unwrap_or(self.visible)
    }

    /// Returns the registered points and the bound, ascending: an older entry may be dropped if
    /// none of them distinguishes it from a newer one, see [`DropPoints::can_drop`].
    pub fn told_apart(&self) -> Vec<SeqNo> {
        let registered = self.registered.iter().copied();
        registered.chain([self.visible]).collect()
    }

    /// Returns true if no reader, now or later, needs a key's entry at `older`, given one at
    /// `newer`.
    pub fn can_drop(&self, older: SeqNo, newer: SeqNo) -> bool {
        if older >= newer || newer > self.visible {
            return false;
        }
        let first_at_or_above = self.registered.partition_point(|&point| point < older);
        self.registered
            .get(first_at_or_above)
            .is_none_or(|&point| point >= newer)
    }
}

/// Start of a thread's search for a free slot: the slot that it claimed last, usually free again
/// and in this core's cache.
#[cfg(not(loom))]
mod hint {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{HINT_STRIDE, SLOTS};

    static THREADS: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static HINT: Cell<usize> =
            Cell::new(THREADS.fetch_add(1, Ordering::Relaxed).wrapping_mul(HINT_STRIDE) % SLOTS);
    }

    pub(super) fn get() -> usize {
        HINT.get()
    }

    pub(super) fn set(index: usize) {
        HINT.set(index);
    }
}

/// All threads of a model start at the first slot: they are really one thread, and every pass must
/// be the same.
#[cfg(loom)]
mod hint {
    pub(super) fn get() -> usize {
        0
    }

    pub(super) fn set(_index: usize) {}
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
