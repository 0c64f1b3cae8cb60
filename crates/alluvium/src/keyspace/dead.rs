//! Dead intervals: key ranges of one tree in which a reader met nothing but deleted rows, so that the next one can pass
//! over them at once. A queue, whose head is deleted row by row, would otherwise be walked from its first tombstone at
//! every look at its head, in memtables as in tables.
//!
//! An interval says: for every read point from `since` on, no key of it is live. It is a statement about the tree as a
//! whole, so flushes, merges and splits cannot break it. Only a put in it can, and an ingest, which ends all intervals.
//!
//! # Protocol
//!
//! ```text
//! reader at s: walks over dead rows               writer of commit q:  for each put k, before q is published:
//!   in_use := true                                  last_put := q
//!   announce a pending interval from here on        fence
//!   fence                                           if in_use: take k out of all intervals, pending ones too
//!   if last_put > s: give up                      ...
//!   walk at s to the next live row                  publish q
//!   commit what is left of the pending interval
//! ```
//!
//! **Claim.** A committed interval has no key that is live at any read point r >= s. **Proof.** At s itself the walk
//! saw it. Let q > s be the seqno of a put of a key k in it. The fences are sequentially consistent, so the reader's and
//! the writer's have an order. If the reader's is first, the writer loads `in_use` as true and takes k out of the
//! interval: under the same mutex as the announcement and the commit, so whichever it is at that moment. If the
//! writer's is first, the reader loads `last_put` >= q > s and gives up. And k is taken out before q is published, so a
//! reader with r >= q, which registered r after that, finds the interval without k. A reader with s <= r < q does not
//! see the put.
//!
//! Deadness is that of committed rows only: a transaction's own deletes, and rows that have expired, are no evidence,
//! because others see them otherwise.

mod intervals;

use crossbeam_utils::CachePadded;

use std::sync::Arc;

use crate::base::SeqNo;
use crate::cache::Cache;
use crate::memory::{Charge, Use};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use intervals::{Interval, Intervals};

/// Walks that may be announced at a time; more readers walk without leaving anything behind.
const PENDING_MAX: usize = 16;

/// The dead intervals of one tree.
#[derive(Default)]
pub(crate) struct DeadSpace {
    /// Whether there are intervals, or a reader is about to announce one. Set by readers, never taken back: one
    /// mutex for each put is what a tree pays that has had a walk over dead rows. Ordered by the fences.
    in_use: AtomicBool,
    /// The newest commit that put a row here. Stored by the commit leader alone, at each commit, so it has a cache line of
    /// its own; ordered by the fences.
    last_put: CachePadded<AtomicU64>,
    /// Guards all intervals. A leaf in the lock order; held for a descent, and a look at 16 walks at most.
    intervals: Mutex<State>,
    /// What the committed intervals take of the memory budget. Locked before `intervals`, never after it: blocks may go
    /// for it.
    charge: Option<Mutex<Charge>>,
}

#[derive(Default)]
struct State {
    committed: Intervals,
    pending: Vec<(u64, Interval)>,
    next_id: u64,
}

/// How far an interval reaches in the direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To the key that was put where the caller said.
    To,
    /// To the end of the tree.
    Everything,
}

/// An announced walk. It must be committed or abandoned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Announced(u64);

impl DeadSpace {
    /// Without intervals yet; they take their memory from that of `cache`.
    pub fn new(cache: &Arc<Cache>) -> DeadSpace {
        DeadSpace {
            charge: Some(Mutex::new(Charge::new(cache, Use::Tables))),
            ..DeadSpace::default()
        }
    }

    /// Whether it is worth asking for intervals.
    pub fn in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Where the interval around `key` ends for a reader at `read_point`. The end is put into `to`, which is left alone
    /// where there is no interval.
    pub fn find_end(&self, key: &[u8], read_point: SeqNo, to: &mut Vec<u8>) -> Option<Reach> {
        let intervals = self.intervals.lock();
        let Some(end) = intervals.committed.end_around(key, read_point)? else {
            return Some(Reach::Everything);
        };
        to.clear();
        to.extend_from_slice(end);
        Some(Reach::To)
    }

    /// Where the interval begins that lies right before `key`: as [`DeadSpace::find_end`], backward.
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

    /// Announces a walk at `read_point` over dead rows from `start` on, up to `end` at most. `None`: something was put
    /// meanwhile, or too many walk.
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

    /// Ends a walk that found nothing live from `start` (inclusive) to `end` (exclusive): the part of it that was
    /// announced, and in which nothing was put since, is an interval from now on.
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

    /// Charges what the intervals take now: of several callers the last one reads the newest number.
    fn charge(&self) {
        if let Some(charge) = &self.charge {
            let mut charge = charge.lock();
            let bytes = self.intervals.lock().committed.bytes();
            charge.set(bytes);
        }
    }

    /// The commit leader is about to put rows with `seqno`: called before it is published. Answers whether each of
    /// their keys must be [`revived`](DeadSpace::revive).
    pub fn putting(&self, seqno: SeqNo) -> bool {
        self.last_put.store(seqno, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.in_use.load(Ordering::Relaxed)
    }

    /// Takes a key that is put out of all intervals: what lies before it stays.
    pub fn revive(&self, key: &[u8]) {
        let mut intervals = self.intervals.lock();
        intervals.committed.cut(key);
        for (_, interval) in &mut intervals.pending {
            if interval.contains(key) {
                // The front part: a queue is walked from its front, and its puts come behind.
                interval.end = Some(key.to_vec());
            }
        }
    }

    /// Ends all intervals: rows come by another way than puts, with `seqno`. Called before it is published.
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

    /// Where the interval around a key ends.
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
    fn walks_over_neighbouring_ranges_become_one_interval() {
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
            // A walk at its read point over the only key, which the put of commit 2 makes live.
            let read_point = visible.load(Ordering::Acquire);
            if let Some(announced) = dead.announce(b"a", None, read_point) {
                let live = read_point >= 2 && written.load(Ordering::Acquire);
                match live {
                    true => dead.commit(announced, b"a", Some(b"k")),
                    false => dead.commit(announced, b"a", None),
                }
            }
            // A later read passes over what is said to be dead.
            let later = visible.load(Ordering::Acquire);
            if later >= 2 {
                let found = dead.find_end(b"k", later, &mut Vec::new());
                assert_eq!(found, None, "the put is passed over");
            }
            writer.join().expect("the writer ends");
        });
    }
}
