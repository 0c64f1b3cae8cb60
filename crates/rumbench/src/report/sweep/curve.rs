//! One engine and one phase at all values of a sweep: medians, ranges, and ratios to the first
//! value.

use super::whole::Whole;
use crate::measure::statistics::{Ratio, median, paired_ratio};
use crate::report::selection::Group;
use crate::report::throughput::{per_item, rate};
use crate::store::result::{PhaseResult, TrialResult};
use crate::store::sweep::Sweep;
use crate::text::gib;

/// Measurements of one engine and phase at one value of the sweep.
#[derive(Debug, Clone)]
pub struct Point {
    /// Value of the setting, as given by the user.
    pub value: String,
    /// Throughput of each repetition, with the repetition's number.
    pub rates: Vec<(u32, f64)>,
    /// Client threads. `None` if they are not recorded.
    pub clients: Option<usize>,
    /// True if the phase had a requested rate.
    pub paced: bool,
    /// 99th percentile of the phase's most frequent operation, in microseconds.
    pub p99_us: Option<f64>,
    /// CPU per operation or row, in microseconds.
    pub cpu_us: Option<f64>,
    /// KiB written per operation or row, with the writes of the following settle if it was
    /// measured.
    pub written_kb: Option<f64>,
    /// GiB of data after the last settle.
    pub data_gib: Option<f64>,
    /// Peak memory in MiB.
    pub rss_mib: Option<f64>,
}

impl Point {
    /// Returns the median of the repetitions.
    pub fn rate(&self) -> Option<f64> {
        median(&self.rates.iter().map(|(_, rate)| *rate).collect::<Vec<_>>())
    }

    /// Returns the lowest and highest repetition.
    pub fn range(&self) -> Option<(f64, f64)> {
        let rates = self.rates.iter().map(|(_, rate)| *rate);
        (!self.rates.is_empty()).then(|| {
            let low = rates.clone().fold(f64::INFINITY, f64::min);
            (low, rates.fold(f64::NEG_INFINITY, f64::max))
        })
    }
}

/// Returns the points of one engine and phase, in the order of the sweep; values without a trial
/// are left out.
pub fn points(sweep: &Sweep, whole: &Whole<'_>, engine: &str, phase: &str) -> Vec<Point> {
    let point = |value: &String| {
        let group = whole.point(sweep, value)?;
        let found = point(group, value, engine, phase);
        (!found.rates.is_empty()).then_some(found)
    };
    sweep.values.iter().filter_map(point).collect()
}

fn point(group: &Group<'_>, value: &str, engine: &str, phase: &str) -> Point {
    let median = |value: &dyn Fn(&PhaseResult) -> Option<f64>| group.median(engine, phase, value);
    let trials = group.trials.iter().filter(|trial| trial.name() == engine);
    let found = |trial: &&TrialResult| {
        let phase = trial.phases.iter().find(|found| found.name == phase)?;
        Some((trial.repetition, rate(phase).filter(|rate| *rate > 0.0)?))
    };
    let written = |phase: &PhaseResult| phase.kb_written_per_op_settled.or(phase.kb_written_per_op);
    let settle = group.settles().pop();
    let data = settle.and_then(|settle| {
        group.median(engine, &settle, |p| p.size_bytes.map(|size| gib(size.data)))
    });
    Point {
        value: value.to_string(),
        rates: trials.filter_map(found).collect(),
        clients: group.of(engine, phase).find_map(|phase| phase.clients),
        paced: group.of(engine, phase).any(|phase| phase.rate.is_some()),
        p99_us: median(&p99),
        cpu_us: median(&|p| per_item(p, p.cpu_us_per_op.map(|cpu| cpu.total))),
        written_kb: median(&|p| per_item(p, written(p))),
        data_gib: data,
        rss_mib: median(&|p| p.rss_bytes.map(|rss| rss.peak as f64 / f64::from(1 << 20))),
    }
}

/// Returns the most frequent operation of a phase.
fn most_frequent(phase: &PhaseResult) -> Option<&String> {
    let counts = phase.latency_us.iter();
    counts
        .max_by_key(|(_, latency)| latency.count)
        .map(|(name, _)| name)
}

fn p99(phase: &PhaseResult) -> Option<f64> {
    Some(phase.latency_us[most_frequent(phase)?].p99)
}

/// Returns the name of the most frequent operation, for a header.
pub fn frequent_operation(whole: &Whole<'_>, phase: &str) -> Option<String> {
    let mut phases = whole.points.iter().flat_map(|group| {
        let phases = group.trials.iter().flat_map(|trial| &trial.phases);
        phases.filter(|found| found.name == phase)
    });
    phases.find_map(|phase| most_frequent(phase).cloned())
}

/// Compares the throughput with that at the first value, pairing trials of the same repetition.
pub fn against_first(first: &Point, other: &Point) -> Option<Ratio> {
    let of = |point: &Point, n: u32| {
        let mut rates = point.rates.iter();
        rates.find(|(found, _)| *found == n).map(|(_, rate)| *rate)
    };
    let pairs: Vec<(f64, f64)> = first
        .rates
        .iter()
        .filter_map(|(n, base)| Some((*base, of(other, *n)?)))
        .collect();
    paired_ratio(&pairs)
}
