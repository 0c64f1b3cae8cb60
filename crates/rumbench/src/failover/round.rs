//! One round: two servers, load, loss of the primary, promotion of the replica, judgment.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rumbench_engines::replication::{Client, Mode, Node, Product, Role, TABLE};
use serde::{Deserialize, Serialize};

use super::clients::{Clients, Told, insert};
use super::judge::{Judgment, List, judge};
use super::relay::{Probe, Relay};
use crate::run::interrupt::Interrupts;

/// Limit for the replica to connect.
const PROTECTED_WITHIN: Duration = Duration::from_secs(60);
/// Least commits of each writer before the loss, on average.
const COMMITS_MIN: u64 = 1;
/// Limit for these commits.
const COMMITS_WITHIN: Duration = Duration::from_secs(300);
/// Interval between looks at the protection.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Fate of the bytes under way when the primary is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Bytes {
    /// They are lost with the primary
    Cut,
    /// They still arrive
    Drained,
}

/// Parameters of a round.
pub struct Plan<'a> {
    pub product: &'a dyn Product,
    pub mode: &'a Mode,
    /// Folder that both servers begin with.
    pub template: &'a Path,
    /// Folder of the round; it must not exist.
    pub dir: &'a Path,
    pub round_trip: Duration,
    pub bytes: Bytes,
    pub writers: usize,
    /// Time of the load before the loss.
    pub load: Duration,
    /// Time between the cut of the network and the loss of power.
    pub isolated: Duration,
    /// Ends the round at its next look at the servers.
    pub interrupts: &'a Interrupts,
}

/// Parts of the time from the loss to the first commit on the new primary, in milliseconds.
/// The loss itself is known at once: how a product detects it is not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The replica applies what it has received; `None`: as a part of its promotion.
    pub drain_ms: Option<f64>,
    pub promote_ms: f64,
    /// A client connects and commits.
    pub commit_ms: f64,
}

impl Times {
    /// Returns the whole time.
    pub fn total_ms(&self) -> f64 {
        self.drain_ms.unwrap_or(0.0) + self.promote_ms + self.commit_ms
    }
}

/// Result of a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Version of the servers.
    pub version: String,
    pub judgment: Judgment,
    /// Commits that were provably visible on the replica before they were on the primary.
    pub replica_first: u64,
    pub times: Times,
    /// The primary's words where it no longer protected its commits; such a round is no evidence.
    pub fell_back: Option<String>,
    /// Median and 99th percentile of the round trips, in milliseconds.
    pub round_trip_ms: [f64; 2],
    /// The relay held its delay.
    pub delay_holds: bool,
}

/// Runs a round and removes its folder.
///
/// # Errors
/// If a server does not start, replicate or take over, in its own words.
pub fn run(plan: &Plan<'_>) -> Result<Round> {
    let result = servers(plan);
    // A folder that cannot be removed is found by the next round.
    let _ = std::fs::remove_dir_all(plan.dir);
    result
}

fn servers(plan: &Plan<'_>) -> Result<Round> {
    let place = |name: &str| -> Result<_> {
        let to = plan.dir.join(name);
        copy(plan.template, &to)?;
        Ok(to)
    };
    std::fs::create_dir(plan.dir)
        .with_context(|| format!("cannot create {}", plan.dir.display()))?;
    let (first, second) = (place("primary")?, place("replica")?);
    let mut primary = plan.product.start(&first, Role::Primary, plan.mode)?;
    let relay = Relay::start(primary.port(), plan.round_trip).context("cannot start a relay")?;
    let follows = Role::Replica(relay.port());
    let mut replica = plan.product.start(&second, follows, plan.mode)?;
    wait_for_protection(primary.as_ref())?;
    let round = lose(plan, primary.as_mut(), &relay, replica.as_mut());
    // Nothing of it is needed any more.
    replica.lose_power();
    round
}

/// Copies a folder with the owners of its files.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from).arg(to);
    // An interrupted round ends by itself.
    command.process_group(0);
    let output = command.output().context("cannot run cp")?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("cannot copy {}: {}", from.display(), words.trim());
    }
    Ok(())
}

