//! The registry of read points: which commits somebody still reads as of, and so what may be dropped.
//!
//! Every snapshot, cursor, transaction and single read registers before it loads a version of the tree. Whatever
//! drops, cancels, unlinks or zeroes an entry asks [`ReadPoints::horizon_points`] and nothing else, never the
//! current visible number: a reader may have read that number and be about to use it.
//!
//! # Protocol
//!
//! `visible` is the newest published seqno, `announced` the newest that a dropper has taken as its bound, and a
//! slot holds the point of one registration, or FREE.
//!
//! ```text
//! reader:  s := visible                          dropper:  c := visible
//!          slot: FREE -> s                                 announced := max(announced, c)
//!          fence                                           fence
//!          while announced > s:                            read all slots in use, and the overflow map
//!              s := visible; slot := s; fence              bound c, points = those read that are < c
//! ```
//!
//! **Claim.** A reader that ends with point p either has p >= c, or the dropper saw p (or looked after the reader
//! had let go of it). **Proof.** The fences are sequentially consistent, so the reader's last one and the dropper's
//! have an order. If the dropper's is first, the reader's last load of `announced` gives at least c, and the reader
//! ends only with p at least that. If the reader's is first, the store of p comes before it and the dropper's load
//! of the slot after the dropper's fence, so the dropper finds p or what came after p: FREE. The number of slots in
//! use is raised before a slot beyond it is claimed, and loaded after the dropper's fence, so the same holds for it.
//! A reader that found no free slot loads `visible` and enters the overflow map under one hold of its mutex: a
//! dropper that has the mutex later sees the entry, and one that had it earlier had loaded c before, so p >= c.
//!
//! **Why that is enough.** [`DropPoints::can_drop`] allows an entry to go only if a newer one of the same key has
//! seqno <= c and no seen point lies between them. A reader with p >= c reads the newer one or a still newer one;
//! a reader with p < c was seen. This stays true for ever: drop points that were kept for a while are cautious,
//! never wrong.
//!
//! The reader's loop ends: it repeats only if a newer commit was published *and* announced since its last load.
//! A clone shares the slot of its source under a count. It must not take a slot of its own: a dropper could pass
//! that slot before the clone took it and reach the source's slot after the source was gone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::base::SeqNo;
use crate::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Mutex, step};

/// A slot that registers nothing. Larger than every seqno.
const FREE: u64 = u64::MAX;

/// Slots of a database: more registrations at one time are right but slower, behind a mutex.
const SLOTS: usize = 256;

/// The slots between two threads' first guesses: room for a transaction, its cursors and a single read.
#[cfg(not(loom))]
const HINT_STRIDE: usize = 4;

/// One registration. Padded, because readers on different cores write to neighbouring slots at the same time.
struct Slot {
    /// The registered point or FREE. FREE is stored with release and pairs with the acquire loads of droppers
    /// and of the next to claim the slot: what the reader read, it read before. Points are ordered by the fences.
    seqno: AtomicU64,
    /// How many [`ReadPoint`]s share the slot. Only meaningful while it is claimed.
    shared_by: AtomicU32,
}

/// The read points of one database.
pub struct ReadPoints {
    /// Stored (release) by the committer alone, in [`publish`](Self::publish). Pairs with the load (acquire) in
    /// [`visible`](Self::visible), so that a reader at s finds every entry of the commits up to s.
    visible: CachePadded<AtomicU64>,
    /// Raised (release) by droppers after they loaded `visible`. Pairs with the load (acquire) of readers, who then
    /// find `visible` at least as high.
    announced: CachePadded<AtomicU64>,
    /// No slot at or above this index was ever claimed. Spares a dropper the walk over the rest.
    in_use: CachePadded<AtomicUsize>,
    slots: Box<[Arc<CachePadded<Slot>>]>,
    /// Registrations that found no slot: point and count. A leaf in the lock order; held for a map operation.
    overflow: Mutex<BTreeMap<SeqNo, usize>>,
}

/// A registered point: entries that a reader at this seqno needs are kept until it and its clones are dropped.
///
/// Owned and `Send`. Register it before loading the version of the tree that is read with it.
pub struct ReadPoint {
    seqno: SeqNo,
    place: Place,
}

