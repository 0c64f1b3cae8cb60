//! `rumbench list` and `rumbench explain`.

use anyhow::Result;
use clap::{Args, ValueEnum};
use rumbench_core::custom::{self, PRESETS};
use rumbench_core::names::unknown;

use super::{Exit, print};
use crate::catalog::{WORKLOADS, usage};
use crate::measure::metrics::{self, METRICS, Metric};
use crate::report::table::{Format, Table};
use crate::store::history;

/// Flags of `rumbench list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// What to list
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

/// Flags of `rumbench explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Metric, phase or preset, see `rumbench list metrics`, `phases` and `workloads`
    name: String,
}

/// Prints a list.
///
/// # Errors
/// When the results store cannot be read.
pub fn list(arguments: &ListArgs) -> Result<Exit> {
    let table = match arguments.what {
        What::Engines => engines(),
        What::Workloads => workloads(),
        What::Phases => phases(),
        What::Metrics => all_metrics(),
        What::Results => results()?,
    };
    print(&table.render(Format::Text));
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

fn phases() -> Table {
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

fn better(metric: &Metric) -> &'static str {
    match metric.higher_is_better {
        Some(true) => "higher",
        Some(false) => "lower",
        None => "-",
    }
}

fn results() -> Result<Table> {
    let mut table = text_table(
        "Stored results, newest first",
        &["started", "workload", "engines", "folder"],
    );
    if let Some(path) = history::default_path() {
        for suite in history::list(&path)? {
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

/// Prints everything about one metric, what a phase does in each workload that has it, or the file of a preset.
///
/// # Errors
/// A usage error with the nearest name when there is no such metric, phase or preset.
pub fn explain(arguments: &ExplainArgs) -> Result<Exit> {
    let name = arguments.name.as_str();
    if let Some(preset) = custom::presets::find(name) {
        print(preset.text);
        return Ok(Exit::Done);
    }
    let phases = phases();
    let explained: String = phases
        .rows
        .iter()
        .filter(|row| row[1] == name)
        .map(|row| {
            format!(
                "{name}\n  phase of    {}\n  description {}\n",
                row[0], row[2]
            )
        })
        .collect();
    if !explained.is_empty() {
        print(&explained);
        return Ok(Exit::Done);
    }
    let Some(metric) = metrics::find(name) else {
        let names = METRICS.iter().map(|metric| metric.name);
        let names: Vec<&str> = names
            .chain(phases.rows.iter().map(|row| row[1].as_str()))
            .chain(PRESETS.iter().map(|preset| preset.name))
            .collect();
        return Err(usage(unknown("metric, phase or preset", name, &names)));
    };
    print(&format!(
        "{}\n  unit        {}\n  better      {}\n  definition  {}\n  formula     {}\n",
        metric.name,
        metric.unit,
        better(metric),
        metric.definition,
        metric.formula
    ));
    Ok(Exit::Done)
}
