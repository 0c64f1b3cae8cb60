//! Every call of the file system fails, once or from then on, in every history and in every
//! read-only tool: nothing acknowledged is lost, nothing wrong is read, and the error names the
//! file.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use alluvium::backup::BackupStore;
use alluvium::vfs::{CrashOptions, Fault, FaultEffect, FaultVfs, IoCall, MemVfs, Vfs};
use alluvium::{Database, Durability, Error, Options, Result, repair_on};
use alluvium_testkit::Sample;
use alluvium_testkit::model::State;

use super::figures::report;
use super::history::{History, Step, histories, options};
use super::judge::{Judge, Verdict, rows};
use super::player::{Player, Promise, backups_dir, copy_dir};
use crate::driver::{chain, state_of};
use crate::faults::{SYSTEM_ERRORS, must_stop};
use crate::fixture::dir;

/// All kinds of calls that [`FaultVfs`] can fail.
const ALL: [IoCall; 13] = [
    IoCall::Create,
    IoCall::Open,
    IoCall::Read,
    IoCall::Write,
    IoCall::Sync,
    IoCall::Allocate,
    IoCall::Length,
    IoCall::Rename,
    IoCall::Remove,
    IoCall::List,
    IoCall::SyncDir,
    IoCall::Link,
    IoCall::Other,
];

/// A way to fail: the calls, true if they fail for good, and the effect.
#[derive(Debug, Clone, Copy)]
struct Mode {
    calls: &'static [IoCall],
    sticky: bool,
    effect: FaultEffect,
}

const MODES: [Mode; 4] = [
    Mode {
        calls: &ALL,
        sticky: false,
        effect: FaultEffect::Error,
    },
    Mode {
        calls: &ALL,
        sticky: true,
        effect: FaultEffect::Error,
    },
    Mode {
        calls: &[IoCall::Write],
        sticky: false,
        effect: FaultEffect::ShortWrite,
    },
    Mode {
        calls: &ALL,
        sticky: false,
        effect: FaultEffect::NoSpace,
    },
];

/// Returns the modes above, and one for each system error that may end by itself.
fn modes() -> Vec<Mode> {
    let system = SYSTEM_ERRORS.map(|number| Mode {
        calls: &ALL,
        sticky: false,
        effect: FaultEffect::Os(number),
    });
    MODES.into_iter().chain(system).collect()
}

impl Mode {
    fn fault(&self, nth: u64) -> Fault {
        Fault {
            calls: self.calls.to_vec(),
            nth,
            sticky: self.sticky,
            effect: self.effect,
        }
    }

    fn calls_of(&self, faults: &FaultVfs) -> u64 {
        self.calls.iter().map(|kind| faults.calls(*kind)).sum()
    }
}

/// Checks that an error of the file system is reported as such, with the file.
fn is_typed(error: &Error) -> Verdict<()> {
    match error {
        Error::Io { path, .. } | Error::NoSpace { path, .. } if path != Path::new("") => Ok(()),
        Error::Poisoned(cause) if !matches!(**cause, Error::Poisoned(_)) => is_typed(cause),
        other => Err(format!("not told as a failed call: {}", chain(other))),
    }
}

/// Cases that run in parallel, because some wait a second for space.
const WORKERS: u64 = 6;

/// Runs all cases and reports the wrong ones.
fn in_parallel<C: Sync>(cases: &[C], run: impl Fn(&C) -> Verdict<()> + Sync) {
    let (next, wrong) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    if let Err(why) = run(case) {
                        wrong.lock().expect("no panic").push(why);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

/// A history in which one call fails.
struct Case<'a> {
    history: &'a History,
    durability: Durability,
    mode: Mode,
    nth: u64,
}

/// Tries of a step that meets a full device.
const TRIES: usize = 3;

/// Plays until a step fails for good. Returns the step and its error.
fn play<'h>(player: &mut Player, history: &'h History) -> Option<(&'h Step, Error)> {
    for step in std::iter::once(&Step::Reopen).chain(&history.steps) {
        player.begin(step);
        let mut done = player.attempt(step);
        for _ in 1..TRIES {
            done = match done {
                Err(full @ Error::NoSpace { .. }) => match player.attempt(step) {
                    // Documented: only the very last sync has failed, and the requested result
                    // exists.
                    Err(Error::InvalidArgument(_)) => return Some((step, full)),
                    again => again,
                },
                done => done,
            };
        }
        match done {
            Ok(()) => player.acknowledge(step),
            Err(error) => return Some((step, error)),
        }
    }
    None
}

