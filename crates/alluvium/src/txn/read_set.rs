//! Read set: keys read by a transaction and ranges passed over by its cursors. The commit checks
//! that they are unchanged.
//!
//! A range reaches from the start of a scan to the last key found, or to the scan's bound if no key
//! was found: the absence of keys in between was read too. Own writes in a range do no harm, they
//! only make it wider.
//!
//! Memory is bounded: above [`READ_SET_BYTES_MAX`] neighbors are joined, gaps included. Keys that
//! were never read can then cause a conflict, but no conflict is missed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::sync::plain::Mutex;

use crate::keyspace::tree::Tree;

/// Maximum memory of one transaction's read set in bytes, overhead included.
pub(crate) const READ_SET_BYTES_MAX: usize = 1 << 20;
/// Memory of a key or range in bytes, besides its keys.
const RANGE_OVERHEAD: usize = 64;

/// End of a range that begins at some key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The range is its first key alone.
    Key,
    /// Exclusive end.
    Before(Vec<u8>),
    Unbounded,
}

/// Set of keys of one keyspace: ranges that do not touch, by their first keys.
#[derive(Debug, Default)]
pub(crate) struct KeyRanges {
    ranges: BTreeMap<Vec<u8>, End>,
    bytes: usize,
}

/// Reads of one keyspace.
pub(crate) struct TreeReads {
    pub tree: Arc<Tree>,
    pub ranges: KeyRanges,
}

/// Reads of a transaction: see the module.
#[derive(Default)]
pub(crate) struct ReadSet {
    /// Closed reads, one element per keyspace.
    reads: Vec<TreeReads>,
    /// Ranges that open cursors have passed over since their last seek, by cursor number.
    spans: BTreeMap<u64, Span>,
    next_span: u64,
    /// Maximum memory in bytes.
    bytes_max: usize,
}

struct Span {
    tree: Arc<Tree>,
    low: Vec<u8>,
    /// Exclusive; `None`: unbounded.
    high: Option<Vec<u8>>,
}

impl End {
    fn bytes(&self) -> usize {
        match self {
            End::Before(key) => key.len(),
            End::Key | End::Unbounded => 0,
        }
    }

    /// Returns true if a range from `start` to this end contains `key`, which is not below `start`.
    fn covers(&self, start: &[u8], key: &[u8]) -> bool {
        match self {
            End::Key => start == key,
            End::Before(end) => key < end.as_slice(),
            End::Unbounded => true,
        }
    }
}

impl KeyRanges {
    /// Adds one key.
    pub fn add_key(&mut self, key: &[u8]) {
        if !self.contains(key) {
            self.insert(key.to_vec(), End::Key);
        }
    }

    /// Adds the keys from `start` to `end` (exclusive; `None`: no upper bound).
    pub fn add_range(&mut self, start: &[u8], end: Option<&[u8]>) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        let mut start = start.to_vec();
        let mut end = end.map(<[u8]>::to_vec);
        if let Some((low, high)) = self.at_or_before(&start) {
            match high {
                End::Unbounded => return,
                End::Before(high) if high.as_slice() >= start.as_slice() => {
                    start.clone_from(low);
                    end = end.map(|end| end.max(high.clone()));
                }
                End::Before(_) | End::Key => {}
            }
        }
        while let Some((low, high)) = self.first_from(&start, end.as_deref()) {
            // A range that begins inside may reach further; a single key inside does not.
            end = match high {
                End::Unbounded => None,
                End::Before(high) => end.map(|end| end.max(high)),
                End::Key => end,
            };
            self.remove(&low);
        }
        self.insert(start, end.map_or(End::Unbounded, End::Before));
    }

    /// Returns the first range that begins within these bounds, the end included: touching ranges
    /// are joined.
    fn first_from(&self, start: &[u8], end: Option<&[u8]>) -> Option<(Vec<u8>, End)> {
        let upper = end.map_or(Bound::Unbounded, Bound::Included);
        let mut inside = self
            .ranges
            .range::<[u8], _>((Bound::Included(start), upper));
        // A single key exactly at the end stays separate: it is cheap to look up.
        let found = inside.find(|(low, high)| **high != End::Key || Some(&low[..]) != end)?;
        Some((found.0.clone(), found.1.clone()))
    }

    fn at_or_before(&self, key: &[u8]) -> Option<(&Vec<u8>, &End)> {
        let before = (Bound::Unbounded, Bound::Included(key));
        self.ranges.range::<[u8], _>(before).next_back()
    }

    fn insert(&mut self, start: Vec<u8>, end: End) {
        self.bytes += start.len() + end.bytes() + RANGE_OVERHEAD;
        self.ranges.insert(start, end);
    }

    fn remove(&mut self, start: &[u8]) {
        if let Some(end) = self.ranges.remove(start) {
            self.bytes -= start.len() + end.bytes() + RANGE_OVERHEAD;
        }
    }

    /// Returns true if the key is in the set.
    pub fn contains(&self, key: &[u8]) -> bool {
        let found = self.at_or_before(key);
        found.is_some_and(|(start, end)| end.covers(start, key))
    }

    /// Returns true if any key from `start` to `end` (exclusive) is in the set.
    pub fn intersects(&self, start: &[u8], end: &[u8]) -> bool {
        let inside = (Bound::Included(start), Bound::Excluded(end));
        start < end
            && (self.contains(start) || self.ranges.range::<[u8], _>(inside).next().is_some())
    }

    /// Returns all ranges in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &End)> {
        self.ranges.iter().map(|(start, end)| (&start[..], end))
    }

    /// Halves the number of ranges by joining neighbors; a single range becomes the whole keyspace.
    fn coarsen(&mut self) {
        let old = std::mem::take(&mut self.ranges);
        self.bytes = 0;
        if old.len() == 1 {
            return self.insert(Vec::new(), End::Unbounded);
        }
        let mut old = old.into_iter();
        while let Some((start, end)) = old.next() {
            let end = match old.next() {
                None => end,
                Some((low, End::Key)) => End::Before([&low[..], &[0]].concat()),
                Some((_, high)) => high,
            };
            self.insert(start, end);
        }
    }
}