/// Where a point is registered.
enum Place {
    /// Owned by itself, not through the registry: readers would meet at the registry's one reference count.
    Slot(Arc<CachePadded<Slot>>),
    Overflow(Arc<ReadPoints>),
}

/// What was registered at one moment: the one authority on what may be dropped.
///
/// Stays valid, if ever more cautious, however long it is kept, so a job or a group of commits takes it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropPoints {
    visible: SeqNo,
    registered: Vec<SeqNo>,
}

impl ReadPoints {
    /// The registry of a database whose newest published commit is `visible`.
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

    /// The newest published seqno. Not a read point: nothing keeps what a reader at it would need.
    pub fn visible(&self) -> SeqNo {
        self.visible.load(Ordering::Acquire)
    }

    /// Makes the commits up to `seqno` visible to readers that register from now on.
    ///
    /// Called by the committer alone, in commit order, after the entries are where readers find them.
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

    /// Puts `seqno` into a free slot, from this thread's last one on; `None` if all are taken.
    fn claim_slot(&self, seqno: SeqNo) -> Option<&Arc<CachePadded<Slot>>> {
        let count = self.slots.len();
        let hint = hint::get().min(count);
        for index in (hint..count).chain(0..hint) {
            let slot = &self.slots[index];
            if slot.seqno.load(Ordering::Relaxed) != FREE {
                continue;
            }
            // Acquire: whoever raised it did so before this thread's fence.
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

    /// What may be dropped as of now.
    ///
    /// Costs a load for each slot ever in use (at most 256 cache lines): take it once for a job or a group of
    /// commits.
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

    /// The oldest point that anybody reads as of, now or later: at or below it only the newest entry of a key
    /// matters.
    pub fn horizon(&self) -> SeqNo {
        let mut oldest = SeqNo::MAX;
        let visible = self.for_each_point(|point| oldest = oldest.min(point));
        oldest.min(visible)
    }

    /// The dropper's side of the protocol: returns c and shows every registered point below it.
    fn for_each_point(&self, mut seen: impl FnMut(SeqNo)) -> SeqNo {
        let bound = self.visible();
        step();
        self.announced.fetch_max(bound, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        step();
        let in_use = self.in_use.load(Ordering::Relaxed);
        for slot in &self.slots[..in_use] {
            let point = slot.seqno.load(Ordering::Acquire);
            // A free slot holds the largest number and falls out here too.
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
    /// The newest seqno that this point reads.
    pub fn seqno(&self) -> SeqNo {
        self.seqno
    }
}

impl Clone for ReadPoint {
    fn clone(&self) -> ReadPoint {
        let place = match &self.place {
            Place::Slot(slot) => {
                // Relaxed: the source keeps the slot claimed, and a count needs no order to grow.
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
                // A count of one means that nobody else can clone or drop; it spares the common case a second
                // locked instruction. Acquire and release: the reads of all sharers come before the slot is free.
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
    /// A judgement by these numbers, for tests of what uses it.
    #[cfg(test)]
    pub fn new(visible: SeqNo, registered: Vec<SeqNo>) -> DropPoints {
        DropPoints {
            visible,
            registered,
        }
    }

    /// The registered points below the bound, ascending, each once.
    #[cfg(test)]
    pub fn registered(&self) -> &[SeqNo] {
        &self.registered
    }

    /// The oldest of the registered points and the bound.
    pub fn horizon(&self) -> SeqNo {
        self.registered.first().copied().unwrap_or(self.visible)
    }

    /// The registered points and the bound, ascending: an older entry that none of them tells from a newer one may be
    /// dropped, as [`DropPoints::can_drop`] says.
    pub fn told_apart(&self) -> Vec<SeqNo> {
        let registered = self.registered.iter().copied();
        registered.chain([self.visible]).collect()
    }

    /// Whether no reader, now or later, needs the entry of a key at `older` when there is one at `newer`.
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

/// Where a thread starts to look for a free slot: at the one that it claimed last, which is most often free again
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

/// All threads of a model start at the first slot: they are one thread in truth, and every pass must be alike.
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
