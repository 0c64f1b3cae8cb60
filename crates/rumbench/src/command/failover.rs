//! `rumbench failover`: the loss of a primary from the command line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rumbench_core::units;
use rumbench_engines::registry::replicated_products;
use rumbench_engines::replication::{Mode, Product};

use super::process::{Exit, command_line, print};
use super::run::default_out;
use crate::catalog::usage;
use crate::durability::script::mix;
use crate::failover::result::{FailoverResult, ModeResult};
use crate::failover::round::{self, Bytes, Plan};
use crate::measure::environment;
use crate::report::table::Format;
use crate::run::interrupt::Interrupts;
use crate::run::progress::say;
use crate::run::suite::timestamp;
use crate::store::file;
use crate::store::result::SCHEMA_PLAIN;
use crate::text::and;

/// Flags of `rumbench failover`.
#[derive(Debug, Args)]
pub struct FailoverArgs {
    /// Product, repeatable: postgresql, mariadb-innodb, mariadb-rocksdb or mariadb-alluvium
    /// [default: those of this build]
    #[arg(long = "engine", value_name = "NAME")]
    engines: Vec<String>,
    /// Mode of a product, repeatable, such as after-sync or remote-apply [default: all]
    #[arg(long = "mode", value_name = "MODE")]
    modes: Vec<String>,
    /// Rounds of each mode
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Round trip between primary and replica
    #[arg(long, default_value_t = 0.002, value_name = "TIME", value_parser = units::seconds)]
    round_trip: f64,
    /// Fate of the bytes under way when the primary is lost
    #[arg(long, value_enum, default_value = "cut")]
    bytes: Bytes,
    /// Time that the primary lives without its network before it loses its power
    #[arg(long, default_value_t = 0.0, value_name = "TIME", value_parser = units::seconds)]
    isolated: f64,
    /// Writing clients
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=48))]
    writers: u32,
    /// Longest time of load before the loss
    #[arg(long, default_value_t = 1.0, value_name = "TIME", value_parser = units::seconds)]
    seconds_per_round: f64,
    /// Seed of the times of the losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Result folder [default: rumbench-out/TIMESTAMP]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the result as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs failovers.
///
/// # Errors
/// Usage errors, and every failure that prevents a result.
pub fn run(arguments: &FailoverArgs) -> Result<Exit> {
    // A login takes many round trips, and a semi-synchronous primary waits for ten seconds.
    if !(0.0..=2.0).contains(&arguments.round_trip) {
        return Err(usage("--round-trip must be from 0 to 2 s"));
    }
    if !(0.0..=5.0).contains(&arguments.isolated) {
        return Err(usage("--isolated must be from 0 to 5 s"));
    }
    if arguments.isolated > 0.0 && arguments.bytes == Bytes::Drained {
        return Err(usage("--isolated needs --bytes cut: it cuts the network"));
    }
    if !(0.05..=600.0).contains(&arguments.seconds_per_round) {
        return Err(usage("--seconds-per-round must be from 0.05 to 600 s"));
    }
    let choices = choices(arguments)?;
    let out = arguments.out.clone().unwrap_or_else(default_out);
    let interrupts = Interrupts::watch()?;
    let result = measure(arguments, &choices, &out, &interrupts)?;
    say(&format!("results: {}", file::result_path(&out).display()));
    if arguments.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&result)?))?;
    } else {
        print(&result.table().render(Format::Text))?;
    }
    Ok(if result.violated() {
        Exit::Threshold
    } else if result.interrupted {
        Exit::Interrupted
    } else if !result.modes.iter().all(ModeResult::is_complete) {
        Exit::Failed
    } else {
        Exit::Done
    })
}

/// Product and its chosen modes.
type Choice = (Box<dyn Product>, Vec<Mode>);

