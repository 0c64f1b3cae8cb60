//! `rumbench list`.

use anyhow::Result;
use clap::{Args, ValueEnum};
use rumbench_core::custom::{self, PRESETS};

use super::process::{Exit, print};
use crate::catalog::WORKLOADS;
use crate::measure::metrics::{METRICS, Metric};
use crate::report::table::{Format, Table};
use crate::store::history;

/// Flags of `rumbench list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Kind of names to list
    what: What,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    Engines,
    Workloads,
    Phases,
    Metrics,
    Results,
}

/// Prints a list.
///
/// # Errors
/// Fails if the results store cannot be read.
pub fn list(arguments: &ListArgs) -> Result<Exit> {
    let table = match arguments.what {
        What::Engines => engines(),
        What::Workloads => workloads(),
        What::Phases => phases(),
        What::Metrics => all_metrics(),
        What::Results => stored(None)?,
    };
    print(&table.render(Format::Text))?;
    Ok(Exit::Done)
}

/// Flags of `rumbench results`.
#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// Only results with this text in workload, engines or folder
    of: Option<String>,
}

/// Prints the stored results.
///
/// # Errors
/// Fails if the results store cannot be read.
pub fn results(arguments: &ResultsArgs) -> Result<Exit> {
    print(&stored(arguments.of.as_deref())?.render(Format::Text))?;
    Ok(Exit::Done)
}

fn text_table(title: &str, headers: &[&str]) -> Table {
    let mut table = Table::new(title, headers);
    table.text_columns = headers.len();
    table
}

fn engines() -> Table {
    let mut table = text_table("Engines", &["name", "in this build", "description"]);
    for entry in rumbench_engines::engines() {
        let state = if entry.is_available() {
            "yes".to_string()
        } else {
            format!("no: {}", entry.how_to_get)
        };
        table.rows.push(vec![
            entry.name.to_string(),
            state,
            entry.description.to_string(),
        ]);
        for variant in entry.variants {
            let name = format!("{}:{}", entry.name, variant.name);
            table
                .rows
                .push(vec![name, String::new(), variant.description.to_string()]);
        }
    }
    table
}

fn workloads() -> Table {
    let mut table = text_table("Workloads", &["name", "description"]);
    for entry in WORKLOADS {
        table
            .rows
            .push(vec![entry.name.to_string(), entry.description.to_string()]);
    }
    for preset in PRESETS {
        let row = [preset.name, preset.description];
        table.rows.push(row.map(str::to_string).into());
    }
    table.rows.push(vec![
        "./FILE.toml".to_string(),
        "an own one that the file describes; `rumbench explain ycsb-a` prints one to start from"
            .to_string(),
    ]);
    table
}

/// Returns a row for each phase of each workload: workload, name, description.
pub fn phases() -> Table {
    let mut table = text_table("Phases", &["workload", "name", "description"]);
    for entry in WORKLOADS {
        for (name, meaning) in (entry.phases)() {
            let row = [entry.name, name, meaning];
            table.rows.push(row.map(str::to_string).into());
        }
    }
    for (name, meaning) in custom::KINDS {
        let row = ["presets, own", *name, *meaning];
        table.rows.push(row.map(str::to_string).into());
    }
    table
}

fn all_metrics() -> Table {
    let mut table = text_table(
        "Metrics (rumbench explain NAME says how each is computed)",
        &["name", "unit", "better", "definition"],
    );
    for metric in METRICS {
        table.rows.push(vec![
            metric.name.to_string(),
            metric.unit.to_string(),
            better(metric).to_string(),
            metric.definition.to_string(),
        ]);
    }
    table
}

/// Returns the better direction of a metric: `higher`, `lower`, or `-` if there is none.
pub fn better(metric: &Metric) -> &'static str {
    match metric.higher_is_better {
        Some(true) => "higher",
        Some(false) => "lower",
        None => "-",
    }
}

fn stored(of: Option<&str>) -> Result<Table> {
    let mut table = text_table(
        "Stored results, newest first",
        &["started", "workload", "engines", "folder"],
    );
    if let Some(path) = history::default_path() {
        for suite in history::list(&path, of)? {
            table.rows.push(vec![
                suite.started_at,
                suite.workload,
                suite.engines,
                suite.directory,
            ]);
        }
    }
    Ok(table)
}
