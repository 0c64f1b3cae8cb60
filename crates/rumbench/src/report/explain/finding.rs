//! Sentences about a result with their figures, and the engines that they are about.

use serde::Serialize;

use crate::report::selection::Group;
use crate::report::spread;
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