fn wait_for_protection(primary: &dyn Node) -> Result<()> {
    let start = Instant::now();
    loop {
        let protection = primary.protection()?;
        if protection.is_active {
            return Ok(());
        }
        if start.elapsed() > PROTECTED_WITHIN {
            let seconds = PROTECTED_WITHIN.as_secs();
            bail!("no protection within {seconds} s: {}", protection.words);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Runs the load, ends the primary and promotes the replica.
fn lose(
    plan: &Plan<'_>,
    primary: &mut dyn Node,
    relay: &Relay,
    replica: &mut dyn Node,
) -> Result<Round> {
    let clients = Clients::start(plan.writers, primary, replica)?;
    // The clients end with their servers if this fails.
    let probe = Probe::start(plan.round_trip).context("cannot start a relay")?;
    let watched = watch(plan, primary, &clients);
    if plan.bytes == Bytes::Cut {
        relay.cut();
        thread::sleep(plan.isolated);
    }
    let lost = Instant::now();
    primary.lose_power();
    clients.stop();
    let fell_back = watched?;
    if plan.bytes == Bytes::Drained {
        relay.wait_until_delivered()?;
    }
    let (times, found) = take_over(plan, replica, lost)?;
    let told = clients.finish()?;
    let early = told.failures.iter().find(|failure| failure.at < lost);
    if let Some(failure) = early {
        bail!("a client failed before the loss: {}", failure.error);
    }
    let round_trips = probe.finish().context("a relay broke")?;
    Ok(Round {
        version: replica.version()?,
        judgment: judge(&lists(&told), &found),
        replica_first: replica_first(&told),
        times,
        fell_back,
        round_trip_ms: [round_trips.p50, round_trips.p99].map(ms),
        delay_holds: round_trips.hold(plan.round_trip),
    })
}

/// Looks at the protection during the load. Returns the words of the primary where it was given up.
fn watch(plan: &Plan<'_>, primary: &dyn Node, clients: &Clients) -> Result<Option<String>> {
    let start = Instant::now();
    loop {
        let protection = primary.protection()?;
        if !protection.is_active {
            return Ok(Some(protection.words));
        }
        if plan.interrupts.count() > 0 {
            bail!("interrupted");
        }
        let left = plan.load.saturating_sub(start.elapsed());
        let has_commits = clients.acknowledged() >= COMMITS_MIN * plan.writers as u64;
        if left.is_zero() && has_commits {
            return Ok(None);
        }
        if start.elapsed() > plan.load + COMMITS_WITHIN {
            bail!("only {} commits", clients.acknowledged());
        }
        thread::sleep(left.clamp(Duration::from_millis(1), LOOK_EVERY));
    }
}

/// Promotes the replica and reads its rows.
fn take_over(
    plan: &Plan<'_>,
    replica: &dyn Node,
    lost: Instant,
) -> Result<(Times, BTreeSet<(usize, u64)>)> {
    let drains = replica.drain()?;
    let drained = if drains {
        lost.elapsed()
    } else {
        Duration::ZERO
    };
    replica.promote()?;
    let promoted = lost.elapsed();
    let mut client = replica.connect()?;
    // A writer of its own.
    client.execute(&insert(plan.writers, 1))?;
    let committed = lost.elapsed();
    let times = Times {
        drain_ms: drains.then_some(ms(drained)),
        promote_ms: ms(promoted - drained),
        commit_ms: ms(committed - promoted),
    };
    Ok((times, rows(client.as_mut(), plan.writers)?))
}

/// Returns the rows of the writers of the load.
fn rows(client: &mut dyn Client, writers: usize) -> Result<BTreeSet<(usize, u64)>> {
    let query = format!("SELECT writer, number FROM {TABLE} WHERE writer <> {writers}");
    let rows = client.execute(&query)?;
    let row = |row: &Vec<String>| match &row[..] {
        [writer, number] => Ok((writer.parse()?, number.parse()?)),
        other => bail!("a row of {} columns", other.len()),
    };
    rows.iter().map(row).collect()
}

/// Returns the lists of the judge.
fn lists(told: &Told) -> Vec<List> {
    let writers = told.written.iter().zip(&told.on_primary);
    writers
        .map(|(written, sight)| List {
            acknowledged: written.acknowledged,
            tried: written.tried,
            seen: sight.number(),
        })
        .collect()
}

fn replica_first(told: &Told) -> u64 {
    let writers = told.on_replica.iter().zip(&told.on_primary);
    writers
        .map(|(replica, primary)| replica.seen_before(primary))
        .sum()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
