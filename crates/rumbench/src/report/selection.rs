//! Selection of trials for tables: groups of equal durability, engines in the order of the command
//! line, medians over repetitions.

use crate::measure::statistics::median;
use crate::store::result::{PhaseResult, SuiteResult, TrialResult};

/// Engines that may be compared with each other.
pub struct Group<'a> {
    /// Durability that they share, in words.
    pub title: String,
    /// Setting of a sweep that they share, `KEY=VALUE`. `None` outside a sweep.
    pub point: Option<String>,
    /// Trials without wrong answers.
    pub trials: Vec<&'a TrialResult>,
    /// True if the engines differ in durability, so that rows must name it.
    pub mixed: bool,
}

/// Returns the durability class of a trial, as the command line names it.
pub fn durability_class(trial: &TrialResult) -> String {
    serde_json::to_value(trial.durability)
        .ok()
        .and_then(|value| value.as_str().map(str::to_string))
        .unwrap_or_default()
}

/// Describes the failures that a trial's commits survive, as text to compare and print.
pub fn durability(trial: &TrialResult) -> String {
    let class = durability_class(trial);
    match &trial.durability_facts {
        Some(facts) => format!(
            "durability {class}: killed process keeps {}; power cut keeps {}",
            facts.process_kill, facts.power_cut
        ),
        None => format!("durability {class}"),
    }
}

/// Returns the groups in the order of their first engine. Trials that never opened their engine are
/// in no table.
pub fn groups(suite: &SuiteResult, mix: bool) -> Vec<Group<'_>> {
    let usable = suite
        .trials
        .iter()
        .filter(|trial| !trial.has_mark("wrong-answer") && trial.durability_facts.is_some());
    group_trials(usable, mix)
}

/// Groups any trials. Points of a sweep are groups of their own: engines compare at the same point.
pub fn group_trials<'a>(
    trials: impl Iterator<Item = &'a TrialResult>,
    mix: bool,
) -> Vec<Group<'a>> {
    let mut found: Vec<Group<'_>> = Vec::new();
    for trial in trials {
        let title = durability(trial);
        let same =
            |group: &&mut Group<'_>| group.point == trial.point && (mix || group.title == title);
        match found.iter_mut().find(same) {
            Some(group) => {
                group.mixed |= group.title != title;
                group.trials.push(trial);
            }
            None => found.push(Group {
                title,
                point: trial.point.clone(),
                trials: vec![trial],
                mixed: false,
            }),
        }
    }
    for group in found.iter_mut().filter(|group| group.mixed) {
        group.title =
            "Engines with different durability; the number after each name is its own:".to_string();
        for (i, promise) in group.promises().iter().enumerate() {
            group.title += &format!("\n  [{}] {promise}", i + 1);
        }
    }
    found
}

impl<'a> Group<'a> {
    /// Returns the setting and durability that the group's engines share, in words.
    pub fn heading(&self) -> String {
        match &self.point {
            Some(point) => format!("{point}: {}", self.title),
            None => self.title.clone(),
        }
    }

    /// Returns the engine names in order.
    pub fn engines(&self) -> Vec<String> {
        let mut names = Vec::new();
        for trial in &self.trials {
            let name = trial.name();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns the base of ratios: the wanted engine if the group has it, else the first engine.
    pub fn base(&self, wanted: Option<&str>) -> String {
        let engines = self.engines();
        wanted
            .and_then(|wanted| engines.iter().find(|name| *name == wanted).cloned())
            .or_else(|| engines.first().cloned())
            .unwrap_or_default()
    }

    /// Returns the names of phases with operations, in order. A phase that only some engines have
    /// is at its position in their trials.
    pub fn phases(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for trial in &self.trials {
            let mut place = 0;
            for phase in trial.phases.iter().filter(|phase| phase.has_worked()) {
                match names.iter().position(|name| *name == phase.name) {
                    Some(found) => place = found + 1,
                    None => {
                        names.insert(place, phase.name.clone());
                        place += 1;
                    }
                }
            }
        }
        names
    }

    /// Returns the names of the settle phases, in order.
    pub fn settles(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for phase in self.trials.iter().flat_map(|trial| &trial.phases) {
            if phase.base_name() == "settle" && !names.contains(&phase.name) {
                names.push(phase.name.clone());
            }
        }
        names
    }

    /// Returns the engines that ran a phase.
    pub fn engines_of(&self, phase: &str) -> Vec<String> {
        let mut engines = self.engines();
        engines.retain(|engine| self.of(engine, phase).next().is_some());
        engines
    }

    /// Returns the repetitions of one phase on one engine.
    pub fn of<'s>(
        &'s self,
        engine: &'s str,
        phase: &'s str,
    ) -> impl Iterator<Item = &'a PhaseResult> + 's {
        self.trials
            .iter()
            .filter(move |trial| trial.name() == engine)
            .flat_map(|trial| trial.phases.iter())
            .filter(move |found| found.name == phase)
    }

    /// Returns the median of a number over the repetitions.
    pub fn median(
        &self,
        engine: &str,
        phase: &str,
        value: impl Fn(&PhaseResult) -> Option<f64>,
    ) -> Option<f64> {
        let values: Vec<f64> = self.of(engine, phase).filter_map(value).collect();
        median(&values)
    }

    /// Returns the different promises, in the order of the trials.
    fn promises(&self) -> Vec<String> {
        let mut promises = Vec::new();
        for trial in &self.trials {
            let promise = durability(trial);
            if !promises.contains(&promise) {
                promises.push(promise);
            }
        }
        promises
    }

    /// Returns the row label of an engine: in a mixed group with the number of its promise.
    pub fn label(&self, engine: &str) -> String {
        let trial = self.trials.iter().find(|trial| trial.name() == engine);
        let Some(promise) = trial.filter(|_| self.mixed).map(|trial| durability(trial)) else {
            return engine.to_string();
        };
        match self.promises().iter().position(|known| *known == promise) {
            Some(i) => format!("{engine} [{}]", i + 1),
            None => engine.to_string(),
        }
    }
}
