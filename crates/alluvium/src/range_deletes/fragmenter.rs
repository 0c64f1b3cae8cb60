//! Cuts the range deletes of any number of sources into fragments.
//!
//! A sweep over the bounds of all ranges in key order keeps the seqnos that cover the current
//! position. At each bound it writes the fragment that ends there, with the seqnos distinguished by
//! read points. Equal neighbors are joined, so that `n` nested ranges without a snapshot become one
//! fragment.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{KeyRange, RangeDeletes, RangeHistory};
use crate::base::SeqNo;

/// Collects range deletes and cuts them into fragments.
#[derive(Default)]
pub struct Fragmenter<'a> {
    ranges: Vec<(KeyRange<'a>, SeqNo)>,
}

/// Position at which a range begins or ends.
struct Edge<'a> {
    key: &'a [u8],
    begins: bool,
    seqno: SeqNo,
}

impl<'a> Fragmenter<'a> {
    /// Adds one range delete. An empty range adds nothing.
    pub fn add(&mut self, range: KeyRange<'a>, seqno: SeqNo) {
        if range.0 < range.1 {
            self.ranges.push((range, seqno));
        }
    }

    /// Adds the range deletes of a memtable.
    pub fn add_history(&mut self, history: &'a RangeHistory) {
        history.for_each(|range, seqno| self.add(range, seqno));
    }

    /// Adds the range deletes of a table from `low` to `high` (exclusive; `None`: no limit).
    pub fn add_fragments(
        &mut self,
        ranges: &'a RangeDeletes,
        low: &'a [u8],
        high: Option<&'a [u8]>,
    ) {
        for fragment in ranges.iter() {
            let start = fragment.start.max(low);
            let end = high.map_or(fragment.end, |high| fragment.end.min(high));
            for &seqno in fragment.seqnos {
                self.add((start, end), seqno);
            }
        }
    }

    /// Returns the memory of the list, and of [`Fragmenter::finish`] without its result.
    pub fn memory_bytes(&self) -> usize {
        let edges = 2 * self.ranges.len() * size_of::<Edge<'_>>();
        self.ranges.capacity() * size_of::<(KeyRange<'_>, SeqNo)>() + edges
    }

    /// Builds the fragments.
    ///
    /// `points` are all read points that a reader may have, ascending. Of the range deletes over a
    /// key it keeps all above the last point, and for each point the newest one at or below it.
    /// Without points it keeps all.
    pub fn finish(self, points: &[SeqNo]) -> RangeDeletes {
        let mut edges = Vec::with_capacity(2 * self.ranges.len());
        for ((start, end), seqno) in self.ranges {
            for (key, begins) in [(start, true), (end, false)] {
                edges.push(Edge { key, begins, seqno });
            }
        }
        edges.sort_unstable_by_key(|edge| edge.key);
        let mut fragments = RangeDeletes::default();
        // Number of ranges of each seqno that cover the current position.
        let mut covering: BTreeMap<SeqNo, usize> = BTreeMap::new();
        let (mut kept, mut start): (Vec<SeqNo>, &[u8]) = (Vec::new(), &[]);
        for at_key in edges.chunk_by(|a, b| a.key == b.key) {
            let key = at_key[0].key;
            if !covering.is_empty() {
                keep(&covering, points, &mut kept);
                let pushed = fragments.push_joined(start, key, &kept);
                debug_assert!(pushed, "bounds ascend");
            }
            for Edge { begins, seqno, .. } in at_key {
                if *begins {
                    *covering.entry(*seqno).or_default() += 1;
                } else if let Some(count) = covering.get_mut(seqno).filter(|count| **count > 1) {
                    *count -= 1;
                } else {
                    covering.remove(seqno);
                }
            }
            start = key;
        }
        debug_assert!(covering.is_empty(), "every range ends");
        fragments.shrink();
        fragments
    }
}

/// Chooses the seqnos to keep, falling: see [`Fragmenter::finish`].
fn keep(covering: &BTreeMap<SeqNo, usize>, points: &[SeqNo], kept: &mut Vec<SeqNo>) {
    kept.clear();
    let Some(&last) = points.last() else {
        kept.extend(covering.keys().rev());
        return;
    };
    let unseen = covering.range((Bound::Excluded(last), Bound::Unbounded));
    kept.extend(unseen.rev().map(|(seqno, _)| *seqno));
    let mut points = points;
    // Terminates: each round leaves fewer points.
    while let Some(&point) = points.last()
        && let Some((&seqno, _)) = covering.range(..=point).next_back()
    {
        kept.push(seqno);
        points = &points[..points.partition_point(|&point| point < seqno)];
    }
}
