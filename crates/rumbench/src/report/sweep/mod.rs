//! Summary of all points of a sweep: throughput, cost and space for each value of the setting, the
//! scalability of an engine with the number of clients, and the aging of a database.
//!
//! [`curve`] collects the points of one engine and phase, [`scalability`] fits them, [`aging`]
//! follows the steps of one trial. Text, Markdown and the page show the same tables; [`conclude`]
//! stores the conclusions in the result.

pub mod aging;
pub mod curve;
pub mod scalability;
pub mod tables;

use super::selection::{Group, group_trials};
use crate::store::result::{SuiteResult, TrialResult};
use crate::store::sweep::{Sweep, TURNOVER};

/// Setting of the sweeps that are fitted with the Universal Scalability Law.
pub const CLIENTS: &str = "clients";

/// Returns true if a suite varied a setting or searched a rate, so that each point has tables of
/// its own.
pub fn has_points(suite: &SuiteResult) -> bool {
    let sweep = suite.sweep.as_ref();
    suite.rate_search.is_some() || sweep.is_some_and(|sweep| sweep.key != TURNOVER)
}

/// Stores the conclusions from all trials so far in the suite's sweep.
pub fn conclude(suite: &mut SuiteResult) {
    let Some(mut sweep) = suite.sweep.take() else {
        return;
    };
    let groups = whole(suite, false);
    sweep.scalability = groups
        .iter()
        .flat_map(|group| scalability::fits(&sweep, group))
        .collect();
    sweep.aging = if sweep.key == TURNOVER {
        suite.trials.iter().filter_map(aging::of).collect()
    } else {
        Vec::new()
    };
    for aging in &mut sweep.aging {
        let asked = sweep.values.first().and_then(|value| value.parse().ok());
        aging.judge(asked.unwrap_or(0.0));
    }
    suite.sweep = Some(sweep);
}

/// Groups the trials of all points by durability, or all of them together with `mix`. Leaves out
/// trials that gave wrong answers and those without durability facts.
pub fn whole(suite: &SuiteResult, mix: bool) -> Vec<Whole<'_>> {
    let mut found: Vec<Whole<'_>> = Vec::new();
    let usable =
        |trial: &&TrialResult| !trial.has_mark("wrong-answer") && trial.durability_facts.is_some();
    for group in group_trials(suite.trials.iter().filter(usable), mix) {
        let same = |whole: &&mut Whole<'_>| mix || whole.title == group.title;
        match found.iter_mut().find(same) {
            Some(whole) => whole.points.push(group),
            None => found.push(Whole {
                title: group.title.clone(),
                points: vec![group],
            }),
        }
    }
    found
}

/// Trials of one durability at all points: one group for each point with trials.
pub struct Whole<'a> {
    /// Title that the groups share.
    pub title: String,
    /// Groups in the order of their first trials.
    pub points: Vec<Group<'a>>,
}

impl Whole<'_> {
    /// Returns the engines in the order of their first trials.
    pub fn engines(&self) -> Vec<String> {
        let mut names = Vec::new();
        for name in self.points.iter().flat_map(Group::engines) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns the phases in the order of their first trials, without the warm-up.
    pub fn phases(&self) -> Vec<String> {
        let mut names = Vec::new();
        for name in self.points.iter().flat_map(Group::phases) {
            if !names.contains(&name) && name != "warmup" {
                names.push(name);
            }
        }
        names
    }

    /// Returns the group of a value of the sweep; `None` if no trial has it.
    pub fn point(&self, sweep: &Sweep, value: &str) -> Option<&Group<'_>> {
        let label = format!("{}={value}", sweep.key);
        let mut points = self.points.iter();
        points.find(|group| group.point.as_deref() == Some(&label))
    }
}
