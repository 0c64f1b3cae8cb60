//! Compaction threads: each one looks at the database, asks [`crate::compaction::next`] for the
//! next piece of work, and does it.

use std::sync::Arc;
use std::time::Duration;

use crate::compaction::env::CompactionEnv;
use crate::compaction::job::Job;
use crate::compaction::jobs::State;
use crate::compaction::mode::Mode;
use crate::compaction::next::{Next, RETRY_LOOK, Rest, Seen, next, quiet};
use crate::compaction::pick::Picked;
use crate::compaction::read_triggered::{EarlyFlush, MemtableState, Watched};
use crate::compaction::survey::{Place, Survey, survey, survey_of};
use crate::error::{Error, Result};
use crate::sync::time::Instant;

/// Choice of a thread: an early flush, and then something else. Holds no table: a replaced file is
/// removed after its last user.
struct Choice {
    flush: EarlyFlush,
    then: Then,
}

enum Then {
    /// Runs a claimed job.
    Run(Job),
    LookAgain,
    /// Looks for space before the flush, and sleeps.
    MakeRoom,
    /// Sleeps until an event, or at most this long.
    Sleep(Option<Duration>),
}

impl From<Then> for Choice {
    fn from(then: Then) -> Choice {
        let flush = EarlyFlush::Nothing;
        Choice { flush, then }
    }
}

/// Runs one compaction thread until the database closes or is poisoned.
pub(crate) fn run(env: &CompactionEnv) {
    loop {
        let events = env.jobs.state.lock().events;
        let ends = env.core.access.check_open().is_err() || env.core.poison.check().is_err();
        if ends || env.jobs.is_stopped() {
            return;
        }
        let Choice { flush, then } = choose(env);
        if matches!(then, Then::MakeRoom) {
            // Space from files that other jobs removed, or that a dropped keyspace had.
            env.ballast.look_for_space();
        }
        match flush {
            EarlyFlush::Nothing => {}
            EarlyFlush::Sealed => env.flushes.want(),
            EarlyFlush::All => env.commits.seal_and_flush(),
        }
        match then {
            Then::Run(job) => compact(env, &job),
            Then::LookAgain => {}
            Then::MakeRoom => sleep(env, events, Some(RETRY_LOOK)),
            Then::Sleep(most) => sleep(env, events, most),
        }
    }
}

/// Looks at the database and chooses.
fn choose(env: &CompactionEnv) -> Choice {
    let (mut seen, places) = look(env);
    match next(&env.rules(), &seen) {
        Next::Compact(mode, picked) => {
            let job = job(mode, picked, &places);
            // Another thread may have claimed the same group in the meantime: then looks again.
            if claim(&mut env.jobs.state.lock(), &job) {
                Then::Run(job).into()
            } else {
                Then::LookAgain.into()
            }
        }
        Next::Refuse(group) => {
            places[group].group().scan_cost.reset();
            Then::LookAgain.into()
        }
        Next::MakeRoom(flush) => Choice {
            flush,
            then: Then::MakeRoom,
        },
        Next::Sleep(most) => Then::Sleep(most).into(),
        Next::Quiet => choose_in_quiet(env, &mut seen, &places),
    }
}

/// Sleeps until an event after the first `events`, or at most this long.
fn sleep(env: &CompactionEnv, events: u64, most: Option<Duration>) {
    let mut state = env.jobs.state.lock();
    if state.stop || state.events != events {
        return;
    }
    match most {
        Some(most) => drop(env.jobs.changed.wait_for(&mut state, most)),
        None => env.jobs.changed.wait(&mut state),
    }
}

