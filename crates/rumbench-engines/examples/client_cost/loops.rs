//! The loops in C that this client is held against: how they are built and what one of them used.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;

/// CPU of one client for a step, in microseconds a request.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub user: f64,
    pub system: f64,
}

impl Cost {
    pub fn total(self) -> f64 {
        self.user + self.system
    }
}

/// The programs.
pub struct Loops {
    bytes: PathBuf,
    mariadb: PathBuf,
    postgresql: PathBuf,
}

impl Loops {
    /// Builds them into a folder.
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

    /// The loop that runs a recording through the C library of the server of a protocol.
    pub fn library(&self, protocol: &str) -> Command {
        Command::new(match protocol {
            "postgresql" => &self.postgresql,
            _ => &self.mariadb,
        })
    }

    /// The loop that sends the bytes of a recording.
    pub fn bytes(&self, protocol: &str) -> Command {
        let mut command = Command::new(&self.bytes);
        command.arg(protocol);
        command
    }
}

/// The words that a program answers.
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

/// Runs a recording by one of the loops: messages in all, and what they cost.
pub fn run(
    mut command: Command,
    socket: &Path,
    recording: &Path,
    requests: u64,
) -> Outcome<(f64, Cost)> {
    let output = command.args([socket, recording]).output()?;
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
    let each = |us: f64| us / requests as f64;
    Ok((
        messages,
        Cost {
            user: each(user),
            system: each(system),
        },
    ))
}
