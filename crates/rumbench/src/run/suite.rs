//! Parent of a suite: runs one child process after the other and writes the result to disk.

mod calibrate;
mod drive;
mod logs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::cgroup::{Bound, Bounds, Group};
use super::interrupt::Interrupts;
use super::plan::{self, EngineChoice, Point, Suite};
use super::progress::{Progress, say};
use super::protocol::TrialSpec;
use super::schedule::{self, Upcoming};
use super::specification;
use super::split;
use super::status::SuiteStatus;
use super::storage::Storage;
use crate::catalog;
use crate::measure::doctor::{self, Machine};
use crate::measure::{environment, size};
use crate::report::{find_rate, marks, spread, sweep};
use crate::store::file;
use crate::store::finding::Finding;
use crate::store::result::{SuiteResult, TrialResult};
use crate::store::sweep::{Sweep, TURNOVER};

/// Maximum interval between saves of the result while a phase runs.
const SAVE_EVERY: Duration = Duration::from_secs(8);

/// A running suite.
pub struct Runner<'a> {
    suite: &'a Suite,
    interrupts: &'a Interrupts,
    progress: Progress,
    /// Bounds of the trials, by the memory limit of their point.
    bounds: BTreeMap<Option<u64>, Bounds>,
    result: SuiteResult,
    saved: Instant,
}

/// Returns the current time as RFC 3339 in UTC with whole seconds.
pub fn timestamp() -> String {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0)
        .unwrap_or(now)
        .format(&Rfc3339)
        .unwrap_or_default()
}

/// Runs all trials of a suite and returns its result, which is also in `suite.out`.
///
/// # Errors
/// When the disk is too small or the result folder cannot be used. Failed trials are marks in the
/// result.
pub fn run(suite: &Suite, interrupts: &Interrupts) -> Result<SuiteResult> {
    file::prepare_directory(&suite.out)?;
    check_disk(suite)?;
    rumbench_engines::remove_left_overs();
    let bounds = bounds_of(suite)?;
    let _claim = specification::begin(suite)?;
    drive(suite, interrupts, bounds, fresh(suite))
}

/// Runs the remaining trials of a stopped suite. `kept` are the ended trials; the caller has
/// claimed the folder.
///
/// # Errors
/// As [`run`].
pub fn resume(
    suite: &Suite,
    interrupts: &Interrupts,
    stopped: Option<SuiteResult>,
    kept: Vec<TrialResult>,
) -> Result<SuiteResult> {
    rumbench_engines::remove_left_overs();
    let bounds = bounds_of(suite)?;
    let Some(stopped) = stopped else {
        check_disk(suite)?;
        return drive(suite, interrupts, bounds, fresh(suite));
    };
    let mut result = SuiteResult {
        trials: kept,
        interrupted: false,
        ..stopped
    };
    if schedule::upcoming(suite, &result.trials).is_some() {
        check_disk(suite)?;
        result.resumed_at.push(timestamp());
    }
    drive(suite, interrupts, bounds, result)
}

fn drive(
    suite: &Suite,
    interrupts: &Interrupts,
    bounds: BTreeMap<Option<u64>, Bounds>,
    result: SuiteResult,
) -> Result<SuiteResult> {
    let mut runner = Runner {
        suite,
        interrupts,
        progress: Progress::new(),
        bounds,
        result,
        saved: Instant::now(),
    };
    runner.run_all()?;
    Ok(runner.result)
}

/// Returns the findings about the machine. A build without optimization is not used for timing, so
/// it does not time the device either.
fn machine(out: &Path) -> Vec<Finding> {
    let machine = Machine::look(out, !cfg!(debug_assertions));
    machine.map_or(Vec::new(), |machine| doctor::findings(&machine))
}

/// Returns a result before the first trial.
fn fresh(suite: &Suite) -> SuiteResult {
    SuiteResult {
        // Set when the result is saved.
        schema_version: 0,
        rumbench_version: env!("CARGO_PKG_VERSION").to_string(),
        command: suite.command.clone(),
        started_at: timestamp(),
        resumed_at: Vec::new(),
        seed: suite.seed,
        workload: suite.workload.clone(),
        workload_version: None,
        settings: suite.common_settings(),
        environment: environment::describe(&suite.out),
        machine: machine(&suite.out),
        calibration: None,
        calibrations: BTreeMap::new(),
        sweep: sweep_of(suite),
        // Derived when the result is saved.
        rate_search: None,
        trials: Vec::new(),
        comparisons: Vec::new(),
        interrupted: false,
    }
}

