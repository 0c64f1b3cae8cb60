//! The threads that run merges, what they are asked to do next, and what they tell admission control.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::base::KeyspaceId;
use crate::compaction::job::Job;
use crate::compaction::pick::{GroupSize, PickRules, UpperSize};
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::keyspace::tree::Tree;

/// Who works on what. The mutex guards its own fields only; nothing is locked and no I/O done under it.
#[derive(Default)]
pub(crate) struct Jobs {
    state: Mutex<State>,
    /// Signals new work, a finished job, or the end.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    busy: HashSet<(KeyspaceId, Vec<u8>)>,
    /// Upper bytes merged into the last level per second of one thread, smoothed; 0 before the first merge.
    drain_bytes_per_s: f64,
    /// Counts events that may have made new work, so that no wake-up is lost.
    events: u64,
    stop: bool,
}

/// Weight of the newest merge in the smoothed drain rate.
const DRAIN_SMOOTHING: f64 = 0.3;
/// Before the first merge nothing is known: a rate that does not slow a load down needlessly.
const DRAIN_BYTES_PER_S_FIRST: f64 = 64e6;
/// How far above its budget the debt may go before writers are slowed, as a share of the budget.
const DEBT_SLACK: f64 = 0.5;

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

    fn drain_bytes_per_s(&self) -> f64 {
        let rate = self.state.lock().drain_bytes_per_s;
        if rate == 0.0 {
            DRAIN_BYTES_PER_S_FIRST
        } else {
            rate
        }
    }

    fn is_busy(&self, tree: &Tree, low: &[u8]) -> bool {
        self.state.lock().busy.contains(&(tree.id, low.to_vec()))
    }
}

/// One compaction thread: ends when the database closes or is poisoned.
pub(crate) fn run(shared: &Shared) {
    loop {
        let seen = shared.jobs.state.lock().events;
        let Some(job) = claim(shared) else {
            let mut state = shared.jobs.state.lock();
            if state.stop {
                return;
            }
            if state.events == seen {
                shared.jobs.changed.wait(&mut state);
            }
            continue;
        };
        let result = job.run(shared);
        release(shared, &job);
        update_admission(shared);
        match result {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) if shared.pause_for_space() => {}
            Err(Error::Closed) => return,
            Err(error) => {
                shared.poison.set(error);
                shared.wake_after_poison();
                return;
            }
        }
        if shared.jobs.is_stopped() {
            return;
        }
    }
}

/// Picks the most urgent work of all keyspaces and marks its group as busy.
fn claim(shared: &Shared) -> Option<Job> {
    if shared.poison.check().is_err() {
        return None;
    }
    let rules = rules(shared);
    let trees: Vec<Arc<Tree>> = shared.catalog.read().values().cloned().collect();
    let mut best: Option<(f64, Job)> = None;
    for tree in trees {
        let version = Arc::clone(&tree.load().version);
        let sizes = group_sizes(shared, &tree, &version);
        let debt = rules.debt(&sizes);
        if best.as_ref().is_none_or(|(most, _)| debt > *most)
            && let Some(picked) = rules.pick(&sizes)
        {
            let group = &version.groups()[picked.group];
            let upper = group.upper.iter().map(|u| u.table.id()).collect();
            let job = Job {
                tree,
                low: group.low.clone(),
                work: picked.work,
                picked: upper,
            };
            best = Some((debt, job));
        }
    }
    let (_, job) = best?;
    let mut state = shared.jobs.state.lock();
    // Another thread may have claimed the same group in the meantime: then pick again.
    (!state.stop && state.busy.insert((job.tree.id, job.low.clone()))).then_some(job)
}

fn release(shared: &Shared, job: &Job) {
    let mut state = shared.jobs.state.lock();
    state.busy.remove(&(job.tree.id, job.low.clone()));
    state.events += 1;
    shared.jobs.changed.notify_all();
}

fn rules(shared: &Shared) -> PickRules {
    PickRules {
        upper_fraction: shared.options.upper_fraction,
        floor_bytes: FLOOR_FLUSH_UNITS * shared.plan.active_bytes as u64,
        tables_max: TABLES_MAX,
    }
}

/// Upper bytes that a keyspace may always hold, in units of the active memtables' size.
const FLOOR_FLUSH_UNITS: u64 = 1;
/// Upper tables in one group above which they are tiered.
const TABLES_MAX: usize = 6;

fn group_sizes(
    shared: &Shared,
    tree: &Tree,
    version: &crate::version::group::Version,
) -> Vec<GroupSize> {
    let sizes = version.groups().iter().map(|group| {
        let upper = group.upper.iter().map(|u| {
            let entries = u.table.entries().max(1);
            let bytes = u.bytes();
            UpperSize {
                bytes,
                tombstone_bytes: (u128::from(bytes) * u128::from(u.table.tombstones())
                    / u128::from(entries)) as u64,
            }
        });
        GroupSize {
            upper: upper.collect(),
            last_bytes: group.last_bytes(),
            busy: shared.jobs.is_busy(tree, &group.low),
        }
    });
    sizes.collect()
}

/// Tells admission control how far behind merging is: the worst keyspace, or the sealed memtables.
pub(crate) fn update_admission(shared: &Shared) {
    let rules = rules(shared);
    let trees: Vec<Arc<Tree>> = shared.catalog.read().values().cloned().collect();
    let mut upper_debt = 0f64;
    for tree in trees {
        let version = Arc::clone(&tree.load().version);
        upper_debt = upper_debt.max(rules.debt(&group_sizes(shared, &tree, &version)));
    }
    let sealed = shared.sealed_bytes() as f64 / shared.plan.write_bytes as f64;
    let debt = (upper_debt - DEBT_SLACK).max(sealed_debt(sealed));
    shared
        .admission
        .set_debt(debt, shared.jobs.drain_bytes_per_s());
}

/// The debt of sealed memtables that take this share of the write memory: none up to all of it, 1 at a third above,
/// and without bound towards the ceiling at twice the write memory, so that writers come to it ever more slowly.
fn sealed_debt(sealed: f64) -> f64 {
    2.0 * (sealed - 1.0) / (2.0 - sealed).max(0.01)
}

/// Waits until nothing is picked and nothing runs.
pub(crate) fn settle(shared: &Shared) -> Result<()> {
    loop {
        shared.check_open()?;
        shared.poison.check()?;
        let seen = shared.jobs.state.lock().events;
        let idle = {
            let rules = rules(shared);
            let trees: Vec<Arc<Tree>> = shared.catalog.read().values().cloned().collect();
            trees.iter().all(|tree| {
                let version = Arc::clone(&tree.load().version);
                rules.pick(&group_sizes(shared, tree, &version)).is_none()
            })
        };
        let mut state = shared.jobs.state.lock();
        if idle && state.busy.is_empty() {
            return Ok(());
        }
        if state.events == seen {
            // Bounded, so that a poisoned database is noticed.
            shared
                .jobs
                .changed
                .wait_for(&mut state, Duration::from_millis(200));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sealed_debt;

    #[test]
    fn sealed_memtables_are_no_debt_within_their_share_and_a_growing_one_towards_the_ceiling() {
        assert!(sealed_debt(1.0) <= 0.0 && sealed_debt(0.2) < 0.0);
        assert!((sealed_debt(4.0 / 3.0) - 1.0).abs() < 1e-9);
        let debts = [1.1, 1.3, 1.5, 1.8, 1.9, 1.99].map(sealed_debt);
        assert!(debts.is_sorted() && debts[5] > 100.0, "{debts:?}");
    }
}
