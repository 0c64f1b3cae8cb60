//! Another build of the laboratory as the process of trials: asking it what it is and whether it can run a trial.
//!
//! A host answers `trial-check` with one line of JSON to a trial's specification on its stdin. What it says of its engine, its settings
//! and its workload counts, not what this build knows: a host may have engines and settings that this build lacks. Both must
//! speak the same version of the protocol and do the same operations.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use rumbench_core::engine::OpenConfig;
use serde::{Deserialize, Serialize};

use super::protocol::{PROTOCOL, TrialSpec};
use crate::catalog::{self, usage};
use crate::store::result::Host;

/// The hidden command that a host answers.
pub const COMMAND: &str = "trial-check";
/// A host that has not answered by then never will: it opens nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest answer that is read.
const ANSWER_BYTES: u64 = 1 << 20;

/// What a host says of itself and of a trial.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Answer {
    protocol: u32,
    rumbench_version: String,
    commit: String,
    compiler: String,
    compiler_flags: String,
    workload_version: u32,
    /// Why it cannot run the trial.
    error: Option<String>,
}

/// The host's side: reads a specification and answers.
///
/// # Errors
/// When stdin cannot be read; all else is part of the answer.
pub fn answer() -> Result<String> {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .context("cannot read the trial's specification")?;
    let mut answer = Answer {
        protocol: PROTOCOL,
        rumbench_version: env!("CARGO_PKG_VERSION").to_string(),
        commit: env!("RUMBENCH_COMMIT").to_string(),
        compiler: env!("RUMBENCH_RUSTC").to_string(),
        compiler_flags: env!("RUMBENCH_FLAGS").to_string(),
        ..Answer::default()
    };
    let spec = serde_json::from_str(&line).context("it does not understand the specification");
    match spec.and_then(|spec| check(&spec)) {
        Ok(version) => answer.workload_version = version,
        Err(error) => answer.error = Some(format!("{error:#}")),
    }
    Ok(serde_json::to_string(&answer)?)
}

/// Whether this build can run the trial; the version of its workload.
fn check(spec: &TrialSpec) -> Result<u32> {
    let workload = catalog::workload(&spec.workload, &spec.settings, spec.seed)?;
    let found = rumbench_engines::find(&spec.engine_name())?;
    found.entry.check(&OpenConfig {
        dir: PathBuf::new(),
        schema: workload.schema(),
        variant: spec.variant.clone(),
        cache_bytes: spec.cache_bytes,
        durability: spec.durability,
        clients: spec.clients,
        settings: spec.engine_settings.clone(),
    })?;
    Ok(workload.identity().1)
}

/// Asks the build at `host.path` whether it can run a trial, and fills in what it says of itself.
///
/// # Errors
/// A usage error that names the host: it is missing, cannot be started, dies, does not answer, speaks another version of the protocol, does
/// other operations, or cannot run the trial for a reason of its own.
pub fn ask(host: &mut Host, spec: &TrialSpec) -> Result<()> {
    let named = match host.name.as_str() {
        "" => format!("--host {}", host.path),
        name => format!("--host {name}={}", host.path),
    };
    let refused = |why: String| usage(format!("{named}: {why}"));
    let text = conversation(Path::new(&host.path), spec).map_err(&refused)?;
    let last = text.lines().last().unwrap_or_default();
    let answer: Answer = serde_json::from_str(last)
        .ok()
        .filter(|answer: &Answer| answer.protocol > 0)
        .ok_or_else(|| refused(format!("it gave no answer to `{COMMAND}`; {FOREIGN}")))?;
    if answer.protocol != PROTOCOL {
        return Err(refused(format!(
            "it speaks version {} of the protocol between laboratory and trial, this build version {PROTOCOL}; build both from commits with the same",
            answer.protocol
        )));
    }
    if let Some(error) = answer.error {
        return Err(refused(format!(
            "it cannot run {}: {error}",
            spec.engine_name()
        )));
    }
    let own = catalog::workload(&spec.workload, &spec.settings, spec.seed)?.identity();
    if own.1 != answer.workload_version {
        return Err(refused(format!(
            "its {} has version {}, this build's {}: they do other operations",
            own.0, answer.workload_version, own.1
        )));
    }
    host.rumbench_version = answer.rumbench_version;
    host.commit = answer.commit;
    host.compiler = answer.compiler;
    host.compiler_flags = answer.compiler_flags;
    Ok(())
}

const FOREIGN: &str = "is it a rumbench, built from a commit that can be a host?";

/// What the host prints, or what went wrong in words.
fn conversation(path: &Path, spec: &TrialSpec) -> Result<String, String> {
    if !path.is_file() {
        return Err("no such file".to_string());
    }
    let line = serde_json::to_string(spec).map_err(|error| error.to_string())?;
    let mut child = Command::new(path)
        .arg(COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start it: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read is judged by what it answers.
        let _ = writeln!(stdin, "{line}");
    }
    let text = answer_of(&mut child);
    // Ends one that goes on; of one that ended nothing is left to kill.
    let killed = text.is_none() && child.kill().is_ok();
    let status = child.wait().map_err(|error| error.to_string())?;
    match text {
        None if killed => Err(format!(
            "it did not answer within {} s; {FOREIGN}",
            PATIENCE.as_secs()
        )),
        Some(text) if status.success() => Ok(text),
        _ => Err(format!("it ended with {status}; {FOREIGN}")),
    }
}

/// Everything that a child prints, or nothing where it takes too long.
fn answer_of(child: &mut Child) -> Option<String> {
    let stdout = child.stdout.take()?;
    let (sender, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(ANSWER_BYTES).read_to_string(&mut text);
        // Whoever asked may have lost patience.
        let _ = sender.send(read.map(|_| text).unwrap_or_default());
    });
    answer.recv_timeout(PATIENCE).ok()
}
