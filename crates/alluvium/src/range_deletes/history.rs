//! Range deletes in the order of their commits, for one writer and any number of readers.
//!
//! Fragments with all their seqnos would take `n * n` numbers for `n` nested ranges, and copying a
//! list for each commit takes `n * n` time. A history is organized as a log-structured merge
//! instead:
//!
//! ```text
//! runs, oldest first:   |------- level 2 -------|  |- level 1 -|  |level 0|
//! level 2:              the union of its ranges; then some runs of lower levels
//! level 0:              up to 16 range deletes, searched one by one; or all of one commit
//! ```
//!
//! A run holds the range deletes of a span of seqnos and the union of their ranges. One of the
//! run's parts covers each key in the union, so a search goes from the newest run to the oldest and
//! takes the first hit. It costs one binary search for each run and each level, however the ranges
//! overlap. The only exception is the run with the read point inside its span: a key may be in its
//! union with no visible range delete over it. [`FAN_OUT`] runs of a level are joined into one of
//! the next level. So each range is copied once per level, and `n` range deletes take `O(n log n)`
//! time and memory in total.
//!
//! Runs are immutable and shared. A copy of a history copies only some pointers, and a savepoint is
//! such a copy.

use std::sync::Arc;

use super::cover::Cover;
use super::key_list::KeyList;
use super::{Deleted, KeyRange, union};
use crate::base::SeqNo;

/// Maximum number of range deletes in a run that is searched linearly.
const FEW: usize = 16;
/// Key bytes at which such a run is full: it is copied for each range delete added.
const FEW_KEY_BYTES: usize = 32 << 10;
/// Number of runs that are joined into one. A larger number takes less memory and longer searches.
const FAN_OUT: usize = 8;

/// Range deletes as immutable, shared runs.
#[derive(Debug, Clone, Default)]
pub struct RangeHistory {
    /// Oldest first. After the last run of each level there are fewer than `FAN_OUT` runs of lower
    /// levels.
    runs: Vec<Arc<Run>>,
    memory_bytes: usize,
}

#[derive(Debug)]
struct Run {
    oldest: SeqNo,
    newest: SeqNo,
    level: u32,
    parts: Parts,
}

#[derive(Debug)]
enum Parts {
    /// Range deletes, oldest first.
    Few {
        /// Start and end of each range delete.
        bounds: KeyList,
        seqnos: Vec<SeqNo>,
    },
    /// All range deletes of one commit.
    One(Cover),
    /// Runs, oldest first, and the union of their ranges.
    Runs { cover: Cover, runs: Vec<Arc<Run>> },
}

impl RangeHistory {
    /// Returns true if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the smallest and the largest seqno.
    pub fn seqno_range(&self) -> Option<(SeqNo, SeqNo)> {
        Some((self.runs.first()?.oldest, self.runs.last()?.newest))
    }

    /// Returns the memory of all runs. Never decreases.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Adds the range deletes of a commit. `seqno` is not below any earlier one. Empty ranges add
    /// nothing.
    ///
    /// Cost: `O(log n)` copies of a range, spread over the calls.
    pub fn add(&mut self, mut ranges: Vec<KeyRange<'_>>, seqno: SeqNo) {
        debug_assert!(self.runs.last().is_none_or(|run| run.newest <= seqno));
        ranges.retain(|(start, end)| start < end);
        let ranges = union(ranges);
        if ranges.len() > FEW {
            self.push(Run::one(ranges, seqno));
            self.join();
            return;
        }
        for range in ranges {
            match self.runs.last().and_then(|run| run.with(range, seqno)) {
                Some(longer) => {
                    let shorter = self.runs.pop();
                    self.memory_bytes -= shorter.map_or(0, |run| run.own_bytes());
                    self.push(longer);
                }
                None => {
                    self.push(Run::few(range, seqno));
                    self.join();
                }
            }
        }
    }

    /// Joins all runs into one, so that one binary search finds that a key is not covered. For a
    /// history that receives no more range deletes.
    ///
    /// Cost: a copy of all covered ranges.
    pub fn join_all(&mut self) {
        if self.runs.len() > 1 {
            let level = self.runs.iter().map(|run| run.level).max();
            let joined = Run::joined(std::mem::take(&mut self.runs), level.unwrap_or(0) + 1);
            self.push(joined);
        }
    }

    fn push(&mut self, run: Run) {
        self.memory_bytes += run.own_bytes();
        self.runs.push(Arc::new(run));
    }

    /// Joins the newest runs of up to the last run's level, while there are enough of them.
    /// Terminates: each round raises the last run's level and leaves fewer runs.
    fn join(&mut self) {
        while let Some(last) = self.runs.last() {
            let level = last.level;
            let above = self.runs.iter().rposition(|run| run.level > level);
            let from = above.map_or(0, |above| above + 1);
            if self.runs.len() - from < FAN_OUT {
                return;
            }
            let joined = Run::joined(self.runs.split_off(from), level + 1);
            self.push(joined);
        }
    }

    /// Returns the newest range delete over `key` that a reader at `read_point` sees.
    pub fn find(&self, key: &[u8], read_point: SeqNo) -> Option<Deleted<'_>> {
        let mut newest_first = self.runs.iter().rev();
        newest_first.find_map(|run| run.find(key, read_point))
    }

    /// Returns the seqno of that range delete; 0 if there is none.
    pub fn deleted_at(&self, key: &[u8], read_point: SeqNo) -> SeqNo {
        self.find(key, read_point).map_or(0, |found| found.seqno)
    }

    /// Finds a key from `start` to `end` (exclusive; `None`: no limit) that a range delete above
    /// `snapshot` covers.
    pub fn newer_in(&self, start: &[u8], end: Option<&[u8]>, snapshot: SeqNo) -> Option<Vec<u8>> {
        let mut newest_first = self.runs.iter().rev();
        newest_first.find_map(|run| run.newer_in(start, end, snapshot))
    }

    /// Calls `visit` with each range delete, oldest first. The ranges of one commit do not overlap.
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(KeyRange<'a>, SeqNo)) {
        for run in &self.runs {
            run.for_each(&mut visit);
        }
    }
}

