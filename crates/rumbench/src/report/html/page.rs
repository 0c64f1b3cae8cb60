//! What all parts of the page need to know: the suite, one group of comparable engines, its base, colours, and how fine charts are.

use crate::measure::statistics::median;
use crate::report::selection::Group;
use crate::report::throughput::{counts_rows, rate};
use crate::store::result::{PhaseResult, SuiteResult, TrialResult};

/// How fine charts are: the first that keeps the page small enough is taken.
#[derive(Debug, Clone, Copy)]
pub struct Detail {
    /// Most points of a curve.
    pub points: usize,
    /// Counters drawn for each engine and phase.
    pub counters: usize,
    /// Whether time lines show what is read, and the size, besides what is written.
    pub all_strips: bool,
    /// Whether tables of counters have the end of every phase, or of the last one only.
    pub all_ends: bool,
}

/// From fine to coarse.
pub const DETAILS: [Detail; 9] = [
    Detail {
        points: 180,
        counters: 6,
        all_strips: true,
        all_ends: true,
    },
    Detail {
        points: 120,
        counters: 6,
        all_strips: true,
        all_ends: true,
    },
    Detail {
        points: 80,
        counters: 4,
        all_strips: true,
        all_ends: true,
    },
    Detail {
        points: 60,
        counters: 3,
        all_strips: true,
        all_ends: true,
    },
    Detail {
        points: 60,
        counters: 2,
        all_strips: false,
        all_ends: true,
    },
    Detail {
        points: 48,
        counters: 1,
        all_strips: false,
        all_ends: true,
    },
    Detail {
        points: 36,
        counters: 0,
        all_strips: false,
        all_ends: false,
    },
    Detail {
        points: 24,
        counters: 0,
        all_strips: false,
        all_ends: false,
    },
    Detail {
        points: 16,
        counters: 0,
        all_strips: false,
        all_ends: false,
    },
];

/// One group of engines on the page.
pub struct View<'a> {
    /// The whole result.
    pub suite: &'a SuiteResult,
    /// Engines that may be compared.
    pub group: &'a Group<'a>,
    /// Number of the group, for anchors.
    pub number: usize,
    /// Base of ratios.
    pub base: String,
    /// Names of all engines of the suite; an engine's place is its colour.
    pub styles: &'a [String],
    /// How fine charts are.
    pub detail: Detail,
}

impl View<'_> {
    /// Colour and dashes of an engine.
    pub fn style(&self, engine: &str) -> usize {
        self.styles
            .iter()
            .position(|name| name == engine)
            .unwrap_or(0)
    }

    /// Anchor of a part of this group.
    pub fn anchor(&self, part: &str) -> String {
        format!("g{}-{part}", self.number)
    }

    /// Phases whose rates are compared: all but those that only warm up.
    pub fn phases(&self) -> Vec<String> {
        let mut phases = self.group.phases();
        phases.retain(|phase| phase != "warmup");
        phases
    }

    /// The phase that sentences speak of: the last one that is no load.
    pub fn main_phase(&self) -> Option<String> {
        let phases = self.phases();
        let work = phases.iter().rev().find(|phase| !counts_rows(phase));
        work.or(phases.last()).cloned()
    }

    /// How many repetitions the engine with the most of them has.
    pub fn repetitions(&self) -> usize {
        let count = |engine: &String| {
            self.group
                .trials
                .iter()
                .filter(|trial| trial.name() == *engine)
                .count()
        };
        self.group.engines().iter().map(count).max().unwrap_or(0)
    }

    /// The repetition of an engine whose rate in a phase is nearest to the median: the one that is drawn alone.
    pub fn typical(&self, engine: &str, phase: &str) -> Option<(&TrialResult, &PhaseResult)> {
        let found = |trial: &&TrialResult| trial.name() == engine;
        let pairs: Vec<_> = self
            .group
            .trials
            .iter()
            .copied()
            .filter(found)
            .filter_map(|trial| {
                Some((
                    trial,
                    trial.phases.iter().find(|found| found.name == phase)?,
                ))
            })
            .collect();
        let rates: Vec<f64> = pairs.iter().filter_map(|(_, phase)| rate(phase)).collect();
        let middle = median(&rates).unwrap_or(0.0);
        let distance = |phase: &PhaseResult| (rate(phase).unwrap_or(f64::INFINITY) - middle).abs();
        pairs
            .into_iter()
            .min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)))
    }
}