impl ReadSet {
    /// Creates an empty set with this memory limit in bytes.
    pub fn new(bytes_max: usize) -> ReadSet {
        ReadSet {
            bytes_max,
            ..ReadSet::default()
        }
    }

    /// Records that a key was read, whether or not it exists.
    pub fn add_key(&mut self, tree: &Arc<Tree>, key: &[u8]) {
        self.of(tree).add_key(key);
        self.bound();
    }

    fn of(&mut self, tree: &Arc<Tree>) -> &mut KeyRanges {
        let found = self.reads.iter().position(|r| r.tree.id == tree.id);
        let place = found.unwrap_or_else(|| {
            self.reads.push(TreeReads {
                tree: Arc::clone(tree),
                ranges: KeyRanges::default(),
            });
            self.reads.len() - 1
        });
        &mut self.reads[place].ranges
    }

    /// Coarsens the ranges until they fit the memory limit. Terminates: each round halves every
    /// keyspace's ranges, down to one range without key bytes.
    fn bound(&mut self) {
        let whole = RANGE_OVERHEAD * self.reads.len();
        while self.reads.iter().map(|r| r.ranges.bytes).sum::<usize>() > self.bytes_max.max(whole) {
            self.reads.iter_mut().for_each(|r| r.ranges.coarsen());
        }
    }

    fn close_span(&mut self, id: u64) {
        if let Some(span) = self.spans.remove(&id) {
            self.of(&span.tree)
                .add_range(&span.low, span.high.as_deref());
            self.bound();
        }
    }

    /// Returns everything read so far, including the reads of open cursors.
    pub fn take(&mut self) -> Vec<TreeReads> {
        let open: Vec<u64> = self.spans.keys().copied().collect();
        open.into_iter().for_each(|id| self.close_span(id));
        std::mem::take(&mut self.reads)
    }
}