/// Returns the bounds of a suite's trials. The result folder must exist.
fn bounds_of(suite: &Suite) -> Result<BTreeMap<Option<u64>, Bounds>> {
    let operations = suite.storage.and_then(Storage::operations_per_s);
    let operations = operations.map(|per_s| Bound::operations(&suite.out, per_s));
    let operations = operations.transpose()?;
    let limits: BTreeSet<Option<u64>> = suite.points.iter().map(|point| point.memory).collect();
    let bounds = |limit: Option<u64>| {
        let memory = limit.map(Bound::Memory);
        Ok((limit, Bounds::new(memory.into_iter().chain(operations))?))
    };
    limits.into_iter().map(bounds).collect()
}

/// Returns the sweep of the result before any measurement.
fn sweep_of(suite: &Suite) -> Option<Sweep> {
    let (key, values) = match (&suite.varied, &suite.turnover) {
        (Some(varied), _) => (varied.key.clone(), varied.values.clone()),
        (None, Some(turnover)) => (TURNOVER.to_string(), vec![turnover.multiple.to_string()]),
        (None, None) => return None,
    };
    Some(Sweep {
        key,
        values,
        ..Sweep::default()
    })
}

/// Returns the free bytes that a suite needs: for its largest point, or for all trials if data is
/// kept.
///
/// # Errors
/// When a workload cannot be created.
pub fn disk_needed(suite: &Suite) -> Result<u64> {
    let mut needed = 0;
    for point in &suite.points {
        let workload = catalog::workload(&suite.workload, &point.settings, suite.seed)?;
        let (_, bytes) = workload.load_estimate();
        let trials = point.engines.len() as u64 * u64::from(suite.repeat);
        needed = if suite.keep_data {
            plan::disk_estimate(bytes, trials).saturating_add(needed)
        } else {
            plan::disk_estimate(bytes, 1).max(needed)
        };
    }
    Ok(needed)
}

fn check_disk(suite: &Suite) -> Result<()> {
    let needed = disk_needed(suite)?;
    let free = size::free_bytes(&suite.out)?;
    if free < needed {
        bail!(
            "{} has {} MB free, the suite needs about {} MB; choose another --out DIR or a smaller workload",
            suite.out.display(),
            free >> 20,
            needed >> 20
        );
    }
    Ok(())
}