/// Looks at the database: its state for [`next`], and the group of each size.
fn look(env: &CompactionEnv) -> (Seen, Vec<Place>) {
    let core = &env.core;
    let (wanted, survey) = match look_at_wanted(env) {
        Some((group, survey)) => (Some(group), survey),
        None => (None, free_groups(env)),
    };
    let seen = Seen {
        groups: survey.sizes,
        wanted,
        settling: env.jobs.is_settling(),
        low_on_space: env.ballast.is_low(),
        postponed: env.jobs.next_round(Instant::now()),
        sealed_bytes: env.flushes.sealed_bytes(),
        has_rows: core.has_memtables(),
        deletes_may_help: deletes_may_help(env),
        free_bytes: core.files.free_bytes(),
        scan_share: core.options.idle_after.map(|_| {
            let watched = env.jobs.state.lock().watched;
            Watched::scan_share(watched)
        }),
    };
    (seen, survey.places)
}

/// Returns true if a flush has found no room, and the active memtables have range deletes or so
/// many entries that sealing them is worth a log segment. On a full device these are deletes.
fn deletes_may_help(env: &CompactionEnv) -> bool {
    if !env.ballast.is_low() || !env.flushes.has_failed() {
        return false;
    }
    let trees = env.core.trees();
    let has_ranges = trees.iter().any(|tree| {
        let state = tree.load();
        let active = state.active.as_ref();
        active.is_some_and(|active| active.range_deletes().is_some())
    });
    let worth_bytes = env.core.plan().worth_sealing_bytes();
    has_ranges || env.commits.log.lock().active_bytes() >= worth_bytes
}

/// Surveys all groups; those with a postponed compaction count as busy.
fn free_groups(env: &CompactionEnv) -> Survey {
    let mut survey = survey(&env.core, &env.jobs);
    skip_postponed(env, &mut survey);
    survey
}

/// Excludes the groups with a failed compaction that is not to be tried again yet.
fn skip_postponed(env: &CompactionEnv, survey: &mut Survey) {
    let state = env.jobs.state.lock();
    if state.postponed.is_empty() {
        return;
    }
    for (size, place) in survey.sizes.iter_mut().zip(&survey.places) {
        let group = (place.tree.id, place.group().low.clone());
        size.busy |= state.postponed.contains(&group);
    }
}

/// Looks for a free group of a range that a caller waits for; surveys only its keyspace.
fn look_at_wanted(env: &CompactionEnv) -> Option<(usize, Survey)> {
    let wanted = env.jobs.state.lock().wanted.clone();
    let horizon = env.core.read_points.horizon();
    wanted.iter().find_map(|wanted| {
        let trees = vec![Arc::clone(&wanted.tree)];
        let mut survey = survey_of(trees, &env.core, &env.jobs);
        skip_postponed(env, &mut survey);
        let version = &survey.places.first()?.version;
        let mut pending = wanted.pending(version, horizon);
        let group = pending.find_map(|group| {
            let group = version.find_low(&group.low)?;
            (!survey.sizes[group].busy).then_some(group)
        });
        let group = group?;
        drop(pending);
        Some((group, survey))
    })
}

fn job(mode: Mode, picked: Picked, places: &[Place]) -> Job {
    let place = &places[picked.group];
    let group = place.group();
    Job {
        tree: Arc::clone(&place.tree),
        low: group.low.clone(),
        work: picked.work,
        picked: group.upper.iter().map(|u| u.table.id()).collect(),
        mode,
    }
}

/// Marks the group of a job as busy. Returns false if it already is, or if the database closes.
fn claim(state: &mut State, job: &Job) -> bool {
    !state.stop && state.busy.insert((job.tree.id, job.low.clone()))
}

/// Runs a claimed job.
fn compact(env: &CompactionEnv, job: &Job) {
    let began = Instant::now();
    let result = job.run(env, &|| run_urgent(env));
    if matches!(job.mode, Mode::Idle(_)) {
        env.jobs.idled(began.elapsed());
    }
    release(env, job);
    env.core.update_admission();
    match result {
        Ok(()) => env.ballast.found_space(),
        Err(error) if error.may_be_retried() => retry_later(env, job, error),
        // The database closes.
        Err(Error::Closed) => {}
        Err(error) => drop(env.core.poison.set(error)),
    }
}

