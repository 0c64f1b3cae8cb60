//! The parent of a kill test: starts the child, lets it write, kills it at a random moment,
//! reopens, judges, and repeats with the same data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rumbench_core::engine::Durability;

use super::child::{ChildSpec, Reopened, data_directory};
use super::judge::{FoundLink, Knowledge, Violation, judge};
use super::power::{Lost, PowerCut};
use super::result::{Detail, DurabilityResult, Recovery};
use super::script::{Script, mix};
use crate::measure::server::ServerProcesses;
use crate::measure::{environment, statistics};
use crate::run::interrupt::Interrupts;
use crate::run::placement::Placement;
use crate::run::plan::EngineChoice;
use crate::run::process::TrialProcess;
use crate::run::progress::say;
use crate::run::protocol::TrialSpec;
use crate::run::suite::timestamp;
use crate::store::file;
use crate::store::result::SCHEMA_PLAIN;

/// Maximum number of violations kept with details.
const MOST_DETAILS: usize = 1000;
/// Limit for the child to end after its server was killed; usually it ends sooner by itself.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(60);
/// Limit for opening after a kill; an engine that takes longer counts as hanging.
const LONGEST_RECOVERY: Duration = Duration::from_secs(600);

/// Parameters of a kill test.
#[derive(Debug, Clone)]
pub struct KillTest {
    /// Engine under test.
    pub choice: EngineChoice,
    /// Durability class of every commit.
    pub durability: Durability,
    /// Number of kills.
    pub kills: u32,
    /// Longest time between opening and killing, in seconds.
    pub seconds_per_kill: f64,
    /// Number of writing clients.
    pub clients: usize,
    /// Seed of scripts and kill moments.
    pub seed: u64,
    /// Size of the engine's cache.
    pub cache_bytes: u64,
    /// Result folder.
    pub out: PathBuf,
    /// True if each kill also simulates a power loss.
    pub power_loss: bool,
    /// True if the database is kept after the test.
    pub keep_data: bool,
    /// Command line, for the result.
    pub command: String,
}

/// Runs the test and returns its result; it is also saved in `out`.
///
/// # Errors
/// Fails if the folder cannot be used, or if the engine cannot be opened before the first kill.
pub fn run(test: &KillTest, interrupts: &Interrupts) -> Result<DurabilityResult> {
    file::prepare_directory(&test.out)?;
    let directory = data_directory(&test.out);
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let mut killer = Killer::new(test, &directory)?;
    for kill in 0..=test.kills {
        if interrupts.count() > 0 {
            killer.result.interrupted = true;
            break;
        }
        let last = kill == test.kills;
        if !killer.round(kill, last)? {
            break;
        }
        file::save(&test.out, &killer.result)?;
        if kill > 0 && (kill % 10 == 0 || last) {
            let result = &killer.result;
            say(&format!(
                "{} kills, {} commits acknowledged, {} lost, {} order, {} atomicity",
                result.kills,
                result.commits_acknowledged,
                result.acknowledged_lost,
                result.order_violations,
                result.atomicity_violations
            ));
        }
    }
    file::save(&test.out, &killer.result)?;
    if let Some(power) = &killer.power {
        power.remove();
    }
    if !test.keep_data && !killer.result.violated() && killer.result.errors.is_empty() {
        let _ = std::fs::remove_dir_all(test.out.join("data"));
    }
    Ok(killer.result)
}

struct Killer<'a> {
    test: &'a KillTest,
    spec: ChildSpec,
    power: Option<PowerCut>,
    /// Bytes received from the child since it started.
    heard: u64,
    knowledge: Vec<Knowledge>,
    recoveries_ms: Vec<f64>,
    result: DurabilityResult,
}

