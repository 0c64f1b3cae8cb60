//! Set of keys that some range deletes cover together.

use super::KeyRange;
use super::key_list::KeyList;

/// Ranges that neither overlap nor touch, in key order. Their bounds ascend strictly: start, end,
/// start, end. So a key is covered if the number of bounds at or below it is odd.
#[derive(Debug, Clone, Default)]
pub(super) struct Cover {
    bounds: KeyList,
}

/// Joins the ranges that overlap or touch; the result is in key order.
pub fn union(mut ranges: Vec<KeyRange<'_>>) -> Vec<KeyRange<'_>> {
    ranges.sort();
    let mut joined = 0;
    for at in 1..ranges.len() {
        let (start, end) = ranges[at];
        let last = &mut ranges[joined];
        if start <= last.1 {
            last.1 = last.1.max(end);
        } else {
            joined += 1;
            ranges[joined] = (start, end);
        }
    }
    ranges.truncate(joined + 1);
    ranges
}

impl Cover {
    pub fn new(ranges: Vec<KeyRange<'_>>) -> Cover {
        let mut bounds = KeyList::default();
        for (start, end) in union(ranges) {
            bounds.push(start);
            bounds.push(end);
        }
        bounds.shrink();
        Cover { bounds }
    }

    pub fn len(&self) -> usize {
        self.bounds.len() / 2
    }

    pub fn iter(&self) -> impl Iterator<Item = KeyRange<'_>> {
        (0..self.len()).map(|at| self.bounds.pair(at))
    }

    /// Returns the range that contains `key`.
    pub fn find(&self, key: &[u8]) -> Option<KeyRange<'_>> {
        // Early exit: ranges that were deleted in key order are in few runs each, and searches of
        // the other runs end here.
        if self.bounds.last().is_none_or(|end| end <= key) || key < self.bounds.get(0) {
            return None;
        }
        let passed = self.bounds.partition_point(|bound| bound <= key);
        (passed % 2 == 1).then(|| self.bounds.pair(passed / 2))
    }

    /// Returns the first covered key from `start` to `end` (exclusive; `None`: no limit).
    pub fn first_in<'a>(&'a self, start: &'a [u8], end: Option<&[u8]>) -> Option<&'a [u8]> {
        let passed = self.bounds.partition_point(|bound| bound <= start);
        let first = match passed {
            odd if odd % 2 == 1 => start,
            next if next < self.bounds.len() => self.bounds.get(next),
            _ => return None,
        };
        end.is_none_or(|end| first < end).then_some(first)
    }

    pub fn memory_bytes(&self) -> usize {
        self.bounds.memory_bytes()
    }
}
