//! Runs the child process of one trial to its end, and applies its events to the result.

use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::Result;

use super::super::cgroup::Group;
use super::super::follow::Follower;
use super::super::process::TrialProcess;
use super::super::profiled::{Listener, Profiled};
use super::super::progress::say;
use super::super::protocol::{Event, TrialSpec};
use super::super::status::SuiteStatus;
use super::super::stuck;
use super::{Runner, SAVE_EVERY};
use crate::store::result::TrialResult;

/// Control group and profiler of a trial's process.
struct TrialMonitor {
    group: Option<Group>,
    /// Phase that starts the group's limit of device I/O operations. None: the limit is already
    /// set, or there is none.
    bound_from: Option<String>,
    /// True if the kernel refused that bound during the trial.
    has_lost_bound: bool,
    profiled: Option<Profiled>,
}

impl TrialMonitor {
    /// Prepares a process that has been started but does nothing yet.
    fn begin(&mut self, pid: u32) -> Result<Option<Listener>> {
        if let Some(group) = &self.group {
            group.enter(pid)?;
            if self.bound_from.is_some() {
                group.lift_operations();
            }
        }
        let profiled = self.profiled.as_mut();
        Ok(profiled.and_then(|profiled| profiled.attach(pid)))
    }

    fn follow(&mut self, event: &mut Event) -> Result<()> {
        match (&*event, &self.group) {
            (Event::Measured, Some(group)) => group.lift_operations(),
            (Event::PhaseStarted { name, .. }, Some(group))
                if self.bound_from.as_ref() == Some(name) =>
            {
                group.bound_operations()?;
                self.bound_from = None;
            }
            _ => {}
        }
        if let Some(profiled) = &mut self.profiled {
            profiled.follow(event);
        }
        Ok(())
    }
}

impl Runner<'_> {
    /// Starts the child within `group` and follows it to its end.
    pub(super) fn drive(
        &mut self,
        spec: &TrialSpec,
        trial: &mut TrialResult,
        mut status: SuiteStatus,
        group: Option<Group>,
    ) -> Result<()> {
        let host = trial.host.as_ref().map(|host| PathBuf::from(&host.path));
        let mut watch = self.watch(group, &status);
        let prepare = |pid| watch.begin(pid);
        let started = TrialProcess::start(host.as_deref(), "trial-child", spec, prepare);
        let mut process = match started {
            Ok(process) => process,
            // A missing build fails its own trials, not those of other builds.
            Err(error) if host.is_some() => {
                trial.mark(format!("failed ({error:#})"));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut follower = Follower::default();
        let mut asked = 0;
        loop {
            match process.lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => match serde_json::from_str::<Event>(&line) {
                    Ok(mut event) => {
                        let phase_ended = matches!(event, Event::Phase { .. });
                        if let Event::Opened {
                            workload_version, ..
                        } = &event
                        {
                            self.result.workload_version = Some(*workload_version);
                        }
                        if let Err(error) = watch.follow(&mut event) {
                            // Without its bound the trial would measure something else.
                            trial.mark(format!("failed ({error:#})"));
                            watch.has_lost_bound = true;
                            process.kill();
                        }
                        follower.apply(event, trial, &mut status);
                        if phase_ended && status.trial > 0 {
                            self.put(trial.clone());
                            self.save_meanwhile();
                        }
                    }
                    // The line was printed to stdout by an engine's library.
                    Err(_) => {
                        self.progress.clear();
                        say(&line);
                    }
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.progress.show(&status);
            self.follow_interrupts(&mut process, &mut asked);
            if self.saved.elapsed() >= SAVE_EVERY && status.trial > 0 {
                self.put(trial.clone());
                self.save_meanwhile();
            }
        }
        let death = process.wait()?;
        self.conclude(trial, death, follower.finished, watch);
        Ok(())
    }

    fn watch(&self, group: Option<Group>, status: &SuiteStatus) -> TrialMonitor {
        let (number, label) = (status.trial, &status.label);
        let profiled = self.suite.profile && number > 0;
        TrialMonitor {
            bound_from: self.suite.storage_from.clone().filter(|_| group.is_some()),
            group,
            has_lost_bound: false,
            profiled: profiled.then(|| Profiled::new(&self.suite.out, number, label)),
        }
    }

    /// Completes the result after the end of the trial's process: configuration, memory and marks.
    fn conclude(
        &self,
        trial: &mut TrialResult,
        death: Option<String>,
        finished: bool,
        watch: TrialMonitor,
    ) {
        if let Some(storage) = self.suite.storage {
            let from = self.suite.storage_from.as_ref();
            let from = from.map(|phase| format!(", from {phase} on"));
            let words = storage.words() + &from.unwrap_or_default();
            trial.configuration.insert("storage".to_string(), words);
        }
        if let Some(phase) = watch.bound_from.filter(|_| finished) {
            trial.mark(format!(
                "failed (--storage-from {phase}: no phase of this name began, so that nothing was limited)"
            ));
        }
        let memory = watch.group.as_ref().and_then(Group::memory_use);
        if let Some(profiled) = watch.profiled {
            let words = profiled.words();
            trial.configuration.insert("profile".to_string(), words);
        }
        if let Some(memory) = &memory {
            let values = [
                ("memory_limit_bytes", memory.limit_bytes),
                ("laboratory_bytes_above_the_limit", memory.laboratory_bytes),
            ];
            let values = values.map(|(name, bytes)| (name.to_string(), bytes.to_string()));
            trial.configuration.extend(values);
        }
        let too_little = memory.as_ref().is_some_and(|memory| memory.killed);
        trial.memory = memory;
        match death {
            Some(death) if self.interrupts.count() > 1 => {
                trial.mark(format!("interrupted ({death})"))
            }
            Some(death) if too_little => trial.mark(format!(
                "child-died ({death}: it needs more memory than --memory gives it)"
            )),
            // The laboratory ended the process, and a mark already gives the reason.
            Some(_) if trial.has_mark(stuck::MARK) || watch.has_lost_bound => {}
            Some(death) => trial.mark(format!("child-died ({death})")),
            None if !finished => trial.mark("child-died (no reason given)"),
            None if too_little => trial.mark(
                "out-of-memory (the kernel killed a process of the engine: it needs more memory than --memory gives it)",
            ),
            None => {}
        }
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
