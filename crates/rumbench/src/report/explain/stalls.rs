//! Stalls, and the engine's work in those seconds: its counters compared with the usual second.
//!
//! A stall is a whole second with less than a tenth of the median's operations, as `stall_seconds`
//! counts them. A counter is named if it grew at least [`UNUSUAL`] times as fast as in the median
//! second, in the stalled seconds or the one before them.

use std::collections::BTreeSet;

use super::finding::{Figure, Finding, Kind, Scene};
use crate::measure::statistics::{median, stalled_limit};
use crate::store::result::{Interval, PhaseResult, TrialResult};
use crate::text::number;
use crate::text::times;

/// Multiple of the usual growth from which a counter's growth is an event.
const UNUSUAL: f64 = 3.0;
/// Shortest pause of all clients that is reported, in milliseconds.
const PAUSE_MS: f64 = 250.0;
/// Most events listed for a trial.
const EVENTS: usize = 3;
/// Most seconds listed for a trial.
const SECONDS: usize = 8;

/// Returns one sentence for each trial with stalls. Without stalls, returns one for the longest
/// pause in any trial.
pub fn findings(scene: &Scene<'_>, engine: &str, phase: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut pause: Option<(&TrialResult, f64)> = None;
    for trial in scene.trials(engine) {
        let Some(found) = trial.phases.iter().find(|found| found.name == phase) else {
            continue;
        };
        let longest = found.longest_stall_ms.unwrap_or(0.0);
        let seconds = stalled(found);
        if !seconds.is_empty() {
            let (text, figures) = stall(trial, found, &seconds);
            findings.push(scene.finding(Kind::Stall, engine, phase, text, figures));
        } else if longest >= PAUSE_MS && pause.is_none_or(|(_, most)| longest > most) {
            pause = Some((trial, longest));
        }
    }
    if let Some((trial, ms)) = pause.filter(|_| findings.is_empty()) {
        let text = format!(
            "let no client complete anything for {} s at its worst (repetition {}).",
            number(Some(ms / 1e3)),
            trial.repetition
        );
        let figure = Figure::new("longest_stall_ms", Some(ms));
        findings.push(scene.finding(Kind::Stall, engine, phase, text, vec![figure]));
    }
    findings
}

/// Returns the indexes of stalled seconds among the intervals, whole seconds only.
fn stalled(phase: &PhaseResult) -> Vec<usize> {
    let ops = phase.ops_of_seconds();
    let Some(limit) = stalled_limit(&ops) else {
        return Vec::new();
    };
    let slow = |place: &usize| (ops[*place] as f64) < limit;
    (0..ops.len()).filter(slow).collect()
}

fn stall(trial: &TrialResult, phase: &PhaseResult, seconds: &[usize]) -> (String, Vec<Figure>) {
    let named: Vec<String> = seconds
        .iter()
        .take(SECONDS)
        .map(|place| phase.intervals[*place].second.to_string())
        .collect();
    let more = if seconds.len() > SECONDS { ", ..." } else { "" };
    let mut figures = vec![
        Figure::new("stall_seconds", Some(seconds.len() as f64)),
        Figure::new("longest_stall_ms", phase.longest_stall_ms),
    ];
    let mut text = format!(
        "stood nearly still in {} of {} seconds of repetition {} (second {}{more}; at most {} ms without a completion): ",
        seconds.len(),
        number(Some(phase.seconds)),
        trial.repetition,
        named.join(", "),
        number(phase.longest_stall_ms)
    );
    let events = events(phase, seconds);
    if events.is_empty() {
        text += "no counter moved more than usual in them";
        figures.push(Figure::fact("engine_counters"));
    }
    let told: Vec<String> = events.iter().map(|event| event.text.clone()).collect();
    text += &told.join("; ");
    figures.extend(events.into_iter().map(|event| event.figure));
    (text + ".", figures)
}

/// Growth during the stalls that is larger than usual.
struct Event {
    factor: f64,
    text: String,
    figure: Figure,
}

/// Returns the largest events, compared with the median second.
fn events(phase: &PhaseResult, seconds: &[usize]) -> Vec<Event> {
    let intervals = &phase.intervals;
    // The cause of a stall may begin in the second before it.
    let mut near = vec![false; intervals.len()];
    for place in seconds {
        near[place.saturating_sub(1)..=*place].fill(true);
    }
    let mut found = Vec::new();
    let names: BTreeSet<&String> = intervals
        .iter()
        .flat_map(|i| i.engine_counters.keys())
        .collect();
    for name in names {
        let growth = growth(intervals, name);
        let event = judge(name, &growth, &near);
        found.extend(event.filter(|_| growth.iter().flatten().all(|grown| *grown >= 0.0)));
    }
    let kib = |value: fn(&Interval) -> Option<f64>| intervals.iter().map(value).collect();
    let written: Vec<Option<f64>> = kib(|i| i.kb_written);
    let read: Vec<Option<f64>> = kib(|i| i.kb_read);
    found.extend(judge("kb_written", &written, &near));
    found.extend(judge("kb_read", &read, &near));
    found.sort_by(|a, b| b.factor.total_cmp(&a.factor));
    found.truncate(EVENTS);
    found
}

