//! `repair`: saves the readable data of a damaged database as a new one. Asks for confirmation.

use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use alluvium::RepairReport;
use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::form::Form;
use super::verify::{damage_json, with_causes};
use crate::database::{CannotOpen, Exit, Usage};
use crate::output::{Output, advise};
use crate::text::{Coding, count};

#[derive(Args)]
pub struct RepairArgs {
    /// The damaged database's directory; it is not changed
    dir: PathBuf,
    /// The new database's directory, which must not exist
    target: PathBuf,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Runs `alluvium repair`.
pub fn run(arguments: &RepairArgs, form: Form, output: &mut Output) -> anyhow::Result<Exit> {
    if !arguments.dir.is_dir() {
        let message = format!("{} is no directory", arguments.dir.display());
        return Err(CannotOpen(message).into());
    }
    if arguments.target.exists() {
        let target = arguments.target.display();
        let message =
            format!("{target} exists: a repair writes a new directory, give another name");
        return Err(Usage(message).into());
    }
    if !arguments.yes {
        ask(&arguments.dir)?;
    }
    let repaired = alluvium::repair(&arguments.dir, &arguments.target);
    let report = repaired.with_context(|| format!("cannot repair {}", arguments.dir.display()))?;
    let coding = form.coding();
    output.answer(&document(&report, coding), lines(&report, coding))?;
    if report.is_complete() {
        return Ok(Exit::Done);
    }
    advise(
        "alluvium: older versions of lost rows may be seen again, and deleted rows may be back: judge the new database \
         before you use it, and keep the damaged one until then",
    );
    Ok(Exit::Wrong)
}

/// Asks the user to type the database's name. Without a terminal, `--yes` is required.
fn ask(dir: &Path) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        let message = "a repair may lose rows that a backup has, so it asks first: without a terminal, add --yes";
        return Err(Usage(message.to_owned()).into());
    }
    let absolute = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    let name = absolute.file_name().unwrap_or(absolute.as_os_str());
    let name = name.to_string_lossy();
    advise(
        "A repair saves what can be read of a damaged database as a new one; rows may be lost, older ones may be back.",
    );
    advise("A backup, where there is one, is better.");
    advise(&format!("Type the database's name, {name}, to go on:"));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.context("cannot read the answer")?;
    if line.trim_end_matches(['\r', '\n']) == name {
        Ok(())
    } else {
        Err(Usage("that is not its name; nothing was done".to_owned()).into())
    }
}

fn document(report: &RepairReport, coding: Coding) -> Value {
    let lost = report.lost.iter().map(|lost| {
        json!({
            "keyspace": lost.keyspace,
            "table": lost.table,
            "from": coding.show(&lost.from),
            "to": coding.show(&lost.to),
        })
    });
    json!({
        "complete": report.is_complete(),
        "damages": report.damages.iter().map(damage_json).collect::<Vec<_>>(),
        "lost": lost.collect::<Vec<_>>(),
        "tables_copied": report.tables_copied,
        "tables_salvaged": report.tables_salvaged,
        "tables_lost": report.tables_lost,
        "commits_replayed": report.commits_replayed,
        "unknown_operations": report.unknown_operations,
        "unnamed_tables": report.unnamed_tables,
    })
}

fn lines(report: &RepairReport, coding: Coding) -> String {
    let mut out = String::new();
    // Writing to a string never fails.
    for damage in &report.damages {
        let _ = writeln!(out, "{}", with_causes(damage));
    }
    for lost in &report.lost {
        let _ = writeln!(
            out,
            "lost: entries of keyspace {} in {} between {} and {}",
            lost.keyspace,
            lost.table,
            coding.show(&lost.from),
            coding.show(&lost.to)
        );
    }
    for name in &report.unnamed_tables {
        let _ = writeln!(out, "not saved: {name}, which no manifest names");
    }
    if report.unknown_operations > 0 {
        let operations = count(report.unknown_operations, "operation", "operations");
        let _ = writeln!(
            out,
            "not saved: {operations} of the log on unknown keyspaces"
        );
    }
    let verdict = if report.is_complete() {
        "everything was saved"
    } else {
        "saved what can be read"
    };
    let _ = writeln!(
        out,
        "{verdict}: {} copied, {} saved in part, {} lost, {} of the log made again",
        count(report.tables_copied, "table", "tables"),
        report.tables_salvaged,
        report.tables_lost,
        count(report.commits_replayed, "commit", "commits")
    );
    out
}
