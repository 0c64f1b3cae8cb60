//! What the merging threads share: who works on what, what somebody waits for, and what is known of their speed.

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

/// Who works on what. The mutex guards its own fields only; nothing is locked and no I/O done under it.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(super) state: Mutex<State>,
    /// Signals new work, a finished job, or the end.
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub busy: HashSet<(KeyspaceId, Vec<u8>)>,
    /// Ranges that somebody waits for; they go before what is picked.
    pub wanted: Vec<Arc<Wanted>>,
    /// Upper bytes merged into the last level per second of one thread, smoothed; 0 before the first merge.
    drain_bytes_per_s: f64,
    /// Counts events that may have made new work, so that no wake-up is lost.
    pub events: u64,
    /// The events that a merge between two steps has looked at.
    pub urgent_seen: u64,
    /// When to tidy; made at the first look.
    pub idle: Option<IdleClock>,
    /// Memtables that scans may pay the flush of.
    pub noted: Option<Noted>,
    /// What the use of the database had come to at the last look.
    pub used: Used,
    /// Callers who wait until everything is settled: what snapshots had kept is due for them.
    pub settling: usize,
    /// A thread is tidying.
    pub tidying: bool,
    /// The groups whose compaction failed without a change, mostly for want of space: not tried again before the next
    /// round.
    pub put_off: HashSet<(KeyspaceId, Vec<u8>)>,
    /// Number of compactions that failed without a change for another reason than a full device, and the last error.
    pub refused: (u64, Option<Error>),
    /// The rounds in which compactions have failed, and when the next one begins.
    rounds: (u32, Option<Instant>),
    pub stop: bool,
}

/// A range of which everything up to a commit is to be in the last level.
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
    /// The groups of the range that still have such rows in upper tables, or entries in the last level that no reader from
    /// `horizon` on needs. By seqno, because a merge of upper tables may give old rows to a new table.
    pub fn pending<'v>(
        &'v self,
        version: &'v Version,
        horizon: SeqNo,
    ) -> impl Iterator<Item = &'v Arc<Group>> {
        let end = self.end.as_deref();
        let from = version.groups().iter().skip(version.find(&self.start));
        let inside = from.take_while(move |g| end.is_none_or(|end| &g.low[..] < end));
        // Commits that came after the call make no more work for it.
        let horizon = horizon.min(self.upto);
        inside.filter(move |g| {
            g.upper.iter().any(|u| u.table.min_seqno() <= self.upto)
                || g.last.iter().any(|table| dead_in_last(table, horizon) > 0)
        })
    }
}

/// A group that no merge may touch; free again when it is dropped.
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

/// Weight of the newest merge in the smoothed drain rate.
const DRAIN_SMOOTHING: f64 = 0.3;
/// Before the first merge nothing is known: a rate that does not slow a load down needlessly.
const DRAIN_BYTES_PER_S_FIRST: f64 = 64e6;
/// Between two looks of a thread that waits for space.
pub(super) const SPACE_LOOK: Duration = Duration::from_secs(1);
/// Rounds after which the time between two rounds does not double any more.
const ROUNDS_MAX: u32 = 6;

impl Jobs {
    /// Says that there may be new work.
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

    /// Learns how fast merging pays debt back.
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

    /// Notes that the compaction of a group failed with `error`, which changed nothing. Callers that wait for
    /// compactions get it, unless it tells of a full device: room may come at any time.
    pub fn put_off(&self, job: &Job, error: Error) {
        let mut state = self.state.lock();
        state.put_off.insert((job.tree.id, job.low.clone()));
        if !matches!(error, Error::NoSpace { .. }) {
            state.refused = (state.refused.0 + 1, Some(error));
            self.changed.notify_all();
        }
    }

    /// Something has changed: compactions that failed are tried again.
    pub fn found_space(&self) {
        let mut state = self.state.lock();
        state.rounds = (0, None);
        if !state.put_off.is_empty() {
            state.put_off.clear();
            // A thread may have found nothing that it may merge, and be about to sleep.
            state.events += 1;
            self.changed.notify_all();
        }
    }

    /// Begins the next round of compactions that failed once it is time. Each comes later than the one before. Returns
    /// whether there were any.
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

    /// Notes the end of a merge that was not due.
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

    /// Claims a group for somebody who is no job; `None` where a job owns it, or the database closes.
    pub fn claim(&self, tree: &Tree, low: &[u8]) -> Option<Claim<'_>> {
        let group = (tree.id, low.to_vec());
        let mut state = self.state.lock();
        let free = !state.stop && state.busy.insert(group.clone());
        // A thread that has just picked this group is to pick another.
        state.events += u64::from(free);
        // Not made before it is known: its end frees the group.
        free.then(|| Claim { jobs: self, group })
    }

    /// Whether a job owns the group that starts at `low`.
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
