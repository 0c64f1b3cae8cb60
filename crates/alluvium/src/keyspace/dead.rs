//! Dead intervals: key ranges of one tree in which a reader met only deleted rows, so that later
//! readers can skip them. Without them, a reader of a queue that is deleted row by row at its head
//! would walk over all those tombstones at every read of the head, in memtables and in tables.
//!
//! An interval states: no key in it is live for a read point at or after `since`. The statement is
//! about the whole tree, so flushes, compactions and splits cannot invalidate it. Only a put inside
//! the interval or an ingest can; an ingest ends all intervals.
//! # Protocol
//!
//! ```text
//! reader at s: walks over dead rows               writer of commit q: for each put k,
//!   in_use := true                                before q is published:
//!   announce a pending interval from here on        last_put := q
//!   fence                                           fence
//!   if last_put > s: give up                        if in_use: take k out of all intervals,
//!   walk at s to the next live row                    pending ones too
//!   commit the rest of the pending interval       publish q
//! ```
//!
//! **Claim.** A committed interval has no key that is live at any read point r >= s. **Proof.** At
//! s itself the walk saw it. Let q > s be the seqno of a put of a key k in it. The fences are
//! sequentially consistent, so the reader's and the writer's have an order. If the reader's is
//! first, the writer loads `in_use` as true and takes k out of the interval. The writer holds the
//! mutex that also guards announcement and commit, so it finds the interval, pending or committed.
//! If the writer's is first, the reader loads `last_put` >= q > s and gives up. And k is taken out
//! before q is published: a reader with r >= q registered r after that and finds the interval
//! without k. A reader with s <= r < q does not see the put.
//!
//! Only committed rows count as dead. A transaction's own deletes and expired rows do not, because
//! other readers may see those rows as live.

mod intervals;

use crossbeam_utils::CachePadded;

use std::sync::Arc;

use crate::base::SeqNo;
use crate::memory::{Charge, MemoryBudget, Use};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use intervals::{Interval, Intervals};

/// Maximum number of announced walks; further readers walk without recording an interval.
const PENDING_MAX: usize = 16;

/// The dead intervals of one tree.
#[derive(Default)]
pub(crate) struct DeadSpace {
    /// True if there are intervals, or a reader is about to announce one. Set by readers and never
    /// reset: a tree that had a walk over dead rows takes one mutex for each put. Ordered by the
    /// fences.
    in_use: AtomicBool,
    /// Seqno of the newest commit that put a row here. Stored by the commit leader alone, at each
    /// commit, so it has a cache line of its own; ordered by the fences.
    last_put: CachePadded<AtomicU64>,
    /// Guards all intervals. A leaf in the lock order; held for one tree descent and a pass over at
    /// most 16 walks.
    intervals: Mutex<State>,
    /// Memory of the committed intervals, charged to the memory budget. Locked before `intervals`,
    /// never after it, because charging may evict blocks.
    charge: Option<Mutex<Charge>>,
}

#[derive(Default)]
struct State {
    committed: Intervals,
    pending: Vec<(u64, Interval)>,
    next_id: u64,
}

/// Extent of an interval in the direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To the key written to the caller's buffer.
    To,
    /// To the end of the tree.
    Everything,
}

/// An announced walk. It must be committed or abandoned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Announced(u64);

impl DeadSpace {
    /// Creates an empty set of intervals that charges its memory to `budget`.
    pub fn new(budget: &Arc<MemoryBudget>) -> DeadSpace {
        DeadSpace {
            charge: Some(Mutex::new(Charge::new(budget, Use::Tables))),
            ..DeadSpace::default()
        }
    }

    /// Returns true if there may be intervals to look for.
    pub fn in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Finds the end of the interval around `key` for a reader at `read_point` and writes it to
    /// `to`. Leaves `to` unchanged if there is no interval.
    pub fn find_end(&self, key: &[u8], read_point: SeqNo, to: &mut Vec<u8>) -> Option<Reach> {
        let intervals = self.intervals.lock();
        let Some(end) = intervals.committed.end_around(key, read_point)? else {
            return Some(Reach::Everything);
        };
        to.clear();
        to.extend_from_slice(end);
        Some(Reach::To)
    }

