//! Private server of a run: started by `mariadb/build/start.sh`, stopped or killed by its process
//! id.
//!
//! The folder of a server keeps data, socket and log. Without a given folder a run takes a new one
//! and removes it after success.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;

/// Place of the server that a run uses.
#[derive(Args, Debug, Clone)]
pub struct Place {
    /// Folder of the private server; a new one if not given. Its server must not run
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Script that starts a private server
    #[arg(long, value_name = "FILE", default_value = "mariadb/build/start.sh")]
    start: PathBuf,
    /// More options of the server, such as --server-option=--alluvium-memory-bytes=64M
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    server_option: Vec<String>,
}

/// Private server.
pub struct Server {
    folder: PathBuf,
    start: PathBuf,
    options: Vec<String>,
    is_new: bool,
    is_running: bool,
}

impl Server {
    /// Starts the server of a place, with some options of the subcommand.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(place: &Place, options: &[&str]) -> Result<Server> {
        let new = std::env::temp_dir().join(format!("mariadb-check-{}", std::process::id()));
        let folder = place.folder.clone().unwrap_or(new);
        let own = place.server_option.iter().cloned();
        let mut server = Server {
            folder: std::path::absolute(folder)?,
            start: place.start.clone(),
            options: options.iter().map(ToString::to_string).chain(own).collect(),
            is_new: place.folder.is_none(),
            is_running: false,
        };
        server.start_again()?;
        Ok(server)
    }

    /// Starts the server again after its end.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_again(&mut self) -> Result<()> {
        let output = self.command().output();
        let output = output.with_context(|| format!("cannot run {}", self.start.display()))?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            bail!("{} failed:\n{told}", self.start.display());
        }
        self.is_running = true;
        Ok(())
    }

    /// Renames the data folder of the server, which must not run. The next start makes a new one.
    ///
    /// # Errors
    /// If the folder cannot be renamed.
    pub fn set_data_aside(&self) -> Result<()> {
        let name = |number: u32| self.folder.join(format!("data.failed.{number}"));
        let free = (1..).map(name).find(|path| !path.exists());
        let free = free.expect("there are more numbers than folders");
        fs::rename(self.folder.join("data"), &free)
            .with_context(|| format!("cannot rename the data folder to {}", free.display()))
    }

    /// Begins a start and kills the server after `delay`, probably during its recovery.
    ///
    /// # Errors
    /// If no process of the server appears.
    pub fn start_and_kill(&mut self, delay: Duration) -> Result<()> {
        let mut command = self.command();
        let mut script = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = self.wait_for_process(&mut script);
        if let Ok(pid) = pid {
            std::thread::sleep(delay);
            kill(pid)?;
        }
        script.wait()?;
        pid.map(|_| ())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.start);
        command.arg(&self.folder).args(&self.options);
        command
    }

    fn wait_for_process(&self, script: &mut Child) -> Result<Pid> {
        // Terminates with the script, which gives up after a minute.
        loop {
            if let Some(pid) = self.process() {
                return Ok(pid);
            }
            if script.try_wait()?.is_some() {
                bail!("{} started no server", self.start.display());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Finds the process of the server by its command line, because it writes its pid file only
    /// after the recovery.
    fn process(&self) -> Option<Pid> {
        let wanted = format!("--defaults-file={}/my.cnf", self.folder.display());
        let is_server = |id: &i32| {
            let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            let program = words.next().unwrap_or_default();
            program.ends_with(b"mariadbd") && words.any(|word| word == wanted.as_bytes())
        };
        let entries = fs::read_dir("/proc").ok()?.flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter(is_server).find_map(Pid::from_raw)
    }

    /// Kills the server as a crash would end it, and waits for its end.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&mut self) -> Result<()> {
        let pid = self.process().context("the server does not run")?;
        kill(pid)?;
        self.is_running = false;
        let until = Instant::now() + Duration::from_secs(60);
        while self.process().is_some() {
            if Instant::now() > until {
                bail!("the killed server does not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Returns true if the process of the server has not ended.
    pub fn is_alive(&self) -> bool {
        self.process().is_some()
    }

    /// Connects as the user of this process.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn connect(&self) -> Result<Client> {
        let file = self.folder.join("my.cnf");
        let text = fs::read_to_string(&file);
        let text = text.with_context(|| format!("cannot read {}", file.display()))?;
        let of = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(" = "));
            let value = lines.find_map(|(name, value)| (name == key).then_some(value));
            value.map(|value| value.trim_matches('"').to_string())
        };
        let socket = of("socket").context("my.cnf names no socket")?;
        let user = of("user").context("my.cnf names no user")?;
        Client::connect(Path::new(&socket), &user)
    }

    /// Returns the last lines of the server's log.
    pub fn log(&self, lines: usize) -> String {
        let text = fs::read(self.folder.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Stops the server. A folder that this run made is removed, unless it is to be kept.
    ///
    /// # Errors
    /// If the server has ended before, or a file cannot be removed.
    pub fn stop(mut self, keep: bool) -> Result<()> {
        let stopped = Command::new(self.folder.join("stop")).output()?;
        if !stopped.status.success() {
            bail!("{}", String::from_utf8_lossy(&stopped.stderr));
        }
        self.is_running = false;
        if self.is_new && !keep {
            fs::remove_dir_all(&self.folder)?;
        }
        Ok(())
    }

    /// Returns the folder of the server.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After an error no server may be left.
        if self.is_running
            && let Some(pid) = self.process()
        {
            let _ = kill(pid);
        }
    }
}

fn kill(pid: Pid) -> Result<()> {
    kill_process(pid, Signal::KILL).context("cannot kill the server")
}
