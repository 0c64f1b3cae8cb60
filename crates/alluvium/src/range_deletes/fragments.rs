//! Range deletes as fragments: disjoint ranges in key order, each with the seqnos that cover all of
//! it.

use super::Deleted;
use super::key_list::KeyList;
use crate::base::SeqNo;

/// Fragments in key order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeDeletes {
    /// Start and end of each fragment.
    bounds: KeyList,
    /// Seqnos of all fragments, one fragment after the other; descending within each.
    seqnos: Vec<SeqNo>,
    /// Ends of the seqnos of each fragment.
    ends: Vec<usize>,
}

/// A range of keys with the range deletes that cover all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Inclusive.
    pub start: &'a [u8],
    /// Exclusive, above `start`.
    pub end: &'a [u8],
    /// Descending, at least one.
    pub seqnos: &'a [SeqNo],
}

impl Fragment<'_> {
    /// Returns the newest range delete that a reader at `read_point` sees here.
    pub fn newest_at(&self, read_point: SeqNo) -> Option<SeqNo> {
        let newer = self.seqnos.partition_point(|&seqno| seqno > read_point);
        self.seqnos.get(newer).copied()
    }

    /// Returns the newest range delete.
    pub fn newest(&self) -> SeqNo {
        self.seqnos.first().copied().unwrap_or(0)
    }

    /// Returns true if `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start <= key && key < self.end
    }
}

impl RangeDeletes {
    /// Appends a fragment. Refuses a malformed or out-of-order fragment and returns `false`.
    #[must_use]
    pub fn push(&mut self, start: &[u8], end: &[u8], seqnos: &[SeqNo]) -> bool {
        let in_order = self.bounds.last().is_none_or(|last| last <= start);
        let falls = !seqnos.is_empty() && seqnos.is_sorted_by(|newer, older| newer > older);
        if start >= end || !in_order || !falls {
            return false;
        }
        self.bounds.push(start);
        self.bounds.push(end);
        self.seqnos.extend_from_slice(seqnos);
        self.ends.push(self.seqnos.len());
        true
    }

    /// As [`RangeDeletes::push`]; joins the fragment with the last one if they touch and have the
    /// same seqnos.
    #[must_use]
    pub(super) fn push_joined(&mut self, start: &[u8], end: &[u8], seqnos: &[SeqNo]) -> bool {
        let joins = |last: Fragment<'_>| last.end == start && last.seqnos == seqnos && start < end;
        if self.last().is_some_and(joins) {
            self.bounds.pop();
            self.bounds.push(end);
            return true;
        }
        self.push(start, end, seqnos)
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.bounds.shrink();
        self.seqnos.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Returns true if there are no fragments.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the number of fragments.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the fragment with this number in key order.
    pub fn get(&self, at: usize) -> Option<Fragment<'_>> {
        let seqnos_end = *self.ends.get(at)?;
        let seqnos_start = match at.checked_sub(1) {
            Some(before) => self.ends[before],
            None => 0,
        };
        let (start, end) = self.bounds.pair(at);
        Some(Fragment {
            start,
            end,
            seqnos: &self.seqnos[seqnos_start..seqnos_end],
        })
    }