/// Returns the growth of a counter in each second.
fn growth(intervals: &[Interval], name: &str) -> Vec<Option<f64>> {
    let of = |interval: &Interval| interval.engine_counters.get(name).copied();
    let pairs = intervals.windows(2);
    let grown = pairs.map(|pair| {
        of(&pair[1])
            .zip(of(&pair[0]))
            .map(|(now, before)| now - before)
    });
    std::iter::once(None).chain(grown).collect()
}

fn judge(name: &str, values: &[Option<f64>], near: &[bool]) -> Option<Event> {
    let split = |wanted: bool| {
        let places = values.iter().enumerate();
        let chosen = places.filter(|(place, _)| near[*place] == wanted);
        chosen.filter_map(|(_, value)| *value).collect::<Vec<f64>>()
    };
    let (inside, outside) = (split(true), split(false));
    let most = inside.iter().copied().fold(0.0, f64::max);
    let usual = median(&outside)?;
    let factor = if usual > 0.0 {
        most / usual
    } else {
        f64::INFINITY
    };
    if most <= 0.0 || factor < UNUSUAL {
        return None;
    }
    let kib = name.starts_with("kb_");
    let shown = |value: f64| {
        if kib {
            format!("{} MiB", number(Some(value / 1024.0)))
        } else {
            number(Some(value))
        }
    };
    let verb = match name {
        "kb_written" => "writes were",
        "kb_read" => "reads were",
        _ => "grew by",
    };
    let what = if kib {
        String::new()
    } else {
        format!("{name} ")
    };
    let against = if usual > 0.0 {
        format!("{} times the usual {}", times(factor), shown(usual))
    } else {
        "usually not at all".to_string()
    };
    Some(Event {
        factor,
        text: format!("{what}{verb} {} in a second, {against}", shown(most)),
        figure: Figure::against(
            &if kib {
                format!("intervals.{name}")
            } else {
                format!("engine_counters.{name}")
            },
            Some(most),
            None,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::selection::groups;

    #[test]
    fn a_stall_names_its_seconds_and_what_the_engine_did_in_them() {
        let mut suite = sample::suite();
        let phase = &mut suite.trials[0].phases[1];
        let mut merges = 0.0;
        phase.intervals = (0..10u64)
            .map(|second| {
                merges += if second == 5 { 4.0 } else { 0.0 };
                Interval {
                    second,
                    ops: if second == 6 { 3 } else { 2000 },
                    kb_written: Some(if second == 6 { 90_112.0 } else { 1024.0 }),
                    engine_counters: [
                        ("compactions".to_string(), merges),
                        ("cache_hits".to_string(), second as f64 * 100.0),
                    ]
                    .into(),
                    ..Interval::default()
                }
            })
            .collect();
        let found = groups(&suite, false);
        let scene = Scene::new(&suite, &found[0], 0, "alluvium".to_string());
        let findings = findings(&scene, "alluvium", "request");
        assert_eq!(findings.len(), 1);
        assert_eq!(
            findings[0].text,
            "stood nearly still in 1 of 10.0 seconds of repetition 1 (second 6; at most 12.0 ms without a completion): compactions grew \
             by 4.00 in a second, usually not at all; writes were 88.0 MiB in a second, 88.0 times the usual 1.00 MiB."
        );
        let metrics = findings[0].metrics();
        assert_eq!(
            metrics[2..],
            ["engine_counters.compactions", "intervals.kb_written"]
        );
    }

    #[test]
    fn a_long_pause_is_told_although_no_second_was_lost() {
        let mut suite = sample::suite();
        suite.trials[0].phases[1].longest_stall_ms = Some(700.0);
        let found = groups(&suite, false);
        let scene = Scene::new(&suite, &found[0], 0, "alluvium".to_string());
        let told = findings(&scene, "alluvium", "request");
        assert_eq!(
            told[0].text,
            "let no client complete anything for 0.700 s at its worst (repetition 1)."
        );
        assert!(findings(&scene, "sqlite", "request").is_empty());
    }
}
