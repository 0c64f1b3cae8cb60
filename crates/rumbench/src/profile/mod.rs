//! `--profile`: on which functions the processes of a trial spend their CPU time, phase by phase.
//!
//! The kernel interrupts each thread of the trial, its servers and their children included, after so much CPU time, and notes
//! where it was: [`sampling`]. [`modules`] finds the binaries and names of functions, [`process`] follows a stack through them,
//! [`stacks`] counts, [`flame`] draws. It runs in the laboratory's process, so that its cost is no part of the trial's.

mod flame;
mod modules;
mod process;
mod sampling;
mod stacks;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::modules::{Kernel, Modules};
use self::process::Process;
use self::sampling::{Sample, Samplers};
pub use self::stacks::Stacks;
use crate::store::result::Profile;

/// The folder of a result with what was sampled.
pub const FOLDER: &str = "profile";
/// A binary that is mapped while a trial runs is looked for no more often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Samples the processes of one trial.
pub struct Profiler {
    samplers: Samplers,
    modules: Modules,
    kernel: Kernel,
    processes: BTreeMap<u32, Process>,
    /// Names of threads, as roots of their stacks.
    threads: BTreeMap<(u32, u32), String>,
    stacks: Stacks,
    looked: Instant,
}

impl Profiler {
    /// Samples a process, which has one thread, and whatever it starts.
    ///
    /// # Errors
    /// What the kernel says: it may not allow it, or not have it.
    pub fn attach(pid: u32) -> io::Result<Profiler> {
        Ok(Profiler {
            samplers: Samplers::attach(pid)?,
            modules: Modules::default(),
            kernel: Kernel::read(),
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            stacks: Stacks::default(),
            looked: Instant::now(),
        })
    }

    /// What the samples leave out, in words.
    pub fn lacks(&self) -> Option<&'static str> {
        self.samplers.lacks()
    }

    /// Takes the samples that there are. They wait in buffers that hold more than half a second of them.
    pub fn drain(&mut self) {
        // A process that was not seen before, or has mapped binaries since, is looked at when its first sample comes.
        let look = self.looked.elapsed() >= LOOK_EVERY;
        let mut taken = Vec::new();
        self.stacks.lost += self.samplers.drain(|sample| taken.push(sample));
        for sample in &taken {
            let frames = self.frames(sample, look);
            self.stacks.add(frames);
        }
        if look && !taken.is_empty() {
            self.looked = Instant::now();
        }
    }

    /// What was sampled since the last call.
    pub fn take(&mut self) -> Stacks {
        self.drain();
        std::mem::take(&mut self.stacks)
    }

    /// Names of the functions on the stack, the thread's first.
    fn frames(&mut self, sample: &Sample, look: bool) -> Vec<String> {
        let process = self
            .processes
            .entry(sample.pid)
            .or_insert_with(|| Process::of(sample.pid, &mut self.modules));
        if look && !sample.user.is_none_or(|regs| process.knows(regs.ip)) {
            *process = Process::of(sample.pid, &mut self.modules);
        }
        let thread = self.threads.entry((sample.pid, sample.tid));
        let thread = thread.or_insert_with(|| thread_name(sample.pid, sample.tid));
        let mut frames = vec![thread.clone()];
        if let Some(regs) = sample.user {
            frames.extend(process.frames(regs, &sample.stack));
        }
        let kernel = sample.kernel.iter().rev();
        frames.extend(kernel.map(|address| self.kernel.name(*address)));
        frames
    }
}

/// The kernel's name of a thread without its number, so that threads of a kind are told together.
fn thread_name(pid: u32, tid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
    let name = name.unwrap_or_default();
    let kind = name.trim().trim_end_matches(|c: char| c.is_ascii_digit());
    match kind.trim_end_matches(['-', '_', '/', ':', '#', ' ']) {
        "" => "a thread that ended".to_string(),
        kind => kind.to_string(),
    }
}

/// Writes what was sampled in a phase into a result folder: stacks as text that other tools read, and a flame graph.
///
/// # Errors
/// When a file cannot be written.
pub fn write(out: &Path, trial: &str, phase: &str, stacks: &Stacks) -> Result<Profile> {
    let folder = out.join(FOLDER);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let name = file_name(&format!("{trial} {phase}"));
    let write = |extension: &str, text: String| {
        let path = folder.join(format!("{name}.{extension}"));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("folded", stacks.folded())?;
    write("svg", flame::svg(&format!("{trial}, {phase}"), stacks))?;
    Ok(Profile {
        samples: stacks.samples(),
        lost: stacks.lost,
        graph: format!("{FOLDER}/{name}.svg"),
        functions: stacks.functions(),
    })
}

/// Letters, digits and dots; whatever is between them becomes a dash.
fn file_name(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let words = text.split(|c| !plain(c)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_kind_have_one_name() {
        let own = std::process::id();
        for (name, kind) in [("client-17", "client"), ("rocksdb:low3", "rocksdb:low")] {
            let thread = std::thread::Builder::new().name(name.to_string());
            let tid = || u32::try_from(rustix::thread::gettid().as_raw_nonzero().get());
            let found = thread.spawn(move || thread_name(own, tid().expect("positive")));
            assert_eq!(found.expect("thread").join().expect("no panic"), kind);
        }
        assert_eq!(thread_name(own, u32::MAX), "a thread that ended");
    }

    #[test]
    fn names_of_files_are_plain() {
        assert_eq!(file_name("rocksdb:zstd #1 l.i0#2"), "rocksdb-zstd-1-l.i0-2");
    }
}