    /// Finds the start of the interval directly before the key `before`: the backward form of
    /// [`DeadSpace::find_end`].
    pub fn find_start(
        &self,
        before: Option<&[u8]>,
        read_point: SeqNo,
        to: &mut Vec<u8>,
    ) -> Option<Reach> {
        let intervals = self.intervals.lock();
        let start = intervals.committed.start_before(before, read_point)?;
        if start.is_empty() {
            return Some(Reach::Everything);
        }
        to.clear();
        to.extend_from_slice(start);
        Some(Reach::To)
    }

    /// Announces a walk at `read_point` over dead rows from `start` to `end` at most. Returns
    /// `None` if a row was put meanwhile, or if too many walks are announced.
    pub fn announce(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        read_point: SeqNo,
    ) -> Option<Announced> {
        let id = {
            let mut intervals = self.intervals.lock();
            if intervals.pending.len() >= PENDING_MAX {
                return None;
            }
            intervals.next_id += 1;
            let id = intervals.next_id;
            let interval = Interval {
                start: start.to_vec(),
                end: end.map(<[u8]>::to_vec),
                since: read_point,
            };
            intervals.pending.push((id, interval));
            id
        };
        self.in_use.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.last_put.load(Ordering::Relaxed) > read_point {
            self.abandon(Announced(id));
            return None;
        }
        Some(Announced(id))
    }

    /// Ends a walk without a result.
    pub fn abandon(&self, announced: Announced) {
        let mut intervals = self.intervals.lock();
        intervals.pending.retain(|(id, _)| *id != announced.0);
    }

    /// Ends a walk that found nothing live from `start` (inclusive) to `end` (exclusive). The
    /// announced part of this range, minus the part cut by puts since, becomes an interval.
    pub fn commit(&self, announced: Announced, start: &[u8], end: Option<&[u8]>) {
        let mut intervals = self.intervals.lock();
        let Some(at) = intervals.pending.iter().position(|p| p.0 == announced.0) else {
            return;
        };
        let (_, mut walked) = intervals.pending.swap_remove(at);
        if start > walked.start.as_slice() {
            walked.start = start.to_vec();
        }
        walked.end = match (walked.end, end) {
            (Some(own), Some(end)) if end < own.as_slice() => Some(end.to_vec()),
            (Some(own), _) => Some(own),
            (None, end) => end.map(<[u8]>::to_vec),
        };
        if walked.is_empty() {
            return;
        }
        intervals.committed.add(walked);
        drop(intervals);
        self.charge();
    }

    /// Charges the current memory of the intervals: of several callers the last one reads the
    /// newest number.
    fn charge(&self) {
        if let Some(charge) = &self.charge {
            let mut charge = charge.lock();
            let bytes = self.intervals.lock().committed.bytes();
            charge.set(bytes);
        }
    }

