//! Server program, its user, and its working folder.
//!
//! The program is started through `setpriv` of util-linux. `setpriv` asks the kernel to signal the
//! server when its parent thread ends, so that no server outlives a killed laboratory. It also
//! changes to another user for a server that refuses root. A server that runs as another user gets
//! its data folder as an open descriptor, because this user may lack access to the path, for
//! example to a result folder in root's home.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rumbench_core::engine::{EngineError, Result};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal};

use super::log::log_tail;

/// Limit for a server's tool: it creates a few dozen files, which takes seconds on a device with a
/// thousand operations per second.
const ENDS_WITHIN: Duration = Duration::from_secs(600);
/// Interval between checks of a running tool.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// System user that a server runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl User {
    /// Returns the user for a server that refuses root; `None` if the laboratory is not root
    /// itself.
    pub(super) fn instead_of_root(wanted: &[&str]) -> Result<Option<User>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd")
            .map_err(|error| EngineError::failed("cannot read /etc/passwd", error))?;
        let found = wanted.iter().find_map(|name| User::of_list(&users, name));
        found.map(Some).ok_or_else(|| {
            EngineError::Unsupported(format!(
                "the server refuses to run as root, and this machine has none of the users {}",
                wanted.join(", ")
            ))
        })
    }

    fn of_list(users: &str, name: &str) -> Option<User> {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some(User {
            name: name.to_string(),
            uid: fields.next()?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
        })
    }
}

/// Signal that ends a server at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeathSignal {
    /// The server ends its other processes, without writing anything back.
    Quit,
    /// The server is one process.
    Kill,
}

impl DeathSignal {
    /// Returns the name of the signal for `setpriv`.
    fn name(self) -> &'static str {
        match self {
            DeathSignal::Quit => "QUIT",
            DeathSignal::Kill => "KILL",
        }
    }
}

/// Server program and its environment.
#[derive(Debug)]
pub(super) struct Program<'a> {
    /// Server in words, for messages.
    pub(super) server: &'static str,
    pub(super) path: &'a Path,
    /// Search path for libraries that came with the program.
    pub(super) libraries: Option<OsString>,
    pub(super) user: Option<&'a User>,
    /// Signal from the kernel when the laboratory dies, and signal that ends a server no longer
    /// needed.
    pub(super) death_signal: DeathSignal,
}

impl Program<'_> {
    /// Returns the command with its output streams appended to the log.
    pub(super) fn command(&self, log: &Path) -> Result<Command> {
        let output = |log: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(log);
            file.map_err(|error| {
                EngineError::failed(format!("cannot open {}", log.display()), error)
            })
        };
        let mut command = Command::new("setpriv");
        command.arg(format!("--pdeathsig={}", self.death_signal.name()));
        if let Some(user) = self.user {
            command.arg(format!("--reuid={}", user.uid));
            command.arg(format!("--regid={}", user.gid));
            command.arg("--clear-groups");
        }
        command.arg(self.path).process_group(0);
        command.stdin(Stdio::null());
        command.stdout(output(log)?).stderr(output(log)?);
        // A folder that the server can enter: the laboratory's own may be closed to it.
        command.current_dir("/");
        command.env_remove("LD_LIBRARY_PATH");
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        Ok(command)
    }

    /// Runs a command to its end, with `input` on its standard input.
    ///
    /// # Errors
    /// If it fails, or does not end in time and is killed; with the end of the log.
    pub(super) fn run(&self, command: Command, input: &str, log: &Path) -> Result<()> {
        self.run_within(ENDS_WITHIN, command, input, log)
    }

    fn run_within(
        &self,
        limit: Duration,
        mut command: Command,
        input: &str,
        log: &Path,
    ) -> Result<()> {
        command.stdin(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.not_started(error))?;
        if let Some(mut stdin) = child.stdin.take() {
            // The exit status decides about a program that ends early.
            let _ = stdin.write_all(input.as_bytes());
        }
        let status = wait_at_most(limit, &mut child);
        let path = self.path.display();
        match status.map_err(|error| self.not_started(error))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failed(&format!("{path} failed ({status})"), log)),
            None => {
                let seconds = limit.as_secs();
                let what = format!("{path} did not end within {seconds} s and was killed");
                Err(self.failed(&what, log))
            }
        }
    }

    pub(super) fn not_started(&self, error: std::io::Error) -> EngineError {
        match error.kind() {
            std::io::ErrorKind::NotFound => EngineError::Unsupported(
                "setpriv is missing, which starts servers: install util-linux".to_string(),
            ),
            _ => EngineError::failed(format!("cannot start {}", self.server), error),
        }
    }

    /// Returns an error with the end of the server's log.
    pub(super) fn failed(&self, what: &str, log: &Path) -> EngineError {
        EngineError::failed(format!("{}: {what}", self.server), log_tail(log))
    }
}

