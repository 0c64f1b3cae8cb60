//! Trials and phases that warnings are about, and their names.

use crate::report::explain::finding::{Figure, Finding, Kind};
use crate::report::throughput::counts_rows;
use crate::store::result::{PhaseResult, SuiteResult, TrialResult};
use crate::text::and;

/// Most names in a warning.
const NAMES: usize = 6;

/// Returns a warning about the suite.
pub(super) fn warning(text: String, figures: Vec<Figure>) -> Finding {
    Finding::of_suite(Kind::Warning, text, figures)
}

/// Joins the names, each once, to a list of at most [`NAMES`].
pub(super) fn names(all: Vec<String>) -> String {
    let mut few: Vec<String> = Vec::new();
    for name in all {
        if !few.contains(&name) {
            few.push(name);
        }
    }
    if few.len() > NAMES {
        let more = format!("{} more", few.len() - NAMES);
        few.truncate(NAMES);
        few.push(more);
    }
    and(&few)
}

/// Returns the name of a trial in a warning.
pub(super) fn trial_name(trial: &TrialResult) -> String {
    format!("{} #{}", trial.contestant(), trial.repetition)
}

/// Returns the trials that opened their engine and gave no wrong answer.
pub(super) fn usable(suite: &SuiteResult) -> impl Iterator<Item = &TrialResult> {
    let trials = suite.trials.iter();
    trials.filter(|trial| !trial.has_mark("wrong-answer") && trial.durability_facts.is_some())
}

/// Returns the phases with recorded latencies, without loads and warm-up.
pub(super) fn requests(suite: &SuiteResult) -> impl Iterator<Item = (&TrialResult, &PhaseResult)> {
    let recorded = |phase: &&PhaseResult| {
        phase.operations > 0 && !counts_rows(&phase.name) && !phase.latency_us.is_empty()
    };
    usable(suite).flat_map(move |trial| {
        let phases = trial.phases.iter().filter(recorded);
        phases.map(move |phase| (trial, phase))
    })
}
