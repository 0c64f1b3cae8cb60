//! State shared by the compaction threads: busy groups, ranges that callers wait for, and the
//! measured speed of compaction.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{KeyspaceId, SeqNo};
use crate::compaction::idle::IdleClock;
use crate::compaction::job::Job;
use crate::compaction::read_triggered::{Noted, Used};
use crate::compaction::survey::dead_in_last;
use crate::error::{Error, Result};
use crate::keyspace::tree::Tree;
use crate::sync::collections::HashSet;
use crate::sync::plain::{Condvar, Mutex};
use crate::sync::time::Instant;
use crate::version::group::{Group, Version};

/// Shared state of the compaction threads. The mutex guards only its own fields: while it is held,
/// no other lock is taken and no I/O is done.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(super) state: Mutex<State>,
    /// Signals new work, a finished job, or the end.
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub busy: HashSet<(KeyspaceId, Vec<u8>)>,
    /// Ranges that callers wait for; they go before picked work.
    pub wanted: Vec<Arc<Wanted>>,
    /// Upper bytes compacted into the last level per second by one thread, smoothed; 0 before the
    /// first compaction.
    drain_bytes_per_s: f64,
    /// Number of events that may have made new work, so that no wake-up is lost.
    pub events: u64,
    /// Value of `events` when a running compaction last checked for urgent work between two steps.
    pub urgent_seen: u64,
    /// Clock of idle compaction; created at the first check.
    pub idle: Option<IdleClock>,
    /// Memtables that read-triggered flushes watch.
    pub noted: Option<Noted>,
    /// Use of the database at the last check.
    pub used: Used,
    /// Number of callers that wait in `settle`: for them, rows that only snapshots kept are due
    /// too.
    pub settling: usize,
    /// True while a thread runs an idle compaction.
    pub tidying: bool,
    /// Groups with a compaction that failed without a change, mostly for lack of space: not tried
    /// again before the next round.
    pub put_off: HashSet<(KeyspaceId, Vec<u8>)>,
    /// Number of compactions that failed without a change for a reason other than a full device,
    /// and the last error.
    pub refused: (u64, Option<Error>),
    /// Number of rounds of failed compactions so far, and the time of the next one.
    rounds: (u32, Option<Instant>),
    pub stop: bool,
}

/// A range in which everything up to the commit `upto` is to be in the last level.
pub(super) struct Wanted {
    pub tree: Arc<Tree>,
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
    pub upto: SeqNo,
}

impl State {
    /// Fails with the last error of a compaction if more than the first `known` have failed.
    pub fn check_refused(&self, known: u64) -> Result<()> {
        match &self.refused {
            (count, Some(error)) if *count > known => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

impl Wanted {
    /// Returns the groups of the range that still have such rows in upper tables, or entries in the
    /// last level that no reader at or after `horizon` needs. Goes by sequence number, because a
    /// compaction of upper tables may move old rows to a new table.
    pub fn pending<'v>(
        &'v self,
        version: &'v Version,
        horizon: SeqNo,
    ) -> impl Iterator<Item = &'v Arc<Group>> {
        let end = self.end.as_deref();
        let from = version.groups().iter().skip(version.find(&self.start));
        let inside = from.take_while(move |g| end.is_none_or(|end| &g.low[..] < end));
        // Commits after the call make no more work for it.
        let horizon = horizon.min(self.upto);
        inside.filter(move |g| {
            g.upper.iter().any(|u| u.table.min_seqno() <= self.upto)
                || g.last.iter().any(|table| dead_in_last(table, horizon) > 0)
        })
    }
}

/// Exclusive claim on a group: no compaction may touch it until the claim is dropped.
pub(crate) struct Claim<'a> {
    jobs: &'a Jobs,
    group: (KeyspaceId, Vec<u8>),
}

impl Claim<'_> {
    /// The low key of the group.
    pub fn low(&self) -> &[u8] {
        &self.group.1
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.jobs.state.lock().busy.remove(&self.group);
        self.jobs.wake();
    }
}

/// Weight of the newest compaction in the smoothed drain rate.
const DRAIN_SMOOTHING: f64 = 0.3;
/// Drain rate assumed before the first compaction; does not slow a load down needlessly.
const DRAIN_BYTES_PER_S_FIRST: f64 = 64e6;
/// Time between two checks of a thread that waits for space.
pub(super) const SPACE_LOOK: Duration = Duration::from_secs(1);
/// Rounds after which the time between two rounds no longer doubles.
const ROUNDS_MAX: u32 = 6;

