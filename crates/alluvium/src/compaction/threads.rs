//! The threads that run merges, what they are asked to do next, and what they tell admission control.

use crate::sync::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::time::Instant;

use crate::sync::plain::{Condvar, Mutex};

use crate::base::{KeyspaceId, SeqNo};
use crate::compaction::idle::{Advice, IdleClock};
use crate::compaction::job::Job;
use crate::compaction::pick::{PickRules, Picked, Work};
use crate::compaction::steps::Mode;
use crate::compaction::survey::{Survey, survey};
use crate::db::reserve::Taker;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::keyspace::tree::Tree;
use crate::version::group::{Group, Version};

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
    /// Ranges that somebody waits for; they go before what is picked.
    wanted: Vec<Arc<Wanted>>,
    /// Upper bytes merged into the last level per second of one thread, smoothed; 0 before the first merge.
    drain_bytes_per_s: f64,
    /// Counts events that may have made new work, so that no wake-up is lost.
    events: u64,
    /// The events that a merge between two steps has looked at.
    urgent_seen: u64,
    /// When to tidy; made at the first look.
    idle: Option<IdleClock>,
    /// A thread is tidying.
    tidying: bool,
    /// The groups whose merge found no space, not tried again before the next round.
    no_space: HashSet<(KeyspaceId, Vec<u8>)>,
    /// The rounds in which merges have found no space, and when the next one begins.
    rounds: (u32, Option<Instant>),
    stop: bool,
}

/// A range of which everything up to a commit is to be in the last level.
struct Wanted {
    tree: Arc<Tree>,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    upto: SeqNo,
}

impl Wanted {
    /// The groups of the range that still have such rows in upper tables. By seqno, because a merge of upper tables may
    /// give old rows to a new table.
    fn pending<'v>(&'v self, version: &'v Version) -> impl Iterator<Item = &'v Arc<Group>> {
        let end = self.end.as_deref();
        let from = version.groups().iter().skip(version.find(&self.start));
        let inside = from.take_while(move |g| end.is_none_or(|end| &g.low[..] < end));
        inside.filter(|g| g.upper.iter().any(|u| u.table.min_seqno() <= self.upto))
    }
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

    /// Notes that the merge of a group found no space.
    fn found_no_space(&self, job: &Job) {
        let mut state = self.state.lock();
        state.no_space.insert((job.tree.id, job.low.clone()));
    }

    /// Something has changed: merges that found no space are tried again.
    pub fn found_space(&self) {
        let mut state = self.state.lock();
        state.no_space.clear();
        state.rounds = (0, None);
    }

    /// Begins the next round of merges that found no space once it is time. Each comes later than the one before.
    fn next_round(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.no_space.is_empty() {
            return;
        }
        let rounds = state.rounds.0;
        let later = now + SPACE_LOOK * 2_u32.pow(rounds.min(ROUNDS_MAX));
        if now >= *state.rounds.1.get_or_insert(later) {
            state.no_space.clear();
            state.rounds = (rounds + 1, None);
        }
    }

    /// Notes the end of a merge that was not due.
    fn tidied(&self, took: Duration) {
        let mut state = self.state.lock();
        state.tidying = false;
        if let Some(clock) = &mut state.idle {
            clock.worked(took);
        }
    }

    fn drain_bytes_per_s(&self) -> f64 {
        let rate = self.state.lock().drain_bytes_per_s;
        if rate == 0.0 {
            DRAIN_BYTES_PER_S_FIRST
        } else {
            rate
        }
    }

    /// Whether a job owns the group that starts at `low`.
    pub fn is_busy(&self, tree: &Tree, low: &[u8]) -> bool {
        self.state.lock().busy.contains(&(tree.id, low.to_vec()))
    }
}

/// What a thread does next.
enum Next {
    Run(Job),
    /// Sleep until an event, or at most this long.
    Wait(Option<Duration>),
}

/// Between two looks of a thread that waits for space.
const SPACE_LOOK: Duration = Duration::from_secs(1);
/// Rounds after which the time between two rounds does not double any more.
const ROUNDS_MAX: u32 = 6;

