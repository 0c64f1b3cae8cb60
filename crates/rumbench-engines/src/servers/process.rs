//! A server as a child process: started in its own process group, awaited, stopped, killed if it does not stop.
//!
//! The program is started through `setpriv` of util-linux, which asks the kernel to signal the server when the thread that
//! started it ends, so that none outlives a laboratory that was killed, and changes to another user where a server refuses
//! root. A server that runs as another user gets its data folder as an open descriptor, since it may not be able to walk to
//! it: a result folder in root's home is such a place.

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
use super::run_folder::{self, RunFolder};

/// A server that recovers from a crash may take as long.
const READY_WITHIN: Duration = Duration::from_secs(600);
/// A clean stop writes all changed pages of the cache back.
const STOPPED_WITHIN: Duration = Duration::from_secs(300);
/// A server that writes nothing back has no reason to take longer.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
/// How often a starting or stopping server is asked.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// A user of the system that a server runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl User {
    /// Whom a server that refuses root runs as: `None` where the laboratory is not root itself.
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

/// How a server is ended at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeathSignal {
    /// The server ends its other processes, without writing anything back.
    Quit,
    /// The server is one process.
    Kill,
}

impl DeathSignal {
    /// As `setpriv` names it.
    fn name(self) -> &'static str {
        match self {
            DeathSignal::Quit => "QUIT",
            DeathSignal::Kill => "KILL",
        }
    }
}

/// A program of a server, and how it is run.
#[derive(Debug)]
pub(super) struct Program<'a> {
    /// The server in words, for messages.
    pub(super) server: &'static str,
    pub(super) path: &'a Path,
    /// Where libraries are that came with it.
    pub(super) libraries: Option<OsString>,
    pub(super) user: Option<&'a User>,
    /// What the kernel sends when the laboratory dies, and what ends a server that nobody needs any more.
    pub(super) death_signal: DeathSignal,
}

impl Program<'_> {
    /// The command with its standard streams in the log.
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
        // A folder that the server can be in: the laboratory's own may be closed to it.
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
    /// With the end of the log where it fails.
    pub(super) fn run(&self, mut command: Command, input: &str, log: &Path) -> Result<()> {
        command.stdin(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.not_started(error))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends early is judged by how it ended.
            let _ = stdin.write_all(input.as_bytes());
        }
        let status = child.wait().map_err(|error| self.not_started(error))?;
        match status.success() {
            true => Ok(()),
            false => Err(self.failed(&format!("{} failed ({status})", self.path.display()), log)),
        }
    }

    fn not_started(&self, error: std::io::Error) -> EngineError {
        match error.kind() {
            std::io::ErrorKind::NotFound => EngineError::Unsupported(
                "setpriv is missing, which starts servers: install util-linux".to_string(),
            ),
            _ => EngineError::failed(format!("cannot start {}", self.server), error),
        }
    }

    /// An error with the end of the server's log.
    pub(super) fn failed(&self, what: &str, log: &Path) -> EngineError {
        EngineError::failed(format!("{}: {what}", self.server), log_tail(log))
    }
}

/// A data folder that a server's user can reach: by its path, or, for another user, by a descriptor that the server inherits.
#[derive(Debug)]
pub(super) struct DataFolder {
    /// What the server is told.
    pub(super) name: PathBuf,
    /// Open for as long as servers may be started on it.
    _inherited: Option<File>,
}

impl DataFolder {
    /// The folder at `path`, which is given to `user`.
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

/// A running server. Dropping it kills it.
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
    /// Starts a server whose socket is in `folder`; the folder of its `trial` is noted there.
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

    /// The first of its processes.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of its log.
    pub(super) fn log_tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Asks `connect` until it answers.
    ///
    /// # Errors
    /// When the server ends or does not answer in time, with the end of its log.
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
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // A process that has ended is not there to be signalled.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Kills the server and the processes that it started, which may be as stuck as it is. One of several processes is asked
    /// to end at once before: killed, it would leave its shared memory behind.
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
        let started = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        // First the server, which would start others in their place.
        self.signal(Signal::KILL);
        for pid in started.unwrap_or_default().split(' ') {
            if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
                // As for `signal`.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Asks the server to stop and waits for it.
    ///
    /// # Errors
    /// When it had died before, does not stop in time and is killed, or says that it failed; with the end of its log.
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
        let program = Program {
            server: "a server",
            path: Path::new("/bin/sh"),
            libraries: None,
            user: None,
            death_signal: DeathSignal::Kill,
        };
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
