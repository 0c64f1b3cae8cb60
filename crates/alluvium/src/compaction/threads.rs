//! Compaction threads, and how each one picks its next job.

use std::sync::Arc;
use std::time::Duration;

use crate::base::SeqNo;
use crate::compaction::debt::{rules, update_admission};
use crate::compaction::idle::{self, Advice, IdleClock};
use crate::compaction::job::Job;
use crate::compaction::jobs::{SPACE_LOOK, Wanted};
use crate::compaction::pick::{PickRules, Picked, Work};
use crate::compaction::read_triggered;
use crate::compaction::steps::Mode;
use crate::compaction::survey::{Survey, survey};
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::sync::time::Instant;

/// Next action of a thread.
enum Next {
    Run(Job),
    /// Sleep until an event, or at most this long.
    Wait(Option<Duration>),
}

/// Runs one compaction thread until the database closes or is poisoned.
pub(crate) fn run(shared: &Shared) {
    loop {
        let seen = shared.jobs.state.lock().events;
        let next = claim(shared).map_or_else(|| idle(shared), Next::Run);
        let job = match next {
            Next::Run(job) => job,
            Next::Wait(most) => {
                let mut state = shared.jobs.state.lock();
                if state.stop {
                    return;
                }
                if state.events == seen {
                    match most {
                        Some(most) => drop(shared.jobs.changed.wait_for(&mut state, most)),
                        None => shared.jobs.changed.wait(&mut state),
                    }
                }
                continue;
            }
        };
        let began = Instant::now();
        let result = job.run(shared);
        if matches!(job.mode, Mode::Tidy(_)) {
            shared.jobs.tidied(began.elapsed());
        }
        release(shared, &job);
        update_admission(shared);
        match result {
            Ok(()) => shared.found_space(),
            Err(error) if error.may_be_retried() => retry_later(shared, &job, error),
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

/// Schedules a retry of a job that failed without a change: at once if cutting the ballast file has
/// made room for it, otherwise in the next round.
fn retry_later(shared: &Shared, job: &Job, error: Error) {
    if !job.mode.is_due() {
        // Not worth the ballast file, without which commits are refused.
        if job.mode == Mode::ReadTriggered {
            job.charge_scans_again();
        }
    } else if shared.note_background_failure(&error) {
        return;
    }
    shared.jobs.put_off(job, error);
}

/// Decides on the next action of a thread that has no compaction to run.
fn idle(shared: &Shared) -> Next {
    let one_waits = shared.jobs.next_round(Instant::now());
    match (shared.ballast.is_low(), one_waits) {
        (true, _) => make_room(shared),
        // There may be space again, since other jobs have found some; no event reports that.
        (false, true) => Next::Wait(Some(SPACE_LOOK)),
        (false, false) => tidy(shared),
    }
}

/// Tries to free space while the device is full and no compaction finds room: deletes in memory can
/// help.
fn make_room(shared: &Shared) -> Next {
    // Space from files that other jobs removed, or that a dropped keyspace had.
    shared.look_for_space();
    // While sealed memtables find no space, sealing one more does not help. They would only pile
    // up, above the ceiling and unnoticed by the check of it in each commit.
    if shared.sealed_bytes() > 0 {
        shared.want_flush();
    } else if shared.has_memtables() {
        shared.seal_and_flush();
    }
    Next::Wait(Some(SPACE_LOOK))
}

/// Starts idle or read-triggered work, for when no work is due.
fn tidy(shared: &Shared) -> Next {
    let Some(after) = shared.options.idle_after else {
        return Next::Wait(None);
    };
    let points = &shared.read_points;
    let (visible, horizon, now) = (points.visible(), points.horizon(), Instant::now());
    let seeks = read_triggered::seeks(shared);
    let patience = read_triggered::Patience {
        flush: idle::period(after),
        seal: after,
    };
    read_triggered::flush(shared, patience);
    let used = read_triggered::is_used(shared, visible, seeks);
    let period = {
        let mut state = shared.jobs.state.lock();
        let clock = state
            .idle
            .get_or_insert_with(|| IdleClock::new(after, now, visible));
        let (period, advice) = (clock.period(), clock.look(now, visible, horizon));
        match advice {
            Advice::Wait(most) if used => {
                return Next::Wait(Some(most.min(read_triggered::LOOK_WHILE_USED)));
            }
            Advice::Wait(most) => return Next::Wait(Some(most)),
            // One thread is enough for work that is not urgent.
            Advice::Tidy if state.tidying || state.stop => return Next::Wait(Some(period)),
            Advice::Tidy => state.tidying = true,
        }
        period
    };
    let job = if shared.has_memtables() {
        // The end of the flush is an event.
        shared.seal_and_flush();
        None
    } else {
        shared.memory.budget.forget_peak();
        let job = claim_tidy(shared, visible);
        let mut state = shared.jobs.state.lock();
        // A group that another thread compacts may have more work afterwards.
        let alone = state.busy.is_empty();
        match (&job, &mut state.idle) {
            (Some(job), Some(clock)) => clock.begin(job.tree.id, &job.low),
            (None, Some(clock)) if alone => clock.finish(now, visible),
            _ => {}
        }
        job
    };
    shared.jobs.state.lock().tidying = job.is_some();
    job.map_or(Next::Wait(Some(period)), Next::Run)
}

fn claim_tidy(shared: &Shared, visible: SeqNo) -> Option<Job> {
    claim_by(shared, Mode::Tidy(visible), |rules, survey| {
        let free = shared.vfs.free_bytes(&shared.dir).unwrap_or(0);
        let state = shared.jobs.state.lock();
        for (size, place) in survey.sizes.iter_mut().zip(&survey.places) {
            let group = &place.version.groups()[place.index];
            let clock = state.idle.as_ref();
            size.busy |= clock.is_some_and(|clock| clock.has_compacted(place.tree.id, &group.low));
            size.busy |= free < read_triggered::room_for(group);
        }
        rules.pick_idle(&survey.sizes)
    })
}

/// Picks the most useful work of all keyspaces and marks its group as busy.
fn claim(shared: &Shared) -> Option<Job> {
    let wanted = match shared.poison.check() {
        Ok(()) => shared.jobs.state.lock().wanted.clone(),
        Err(_) => Vec::new(),
    };
    let wanted = wanted.iter().find_map(|w| claim_wanted(shared, w));
    let due =
        wanted.or_else(|| claim_by(shared, Mode::Due, |rules, survey| rules.pick(&survey.sizes)));
    let (low, settling) = (shared.ballast.is_low(), shared.jobs.is_settling());
    let due = due.or_else(|| {
        let reclaim = |rules: &PickRules, survey: &mut Survey| rules.pick_reclaim(&survey.sizes);
        settling
            .then(|| claim_by(shared, Mode::Due, reclaim))
            .flatten()
    });
    due.or_else(|| {
        if low {
            // Now any entry that a compaction may drop is worth its work.
            let idle = |rules: &PickRules, survey: &mut Survey| rules.pick_idle(&survey.sizes);
            return claim_by(shared, Mode::Due, idle);
        }
        shared.options.idle_after?;
        claim_by(shared, Mode::ReadTriggered, |rules, survey| {
            read_triggered::pick(shared, rules, survey)
        })
    })
}

fn claim_by(
    shared: &Shared,
    mode: Mode,
    pick: impl FnOnce(&PickRules, &mut Survey) -> Option<Picked>,
) -> Option<Job> {
    if shared.poison.check().is_err() {
        return None;
    }
    let mut survey = survey(shared);
    skip_put_off(shared, &mut survey);
    let picked = pick(&rules(shared), &mut survey)?;
    let place = &survey.places[picked.group];
    let group = &place.version.groups()[place.index];
    let job = Job {
        tree: Arc::clone(&place.tree),
        low: group.low.clone(),
        work: picked.work,
        picked: group.upper.iter().map(|u| u.table.id()).collect(),
        mode,
    };
    let mut state = shared.jobs.state.lock();
    // Another thread may have claimed the same group in the meantime: then pick again.
    (!state.stop && state.busy.insert((job.tree.id, job.low.clone()))).then_some(job)
}

/// Excludes the groups with a failed compaction that is not to be tried again yet.
fn skip_put_off(shared: &Shared, survey: &mut Survey) {
    let state = shared.jobs.state.lock();
    if state.put_off.is_empty() {
        return;
    }
    for (size, place) in survey.sizes.iter_mut().zip(&survey.places) {
        let low = place.version.groups()[place.index].low.clone();
        size.busy |= state.put_off.contains(&(place.tree.id, low));
    }
}

/// Claims a compaction of one group of a range that a caller waits for, unless all of them are
/// busy.
fn claim_wanted(shared: &Shared, wanted: &Wanted) -> Option<Job> {
    let horizon = shared.read_points.horizon();
    let version = Arc::clone(&wanted.tree.load().version);
    wanted.pending(&version, horizon).find_map(|group| {
        let job = Job {
            tree: Arc::clone(&wanted.tree),
            low: group.low.clone(),
            work: Work::LastLevel,
            picked: group.upper.iter().map(|u| u.table.id()).collect(),
            mode: Mode::Due,
        };
        let mut state = shared.jobs.state.lock();
        let group = (job.tree.id, job.low.clone());
        let free = !state.stop && !state.put_off.contains(&group) && state.busy.insert(group);
        free.then_some(job)
    })
}

/// Runs jobs that cannot wait for the compaction that calls this between two of its steps. Surveys
/// the groups only after a flush or a compaction.
pub(crate) fn run_urgent(shared: &Shared) -> Result<()> {
    let events = {
        let mut state = shared.jobs.state.lock();
        let events = state.events;
        events - std::mem::replace(&mut state.urgent_seen, events)
    };
    if events == 0 {
        return Ok(());
    }
    // Each job that is picked leaves fewer tables than it found.
    let urgent = |rules: &PickRules, survey: &mut Survey| rules.pick_urgent(&survey.sizes);
    while let Some(job) = claim_by(shared, Mode::Urgent, urgent) {
        let result = job.run(shared);
        release(shared, &job);
        match result {
            // It is picked again when the interrupted compaction has ended.
            Err(error) if error.may_be_retried() => return Ok(()),
            result => result?,
        }
    }
    Ok(())
}

fn release(shared: &Shared, job: &Job) {
    let mut state = shared.jobs.state.lock();
    state.busy.remove(&(job.tree.id, job.low.clone()));
    state.events += 1;
    shared.jobs.changed.notify_all();
}

#[cfg(all(test, not(loom), not(feature = "simulation")))]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::db::{Database, Options};
    use crate::keyspace::KeyspaceOptions;
    use crate::vfs::MemVfs;

    #[test]
    fn no_memtable_is_sealed_while_sealed_ones_cannot_be_flushed() {
        let db = Database::open_on(Arc::new(MemVfs::new()), Path::new("db"), Options::default());
        let db = db.expect("open");
        let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
        let shared = db.shared();
        shared.stop_flusher();
        let sealed = [b"a", b"b", b"c"].map(|key| {
            k.put(key, b"1").expect("put");
            make_room(shared);
            shared.sealed_bytes()
        });
        assert!(sealed[0] > 0);
        assert_eq!(sealed, [sealed[0]; 3]);
    }
}
