//! Causes of a result in words: `rumbench explain RUN`, and short sentences on the page.
//!
//! Every sentence is a [`Finding`] with its figures, so that a reader can check it. [`usage`] does
//! the arithmetic: it splits the time of the clients' threads.
//!
//! - [`bound`] names the bottleneck of a phase.
//! - [`cost`] names the costs that set an engine apart from the base.
//! - [`hot`] names the functions on which CPU time went.
//! - [`stalls`] lists the seconds without throughput and the engine's work in them.
//! - [`theory`] lists costs above their theoretical limit.
//! - [`warnings`] lists faults of the experiment itself.
//!
//! `docs/guide/explain.md` explains the rules to users. Nothing here measures; a sentence without
//! figures is not written.

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

/// Subject of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Bottleneck of an engine's throughput in a phase.
    Bound,
    /// Costs that set an engine apart from the base.
    Cost,
    /// Seconds without throughput, and their causes.
    Stall,
    /// Costs above their theoretical limit.
    Theory,
    /// Functions on which CPU time went.
    Function,
    /// Faults of the experiment.
    Warning,
}

/// Number on which a sentence rests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Name, as in `result.json` and `rumbench list metrics`.
    pub metric: String,
    /// Value. `None` if the metric is not a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Value of the base engine, if the sentence compares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<f64>,
}

impl Figure {
    /// Creates a figure with a value; values that are not finite become `None`.
    pub fn new(metric: &str, value: Option<f64>) -> Figure {
        Figure {
            metric: metric.to_string(),
            value: value.filter(|value| value.is_finite()),
            base: None,
        }
    }

    /// Creates a figure with a value and that of the base.
    pub fn against(metric: &str, value: Option<f64>, base: Option<f64>) -> Figure {
        let base = base.filter(|base| base.is_finite());
        Figure {
            base,
            ..Figure::new(metric, value)
        }
    }

    /// Creates a figure without a value, such as a mark or a fact of the environment.
    pub fn fact(name: &str) -> Figure {
        Figure::new(name, None)
    }
}

/// A sentence and its figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Subject.
    pub kind: Kind,
    /// Number of the group of comparable engines, as on the page. `None` for the whole suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// Setting of a sweep, `KEY=VALUE`. `None` outside a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// Phase. `None` for the whole suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Engine, as in tables. `None` for the whole suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Sentence, without the engine's name at its beginning.
    pub text: String,
    /// Short form for the first screen, without the engine's name.
    #[serde(skip)]
    pub brief: Option<String>,
    /// Figures, the most important one first.
    pub figures: Vec<Figure>,
}

impl Finding {
    /// Creates a finding about the whole suite.
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

    /// Adds the short form.
    pub fn in_brief(self, brief: String) -> Finding {
        Finding {
            brief: Some(brief),
            ..self
        }
    }

    /// Returns the sentence with the engine's name in front.
    pub fn sentence(&self) -> String {
        match &self.engine {
            Some(engine) => format!("{engine} {}", self.text),
            None => self.text.clone(),
        }
    }

    /// Returns the names of the figures, each once.
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

/// One group of comparable engines and the context for sentences about it.
pub struct Scene<'a> {
    /// Result of the whole suite.
    pub suite: &'a SuiteResult,
    /// Engines that may be compared.
    pub group: &'a Group<'a>,
    /// Index of the group in the suite, from 0.
    pub number: usize,
    /// Base engine of the ratios.
    pub base: String,
    /// Ratios to the base, of trials in the same repetition.
    pub comparisons: Vec<Comparison>,
}

impl<'a> Scene<'a> {
    /// Creates the scene for a group and compares its engines with the base.
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

    /// Creates a finding about an engine in a phase.
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

    /// Returns the phases to explain: all with operations except the warm-up.
    pub fn phases(&self) -> Vec<String> {
        let mut phases = self.group.phases();
        phases.retain(|phase| phase != "warmup");
        phases
    }

    /// Returns the trials of an engine.
    pub fn trials<'s>(&'s self, engine: &'s str) -> impl Iterator<Item = &'s TrialResult> + 's {
        let trials = self.group.trials.iter().copied();
        trials.filter(move |trial| trial.name() == engine)
    }
}

/// Returns all findings of a result, group by group and phase by phase, warnings last.
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

/// Returns all findings of one group.
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
    // Findings about a settle, a phase without operations.
    findings.extend(others);
    findings
}

/// Returns the bottleneck of an engine in a phase, its differences from the base, and its hot
/// functions.
pub fn of_phase(scene: &Scene<'_>, engine: &str, phase: &str) -> Vec<Finding> {
    let bound = bound::finding(scene, engine, phase);
    bound
        .into_iter()
        .chain(cost::finding(scene, engine, phase))
        .chain(hot::finding(scene, engine, phase))
        .collect()
}

/// Renders the findings for a terminal, each followed by the names of its figures.
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
    if about.is_empty() {
        out += "  nothing speaks against it\n"
    } else {
        out += &about
    }
    out + "\nIn brackets: the figures, see `rumbench explain METRIC`; --json has their values.\n"
}

fn line(finding: &Finding) -> String {
    let metrics = finding.metrics().join(", ");
    format!("  {} [{metrics}]\n", finding.sentence())
}

/// Formats a share in whole percent.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats a ratio: with two decimals, or about three digits if it is large.
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
            sample::aging(),
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
