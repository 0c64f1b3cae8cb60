//! Ordered set of disjoint key intervals within a memory limit.
//!
//! If the entries of an index are deleted at the low end of each indexed value, it has one dead
//! interval for each value. Readers visit them in any order. So a lookup costs one tree descent,
//! and there is room for thousands.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::ops::Bound;

use crate::base::SeqNo;

/// Memory limit for the intervals of one tree, in bytes, keys included. A single interval is kept
/// even if it is larger.
const BYTES_MAX: usize = 512 << 10;

/// Keys from `start` (inclusive) to `end` (exclusive; `None`: no end), dead for read points at or
/// after `since`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interval {
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
    pub since: SeqNo,
}

/// Disjoint intervals by their start. No two of them share a border.
#[derive(Default)]
pub(super) struct Intervals {
    by_start: BTreeMap<Vec<u8>, Rest>,
    bytes: usize,
    /// Start of the interval that was evicted last; the next one in key order is evicted next.
    hand: Vec<u8>,
}

struct Rest {
    end: Option<Vec<u8>>,
    since: SeqNo,
}

impl Interval {
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && is_before(key, self.end.as_deref())
    }

    pub fn is_empty(&self) -> bool {
        !is_before(&self.start, self.end.as_deref())
    }
}

/// Returns true if a key lies before an end.
fn is_before(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

/// Returns the memory of an interval.
fn bytes_of(start: &[u8], end: Option<&[u8]>) -> usize {
    size_of::<Vec<u8>>() + size_of::<Rest>() + start.len() + end.map_or(0, <[u8]>::len)
}

impl Intervals {
    /// Returns the end of the interval that holds `key`, if readers at `read_point` may skip it.
    pub fn end_around(&self, key: &[u8], read_point: SeqNo) -> Option<Option<&[u8]>> {
        let (_, rest) = self.last_from(Bound::Included(key))?;
        let end = rest.end.as_deref();
        (is_before(key, end) && rest.since <= read_point).then_some(end)
    }

    /// Returns the start of the interval that extends from below `before` to it or beyond, if
    /// readers at `read_point` may skip it. `None` for `before` is after all keys.
    pub fn start_before(&self, before: Option<&[u8]>, read_point: SeqNo) -> Option<&[u8]> {
        let bound = before.map_or(Bound::Unbounded, Bound::Excluded);
        let (start, rest) = self.last_from(bound)?;
        let reaches = match (before, rest.end.as_deref()) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(before), Some(end)) => before <= end,
        };
        (reaches && rest.since <= read_point).then_some(start)
    }

    /// Adds an interval and joins it with every interval that it touches; the result holds for
    /// readers as new as all of them.
    pub fn add(&mut self, mut new: Interval) {
        // Terminates: each iteration removes one interval.
        loop {
            let bound = new.end.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let Some((start, rest)) = self.last_from(bound) else {
                break;
            };
            // All earlier intervals end even before this one.
            if rest.end.as_deref().is_some_and(|end| end < &new.start[..]) {
                break;
            }
            let start = start.to_vec();
            let Some(old) = self.remove(&start) else {
                break;
            };
            new.start = new.start.min(start);
            new.end = new.end.zip(old.end).map(|(a, b)| a.max(b));
            new.since = new.since.max(old.since);
        }
        let bytes = bytes_of(&new.start, new.end.as_deref());
        while self.bytes + bytes > BYTES_MAX && self.make_room() {}
        self.bytes += bytes;
        let (end, since) = (new.end, new.since);
        self.by_start.insert(new.start, Rest { end, since });
    }

    /// Takes a key out of the interval around it; the part before the key stays.
    pub fn cut(&mut self, key: &[u8]) {
        let around = (Bound::Unbounded, Bound::Included(key));
        let Some((start, rest)) = self.by_start.range_mut::<[u8], _>(around).next_back() else {
            return;
        };
        if !is_before(key, rest.end.as_deref()) {
            return;
        }
        if start == key {
            self.remove(key);
            return;
        }
        let old = rest.end.replace(key.to_vec());
        self.bytes -= old.map_or(0, |old| old.len());
        self.bytes += key.len();
        // The key may be longer than the end that it replaces.
        while self.bytes > BYTES_MAX && self.by_start.len() > 1 && self.make_room() {}
    }

    /// Returns the memory of all intervals.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes all intervals.
    pub fn clear(&mut self) {
        *self = Intervals::default();
    }

    /// Returns the interval with the largest start within a bound.
    fn last_from(&self, bound: Bound<&[u8]>) -> Option<(&[u8], &Rest)> {
        let all = (Bound::Unbounded, bound);
        let last = self.by_start.range::<[u8], _>(all).next_back();
        last.map(|(start, rest)| (&start[..], rest))
    }

    fn remove(&mut self, start: &[u8]) -> Option<Rest> {
        let rest = self.by_start.remove(start)?;
        self.bytes -= bytes_of(start, rest.end.as_deref());
        Some(rest)
    }

    /// Evicts one interval, in round-robin order. Returns false if there is none.
    fn make_room(&mut self) -> bool {
        let behind = (Bound::Excluded(&self.hand[..]), Bound::Unbounded);
        let next = self.by_start.range::<[u8], _>(behind).next();
        let Some((start, _)) = next.or_else(|| self.by_start.first_key_value()) else {
            return false;
        };
        let start = start.clone();
        self.remove(&start);
        self.hand = start;
        true
    }

    /// Returns all intervals in order.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = Interval> {
        self.by_start.iter().map(|(start, rest)| Interval {
            start: start.clone(),
            end: rest.end.clone(),
            since: rest.since,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// First read point at which each of 64 one-byte keys is dead; 0 if it is not.
    type Model = [SeqNo; 64];

    fn interval(start: u8, end: Option<u8>, since: SeqNo) -> Interval {
        Interval {
            start: vec![start],
            end: end.map(|end| vec![end]),
            since,
        }
    }

    fn check(all: &Intervals, model: &Model) {
        for key in 0..64u8 {
            let reaches_to = |point: SeqNo| all.end_around(&[key], point);
            match model[usize::from(key)] {
                0 => assert_eq!(reaches_to(SeqNo::MAX), None, "key {key}"),
                since => {
                    assert_eq!(reaches_to(since - 1), None, "key {key}");
                    let end = reaches_to(since).expect("dead");
                    let end = end.map_or(64, |end| usize::from(end[0]));
                    assert!(model[usize::from(key)..end].iter().all(|s| *s == since));
                    assert!(end == 64 || model[end] == 0);
                }
            }
            let back = all.start_before(Some(&[key]), SeqNo::MAX);
            let run = (0..key).rev().take_while(|k| model[usize::from(*k)] > 0);
            assert_eq!(back, run.last().map(|k| vec![k]).as_deref(), "before {key}");
        }
        let bytes = all.iter().map(|i| bytes_of(&i.start, i.end.as_deref()));
        assert_eq!(all.bytes, bytes.sum::<usize>());
    }

    #[test]
    fn random_intervals_and_cuts_match_the_model() {
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) % bound
        };
        for _ in 0..200 {
            let (mut all, mut model): (Intervals, Model) = (Intervals::default(), [0; 64]);
            for _ in 0..60 {
                if below(3) == 0 {
                    let key = below(64) as u8;
                    all.cut(&[key]);
                    // The rest of its interval is removed with it.
                    let rest = model[usize::from(key)..].iter_mut();
                    rest.take_while(|s| **s > 0).for_each(|s| *s = 0);
                } else {
                    let start = below(57) as u8;
                    let end = start + 1 + below(6) as u8;
                    let open = below(40) == 0;
                    let since = 1 + below(9);
                    all.add(interval(start, (!open).then_some(end), since));
                    join(
                        &mut model,
                        start.into(),
                        if open { 64 } else { end.into() },
                        since,
                    );
                }
                check(&all, &model);
            }
        }
    }

    /// As [`Intervals::add`]: the runs that touch `start..end` become one, with the newest `since`.
    fn join(model: &mut Model, start: usize, end: usize, since: SeqNo) {
        let before = model[..start].iter().rev().take_while(|s| **s > 0).count();
        let behind = model[end..].iter().take_while(|s| **s > 0).count();
        let run = &mut model[start - before..end + behind];
        let newest = run.iter().copied().max().unwrap_or(0).max(since);
        run.fill(newest);
    }

    #[test]
    fn thousands_of_intervals_fit_and_eviction_is_round_robin() {
        let mut all = Intervals::default();
        let key = |n: u32, last: u8| [&n.to_be_bytes()[..], &[last; 28]].concat();
        for n in 0..20_000 {
            all.add(Interval {
                start: key(n, 0),
                end: Some(key(n, 1)),
                since: 1,
            });
        }
        assert!(all.bytes <= BYTES_MAX);
        let kept = all.iter().count();
        assert!(kept > 3_000, "{kept} kept");
        assert!(all.end_around(&key(19_999, 0), 1).is_some());
        assert!(all.end_around(&key(0, 0), 1).is_none());
        // An interval above the limit is kept alone.
        all.add(Interval {
            start: vec![0xFF; BYTES_MAX],
            end: None,
            since: 1,
        });
        assert_eq!(all.iter().count(), 1);
        all.clear();
        assert_eq!(all.bytes, 0);
    }
}