    /// Announces that the commit leader is about to put rows with `seqno`; called before the commit
    /// is published. Returns true if each of their keys must be [`revived`](DeadSpace::revive).
    pub fn putting(&self, seqno: SeqNo) -> bool {
        self.last_put.store(seqno, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.in_use.load(Ordering::Relaxed)
    }

    /// Takes a key that is put out of all intervals; the part before the key stays.
    pub fn revive(&self, key: &[u8]) {
        let mut intervals = self.intervals.lock();
        intervals.committed.cut(key);
        for (_, interval) in &mut intervals.pending {
            if interval.contains(key) {
                // Keep the front part: a queue is read from its front and written at its end.
                interval.end = Some(key.to_vec());
            }
        }
    }

    /// Ends all intervals, because rows with `seqno` arrive by an ingest. Called before it is
    /// published.
    pub fn clear(&self, seqno: SeqNo) {
        self.putting(seqno);
        let mut intervals = self.intervals.lock();
        intervals.committed.clear();
        intervals.pending.clear();
        drop(intervals);
        self.charge();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn shown(dead: &DeadSpace) -> String {
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let intervals = dead.intervals.lock();
        let words = intervals.committed.iter().map(|i| {
            let end = i.end.as_deref().map_or(String::new(), text);
            format!("{}-{end}@{}", text(&i.start), i.since)
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Returns the end of the interval around a key.
    fn found(dead: &DeadSpace, key: &str, point: SeqNo) -> Option<String> {
        let mut to = Vec::new();
        let reach = dead.find_end(key.as_bytes(), point, &mut to)?;
        assert_eq!(reach, Reach::To);
        Some(String::from_utf8(to).unwrap())
    }

    fn walk(dead: &DeadSpace, start: &str, end: &str, read_point: SeqNo) {
        let announced = dead.announce(start.as_bytes(), None, read_point).unwrap();
        dead.commit(announced, start.as_bytes(), Some(end.as_bytes()));
    }

    #[test]
    fn walks_over_neighboring_ranges_become_one_interval() {
        let dead = DeadSpace::default();
        walk(&dead, "b", "d", 5);
        walk(&dead, "g", "h", 6);
        assert_eq!(shown(&dead), "b-d@5 g-h@6");
        walk(&dead, "d", "e", 7);
        assert_eq!(shown(&dead), "b-e@7 g-h@6");
        walk(&dead, "a", "z", 8);
        assert_eq!(shown(&dead), "a-z@8");
    }

    #[test]
    fn an_interval_is_for_read_points_as_new_as_its_walk() {
        let dead = DeadSpace::default();
        walk(&dead, "b", "d", 5);
        assert_eq!(found(&dead, "c", 4), None);
        assert_eq!(found(&dead, "c", 5).as_deref(), Some("d"));
        assert_eq!(found(&dead, "d", 9), None);
        assert_eq!(found(&dead, "a", 9), None);
        let before = |key: &str, point| {
            let mut to = Vec::new();
            let reach = dead.find_start(Some(key.as_bytes()), point, &mut to)?;
            Some((reach, String::from_utf8(to).unwrap()))
        };
        assert_eq!(before("b", 9), None);
        assert_eq!(before("c", 4), None);
        for key in ["c", "d"] {
            assert_eq!(before(key, 5), Some((Reach::To, "b".to_owned())));
        }
        assert_eq!(before("e", 9), None);
    }

    #[test]
    fn a_put_cuts_committed_and_announced_intervals() {
        let dead = DeadSpace::default();
        walk(&dead, "b", "d", 5);
        let announced = dead.announce(b"e", None, 6).unwrap();
        assert!(dead.putting(7));
        dead.revive(b"c");
        dead.revive(b"g");
        dead.commit(announced, b"e", Some(b"k"));
        assert_eq!(shown(&dead), "b-c@5 e-g@6");
        dead.revive(b"b");
        assert_eq!(shown(&dead), "e-g@6");
        dead.clear(8);
        assert_eq!(shown(&dead), "");
    }

    #[test]
    fn a_walk_gives_up_after_a_put_that_it_may_not_have_seen() {
        let dead = DeadSpace::default();
        assert!(!dead.putting(7));
        assert_eq!(dead.announce(b"b", None, 6), None);
        assert!(dead.announce(b"b", None, 7).is_some());
    }
}

#[cfg(all(test, loom))]
mod model {
    //! One reader that walks over a dead key and one writer that puts it, in all interleavings.

    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool as LoomBool, AtomicU64 as LoomU64};
    use loom::thread;

    #[test]
    fn model_no_reader_passes_over_a_row_that_it_should_see() {
        loom::model(|| {
            let dead = Arc::new(DeadSpace::default());
            let visible = Arc::new(LoomU64::new(1));
            let written = Arc::new(LoomBool::new(false));
            let writer = {
                let (dead, visible) = (Arc::clone(&dead), Arc::clone(&visible));
                let written = Arc::clone(&written);
                thread::spawn(move || {
                    written.store(true, Ordering::Release);
                    if dead.putting(2) {
                        dead.revive(b"k");
                    }
                    visible.store(2, Ordering::Release);
                })
            };
            // A walk at its read point over the only key; the put of commit 2 makes that key live.
            let read_point = visible.load(Ordering::Acquire);
            if let Some(announced) = dead.announce(b"a", None, read_point) {
                let live = read_point >= 2 && written.load(Ordering::Acquire);
                if live {
                    dead.commit(announced, b"a", Some(b"k"))
                } else {
                    dead.commit(announced, b"a", None)
                }
            }
            // A later read skips the keys recorded as dead.
            let later = visible.load(Ordering::Acquire);
            if later >= 2 {
                let found = dead.find_end(b"k", later, &mut Vec::new());
                assert_eq!(found, None, "the put is passed over");
            }
            writer.join().expect("the writer ends");
        });
    }
}
