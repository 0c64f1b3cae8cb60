//! Callers that wait for compactions: until none is due, or until a range is in the last level.

use std::sync::Arc;
use std::time::Duration;

use crate::base::SeqNo;
use crate::compaction::env::CompactionEnv;
use crate::compaction::jobs::{State, Wanted};
use crate::compaction::survey::survey;
use crate::error::Result;
use crate::keyspace::tree::Tree;
use crate::sync::plain::MutexGuard;

/// Waits until no work is picked or running, the last levels have no entry that no reader needs,
/// and replaced files are removed.
pub(crate) fn settle(env: &CompactionEnv) -> Result<()> {
    env.jobs.state.lock().settling += 1;
    env.jobs.wake();
    let result = wait_settled(env);
    env.jobs.state.lock().settling -= 1;
    result
}

fn wait_settled(env: &CompactionEnv) -> Result<()> {
    let known = env.jobs.state.lock().failed.0;
    let mut wakes = true;
    loop {
        env.core.access.check_open()?;
        env.core.poison.check()?;
        env.jobs.state.lock().check_failed(known)?;
        let seen = env.jobs.state.lock().events;
        let (rules, sizes) = (env.rules(), survey(&env.core, &env.jobs).sizes);
        let idle = rules.pick(&sizes).is_none() && rules.pick_reclaim(&sizes).is_none();
        let mut state = env.jobs.state.lock();
        if idle && state.busy.is_empty() {
            drop(state);
            // The caller may check the free space next.
            env.core.files.removals.wait();
            return Ok(());
        }
        wait_a_moment(env, &mut state, seen, &mut wakes);
    }
}

/// Compacts the entries of a range up to the commit `upto` into the last level. Waits for that, and
/// for the removal of the replaced files.
pub(crate) fn compact_range(
    env: &CompactionEnv,
    tree: &Arc<Tree>,
    start: &[u8],
    end: Option<&[u8]>,
    upto: SeqNo,
) -> Result<()> {
    let wanted = Arc::new(Wanted {
        tree: Arc::clone(tree),
        start: start.to_vec(),
        end: end.map(<[u8]>::to_vec),
        upto,
    });
    env.jobs.state.lock().wanted.push(Arc::clone(&wanted));
    env.jobs.wake();
    let result = wait_for(env, &wanted);
    let mut state = env.jobs.state.lock();
    state.wanted.retain(|w| !Arc::ptr_eq(w, &wanted));
    drop(state);
    env.core.files.removals.wait();
    result
}

fn wait_for(env: &CompactionEnv, wanted: &Wanted) -> Result<()> {
    let known = env.jobs.state.lock().failed.0;
    let mut wakes = true;
    loop {
        env.core.access.check_open()?;
        env.core.poison.check()?;
        env.jobs.state.lock().check_failed(known)?;
        let seen = env.jobs.state.lock().events;
        let horizon = env.core.read_points.horizon();
        let version = Arc::clone(&wanted.tree.load().version);
        // After the load: the version was not the empty one of a dropped keyspace.
        wanted.tree.check()?;
        if wanted.pending(&version, horizon).next().is_none() {
            return Ok(());
        }
        wait_a_moment(env, &mut env.jobs.state.lock(), seen, &mut wakes);
    }
}

/// Waits for an event after the first `seen`. Bounded, so that a poisoned or closed database is
/// noticed.
///
/// If no compaction runs and `wakes` is set, wakes the threads first: work may have become due
/// without an event, because a snapshot was closed. Sets `wakes` if nothing has happened for the
/// whole time, so that two waiting callers do not wake each other without end.
fn wait_a_moment(
    env: &CompactionEnv,
    state: &mut MutexGuard<'_, State>,
    seen: u64,
    wakes: &mut bool,
) {
    if state.events != seen {
        return;
    }
    if state.busy.is_empty() && *wakes {
        state.events += 1;
        env.jobs.changed.notify_all();
    }
    let bound = Duration::from_millis(200);
    *wakes = env.jobs.changed.wait_for(state, bound).timed_out();
}

#[cfg(all(test, not(loom), not(feature = "simulation")))]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::db::{Database, Options};
    use crate::keyspace::{Keyspace, KeyspaceOptions};
    use crate::vfs::MemVfs;

    /// Opens a database without idle compaction and one row in a keyspace, in a memtable.
    fn opened() -> (Database, Keyspace) {
        let options = Options {
            idle_after: None,
            ..Options::default()
        };
        let db = Database::open_on(Arc::new(MemVfs::new()), Path::new("db"), options).unwrap();
        let words = db.keyspace("words", KeyspaceOptions::default()).unwrap();
        words.put(b"a", b"1").unwrap();
        (db, words)
    }

    #[test]
    fn a_compaction_that_found_no_space_is_retried_without_an_event() {
        let (db, words) = opened();
        db.settle().unwrap();
        // As left by a compaction that fails just when a flush has found space and reported it.
        let group = (words.id(), Vec::new());
        db.shared().jobs.state.lock().postponed.insert(group);
        words.compact_range(b"", None).unwrap();
    }

    #[test]
    fn two_callers_that_wait_for_a_postponed_compaction_do_not_wake_each_other_in_a_loop() {
        let (db, words) = opened();
        db.flush().unwrap();
        let jobs = &db.shared().jobs;
        let group = (words.id(), Vec::new());
        jobs.state.lock().postponed.insert(group);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| words.compact_range(b"", None).unwrap());
            }
            while jobs.state.lock().wanted.len() < 2 {
                std::thread::yield_now();
            }
            let until = crate::sync::time::Instant::now() + Duration::from_millis(300);
            let mut state = jobs.state.lock();
            let before = state.events;
            while state.events - before < 50
                && !jobs.changed.wait_until(&mut state, until).timed_out()
            {}
            let events = state.events - before;
            drop(state);
            jobs.found_space();
            assert!(events < 50, "{events} events while nothing happened");
        });
    }

    #[test]
    fn found_space_is_an_event_for_a_postponed_compaction() {
        let jobs = crate::compaction::jobs::Jobs::default();
        jobs.found_space();
        assert_eq!(jobs.state.lock().events, 0);
        let group = (crate::base::KeyspaceId(1), Vec::new());
        jobs.state.lock().postponed.insert(group);
        jobs.found_space();
        assert_eq!(jobs.state.lock().events, 1);
    }
}
