//! Other differences between two results: a change of the machine or of a setting explains more
//! than any ratio.

use std::collections::BTreeMap;

use crate::catalog::usage;
use crate::report::selection::durability;
use crate::store::result::{SuiteResult, TrialResult};

/// Facts of the environment that are measured again each time.
const MEASURED: &[&str] = &["clock_read_ns"];

/// Most characters of a value in a line.
const VALUE_CHARS: usize = 60;

/// Refuses results that cannot be compared at all.
///
/// # Errors
/// A usage error for different workloads, or for versions of one with different operations.
pub fn refuse(base: &SuiteResult, new: &SuiteResult) -> anyhow::Result<()> {
    if base.workload != new.workload {
        return Err(usage(format!(
            "the base ran {}, the new one {}: only results of the same workload compare",
            base.workload, new.workload
        )));
    }
    if base.workload_version != new.workload_version {
        return Err(usage(format!(
            "{} changed its operations between the two results (version {:?} and {:?}); run the base again",
            base.workload,
            base.workload_version.unwrap_or(0),
            new.workload_version.unwrap_or(0)
        )));
    }
    Ok(())
}

/// Facts that distinguish machines in a result.
const MACHINE: &[&str] = &["cpu", "cpus", "memory", "file_system", "device"];

/// Returns true if two suites ran on one machine, as far as results show.
pub fn same_machine(one: &SuiteResult, other: &SuiteResult) -> bool {
    let same = |name: &str| one.environment.get(name) == other.environment.get(name);
    MACHINE.iter().all(|name| same(name))
}

/// Returns a line for each difference between two suites.
pub fn of_suites(base: &SuiteResult, new: &SuiteResult) -> Vec<String> {
    let mut lines = maps("setting", &base.settings, &new.settings, &[]);
    lines.extend(maps(
        "environment",
        &base.environment,
        &new.environment,
        MEASURED,
    ));
    if base.seed != new.seed {
        lines.push(format!("seed: {} -> {}", base.seed, new.seed));
    }
    for (side, suite) in [("base", base), ("new", new)] {
        if suite.interrupted {
            lines.push(format!("the {side} suite was interrupted"));
        }
    }
    lines
}

/// Returns a line for each difference between trials of two engines.
pub fn of_trials(base: &TrialResult, new: &TrialResult) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, base, new) in [
        (
            "engine version",
            base.engine_version.clone(),
            new.engine_version.clone(),
        ),
        ("build", build(base), build(new)),
        ("promise", durability(base), durability(new)),
        (
            "cache state",
            base.cache_state.clone(),
            new.cache_state.clone(),
        ),
    ] {
        if base != new {
            lines.push(format!("{name}: {} -> {}", short(&base), short(&new)));
        }
    }
    lines.extend(maps(
        "configuration",
        &base.configuration,
        &new.configuration,
        &["server_log"],
    ));
    lines
}

/// Names the build of the laboratory that ran a trial, if it was another one. The environment
/// describes this build.
fn build(trial: &TrialResult) -> String {
    match &trial.host {
        Some(host) => format!("{} (commit {})", host.path, host.commit),
        None => "the laboratory's own".to_string(),
    }
}

/// Returns true if commits of both trials survive the same failures.
pub fn same_promise(base: &TrialResult, new: &TrialResult) -> bool {
    durability(base) == durability(new)
}

fn maps(
    what: &str,
    base: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
    but: &[&str],
) -> Vec<String> {
    let mut keys: Vec<&String> = base.keys().chain(new.keys()).collect();
    keys.sort();
    keys.dedup();
    let shown = |value: Option<&String>| value.map_or("(absent)".to_string(), |value| short(value));
    keys.into_iter()
        .filter(|key| !but.contains(&key.as_str()) && base.get(*key) != new.get(*key))
        .map(|key| {
            format!(
                "{what} {key}: {} -> {}",
                shown(base.get(key)),
                shown(new.get(key))
            )
        })
        .collect()
}

/// Shortens a value to one line without control characters, because a result file may contain
/// anything.
fn short(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut out: String = clean.take(VALUE_CHARS + 1).collect();
    if let Some((end, _)) = out.char_indices().nth(VALUE_CHARS) {
        out.truncate(end);
        out += "...";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn other_settings_machines_and_versions_are_named() {
        let (base, mut new) = (sample::suite(), sample::suite());
        new.environment
            .insert("kernel".to_string(), "6.2\n\u{1b}[31m".to_string());
        new.environment
            .insert("clock_read_ns".to_string(), "9".to_string());
        new.settings.insert("nodes".to_string(), "5".to_string());
        new.seed = 2;
        assert_eq!(
            of_suites(&base, &new),
            [
                "setting nodes: (absent) -> 5",
                "environment kernel: 6.1 -> 6.2  [31m",
                "seed: 1 -> 2"
            ]
        );
        new.trials[0].engine_version = "2.0".to_string();
        assert_eq!(
            of_trials(&base.trials[0], &new.trials[0]),
            ["engine version: 1.0 -> 2.0"]
        );
        assert!(of_suites(&base, &base).is_empty());
    }

    #[test]
    fn other_workloads_are_refused() {
        let text = |new: &SuiteResult| refuse(&sample::suite(), new).unwrap_err().to_string();
        assert!(text(&sample::kv_sequence()).contains("only results of the same workload compare"));
        let mut new = sample::suite();
        new.workload_version = Some(2);
        assert!(text(&new).contains("run the base again"));
    }
}
