//! Charts of a phase over time, all engines in one: throughput with its band, and the longest
//! response of each second.

use maud::{Markup, html};

use super::page::View;
use super::plot::{Curve, Plot};
use super::scale::{Axis, Unit};
use super::series::{Seconds, buckets, width};
use crate::store::result::{Interval, PhaseResult};

/// Fewest whole seconds for a chart.
pub const SECONDS_MIN: usize = 3;

/// Returns the values of the whole seconds of a phase. The last second is left out: the phase ended
/// within it, and it would look slow.
pub fn seconds(phase: &PhaseResult, value: impl Fn(&Interval) -> Option<f64>) -> Seconds {
    // The file is not trusted with an allocation: the length is limited to the number of intervals.
    let whole = (phase.seconds.max(0.0) as usize).min(phase.intervals.len());
    let mut found = vec![None; whole];
    for interval in &phase.intervals {
        if let Some(place) = usize::try_from(interval.second)
            .ok()
            .and_then(|second| found.get_mut(second))
        {
            *place = value(interval);
        }
    }
    found
}

/// Returns the largest number of whole seconds of any engine in a phase.
pub fn longest(view: &View<'_>, phase: &str) -> usize {
    let engines = view.group.engines_of(phase);
    let lengths = engines
        .iter()
        .flat_map(|engine| view.group.of(engine, phase))
        .map(|phase| seconds(phase, |_| None).len());
    lengths.max().unwrap_or(0)
}

/// Renders both charts, or a sentence that explains their absence.
pub fn charts(view: &View<'_>, phase: &str) -> Markup {
    let longest = longest(view, phase);
    if longest < SECONDS_MIN {
        return html! {
            p.note { "No charts over time: no engine took " (SECONDS_MIN) " seconds." }
        };
    }
    let width = width(longest, view.detail.points);
    let (each, title) = match width {
        1 => (
            String::new(),
            "Longest response of each second (logarithmic)".to_string(),
        ),
        n => (
            format!("; a point is {n} s, its band their lowest and highest second"),
            format!("Longest response of each {n} s (logarithmic)"),
        ),
    };
    let throughput = curves(view, phase, width, |interval| Some(interval.ops as f64));
    let highest = Axis::linear(extremes(&throughput).1, Unit::Number);
    let worst = curves(view, phase, width, |interval| {
        Some(interval.max_us).filter(|us| *us > 0.0)
    });
    let worst: Vec<Curve> = worst.into_iter().map(worst_first).collect();
    let (low, high) = extremes(&worst);
    let (x, y) = (
        Axis::time(longest as f64),
        Axis::log(low, high, Unit::Microseconds),
    );
    html! {
        (Plot::new(format!("Operations each second (op/s{each})"), x.clone(), highest, throughput))
        (Plot::new(title, x, y, worst))
    }
}

fn curves(
    view: &View<'_>,
    phase: &str,
    width: usize,
    value: impl Fn(&Interval) -> Option<f64> + Copy,
) -> Vec<Curve> {
    let engines = view.group.engines_of(phase);
    let curve = |engine: &String| {
        let repetitions: Vec<Seconds> = view
            .group
            .of(engine, phase)
            .map(|phase| seconds(phase, value))
            .collect();
        let several = width > 1 || repetitions.len() > 1;
        Curve::of_buckets(
            view.style(engine),
            &view.group.label(engine),
            &buckets(&repetitions, width),
            several,
        )
    };
    engines.iter().map(curve).collect()
}

/// Replaces the mean of each bucket by its highest value, as response times need.
fn worst_first(curve: Curve) -> Curve {
    if curve.band.is_empty() {
        return curve;
    }
    let points = curve
        .band
        .iter()
        .map(|band| band.map(|(x, _, high)| (x, high)));
    Curve {
        points: points.collect(),
        band: Vec::new(),
        ..curve
    }
}

/// Returns the lowest and highest value of all curves.
pub fn extremes(curves: &[Curve]) -> (f64, f64) {
    let points = curves
        .iter()
        .flat_map(|curve| curve.points.iter().flatten())
        .map(|(_, y)| *y);
    let bands = curves
        .iter()
        .flat_map(|curve| curve.band.iter().flatten())
        .flat_map(|(_, low, high)| [*low, *high]);
    points
        .chain(bands)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| {
            (low.min(y), high.max(y))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_in_which_a_phase_ended_is_left_out() {
        let interval = |second, ops| Interval {
            second,
            ops,
            ..Interval::default()
        };
        let phase = PhaseResult {
            seconds: 2.4,
            intervals: vec![
                interval(0, 10),
                interval(1, 12),
                interval(2, 3),
                interval(u64::MAX, 1),
            ],
            ..PhaseResult::default()
        };
        assert_eq!(
            seconds(&phase, |i| Some(i.ops as f64)),
            [Some(10.0), Some(12.0)]
        );
        let endless = PhaseResult {
            seconds: 1e18,
            ..phase
        };
        assert_eq!(seconds(&endless, |_| None).len(), 4);
    }
}
