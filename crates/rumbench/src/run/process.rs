//! Child process of this binary or of another build: starts it with its specification, reads its
//! lines and ends it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use anyhow::{Context, Result};

use super::profiled::Listener;

/// A child process in its own process group, so that Ctrl-C reaches the laboratory alone.
pub struct TrialProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Lines of the child's stdout; disconnected when the child closes its stdout.
    pub lines: Receiver<String>,
}

impl TrialProcess {
    /// Starts this binary, or the build at `host`, with a hidden command. Calls `prepare` with its
    /// process id, then sends the specification; before that the child does nothing. The listener
    /// returned by `prepare` receives each line as soon as it arrives.
    ///
    /// # Errors
    /// When the process cannot be started or the preparation fails.
    pub fn start(
        host: Option<&Path>,
        command: &str,
        spec: &impl serde::Serialize,
        prepare: impl FnOnce(u32) -> Result<Option<Listener>>,
    ) -> Result<TrialProcess> {
        let binary = match host {
            Some(binary) => binary.to_path_buf(),
            None => own_binary()?,
        };
        TrialProcess::start_binary(&binary, command, spec, [], prepare)
    }

    /// Starts this binary with additional environment variables.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start_in(
        command: &str,
        spec: &impl serde::Serialize,
        environment: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> Result<TrialProcess> {
        TrialProcess::start_binary(&own_binary()?, command, spec, environment, |_| Ok(None))
    }

    fn start_binary(
        binary: &Path,
        command: &str,
        spec: &impl serde::Serialize,
        environment: impl IntoIterator<Item = (&'static str, OsString)>,
        prepare: impl FnOnce(u32) -> Result<Option<Listener>>,
    ) -> Result<TrialProcess> {
        let mut child = Command::new(binary)
            .arg(command)
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let stdout = child.stdout.take().context("the child has no stdout")?;
        let stdin = child.stdin.take();
        let (sender, lines) = mpsc::channel();
        let mut process = TrialProcess {
            child,
            stdin,
            lines,
        };
        let mut listener = match prepare(process.child.id()) {
            Ok(listener) => listener,
            Err(refused) => {
                process.kill();
                process.wait()?;
                return Err(refused);
            }
        };
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(listener) = &mut listener {
                    listener(&line);
                }
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        process.send(&serde_json::to_string(spec)?);
        Ok(process)
    }

    /// Writes a line to the child. A dead child is detected at the end of its output, so errors are
    /// ignored here.
    pub fn send(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        }
    }

    /// Returns the bytes that the child has written so far by system calls, to files and pipes; 0
    /// if the kernel does not report them.
    pub fn bytes_written(&self) -> u64 {
        let pid = i32::try_from(self.child.id()).ok();
        let process = pid.and_then(|pid| procfs::process::Process::new(pid).ok());
        let counters = process.and_then(|process| process.io().ok());
        counters.map_or(0, |counters| counters.wchar)
    }

    /// Sends SIGKILL to the child's process group.
    pub fn kill(&mut self) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }

    /// Waits for the child's end. `Some` describes the signal or exit code if it did not exit with
    /// 0.
    ///
    /// # Errors
    /// When waiting for the process fails.
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

fn own_binary() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the own binary")
}
