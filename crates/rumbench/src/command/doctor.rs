//! `rumbench doctor`: what of this machine decides or spoils a measurement, which engines are here, and what to do.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;

use super::{Exit, print};
use crate::measure::doctor::{Finding, Machine, Verdict, findings};
use crate::report::table::{Format, Table};

/// Flags of `rumbench doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Folder whose device is tried, where results are to lie [default: the working directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Looks and prints. What was found is never a reason to fail.
///
/// # Errors
/// When nothing can be written into the folder.
pub fn run(arguments: &DoctorArgs) -> Result<Exit> {
    let dir = arguments.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let found = findings(&Machine::look(&dir)?);
    if arguments.json {
        let engines: Vec<_> = rumbench_engines::engines()
            .iter()
            .map(|entry| {
                json!({"name": entry.name, "available": entry.is_available(), "how_to_get": entry.how_to_get})
            })
            .collect();
        let all = json!({"findings": found, "engines": engines});
        let text = serde_json::to_string_pretty(&all).context("cannot encode the findings")?;
        print(&format!("{text}\n"));
        return Ok(Exit::Done);
    }
    print(&machine(&found).render(Format::Text));
    print("\n");
    print(&engines().render(Format::Text));
    Ok(Exit::Done)
}

fn machine(found: &[Finding]) -> Table {
    let mut table = Table::new("This machine", &["", "what", "found"]);
    table.text_columns = 3;
    for of in found {
        let mark = match of.verdict {
            Verdict::Good => "ok",
            Verdict::Note => "note",
            Verdict::Warning => "WARN",
        };
        let row = [mark, of.about, &of.found];
        table.rows.push(row.map(str::to_string).into());
    }
    let advice = found.iter().filter(|of| !of.advice.is_empty());
    let advice: Vec<String> = advice
        .map(|of| format!("{}: {}", of.about, of.advice))
        .collect();
    match advice.is_empty() {
        true => table.notes.push("Nothing to do.".to_string()),
        false => table.notes = advice,
    }
    table
}

fn engines() -> Table {
    let mut table = Table::new("Engines", &["engine", "in this build"]);
    table.text_columns = 2;
    for entry in rumbench_engines::engines() {
        let state = match entry.is_available() {
            true => "yes".to_string(),
            false => format!("no: {}", entry.how_to_get),
        };
        table.rows.push(vec![entry.name.to_string(), state]);
    }
    table
}
