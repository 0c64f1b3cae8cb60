//! `rumbench explain`: explains in words the causes of a result, or a metric, phase or preset.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use rumbench_core::custom::{self, PRESETS};
use rumbench_core::names::unknown;
use serde_json::json;

use super::list::{better, phases};
use super::process::{Exit, print};
use super::run::check_base;
use crate::catalog::usage;
use crate::measure::metrics::{self, METRICS};
use crate::report::{ReportOptions, explain};
use crate::store::result::{SuiteResult, TrialResult};
use crate::store::{file, history};

/// Flags of `rumbench explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Result folder, or the name of a stored one (`rumbench results`); or a metric, phase or
    /// preset (`rumbench list metrics`, `phases`, `workloads`). A folder with the name of one of
    /// them: ./NAME
    name: String,
    /// Base of the comparisons [default: the first engine]
    #[arg(long, value_name = "NAME[:VARIANT]")]
    base: Option<String>,
    /// Compare engines even if their commits survive different failures
    #[arg(long)]
    mix_durability: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Explains the named result, metric, phase or preset.
///
/// # Errors
/// A usage error with the nearest name if the name is unknown; fails if a result cannot be read.
pub fn run(arguments: &ExplainArgs) -> Result<Exit> {
    let name = arguments.name.as_str();
    if let Some(text) = word(arguments) {
        print(&text)?;
        return Ok(Exit::Done);
    }
    let path = Path::new(name);
    if path.exists() || path.components().count() > 1 {
        return of_result(arguments, &file::load(path)?);
    }
    let stored = history::default_path().map(|store| history::find(&store, name));
    if let Some(suite) = stored.transpose()?.flatten() {
        return of_result(arguments, &suite);
    }
    let names = METRICS.iter().map(|metric| metric.name.to_string());
    let phases = phases().rows.into_iter().map(|row| row[1].clone());
    let presets = PRESETS.iter().map(|preset| preset.name.to_string());
    let names: Vec<String> = names.chain(phases).chain(presets).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let unknown = unknown("metric, phase or preset", name, &names);
    Err(usage(format!(
        "{unknown}; nor is there a result folder or a stored result of this name"
    )))
}

/// Prints the causes of a result.
fn of_result(arguments: &ExplainArgs, suite: &SuiteResult) -> Result<Exit> {
    let engines: Vec<String> = suite.trials.iter().map(TrialResult::name).collect();
    if let Some(base) = &arguments.base {
        check_base(base, &engines)?;
    }
    let options = ReportOptions {
        base: arguments.base.clone(),
        mix_durability: arguments.mix_durability,
        ..ReportOptions::default()
    };
    if suite.trials.is_empty() {
        bail!(
            "{}: no trial has begun yet, there is nothing to explain",
            arguments.name
        );
    }
    if arguments.json {
        let findings = explain::explain(suite, &options);
        let all = json!({"workload": suite.workload, "command": suite.command, "started_at": suite.started_at, "findings": findings});
        let text = serde_json::to_string_pretty(&all).context("cannot encode the findings")?;
        print(&format!("{text}\n"))?;
    } else {
        print(&explain::render(suite, &options))?;
    }
    Ok(Exit::Done)
}

/// Returns the definition of a metric, the description of a phase in each workload that has it, or
/// the file of a preset. `None` if `name` is none of them.
fn word(arguments: &ExplainArgs) -> Option<String> {
    let (name, as_json) = (arguments.name.as_str(), arguments.json);
    if let Some(preset) = custom::presets::find(name) {
        return Some(if as_json {
            encoded(&json!({"preset": name, "file": preset.text}))
        } else {
            preset.text.to_string()
        });
    }
    let phases = phases();
    let found: Vec<_> = phases.rows.iter().filter(|row| row[1] == name).collect();
    if !found.is_empty() {
        let each =
            |row: &&Vec<String>| json!({"phase": name, "workload": row[0], "description": row[2]});
        let text = |row: &&Vec<String>| {
            format!(
                "{name}\n  phase of    {}\n  description {}\n",
                row[0], row[2]
            )
        };
        return Some(if as_json {
            encoded(&found.iter().map(each).collect())
        } else {
            found.iter().map(text).collect()
        });
    }
    let metric = metrics::find(name)?;
    let (unit, definition, formula) = (metric.unit, metric.definition, metric.formula);
    Some(if as_json {
        encoded(
            &json!({"metric": name, "unit": unit, "better": better(metric), "definition": definition, "formula": formula}),
        )
    } else {
        format!(
            "{name}\n  unit        {unit}\n  better      {}\n  definition  {definition}\n  formula     {formula}\n",
            better(metric)
        )
    })
}

fn encoded(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}
