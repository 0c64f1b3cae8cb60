//! Trials of all points of a sweep, by durability.

use crate::report::selection::{Group, group_trials};
use crate::store::result::{SuiteResult, TrialResult};
use crate::store::sweep::Sweep;

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
