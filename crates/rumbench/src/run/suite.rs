//! The parent of a suite: one child process after the other, every event into the result, the result to disk.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::interrupt::Interrupts;
use super::plan::{self, EngineChoice, Planned, Suite};
use super::progress::{Progress, Standing, say};
use super::protocol::{Event, TrialSpec};
use super::split;
use crate::catalog;
use crate::measure::{environment, size};
use crate::report::{marks, spread};
use crate::store::file;
use crate::store::result::{Amplification, PhaseResult, SCHEMA_VERSION, SuiteResult, TrialResult};

/// The result is written at least this often while a phase runs.
const SAVE_EVERY: Duration = Duration::from_secs(8);

/// A child process in its own process group, so that Ctrl-C reaches the laboratory alone.
pub struct TrialProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Ends when the child closed its stdout.
    pub lines: Receiver<String>,
}

impl TrialProcess {
    /// Starts this binary with a hidden command and gives it its specification.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(command: &str, spec: &impl serde::Serialize) -> Result<TrialProcess> {
        let binary = std::env::current_exe().context("cannot find the own binary")?;
        let mut child = Command::new(&binary)
            .arg(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let stdout = child.stdout.take().context("the child has no stdout")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut process = TrialProcess {
            child,
            stdin,
            lines,
        };
        process.send(&serde_json::to_string(spec)?);
        Ok(process)
    }

    /// Writes a line to the child. A child that died is noticed at the end of its output.
    pub fn send(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        }
    }

    /// SIGKILL to the child's process group.
    pub fn kill(&mut self) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }

    /// Waits for its end; `Some` says how it died when it did not exit by itself with 0.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn wait(mut self) -> Result<Option<String>> {
        let status = self
            .child
            .wait()
            .context("cannot wait for the trial's process")?;
        Ok(match (status.signal(), status.code()) {
            (Some(signal), _) => Some(format!("signal {signal}")),
            (None, Some(0)) => None,
            (None, code) => Some(format!("exit code {}", code.unwrap_or(-1))),
        })
    }
}

/// A suite that is running.
pub struct Runner<'a> {
    suite: &'a Suite,
    interrupts: &'a Interrupts,
    progress: Progress,
    result: SuiteResult,
    saved: Instant,
}

/// Now, as RFC 3339 in UTC with whole seconds.
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
/// When the disk is too small or the result folder cannot be used. Failed trials are marks in the result.
pub fn run(suite: &Suite, interrupts: &Interrupts) -> Result<SuiteResult> {
    file::prepare_directory(&suite.out)?;
    check_disk(suite)?;
    let result = SuiteResult {
        schema_version: SCHEMA_VERSION,
        rumbench_version: env!("CARGO_PKG_VERSION").to_string(),
        command: suite.command.clone(),
        started_at: timestamp(),
        seed: suite.seed,
        workload: suite.workload.clone(),
        workload_version: None,
        settings: suite.settings.clone(),
        environment: environment::describe(&suite.out),
        calibration: None,
        trials: Vec::new(),
        comparisons: Vec::new(),
        interrupted: false,
    };
    let mut runner = Runner {
        suite,
        interrupts,
        progress: Progress::new(),
        result,
        saved: Instant::now(),
    };
    runner.run_all()?;
    Ok(runner.result)
}

