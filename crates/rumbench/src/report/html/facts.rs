//! Setup of the measurement: first the differences among engines, then the common settings, then
//! machine and build.

use std::collections::BTreeMap;

use super::markup::{details, element, escape};
use super::tables;
use crate::catalog::DEFINITION;
use crate::report::doctor::machine;
use crate::report::selection::durability;
use crate::report::table::Table;
use crate::report::tables::hosts;
use crate::store::result::{Host, SuiteResult, TrialResult};
use crate::text::number;

/// Renders the part of the page below the numbers. `all_ends` adds the counters at the end of each
/// phase, not only of the last one.
pub fn html(suite: &SuiteResult, engines: &[String], all_ends: bool) -> String {
    let of = |engine: &String| suite.trials.iter().find(|trial| trial.name() == *engine);
    let trials: Vec<&TrialResult> = engines.iter().filter_map(of).collect();
    let mut out = tables::html(&promises(&trials));
    let builds = builds(suite);
    if !builds.rows.is_empty() {
        out += &tables::html(&builds);
    }
    let (different, own, same) = settings(&trials);
    if !different.rows.is_empty() {
        out += &tables::html(&different);
    }
    for table in own {
        out += &details(&table.title.clone(), &tables::html(&table));
    }
    if !same.rows.is_empty() {
        out += &details(&same.title.clone(), &tables::html(&same));
    }
    out += &tables::html(&pairs("Machine and build", &suite.environment));
    if !suite.machine.is_empty() {
        out += &tables::html(&machine(&suite.machine));
    }
    let mut given = suite.settings.clone();
    let definition = given.remove(DEFINITION);
    out += &tables::html(&pairs("Settings given", &given));
    if let Some(text) = definition {
        out += &details("File of the workload", &element("pre", "", &text));
    }
    out + &counters(suite, engines, all_ends)
}

fn text_table(title: &str, headers: &[&str]) -> Table {
    let mut table = Table::new(title, headers);
    table.text_columns = headers.len();
    table
}

fn pairs(title: &str, map: &BTreeMap<String, String>) -> Table {
    let mut table = text_table(title, &["name", "value"]);
    table.rows = map
        .iter()
        .map(|(key, value)| vec![key.clone(), value.clone()])
        .collect();
    table
}

fn builds(suite: &SuiteResult) -> Table {
    let headers = [
        "engine", "binary", "rumbench", "commit", "compiler", "flags",
    ];
    let mut table = text_table("Other builds of the laboratory", &headers);
    for (name, host) in hosts(suite) {
        let Host {
            path,
            rumbench_version,
            commit,
            compiler,
            compiler_flags,
            ..
        } = host;
        let facts = [path, rumbench_version, commit, compiler, compiler_flags];
        let mut row = vec![name];
        row.extend(facts.map(String::clone));
        table.rows.push(row);
    }
    table
}

fn promises(trials: &[&TrialResult]) -> Table {
    let mut table = text_table(
        "Engines",
        &[
            "engine",
            "version",
            "durability",
            "page cache",
            "final check",
        ],
    );
    for trial in trials {
        let check = trial.verified.clone().unwrap_or_else(|| "-".to_string());
        table.rows.push(vec![
            trial.name(),
            trial.engine_version.clone(),
            durability(trial),
            trial.cache_state.clone(),
            check,
        ]);
    }
    table
}