impl Case<'_> {
    fn run(&self, tripped: &AtomicU64) -> Verdict<()> {
        let Case {
            history,
            durability,
            mode,
            nth,
        } = self;
        let context = |why| {
            format!(
                "{} ({durability:?}), call {nth} fails, {mode:?}: {why}",
                history.name
            )
        };
        let files = MemVfs::new();
        let faults = FaultVfs::new(Arc::new(files.clone()));
        faults.arm(mode.fault(*nth));
        let mut player = Player::new(Arc::new(faults.clone()), options(*durability));
        let failed = play(&mut player, history);
        tripped.fetch_add(u64::from(faults.tripped()), Ordering::Relaxed);
        faults.disarm();
        let step = failed
            .as_ref()
            .map(|(step, error)| format!("{step:?}: {}", chain(error)));
        let failure = faults.first_failure();
        self.check(&player, &files, failed, failure)
            .map_err(|why| context(format!("{why}; the step that failed: {step:?}")))
    }

    fn check(
        &self,
        player: &Player,
        files: &MemVfs,
        failed: Option<(&Step, Error)>,
        failure: Option<(IoCall, PathBuf)>,
    ) -> Verdict<()> {
        if let Some((_, error)) = &failed {
            is_typed(error)?;
            self.stops_only_if_it_must(player, error, failure)?;
        }
        if let Some(db) = &player.db
            && state_of(db) != player.model.state_at(player.promise.acked)
        {
            return Err("reads do not agree with what was acknowledged".into());
        }
        let judge = Judge {
            model: &player.model,
            options: &player.options,
            last: &player.promise,
        };
        let killed = files.crash(self.nth, CrashOptions::PROCESS_KILLED);
        judge.look(&killed, true)?.keeps(&player.promise, true)?;
        let lost = files.crash(self.nth, CrashOptions::LOSE_UNSYNCED);
        judge.look(&lost, false)?.keeps(&player.promise, false)?;
        if let Some(db) = &player.db {
            // The close reports the failure again, but it ends.
            drop(db.close());
        }
        Ok(())
    }
}

impl Case<'_> {
    /// Checks that the database still accepts writes after a single call failed without a change.
    fn stops_only_if_it_must(
        &self,
        player: &Player,
        error: &Error,
        failure: Option<(IoCall, PathBuf)>,
    ) -> Verdict<()> {
        let (Some((call, path)), Some(db)) = (failure, &player.db) else {
            return Ok(());
        };
        if self.mode.sticky || must_stop(call, &path) {
            return Ok(());
        }
        let used = db.sync().and_then(|()| db.flush());
        used.map_err(|after| {
            let (error, after, path) = (chain(error), chain(&after), path.display());
            format!("{call:?} of {path} stopped it: {error}; then {after}")
        })
    }
}

/// Returns the number of calls that the history makes if nothing fails.
fn calls(history: &History, durability: Durability, mode: &Mode) -> u64 {
    let faults = FaultVfs::new(Arc::new(MemVfs::new()));
    let mut player = Player::new(Arc::new(faults.clone()), options(durability));
    assert!(play(&mut player, history).is_none(), "nothing fails");
    mode.calls_of(&faults)
}

#[test]
fn any_failing_call_of_any_history_loses_nothing_and_is_told() {
    let sample = Sample::new("any_failing_call_of_any_history", 105);
    let histories = histories();
    let (mut cases, mut number) = (Vec::new(), 0);
    for history in &histories {
        for durability in [Durability::Sync, Durability::Buffered] {
            for mode in modes() {
                for nth in 1..=calls(history, durability, &mode) {
                    number += 1;
                    if sample.takes(number) {
                        cases.push(Case {
                            history,
                            durability,
                            mode,
                            nth,
                        });
                    }
                }
            }
        }
    }
    let tripped = AtomicU64::new(0);
    in_parallel(&cases, |case| case.run(&tripped));
    let tripped = tripped.into_inner();
    report(&format!(
        "failing calls in histories: {number} to fail, {} tried, of which {tripped} were reached",
        cases.len()
    ));
    assert!(
        tripped * 2 > cases.len() as u64,
        "most calls are made again"
    );
}

/// Tools that only read a database, or write to a copy or a backup store.
const TOOLS: [(&str, Tool); 7] = [
    ("open, read and close", read_all),
    ("open read-only and read", read_only),
    ("verify", verify),
    ("open a checkpoint", checkpointed),
    ("restore a backup", restore),
    ("delete a backup", delete_backup),
    ("repair", repair),
];

/// Uses the files and checks that it got their content.
type Tool = fn(Arc<dyn Vfs>, &Expected) -> Result<Verdict<()>>;

struct Expected {
    options: Options,
    state: State,
    copied: State,
}

fn same(found: &State, expected: &State) -> Verdict<()> {
    if found == expected {
        Ok(())
    } else {
        Err("other rows were read".into())
    }
}

fn read_all(vfs: Arc<dyn Vfs>, expected: &Expected) -> Result<Verdict<()>> {
    let db = Database::open_on(vfs, dir(), expected.options.clone())?;
    let found = rows(&db)?;
    db.close()?;
    Ok(same(&found, &expected.state))
}

fn open_to_read(vfs: Arc<dyn Vfs>, at: &Path, expected: &Expected) -> Result<Database> {
    let options = Options {
        read_only: true,
        ..expected.options.clone()
    };
    Database::open_on(vfs, at, options)
}