impl Run {
    fn few((start, end): KeyRange<'_>, seqno: SeqNo) -> Run {
        Run {
            oldest: seqno,
            newest: seqno,
            level: 0,
            parts: Parts::Few {
                bounds: KeyList::default().with_pair(start, end),
                seqnos: vec![seqno],
            },
        }
    }

    fn one(ranges: Vec<KeyRange<'_>>, seqno: SeqNo) -> Run {
        let (mut level, mut reach) = (0, FEW);
        while reach < ranges.len() {
            level += 1;
            reach *= FAN_OUT;
        }
        Run {
            oldest: seqno,
            newest: seqno,
            level,
            parts: Parts::One(Cover::new(ranges)),
        }
    }

    /// Returns this run with one more range delete, or `None` if it is full.
    fn with(&self, (start, end): KeyRange<'_>, seqno: SeqNo) -> Option<Run> {
        let Parts::Few { bounds, seqnos } = &self.parts else {
            return None;
        };
        if seqnos.len() >= FEW || bounds.key_bytes() >= FEW_KEY_BYTES {
            return None;
        }
        let bounds = bounds.with_pair(start, end);
        let seqnos = [&seqnos[..], &[seqno]].concat();
        Some(Run {
            oldest: self.oldest,
            newest: seqno,
            level: 0,
            parts: Parts::Few { bounds, seqnos },
        })
    }

    fn joined(runs: Vec<Arc<Run>>, level: u32) -> Run {
        let mut ranges = Vec::new();
        for run in &runs {
            match &run.parts {
                Parts::Few { bounds, seqnos } => {
                    ranges.extend((0..seqnos.len()).map(|at| bounds.pair(at)));
                }
                Parts::One(cover) | Parts::Runs { cover, .. } => ranges.extend(cover.iter()),
            }
        }
        let cover = Cover::new(ranges);
        Run {
            oldest: runs.first().map_or(0, |run| run.oldest),
            newest: runs.last().map_or(0, |run| run.newest),
            level,
            parts: Parts::Runs { cover, runs },
        }
    }

    fn find(&self, key: &[u8], read_point: SeqNo) -> Option<Deleted<'_>> {
        if self.oldest > read_point {
            return None;
        }
        match &self.parts {
            Parts::Few { bounds, seqnos } => {
                let visible = seqnos.partition_point(|&seqno| seqno <= read_point);
                (0..visible).rev().find_map(|at| {
                    let (start, end) = bounds.pair(at);
                    let seqno = seqnos[at];
                    (start <= key && key < end).then_some(Deleted { start, end, seqno })
                })
            }
            Parts::One(cover) => {
                let (start, end) = cover.find(key)?;
                let seqno = self.newest;
                Some(Deleted { start, end, seqno })
            }
            Parts::Runs { cover, runs } => {
                cover.find(key)?;
                runs.iter().rev().find_map(|run| run.find(key, read_point))
            }
        }
    }

    fn newer_in(&self, start: &[u8], end: Option<&[u8]>, snapshot: SeqNo) -> Option<Vec<u8>> {
        if self.newest <= snapshot {
            return None;
        }
        match &self.parts {
            Parts::Few { bounds, seqnos } => {
                let from = seqnos.partition_point(|&seqno| seqno <= snapshot);
                (from..seqnos.len()).find_map(|at| {
                    let (low, high) = bounds.pair(at);
                    let first = low.max(start);
                    let inside = first < high && end.is_none_or(|end| first < end);
                    inside.then(|| first.to_vec())
                })
            }
            Parts::One(cover) => cover.first_in(start, end).map(<[u8]>::to_vec),
            Parts::Runs { cover, runs } => {
                let first = cover.first_in(start, end)?;
                if self.oldest > snapshot {
                    return Some(first.to_vec());
                }
                let mut newest_first = runs.iter().rev();
                newest_first.find_map(|run| run.newer_in(start, end, snapshot))
            }
        }
    }

    fn for_each<'a>(&'a self, visit: &mut impl FnMut(KeyRange<'a>, SeqNo)) {
        match &self.parts {
            Parts::Few { bounds, seqnos } => {
                let all = seqnos.iter().enumerate();
                all.for_each(|(at, &seqno)| visit(bounds.pair(at), seqno));
            }
            Parts::One(cover) => cover.iter().for_each(|range| visit(range, self.newest)),
            Parts::Runs { runs, .. } => runs.iter().for_each(|run| run.for_each(visit)),
        }
    }

    /// Returns the memory of the run without that of its parts.
    fn own_bytes(&self) -> usize {
        // The run, its reference count, and the pointer to it.
        let own = size_of::<Run>() + 3 * size_of::<usize>();
        own + match &self.parts {
            Parts::Few { bounds, seqnos } => {
                bounds.memory_bytes() + seqnos.capacity() * size_of::<SeqNo>()
            }
            Parts::One(cover) => cover.memory_bytes(),
            Parts::Runs { cover, .. } => cover.memory_bytes(),
        }
    }
}