impl Runner<'_> {
    fn run_all(&mut self) -> Result<()> {
        self.save()?;
        // In a resumed suite some trials have ended.
        if schedule::upcoming(self.suite, &self.result.trials).is_some() {
            self.calibrate(schedule::expected(self.suite, &self.result.trials))?;
        }
        while self.interrupts.count() == 0 {
            let Some(next) = schedule::upcoming(self.suite, &self.result.trials) else {
                break;
            };
            self.run_trial(&next)?;
            self.progress.trial_finished();
        }
        self.progress.clear();
        self.result.interrupted = self.interrupts.count() > 0;
        remove_if_empty(&self.suite.out.join("data"));
        self.save()
    }

    /// Updates all derived values and writes the result.
    fn save(&mut self) -> Result<()> {
        split::apply_to_suite(&mut self.result);
        for trial in &mut self.result.trials {
            marks::judge(trial);
        }
        let first = || self.suite.engines().first().map(EngineChoice::name);
        let base = self.suite.base.clone().or_else(first).unwrap_or_default();
        self.result.comparisons = spread::compare(&self.result.trials, &base);
        sweep::conclude(&mut self.result);
        if let Some(search) = &self.suite.search {
            find_rate::conclude(&mut self.result, search, self.suite.repeat);
        }
        self.result.schema_version = self.result.version();
        self.saved = Instant::now();
        file::save(&self.suite.out, &self.result)
    }

    fn new_trial(
        &self,
        choice: &EngineChoice,
        point: &Point,
        repetition: u32,
        cache_state: String,
    ) -> TrialResult {
        TrialResult {
            engine: choice.engine.clone(),
            variant: choice.variant.clone(),
            host: choice.host.clone(),
            engine_version: String::new(),
            point: point.label.clone(),
            repetition,
            seed: self.suite.seed + u64::from(repetition) - 1,
            durability: self.suite.durability,
            durability_facts: None,
            marks: Vec::new(),
            configuration: BTreeMap::new(),
            started_at: timestamp(),
            ended_at: None,
            cache_state,
            memory: None,
            verified: None,
            imported: None,
            phases: Vec::new(),
        }
    }

    fn spec(&self, choice: &EngineChoice, point: &Point, seed: u64, directory: &Path) -> TrialSpec {
        TrialSpec {
            engine: choice.engine.clone(),
            variant: choice.variant.clone(),
            workload: self.suite.workload.clone(),
            settings: point.settings.clone(),
            engine_settings: choice.settings.clone(),
            seed,
            durability: self.suite.durability,
            clients: point.clients,
            cache_bytes: point.cache_bytes,
            rate: point.rate,
            turnover: self.suite.turnover.clone(),
            placement: self.suite.placement,
            profile: self.suite.profile,
            stuck_after_s: Some(self.suite.stuck_after_s),
            directory: directory.to_path_buf(),
        }
    }

    /// Returns the groups that bound a trial; None without bounds.
    fn group(&self, trial: &TrialResult, number: usize, point: &Point) -> Result<Option<Group>> {
        let Some(bounds) = self.bounds.get(&point.memory) else {
            return Ok(None);
        };
        let calibration = self.result.calibration_of(trial);
        let laboratory = match calibration.and_then(|own| own.laboratory_bytes) {
            Some(measured) if point.memory.is_some() => {
                // The calibration has fewer rows.
                let settings = &point.settings;
                let rows = catalog::workload(&self.suite.workload, settings, trial.seed)?;
                measured.saturating_add(rows.memory_bytes())
            }
            _ => 0,
        };
        bounds.group(number, laboratory)
    }

    fn data_directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.suite.out.join("data").join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    fn run_trial(&mut self, next: &Upcoming) -> Result<()> {
        let (index, point, choice) = (self.result.trials.len(), &next.point, next.choice());
        let directory = self.data_directory(&plan::folder(index, choice))?;
        let mut trial = self.new_trial(
            choice,
            point,
            next.repetition,
            environment::drop_page_cache(),
        );
        let spec = self.spec(choice, point, trial.seed, &directory);
        let status = SuiteStatus {
            trial: index + 1,
            trials: schedule::expected(self.suite, &self.result.trials),
            label: format!("{} #{}", trial.contestant(), next.repetition),
            ..SuiteStatus::default()
        };
        self.result.trials.push(trial.clone());
        let group = self.group(&trial, index + 1, point);
        let driven = group.and_then(|group| self.drive(&spec, &mut trial, status, group));
        if let Err(error) = driven {
            // The cause is not the trial's, and later trials would hit it too: measurements are
            // kept, and `resume` runs this trial again.
            trial.mark(format!("failed ({error:#})"));
            self.put(trial);
            self.save_meanwhile();
            return Err(error);
        }
        let (out, keeps_data) = (&self.suite.out, self.suite.keep_data);
        // Before the trial's log and data are touched.
        rumbench_engines::end_left_overs();
        logs::keep(&directory, out, keeps_data, &mut trial);
        // Otherwise `resume` runs it again.
        if !trial.has_mark("interrupted") {
            trial.ended_at = Some(timestamp());
        }
        self.put(trial);
        // The data may be the reason that the device is full: saving is tried again after its
        // removal.
        let saved = self.save();
        if !self.suite.keep_data {
            remove(&directory);
        }
        saved.or_else(|_| self.save())
    }

    /// Saves the result so far. A failure is reported but not fatal: the trial continues, and its
    /// end saves again.
    fn save_meanwhile(&mut self) {
        // A retry follows after the usual interval, because `save` sets its time first.
        if let Err(error) = self.save() {
            self.progress.clear();
            say(&format!("warning: {error:#}"));
        }
    }

    /// Replaces the running trial in the result. A calibration trial is not in the result.
    fn put(&mut self, trial: TrialResult) {
        if let Some(last) = self.result.trials.last_mut() {
            *last = trial;
        }
    }
}

/// Removes a trial's data; a failure is reported but not fatal.
fn remove(directory: &Path) {
    if let Err(error) = std::fs::remove_dir_all(directory) {
        say(&format!(
            "warning: cannot remove {}: {error}",
            directory.display()
        ));
    }
}

fn remove_if_empty(directory: &Path) {
    // Fails if the directory contains kept data, as intended.
    let _ = std::fs::remove_dir(directory);
}
