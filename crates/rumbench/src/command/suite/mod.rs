//! `rumbench suite`: several runs that follow each other, described by a file; some of these files
//! are in the binary.
//!
//! Each run is a `rumbench run` in a folder of its own, so every command that takes a result
//! accepts it. The suite adds the order, one check of all runs before the first begins, the
//! continuation of a stopped suite, and `index.html`.

pub mod file;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use rumbench_core::names::unknown;

use self::file::{Asked, SuiteFile};
use super::process::{Exit, print};
use super::resume;
use super::run::{self, PrintArgs, RunArgs, default_out, run_suite};
use crate::catalog::usage;
use crate::report::html::index;
use crate::report::marks;
use crate::run::plan::Suite;
use crate::run::progress::say;
use crate::run::specification;
use crate::store;

/// Suites in the binary: name and file.
const SUITES: &[(&str, &str)] = &[
    ("laptop", include_str!("../../../suites/laptop.toml")),
    ("hour", include_str!("../../../suites/hour.toml")),
    ("night", include_str!("../../../suites/night.toml")),
];

/// Copy of the suite file in the result folder; it identifies the suite of the runs there.
const COPY: &str = "suite.toml";

/// Flags of `rumbench suite`.
#[derive(Debug, Args)]
pub struct SuiteArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the suites of this build
    List,
    /// Print the file of one of them, as a template for a custom one
    Show {
        /// Name of the suite
        name: String,
    },
    /// Check every run of a suite, and print it as a command
    Plan {
        /// Name, or a file
        suite: String,
    },
    /// Run a suite, or continue a stopped one: with its --out DIR, completed runs and trials are
    /// kept
    Run {
        /// Name, or a file
        suite: String,
        /// Folder of the runs' folders and of index.html [default: rumbench-out/TIMESTAMP]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Do not add the results to the results store
        #[arg(long)]
        no_store: bool,
    },
}

/// Run with checked flags.
struct Ready {
    name: String,
    suite: Suite,
    print: PrintArgs,
}

/// Command line of one run.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    run: RunArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// Usage errors, with file and line; every failure that prevents a result.
pub fn run(arguments: &SuiteArgs) -> Result<Exit> {
    match &arguments.what {
        What::List => {
            for (name, text) in SUITES {
                let read = file::read(name, text, &is_built)?;
                print(&format!("{name:<8}{}\n", read.description))?;
            }
            print("./FILE   an own one; `rumbench suite show laptop` prints one to start from\n")?;
            Ok(Exit::Done)
        }
        What::Show { name } => {
            print(shipped(name)?)?;
            Ok(Exit::Done)
        }
        What::Plan { suite } => {
            let (read, _) = load(suite)?;
            for ready in ready(suite, &read, Path::new("."), false)? {
                print(&format!("{}\n", ready.suite.command))?;
            }
            Ok(Exit::Done)
        }
        What::Run {
            suite,
            out,
            no_store,
        } => {
            let (read, text) = load(suite)?;
            let out = out.clone().unwrap_or_else(default_out);
            let runs = ready(suite, &read, &out, *no_store)?;
            claim(&out, suite, &text)?;
            all(&out, &read.description, &runs)
        }
    }
}

fn is_built(engine: &str) -> bool {
    let base = engine.split([':', '@']).next().unwrap_or(engine);
    rumbench_engines::find(base).is_ok_and(|found| found.entry.is_available())
}

fn shipped(name: &str) -> Result<&'static str> {
    let found = SUITES.iter().find(|(known, _)| *known == name);
    let names: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
    found
        .map(|(_, text)| *text)
        .ok_or_else(|| usage(unknown("suite", name, &names)))
}

/// Loads the suite of this name or from this file, with its text.
fn load(suite: &str) -> Result<(SuiteFile, String)> {
    let path = Path::new(suite);
    let is_file = path.extension().is_some() || path.components().count() > 1;
    let text = if is_file {
        fs::read_to_string(path)
            .map_err(|error| usage(format!("cannot read the suite {suite}: {error}")))?
    } else {
        shipped(suite)?.to_string()
    };
    Ok((file::read(suite, &text, &is_built)?, text))
}

