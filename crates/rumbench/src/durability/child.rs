//! The process that is killed: opens the database, reports its contents, then writes until it is
//! killed.
//!
//! The child writes a commit's line to stdout after the commit returns, straight to the pipe. A
//! line that the parent has read is therefore an acknowledged commit, and a commit without a line
//! was at most in progress.
//!
//! For a server engine the parent kills the server. The child then continues until its connections
//! fail, and ends.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use rumbench_core::engine::{Engine, EngineError, EngineFacts, Schema};
use rumbench_core::linkbench::{Link, LinkConnection, LinkKey, LinkStore, TableTotals};
use serde::{Deserialize, Serialize};

use super::judge::FoundLink;
use super::script::{Action, Script, mix, payload, sequence_of};
use crate::run::client::error_chain;
use crate::run::protocol::TrialSpec;
use crate::run::trial::open_engine;

/// Milliseconds since the epoch of commit 0; a commit's time is this plus its number.
const FIRST_TIME: u64 = 1_600_000_000_000;
/// Number of retries after a conflict before it is an error.
const MOST_RETRIES: u32 = 10_000;

/// First message of the parent to the child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChildSpec {
    /// Engine, settings and directory.
    pub trial: TrialSpec,
    /// Seed of the scripts.
    pub script_seed: u64,
}

/// Report of the child after opening.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reopened {
    /// Milliseconds from before opening to the first answered read.
    pub recovery_ms: f64,
    /// The engine's facts.
    pub facts: EngineFacts,
    /// First process of a server, which is killed instead of the child; `None` for an embedded
    /// engine.
    pub server: Option<u32>,
    /// True if other connections may see a commit before it is durable.
    pub shows_early: bool,
    /// Every link of every client.
    pub links: Vec<FoundLink>,
    /// Link rows and visible links by the engine's own check; the error text if its tables do not
    /// match.
    pub check: Result<(u64, u64), String>,
}

/// Runs the child process.
///
/// # Errors
/// Fails if the database cannot be opened or read; the parent counts that against the engine.
pub fn child_main() -> Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let first = lines.next().context("stdin is empty")??;
    let spec: ChildSpec = serde_json::from_str(&first).context("stdin holds no specification")?;
    let start = Instant::now();
    let engine = open_engine(&spec.trial, Schema::LinkBench)?;
    let store = engine.link_store()?;
    let reopened = inspect(store.as_ref(), &spec, start, engine.as_ref())?;
    tell(&format!("OPEN {}", serde_json::to_string(&reopened)?));
    let answer = lines.next().context("the parent is gone")??;
    let Some(starts) = answer.strip_prefix("GO ") else {
        drop(store);
        return engine.close().context("cannot close");
    };
    let starts: Vec<u64> = starts
        .split(' ')
        .map_while(|text| text.parse().ok())
        .collect();
    drop(lines);
    // A child must not outlive its parent, so the end of stdin ends it.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(1);
    });
    write_until_killed(store.as_ref(), &spec, &starts)
}

/// Sends one line to the parent, in one write.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let text = format!("{line}\n");
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn inspect(
    store: &dyn LinkStore,
    spec: &ChildSpec,
    start: Instant,
    engine: &dyn Engine,
) -> Result<Reopened> {
    let mut connection = store.connect()?;
    let mut recovery_ms = None;
    let mut links = Vec::new();
    for client in 0..spec.trial.clients as u64 {
        for key in Script::keys(client) {
            let row = connection.read_link(key)?;
            recovery_ms.get_or_insert_with(|| start.elapsed().as_secs_f64() * 1e3);
            if let Some((visibility, _, _, data)) = row {
                links.push(FoundLink {
                    client,
                    key: (key.id1, key.link_type, key.id2),
                    visibility,
                    sequence: sequence_of(key, &data),
                });
            }
        }
    }
    let check = match connection.check() {
        Ok(TableTotals {
            links,
            visible_links,
            ..
        }) => Ok((links, visible_links)),
        Err(error) => Err(error_chain(&error)),
    };
    Ok(Reopened {
        recovery_ms: recovery_ms.unwrap_or(0.0),
        facts: engine.facts(),
        server: engine.server_process(),
        shows_early: engine.shows_commits_early(),
        links,
        check,
    })
}

/// Writes with all clients while a reader thread reports the commits that it sees. Returns only
/// after an error.
fn write_until_killed(store: &dyn LinkStore, spec: &ChildSpec, starts: &[u64]) -> Result<()> {
    let failed = AtomicBool::new(false);
    let failed = &failed;
    std::thread::scope(|scope| {
        for (client, &commits) in starts.iter().enumerate() {
            scope.spawn(move || {
                let outcome = write_client(store, spec.script_seed, client as u64, commits);
                if let Err(error) = outcome {
                    tell(&format!("ERROR client {client}: {}", error_chain(&error)));
                    failed.store(true, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(move || {
            if let Err(error) = read_others(store, spec, failed) {
                tell(&format!("ERROR reader: {}", error_chain(&error)));
            }
        });
    });
    Ok(())
}

fn write_client(
    store: &dyn LinkStore,
    seed: u64,
    client: u64,
    commits: u64,
) -> Result<(), EngineError> {
    let mut connection = store.connect()?;
    let mut script = Script::new(seed, client);
    while script.commits < commits {
        script.advance();
    }
    loop {
        commit(connection.as_mut(), &script)?;
        script.advance();
        tell(&format!("A {client} {}", script.commits));
    }
}

/// Performs the script's next commit and retries it after conflicts.
fn commit(connection: &mut dyn LinkConnection, script: &Script) -> Result<(), EngineError> {
    let next = script.next();
    let sequence = script.commits + 1;
    let time = FIRST_TIME + sequence;
    let data = payload(next.key, sequence);
    let link = Link {
        key: next.key,
        visibility: 1,
        time,
        version: 0,
        data: &data,
    };
    let mut retries = 0;
    loop {
        let outcome = match next.action {
            Action::Add => connection.add_link(&link),
            Action::Update => connection.update_link(&link),
            Action::Hide => connection.delete_link(next.key, time, false),
            Action::Expunge => connection.delete_link(next.key, time, true),
        };
        match outcome {
            Ok(_) => return Ok(()),
            Err(EngineError::Retry(_)) if retries < MOST_RETRIES => retries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Reads random links of all clients and reports the visible commits.
fn read_others(
    store: &dyn LinkStore,
    spec: &ChildSpec,
    failed: &AtomicBool,
) -> Result<(), EngineError> {
    let mut connection = store.connect()?;
    let clients = spec.trial.clients as u64;
    let mut newest = vec![0; spec.trial.clients];
    let keys: Vec<Vec<LinkKey>> = (0..clients)
        .map(|client| Script::keys(client).collect())
        .collect();
    for place in 0.. {
        if failed.load(Ordering::Relaxed) {
            break;
        }
        let random = mix(spec.script_seed ^ 0x5EE5, place);
        let client = (random % clients) as usize;
        let key = keys[client][(random >> 32) as usize % keys[client].len()];
        let row = connection.read_link(key)?;
        let sequence = row.and_then(|(_, _, _, data)| sequence_of(key, &data));
        if let Some(sequence) = sequence.filter(|&sequence| sequence > newest[client]) {
            newest[client] = sequence;
            tell(&format!("S {client} {sequence}"));
        }
        // The reader is a witness, not a load.
        std::thread::yield_now();
    }
    Ok(())
}

/// Returns the database directory of a kill test.
pub fn data_directory(out: &std::path::Path) -> PathBuf {
    out.join("data").join("durability")
}
