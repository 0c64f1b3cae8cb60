//! Idle compaction: while there are no writes, memtables are flushed and upper tables compacted
//! away, so that reads find every row in one table.
//!
//! [`IdleClock`] decides, from times and numbers that it is given. A *pass* begins when there was
//! no commit for a while, compacts each group at most once, and then ends: the next pass needs a
//! new commit, or a snapshot that was closed. After a pass, also one that a writer ended, the clock
//! rests for nine times as long as the pass worked. So idle compaction after bursts of writes takes
//! at most a tenth of one core and of the device.

use crate::sync::collections::HashSet;
use std::time::Duration;

use crate::sync::time::Instant;

use crate::base::{KeyspaceId, SeqNo};

/// Length of the rest after a pass, in units of its work.
const REST_FACTOR: u32 = 9;
/// Checks of the clock in the period that makes a database idle: only a check notices a commit.
const LOOKS: u32 = 4;

/// Returns the time between two checks without news, for a database that is idle after this long.
pub(super) fn period(after: Duration) -> Duration {
    after / LOOKS
}

/// Answer of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// No work before this time has passed.
    Wait(Duration),
    /// A pass is on: do its next piece of work.
    Work,
}

/// State of commits and passes. `visible` is the newest commit, `horizon` the oldest commit that a
/// reader still reads as of.
#[derive(Debug)]
pub(crate) struct IdleClock {
    /// Time without a commit after which the database is idle.
    after: Duration,
    /// Newest commit seen, and when it was first seen.
    seen: SeqNo,
    since: Instant,
    /// Newest commit and horizon for which the last complete pass left no work.
    done: Option<(SeqNo, SeqNo)>,
    rest_until: Option<Instant>,
    /// The pass that is on.
    pass: Option<Pass>,
}

#[derive(Debug)]
struct Pass {
    /// Horizon when the pass began. If it has risen since, compactions of the pass may have kept
    /// entries that are droppable now.
    horizon: SeqNo,
    worked: Duration,
    /// Groups compacted in this pass: a second compaction would gain nothing.
    merged: HashSet<(KeyspaceId, Vec<u8>)>,
}

impl IdleClock {
    pub fn new(after: Duration, now: Instant, visible: SeqNo) -> IdleClock {
        IdleClock {
            after,
            seen: visible,
            since: now,
            done: None,
            rest_until: None,
            pass: None,
        }
    }

    /// Returns the time between two checks without news.
    pub fn period(&self) -> Duration {
        period(self.after)
    }

    /// Decides on the work to do now.
    pub fn look(&mut self, now: Instant, visible: SeqNo, horizon: SeqNo) -> Advice {
        if visible != self.seen {
            (self.seen, self.since) = (visible, now);
            self.end_pass(now);
        }
        if self.done == Some((visible, horizon)) {
            return Advice::Wait(self.period());
        }
        let Some(quiet) = self.since.checked_add(self.after) else {
            return Advice::Wait(self.period());
        };
        let due = self.rest_until.map_or(quiet, |rest| rest.max(quiet));
        match due.saturating_duration_since(now) {
            Duration::ZERO => {
                self.pass.get_or_insert_with(|| Pass {
                    horizon,
                    worked: Duration::ZERO,
                    merged: HashSet::default(),
                });
                Advice::Work
            }
            // A writer may commit meanwhile.
            left => Advice::Wait(left.min(self.period())),
        }
    }

    /// Notes a compaction that begins.
    pub fn begin(&mut self, keyspace: KeyspaceId, low: &[u8]) {
        if let Some(pass) = &mut self.pass {
            pass.merged.insert((keyspace, low.to_vec()));
        }
    }

    /// Returns true if this pass has compacted the group that starts at `low`.
    pub fn has_compacted(&self, keyspace: KeyspaceId, low: &[u8]) -> bool {
        let group = (keyspace, low.to_vec());
        self.pass
            .as_ref()
            .is_some_and(|p| p.merged.contains(&group))
    }

    /// Adds to the work of the pass.
    pub fn worked(&mut self, took: Duration) {
        if let Some(pass) = &mut self.pass {
            pass.worked += took;
        }
    }

    /// Ends the pass: no more work was found.
    pub fn finish(&mut self, now: Instant, visible: SeqNo) {
        if let Some(pass) = &self.pass {
            self.done = Some((visible, pass.horizon));
        }
        self.end_pass(now);
    }

    fn end_pass(&mut self, now: Instant) {
        if let Some(pass) = self.pass.take() {
            self.rest_until = Some(now + pass.worked * REST_FACTOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(20);
    const K: KeyspaceId = KeyspaceId(1);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_pass_begins_only_after_a_while_without_commits() {
        let start = Instant::now();
        let mut clock = IdleClock::new(AFTER, start, 5);
        assert_eq!(clock.look(start, 5, 5), Advice::Wait(seconds(5)));
        assert_eq!(
            clock.look(start + seconds(18), 5, 5),
            Advice::Wait(seconds(2))
        );
        // A writer committed.
        assert_eq!(
            clock.look(start + seconds(20), 6, 6),
            Advice::Wait(seconds(5))
        );
        assert_eq!(clock.look(start + seconds(40), 6, 6), Advice::Work);
        assert_eq!(clock.look(start + seconds(41), 6, 6), Advice::Work);
    }

    #[test]
    fn a_finished_pass_is_the_last_until_something_is_written_or_a_snapshot_closed() {
        let start = Instant::now();
        let mut clock = IdleClock::new(AFTER, start, 5);
        let at = start + seconds(1_000);
        assert_eq!(clock.look(at, 5, 3), Advice::Work);
        clock.finish(at, 5);
        for later in [0, 100, 100_000] {
            assert_eq!(
                clock.look(at + seconds(later), 5, 3),
                Advice::Wait(seconds(5))
            );
        }
        // The snapshot that held the horizon at 3 is closed.
        assert_eq!(clock.look(at + seconds(200_000), 5, 5), Advice::Work);
    }

    #[test]
    fn a_snapshot_that_is_closed_within_a_pass_is_worth_another_one() {
        let start = Instant::now();
        let mut clock = IdleClock::new(AFTER, start, 5);
        let at = start + seconds(1_000);
        assert_eq!(clock.look(at, 5, 3), Advice::Work);
        clock.begin(K, b"a");
        assert_eq!(clock.look(at, 5, 5), Advice::Work, "the same pass");
        assert!(clock.has_compacted(K, b"a"));
        clock.finish(at, 5);
        assert_eq!(clock.look(at, 5, 5), Advice::Work);
        assert!(!clock.has_compacted(K, b"a"), "a new pass");
    }

    #[test]
    fn a_writer_ends_the_pass_and_the_next_one_waits_nine_times_what_it_worked() {
        let start = Instant::now();
        let mut clock = IdleClock::new(AFTER, start, 5);
        let at = start + seconds(20);
        assert_eq!(clock.look(at, 5, 5), Advice::Work);
        clock.begin(K, b"a");
        clock.worked(seconds(10));
        assert!(clock.has_compacted(K, b"a") && !clock.has_compacted(K, b""));
        let written = at + seconds(10);
        assert_eq!(clock.look(written, 6, 6), Advice::Wait(seconds(5)));
        assert_eq!(
            clock.look(written + seconds(88), 6, 6),
            Advice::Wait(seconds(2))
        );
        assert_eq!(clock.look(written + seconds(90), 6, 6), Advice::Work);
        assert!(!clock.has_compacted(K, b"a"), "a new pass");
    }
}