fn release(env: &CompactionEnv, job: &Job) {
    let mut state = env.jobs.state.lock();
    state.busy.remove(&(job.tree.id, job.low.clone()));
    state.events += 1;
    env.jobs.changed.notify_all();
}

/// Schedules a retry of a job that failed without a change: at once if cutting the ballast file has
/// made room for it, otherwise in the next round.
fn retry_later(env: &CompactionEnv, job: &Job, error: Error) {
    if !job.mode.is_due() {
        // Not worth the ballast file, without which commits are refused.
        if job.mode == Mode::ReadTriggered {
            job.charge_scans_again();
        }
    } else if env.ballast.note_failure(&error) {
        return;
    }
    env.jobs.postpone(&job.tree, &job.low, error);
}

/// Chooses work that is not due.
fn choose_in_quiet(env: &CompactionEnv, seen: &mut Seen, places: &[Place]) -> Choice {
    let Some(after) = env.core.options.idle_after else {
        return Then::Sleep(None).into();
    };
    let points = &env.core.read_points;
    let (visible, horizon) = (points.visible(), points.horizon());
    let (seeks, memtables) = (all_seeks(env), look_at_memtables(env));
    let may_seal = may_seal(env, seen, memtables);
    let mut state = env.jobs.state.lock();
    let calm = state.look(after, (visible, horizon), seeks, memtables, may_seal);
    let in_pass = |group: usize| {
        let (place, clock) = (&places[group], state.idle.as_ref());
        clock.is_some_and(|clock| clock.has_compacted(place.tree.id, &place.group().low))
    };
    let (flush, rest) = quiet(&env.rules(), seen, &calm, in_pass);
    let then = match rest {
        Rest::Sleep(most) => Then::Sleep(Some(most)),
        Rest::Compact(picked) => {
            let job = job(Mode::Idle(visible), picked, places);
            if claim(&mut state, &job) {
                state.begin_idle(&job.tree, &job.low);
                Then::Run(job)
            } else {
                Then::LookAgain
            }
        }
        Rest::EndPass => {
            state.end_pass(memtables.at, visible);
            Then::Sleep(Some(calm.period))
        }
    };
    Choice { flush, then }
}

/// Returns the number of all seeks of scans in the database.
fn all_seeks(env: &CompactionEnv) -> u64 {
    let trees = env.core.catalog.read();
    let seeks = trees.values().map(|tree| tree.counters.seeks.totals().0);
    seeks.sum()
}

/// Returns the state of the memtables now.
fn look_at_memtables(env: &CompactionEnv) -> MemtableState {
    let (generations, sealed_bytes) = env.flushes.sealed();
    let plan = env.core.plan();
    let trees = env.core.catalog.read();
    let with_rows = trees.values().filter(|t| t.load().has_memtable_rows());
    let seeks = with_rows.map(|tree| tree.counters.seeks.totals().0);
    let (keyspaces, seeks) = seeks.fold((0, 0), |(count, sum), seeks| (count + 1, sum + seeks));
    drop(trees);
    MemtableState {
        generations,
        sealed_bytes: sealed_bytes as u64,
        keyspaces,
        seeks,
        at: Instant::now(),
        active_bytes: env.commits.log.lock().active_bytes(),
        worth_bytes: plan.worth_sealing_bytes(),
        full_bytes: plan.active_bytes,
    }
}

/// Returns true if memtables may be sealed before they are full. Sealed memtables that find no
/// space would only pile up. On a nearly full device, the next log segment and the flush are not
/// worth the space that is kept for deletes.
fn may_seal(env: &CompactionEnv, seen: &Seen, now: MemtableState) -> bool {
    let takes = env.core.plan().segment_bytes() + now.sealed_bytes + now.active_bytes as u64;
    !env.flushes.has_failed() && seen.free_bytes >= 2 * takes
}

