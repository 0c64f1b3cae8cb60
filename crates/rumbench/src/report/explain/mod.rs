//! What decided a result, in words: `rumbench explain RUN`, and short sentences on the page.
//!
//! Every sentence is a [`Finding`] with the figures that it rests on, so that a reader can look at them. [`usage`] is the arithmetic:
//! where the time of the clients' threads went. [`bound`] says what bounded a phase, [`cost`] which cost sets an engine apart
//! from the base, [`hot`] on which functions its CPU time went, [`stalls`] when throughput stood still and what the engine did then, [`theory`] what should not cost so much,
//! [`warnings`] what speaks against the experiment itself. `docs/guide/explain.md` tells readers the rules. Nothing here measures; a sentence needs its figures.

pub mod account;
pub mod bound;
pub mod cost;
pub mod hot;
#[cfg(test)]
mod published;
pub mod stalls;
pub mod usage;
pub mod warnings;

use serde::Serialize;

use super::ReportOptions;
use super::selection::{Group, groups};
use super::table::number;
use super::{spread, theory};
use crate::store::result::{Comparison, SuiteResult, TrialResult};

/// What a sentence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What bounded the throughput of an engine in a phase.
    Bound,
    /// Which cost sets an engine apart from the base.
    Cost,
    /// When throughput stood still, and why.
    Stall,
    /// What costs more than theory allows.
    Theory,
    /// On which functions CPU time went.
    Function,
    /// What speaks against the experiment.
    Warning,
}

/// A number that a sentence rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Its name, as in `result.json` and `rumbench list metrics`.
    pub metric: String,
    /// Its value, where it is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The same of the base engine, where the sentence compares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<f64>,
}

impl Figure {
    /// A number.
    pub fn new(metric: &str, value: Option<f64>) -> Figure {
        Figure {
            metric: metric.to_string(),
            value: value.filter(|value| value.is_finite()),
            base: None,
        }
    }

    /// A number beside that of the base.
    pub fn against(metric: &str, value: Option<f64>, base: Option<f64>) -> Figure {
        let base = base.filter(|base| base.is_finite());
        Figure {
            base,
            ..Figure::new(metric, value)
        }
    }

    /// What is no number: a mark, a fact of the environment.
    pub fn fact(name: &str) -> Figure {
        Figure::new(name, None)
    }
}

/// A sentence and what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub kind: Kind,
    /// Number of the group of comparable engines, as on the page; absent where it is about all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// What a sweep set, `KEY=VALUE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// Phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Engine, as in tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The sentence, without the engine's name at its beginning.
    pub text: String,
    /// The same in a few words, for a first screen.
    #[serde(skip)]
    pub brief: Option<String>,
    /// The figures, the most telling one first.
    pub figures: Vec<Figure>,
}

impl Finding {
    /// One about the whole suite.
    pub fn of_suite(kind: Kind, text: impl Into<String>, figures: Vec<Figure>) -> Finding {
        Finding {
            kind,
            group: None,
            point: None,
            phase: None,
            engine: None,
            text: text.into(),
            brief: None,
            figures,
        }
    }

    /// With the same in a few words.
    pub fn in_brief(self, brief: String) -> Finding {
        Finding {
            brief: Some(brief),
            ..self
        }
    }

    /// Engine and sentence.
    pub fn sentence(&self) -> String {
        match &self.engine {
            Some(engine) => format!("{engine} {}", self.text),
            None => self.text.clone(),
        }
    }

    /// Names of the figures, each once.
    pub fn metrics(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for figure in &self.figures {
            if !names.contains(&figure.metric.as_str()) {
                names.push(&figure.metric);
            }
        }
        names
    }
}

/// One group of comparable engines, and what is needed to speak about it.
pub struct Scene<'a> {
    /// The whole result.
    pub suite: &'a SuiteResult,
    /// Engines that may be compared.
    pub group: &'a Group<'a>,
    /// Its number.
    pub number: usize,
    /// Base of ratios.
    pub base: String,
    /// Ratios to the base, of trials in the same repetition.
    pub comparisons: Vec<Comparison>,
}

impl<'a> Scene<'a> {
    /// A group with its base and its ratios.
    pub fn new(
        suite: &'a SuiteResult,
        group: &'a Group<'a>,
        number: usize,
        base: String,
    ) -> Scene<'a> {
        let comparisons = spread::compare_group(group, &base);
        Scene {
            suite,
            group,
            number,
            base,
            comparisons,
        }
    }

    /// A finding about an engine in a phase.
    pub fn finding(
        &self,
        kind: Kind,
        engine: &str,
        phase: &str,
        text: String,
        figures: Vec<Figure>,
    ) -> Finding {
        Finding {
            kind,
            group: Some(self.number),
            point: self.group.point.clone(),
            phase: Some(phase.to_string()),
            engine: Some(engine.to_string()),
            text,
            brief: None,
            figures,
        }
    }

    /// Phases that are explained: all with operations but those that only warm up.
    pub fn phases(&self) -> Vec<String> {
        let mut phases = self.group.phases();
        phases.retain(|phase| phase != "warmup");
        phases
    }

    /// Trials of an engine.
    pub fn trials<'s>(&'s self, engine: &'s str) -> impl Iterator<Item = &'s TrialResult> + 's {
        let trials = self.group.trials.iter().copied();
        trials.filter(move |trial| trial.name() == engine)
    }
}