fn check_disk(suite: &Suite) -> Result<()> {
    let workload = catalog::workload(&suite.workload, &suite.settings, suite.seed)?;
    let (_, bytes) = workload.load_estimate();
    let kept = if suite.keep_data {
        suite.engines.len() as u64 * u64::from(suite.repeat)
    } else {
        1
    };
    let (needed, free) = (
        plan::disk_estimate(bytes, kept),
        size::free_bytes(&suite.out)?,
    );
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
        let order = plan::order(self.suite.engines.len(), self.suite.repeat);
        let trials = order.len();
        self.save()?;
        self.calibrate(trials)?;
        for (i, planned) in order.into_iter().enumerate() {
            if self.interrupts.count() > 0 {
                break;
            }
            self.run_trial(i, trials, planned)?;
            self.progress.trial_finished();
        }
        self.progress.clear();
        self.result.interrupted = self.interrupts.count() > 0;
        remove_if_empty(&self.suite.out.join("data"));
        self.save()
    }

    /// Brings everything derived up to date and writes the result.
    fn save(&mut self) -> Result<()> {
        split::apply_to_suite(&mut self.result);
        for trial in &mut self.result.trials {
            marks::judge(trial);
        }
        let base = self
            .suite
            .engines
            .first()
            .map(EngineChoice::name)
            .unwrap_or_default();
        self.result.comparisons = spread::compare(&self.result.trials, &base);
        self.saved = Instant::now();
        file::save(&self.suite.out, &self.result)
    }

    /// Measures the client's own cost with a short trial on `null`.
    fn calibrate(&mut self, trials: usize) -> Result<()> {
        if self
            .suite
            .engines
            .iter()
            .all(|choice| choice.engine == "null")
        {
            return Ok(());
        }
        let overrides = calibration_overrides(&self.suite.settings);
        let mut settings = self.suite.settings.clone();
        for key in [
            "operations",
            "seconds",
            "steps",
            "warmup_operations",
            "warmup_seconds",
        ] {
            settings.remove(key);
        }
        settings.extend(overrides.clone());
        let choice = EngineChoice {
            engine: "null".to_string(),
            variant: None,
            settings: BTreeMap::new(),
        };
        let mut trial = self.new_trial(&choice, 1, String::new());
        let directory = self.data_directory("calibration")?;
        let mut spec = self.spec(&choice, self.suite.seed, &directory);
        spec.settings = settings;
        spec.rate = None;
        let standing = Standing {
            trials,
            label: "calibration on null".to_string(),
            ..Standing::default()
        };
        self.drive(&spec, &mut trial, standing)?;
        remove(&directory);
        if trial.marks.is_empty() {
            self.result.calibration = Some(split::calibration(&trial.phases, overrides));
        } else {
            self.progress.clear();
            say(&format!(
                "warning: no calibration on null: {}",
                trial.marks.join("; ")
            ));
        }
        Ok(())
    }

    fn new_trial(
        &self,
        choice: &EngineChoice,
        repetition: u32,
        cache_state: String,
    ) -> TrialResult {
        TrialResult {
            engine: choice.engine.clone(),
            variant: choice.variant.clone(),
            engine_version: String::new(),
            repetition,
            seed: self.suite.seed + u64::from(repetition) - 1,
            durability: self.suite.durability,
            durability_facts: None,
            marks: Vec::new(),
            configuration: BTreeMap::new(),
            started_at: timestamp(),
            cache_state,
            verified: None,
            phases: Vec::new(),
        }
    }

    fn spec(&self, choice: &EngineChoice, seed: u64, directory: &Path) -> TrialSpec {
        TrialSpec {
            engine: choice.engine.clone(),
            variant: choice.variant.clone(),
            workload: self.suite.workload.clone(),
            settings: self.suite.settings.clone(),
            engine_settings: choice.settings.clone(),
            seed,
            durability: self.suite.durability,
            clients: self.suite.clients,
            cache_bytes: self.suite.cache_bytes,
            rate: self.suite.rate,
            directory: directory.to_path_buf(),
        }
    }

    fn data_directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.suite.out.join("data").join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    fn run_trial(&mut self, index: usize, trials: usize, planned: Planned) -> Result<()> {
        let choice = &self.suite.engines[planned.engine];
        let name = format!("{:03}-{}", index + 1, choice.name().replace(':', "-"));
        let directory = self.data_directory(&name)?;
        let mut trial = self.new_trial(choice, planned.repetition, environment::drop_page_cache());
        let spec = self.spec(choice, trial.seed, &directory);
        let standing = Standing {
            trial: index + 1,
            trials,
            label: format!("{} #{}", choice.name(), planned.repetition),
            ..Standing::default()
        };
        self.result.trials.push(trial.clone());
        self.drive(&spec, &mut trial, standing)?;
        self.put(trial);
        self.save()?;
        if !self.suite.keep_data {
            remove(&directory);
        }
        Ok(())
    }

    /// Replaces the trial that is running in the result. Calibration has none there.
    fn put(&mut self, trial: TrialResult) {
        if let Some(last) = self.result.trials.last_mut() {
            *last = trial;
        }
    }

    /// Starts the child and follows it to its end.
    fn drive(
        &mut self,
        spec: &TrialSpec,
        trial: &mut TrialResult,
        mut standing: Standing,
    ) -> Result<()> {
        let mut process = TrialProcess::start("trial-child", spec)?;
        let mut follower = Follower::default();
        let mut asked = 0;
        loop {
            match process.lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => match serde_json::from_str::<Event>(&line) {
                    Ok(event) => {
                        let phase_ended = matches!(event, Event::Phase { .. });
                        if let Event::Opened {
                            workload_version, ..
                        } = &event
                        {
                            self.result.workload_version = Some(*workload_version);
                        }
                        follower.apply(event, trial, &mut standing);
                        if phase_ended && standing.trial > 0 {
                            self.put(trial.clone());
                            self.save()?;
                        }
                    }
                    // An engine's library printed to stdout.
                    Err(_) => say(&line),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.progress.show(&standing);
            self.follow_interrupts(&mut process, &mut asked);
            if self.saved.elapsed() >= SAVE_EVERY && standing.trial > 0 {
                self.put(trial.clone());
                self.save()?;
            }
        }
        match process.wait()? {
            Some(death) if self.interrupts.count() > 1 => {
                trial.mark(format!("interrupted ({death})"))
            }
            Some(death) => trial.mark(format!("child-died ({death})")),
            None if !follower.finished => trial.mark("child-died (no reason given)"),
            None => {}
        }
        Ok(())
    }

    fn follow_interrupts(&mut self, process: &mut TrialProcess, asked: &mut usize) {
        let count = self.interrupts.count();
        if count > *asked {
            self.progress.clear();
            if *asked == 0 {
                say("interrupted: finishing the interval and saving; again to stop now");
                process.send("stop");
            }
            if count > 1 {
                process.kill();
            }
            *asked = count;
        }
    }
}