fn choices(arguments: &FailoverArgs) -> Result<Vec<Choice>> {
    let all = replicated_products();
    let names: Vec<String> = all
        .iter()
        .map(|product| product.name().to_string())
        .collect();
    let unknown = |name: &&String| !names.contains(name);
    if let Some(name) = arguments.engines.iter().find(unknown) {
        return Err(usage(format!(
            "--engine {name}: failovers are measured with {}",
            match &names[..] {
                [] =>
                    "none of the engines of this build; build it with --features mariadb,postgresql"
                        .to_string(),
                names => and(names),
            }
        )));
    }
    let chosen = |name: &str| {
        arguments.engines.is_empty() || arguments.engines.iter().any(|asked| asked == name)
    };
    let mut choices: Vec<Choice> = all
        .into_iter()
        .filter(|product| chosen(product.name()))
        .map(|product| {
            let wanted = |mode: &&Mode| {
                arguments.modes.is_empty() || arguments.modes.iter().any(|name| name == mode.name)
            };
            let modes = product.modes().iter().filter(wanted).copied().collect();
            (product, modes)
        })
        .collect();
    let modes = choices.iter().flat_map(|(product, _)| product.modes());
    let modes: BTreeSet<&str> = modes.map(|mode| mode.name).collect();
    let unknown = |name: &&String| !modes.contains(name.as_str());
    if let Some(name) = arguments.modes.iter().find(unknown) {
        let modes: Vec<String> = modes.into_iter().map(String::from).collect();
        return Err(usage(format!(
            "--mode {name}: the modes are {}",
            and(&modes)
        )));
    }
    choices.retain(|(_, modes)| !modes.is_empty());
    if choices.is_empty() {
        return Err(usage(
            "no engine of this build has a replica; build it with --features mariadb,postgresql",
        ));
    }
    Ok(choices)
}

fn measure(
    arguments: &FailoverArgs,
    choices: &[Choice],
    out: &Path,
    interrupts: &Interrupts,
) -> Result<FailoverResult> {
    file::prepare_directory(out)?;
    let data = out.join("data");
    std::fs::create_dir_all(&data).with_context(|| format!("cannot create {}", data.display()))?;
    let mut result = FailoverResult {
        schema_version: SCHEMA_PLAIN,
        rumbench_version: env!("CARGO_PKG_VERSION").to_string(),
        command: command_line(),
        started_at: timestamp(),
        environment: environment::describe(out),
        round_trip_ms: arguments.round_trip * 1e3,
        isolated_ms: arguments.isolated * 1e3,
        bytes: arguments.bytes,
        writers: arguments.writers as usize,
        seed: arguments.seed,
        modes: Vec::new(),
        interrupted: false,
    };
    for (product, modes) in choices {
        if interrupts.count() > 0 {
            break;
        }
        let template = data.join(product.name());
        let prepared = std::fs::create_dir(&template)
            .with_context(|| format!("cannot create {}", template.display()))
            .and_then(|()| Ok(product.prepare(&template)?));
        for mode in modes {
            let plan = Plan {
                product: product.as_ref(),
                mode,
                template: &template,
                dir: &data.join("round"),
                round_trip: Duration::from_secs_f64(arguments.round_trip),
                bytes: arguments.bytes,
                writers: arguments.writers as usize,
                load: Duration::ZERO,
                isolated: Duration::from_secs_f64(arguments.isolated),
                interrupts,
            };
            let mut found = ModeResult::new(product.name(), mode.name, mode.promise);
            match &prepared {
                Ok(()) => rounds(arguments, &plan, result.modes.len(), &mut found),
                Err(error) => found.errors.push(format!("{error:#}")),
            }
            result.modes.push(found);
            file::save(out, &result)?;
        }
        // Kept with the result if it cannot be removed.
        let _ = std::fs::remove_dir_all(&template);
    }
    result.interrupted = interrupts.count() > 0;
    file::save(out, &result)?;
    let _ = std::fs::remove_dir_all(&data);
    Ok(result)
}

/// Runs the rounds of a mode, up to an interruption.
fn rounds(arguments: &FailoverArgs, plan: &Plan<'_>, index: usize, mode: &mut ModeResult) {
    for number in 0..arguments.rounds {
        if plan.interrupts.count() > 0 {
            return;
        }
        let share = share(arguments.seed, index as u64, u64::from(number));
        let load = Duration::from_secs_f64(arguments.seconds_per_round * share);
        match round::run(&Plan { load, ..*plan }) {
            Ok(round) => mode.rounds.push(round),
            Err(_) if plan.interrupts.count() > 0 => return,
            Err(error) => mode.errors.push(format!("{error:#}")),
        }
        if (number + 1) % 10 == 0 || number + 1 == arguments.rounds {
            let (done, failed) = (mode.rounds.len(), mode.errors.len());
            say(&format!(
                "{} {}: {done} rounds, {failed} failed",
                mode.product, mode.mode
            ));
        }
    }
}

/// Returns the share of the longest time that a round takes, from a half to 1.
fn share(seed: u64, mode: u64, round: u64) -> f64 {
    let bits = mix(seed, mode << 32 | round);
    0.5 + (bits >> 12) as f64 / (1_u64 << 53) as f64
}