/// Runs jobs that cannot wait for the compaction that calls this between two of its steps. Surveys
/// the groups only after a flush or a compaction.
fn run_urgent(env: &CompactionEnv) -> Result<()> {
    if !env.jobs.has_urgent_news() {
        return Ok(());
    }
    // Ends: each job that is picked leaves fewer tables than it found.
    while let Some(job) = claim_urgent(env) {
        let result = job.run(env, &|| Ok(()));
        release(env, &job);
        match result {
            // It is picked again when the interrupted compaction has ended.
            Err(error) if error.may_be_retried() => return Ok(()),
            result => result?,
        }
    }
    Ok(())
}

fn claim_urgent(env: &CompactionEnv) -> Option<Job> {
    env.core.poison.check().ok()?;
    let survey = free_groups(env);
    let picked = env.rules().pick_urgent(&survey.sizes)?;
    let job = job(Mode::Urgent, picked, &survey.places);
    claim(&mut env.jobs.state.lock(), &job).then_some(job)
}

#[cfg(all(test, not(loom), not(feature = "simulation")))]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::compaction::pick::SEEKS_PER_INSTALL;
    use crate::db::{Database, Options};
    use crate::iter::CursorOptions;
    use crate::keyspace::{Keyspace, KeyspaceOptions};
    use crate::vfs::MemVfs;

    /// Opens a database with a keyspace in which no background thread does work that is not due.
    fn opened() -> (Database, Keyspace) {
        let options = Options {
            idle_after: None,
            ..Options::default()
        };
        let db = Database::open_on(Arc::new(MemVfs::new()), Path::new("db"), options);
        let db = db.expect("open");
        let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
        (db, k)
    }

    #[test]
    fn no_memtable_is_sealed_while_sealed_ones_cannot_be_flushed() {
        let (db, k) = opened();
        let env = db.shared().compaction_env();
        env.flushes.stop();
        let sealed = [b"a", b"b", b"c"].map(|key| {
            k.put(key, b"1").expect("put");
            let (mut seen, _) = look(&env);
            seen.low_on_space = true;
            match next(&env.rules(), &seen) {
                Next::MakeRoom(EarlyFlush::All) => env.commits.seal_and_flush(),
                Next::MakeRoom(_) => {}
                other => panic!("the device is full: {other:?}"),
            }
            env.flushes.sealed_bytes()
        });
        assert!(sealed[0] > 0);
        assert_eq!(sealed, [sealed[0]; 3]);
    }

    #[test]
    fn commits_and_seeks_count_as_use() {
        let (db, k) = opened();
        let env = db.shared().compaction_env();
        let used = || {
            let visible = env.core.read_points.visible();
            let (seeks, now) = (all_seeks(&env), look_at_memtables(&env));
            let mut state = env.jobs.state.lock();
            let after = Duration::from_secs(20);
            state.look(after, (visible, visible), seeks, now, true).used
        };
        k.put(b"key", b"value").expect("put");
        assert!(used() && !used());
        let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
        for _ in 0..100 {
            assert!(cursor.seek(b"key").expect("seek"));
        }
        assert!(used() && !used());
    }

    #[test]
    fn a_compaction_starts_early_while_writes_are_slow() {
        let (db, k) = opened();
        for value in [b"one", b"two"] {
            k.put(b"key", value).expect("put");
            db.flush().expect("flush");
        }
        let env = db.shared().compaction_env();
        let picks = |needless, lasts| {
            let now = look_at_memtables(&env);
            let mut seen = look(&env).0;
            seen.scan_share = Some(Watched::scan_share(Some(Watched::for_test(now, lasts))));
            seen.groups[0].needless_seeks = needless;
            matches!(
                next(&env.rules(), &seen),
                Next::Compact(Mode::ReadTriggered, _)
            )
        };
        // The bytes of such tables cost no more than a few seeks.
        assert!(picks(SEEKS_PER_INSTALL + 100, false) && !picks(SEEKS_PER_INSTALL - 100, false));
        assert!(picks(SEEKS_PER_INSTALL / 4 + 100, true));
        assert!(!picks(SEEKS_PER_INSTALL / 4 - 100, true));
    }
}
