//! Run folder of a server: its socket, and a note by which the next start finds the remains of a
//! killed laboratory.
//!
//! The folder is in the folder for temporary files, because a socket name is limited to about 100
//! bytes and a result folder may be deep. Its name is `rumbench-PID-START-NAMESPACE-NUMBER`. PID
//! and START are the process id and start time of the laboratory that created it; START
//! distinguishes it from a later process with the same id. NAMESPACE is the namespace of the
//! process id: containers may share the folder. The note `server` holds the process id and start
//! time of the server, and the folder of its trial.
//!
//! A server normally gets a signal from the kernel when its laboratory dies (see `process`). Only
//! this folder remains then. [`remove_left_overs`] runs at every start of the laboratory and at
//! every end of a trial. It removes the folders of dead laboratories and ends servers that outlived
//! them nevertheless. Only a note that this user wrote is trusted: any user may create a folder
//! with such a name. Data folders belong to the results of a run. They are only named, never
//! deleted, because the user may want to examine them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rumbench_core::engine::{EngineError, Result};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};

/// Limit for a server to end by itself after its laboratory died: the kernel has signaled it.
/// SIGKILL at once would leave PostgreSQL's shared memory allocated.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
const PREFIX: &str = "rumbench-";
const NOTE: &str = "server";

/// Folder of a running server; dropping it removes it.
#[derive(Debug)]
pub(super) struct RunFolder(PathBuf);

impl RunFolder {
    /// Removes the remains of other runs, then creates a folder that only this user can enter.
    pub(super) fn create() -> Result<RunFolder> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        name_data(&remove_left_overs());
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

    /// Notes the server's process and the folder of the trial with its data.
    pub(super) fn note(&self, server: u32, trial: &Path) -> Result<()> {
        let start = started_at(server).unwrap_or(0);
        let note = format!("{server} {start}\n{}\n", trial.display());
        fs::write(self.0.join(NOTE), note)
            .map_err(|error| EngineError::failed("cannot note the server's process", error))
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // The next start removes a folder that cannot be removed now.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the start time of a process in ticks since boot; `None` if no process has this id, or if
/// it has ended.
pub(super) fn started_at(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22; the name in field 2 may hold spaces and parentheses. A zombie has ended.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Returns the number of the process id namespace; 0 if the kernel does not report it.
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

/// Removes the server remains of killed laboratories from the folder for temporary files, and ends
/// servers that outlived them. Returns those trial folders that still exist.
pub(crate) fn remove_left_overs() -> Vec<String> {
    sweep(&std::env::temp_dir())
}

/// Reports trial folders with data of a killed run on standard error.
pub(crate) fn name_data(trials: &[String]) {
    for trial in trials {
        // Failure to print is no error of the trial that is about to run.
        let _ = writeln!(
            std::io::stderr(),
            "rumbench: a run that was killed left the data of its server in {trial}; if you do not need it: rm -r '{}'",
            trial.replace('\'', r"'\''")
        );
    }
}

/// Removes the run folders in `parent` of dead laboratories. Keeps folders of uncertain origin.
fn sweep(parent: &Path) -> Vec<String> {
    let mut trials = Vec::new();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((pid, start)) = name.to_str().and_then(maker) else {
            continue;
        };
        if is_alive(pid, start) || !entry.metadata().is_ok_and(|found| found.is_dir()) {
            continue;
        }
        let path = entry.path();
        match note_of(&path) {
            Some(note) => trials.extend(remove_left_over(&path, &note)),
            // No server had been started in it.
            None if is_own(entry.metadata()) => drop(fs::remove_dir_all(&path)),
            None => {}
        }
    }
    trials
}

fn is_own(found: std::io::Result<fs::Metadata>) -> bool {
    let own_user = rustix::process::geteuid().as_raw();
    found.is_ok_and(|found| found.uid() == own_user)
}

/// Returns the note in a folder if this user wrote it; the folder may belong to the server's user.
fn note_of(folder: &Path) -> Option<String> {
    // A link could lead to the note of a running laboratory.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(folder.join(NOTE), flags, Mode::empty()).ok()?;
    let mut file = fs::File::from(file);
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    if !is_file || !is_own(file.metadata()) {
        return None;
    }
    let mut note = String::new();
    file.read_to_string(&mut note).ok()?;
    Some(note)
}

/// Returns process id and start time of the creator from a folder name; `None` for another
/// namespace.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut numbers = name.strip_prefix(PREFIX)?.split('-');
    let maker = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let found: u64 = numbers.next()?.parse().ok()?;
    let _number: u32 = numbers.next()?.parse().ok()?;
    (numbers.next().is_none() && found == namespace()).then_some(maker)
}

/// Removes a run folder and ends its server; returns the folder of its trial if it exists.
fn remove_left_over(path: &Path, note: &str) -> Option<String> {
    let mut lines = note.lines();
    let server = lines.next().and_then(|line| {
        let (pid, start) = line.split_once(' ')?;
        Some((pid.parse::<u32>().ok()?, start.parse::<u64>().ok()?))
    });
    if let Some((pid, start)) = server
        && !has_ended(pid, start)
        && let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw)
    {
        // The other processes of PostgreSQL end by themselves when the first one is gone.
        let _ = rustix::process::kill_process(id, Signal::KILL);
        has_ended(pid, start);
    }
    let _ = fs::remove_dir_all(path);
    let trial = lines.next().filter(|trial| Path::new(trial).exists());
    trial.map(String::from)
}

/// Waits up to `ENDS_WITHIN` for a process to end; returns false if it is still alive.
pub(super) fn has_ended(pid: u32, start: u64) -> bool {
    let begin = Instant::now();
    while is_alive(pid, start) {
        if begin.elapsed() > ENDS_WITHIN {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
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
    fn a_linked_note_is_not_trusted() {
        let parent = tempfile::tempdir().unwrap();
        let mut server = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let note = format!("{} {}\n", server.id(), started_at(server.id()).unwrap());
        fs::write(parent.path().join("elsewhere"), note).unwrap();
        let planted = parent.path().join(format!("{PREFIX}1-1-{}-0", namespace()));
        fs::create_dir(&planted).unwrap();
        std::os::unix::fs::symlink("../elsewhere", planted.join(NOTE)).unwrap();
        sweep(parent.path());
        assert!(started_at(server.id()).is_some());
        server.kill().unwrap();
        server.wait().unwrap();
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
