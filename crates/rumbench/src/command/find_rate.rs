//! `rumbench find-rate`: finds the highest rate within response time limits, and measures response
//! times at a share of it.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rumbench_core::names::unknown;
use rumbench_core::units;

use super::process::{Exit, command_line};
use super::run::{DurabilityArg, PrintArgs, check, default_out, named, run_suite};
use super::{settings, sweep};
use crate::catalog::{self, usage};
use crate::run::pacing::Arrivals;
use crate::run::placement::Placement;
use crate::run::plan::{Point, STUCK_AFTER_S, Suite};
use crate::run::search::Search;
use crate::run::search::sla::Condition;

/// Flags of `rumbench find-rate`.
#[derive(Debug, Args)]
pub struct FindRateArgs {
    /// Workload, see `rumbench list workloads`, or the file of a custom one
    workload: String,
    /// Engine, see `rumbench list engines`; repeat it to compare
    #[arg(long = "engine", value_name = "NAME[:VARIANT][@HOST]", required = true)]
    engines: Vec<String>,
    /// Limit of response times, for example p99=5ms; FIGURE is mean, p50, p95, p99, p99.9, p99.99
    /// or max, LIMIT ends with us, ms or s; repeat it for several
    #[arg(long = "sla", value_name = "[OPERATION.]FIGURE=LIMIT", required = true)]
    conditions: Vec<String>,
    /// Phase that is judged [default: the last one with requests]
    #[arg(long)]
    phase: Option<String>,
    /// Largest gap in percent between the highest passing and the lowest failing rate
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    precision: f64,
    /// Percent of the highest rate at which response times are reported
    #[arg(long, value_name = "PERCENT", default_value_t = 70.0)]
    share: f64,
    /// Setting of the workload or of one engine
    #[arg(long = "set", value_name = "[ENGINE.]KEY=VALUE")]
    sets: Vec<String>,
    /// Trials at each rate; more than half of them have to meet the limits
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Seed of the first repetition
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Meaning of an acknowledged commit
    #[arg(long, value_enum, default_value = "buffered")]
    durability: DurabilityArg,
    /// Limit the memory of a whole trial, page cache included and the laboratory's own memory
    /// excluded, with a control group of the kernel
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    memory: Option<u64>,
    /// Cores for client and engine threads
    #[arg(long, value_enum, default_value = "free")]
    placement: Placement,
    /// End a trial if no request completes for this long: its engine or server is stuck
    #[arg(long, value_name = "TIME", default_value_t = STUCK_AFTER_S, value_parser = units::whole_seconds)]
    stuck_after: u64,
    /// Another build of rumbench that runs the trials
    #[arg(long = "host", value_name = "[NAME=]BINARY")]
    hosts: Vec<String>,
    /// An options file of the engine that replaces its configuration here; RocksDB takes one
    #[arg(long = "options-file", value_name = "ENGINE=FILE")]
    options_files: Vec<String>,
    /// Result folder [default: rumbench-out/TIMESTAMP]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not add the result to the results store
    #[arg(long)]
    no_store: bool,
    #[command(flatten)]
    print: PrintArgs,
}

/// Searches for the highest rate and prints the result.
///
/// # Errors
/// Usage errors, and every failure that prevents a result.
pub fn run(arguments: &FindRateArgs) -> Result<Exit> {
    let mut search = search(arguments)?;
    let (workload, definition) = named(&arguments.workload)?;
    let mut sets = arguments.sets.clone();
    sets.extend(definition.map(|text| format!("{}={text}", catalog::DEFINITION)));
    let hosts = settings::hosts(&arguments.hosts)?;
    let mut points = sweep::points(
        sweep::Common {
            hosts: &hosts,
            workload: &workload,
            engines: &arguments.engines,
            sets: &sets,
            files: &arguments.options_files,
            durability: arguments.durability.into(),
            memory: arguments.memory,
        },
        None,
    )?;
    for point in &mut points {
        search.phase = judged(&workload, point, arguments.phase.as_deref())?;
    }
    let mut suite = Suite {
        search: Some(search),
        base: arguments.print.base.clone(),
        repeat: arguments.repeat,
        seed: arguments.seed,
        durability: arguments.durability.into(),
        placement: arguments.placement,
        stuck_after_s: arguments.stuck_after,
        out: arguments.out.clone().unwrap_or_else(default_out),
        mix_durability: arguments.print.mix_durability,
        no_store: arguments.no_store,
        command: command_line(),
        ..Suite::plain(&workload, points)
    };
    check(&mut suite)?;
    run_suite(&suite, &arguments.print)
}

/// Builds the search from the flags; its phase is filled in later.
fn search(arguments: &FindRateArgs) -> Result<Search> {
    let percent = |flag: &str, value: f64, low: f64, high: f64| {
        if (low..=high).contains(&value) {
            Ok(value / 100.0)
        } else {
            Err(usage(format!(
                "{flag} {value}: must be from {low} to {high} percent"
            )))
        }
    };
    let conditions = arguments.conditions.iter();
    let conditions = conditions.map(|text| Condition::parse(text));
    if let Some(set) = arguments.sets.iter().find(|set| set.starts_with("rate=")) {
        return Err(usage(format!(
            "--set {set}: the rate is what find-rate looks for; `rumbench run` takes one"
        )));
    }
    let arrivals = arguments
        .sets
        .iter()
        .find_map(|set| set.strip_prefix("arrivals="));
    let arrivals = arrivals.map(|text| text.parse().map_err(|error| usage(format!("{error}"))));
    Ok(Search {
        conditions: conditions.collect::<Result<Vec<_>>>()?,
        // Filled in when the workload is known.
        phase: String::new(),
        precision: percent("--precision", arguments.precision, 1.0, 100.0)?,
        share: percent("--share", arguments.share, 1.0, 100.0)?,
        arrivals: arrivals.transpose()?.unwrap_or(Arrivals::Even),
    })
}

/// Returns the phase to judge, before anything runs: the named one, or the last one with a rate.
fn judged(workload: &str, point: &mut Point, wanted: Option<&str>) -> Result<String> {
    let paced = catalog::paced_phases(workload, &mut point.settings)?;
    let Some(last) = paced.last() else {
        return Err(sweep::no_paced_phase(workload));
    };
    let known: Vec<&str> = paced.iter().map(String::as_str).collect();
    match wanted {
        None => Ok(last.clone()),
        Some(wanted) if known.contains(&wanted) => Ok(wanted.to_string()),
        Some(wanted) => Err(usage(format!(
            "--phase: {}",
            unknown("phase with a rate", wanted, &known)
        ))),
    }
}
