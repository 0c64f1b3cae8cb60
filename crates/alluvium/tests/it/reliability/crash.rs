//! Power loss after every change of the file system, in every way that the disk model has, and
//! again during recovery.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use alluvium::vfs::MemVfs;
use alluvium::{Database, Durability, Options};
use alluvium_testkit::Sample;
use alluvium_testkit::random::{Rng, Seeded};

use super::disk::{Cut, Disk, Image};
use super::figures::report;
use super::history::{History, Step, histories, options, random_history};
use super::judge::{Found, Judge, Verdict};
use super::player::{Player, Promise};
use super::trace::{Event, NameChange, TraceVfs};
use crate::driver::chain;
use crate::fixture::dir;

type Trace = Vec<Event<Promise>>;

/// Counts of one exploration, for the results page.
#[derive(Debug, Default)]
struct Figures {
    /// Changes of the file system after which power may be lost.
    changes: AtomicU64,
    /// Possible power losses at these changes.
    cuts: AtomicU64,
    /// Power losses that were tried.
    tried: AtomicU64,
    /// Distinct disks after them; each was opened.
    disks: AtomicU64,
    /// Recoveries that were cut again, and the same counts for them.
    recoveries: AtomicU64,
    second_tried: AtomicU64,
    second_disks: AtomicU64,
}

fn add(figure: &AtomicU64, count: u64) {
    figure.fetch_add(count, Ordering::Relaxed);
}

impl Figures {
    fn report(&self, name: &str) {
        let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        report(&format!(
            "{name}: {} changes of the file system, {} ways to lose power there, {} tried, {} different disks opened; \
             {} recoveries cut again: {} ways tried, {} different disks opened",
            get(&self.changes),
            get(&self.cuts),
            get(&self.tried),
            get(&self.disks),
            get(&self.recoveries),
            get(&self.second_tried),
            get(&self.second_disks),
        ));
    }
}

/// The promise that a disk must keep, and the place of the power loss.
struct Demand {
    promise: Arc<Promise>,
    at: usize,
    cut: Cut,
}

/// Distinct disks, by the hash of their content.
#[derive(Default)]
struct Disks {
    known: HashMap<u64, Found>,
    waiting: HashMap<u64, (Image, Vec<Demand>)>,
}

struct Explorer<'a> {
    judge: Judge<'a>,
    history: &'a History,
    events: &'a Trace,
    sample: &'a Sample,
    /// True if recoveries are cut again; false if syncs are left out.
    twice: bool,
    figures: &'a Figures,
}

/// Disks that are opened in one parallel batch.
const CHUNK: usize = 256;
const WORKERS: usize = 3;
/// The recovery of one disk in this many is cut again, which adds some hundred disks.
const AGAIN_TIMES: u64 = 15;

