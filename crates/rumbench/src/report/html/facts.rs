//! Setup of the measurement: first the differences among engines, then the common settings, then
//! machine and build.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use crate::catalog::DEFINITION;
use crate::report::doctor::machine;
use crate::report::selection::durability;
use crate::report::table::Table;
use crate::report::tables::hosts;
use crate::store::result::{Host, PhaseResult, SuiteResult, TrialResult};
use crate::text::number;

/// Renders the part of the page below the numbers. `all_ends` adds the counters at the end of each
/// phase, not only of the last one.
pub fn html(suite: &SuiteResult, engines: &[String], all_ends: bool) -> Markup {
    let of = |engine: &String| suite.trials.iter().find(|trial| trial.name() == *engine);
    let trials: Vec<&TrialResult> = engines.iter().filter_map(of).collect();
    let (different, own, same) = settings(&trials);
    let mut given = suite.settings.clone();
    let definition = given.remove(DEFINITION);
    html! {
        (promises(&trials))
        (unless_empty(&builds(suite)))
        (unless_empty(&different))
        @for table in own.iter().chain([&same]) { (folded(table)) }
        (pairs("Machine and build", &suite.environment))
        @if !suite.machine.is_empty() { (machine(&suite.machine)) }
        (pairs("Settings given", &given))
        @if let Some(text) = definition {
            details { summary { "File of the workload" } pre { (text) } }
        }
        @for trial in trials { (folded(&counters(trial, all_ends))) }
    }
}

fn unless_empty(table: &Table) -> Markup {
    html! { @if !table.rows.is_empty() { (table) } }
}

/// Renders a table that the reader can unfold, unless it has no rows.
fn folded(table: &Table) -> Markup {
    html! {
        @if !table.rows.is_empty() { details { summary { (table.title) } (table) } }
    }
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
    let keys: BTreeSet<&String> = trials
        .iter()
        .flat_map(|trial| trial.configuration.keys())
        .collect();
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

/// Returns the counters of a trial at the end of each phase, or of the last phase only.
fn counters(trial: &TrialResult, all_ends: bool) -> Table {
    let phases = trial.phases.iter();
    let mut phases: Vec<_> = phases
        .filter(|phase| !phase.engine_counters.is_empty())
        .collect();
    let mut which = "each phase";
    if !all_ends {
        phases.drain(..phases.len().saturating_sub(1));
        which = "the last phase";
    }
    let title = format!(
        "Counters of {} at the end of {which} (repetition {})",
        trial.name(),
        trial.repetition
    );
    let mut table = Table::new(title, &["counter"]);
    table
        .headers
        .extend(phases.iter().map(|phase| phase.name.clone()));
    let names: BTreeSet<&String> = phases
        .iter()
        .flat_map(|phase| phase.engine_counters.keys())
        .collect();
    for name in names {
        let counter = |phase: &&PhaseResult| number(phase.engine_counters.get(name).copied());
        let cells = phases.iter().map(counter);
        table
            .rows
            .push(std::iter::once(name.clone()).chain(cells).collect());
    }
    table
}

/// Renders the marks of all trials, or a sentence that there are none.
pub fn marks(suite: &SuiteResult) -> Markup {
    if suite.trials.iter().all(|trial| trial.marks.is_empty()) {
        return html! { p { "None: no failure, no wrong answer, no unmet rate." } };
    }
    html! {
        ul.marks {
            @for trial in &suite.trials {
                @for mark in &trial.marks {
                    li { b { (trial.contestant()) " #" (trial.repetition) } " " (mark) }
                }
            }
        }
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