    /// Returns the first fragment.
    pub fn first(&self) -> Option<Fragment<'_>> {
        self.get(0)
    }

    fn last(&self) -> Option<Fragment<'_>> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Returns the fragments in key order.
    pub fn iter(&self) -> impl Iterator<Item = Fragment<'_>> {
        self.iter_from(0)
    }

    fn iter_from(&self, from: usize) -> impl Iterator<Item = Fragment<'_>> {
        (from..self.len()).filter_map(|at| self.get(at))
    }

    /// Returns the number of the first fragment that ends after `key`.
    pub fn first_ending_after(&self, key: &[u8]) -> usize {
        let ends_before = |at| self.bounds.get(2 * at + 1) <= key;
        self.bounds.partition_point_by(self.len(), ends_before)
    }

    /// Returns the fragment that contains `key`.
    pub fn find(&self, key: &[u8]) -> Option<Fragment<'_>> {
        let found = self.get(self.first_ending_after(key))?;
        found.contains(key).then_some(found)
    }

    /// Returns the newest range delete over `key` that a reader at `read_point` sees, with the
    /// fragment's range.
    pub fn find_at(&self, key: &[u8], read_point: SeqNo) -> Option<Deleted<'_>> {
        let fragment = self.find(key)?;
        Some(Deleted {
            start: fragment.start,
            end: fragment.end,
            seqno: fragment.newest_at(read_point)?,
        })
    }

    /// Returns the seqno of the newest range delete over `key` that a reader at `read_point` sees;
    /// 0 if there is none.
    pub fn deleted_at(&self, key: &[u8], read_point: SeqNo) -> SeqNo {
        let found = self.find_at(key, read_point);
        found.map_or(0, |found| found.seqno)
    }

    /// Finds a key from `start` to `end` (exclusive; `None`: no limit) that a range delete above
    /// `snapshot` covers.
    pub fn newer_in(&self, start: &[u8], end: Option<&[u8]>, snapshot: SeqNo) -> Option<Vec<u8>> {
        let mut inside = self
            .iter_from(self.first_ending_after(start))
            .take_while(|f| end.is_none_or(|end| f.start < end));
        let newer = inside.find(|f| f.newest() > snapshot)?;
        Some(newer.start.max(start).to_vec())
    }

    /// Returns true if a fragment covers a key at or above `low` and below `high` (`None`: no
    /// limit).
    pub fn reaches_into(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        let first = self.get(self.first_ending_after(low));
        first.is_some_and(|first| high.is_none_or(|high| first.start < high))
    }

    /// Returns the part of the fragments at or above `low` and below `high` (`None`: no limit).
    pub fn clipped(&self, low: &[u8], high: Option<&[u8]>) -> RangeDeletes {
        let mut clipped = RangeDeletes::default();
        for fragment in self.iter_from(self.first_ending_after(low)) {
            let start = low.max(fragment.start);
            let end = high.map_or(fragment.end, |high| high.min(fragment.end));
            if !clipped.push(start, end, fragment.seqnos) {
                // The fragment begins at or above `high`.
                break;
            }
        }
        clipped
    }

    /// Appends all of `later`; its keys must be above. Leaves out fragments that are not above.
    pub fn append(&mut self, later: &RangeDeletes) {
        for fragment in later.iter() {
            let appended = self.push(fragment.start, fragment.end, fragment.seqnos);
            debug_assert!(appended, "the ranges are in order");
        }
    }

    /// Returns true if range deletes at or below `horizon` hide every entry up to the seqno
    /// `newest` with a key from `first` to `last` (inclusive).
    pub fn hide_all(&self, first: &[u8], last: &[u8], newest: SeqNo, horizon: SeqNo) -> bool {
        let mut reached: Option<&[u8]> = None;
        // Terminates with the fragments: each one must begin at the end of the previous one.
        for fragment in self.iter_from(self.first_ending_after(first)) {
            let joined = match reached {
                None => fragment.start <= first,
                Some(end) => fragment.start == end,
            };
            if !joined || fragment.newest_at(horizon).is_none_or(|s| s <= newest) {
                return false;
            }
            if last < fragment.end {
                return true;
            }
            reached = Some(fragment.end);
        }
        false
    }

    /// Returns the smallest and the largest seqno.
    pub fn seqno_range(&self) -> Option<(SeqNo, SeqNo)> {
        let (oldest, newest) = (self.seqnos.iter().min()?, self.seqnos.iter().max()?);
        Some((*oldest, *newest))
    }

    /// Returns the first start and the last end.
    pub fn key_range(&self) -> Option<(&[u8], &[u8])> {
        Some((self.first()?.start, self.last()?.end))
    }

    /// Returns the memory of the fragments.
    pub fn memory_bytes(&self) -> usize {
        let places = self.ends.capacity() * size_of::<usize>();
        self.bounds.memory_bytes() + self.seqnos.capacity() * size_of::<SeqNo>() + places
    }
}
