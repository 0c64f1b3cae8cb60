//! Axes: the position of a value between the two ends of a chart, and the round values that label
//! it.

use crate::text::{microseconds, short};

/// Steps between ticks of a time axis, in seconds.
const TIME_STEPS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0,
    14_400.0, 21_600.0, 43_200.0, 86_400.0,
];

/// Mapping of values to positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Equal differences have equal lengths; begins at 0.
    Linear,
    /// Equal ratios have equal lengths.
    Log,
}

/// Unit of an axis, for its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Plain number; the title names the unit.
    Number,
    /// Microseconds, shown as us, ms or s.
    Microseconds,
    /// Seconds since the start of a phase.
    Time,
    /// Named positions at 0, 1, 2, ...
    Names,
}

/// Axis of a chart.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Value at the near end: left or bottom.
    pub low: f64,
    /// Value at the far end: right or top.
    pub high: f64,
    /// Mapping of values to positions.
    pub kind: Kind,
    /// Unit of the values.
    pub unit: Unit,
    /// Labeled values, with their labels.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Creates an axis from 0 to the first tick that is not below `max`.
    pub fn linear(max: f64, unit: Unit) -> Axis {
        let max = if max.is_finite() && max > 0.0 {
            max
        } else {
            1.0
        };
        let step = nice_step(max / 4.0);
        let count = (max / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as usize).map(|i| i as f64 * step);
        Axis {
            low: 0.0,
            high: count * step,
            kind: Kind::Linear,
            unit,
            ticks: ticks.map(|value| (value, label(value, unit))).collect(),
        }
    }

    /// Creates an axis of whole decades around `min` and `max`; with many decades only some have a
    /// label.
    pub fn log(min: f64, max: f64, unit: Unit) -> Axis {
        let sound = |value: f64, or: f64| {
            if value.is_finite() && value > 0.0 {
                value
            } else {
                or
            }
        };
        let (min, max) = (sound(min, 1.0), sound(max, 10.0));
        let first = (min.log10() + 1e-9).floor() as i32;
        let last = ((max.log10() - 1e-9).ceil() as i32).max(first + 1);
        let every = (last - first) / 6 + 1;
        let ticks = (first..=last)
            .step_by(every as usize)
            .map(|decade| 10f64.powi(decade));
        Axis {
            low: 10f64.powi(first),
            high: 10f64.powi(last),
            kind: Kind::Log,
            unit,
            ticks: ticks.map(|value| (value, label(value, unit))).collect(),
        }
    }

    /// Creates a time axis from 0 to exactly `seconds`.
    pub fn time(seconds: f64) -> Axis {
        let seconds = if seconds.is_finite() {
            seconds.max(1.0)
        } else {
            1.0
        };
        let widest = TIME_STEPS[TIME_STEPS.len() - 1];
        let step = TIME_STEPS
            .iter()
            .copied()
            .find(|step| seconds / step <= 6.0);
        let step = step.unwrap_or_else(|| (seconds / 6.0 / widest).ceil() * widest);
        let count = (seconds / step) as usize;
        let ticks = (0..=count).map(|i| i as f64 * step);
        Axis {
            low: 0.0,
            high: seconds,
            kind: Kind::Linear,
            unit: Unit::Time,
            ticks: ticks
                .map(|value| (value, label(value, Unit::Time)))
                .collect(),
        }
    }

    /// Creates an axis of evenly spaced names.
    pub fn names(names: &[&str]) -> Axis {
        Axis {
            low: 0.0,
            high: (names.len().max(2) - 1) as f64,
            kind: Kind::Linear,
            unit: Unit::Names,
            ticks: names
                .iter()
                .enumerate()
                .map(|(i, name)| (i as f64, (*name).to_string()))
                .collect(),
        }
    }

    /// Returns the position of a value, from 0 (near end) to 1. Values beyond an end are clamped to
    /// it.
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

/// Returns the smallest of 1, 2, 2.5 and 5 times a power of ten that is not below `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    steps
        .into_iter()
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// Formats a value for an axis.
pub fn label(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Number | Unit::Names => short(value),
        Unit::Microseconds => microseconds(value),
        Unit::Time if value >= 3600.0 && value % 60.0 == 0.0 => {
            format!("{} h", short(value / 3600.0))
        }
        Unit::Time if value >= 60.0 && value % 30.0 == 0.0 => {
            format!("{} min", short(value / 60.0))
        }
        Unit::Time => format!("{} s", short(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_enclose_the_largest_value() {
        let axis = Axis::linear(17_300.0, Unit::Number);
        assert_eq!(labels(&axis), ["0", "5,000", "10k", "15k", "20k"]);
        assert_eq!(axis.place(10_000.0), 0.5);
        assert_eq!(
            labels(&Axis::linear(0.4, Unit::Number)),
            ["0", "0.1", "0.2", "0.3", "0.4"]
        );
        assert_eq!(
            labels(&Axis::linear(f64::NAN, Unit::Number)),
            ["0", "0.25", "0.5", "0.75", "1"]
        );
    }

    #[test]
    fn decades_of_response_times_are_named_by_their_unit() {
        let axis = Axis::log(3.0, 2_000_000.0, Unit::Microseconds);
        assert_eq!(labels(&axis), ["1 us", "100 us", "10 ms", "1 s"]);
        assert!((axis.place(3162.277) - 0.5).abs() < 1e-6);
        assert_eq!(axis.place(0.0), 0.0);
        assert_eq!(Axis::log(10.0, 10.0, Unit::Number).high, 100.0);
    }

    #[test]
    fn time_ends_where_the_phase_ends() {
        let axis = Axis::time(3600.0);
        assert_eq!(
            labels(&axis),
            [
                "0 s", "10 min", "20 min", "30 min", "40 min", "50 min", "1 h"
            ]
        );
        assert_eq!(Axis::time(7.5).high, 7.5);
        assert_eq!(labels(&Axis::time(100.0))[3], "1.5 min");
        assert_eq!(Axis::time(1e9).ticks.len(), 6);
    }
}
