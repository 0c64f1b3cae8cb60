//! Counts for each second of a phase: completions and longest response by operation type, and a
//! bitmap of the milliseconds with a completion.
//!
//! A client counts into its own [`Second`] and hands it over when its next completion falls into
//! another second. The timing path therefore neither locks nor shares memory more often than once a
//! second.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::result::Interval;

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// 1000 bits, one for each millisecond.
const WORDS: usize = 16;
/// Classes of response times, each twice as long as the previous: the last begins at 2^30 us, about
/// 18 minutes.
const CLASSES: usize = 32;

/// Returns the class of a response time: 0 below 1 us, `n` from 2^(n-1) us up to 2^n us.
fn class(response_ns: u64) -> usize {
    let us = response_ns / 1000;
    ((u64::BITS - us.leading_zeros()) as usize).min(CLASSES - 1)
}

/// Counts of one second.
#[derive(Debug, Clone)]
struct Second {
    counts: Vec<u64>,
    max_ns: Vec<u64>,
    milliseconds: [u64; WORDS],
    classes: [u64; CLASSES],
}

impl Second {
    fn new(operations: usize) -> Second {
        Second {
            counts: vec![0; operations],
            max_ns: vec![0; operations],
            milliseconds: [0; WORDS],
            classes: [0; CLASSES],
        }
    }

    fn clear(&mut self) {
        self.counts.fill(0);
        self.max_ns.fill(0);
        self.milliseconds = [0; WORDS];
        self.classes = [0; CLASSES];
    }

    fn merge(&mut self, other: &Second) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        for (mine, theirs) in self.max_ns.iter_mut().zip(&other.max_ns) {
            *mine = (*mine).max(*theirs);
        }
        for (mine, theirs) in self.milliseconds.iter_mut().zip(&other.milliseconds) {
            *mine |= theirs;
        }
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            *mine += theirs;
        }
    }

    /// Returns counts by class, without the empty classes above the longest response.
    fn response_counts(&self) -> Vec<u64> {
        let used = self.classes.iter().rposition(|&count| count > 0);
        self.classes[..used.map_or(0, |last| last + 1)].to_vec()
    }
}

/// Seconds of one phase, over all clients.
pub struct Intervals {
    operations: usize,
    /// Guards the merged seconds. Innermost lock: no other lock is taken while it is held.
    seconds: Mutex<Vec<Second>>,
}

impl Intervals {
    /// Returns an empty set of seconds for this number of operation types.
    pub fn new(operations: usize) -> Intervals {
        Intervals {
            operations,
            seconds: Mutex::new(Vec::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Second>> {
        self.seconds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a recorder for one client.
    pub fn recorder(&self) -> Recorder<'_> {
        Recorder {
            intervals: self,
            current: 0,
            second: Second::new(self.operations),
        }
    }

    fn add(&self, index: u64, second: &Second) {
        let mut seconds = self.lock();
        let needed = usize::try_from(index)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        if seconds.len() < needed {
            seconds.resize(needed, Second::new(self.operations));
        }
        seconds[needed - 1].merge(second);
    }

    /// Returns the number of operations handed over so far.
    pub fn total(&self) -> u64 {
        self.lock().iter().flat_map(|second| &second.counts).sum()
    }

    /// Returns the counts of the seconds from `first` up to, but not including, `end`, both since
    /// the start of the phase.
    pub fn export(&self, names: &[&str], first: u64, end: u64) -> Vec<Interval> {
        let seconds = self.lock();
        (first..end.min(seconds.len() as u64))
            .map(|index| interval(names, index, &seconds[index as usize]))
            .collect()
    }

    /// Returns the longest time without a completion, in milliseconds, over a phase that took
    /// `phase_ns`.
    pub fn longest_gap_ms(&self, phase_ns: u64) -> f64 {
        let seconds = self.lock();
        let (mut longest, mut current) = (0u64, 0u64);
        for millisecond in 0..phase_ns.div_ceil(MILLISECOND_NS) {
            let bit = millisecond % 1000;
            let seen = seconds
                .get((millisecond / 1000) as usize)
                .is_some_and(|s| s.milliseconds[(bit / 64) as usize] >> (bit % 64) & 1 == 1);
            current = if seen { 0 } else { current + 1 };
            longest = longest.max(current);
        }
        longest as f64
    }
}

fn interval(names: &[&str], index: u64, second: &Second) -> Interval {
    let us = |ns: u64| ns as f64 / 1e3;
    let seen = || {
        names
            .iter()
            .enumerate()
            .filter(|(i, _)| second.counts[*i] > 0)
    };
    Interval {
        second: index,
        ops: second.counts.iter().sum(),
        max_us: us(second.max_ns.iter().copied().max().unwrap_or(0)),
        op_counts: seen()
            .map(|(i, name)| ((*name).to_string(), second.counts[i]))
            .collect(),
        op_max_us: seen()
            .map(|(i, name)| ((*name).to_string(), us(second.max_ns[i])))
            .collect::<BTreeMap<_, _>>(),
        response_counts: second.response_counts(),
        ..Interval::default()
    }
}

/// Counts one client's completions.
pub struct Recorder<'a> {
    intervals: &'a Intervals,
    current: u64,
    second: Second,
}

impl Recorder<'_> {
    /// Counts a completion at `end_ns` since the start of the phase.
    pub fn record(&mut self, operation: usize, end_ns: u64, response_ns: u64) {
        let index = end_ns / SECOND_NS;
        if index != self.current {
            self.hand_over();
            self.current = index;
        }
        self.second.counts[operation] += 1;
        self.second.max_ns[operation] = self.second.max_ns[operation].max(response_ns);
        self.second.classes[class(response_ns)] += 1;
        let millisecond = end_ns % SECOND_NS / MILLISECOND_NS;
        self.second.milliseconds[(millisecond / 64) as usize] |= 1 << (millisecond % 64);
    }

    /// Adds the counts of the current second to the phase.
    pub fn hand_over(&mut self) {
        self.intervals.add(self.current, &self.second);
        self.second.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_of_two_clients_are_added_and_the_gap_spans_them() {
        let intervals = Intervals::new(2);
        let mut a = intervals.recorder();
        let mut b = intervals.recorder();
        a.record(0, 500_000_000, 1_000);
        b.record(1, 700_000_000, 9_000);
        a.record(0, 2_300_000_000, 2_000);
        a.hand_over();
        b.hand_over();
        let exported = intervals.export(&["READ", "WRITE"], 0, 10);
        assert_eq!(
            exported.iter().map(|i| i.ops).collect::<Vec<_>>(),
            [2, 0, 1]
        );
        assert_eq!(
            (exported[0].max_us, exported[0].op_max_us["READ"]),
            (9.0, 1.0)
        );
        // 9 us and 1 us.
        assert_eq!(exported[0].response_counts, [0, 1, 0, 0, 1]);
        assert!(exported[1].response_counts.is_empty());
        assert_eq!(intervals.total(), 3);
        // From the completion in millisecond 700 to the one in 2300.
        assert_eq!(intervals.longest_gap_ms(2_400_000_000), 1599.0);
    }

    #[test]
    fn response_classes_double_and_end_at_the_last() {
        let of = |us: u64| class(us * 1000);
        assert_eq!(class(999), 0);
        assert_eq!([of(1), of(2), of(3), of(4)], [1, 2, 2, 3]);
        assert_eq!(class(u64::MAX), CLASSES - 1);
    }
}