/// Waits for a program to end and returns its status. At the limit it kills the program and its
/// children and returns `None`.
fn wait_at_most(limit: Duration, child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            // The child leads its own process group. A process that has ended meanwhile cannot be
            // killed.
            let _ = rustix::process::kill_process_group(Pid::from_child(child), Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Data folder that a server's user can reach: by its path, or, for another user, by an inherited
/// descriptor.
#[derive(Debug)]
pub(super) struct DataFolder {
    /// Path passed to the server.
    pub(super) name: PathBuf,
    /// Descriptor that is open for as long as servers may be started on the folder.
    _inherited: Option<File>,
}

impl DataFolder {
    /// Prepares the folder at `path`; changes its owner to `user`, if any.
    pub(super) fn new(path: &Path, user: Option<&User>) -> Result<DataFolder> {
        let failed = |error: std::io::Error| {
            EngineError::failed(format!("cannot use {}", path.display()), error)
        };
        let Some(user) = user else {
            return Ok(DataFolder {
                name: fs::canonicalize(path).map_err(failed)?,
                _inherited: None,
            });
        };
        std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)).map_err(failed)?;
        let folder = File::open(path).map_err(failed)?;
        rustix::io::fcntl_setfd(&folder, FdFlags::empty()).map_err(|error| failed(error.into()))?;
        Ok(DataFolder {
            name: PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())),
            _inherited: Some(folder),
        })
    }
}

#[cfg(test)]
impl Program<'_> {
    /// Returns a shell in place of a server.
    pub(super) fn shell() -> Program<'static> {
        Program {
            server: "a server",
            path: Path::new("/bin/sh"),
            libraries: None,
            user: None,
            death_signal: DeathSignal::Kill,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::run_folder;

    #[test]
    fn a_tool_is_judged_by_how_it_ends_and_killed_with_its_children_if_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let program = Program::shell();
        let run = |script: &str, limit| {
            let mut command = program.command(&log).unwrap();
            command.arg("-c").arg(script);
            program.run_within(limit, command, "word\n", &log)
        };
        run("read word && test $word = word", ENDS_WITHIN).unwrap();
        let failed = run("echo no room >&2; exit 4", ENDS_WITHIN).unwrap_err();
        assert!(failed.to_string().contains("exit status: 4"), "{failed}");
        let child = dir.path().join("child");
        let stuck = format!("sleep 600 & echo $! > {}; wait", child.display());
        let late = run(&stuck, Duration::from_millis(500)).unwrap_err();
        assert!(
            late.to_string().contains("did not end within 0 s"),
            "{late}"
        );
        let child: u32 = fs::read_to_string(child).unwrap().trim().parse().unwrap();
        let started = run_folder::started_at(child);
        assert!(started.is_none_or(|start| run_folder::has_ended(child, start)));
    }

    #[test]
    fn users_are_found_by_their_whole_name() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\nnobody2:x:7:8::/:\nnobody:x:65534:65533:n:/:/\n";
        let nobody = User {
            name: "nobody".to_string(),
            uid: 65534,
            gid: 65533,
        };
        assert_eq!(User::of_list(users, "nobody"), Some(nobody));
        assert_eq!(User::of_list(users, "postgres"), None);
    }
}
