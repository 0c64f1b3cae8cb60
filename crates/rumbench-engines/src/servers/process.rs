//! Server as a child process: started in its own process group, awaited, stopped, killed if it does
//! not stop.
//!
//! The program and its command line are in `program`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rumbench_core::engine::{EngineError, Result};
use rustix::process::{Pid, Signal};

use super::log::log_tail;
use super::program::{DeathSignal, Program};
use super::run_folder::{self, RunFolder};

/// Limit for a start: recovery from a crash may take this long.
const READY_WITHIN: Duration = Duration::from_secs(600);
/// Limit for a clean stop, which writes all changed pages of the cache back.
const STOPPED_WITHIN: Duration = Duration::from_secs(300);
/// Limit for an end without write-back, which needs no longer.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
/// Interval between checks of a starting or stopping server.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Running server. Dropping it kills it.
#[derive(Debug)]
pub(super) struct ServerProcess {
    server: &'static str,
    child: Child,
    log: PathBuf,
    stop_signal: Signal,
    death_signal: DeathSignal,
    folder: RunFolder,
}

impl ServerProcess {
    /// Starts a server with its socket in `folder`; the folder of its `trial` is noted there.
    pub(super) fn start(
        program: &Program<'_>,
        mut command: Command,
        log: &Path,
        trial: &Path,
        stop_signal: Signal,
        folder: RunFolder,
    ) -> Result<ServerProcess> {
        let child = command
            .spawn()
            .map_err(|error| program.not_started(error))?;
        let process = ServerProcess {
            server: program.server,
            child,
            log: log.to_path_buf(),
            stop_signal,
            death_signal: program.death_signal,
            folder,
        };
        process.folder.note(process.pid(), trial)?;
        Ok(process)
    }

    /// Returns the id of the server's first process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the end of the server's log.
    pub(super) fn log_tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Calls `connect` until it succeeds.
    ///
    /// # Errors
    /// If the server ends or does not answer in time, with the end of its log.
    pub(super) fn wait_until_ready<T>(
        &mut self,
        mut connect: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        loop {
            let refused = match connect() {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if let Some(status) = self.ended() {
                return Err(self.failed(&format!("ended while it started ({status})")));
            }
            if start.elapsed() > READY_WITHIN {
                let seconds = READY_WITHIN.as_secs();
                return Err(self.failed(&format!("does not answer for {seconds} s: {refused}")));
            }
            thread::sleep(ASK_EVERY);
        }
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn failed(&self, what: &str) -> EngineError {
        EngineError::failed(format!("{} {what}", self.server), log_tail(&self.log))
    }

    fn signal(&self, signal: Signal) {
        // A process that has ended cannot be signaled.
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
    }

    /// Kills the server and the processes it started, which may hang as well. A server of several
    /// processes is first asked to end at once: SIGKILL would leave its shared memory allocated.
    pub(super) fn kill(&self) {
        let pid = self.pid();
        if self.death_signal == DeathSignal::Quit {
            self.signal(Signal::QUIT);
            let start = Instant::now();
            while run_folder::started_at(pid).is_some() && start.elapsed() < ENDED_WITHIN {
                thread::sleep(ASK_EVERY);
            }
        }
        if run_folder::started_at(pid).is_none() {
            return;
        }
        let started = self.children();
        // Kills the server first: it would replace its children.
        self.signal(Signal::KILL);
        kill_all(&started);
    }

    /// Ends the server and the processes it started as a loss of power does: none of them may learn
    /// that another one has ended. A stopped server cannot act on the end of its children.
    pub(super) fn lose_power(&mut self) {
        self.signal(Signal::STOP);
        kill_all(&self.children());
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// Returns the processes that the server has started.
    fn children(&self) -> Vec<Pid> {
        let pid = self.pid();
        let started = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let started = started.unwrap_or_default();
        let pids = started.split_ascii_whitespace();
        pids.filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw))
            .collect()
    }

    /// Asks the server to stop and waits until it has.
    ///
    /// # Errors
    /// If it died earlier, does not stop in time and is killed, or exits with a failure; with the
    /// end of its log.
    pub(super) fn stop(mut self) -> Result<()> {
        if let Some(status) = self.ended() {
            return Err(self.failed(&format!("had died before it was stopped ({status})")));
        }
        self.signal(self.stop_signal);
        let start = Instant::now();
        while start.elapsed() < STOPPED_WITHIN {
            match self.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failed(&format!("stopped badly ({status})"))),
                None => thread::sleep(ASK_EVERY),
            }
        }
        let seconds = STOPPED_WITHIN.as_secs();
        Err(self.failed(&format!("did not stop within {seconds} s and was killed")))
    }
}

fn kill_all(pids: &[Pid]) {
    for pid in pids {
        // A process that has ended cannot be signaled.
        let _ = rustix::process::kill_process(*pid, Signal::KILL);
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, log: &Path) -> (ServerProcess, PathBuf) {
        let program = Program::shell();
        let mut command = program.command(log).unwrap();
        command.arg("-c").arg(script);
        let folder = RunFolder::create().unwrap();
        let path = folder.path().to_path_buf();
        let data = Path::new("/no/such/folder");
        let process =
            ServerProcess::start(&program, command, log, data, Signal::TERM, folder).unwrap();
        (process, path)
    }

    fn never() -> Result<()> {
        Err(EngineError::Unsupported("not yet".to_string()))
    }

    #[test]
    fn a_server_that_ends_while_it_starts_is_an_error_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let (mut process, folder) = start("echo no room left; exit 3", &log);
        let error = process.wait_until_ready(never).unwrap_err();
        let EngineError::Failed { context, source } = error else {
            panic!("{error}");
        };
        assert!(context.contains("exit status: 3"), "{context}");
        assert!(source.to_string().ends_with("no room left"), "{source}");
        drop(process);
        assert!(!folder.exists());
    }

    #[test]
    fn a_server_that_stops_when_asked_is_no_error_and_one_that_had_died_is() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let ready = dir.path().join("ready");
        let script = format!(
            "trap 'exit 0' TERM; echo > {}; while :; do sleep 0.01; done",
            ready.display()
        );
        let (mut process, _) = start(&script, &log);
        let connect = || if ready.exists() { Ok(()) } else { never() };
        process.wait_until_ready(connect).unwrap();
        process.stop().unwrap();
        let (mut process, _) = start("exit 0", &log);
        process.child.wait().unwrap();
        assert!(process.stop().is_err());
    }

    #[test]
    fn a_dropped_server_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let (process, folder) = start("exec sleep 600", &dir.path().join("log"));
        let pid = process.pid();
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        assert!(!folder.exists());
    }
}
