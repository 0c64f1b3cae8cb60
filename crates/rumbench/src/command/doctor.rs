//! `rumbench doctor`: properties of this machine that decide or spoil a measurement, the engines of
//! this build, and advice.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;

use super::process::{Exit, print};
use crate::measure::doctor::{Machine, findings};
use crate::report::doctor::machine;
use crate::report::table::{Format, Table};

/// Flags of `rumbench doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Folder on the device to test, usually the folder for results [default: the working
    /// directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Examines the machine and prints the findings. No finding is a reason to fail.
///
/// # Errors
/// Fails if nothing can be written into the folder.
pub fn run(arguments: &DoctorArgs) -> Result<Exit> {
    rumbench_engines::remove_left_overs();
    let dir = arguments.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let found = findings(&Machine::look(&dir, true)?);
    if arguments.json {
        let engines: Vec<_> = rumbench_engines::engines()
            .iter()
            .map(|entry| {
                json!({"name": entry.name, "available": entry.is_available(), "how_to_get": entry.how_to_get})
            })
            .collect();
        let all = json!({"findings": found, "engines": engines});
        let text = serde_json::to_string_pretty(&all).context("cannot encode the findings")?;
        print(&format!("{text}\n"))?;
        return Ok(Exit::Done);
    }
    print(&machine(&found).render(Format::Text))?;
    print("\n")?;
    print(&engines().render(Format::Text))?;
    Ok(Exit::Done)
}

fn engines() -> Table {
    let mut table = Table::new("Engines", &["engine", "in this build"]);
    table.text_columns = 2;
    for entry in rumbench_engines::engines() {
        let state = if entry.is_available() {
            "yes".to_string()
        } else {
            format!("no: {}", entry.how_to_get)
        };
        table.rows.push(vec![entry.name.to_string(), state]);
    }
    table
}