/// Recorder of the reads of one cursor.
pub(crate) struct CursorReads {
    set: Arc<Mutex<ReadSet>>,
    tree: Arc<Tree>,
    id: u64,
    /// Bounds of the cursor: a scan that finds no further row has read up to them.
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl CursorReads {
    pub fn new(
        set: Arc<Mutex<ReadSet>>,
        tree: Arc<Tree>,
        start: Vec<u8>,
        end: Option<Vec<u8>>,
    ) -> CursorReads {
        let id = {
            let mut set = set.lock();
            set.next_span += 1;
            set.next_span
        };
        CursorReads {
            set,
            tree,
            id,
            start,
            end,
        }
    }

    /// Records that a seek forward from `key` found `found`.
    pub fn sought(&self, key: &[u8], found: Option<&[u8]>) {
        let low = key.max(&self.start).to_vec();
        let high = found.map_or_else(|| self.end.clone(), |key| Some(behind(key)));
        self.begin(low, high);
    }

    /// Records that a seek backward from before `key` (`None`: the end) found `found`.
    pub fn sought_before(&self, key: Option<&[u8]>, found: Option<&[u8]>) {
        let high = match (key, self.end.as_deref()) {
            (Some(key), Some(end)) => Some(key.min(end)),
            (key, end) => key.or(end),
        };
        let low = found.unwrap_or(&self.start).to_vec();
        self.begin(low, high.map(<[u8]>::to_vec));
    }

    fn begin(&self, low: Vec<u8>, high: Option<Vec<u8>>) {
        let mut set = self.set.lock();
        set.close_span(self.id);
        let tree = Arc::clone(&self.tree);
        set.spans.insert(self.id, Span { tree, low, high });
    }

    /// Records that a step forward from a row found `found`.
    pub fn stepped(&self, found: Option<&[u8]>) {
        let mut set = self.set.lock();
        let Some(span) = set.spans.get_mut(&self.id) else {
            return;
        };
        match (found, &mut span.high) {
            (None, _) => span.high.clone_from(&self.end),
            (Some(key), Some(high)) if high.as_slice() <= key => {
                high.clear();
                high.extend_from_slice(key);
                high.push(0);
            }
            (Some(_), _) => {}
        }
    }

    /// Records that a step backward from a row found `found`.
    pub fn stepped_back(&self, found: Option<&[u8]>) {
        let mut set = self.set.lock();
        let Some(span) = set.spans.get_mut(&self.id) else {
            return;
        };
        let low = found.unwrap_or(&self.start);
        if low < span.low.as_slice() {
            span.low.clear();
            span.low.extend_from_slice(low);
        }
    }
}

impl Drop for CursorReads {
    fn drop(&mut self) {
        self.set.lock().close_span(self.id);
    }
}

/// Returns the smallest key above `key`.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Small generator; any sequence is suitable.
    fn next(state: &mut u64) -> u8 {
        *state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (*state >> 56) as u8 % 24
    }

    #[test]
    fn ranges_hold_exactly_the_added_keys() {
        for seed in 0..300 {
            let mut state = seed;
            let (mut ranges, mut model) = (KeyRanges::default(), BTreeSet::new());
            for _ in 0..12 {
                let (a, b) = (next(&mut state), next(&mut state));
                match next(&mut state) % 8 {
                    0 if seed % 3 == 0 => {
                        ranges.add_range(&[a], None);
                        model.extend(a..24);
                    }
                    1..=4 => {
                        ranges.add_range(&[a], Some(&[b]));
                        model.extend(a..b.max(a));
                    }
                    _ => {
                        ranges.add_key(&[a]);
                        model.insert(a);
                    }
                }
                for key in 0..24 {
                    assert_eq!(ranges.contains(&[key]), model.contains(&key), "seed {seed}");
                }
                let bytes = |(start, end): (&[u8], &End)| start.len() + end.bytes();
                let bytes: usize = ranges.iter().map(|r| bytes(r) + RANGE_OVERHEAD).sum();
                assert_eq!(ranges.bytes, bytes);
                let (a, b) = (next(&mut state), next(&mut state));
                let meets = model.iter().any(|key| (a..b).contains(key));
                assert_eq!(ranges.intersects(&[a], &[b]), meets, "seed {seed}");
            }
        }
    }

    #[test]
    fn coarser_ranges_still_hold_everything_and_end_as_one() {
        let mut ranges = KeyRanges::default();
        (0..100u8).for_each(|key| ranges.add_key(&[key * 2]));
        ranges.add_range(&[201], Some(&[203]));
        for _ in 0..8 {
            ranges.coarsen();
            assert!((0..100u8).all(|key| ranges.contains(&[key * 2])));
            assert!(ranges.contains(&[202]));
        }
        let all: Vec<_> = ranges.iter().collect();
        assert_eq!(all, [(&[][..], &End::Unbounded)]);
    }

    #[test]
    fn touching_ranges_are_one() {
        let mut ranges = KeyRanges::default();
        ranges.add_range(b"b", Some(b"c"));
        ranges.add_range(b"c", Some(b"d"));
        ranges.add_range(b"a", Some(b"b"));
        let all: Vec<_> = ranges.iter().collect();
        assert_eq!(all, [(&b"a"[..], &End::Before(b"d".to_vec()))]);
    }
}
