//! `--profile`: CPU time by function in the processes of a trial, phase by phase.
//!
//! The kernel interrupts each thread of the trial, its servers and their children included, after a
//! fixed amount of CPU time, and records its stack: [`sampling`]. [`modules`] finds the binaries
//! and names of functions, [`process`] resolves a stack through them, [`names`] holds the data of
//! all processes, [`stacks`] counts, [`flame`] draws. The profiler runs in the laboratory's
//! process, so that its cost is no part of the trial's.

mod flame;
mod modules;
mod names;
mod process;
mod sampling;
mod stacks;

use std::io;
use std::path::Path;

use anyhow::{Context, Result};

use self::names::Names;
pub use self::sampling::Samplers;
pub use self::stacks::Stacks;
use crate::store::result::Profile;

/// Folder of the profiles in a result folder.
pub const FOLDER: &str = "profile";

/// Profiler of the processes of one trial.
pub struct Profiler {
    samplers: Samplers,
    names: Names,
    stacks: Stacks,
}

impl Profiler {
    /// Starts to sample a process with one thread, and all processes that it starts.
    ///
    /// # Errors
    /// The error of the kernel, which may forbid or lack sampling.
    pub fn attach(pid: u32) -> io::Result<Profiler> {
        let names = Names::of(pid);
        Ok(Profiler {
            samplers: Samplers::attach(pid)?,
            names,
            stacks: Stacks::default(),
        })
    }

    /// Returns a description of missing samples, if any.
    pub fn lacks(&self) -> Option<&'static str> {
        self.samplers.lacks()
    }

    /// Moves samples from the kernel's buffers, which hold at least a tenth of a second of them.
    pub fn drain(&mut self) {
        let (names, stacks) = (&mut self.names, &mut self.stacks);
        let lost = self
            .samplers
            .drain(|sample| stacks.add(names.frames(&sample)));
        stacks.lost += lost;
    }

    /// Discards all samples so far.
    pub fn skip(&mut self) {
        self.samplers.drain(|_| ());
        self.stacks = Stacks::default();
    }

    /// Returns the samples since the last call.
    pub fn take(&mut self) -> Stacks {
        self.drain();
        std::mem::take(&mut self.stacks)
    }
}

/// Writes the samples of a phase into a result folder: stacks as text for other tools, and a flame
/// graph.
///
/// # Errors
/// Fails if a file cannot be written.
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

/// Keeps letters, digits and dots; every other run of characters between them becomes a dash.
fn file_name(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let words = text.split(|c| !plain(c)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_plain() {
        assert_eq!(file_name("rocksdb:zstd #1 l.i0#2"), "rocksdb-zstd-1-l.i0-2");
    }
}