impl Explorer<'_> {
    /// Tries the sample's share of all ways to lose power. Returns the case number from which the
    /// next history continues.
    fn explore(&self, first_case: u64) -> Verdict<u64> {
        let (mut disk, mut case) = (Disk::default(), first_case);
        let mut promise = Arc::new(Promise::default());
        let mut disks = Disks::default();
        for (at, event) in self.events.iter().enumerate() {
            if let Event::Note(note) = event {
                promise = Arc::clone(note);
                continue;
            }
            add(&self.figures.changes, 1);
            for cut in disk.cuts(event, self.sample.random(case)) {
                case += 1;
                add(&self.figures.cuts, 1);
                if self.sample.takes(case) {
                    let promise = Arc::clone(&promise);
                    let demand = Demand { promise, at, cut };
                    self.cut(disk.image(event, &cut), demand, &mut disks)?;
                }
            }
            disk.apply(event);
        }
        self.look_at(&mut disks)?;
        Ok(case)
    }

    fn cut(&self, image: Image, demand: Demand, disks: &mut Disks) -> Verdict<()> {
        add(&self.figures.tried, 1);
        let hash = image.hash();
        if let Some(found) = disks.known.get(&hash) {
            return self.check(found, &demand);
        }
        let (_, demands) = disks.waiting.entry(hash).or_insert((image, Vec::new()));
        demands.push(demand);
        if disks.waiting.len() == CHUNK {
            self.look_at(disks)?;
        }
        Ok(())
    }

    fn check(&self, found: &Found, demand: &Demand) -> Verdict<()> {
        let kept = found.keeps(&demand.promise, demand.cut.is_kill());
        kept.map_err(|why| self.told(demand, &why))
    }

    fn told(&self, demand: &Demand, why: &str) -> String {
        let mut told = format!(
            "{} ({:?}), power lost at change {}, {:?}: {why}\n{:?}\nlast changes:",
            self.history.name, self.judge.options.durability, demand.at, demand.cut, demand.promise
        );
        for event in &self.events[demand.at.saturating_sub(12)..=demand.at] {
            write!(told, "\n  {}", shown(event)).expect("a string grows");
        }
        told
    }

    /// Opens the waiting disks in parallel and checks their promises.
    fn look_at(&self, disks: &mut Disks) -> Verdict<()> {
        let waiting: Vec<_> = disks.waiting.drain().collect();
        add(&self.figures.disks, waiting.len() as u64);
        let next = AtomicU64::new(0);
        let work = || {
            let mut found = Vec::new();
            while let Some((hash, (image, demands))) =
                waiting.get(next.fetch_add(1, Ordering::Relaxed) as usize)
            {
                found.push((*hash, self.look(*hash, image, demands)?));
            }
            Ok::<_, String>(found)
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                disks.known.extend(worker.join().expect("no panic")?);
            }
            Ok(())
        })
    }

    fn look(&self, hash: u64, image: &Image, demands: &[Demand]) -> Verdict<Found> {
        let thorough = hash.is_multiple_of(4);
        let looked = self.judge.look(&image.to_vfs(), thorough);
        let looked = looked.map_err(|why| self.told(&demands[0], &why))?;
        for demand in demands {
            self.check(&looked, demand)?;
        }
        if self.twice && self.sample.takes_rarely(hash, AGAIN_TIMES) {
            let again = self.again(hash, image, &looked, &demands[0]);
            again.map_err(|why| self.told(&demands[0], &why))?;
        }
        Ok(looked)
    }

    /// Loses power during the recovery of a disk: nothing that was there before may be lost.
    fn again(&self, seed: u64, image: &Image, before: &Found, demand: &Demand) -> Verdict<()> {
        let (mut disk, names) = Disk::of(image);
        let vfs = TraceVfs::<Promise>::new(image.to_vfs(), names);
        let opened = Database::open_on(Arc::new(vfs.clone()), dir(), self.judge.options.clone());
        let done = opened.and_then(|db| db.flush().and_then(|()| db.close()));
        done.map_err(|e| format!("cannot recover and flush: {}", chain(&e)))?;
        add(&self.figures.recoveries, 1);
        let (mut seen, mut case) = (HashSet::new(), seed);
        for (at, event) in vfs.take().iter().enumerate() {
            for cut in disk.cuts(event, seed) {
                case = case.wrapping_add(1);
                if !self.sample.takes(case) {
                    continue;
                }
                add(&self.figures.second_tried, 1);
                let second = disk.image(event, &cut);
                if !seen.insert(second.hash()) {
                    continue;
                }
                add(&self.figures.second_disks, 1);
                self.second(&second, before, demand).map_err(|why| {
                    let event = shown(event);
                    format!("and again at change {at} of the recovery ({event}), {cut:?}: {why}")
                })?;
            }
            disk.apply(event);
        }
        Ok(())
    }

    fn second(&self, image: &Image, before: &Found, demand: &Demand) -> Verdict<()> {
        let found = self.judge.look(&image.to_vfs(), false)?;
        if found.commit < before.commit || found.prepared != before.prepared {
            return Err(format!("{before:?} before, {found:?} after"));
        }
        found.keeps(&demand.promise, demand.cut.is_kill())
    }
}

fn shown(event: &Event<Promise>) -> String {
    match event {
        Event::Write {
            file,
            offset,
            bytes,
        } => format!("write {file} at {offset}: {} bytes", bytes.len()),
        Event::Note(note) => format!("promised: acked {}, durable {}", note.acked, note.durable),
        other => format!("{other:?}"),
    }
}

