//! Time line of one engine's phase: throughput, heat map, CPU, writes, size and the engine's own
//! counters above each other.
//!
//! It shows the median repetition only, because events of different repetitions do not belong
//! together.

use maud::{Markup, html};

use super::heat;
use super::over_time::{SECONDS_MIN, extremes, seconds};
use super::page::View;
use super::plot::{Curve, Plot, in_words};
use super::scale::{Axis, Unit};
use super::series::{Seconds, buckets, rates, width};
use crate::store::result::{Interval, PhaseResult};

/// Words for work that can slow clients down. Counters with such a word are drawn first, in this
/// order.
const TELLING: &[&str] = &[
    "stall",
    "delay",
    "wait",
    "compact",
    "merge",
    "flush",
    "checkpoint",
    "debt",
    "level",
    "runs",
    "memtable",
    "sealed",
    "wal",
    "journal",
    "sync",
    "cache",
];

/// Renders the time lines of all engines of a phase, folded.
pub fn all(view: &View<'_>, phase: &str) -> Markup {
    let engines = view.group.engines_of(phase);
    let found = engines.iter().filter_map(|engine| {
        let (trial, found) = view.typical(engine, phase)?;
        let longest = seconds(found, |_| None).len();
        (longest >= SECONDS_MIN).then_some((engine, trial.repetition, found, longest))
    });
    html! {
        @for (engine, repetition, found, longest) in found {
            details {
                summary {
                    (phase) ": " (view.group.label(engine))
                    " over time, with its own counters (repetition " (repetition) ")"
                }
                div.stack data-x={ "0 " (longest) } {
                    @for plot in plots(view, engine, found, longest) { (plot) }
                }
            }
        }
    }
}

/// Title of a strip and its values by second.
struct Strip {
    title: String,
    values: Seconds,
}

/// Returns the charts of a stack; only the last one has labels of time.
fn plots(view: &View<'_>, engine: &str, phase: &PhaseResult, longest: usize) -> Vec<Plot> {
    let width = width(longest, view.detail.points);
    let plot = |title: String, alternative, y, curves, under| Plot {
        alternative,
        under,
        strip: true,
        x_labels: false,
        legend: false,
        ..Plot::new(title, Axis::time(longest as f64), y, curves)
    };
    let draw = |strip: Strip| {
        let buckets = buckets(std::slice::from_ref(&strip.values), width);
        let curve = Curve::of_buckets(view.style(engine), "", &buckets, width > 1);
        let (_, high) = extremes(std::slice::from_ref(&curve));
        let (alternative, y) = (
            in_words(&curve, Unit::Number),
            Axis::linear(high, Unit::Number),
        );
        plot(strip.title, alternative, y, vec![curve], Markup::default())
    };
    let sampled = |title: &str, value: fn(&Interval) -> Option<f64>| Strip {
        title: title.to_string(),
        values: seconds(phase, value),
    };
    let mut plots = vec![draw(sampled("throughput (op/s)", |i| Some(i.ops as f64)))];
    if let Some(heat) = heat::map(phase, width, longest) {
        let title = "response time (logarithmic; darker: more operations)".to_string();
        let alternative = format!("Heat map of response times: {}", heat.alternative);
        plots.push(plot(title, alternative, heat.y, Vec::new(), heat.svg));
    }
    let mut strips = vec![
        sampled("CPU of the process (CPUs busy)", |i| i.cpu_seconds),
        sampled("written (MiB/s)", |i| i.kb_written.map(|kb| kb / 1024.0)),
    ];
    if view.detail.all_strips() {
        strips.push(sampled("read (MiB/s)", |i| i.kb_read.map(|kb| kb / 1024.0)));
        strips.push(sampled("data directory (MiB)", |i| {
            i.directory_bytes
                .map(|bytes| bytes as f64 / f64::from(1 << 20))
        }));
    }
    strips.retain(|strip| strip.values.iter().flatten().any(|&value| value > 0.0));
    strips.extend(counters(phase, view.detail.counters));
    let labeled = !strips.is_empty();
    plots.extend(strips.into_iter().map(draw));
    if let Some(last) = plots.last_mut().filter(|_| labeled) {
        last.x_labels = true;
    }
    plots
}

/// Returns the engine's counters that changed during the phase, those of [`TELLING`] first.
/// Counters that only grow are shown per second.
fn counters(phase: &PhaseResult, most: usize) -> Vec<Strip> {
    let mut names: Vec<&String> = Vec::new();
    for name in phase
        .intervals
        .iter()
        .flat_map(|interval| interval.engine_counters.keys())
    {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let telling = |name: &str| {
        TELLING
            .iter()
            .position(|word| name.contains(word))
            .unwrap_or(TELLING.len())
    };
    names.sort_by_key(|name| telling(name));
    let strip = |name: &String| {
        let values = seconds(phase, |interval| {
            interval.engine_counters.get(name).copied()
        });
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        let moved = known.windows(2).any(|pair| pair[0] != pair[1]);
        moved.then(|| match rates(&values) {
            Some(values) => Strip {
                title: format!("{name} (1/s)"),
                values,
            },
            None => Strip {
                title: name.clone(),
                values,
            },
        })
    };
    names.into_iter().filter_map(strip).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counters_that_moved_are_drawn_and_telling_ones_come_first() {
        let interval = |second: u64| Interval {
            second,
            engine_counters: [("a_gauge", second % 2), ("still", 7), ("stall_us", second)]
                .map(|(name, value)| (name.to_string(), value as f64))
                .into(),
            ..Interval::default()
        };
        let phase = PhaseResult {
            seconds: 4.0,
            intervals: (0..4).map(interval).collect(),
            ..PhaseResult::default()
        };
        let found: Vec<String> = counters(&phase, 9)
            .into_iter()
            .map(|strip| strip.title)
            .collect();
        assert_eq!(found, ["stall_us (1/s)", "a_gauge"]);
    }
}