/// Everything that can be said of a result, group by group and phase by phase, warnings last.
pub fn explain(suite: &SuiteResult, options: &ReportOptions) -> Vec<Finding> {
    let found = groups(suite, options.mix_durability);
    let mut findings = Vec::new();
    for (number, group) in found.iter().enumerate() {
        let base = group.base(options.base.as_deref());
        let scene = Scene::new(suite, group, number, base);
        findings.extend(of_group(&scene));
    }
    findings.extend(warnings::findings(suite));
    findings
}

/// What can be said of one group.
pub fn of_group(scene: &Scene<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut others = cost::space(scene);
    others.extend(theory::findings(scene));
    for phase in scene.phases() {
        for engine in scene.group.engines_of(&phase) {
            findings.extend(of_phase(scene, &engine, &phase));
        }
        for engine in scene.group.engines_of(&phase) {
            findings.extend(stalls::findings(scene, &engine, &phase));
        }
        let own = |found: &mut Finding| found.phase.as_ref() == Some(&phase);
        findings.extend(others.extract_if(.., own));
    }
    // After a settle, which is no phase with operations.
    findings.extend(others);
    findings
}

/// What bounded an engine in a phase, and what sets it apart from the base there.
pub fn of_phase(scene: &Scene<'_>, engine: &str, phase: &str) -> Vec<Finding> {
    let bound = bound::finding(scene, engine, phase);
    bound
        .into_iter()
        .chain(cost::finding(scene, engine, phase))
        .chain(hot::finding(scene, engine, phase))
        .collect()
}

/// The findings for a terminal: each with the names of its figures behind it.
pub fn render(suite: &SuiteResult, options: &ReportOptions) -> String {
    let findings = explain(suite, options);
    let found = groups(suite, options.mix_durability);
    let mut out = format!("What decided {}: {}\n", suite.workload, suite.command);
    for (number, group) in found.iter().enumerate() {
        if found.len() > 1 {
            out += &format!("\n{}\n", group.heading());
        }
        let own: Vec<&Finding> = findings
            .iter()
            .filter(|finding| finding.group == Some(number))
            .collect();
        let mut phase: Option<&String> = None;
        for finding in own {
            if finding.phase.as_ref() != phase {
                phase = finding.phase.as_ref();
                out += &format!("\n{}\n", phase.map_or("", String::as_str));
            }
            out += &line(finding);
        }
    }
    out += "\nAbout the experiment\n";
    let about = findings.iter().filter(|finding| finding.group.is_none());
    let about: String = about.map(line).collect();
    match about.is_empty() {
        true => out += "  nothing speaks against it\n",
        false => out += &about,
    }
    out + "\nIn brackets: the figures, see `rumbench explain METRIC`; --json has their values.\n"
}

fn line(finding: &Finding) -> String {
    let metrics = finding.metrics().join(", ");
    format!("  {} [{metrics}]\n", finding.sentence())
}

/// A share in whole percent.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A ratio: with two decimals, or about three digits where it is large.
pub fn times(ratio: f64) -> String {
    match ratio {
        r if r >= 100.0 => number(Some(r)),
        r if r >= 10.0 => format!("{r:.1}"),
        r if r >= 0.1 => format!("{r:.2}"),
        r => number(Some(r)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{assert_snapshot, sample};

    #[test]
    fn explanation_of_a_fixed_result_is_unchanged() {
        let text = render(&sample::suite(), &ReportOptions::default());
        assert_snapshot("explain.txt", &text);
    }

    #[test]
    fn every_sentence_names_a_figure() {
        for suite in [
            sample::suite(),
            sample::kv_sequence(),
            sample::insert_benchmark(),
            sample::clients(),
            sample::ageing(),
        ] {
            let findings = explain(&suite, &ReportOptions::default());
            assert!(!findings.is_empty());
            for finding in findings {
                assert!(!finding.figures.is_empty(), "{finding:?}");
                assert!(finding.text.ends_with('.'), "{finding:?}");
            }
        }
    }

    #[test]
    fn engines_of_different_durability_are_never_compared() {
        let mut suite = sample::suite();
        let facts = suite.trials[1].durability_facts.as_mut().unwrap();
        facts.power_cut = "may corrupt".to_string();
        let costs = |options: &ReportOptions| {
            let findings = explain(&suite, options).into_iter();
            findings.filter(|found| found.kind == Kind::Cost).count()
        };
        assert_eq!(costs(&ReportOptions::default()), 0);
        let mixed = ReportOptions {
            mix_durability: true,
            ..ReportOptions::default()
        };
        assert!(costs(&mixed) > 0);
    }
}
