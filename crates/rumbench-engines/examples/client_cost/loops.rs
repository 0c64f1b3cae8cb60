//! Baseline clients in C: compiles them, runs them over recordings, and reads their CPU time.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::clients::{Cost, Outcome};

/// Paths of the compiled C programs.
pub struct Loops {
    bytes: PathBuf,
    mariadb: PathBuf,
    postgresql: PathBuf,
}

impl Loops {
    /// Compiles the programs into a folder.
    pub fn build(folder: &Path) -> Outcome<Loops> {
        let mariadb = asked("mariadb_config", &["--include", "--libs"], "libmariadb-dev")?;
        let include = asked("pg_config", &["--includedir"], "libpq-dev")?;
        let library = asked("pg_config", &["--libdir"], "libpq-dev")?;
        let postgresql = [
            format!("-I{}", include.concat()),
            format!("-L{}", library.concat()),
            "-lpq".to_string(),
        ];
        Ok(Loops {
            bytes: compile(folder, "bare_client", "bare_client.c", &[])?,
            mariadb: compile(
                folder,
                "library_client_mariadb",
                "library_client.c",
                &[vec!["-DMARIADB".to_string()], mariadb].concat(),
            )?,
            postgresql: compile(
                folder,
                "library_client_postgresql",
                "library_client.c",
                &postgresql,
            )?,
        })
    }

    /// Writes the recording of each client to a file in `folder`, for runs against `socket`.
    pub fn over(
        &self,
        socket: PathBuf,
        folder: &Path,
        recordings: &[Vec<u8>],
    ) -> Outcome<Recorded<'_>> {
        let mut files = Vec::new();
        for (client, recording) in recordings.iter().enumerate() {
            let file = folder.join(format!("recording-{client}"));
            std::fs::write(&file, recording)?;
            files.push(file);
        }
        Ok(Recorded {
            loops: self,
            socket,
            files,
        })
    }
}

/// Recordings to replay on one server, with one process for each client.
pub struct Recorded<'a> {
    loops: &'a Loops,
    socket: PathBuf,
    files: Vec<PathBuf>,
}

impl Recorded<'_> {
    /// Replays the recordings through the C library of the protocol's server. Returns the total
    /// number of messages and their CPU time.
    pub fn library(&self, protocol: &str) -> Outcome<(f64, Cost)> {
        let program = match protocol {
            "postgresql" => &self.loops.postgresql,
            _ => &self.loops.mariadb,
        };
        self.run(|| Command::new(program))
    }

    /// Replays the recordings as raw bytes, without a library. Returns the same as
    /// [`Recorded::library`].
    pub fn bytes(&self, protocol: &str) -> Outcome<(f64, Cost)> {
        self.run(|| {
            let mut command = Command::new(&self.loops.bytes);
            command.arg(protocol);
            command
        })
    }

    fn run(&self, program: impl Fn() -> Command) -> Outcome<(f64, Cost)> {
        let started = self.files.iter().map(|file| {
            let mut command = program();
            command.args([&self.socket, file]);
            let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            piped.spawn()
        });
        // Starts all processes before it waits for the first one.
        let started: Vec<_> = started.collect();
        let (mut messages, mut cost) = (0.0, Cost::default());
        for process in started {
            let (sent, used) = printed(process?.wait_with_output()?)?;
            messages += sent;
            cost += used;
        }
        Ok((messages, cost))
    }
}

/// Runs a program and returns the words of its output.
fn asked(program: &str, arguments: &[&str], package: &str) -> Outcome<Vec<String>> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| {
        format!("{program} cannot be run ({error}): install the package {package}")
    })?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().map(str::to_string).collect())
}

fn compile(folder: &Path, name: &str, source: &str, arguments: &[String]) -> Outcome<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("examples are run by cargo")?;
    let source = Path::new(&package)
        .join("examples/client_cost")
        .join(source);
    let built = folder.join(name);
    let mut command = Command::new("cc");
    command.arg("-O2").arg("-o").args([&built, &source]);
    if !command.args(arguments).status()?.success() {
        return Err(format!("cc cannot build {}", source.display()).into());
    }
    Ok(built)
}

/// Parses the output of a C program: number of messages, and their CPU time.
fn printed(output: Output) -> Outcome<(f64, Cost)> {
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [messages, user, system] = numbers[..] else {
        return Err(format!("a client in C printed {text}").into());
    };
    Ok((messages, Cost { user, system }))
}