/// Plays a history, and returns its player and the recorded changes.
fn play(history: &History, options: &Options) -> (Player, Trace) {
    let vfs = TraceVfs::new(MemVfs::new(), Default::default());
    let mut player = Player::new(Arc::new(vfs.clone()), options.clone());
    let steps = std::iter::once(&Step::Reopen).chain(&history.steps);
    for step in steps {
        let done = player.step(step, &mut |promise| vfs.note(promise.clone()));
        done.unwrap_or_else(|e| panic!("{}: {step:?}: {}", history.name, chain(&e)));
    }
    (player, vfs.take())
}

/// Plays a history and loses power everywhere in it. `skipped` syncs are treated as if they had not
/// happened.
fn explore(
    history: &History,
    durability: Durability,
    (sample, case): (&Sample, u64),
    figures: &Figures,
    skipped: Option<Skipped>,
) -> Verdict<u64> {
    let options = options(durability);
    let (player, events) = play(history, &options);
    let events = match skipped {
        Some(skipped) => skipped.without(events),
        None => events,
    };
    let explorer = Explorer {
        judge: Judge {
            model: &player.model,
            options: &options,
            last: &player.promise,
        },
        history,
        events: &events,
        sample,
        twice: skipped.is_none(),
        figures,
    };
    explorer.explore(case)
}

/// A kind of sync of the engine that a test leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skipped {
    /// Syncs of files with this ending.
    Files(&'static str),
    Directories,
}

const SKIPPED: [Skipped; 6] = [
    Skipped::Files(".wal"),
    Skipped::Files(".manifest"),
    Skipped::Files(".sst"),
    Skipped::Files(".val"),
    Skipped::Files("CURRENT.tmp"),
    Skipped::Directories,
];

impl Skipped {
    /// Returns the record of an engine that does not make these syncs.
    fn without(self, events: Trace) -> Trace {
        let mut unsynced = HashSet::new();
        let ours = |path: &Path| match self {
            Skipped::Files(ending) => path.to_string_lossy().ends_with(ending),
            Skipped::Directories => false,
        };
        let mut left = events;
        left.retain(|event| match event {
            Event::Name(NameChange::Add { path, file }) => {
                if ours(path) {
                    unsynced.insert(*file);
                }
                true
            }
            Event::Sync { file } => !unsynced.contains(file),
            Event::SyncDir { .. } => self != Skipped::Directories,
            _ => true,
        });
        left
    }
}

#[test]
fn an_engine_that_forgot_any_kind_of_sync_would_be_noticed() {
    let sample = Sample::whole("an_engine_that_forgot_any_kind_of_sync");
    let figures = Figures::default();
    for skipped in SKIPPED {
        let noticed = histories().iter().any(|history| {
            let case = (&sample, 0);
            explore(history, Durability::Sync, case, &figures, Some(skipped)).is_err()
        });
        assert!(noticed, "{skipped:?} without a sync keeps every promise");
    }
    figures.report("syncs left out on purpose, each noticed");
}

#[test]
fn power_loss_after_any_change_keeps_every_promise() {
    let sample = Sample::new("power_loss_behind_any_change", 10);
    let (figures, mut case) = (Figures::default(), 0);
    for history in histories() {
        for durability in [Durability::Sync, Durability::Buffered] {
            let explored = explore(&history, durability, (&sample, case), &figures, None);
            case = explored.unwrap_or_else(|why| panic!("{why}"));
        }
    }
    figures.report("power loss, fixed histories");
}

#[test]
fn power_loss_after_any_change_of_random_histories_keeps_every_promise() {
    let figures = Figures::default();
    let sample = Sample::new("power_loss_behind_any_change_of_random_histories", 10);
    let histories = if sample.is_whole() { 20 } else { 4 };
    let mut case = 0;
    Seeded::run(
        "power_loss (random histories)",
        histories,
        |rng: &mut Rng| {
            let durability = *rng.pick(&[Durability::Sync, Durability::Buffered]);
            let history = random_history(rng);
            let explored = explore(&history, durability, (&sample, case), &figures, None);
            case = explored.unwrap_or_else(|why| panic!("{why}"));
        },
    );
    figures.report("power loss, random histories");
}
