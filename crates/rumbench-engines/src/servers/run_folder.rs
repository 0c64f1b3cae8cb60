//! The run folder of a server: its socket, and a note by which the next start knows what a killed laboratory left behind.
//!
//! It lies in the folder for temporary files, because the name of a socket may have about 100 bytes and a result folder may
//! be deep. Its name is `rumbench-PID-START-NAMESPACE-NUMBER`: process id and start time of the laboratory that made it, so
//! that a process id that was given again is not taken for it, and the namespace in which the id means something: containers
//! may share the folder. The note `server` holds the same of the server and the folder of its trial.
//!
//! A server normally gets a signal from the kernel when its laboratory dies (see `process`). What remains then is this
//! folder; [`remove_left_overs`], which every start of the laboratory calls, removes those whose laboratory is gone, and ends a server that outlived it all the same. Data folders
//! belong to the results of a run and are only named, so that nothing is deleted that somebody may want to look at.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rumbench_core::engine::{EngineError, Result};
use rustix::process::{Pid, Signal};

const PREFIX: &str = "rumbench-";
const NOTE: &str = "server";

/// A folder of a running server; dropping it removes it.
#[derive(Debug)]
pub(super) struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes one that only this user can enter, after what other runs left behind is gone.
    pub(super) fn create() -> Result<RunFolder> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        remove_left_overs();
        let parent = std::env::temp_dir();
        let own = std::process::id();
        let start = started_at(own).unwrap_or(0);
        // Relaxed: only uniqueness matters.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = namespace();
        let path = parent.join(format!("{PREFIX}{own}-{start}-{namespace}-{number}"));
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700).create(&path).map_err(|error| {
            EngineError::failed(format!("cannot create {}", path.display()), error)
        })?;
        Ok(RunFolder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Notes which process serves here, and in the folder of which trial its data is.
    pub(super) fn note(&self, server: u32, trial: &Path) -> Result<()> {
        let start = started_at(server).unwrap_or(0);
        let note = format!("{server} {start}\n{}\n", trial.display());
        fs::write(self.0.join(NOTE), note)
            .map_err(|error| EngineError::failed("cannot note the server's process", error))
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next start.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// When a process started, in ticks since boot; `None` if there is none with this id, or it has ended.
pub(super) fn started_at(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22; the name in field 2 may hold spaces and parentheses. A zombie has ended.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The number of the namespace of process ids, 0 where the kernel does not tell.
fn namespace() -> u64 {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = link
        .to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap_or(0)
}

fn is_alive(pid: u32, start: u64) -> bool {
    started_at(pid) == Some(start)
}

/// Removes what killed laboratories left of their servers in the folder for temporary files, and ends servers that outlived
/// them. Data folders are named, with the command that removes them.
pub(crate) fn remove_left_overs() {
    sweep(&std::env::temp_dir());
}

/// Removes the run folders in `parent` whose laboratory is gone. What is not surely ours stays.
fn sweep(parent: &Path) {
    let own_user = rustix::process::geteuid();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((pid, start)) = name.to_str().and_then(maker) else {
            continue;
        };
        let ours = entry.metadata().is_ok_and(|found| {
            found.is_dir() && (own_user.is_root() || found.uid() == own_user.as_raw())
        });
        if ours && !is_alive(pid, start) {
            remove_left_over(&entry.path());
        }
    }
}

/// Process id and start time of the laboratory that made a folder of this name; `None` for one of another namespace.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut numbers = name.strip_prefix(PREFIX)?.split('-');
    let maker = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let found: u64 = numbers.next()?.parse().ok()?;
    let _number: u32 = numbers.next()?.parse().ok()?;
    (numbers.next().is_none() && found == namespace()).then_some(maker)
}

fn remove_left_over(path: &Path) {
    let note = fs::read_to_string(path.join(NOTE)).unwrap_or_default();
    let mut lines = note.lines();
    let server = lines.next().and_then(|line| {
        let (pid, start) = line.split_once(' ')?;
        Some((pid.parse::<u32>().ok()?, start.parse::<u64>().ok()?))
    });
    if let Some((pid, start)) = server
        && is_alive(pid, start)
        && let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
    {
        // The processes of PostgreSQL end by themselves when their first one is gone.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    let _ = fs::remove_dir_all(path);
    if let Some(trial) = lines.next().filter(|trial| Path::new(trial).exists()) {
        // No error of the trial that is about to run; where nobody listens, nobody needs it.
        let _ = writeln!(
            std::io::stderr(),
            "rumbench: a run that was killed left the data of its server in {trial}; if nobody needs it: rm -r '{trial}'"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_a_dead_laboratory_goes_with_its_server_and_one_of_a_living_stays() {
        let parent = tempfile::tempdir().unwrap();
        let mut server = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let start = started_at(server.id()).unwrap();
        // No process has started at tick 1 with the id of this one.
        let own = std::process::id();
        let folder = |start: u64, namespace: u64| {
            let name = format!("{PREFIX}{own}-{start}-{namespace}-0");
            parent.path().join(name)
        };
        let dead = folder(1, namespace());
        let alive = folder(started_at(own).unwrap(), namespace());
        let elsewhere = folder(1, namespace() + 1);
        let foreign = parent.path().join("rumbench-something");
        for folder in [&dead, &alive, &elsewhere, &foreign] {
            fs::create_dir(folder).unwrap();
        }
        let note = format!("{} {start}\n/no/such/folder\n", server.id());
        fs::write(dead.join(NOTE), note).unwrap();
        sweep(parent.path());
        assert!(!dead.exists() && alive.exists() && elsewhere.exists() && foreign.exists());
        let status = server.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
    }

    #[test]
    fn a_server_whose_process_id_was_given_again_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let dead = parent.path().join(format!("{PREFIX}1-1-{}-0", namespace()));
        fs::create_dir(&dead).unwrap();
        // This very process, but with another start time.
        fs::write(dead.join(NOTE), format!("{} 1\n", std::process::id())).unwrap();
        sweep(parent.path());
        assert!(!dead.exists());
    }

    #[test]
    fn a_dropped_folder_is_gone() {
        let folder = RunFolder::create().unwrap();
        let path = folder.path().to_path_buf();
        folder.note(std::process::id(), Path::new("/data")).unwrap();
        assert!(path.join(NOTE).exists());
        drop(folder);
        assert!(!path.exists());
    }
}