impl<'a> Killer<'a> {
    fn new(test: &'a KillTest, directory: &Path) -> Result<Killer<'a>> {
        let power = test.power_loss.then(|| PowerCut::new(directory));
        let power = power.transpose()?;
        let directory = power.as_ref().map_or(directory, PowerCut::root);
        let spec = ChildSpec {
            trial: TrialSpec {
                engine: test.choice.engine.clone(),
                variant: test.choice.variant.clone(),
                workload: "linkbench".to_string(),
                settings: BTreeMap::new(),
                engine_settings: test.choice.settings.clone(),
                seed: test.seed,
                durability: test.durability,
                clients: test.clients,
                cache_bytes: test.cache_bytes,
                rate: None,
                turnover: None,
                placement: Placement::Free,
                profile: false,
                stuck_after_s: None,
                directory: directory.to_path_buf(),
            },
            script_seed: test.seed,
        };
        let knowledge = (0..test.clients as u64)
            .map(|client| Knowledge {
                start: Script::new(test.seed, client),
                acknowledged: 0,
                seen: 0,
            })
            .collect();
        let result = DurabilityResult {
            schema_version: SCHEMA_PLAIN,
            rumbench_version: env!("CARGO_PKG_VERSION").to_string(),
            command: test.command.clone(),
            started_at: timestamp(),
            environment: environment::describe(&test.out),
            engine: test.choice.name(),
            engine_version: String::new(),
            configuration: BTreeMap::new(),
            durability: test.durability,
            durability_facts: None,
            shows_commits_early: false,
            seed: test.seed,
            clients: test.clients,
            kills: 0,
            power_losses: 0,
            commits_acknowledged: 0,
            acknowledged_lost: 0,
            seen_lost: 0,
            order_violations: 0,
            atomicity_violations: 0,
            recovery_ms: Recovery::default(),
            power_loss: power.as_ref().map(|_| Lost::default()),
            violations: Vec::new(),
            errors: Vec::new(),
            interrupted: false,
        };
        Ok(Killer {
            test,
            spec,
            power,
            heard: 0,
            knowledge,
            recoveries_ms: Vec::new(),
            result,
        })
    }

    /// Opens and judges; unless this is the last round, lets the child write and kills it. Returns
    /// true if the test can continue.
    fn round(&mut self, kill: u32, last: bool) -> Result<bool> {
        let environment = self.power.as_ref().map(PowerCut::environment);
        let environment = environment.into_iter().flatten();
        let mut process = TrialProcess::start_in("durability-child", &self.spec, environment)?;
        let reopened = match await_open(&process) {
            Ok((reopened, told)) => {
                self.heard = told;
                reopened
            }
            Err(error) => {
                process.kill();
                process.wait()?;
                if kill == 0 {
                    bail!("{} cannot be tested: {error:#}", self.result.engine);
                }
                self.result
                    .errors
                    .push(format!("after kill {kill}: {error:#}"));
                // A database that cannot be opened has lost every acknowledged commit.
                self.result.acknowledged_lost +=
                    self.knowledge.iter().map(|k| k.acknowledged).sum::<u64>();
                return Ok(false);
            }
        };
        let go_on = self.judge_all(kill, &reopened);
        if last || !go_on {
            process.send("END");
            if let Some(death) = process.wait()? {
                self.result
                    .errors
                    .push(format!("closing after kill {kill}: {death}"));
            }
            return Ok(false);
        }
        let victim = reopened.server.map(ServerProcesses::of);
        self.write_and_kill(process, victim, kill)?;
        Ok(true)
    }

    fn judge_all(&mut self, kill: u32, reopened: &Reopened) -> bool {
        self.result
            .engine_version
            .clone_from(&reopened.facts.version);
        self.result
            .configuration
            .clone_from(&reopened.facts.configuration);
        self.result.durability_facts = Some(reopened.facts.durability.clone());
        self.result.shows_commits_early = reopened.shows_early;
        if kill > 0 {
            self.recoveries_ms.push(reopened.recovery_ms);
            self.result.recovery_ms = Recovery {
                p50: statistics::median(&self.recoveries_ms).unwrap_or(0.0),
                max: self.recoveries_ms.iter().copied().fold(0.0, f64::max),
            };
        }
        let mut possible = true;
        for client in 0..self.knowledge.len() {
            let links: Vec<FoundLink> = reopened
                .links
                .iter()
                .filter(|link| link.client == client as u64)
                .copied()
                .collect();
            let (state, violations) = judge(&self.knowledge[client], &links);
            for violation in violations {
                self.note(kill, violation);
            }
            match state {
                Some(state) => {
                    let commits = state.commits;
                    self.knowledge[client] = Knowledge {
                        start: state,
                        acknowledged: commits,
                        seen: commits,
                    };
                }
                None => possible = false,
            }
        }
        if let Some(message) = totals_error(reopened) {
            self.note(kill, Violation::Atomicity { message });
            possible = false;
        }
        possible
    }

    fn note(&mut self, kill: u32, violation: Violation) {
        let result = &mut self.result;
        match &violation {
            Violation::AcknowledgedLost {
                acknowledged,
                present,
                ..
            } => {
                result.acknowledged_lost += acknowledged - present;
            }
            Violation::SeenLost { seen, present, .. } => result.seen_lost += seen - present,
            Violation::Order { .. } => result.order_violations += 1,
            Violation::Atomicity { .. } => result.atomicity_violations += 1,
        }
        if result.violations.len() < MOST_DETAILS {
            result.violations.push(Detail {
                after_kill: kill,
                violation,
            });
        }
    }

    /// Kills the child or its server. In the second case the child reports its last acknowledged
    /// commits, and ends.
    fn write_and_kill(
        &mut self,
        mut process: TrialProcess,
        server: Option<ServerProcesses>,
        kill: u32,
    ) -> Result<()> {
        let starts: Vec<String> = self
            .knowledge
            .iter()
            .map(|client| client.acknowledged.to_string())
            .collect();
        process.send(&format!("GO {}", starts.join(" ")));
        // Between 5 % and 100 % of the time, so that kills hit opening, first writes, flushes and
        // steady state.
        let share = mix(self.test.seed ^ 0x0D1E, u64::from(kill)) >> 11;
        let share = 0.05 + 0.95 * share as f64 / (1u64 << 53) as f64;
        let moment = Instant::now() + Duration::from_secs_f64(self.test.seconds_per_kill * share);
        let (mut killed, mut written) = (false, 0);
        loop {
            let left = if killed {
                LAST_WORDS_WITHIN
            } else {
                moment.saturating_duration_since(Instant::now())
            };
            match process.lines.recv_timeout(left) {
                Ok(line) => {
                    self.heard += line.len() as u64 + 1;
                    self.hear(&line, killed);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                // The kill closes the child's output, so that the next receive ends the loop.
                Err(RecvTimeoutError::Timeout) if killed => process.kill(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !killed && Instant::now() >= moment {
                written = process.bytes_written();
                match &server {
                    None => process.kill(),
                    Some(server) => server.kill().inspect_err(|_| process.kill())?,
                }
                killed = true;
            }
        }
        let death = process.wait()?;
        if !killed {
            let death = death.unwrap_or_else(|| "it ended by itself".to_string());
            self.result
                .errors
                .push(format!("before kill {}: {death}", kill + 1));
        }
        self.result.kills += 1;
        self.cut_power(kill, written)
    }

    /// Undoes writes that the dead child had not synced, if power losses are requested.
    fn cut_power(&mut self, kill: u32, written: u64) -> Result<()> {
        let Some(power) = &self.power else {
            return Ok(());
        };
        let seed = mix(self.test.seed ^ 0x90E2, u64::from(kill));
        let lost = power.strike(seed, written.saturating_sub(self.heard))?;
        self.result.power_losses += 1;
        if let Some(all) = &mut self.result.power_loss {
            all.add(lost);
        }
        Ok(())
    }

    /// Handles one line of a writing child. After the kill of a server its clients are expected to
    /// fail.
    fn hear(&mut self, line: &str, killed: bool) {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let mut numbers = words.map(|word| word.parse::<u64>().ok());
        match (kind, numbers.next().flatten(), numbers.next().flatten()) {
            ("A", Some(client), Some(sequence)) => {
                if let Some(known) = self.knowledge.get_mut(client as usize) {
                    known.acknowledged = sequence;
                    self.result.commits_acknowledged += 1;
                }
            }
            ("S", Some(client), Some(sequence)) => {
                if let Some(known) = self.knowledge.get_mut(client as usize) {
                    known.seen = known.seen.max(sequence);
                }
            }
            _ if kind == "ERROR" && !killed => self.result.errors.push(line.to_string()),
            // A line cut off by the kill, or output of an engine's library.
            _ => {}
        }
    }
}

/// Returns the error in the totals, if any: the engine's own check failed, or there are rows that
/// no client wrote.
fn totals_error(reopened: &Reopened) -> Option<String> {
    let visible = reopened
        .links
        .iter()
        .filter(|link| link.visibility == 1)
        .count() as u64;
    let all = reopened.links.len() as u64;
    match &reopened.check {
        Err(message) => Some(message.clone()),
        Ok(totals) if *totals != (all, visible) => Some(format!(
            "the tables hold {} links, {} of them visible, but the clients' links are {all} and {visible}",
            totals.0, totals.1
        )),
        Ok(_) => None,
    }
}

/// Waits until the child has opened the database; returns its report and the bytes received.
fn await_open(process: &TrialProcess) -> Result<(Reopened, u64)> {
    let deadline = Instant::now() + LONGEST_RECOVERY;
    let mut told = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match process.lines.recv_timeout(left) {
            Ok(line) => {
                told += line.len() as u64 + 1;
                if let Some(text) = line.strip_prefix("OPEN ") {
                    let reopened = serde_json::from_str(text);
                    return Ok((reopened.context("the child's answer is malformed")?, told));
                }
                say(&line);
            }
            Err(RecvTimeoutError::Timeout) => {
                bail!("opening took longer than {} s", LONGEST_RECOVERY.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the child process ended before the database was open; its message is above")
            }
        }
    }
}
