//! `--profile` on the laboratory's side: attaching the profiler to a trial, and giving each phase what was sampled in it.

use std::path::{Path, PathBuf};

use super::progress::say;
use super::protocol::Event;
use crate::measure::doctor::PROFILE_ADVICE;
use crate::profile::{self, Profiler};

/// The profiler of one trial.
pub struct Profiled {
    profiler: Option<Profiler>,
    out: PathBuf,
    /// Engine and repetition.
    trial: String,
    /// What is sampled, or why nothing is.
    words: String,
}

impl Profiled {
    /// For a trial whose files go to a result folder.
    pub fn new(out: &Path, trial: &str) -> Profiled {
        Profiled {
            profiler: None,
            out: out.to_path_buf(),
            trial: trial.to_string(),
            words: "none (the trial never started)".to_string(),
        }
    }

    /// Begins to sample a process before it does anything. A kernel that refuses costs the profile, not the trial.
    pub fn attach(&mut self, pid: u32) {
        match Profiler::attach(pid) {
            Ok(profiler) => {
                let lacks = profiler.lacks().map(|lacks| format!(", {lacks}"));
                self.words = format!("stacks{}", lacks.unwrap_or_default());
                self.profiler = Some(profiler);
            }
            Err(error) => {
                self.words =
                    format!("none (the kernel gives no samples: {error}; {PROFILE_ADVICE})");
            }
        }
    }

    /// Takes samples out of the kernel's buffers.
    pub fn drain(&mut self) {
        if let Some(profiler) = &mut self.profiler {
            profiler.drain();
        }
    }

    /// Follows the trial: samples from outside a phase belong to none, and a phase that ends gets its own.
    pub fn follow(&mut self, event: &mut Event) {
        let Some(profiler) = &mut self.profiler else {
            return;
        };
        match event {
            Event::PhaseStarted { .. } => drop(profiler.take()),
            Event::Phase { result } => {
                let stacks = profiler.take();
                if stacks.samples() == 0 {
                    return;
                }
                match profile::write(&self.out, &self.trial, &result.name, &stacks) {
                    Ok(found) => result.profile = Some(found),
                    Err(error) => say(&format!("warning: {error:#}")),
                }
            }
            _ => {}
        }
    }

    /// What was sampled, or why nothing was.
    pub fn words(self) -> String {
        self.words
    }
}
