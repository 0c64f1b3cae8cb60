//! Runs of `rumbench` for the checks of quoted figures, and the figures in their results.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Environment variables by name.
pub type Environment = BTreeMap<String, String>;

/// Runs a command of `rumbench` with this environment into `dir` and returns its result. A result
/// that is there already is used as it is.
///
/// # Errors
/// Fails if the command fails or its result cannot be read.
pub fn run(binary: &Path, command: &str, env: &Environment, dir: &Path) -> Result<Value> {
    let path = dir.join("result.json");
    if path.exists() {
        let dir = dir.display();
        println!("{dir} is there already; remove it to measure again");
    } else {
        start(binary, command, env, dir)?;
    }
    let read = || format!("cannot read {}", path.display());
    let text = fs::read_to_string(&path).with_context(read)?;
    let result: Value = serde_json::from_str(&text).with_context(read)?;
    let ran = result["command"].as_str().unwrap_or_default();
    let trials = result["trials"].as_array().into_iter().flatten();
    let is_whole = result["interrupted"] != true
        && ran.contains(command)
        && trials.clone().all(|trial| trial["ended_at"].is_string());
    ensure!(
        is_whole,
        "{} is of another command or of a run that did not end: remove it",
        dir.display()
    );
    Ok(result)
}

fn start(binary: &Path, command: &str, env: &Environment, dir: &Path) -> Result<()> {
    let mut started = Command::new(binary);
    started
        .args(command.split_whitespace())
        .envs(env)
        .arg("--out")
        .arg(dir);
    let status = started
        .status()
        .with_context(|| format!("cannot start {}", binary.display()))?;
    if !status.success() {
        let dir = dir.display();
        bail!("`rumbench {command}` ended with {status}; its results so far are in {dir}");
    }
    Ok(())
}

/// Returns the median of a metric over the repetitions of an engine. `engine` is
/// `NAME[:VARIANT]`, and in a sweep ` KEY=VALUE` after it. `metric` is a path in the phase, with
/// dots. `None` if no repetition has it.
pub fn median(result: &Value, engine: &str, phase: &str, metric: &str) -> Option<f64> {
    let (engine, point) = engine.split_once(' ').unwrap_or((engine, ""));
    let (name, variant) = match engine.split_once(':') {
        Some((name, variant)) => (name, Some(variant)),
        None => (engine, None),
    };
    let is_own = |trial: &&Value| {
        let at_point = trial["point"].as_str().unwrap_or_default() == point;
        trial["engine"] == name && trial["variant"].as_str() == variant && at_point
    };
    let own = result["trials"].as_array()?.iter().filter(is_own);
    let phases = own.flat_map(|trial| trial["phases"].as_array().into_iter().flatten());
    let value = |of: &Value| metric.split('.').fold(of, |at, name| &at[name]).as_f64();
    let mut values: Vec<f64> = phases
        .filter(|own| own["name"] == phase)
        .filter_map(value)
        .collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some((values[last / 2] + values[last.div_ceil(2)]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_of_one_engine_and_variant() {
        let trial = |engine: &str, variant: Option<&str>, size: f64| {
            let mut trial = serde_json::json!({"engine": engine, "phases": [
                {"name": "load", "size_bytes": {"data": 7}},
                {"name": "settle", "size_bytes": {"data": size}}]});
            if let Some(variant) = variant {
                trial["variant"] = variant.into();
            }
            trial
        };
        let trials = [
            trial("a", None, 3.0),
            trial("a", Some("v"), 50.0),
            trial("b", None, 1.0),
            trial("a", None, 1.0),
            trial("a", Some("v"), 70.0),
            trial("a", None, 100.0),
        ];
        let result = serde_json::json!({ "trials": trials });
        let of = |engine| median(&result, engine, "settle", "size_bytes.data");
        assert_eq!(of("a"), Some(3.0));
        assert_eq!(of("a:v"), Some(60.0));
        assert_eq!(of("c"), None);
        assert_eq!(of("a clients=4"), None);
        let mut swept = result.clone();
        swept["trials"][3]["point"] = "clients=4".into();
        let of = |engine| median(&swept, engine, "settle", "size_bytes.data");
        assert_eq!(of("a clients=4"), Some(1.0));
        assert_eq!(median(&result, "a", "settle", "size_bytes.other"), None);
    }
}
