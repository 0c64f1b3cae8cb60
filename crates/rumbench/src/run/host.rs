//! Another build of the laboratory that runs trials: asks it for its identity and for its ability
//! to run a trial.
//!
//! A host reads a trial's specification on stdin and answers `trial-check` with one line of JSON.
//! Its answer about its engine, settings and workload counts, because a host may have engines and
//! settings that this build lacks. Both must speak the same version of the protocol and do the same
//! operations.

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
/// Timeout for the answer; a host opens nothing, so it answers at once or never.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum length of an answer in bytes.
const ANSWER_BYTES: u64 = 1 << 20;

/// Answer of a host: its identity and its ability to run one trial.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Answer {
    protocol: u32,
    rumbench_version: String,
    commit: String,
    compiler: String,
    compiler_flags: String,
    workload_version: u32,
    /// Reason why the host cannot run the trial.
    error: Option<String>,
}

/// Reads a specification and answers it; this is the host's side.
///
/// # Errors
/// When stdin cannot be read. The answer reports all other errors.
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

/// Checks that this build can run the trial and returns the version of its workload.
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

/// Asks the build at `host.path` if it can run a trial, and fills in its identity.
///
/// # Errors
/// A usage error that names the host. Possible reasons:
///
/// - The host is missing, cannot be started, dies, or does not answer.
/// - It speaks another version of the protocol, or does other operations.
/// - It cannot run the trial for a reason of its own.
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

/// Returns the output of the host, or a description of the failure.
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
        // A host that does not read its stdin is judged by its answer.
        let _ = writeln!(stdin, "{line}");
    }
    let text = answer_of(&mut child);
    // Kills a host that is still running; for one that has exited the call has no effect.
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

/// Returns the whole output of a child, or None after the timeout.
fn answer_of(child: &mut Child) -> Option<String> {
    let stdout = child.stdout.take()?;
    let (sender, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(ANSWER_BYTES).read_to_string(&mut text);
        // The receiver may have timed out.
        let _ = sender.send(read.map(|_| text).unwrap_or_default());
    });
    answer.recv_timeout(PATIENCE).ok()
}