/// One compaction thread: ends when the database closes or is poisoned.
pub(crate) fn run(shared: &Shared) {
    loop {
        let seen = shared.jobs.state.lock().events;
        let idle = || match shared.reserve.is_low() {
            true => make_room(shared),
            false => tidy(shared),
        };
        let next = claim(shared).map_or_else(idle, Next::Run);
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
            Err(error @ Error::NoSpace { .. }) => {
                if !shared.spend_reserve(Taker::Background, &error) {
                    shared.jobs.found_no_space(&job);
                }
            }
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

/// Where the device is full and no merge finds room: deletes in memory can make some.
fn make_room(shared: &Shared) -> Next {
    shared.jobs.next_round(Instant::now());
    // Of files that others removed, or that a dropped keyspace had.
    shared.look_for_space();
    if shared.has_memtables() {
        seal_idle(shared);
    }
    Next::Wait(Some(SPACE_LOOK))
}

/// Where nothing is due: what there is to do while nobody writes, if nobody does.
fn tidy(shared: &Shared) -> Next {
    let Some(after) = shared.options.idle_after else {
        return Next::Wait(None);
    };
    let points = &shared.read_points;
    let (visible, horizon, now) = (points.visible(), points.horizon(), Instant::now());
    let period = {
        let mut state = shared.jobs.state.lock();
        let clock = state
            .idle
            .get_or_insert_with(|| IdleClock::new(after, now, visible));
        let (period, advice) = (clock.period(), clock.look(now, visible, horizon));
        match advice {
            Advice::Wait(most) => return Next::Wait(Some(most)),
            // One thread is enough for what is not urgent.
            Advice::Tidy if state.tidying || state.stop => return Next::Wait(Some(period)),
            Advice::Tidy => state.tidying = true,
        }
        period
    };
    let job = if shared.has_memtables() {
        // The end of the flush is an event.
        seal_idle(shared);
        None
    } else {
        shared.cache.forget_peak();
        let job = claim_tidy(shared, visible);
        let mut state = shared.jobs.state.lock();
        // A group that another thread merges may have more to do afterwards.
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

/// Sends what is in memory to the flusher. A failure is known to the poison, or harmless: there was no space.
fn seal_idle(shared: &Shared) {
    let mut log = shared.log.lock();
    if shared.check_open().is_ok() && log.seal(shared).is_ok() {
        drop(log);
        shared.want_flush();
    }
}

fn claim_tidy(shared: &Shared, visible: SeqNo) -> Option<Job> {
    claim_by(shared, Mode::Tidy(visible), |rules, survey| {
        let state = shared.jobs.state.lock();
        for (size, place) in survey.sizes.iter_mut().zip(&survey.places) {
            let low = &place.version.groups()[place.index].low;
            let clock = state.idle.as_ref();
            size.busy |= clock.is_some_and(|clock| clock.has_merged(place.tree.id, low));
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
    let low = shared.reserve.is_low();
    due.or_else(|| {
        // Whatever a merge may drop is worth its work now.
        let any = |rules: &PickRules, survey: &mut Survey| rules.pick_idle(&survey.sizes);
        low.then(|| claim_by(shared, Mode::Due, any)).flatten()
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
    skip_without_space(shared, &mut survey);
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

/// Leaves the groups out whose merge found no space.
fn skip_without_space(shared: &Shared, survey: &mut Survey) {
    let state = shared.jobs.state.lock();
    if state.no_space.is_empty() {
        return;
    }
    for (size, place) in survey.sizes.iter_mut().zip(&survey.places) {
        let low = place.version.groups()[place.index].low.clone();
        size.busy |= state.no_space.contains(&(place.tree.id, low));
    }
}

/// A merge of one group that somebody waits for, unless all of them are busy.
fn claim_wanted(shared: &Shared, wanted: &Wanted) -> Option<Job> {
    let version = Arc::clone(&wanted.tree.load().version);
    wanted.pending(&version).find_map(|group| {
        let job = Job {
            tree: Arc::clone(&wanted.tree),
            low: group.low.clone(),
            work: Work::LastLevel,
            picked: group.upper.iter().map(|u| u.table.id()).collect(),
            mode: Mode::Due,
        };
        let mut state = shared.jobs.state.lock();
        let group = (job.tree.id, job.low.clone());
        let free = !state.stop && !state.no_space.contains(&group) && state.busy.insert(group);
        free.then_some(job)
    })
}

/// Runs what cannot wait for the merge that calls this between two of its steps. Looks only after a flush or a merge.
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
            // It is picked again when the merge that made room for it has ended.
            Err(Error::NoSpace { .. }) => return Ok(()),
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

fn rules(shared: &Shared) -> PickRules {
    PickRules {
        upper_fraction: shared.options.upper_fraction,
        floor_bytes: FLOOR_FLUSH_UNITS * shared.plan().active_bytes as u64,
        tables_max: TABLES_MAX,
    }
}

/// Upper bytes that the database may always hold, in units of the active memtables' size.
const FLOOR_FLUSH_UNITS: u64 = 2;
/// Upper tables in one group above which they are tiered.
const TABLES_MAX: usize = 6;

/// Whether there is more in upper tables than the space budget allows.
pub(crate) fn is_over_budget(shared: &Shared) -> bool {
    let sizes = &shared.table_sizes;
    rules(shared).debt(sizes.upper_bytes(), sizes.last_bytes()) > 0.0
}

/// Tells admission control how far behind merging is: the upper tables, or the sealed memtables. Cheap: it runs under
/// the log's mutex whenever memtables are sealed.
pub(crate) fn update_admission(shared: &Shared) {
    let sizes = &shared.table_sizes;
    let upper_debt = rules(shared).debt(sizes.upper_bytes(), sizes.last_bytes());
    let sealed = shared.sealed_bytes() as f64 / shared.plan().write_bytes as f64;
    let debt = (upper_debt - DEBT_SLACK).max(sealed_debt(sealed));
    shared
        .admission
        .set_debt(debt, shared.jobs.drain_bytes_per_s());
    shared.events.delaying(shared.admission.rate().is_finite());
}

/// The debt of sealed memtables that take this share of the write memory: none up to all of it, 1 at a third above,
/// and without bound towards the ceiling at twice the write memory, so that writers come to it ever more slowly.
fn sealed_debt(sealed: f64) -> f64 {
    2.0 * (sealed - 1.0) / (2.0 - sealed).max(0.01)
}

/// Waits until nothing is picked, nothing runs, and what was replaced is removed.
pub(crate) fn settle(shared: &Shared) -> Result<()> {
    loop {
        shared.check_open()?;
        shared.poison.check()?;
        let seen = shared.jobs.state.lock().events;
        let idle = rules(shared).pick(&survey(shared).sizes).is_none();
        let mut state = shared.jobs.state.lock();
        if idle && state.busy.is_empty() {
            drop(state);
            // Who settles looks at the space next.
            shared.removals.wait();
            return Ok(());
        }
        if state.busy.is_empty() {
            // What is due may have become so without an event, because a snapshot was closed.
            state.events += 1;
            shared.jobs.changed.notify_all();
        } else if state.events != seen {
            continue;
        }
        // Bounded, so that a poisoned database is noticed.
        let patience = Duration::from_millis(200);
        shared.jobs.changed.wait_for(&mut state, patience);
    }
}

/// Merges what tables hold of a range up to the commit `upto` into the last level, and waits for it and
/// for the removal of what it replaced.
pub(crate) fn compact_range(
    shared: &Shared,
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
    shared.jobs.state.lock().wanted.push(Arc::clone(&wanted));
    shared.jobs.wake();
    let result = wait_for(shared, &wanted);
    let mut state = shared.jobs.state.lock();
    state.wanted.retain(|w| !Arc::ptr_eq(w, &wanted));
    drop(state);
    shared.removals.wait();
    result
}

fn wait_for(shared: &Shared, wanted: &Wanted) -> Result<()> {
    loop {
        shared.check_open()?;
        shared.poison.check()?;
        let seen = shared.jobs.state.lock().events;
        let version = Arc::clone(&wanted.tree.load().version);
        // After the load: the version was not the empty one of a dropped keyspace.
        wanted.tree.check()?;
        if wanted.pending(&version).next().is_none() {
            return Ok(());
        }
        let mut state = shared.jobs.state.lock();
        if state.events == seen {
            // Bounded, so that a poisoned or closed database is noticed.
            let bound = Duration::from_millis(200);
            shared.jobs.changed.wait_for(&mut state, bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::sealed_debt;
    use crate::compaction::survey::survey;
    use crate::db::{Database, Options};
    use crate::keyspace::KeyspaceOptions;
    use crate::vfs::MemVfs;

    #[test]
    fn the_sizes_kept_for_admission_are_those_of_a_survey() {
        let options = Options {
            memtable_bytes: Some(4_000),
            partition_bytes: 4096,
            ..Options::default()
        };
        let vfs = std::sync::Arc::new(MemVfs::new());
        let db = Database::open_on(vfs.clone(), Path::new("db"), options.clone()).unwrap();
        let k = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let check = |db: &Database| {
            let shared = db.shared();
            let (sizes, kept) = (survey(shared).sizes, &shared.table_sizes);
            let upper: u64 = sizes.iter().flat_map(|g| &g.upper).map(|u| u.bytes).sum();
            let last: u64 = sizes.iter().map(|g| g.last_bytes).sum();
            // A table that groups share is divided among them, with a remainder.
            assert!(kept.upper_bytes().abs_diff(upper) < 1000);
            assert_eq!(kept.last_bytes(), last);
            upper + last
        };
        for n in 0..2_000_u32 {
            k.put(&n.wrapping_mul(0x9E37_79B9).to_be_bytes(), &[n as u8; 40])
                .unwrap();
            if n % 500 == 499 {
                db.settle().unwrap();
                check(&db);
            }
        }
        db.close().unwrap();
        let db = Database::open_on(vfs, Path::new("db"), options).unwrap();
        db.settle().unwrap();
        assert!(check(&db) > 0);
        let k = db.existing_keyspace("k").unwrap().unwrap();
        db.drop_keyspace(&k).unwrap();
        assert_eq!(check(&db), 0);
    }

    #[test]
    fn sealed_memtables_are_no_debt_within_their_share_and_a_growing_one_towards_the_ceiling() {
        assert!(sealed_debt(1.0) <= 0.0 && sealed_debt(0.2) < 0.0);
        assert!((sealed_debt(4.0 / 3.0) - 1.0).abs() < 1e-9);
        let debts = [1.1, 1.3, 1.5, 1.8, 1.9, 1.99].map(sealed_debt);
        assert!(debts.is_sorted() && debts[5] > 100.0, "{debts:?}");
    }
}