/// Ways to make calibration short: few nodes when there are many, two seconds of requests, no warm-up, one step.
fn calibration_overrides(settings: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    const MOST_NODES: u64 = 100_000;
    let mut overrides = BTreeMap::new();
    let nodes: u64 = settings
        .get("nodes")
        .and_then(|text| text.parse().ok())
        .unwrap_or(u64::MAX);
    if nodes > MOST_NODES {
        overrides.insert("nodes".to_string(), MOST_NODES.to_string());
    }
    overrides.insert("seconds".to_string(), "2".to_string());
    overrides
}

/// Turns the events of one child into its trial.
#[derive(Default)]
struct Follower {
    load_bytes: u64,
    finished: bool,
    /// The last entry of the trial's phases is still running.
    open_phase: bool,
}

impl Follower {
    fn apply(&mut self, event: Event, trial: &mut TrialResult, standing: &mut Standing) {
        match event {
            Event::Opened {
                facts,
                workload,
                load_bytes,
                ..
            } => {
                trial.engine_version = facts.version;
                trial.durability_facts = Some(facts.durability);
                trial.configuration = facts.configuration;
                for (key, value) in workload {
                    trial.configuration.insert(format!("workload.{key}"), value);
                }
                self.load_bytes = load_bytes;
            }
            Event::PhaseStarted {
                name,
                seconds,
                operations,
            } => {
                standing.phase.clone_from(&name);
                standing.seconds = 0.0;
                standing.operations = 0;
                standing.note.clear();
                standing.phase_seconds = seconds;
                standing.phase_operations = operations;
                trial.phases.push(PhaseResult {
                    name,
                    ..PhaseResult::default()
                });
                self.open_phase = true;
            }
            Event::Progress {
                seconds,
                operations,
                note,
                intervals,
            } => {
                standing.seconds = seconds;
                standing.operations = operations;
                standing.note = note;
                if let Some(phase) = trial.phases.last_mut().filter(|_| self.open_phase) {
                    phase.seconds = seconds;
                    phase.operations = operations;
                    phase.ops_per_s = (seconds > 0.0).then(|| operations as f64 / seconds);
                    phase.intervals.extend(intervals);
                }
            }
            Event::Phase { result } => {
                if self.open_phase {
                    trial.phases.pop();
                }
                self.open_phase = false;
                trial.phases.push(*result);
                finish_phase(&mut trial.phases, self.load_bytes);
            }
            Event::Mark { mark } => trial.mark(mark),
            Event::Verified { sentence } => trial.verified = Some(sentence),
            Event::Finished { error } => {
                self.finished = true;
                if let Some(error) = error {
                    trial.mark(format!("failed ({error})"));
                }
            }
        }
    }
}

/// Numbers that need more than one phase: what settling wrote belongs to the phase before it.
fn finish_phase(phases: &mut [PhaseResult], load_bytes: u64) {
    let Some((last, earlier)) = phases.split_last_mut() else {
        return;
    };
    let reads = last
        .io_source
        .as_deref()
        .filter(|source| source.starts_with("device"));
    let read = reads.and(last.reads_per_op);
    if last.name != "settle" {
        last.amplification = read.map(|read| Amplification {
            read: Some(read),
            ..Amplification::default()
        });
        return;
    }
    let data = last.size_bytes.map(|size| size.data as f64);
    let space = data
        .filter(|_| load_bytes > 0)
        .map(|data| data / load_bytes as f64);
    last.amplification = space.map(|space| Amplification {
        space: Some(space),
        ..Amplification::default()
    });
    if let Some(before) = earlier.iter_mut().rev().find(|phase| phase.operations > 0) {
        before.kb_written_per_op_settled = before
            .kb_written
            .zip(last.kb_written)
            .map(|(phase, settle)| (phase + settle) / before.operations as f64);
    }
}

/// Removes a trial's data; what cannot be removed is said, not fatal.
fn remove(directory: &Path) {
    if let Err(error) = std::fs::remove_dir_all(directory) {
        say(&format!(
            "warning: cannot remove {}: {error}",
            directory.display()
        ));
    }
}

fn remove_if_empty(directory: &Path) {
    // Fails when kept data is inside, which is what is wanted then.
    let _ = std::fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_settling_are_added_to_the_last_phase_with_operations() {
        let phase = |name: &str, operations, kb| PhaseResult {
            name: name.to_string(),
            operations,
            kb_written: Some(kb),
            ..PhaseResult::default()
        };
        let mut phases = vec![
            phase("load", 10, 100.0),
            phase("request", 100, 300.0),
            phase("settle", 0, 200.0),
        ];
        finish_phase(&mut phases, 0);
        assert_eq!(phases[1].kb_written_per_op_settled, Some(5.0));
        assert_eq!(phases[0].kb_written_per_op_settled, None);
    }
}
