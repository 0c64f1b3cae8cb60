//! State shared by the compaction threads: busy groups, ranges that callers wait for, and the
//! measured speed of compaction.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{KeyspaceId, SeqNo};
use crate::compaction::garbage::dead_in_last;
use crate::compaction::idle::{self, IdleClock};
use crate::compaction::next::{Calm, RETRY_LOOK};
use crate::compaction::read_triggered::{EarlyFlush, MemtableState, MinLifetime, Watched};
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
    /// Number of events that may have made new work, so that no wake-up is lost.
    pub events: u64,
    /// Value of `events` when a running compaction last checked for urgent work between two steps.
    pub urgent_seen: u64,
    /// Clock of idle compaction; created at the first check.
    pub idle: Option<IdleClock>,
    /// Memtables that read-triggered flushes watch.
    pub watched: Option<Watched>,
    /// Newest commit and number of seeks at the last check.
    pub used: (SeqNo, u64),
    /// Number of callers that wait in `settle`: for them, rows that only snapshots kept are due
    /// too.
    pub settling: usize,
    /// True while a thread runs an idle compaction.
    pub idling: bool,
    /// Groups with a compaction that failed without a change, mostly for lack of space: not tried
    /// again before the next round.
    pub postponed: HashSet<(KeyspaceId, Vec<u8>)>,
    /// Number of compactions that failed without a change for a reason other than a full device,
    /// and the last error.
    pub failed: (u64, Option<Error>),
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
    /// Looks at the clocks of work that is not due: at the newest commit and the horizon, at the
    /// seeks of all scans, and at the memtables, which may be sealed early if `may_seal` is set.
    pub fn look(
        &mut self,
        after: Duration,
        (visible, horizon): (SeqNo, SeqNo),
        seeks: u64,
        memtables: MemtableState,
        may_seal: bool,
    ) -> Calm {
        let least = MinLifetime {
            flush: idle::period(after),
            seal: after,
        };
        let (paid, watched) = Watched::look(self.watched, memtables, least);
        self.watched = watched;
        let used = std::mem::replace(&mut self.used, (visible, seeks)) != (visible, seeks);
        let now = memtables.at;
        let clock = self
            .idle
            .get_or_insert_with(|| IdleClock::new(after, now, visible));
        Calm {
            paid: match paid {
                EarlyFlush::All if !may_seal => EarlyFlush::Sealed,
                paid => paid,
            },
            advice: clock.look(now, visible, horizon),
            used,
            others_idle: self.idling,
            period: clock.period(),
        }
    }

    /// Notes the beginning of an idle compaction.
    pub fn begin_idle(&mut self, tree: &Tree, low: &[u8]) {
        self.idling = true;
        if let Some(clock) = &mut self.idle {
            clock.begin(tree.id, low);
        }
    }

    /// Notes that the idle pass has no group left. Does not end the pass while another thread
    /// compacts a group: it may have more work afterwards.
    pub fn end_pass(&mut self, now: Instant, visible: SeqNo) {
        if let Some(clock) = &mut self.idle
            && self.busy.is_empty()
        {
            clock.finish(now, visible);
        }
    }

    /// Fails with the last error of a compaction if more than the first `known` have failed.
    pub fn check_failed(&self, known: u64) -> Result<()> {
        match &self.failed {
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

    /// Notes that the compaction of a group failed with `error`, which changed nothing. Callers
    /// that wait for compactions get the error, unless it is `NoSpace`: space may become free at
    /// any time.
    pub fn postpone(&self, tree: &Tree, low: &[u8], error: Error) {
        let mut state = self.state.lock();
        state.postponed.insert((tree.id, low.to_vec()));
        if !matches!(error, Error::NoSpace { .. }) {
            state.failed = (state.failed.0 + 1, Some(error));
            self.changed.notify_all();
        }
    }

    /// Notes that space may be free again: failed compactions are tried again.
    pub fn found_space(&self) {
        let mut state = self.state.lock();
        state.rounds = (0, None);
        if !state.postponed.is_empty() {
            state.postponed.clear();
            // A thread may have found no compaction that it may run, and be about to sleep.
            state.events += 1;
            self.changed.notify_all();
        }
    }

    /// Begins the next round of failed compactions once its time has come. The time between rounds
    /// doubles. Returns true if there are failed compactions.
    pub fn next_round(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        if state.postponed.is_empty() {
            return false;
        }
        let rounds = state.rounds.0;
        let later = now + RETRY_LOOK * 2_u32.pow(rounds.min(ROUNDS_MAX));
        if now >= *state.rounds.1.get_or_insert(later) {
            state.postponed.clear();
            state.rounds = (rounds + 1, None);
        }
        true
    }

    /// Returns true if there were events since a running compaction last asked.
    pub fn has_urgent_news(&self) -> bool {
        let mut state = self.state.lock();
        let events = state.events;
        std::mem::replace(&mut state.urgent_seen, events) != events
    }

    /// Waits for an event or the end of the threads, at most this long.
    pub fn rest(&self, most: Duration) {
        let mut state = self.state.lock();
        if !state.stop {
            self.changed.wait_for(&mut state, most);
        }
    }

    /// Notes the end of an idle compaction.
    pub fn idled(&self, took: Duration) {
        let mut state = self.state.lock();
        state.idling = false;
        if let Some(clock) = &mut state.idle {
            clock.worked(took);
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
