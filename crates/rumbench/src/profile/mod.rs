//! `--profile`: on which functions the processes of a trial spend their CPU time, phase by phase.
//!
//! The kernel interrupts each thread of the trial, its servers and their children included, after so much CPU time, and notes
//! where it was: [`sampling`]. [`modules`] finds the binaries and names of functions, [`process`] follows a stack through them,
//! [`names`] keeps what is known of all processes, [`stacks`] counts, [`flame`] draws. It runs in the laboratory's process, so that its cost is no part of the trial's.

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

/// The folder of a result with what was sampled.
pub const FOLDER: &str = "profile";

/// Samples the processes of one trial.
pub struct Profiler {
    samplers: Samplers,
    names: Names,
    stacks: Stacks,
}

impl Profiler {
    /// Samples a process, which has one thread, and whatever it starts.
    ///
    /// # Errors
    /// What the kernel says: it may not allow it, or not have it.
    pub fn attach(pid: u32) -> io::Result<Profiler> {
        let names = Names::of(pid);
        Ok(Profiler {
            samplers: Samplers::attach(pid)?,
            names,
            stacks: Stacks::default(),
        })
    }

    /// What the samples leave out, in words.
    pub fn lacks(&self) -> Option<&'static str> {
        self.samplers.lacks()
    }

    /// Takes the samples that there are out of the kernel's buffers, which hold a tenth of a second of them at least.
    pub fn drain(&mut self) {
        let (names, stacks) = (&mut self.names, &mut self.stacks);
        let lost = self
            .samplers
            .drain(|sample| stacks.add(names.frames(&sample)));
        stacks.lost += lost;
    }

    /// Forgets the samples that there are.
    pub fn skip(&mut self) {
        self.samplers.drain(|_| ());
        self.stacks = Stacks::default();
    }

    /// What was sampled since the last call.
    pub fn take(&mut self) -> Stacks {
        self.drain();
        std::mem::take(&mut self.stacks)
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
    fn names_of_files_are_plain() {
        assert_eq!(file_name("rocksdb:zstd #1 l.i0#2"), "rocksdb-zstd-1-l.i0-2");
    }
}