/// Splits the settings into different ones, those of a single engine (a table each), and equal
/// ones.
fn settings(trials: &[&TrialResult]) -> (Table, Vec<Table>, Table) {
    let mut headers = vec!["setting".to_string()];
    headers.extend(trials.iter().map(|trial| trial.name()));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let mut different = text_table("Settings that differ among engines", &headers);
    let mut same = text_table(
        "Settings that are the same for all engines",
        &["name", "value"],
    );
    let mut own: Vec<Table> = Vec::new();
    let mut keys: Vec<&String> = trials
        .iter()
        .flat_map(|trial| trial.configuration.keys())
        .collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let values: Vec<Option<&String>> = trials
            .iter()
            .map(|trial| trial.configuration.get(key))
            .collect();
        let known: Vec<&String> = values.iter().copied().flatten().collect();
        if known.len() == 1 && trials.len() > 1 {
            let place = values.iter().position(Option::is_some).unwrap_or(0);
            let title = format!("Settings that only {} has", trials[place].name());
            if !own.iter().any(|table| table.title == title) {
                own.push(text_table(&title, &["name", "value"]));
            }
            if let Some(table) = own.iter_mut().find(|table| table.title == title) {
                table.rows.push(vec![key.clone(), known[0].clone()]);
            }
        } else if known.len() == trials.len() && known.windows(2).all(|pair| pair[0] == pair[1]) {
            same.rows.push(vec![key.clone(), known[0].clone()]);
        } else {
            let cells = values
                .iter()
                .map(|value| value.map_or("-".to_string(), |value| value.clone()));
            different
                .rows
                .push(std::iter::once(key.clone()).chain(cells).collect());
        }
    }
    (different, own, same)
}

/// Renders each engine's counters at the end of each phase of its first trial, or of the last phase
/// only.
fn counters(suite: &SuiteResult, engines: &[String], all_ends: bool) -> String {
    let mut out = String::new();
    for engine in engines {
        let Some(trial) = suite.trials.iter().find(|trial| trial.name() == *engine) else {
            continue;
        };
        let mut phases: Vec<_> = trial
            .phases
            .iter()
            .filter(|phase| !phase.engine_counters.is_empty())
            .collect();
        let mut which = "each phase";
        if !all_ends {
            phases.drain(..phases.len().saturating_sub(1));
            which = "the last phase";
        }
        let title = format!(
            "Counters of {engine} at the end of {which} (repetition {})",
            trial.repetition
        );
        let mut table = Table::new(title.clone(), &["counter"]);
        table
            .headers
            .extend(phases.iter().map(|phase| phase.name.clone()));
        let mut names: Vec<&String> = phases
            .iter()
            .flat_map(|phase| phase.engine_counters.keys())
            .collect();
        names.sort();
        names.dedup();
        for name in names {
            let cells = phases
                .iter()
                .map(|phase| number(phase.engine_counters.get(name).copied()));
            table
                .rows
                .push(std::iter::once(name.clone()).chain(cells).collect());
        }
        if !table.rows.is_empty() {
            out += &details(&title, &tables::html(&table));
        }
    }
    out
}

/// Renders the marks of all trials, or a sentence that there are none.
pub fn marks(suite: &SuiteResult) -> String {
    let mut out = String::new();
    for trial in &suite.trials {
        for mark in &trial.marks {
            let name = format!("{} #{}", trial.contestant(), trial.repetition);
            out += &format!("<li>{} {}</li>\n", element("b", "", &name), escape(mark));
        }
    }
    if out.is_empty() {
        "<p>None: no failure, no wrong answer, no unmet rate.</p>\n".to_string()
    } else {
        format!("<ul class=\"marks\">\n{out}</ul>\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn settings_are_sorted_into_different_own_and_same() {
        let mut suite = sample::suite();
        let set = |trial: &mut TrialResult, pairs: &[(&str, &str)]| {
            trial.configuration = pairs
                .iter()
                .map(|(k, v)| ((*k).to_string(), (*v).to_string()))
                .collect();
        };
        set(
            &mut suite.trials[0],
            &[("cache", "1"), ("same", "x"), ("mine", "y")],
        );
        set(&mut suite.trials[1], &[("cache", "2"), ("same", "x")]);
        let trials: Vec<&TrialResult> = suite.trials.iter().collect();
        let (different, own, same) = settings(&trials);
        assert_eq!(different.rows, [["cache", "1", "2"]]);
        assert_eq!(
            (own[0].title.as_str(), &own[0].rows[0][0]),
            ("Settings that only alluvium has", &"mine".to_string())
        );
        assert_eq!(same.rows, [["same", "x"]]);
    }
}