fn read_only(vfs: Arc<dyn Vfs>, expected: &Expected) -> Result<Verdict<()>> {
    let db = open_to_read(vfs, dir(), expected)?;
    Ok(same(&rows(&db)?, &expected.state))
}

fn checkpointed(vfs: Arc<dyn Vfs>, expected: &Expected) -> Result<Verdict<()>> {
    let db = open_to_read(vfs, copy_dir(), expected)?;
    Ok(same(&rows(&db)?, &expected.copied))
}

fn verify(vfs: Arc<dyn Vfs>, expected: &Expected) -> Result<Verdict<()>> {
    let db = open_to_read(vfs, dir(), expected)?;
    // An unreadable file is reported as such, not as damage.
    Ok(db.verify()?.damages.iter().try_for_each(is_typed))
}

fn restore(vfs: Arc<dyn Vfs>, expected: &Expected) -> Result<Verdict<()>> {
    let store = BackupStore::open_on(Arc::clone(&vfs), backups_dir())?;
    let list = store.list()?;
    if let Some((_, error)) = list.damaged.first() {
        return Ok(is_typed(error));
    }
    store.restore(list.backups[0].id, "restored")?;
    let db = open_to_read(vfs, Path::new("restored"), expected)?;
    Ok(same(&rows(&db)?, &expected.copied))
}

fn delete_backup(vfs: Arc<dyn Vfs>, _: &Expected) -> Result<Verdict<()>> {
    BackupStore::open_on(vfs, backups_dir())?.delete(1)?;
    Ok(Ok(()))
}

fn repair(vfs: Arc<dyn Vfs>, expected: &Expected) -> Result<Verdict<()>> {
    let told = repair_on(Arc::clone(&vfs), dir(), Path::new("repaired"))?;
    let db = open_to_read(vfs, Path::new("repaired"), expected)?;
    let found = rows(&db)?;
    Ok(if told.is_complete() {
        same(&found, &expected.state)
    } else {
        Ok(())
    })
}

/// Returns the files of a history with a checkpoint and a backup of the same commit, and a log.
fn left() -> (MemVfs, Expected) {
    let files = MemVfs::new();
    let options = options(Durability::Sync);
    let mut player = Player::new(Arc::new(files.clone()), options.clone());
    let named = |name| {
        histories()
            .into_iter()
            .find(|h| h.name == name)
            .expect("a history")
    };
    let steps = [
        vec![Step::Reopen],
        named("large values").steps,
        vec![Step::Checkpoint, Step::Backup],
    ];
    let mut copied = State::new();
    for step in steps.into_iter().flatten().chain(named("everyday").steps) {
        player
            .step(&step, &mut |_: &Promise| {})
            .expect("nothing fails");
        if matches!(step, Step::Backup) {
            copied = player.model.state();
        }
    }
    let state = player.model.state();
    let left = files.crash(0, CrashOptions::PROCESS_KILLED);
    (
        left,
        Expected {
            options,
            state,
            copied,
        },
    )
}

fn use_tool(left: &MemVfs, expected: &Expected, tool: Tool, mode: &Mode, nth: u64) -> Verdict<()> {
    let files = left.crash(nth, CrashOptions::PROCESS_KILLED);
    let faults = FaultVfs::new(Arc::new(files.clone()));
    faults.arm(mode.fault(nth));
    match tool(Arc::new(faults.clone()), expected) {
        Ok(verdict) => verdict?,
        Err(error) => is_typed(&error)?,
    }
    faults.disarm();
    for options in [CrashOptions::PROCESS_KILLED, CrashOptions::LOSE_UNSYNCED] {
        let after: Arc<dyn Vfs> = Arc::new(files.crash(nth, options));
        let read = read_all(after, expected).map_err(|e| format!("afterwards: {}", chain(&e)))?;
        read.map_err(|why| format!("afterwards: {why}"))?;
    }
    Ok(())
}

#[test]
fn any_failing_call_of_what_only_reads_is_told_and_changes_nothing() {
    let sample = Sample::new("any_failing_call_of_what_only_reads", 30);
    let (left, expected) = left();
    let (mut cases, mut number) = (Vec::new(), 0);
    for (name, tool) in TOOLS {
        for mode in modes() {
            let faults = FaultVfs::new(Arc::new(left.crash(0, CrashOptions::PROCESS_KILLED)));
            let done = tool(Arc::new(faults.clone()), &expected);
            let done = done.unwrap_or_else(|e| panic!("{name}: {}", chain(&e)));
            done.unwrap_or_else(|why| panic!("{name}: {why}"));
            for nth in 1..=mode.calls_of(&faults) {
                number += 1;
                if sample.takes(number) {
                    cases.push((name, tool, mode, nth));
                }
            }
        }
    }
    in_parallel(&cases, |(name, tool, mode, nth)| {
        use_tool(&left, &expected, *tool, mode, *nth)
            .map_err(|why| format!("{name}, call {nth} fails, {mode:?}: {why}"))
    });
    report(&format!(
        "failing calls in reads, copies and repairs: {number} to fail, {} tried",
        cases.len()
    ));
}
