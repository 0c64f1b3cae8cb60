//! `rumbench durability`: kill tests from the command line.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rumbench_core::units;

use super::process::{Exit, command_line, print};
use super::run::{DurabilityArg, default_out};
use super::settings;
use crate::catalog::usage;
use crate::durability::parent::{self, KillTest};
use crate::durability::result::DurabilityResult;
use crate::report::table::{Format, Table};
use crate::run::interrupt::Interrupts;
use crate::run::plan::EngineChoice;
use crate::run::progress::say;
use crate::store::file;
use crate::text::{count, number};

/// Flags of `rumbench durability`.
#[derive(Debug, Args)]
pub struct DurabilityArgs {
    /// Engine, see `rumbench list engines`
    #[arg(long, value_name = "NAME[:VARIANT]")]
    engine: String,
    /// Meaning of an acknowledged commit
    #[arg(long, value_enum, default_value = "buffered")]
    durability: DurabilityArg,
    /// Number of times that the writing process is killed
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    kills: u32,
    /// Longest time of writing before a kill
    #[arg(long, default_value_t = 1.0, value_name = "TIME", value_parser = units::seconds)]
    seconds_per_kill: f64,
    /// Writing clients
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// Setting of the engine, or cache_bytes
    #[arg(long = "set", value_name = "[ENGINE.]KEY=VALUE")]
    sets: Vec<String>,
    /// Seed of the data written and of the times of the kills
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Make each kill a power loss: undo all writes that were not synced
    #[arg(long)]
    power_loss: bool,
    /// Result folder [default: rumbench-out/TIMESTAMP]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep the database even if nothing is wrong
    #[arg(long)]
    keep_data: bool,
    /// Print the result as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs a kill test.
///
/// # Errors
/// Usage errors, and every failure that prevents a result.
pub fn run(arguments: &DurabilityArgs) -> Result<Exit> {
    if !(0.01..=3600.0).contains(&arguments.seconds_per_kill) {
        return Err(usage("--seconds-per-kill must be from 0.01 to 3600"));
    }
    let (mut engines, sorted) = settings::sort(
        "linkbench",
        std::slice::from_ref(&arguments.engine),
        &[],
        &arguments.sets,
    )?;
    if let Some(key) = sorted.workload.keys().next() {
        return Err(usage(format!(
            "--set {key}: not a setting of durability tests; an engine's are ENGINE.KEY=VALUE"
        )));
    }
    settings::check(&engines, &sorted, arguments.durability.into(), "linkbench")?;
    let choice = engines.remove(0);
    if choice.engine == "null" {
        return Err(usage(
            "null keeps nothing; a durability test needs an engine that does",
        ));
    }
    if rumbench_engines::find(&choice.engine).is_ok_and(|found| found.entry.is_server) {
        check_server(&choice, arguments.power_loss)?;
    }
    let test = KillTest {
        choice,
        durability: arguments.durability.into(),
        kills: arguments.kills,
        seconds_per_kill: arguments.seconds_per_kill,
        clients: arguments.clients as usize,
        seed: arguments.seed,
        cache_bytes: sorted.cache_bytes,
        out: arguments.out.clone().unwrap_or_else(default_out),
        power_loss: arguments.power_loss,
        keep_data: arguments.keep_data,
        command: command_line(),
    };
    let interrupts = Interrupts::watch()?;
    let result = parent::run(&test, &interrupts)?;
    say(&format!(
        "results: {}",
        file::result_path(&test.out).display()
    ));
    if arguments.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&result)?))?;
    } else {
        print(&render(&result))?;
    }
    Ok(if result.violated() {
        Exit::Threshold
    } else if result.interrupted {
        Exit::Interrupted
    } else if result.errors.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

/// Rejects tests that a server does not support.
fn check_server(choice: &EngineChoice, power_loss: bool) -> Result<()> {
    if choice.settings.contains_key("address") {
        return Err(usage(
            "a durability test kills the server, which must be one that the laboratory has started: leave `address` out",
        ));
    }
    if power_loss {
        return Err(usage(
            "--power-loss is for engines in the laboratory's own process: what the processes of a server write \
             together cannot be taken back; test it without the flag",
        ));
    }
    Ok(())
}

fn render(result: &DurabilityResult) -> String {
    let title = match (&result.durability_facts, &result.power_loss) {
        (Some(facts), None) => format!(
            "A killed process keeps, by its own statement: {}",
            facts.process_kill
        ),
        (Some(facts), Some(_)) => format!(
            "A power loss leaves, by its own statement: {}",
            facts.power_cut
        ),
        (None, _) => "The engine was not opened".to_string(),
    };
    let mut table = Table::new(
        title,
        &[
            "engine",
            "kills",
            "commits acknowledged",
            "acknowledged lost",
            "seen lost",
            "order violations",
            "atomicity violations",
            "recovery p50 (ms)",
            "recovery max (ms)",
        ],
    );
    let whole = |n: u64| count(Some(n as f64));
    table.rows.push(vec![
        result.engine.clone(),
        whole(u64::from(result.kills)),
        whole(result.commits_acknowledged),
        whole(result.acknowledged_lost),
        whole(result.seen_lost),
        whole(result.order_violations),
        whole(result.atomicity_violations),
        number(Some(result.recovery_ms.p50)),
        number(Some(result.recovery_ms.max)),
    ]);
    for detail in result.violations.iter().take(10) {
        let text = serde_json::to_string(&detail.violation).unwrap_or_default();
        table
            .notes
            .push(format!("after kill {}: {text}", detail.after_kill));
    }
    if result.shows_commits_early {
        table.notes.push(
            "others may see a commit here before it is safe; one that was seen and lost breaks no promise".to_string(),
        );
    }
    if let Some(lost) = &result.power_loss {
        let (losses, writes, names) = (result.power_losses, lost.writes, lost.names);
        table.notes.push(format!(
            "{losses} power losses took back {writes} writes, whole or in part, and {names} changes of file names"
        ));
        table.notes.push(format!(
            "{} bytes written to files were seen, {} were not",
            lost.bytes_seen, lost.bytes_unseen
        ));
        let unseen = lost.unseen_files.iter();
        let notes = unseen.map(|file| format!("changed through a mapping, not seen: {file}"));
        table.notes.extend(notes);
    }
    table
        .notes
        .extend(result.errors.iter().map(|error| format!("error: {error}")));
    table.render(Format::Text)
}
