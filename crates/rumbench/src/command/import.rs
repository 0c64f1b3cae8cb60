//! `rumbench import`: imports results of other programs as a result folder, alone or together with
//! our trials.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use super::process::{Exit, command_line, print};
use super::run::{DurabilityArg, PrintArgs};
use crate::catalog::usage;
use crate::import::{self, Found, Program, Source};
use crate::report::spread;
use crate::run::progress::say;
use crate::run::suite::timestamp;
use crate::store::file;
use crate::store::result::{SuiteResult, TrialResult};

/// Flags of `rumbench import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Program that wrote the files
    #[arg(value_enum)]
    program: Program,
    /// Files, with the step's name if a file does not contain it: with several files, each is one
    /// step, or one client of a step
    #[arg(value_name = "[STEP=]FILE", required = true)]
    files: Vec<String>,
    /// Name of the engine in tables; records of the Insert Benchmark have tags
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Clients of each step; 21-column records do not contain their number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    clients: Option<u16>,
    /// Result folder of one of our suites; its trials come first, and it is not changed
    #[arg(long, value_name = "DIR")]
    with: Option<PathBuf>,
    /// Durability class nearest to the program's commits
    #[arg(long, value_enum, default_value = "buffered")]
    durability: DurabilityArg,
    /// Result folder
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    print: PrintArgs,
}

/// Imports the files, writes a result and prints it.
///
/// # Errors
/// Usage errors with file and reason; fails if the folder cannot be used.
pub fn run(arguments: &ImportArgs) -> Result<Exit> {
    let sources: Vec<Source> = arguments
        .files
        .iter()
        .map(|text| source(text))
        .collect::<Result<_>>()?;
    let is_of_records = arguments.program == Program::Iibench;
    if arguments.clients.is_some() && !is_of_records {
        return Err(usage(format!(
            "--clients: what {} prints says how many there were; leave it out",
            arguments.program.name()
        )));
    }
    let clients = arguments.clients.map(usize::from);
    let found = import::read(arguments.program, &sources, clients)?;
    let mut result = base_result(arguments)?;
    let trials = named(found, arguments.engine.as_deref(), arguments.program)?;
    for (engine, found) in trials {
        if result.trials.iter().any(|trial| trial.name() == engine) {
            return Err(usage(format!(
                "there are trials of {engine} already; --engine gives the imported ones another name"
            )));
        }
        let durability = arguments.durability.into();
        let mut trial = import::trial(found, engine, arguments.program, &sources, durability);
        // The time of the run is not known: this is the time of the import.
        trial.started_at = timestamp();
        trial.ended_at = Some(trial.started_at.clone());
        result.trials.push(trial);
    }
    let base = arguments.print.base.clone();
    let first = result.trials.first().map(TrialResult::name);
    result.comparisons = spread::compare(&result.trials, &base.or(first).unwrap_or_default());
    result.schema_version = result.version();
    file::prepare_directory(&arguments.out)?;
    file::save(&arguments.out, &result)?;
    let shown = arguments.print.show(Some(&arguments.out), &result);
    let path = file::result_path(&arguments.out);
    say(&format!("results: {}", path.display()));
    shown?;
    if arguments.with.is_some() && !arguments.print.mix_durability && !arguments.print.json {
        print(
            "\nWhat imported commits survive is unknown, so they stand in tables of their own; --mix-durability puts them together.\n",
        )?;
    }
    Ok(Exit::Done)
}

/// Parses `[STEP=]FILE` and reads the file.
fn source(given: &str) -> Result<Source> {
    let (step, path) = match given.split_once('=') {
        // A path may contain an equals sign; a step contains no slash, and a path that exists as
        // given has no step.
        Some((step, path)) if !step.contains('/') && !Path::new(given).exists() => {
            (Some(step.to_string()), path)
        }
        _ => (None, given),
    };
    let text =
        std::fs::read(path).map_err(|error| usage(format!("cannot read {path}: {error}")))?;
    let name = Path::new(path).file_name();
    Ok(Source {
        step,
        file: name.map_or(path.to_string(), |name| name.to_string_lossy().into_owned()),
        text: String::from_utf8_lossy(&text).into_owned(),
    })
}

/// Returns the result to which the imported trials are added.
fn base_result(arguments: &ImportArgs) -> Result<SuiteResult> {
    let workload = arguments.program.workload();
    let Some(dir) = &arguments.with else {
        return Ok(SuiteResult::empty(workload, command_line(), timestamp()));
    };
    let mut result = file::load(dir).with_context(|| format!("--with {}", dir.display()))?;
    if result.workload != workload {
        return Err(usage(format!(
            "--with {}: it is of {}; results of {} stand with {workload}",
            dir.display(),
            result.workload,
            arguments.program.name()
        )));
    }
    if crate::report::sweep::has_points(&result) {
        return Err(usage(format!(
            "--with {}: a sweep has no place for trials without its setting",
            dir.display()
        )));
    }
    result.command = format!("{}\n{}", result.command, command_line());
    Ok(result)
}

/// Names the engines: from the command line, else from the files, else from the program.
fn named(
    found: Vec<Found>,
    engine: Option<&str>,
    program: Program,
) -> Result<Vec<(String, Found)>> {
    if engine.is_some() && found.len() > 1 {
        return Err(usage(format!(
            "--engine: the files are of {} engines; without it they keep their tags",
            found.len()
        )));
    }
    let name = |of: &Found| {
        let own = of.engine.clone().filter(|tag| !tag.is_empty());
        let given = engine.map(str::to_string);
        given.or(own).unwrap_or_else(|| program.name().to_string())
    };
    Ok(found.into_iter().map(|of| (name(&of), of)).collect())
}