impl Jobs {
    /// Signals that there may be new work.
    pub fn wake(&self) {
        self.state.lock().events += 1;
        self.changed.notify_all();
    }

    /// Ends the threads after their current jobs.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// True while a caller waits until everything is settled.
    pub fn is_settling(&self) -> bool {
        self.state.lock().settling > 0
    }

    /// Updates the drain rate: this many upper bytes were compacted in this time.
    pub fn note_drained(&self, bytes: u64, took: Duration) {
        if bytes == 0 {
            return;
        }
        let rate = bytes as f64 / took.as_secs_f64().max(1e-3);
        let mut state = self.state.lock();
        let old = state.drain_bytes_per_s;
        state.drain_bytes_per_s = if old == 0.0 {
            rate
        } else {
            old + DRAIN_SMOOTHING * (rate - old)
        };
    }

    /// Notes that the compaction of a group failed with `error`, which changed nothing. Callers
    /// that wait for compactions get the error, unless it is `NoSpace`: space may become free at
    /// any time.
    pub fn put_off(&self, job: &Job, error: Error) {
        let mut state = self.state.lock();
        state.put_off.insert((job.tree.id, job.low.clone()));
        if !matches!(error, Error::NoSpace { .. }) {
            state.refused = (state.refused.0 + 1, Some(error));
            self.changed.notify_all();
        }
    }

    /// Notes that space may be free again: failed compactions are tried again.
    pub fn found_space(&self) {
        let mut state = self.state.lock();
        state.rounds = (0, None);
        if !state.put_off.is_empty() {
            state.put_off.clear();
            // A thread may have found no compaction that it may run, and be about to sleep.
            state.events += 1;
            self.changed.notify_all();
        }
    }

    /// Begins the next round of failed compactions once its time has come. The time between rounds
    /// doubles. Returns true if there are failed compactions.
    pub fn next_round(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        if state.put_off.is_empty() {
            return false;
        }
        let rounds = state.rounds.0;
        let later = now + SPACE_LOOK * 2_u32.pow(rounds.min(ROUNDS_MAX));
        if now >= *state.rounds.1.get_or_insert(later) {
            state.put_off.clear();
            state.rounds = (rounds + 1, None);
        }
        true
    }

    /// Notes the end of an idle compaction.
    pub fn tidied(&self, took: Duration) {
        let mut state = self.state.lock();
        state.tidying = false;
        if let Some(clock) = &mut state.idle {
            clock.worked(took);
        }
    }

    pub fn drain_bytes_per_s(&self) -> f64 {
        let rate = self.state.lock().drain_bytes_per_s;
        if rate == 0.0 {
            DRAIN_BYTES_PER_S_FIRST
        } else {
            rate
        }
    }

    /// Claims a group for a caller that is not a job; `None` if a job owns it or the database
    /// closes.
    pub fn claim(&self, tree: &Tree, low: &[u8]) -> Option<Claim<'_>> {
        let group = (tree.id, low.to_vec());
        let mut state = self.state.lock();
        let free = !state.stop && state.busy.insert(group.clone());
        // A thread that has just picked this group must pick another.
        state.events += u64::from(free);
        // Created only once the group is free: dropping a claim frees the group.
        free.then(|| Claim { jobs: self, group })
    }

    /// Returns true if a job owns the group that starts at `low`.
    pub fn is_busy(&self, tree: &Tree, low: &[u8]) -> bool {
        self.state.lock().busy.contains(&(tree.id, low.to_vec()))
    }
}

#[cfg(all(test, not(loom), not(feature = "simulation")))]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::db::{Database, Options};
    use crate::keyspace::KeyspaceOptions;
    use crate::vfs::MemVfs;

    #[test]
    fn a_claim_that_is_refused_frees_nothing() {
        let db = Database::open_on(Arc::new(MemVfs::new()), Path::new("db"), Options::default());
        let db = db.expect("open");
        let k = db
            .keyspace("k", KeyspaceOptions::default())
            .expect("keyspace");
        let (jobs, tree) = (&db.shared().jobs, k.tree());
        let claim = jobs.claim(tree, b"").expect("nobody has it");
        assert!(jobs.claim(tree, b"").is_none());
        assert!(jobs.is_busy(tree, b""));
        drop(claim);
        assert!(!jobs.is_busy(tree, b""));
        jobs.stop();
        assert!(jobs.claim(tree, b"").is_none(), "it closes");
    }
}
