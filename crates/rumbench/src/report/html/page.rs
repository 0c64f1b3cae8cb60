//! State that all parts of the page share: the suite, one group of comparable engines, its base,
//! colors, and the detail of charts.

use crate::measure::statistics::median;
use crate::report::selection::Group;
use crate::report::throughput::{counts_rows, rate};
use crate::store::result::{PhaseResult, SuiteResult, TrialResult};

/// Detail of charts. The page uses the finest one that keeps it small enough.
#[derive(Debug, Clone, Copy)]
pub struct Detail {
    /// Most points of a curve.
    pub points: usize,
    /// Number of counters drawn for each engine and phase.
    pub counters: usize,
}

impl Detail {
    /// Returns true if time lines show reads and sizes in addition to writes.
    pub fn all_strips(self) -> bool {
        self.counters > 2
    }

    /// Returns true if tables of counters have the end of every phase, false if only of the last
    /// one.
    pub fn all_ends(self) -> bool {
        self.counters > 0
    }
}

/// Details from fine to coarse.
pub const DETAILS: [Detail; 9] = {
    const fn of(points: usize, counters: usize) -> Detail {
        Detail { points, counters }
    }
    [
        of(180, 6),
        of(120, 6),
        of(80, 4),
        of(60, 3),
        of(60, 2),
        of(48, 1),
        of(36, 0),
        of(24, 0),
        of(16, 0),
    ]
};

/// Returns the index of an engine's color and dashes.
pub fn style(styles: &[String], engine: &str) -> usize {
    let place = styles.iter().position(|name| name == engine);
    place.unwrap_or(0)
}

/// One group of engines on the page.
pub struct View<'a> {
    /// Result of the whole suite.
    pub suite: &'a SuiteResult,
    /// Engines that may be compared.
    pub group: &'a Group<'a>,
    /// Index of the group from 0, used in anchors.
    pub number: usize,
    /// Base engine of the ratios.
    pub base: String,
    /// Names of all engines of the suite; an engine's index selects its color.
    pub styles: &'a [String],
    /// Detail of charts.
    pub detail: Detail,
}

impl View<'_> {
    /// Returns the index of an engine's color and dashes.
    pub fn style(&self, engine: &str) -> usize {
        style(self.styles, engine)
    }

    /// Returns the anchor of a part of this group.
    pub fn anchor(&self, part: &str) -> String {
        format!("g{}-{part}", self.number)
    }

    /// Returns the phases with comparable rates: all except the warm-up.
    pub fn phases(&self) -> Vec<String> {
        let mut phases = self.group.phases();
        phases.retain(|phase| phase != "warmup");
        phases
    }

    /// Returns the main phase, the subject of the sentences: the last one that is not a load.
    pub fn main_phase(&self) -> Option<String> {
        let phases = self.phases();
        let work = phases.iter().rev().find(|phase| !counts_rows(phase));
        work.or(phases.last()).cloned()
    }

    /// Returns the largest number of repetitions of any engine.
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

    /// Returns the repetition of an engine with the rate nearest to the median in a phase, for
    /// charts of a single trial.
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