/// Checks every run as `rumbench run` does before it begins.
fn ready(suite: &str, read: &SuiteFile, out: &Path, no_store: bool) -> Result<Vec<Ready>> {
    let check = |asked: &Asked| -> Result<Ready> {
        let of_run = |error: &dyn std::fmt::Display| {
            let text = error.to_string();
            let text = text.trim_start_matches("error: ").trim_end();
            usage(format!("{suite}, run {}: {text}", asked.name))
        };
        let line = Line::try_parse_from(&asked.words).map_err(|error| of_run(&error))?;
        let mut suite = run::suite(&line.run).map_err(|error| of_run(&format!("{error:#}")))?;
        run::check_settings(&suite).map_err(|error| of_run(&format!("{error:#}")))?;
        suite.out = out.join(&asked.name);
        suite.no_store = no_store;
        suite.command = format!("rumbench run {}", asked.words.join(" "));
        Ok(Ready {
            name: asked.name.clone(),
            suite,
            print: line.run.print,
        })
    };
    read.runs.iter().map(check).collect()
}

/// Copies the suite file into the folder; refuses a folder of another suite.
fn claim(out: &Path, suite: &str, text: &str) -> Result<()> {
    let copy = out.join(COPY);
    match fs::read_to_string(&copy) {
        Ok(before) if before == text => Ok(()),
        Ok(_) => Err(usage(format!(
            "{} holds another suite than {suite}: name another --out, or continue the one that is there with {}",
            out.display(),
            copy.display()
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
            fs::write(&copy, text).with_context(|| format!("cannot write {}", copy.display()))
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", copy.display())),
    }
}

/// Runs the suite in order. A failed run does not stop the others.
fn all(out: &Path, description: &str, runs: &[Ready]) -> Result<Exit> {
    let mut worst = Exit::Done;
    for (number, ready) in runs.iter().enumerate() {
        say(&format!(
            "run {} of {}: {}",
            number + 1,
            runs.len(),
            ready.name
        ));
        let exit = one(ready)?;
        write_index(out, description, runs)?;
        if exit == Exit::Interrupted {
            say(&format!(
                "stopped; the same command with --out {} continues it",
                out.display()
            ));
            return Ok(exit);
        }
        if worst == Exit::Done || exit == Exit::Failed {
            worst = exit;
        }
    }
    say(&format!("suite: {}", out.join("index.html").display()));
    Ok(worst)
}

/// Begins a run, continues it, or keeps it if all its trials have ended.
fn one(ready: &Ready) -> Result<Exit> {
    let out = &ready.suite.out;
    if !specification::path_in(out).exists() {
        return run_suite(&ready.suite, &ready.print);
    }
    match resume::ended(out)? {
        None => resume::resume(out, ready.suite.no_store, &ready.print),
        Some(result) => {
            say(&format!("{}: all trials have ended before", ready.name));
            Ok(if result.trials.iter().any(marks::failed) {
                Exit::Failed
            } else {
                Exit::Done
            })
        }
    }
}

fn write_index(out: &Path, description: &str, runs: &[Ready]) -> Result<()> {
    let entry = |ready: &Ready| -> Result<index::Entry> {
        Ok(index::Entry {
            name: ready.name.clone(),
            command: ready.suite.command.clone(),
            result: store::file::load_if_there(&ready.suite.out)?,
            options: ready.print.options(),
        })
    };
    let entries: Vec<index::Entry> = runs.iter().map(entry).collect::<Result<_>>()?;
    let path = out.join("index.html");
    fs::write(&path, index::render(description, &entries))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Engines missing from the build are left out, so that each build can run each suite.
    #[test]
    fn every_suite_of_the_binary_can_be_run() {
        for (name, text) in SUITES {
            let read = file::read(name, text, &is_built).unwrap();
            let ready = ready(name, &read, Path::new("out"), true).unwrap();
            assert!(ready.len() >= 3 && read.description.contains(','), "{name}");
            let there = ready.iter().all(|ready| ready.suite.engines().len() > 1);
            assert!(there, "{name}: engines to compare");
        }
    }
}
