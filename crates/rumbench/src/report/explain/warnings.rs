//! Faults of the experiment itself: too short, too few repetitions or too different ones, other
//! programs on the machine, data that fits in memory, unequal promises, failed trials.
//!
//! Faults of the machine are in [`machine`]. Each warning is about the suite and names its trials.

mod machine;
mod subjects;

use std::collections::BTreeMap;

use self::subjects::{names, requests, trial_name, usable, warning};
use super::finding::{Figure, Finding};
use crate::measure::statistics::{PAIRS_FOR_VERDICT, median};
use crate::report::marks;
use crate::report::selection::durability;
use crate::report::throughput::rate;
use crate::store::result::{PhaseResult, SuiteResult, TrialResult};
use crate::text::number;
use crate::text::percent;

/// Shortest phase, in seconds, that shows background work and stalls.
const SECONDS_MIN: f64 = 10.0;
/// Range of repetitions, as a share of their median, above which they are noisy.
const NOISY: f64 = 0.1;
/// Difference between the first and the last third above which throughput is not steady, as a
/// share.
const UNSTEADY: f64 = 0.2;
/// Shortest phase, in seconds, of which thirds are compared.
const SECONDS_OF_THIRDS: usize = 9;
/// Share of all writes left to settle above which a phase is listed.
const DEBT: f64 = 0.5;

/// Returns all warnings, the most serious first.
pub fn findings(suite: &SuiteResult) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(failed(suite));
    found.extend(interrupted(suite));
    found.extend(resumed(suite));
    found.extend(marked(suite));
    found.extend(promises(suite));
    found.extend(machine::build(suite));
    found.extend(machine::doctor(suite));
    found.extend(repetitions(suite));
    found.extend(noisy(suite));
    found.extend(short(suite));
    found.extend(unsteady(suite));
    found.extend(debt(suite));
    found.extend(machine::others(suite));
    found.extend(machine::stolen(suite));
    found.extend(machine::page_cache(suite));
    found.extend(machine::memory(suite));
    found.extend(machine::profile(suite));
    found.extend(calibration(suite));
    found
}

fn failed(suite: &SuiteResult) -> Option<Finding> {
    let failed = suite.trials.iter().filter(|trial| marks::failed(trial));
    let failed: Vec<String> = failed.map(trial_name).collect();
    if failed.is_empty() {
        return None;
    }
    let (some, all) = (failed.len(), suite.trials.len());
    let text = format!(
        "{some} of {all} trials failed: {}; see their marks.",
        names(failed)
    );
    Some(warning(text, vec![Figure::fact("marks")]))
}

fn interrupted(suite: &SuiteResult) -> Option<Finding> {
    // Results of older versions have no end times of trials.
    let says = suite.trials.iter().any(|trial| trial.ended_at.is_some());
    let running = says && suite.trials.iter().any(|trial| trial.ended_at.is_none());
    let what = match (suite.interrupted, running) {
        (true, _) => "was interrupted",
        (_, true) => "has not ended: it is running, or was killed",
        _ => return None,
    };
    let text = format!(
        "The suite {what}; engines have unequal numbers of repetitions, and the last trial is not whole. `rumbench resume` continues it."
    );
    Some(warning(
        text,
        vec![Figure::fact("interrupted"), Figure::fact("ended_at")],
    ))
}

fn resumed(suite: &SuiteResult) -> Option<Finding> {
    let last = suite.resumed_at.last()?;
    let text = format!(
        "The suite was stopped and resumed ({} times, last at {last}): the machine may have been in another state before and after.",
        suite.resumed_at.len()
    );
    Some(warning(text, vec![Figure::fact("resumed_at")]))
}

/// Returns warnings for marks that limit the meaning of throughput.
fn marked(suite: &SuiteResult) -> Vec<Finding> {
    let marked = |name: &str| {
        let trials = suite.trials.iter().filter(|trial| trial.has_mark(name));
        let found: Vec<String> = trials.map(trial_name).collect();
        (!found.is_empty()).then(|| names(found))
    };
    let cases = [
        (
            "rate-unmet",
            "did not reach the rate that was asked for: response times grow with the phase's length",
        ),
        (
            "background-rate-unmet",
            "did not reach the rate of its background clients, so that their queries had less to wait for: the phase \
          fails its SLA",
        ),
        (
            "client-bound",
            "spent more than half of the clients' CPU in the laboratory itself: faster engines would look alike",
        ),
        (
            "bimodal",
            "went back and forth between two rates: what decided which, as the cores of its threads, is not known, and the mean is \
          of both",
        ),
    ];
    let told = cases.map(|(name, what)| {
        let who = marked(name)?;
        Some(warning(
            format!("{who} {what}."),
            vec![Figure::fact("marks")],
        ))
    });
    told.into_iter().flatten().collect()
}

fn promises(suite: &SuiteResult) -> Option<Finding> {
    let mut known: Vec<(String, Vec<String>)> = Vec::new();
    for trial in usable(suite) {
        let promise = durability(trial);
        match known.iter_mut().find(|(found, _)| *found == promise) {
            Some((_, engines)) if engines.contains(&trial.name()) => {}
            Some((_, engines)) => engines.push(trial.name()),
            None => known.push((promise, vec![trial.name()])),
        }
    }
    if known.len() < 2 {
        return None;
    }
    let sets: Vec<String> = known
        .into_iter()
        .map(|(_, engines)| names(engines))
        .collect();
    let text = format!(
        "Commits of {} survive different things: the weaker promise is cheaper to keep.",
        sets.join(" | ")
    );
    Some(warning(text, vec![Figure::fact("durability_facts")]))
}

fn repetitions(suite: &SuiteResult) -> Option<Finding> {
    let last = usable(suite).map(|trial| trial.repetition).max()? as usize;
    let figures = vec![Figure::new("trials.repetition", Some(last as f64))];
    let text = match last {
        1 => format!(
            "Each engine ran once: no spread is known. --repeat {PAIRS_FOR_VERDICT} gives verdicts."
        ),
        n if n < PAIRS_FOR_VERDICT => {
            format!(
                "{n} repetitions give a range and no verdict; --repeat {PAIRS_FOR_VERDICT} does."
            )
        }
        _ => return None,
    };
    Some(warning(text, figures))
}

/// Returns a warning about engines with noisy repetitions of a phase; it names the noisiest.
fn noisy(suite: &SuiteResult) -> Option<Finding> {
    let mut repetitions: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for (trial, phase) in requests(suite) {
        let found = repetitions.entry((trial.contestant(), phase.name.as_str()));
        found.or_default().extend(rate(phase));
    }
    let mut far: Vec<(f64, String, f64, f64)> = Vec::new();
    for ((engine, phase), rates) in repetitions {
        let (low, high) = (min(&rates), rates.iter().copied().fold(0.0, f64::max));
        let spread = median(&rates).map_or(0.0, |middle| (high - low) / middle);
        if rates.len() > 1 && spread > NOISY {
            far.push((spread, format!("{engine} in {phase}"), low, high));
        }
    }
    let more = match far.len() {
        0 | 1 => String::new(),
        n => format!(
            "; {n} engines and phases are further apart than {}",
            percent(NOISY)
        ),
    };
    let (spread, name, low, high) = far.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let text = format!(
        "Repetitions are noisy: those of {name} go from {} to {} op/s, {} of their median{more}.",
        number(Some(low)),
        number(Some(high)),
        percent(spread)
    );
    Some(warning(text, vec![Figure::new("ops_per_s", Some(low))]))
}

fn min(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

fn short(suite: &SuiteResult) -> Option<Finding> {
    let short: Vec<&PhaseResult> = requests(suite)
        .map(|(_, phase)| phase)
        .filter(|phase| phase.seconds < SECONDS_MIN)
        .collect();
    let seconds: Vec<f64> = short.iter().map(|phase| phase.seconds).collect();
    if seconds.is_empty() {
        return None;
    }
    let phases = short.iter().map(|phase| phase.name.clone());
    let text = format!(
        "Phases of less than {SECONDS_MIN} s say little on stalls and background work: {} (from {} s).",
        names(phases.collect()),
        number(Some(min(&seconds)))
    );
    Some(warning(
        text,
        vec![Figure::new("seconds", Some(min(&seconds)))],
    ))
}

/// Returns a warning about phases with rising or falling throughput from their first to their last
/// third.
fn unsteady(suite: &SuiteResult) -> Option<Finding> {
    let mut told: Vec<(f64, String)> = Vec::new();
    for (trial, phase) in requests(suite).filter(|(_, phase)| phase.rate.is_none()) {
        let ops = phase.ops_of_seconds();
        let whole = ops.len();
        if whole < SECONDS_OF_THIRDS {
            continue;
        }
        let sum = |range: std::ops::Range<usize>| {
            let seconds = ops[range].iter();
            seconds.map(|&ops| ops as f64).sum::<f64>()
        };
        let third = whole / 3;
        let change = sum(whole - third..whole) / sum(0..third).max(1.0);
        if !(1.0 - UNSTEADY..=1.0 / (1.0 - UNSTEADY)).contains(&change) {
            told.push((change, format!("{} in {}", trial.contestant(), phase.name)));
        }
    }
    let distance = |change: f64| change.max(f64::MIN_POSITIVE).ln().abs();
    told.sort_by(|a, b| distance(b.0).total_cmp(&distance(a.0)));
    let (change, worst) = told.first()?.clone();
    told.retain(|(_, name)| *name != worst);
    let others: Vec<String> = told.into_iter().map(|(_, name)| name).collect();
    let text = format!(
        "Throughput is not steady: that of {worst} is {} times as high in its last third as in its first{}; a longer phase gives another number.",
        number(Some(change)),
        if others.is_empty() {
            String::new()
        } else {
            format!(", and nor is that of {}", names(others))
        }
    );
    Some(warning(
        text,
        vec![Figure::new("intervals.ops", Some(change))],
    ))
}

/// Returns a warning about phases that left most of their writes to the following settle.
fn debt(suite: &SuiteResult) -> Option<Finding> {
    let mut told = Vec::new();
    let mut most: Option<f64> = None;
    for trial in usable(suite) {
        for phase in &trial.phases {
            let both = phase.kb_written_per_op.zip(phase.kb_written_per_op_settled);
            let share = both.map_or(0.0, |(within, all)| {
                (all - within) / all.max(f64::MIN_POSITIVE)
            });
            if share > DEBT {
                most = Some(most.unwrap_or(0.0).max(share));
                told.push(format!("{} in {}", trial.contestant(), phase.name));
            }
        }
    }
    let text = format!(
        "More than half of what a phase caused to be written came after it, in settle (up to {}): {}; a longer phase would pay for it.",
        percent(most?),
        names(told)
    );
    Some(warning(
        text,
        vec![Figure::new("kb_written_per_op_settled", None)],
    ))
}

fn calibration(suite: &SuiteResult) -> Option<Finding> {
    let embedded = |(trial, phase): &(&TrialResult, &PhaseResult)| {
        let split = phase.cpu_us_per_op.filter(|cpu| cpu.server.is_none());
        trial.engine != "null" && split.is_some_and(|cpu| cpu.client.is_none())
    };
    let missing: Vec<String> = requests(suite)
        .filter(embedded)
        .map(|(trial, _)| trial.contestant())
        .collect();
    if missing.is_empty() {
        return None;
    }
    let text = format!(
        "The laboratory's own share of the clients' CPU is not known of {}: the engine's share includes it.",
        names(missing)
    );
    Some(warning(text, vec![Figure::fact("calibration")]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::store::result::{CpuSeconds, Interval};

    fn said(suite: &SuiteResult) -> String {
        let lines = findings(suite).into_iter().map(|finding| finding.text);
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Five equal repetitions with requests of 30 seconds.
    fn good() -> SuiteResult {
        let mut suite = sample::suite();
        let trials = std::mem::take(&mut suite.trials);
        for repetition in 1..=5 {
            for mut trial in trials.iter().cloned() {
                trial.repetition = repetition;
                let phase = &mut trial.phases[1];
                phase.seconds = 30.0;
                phase.kb_written_per_op_settled = phase.kb_written_per_op;
                let cpu = phase.cpu_us_per_op.as_mut().unwrap();
                cpu.machine = Some(cpu.total);
                suite.trials.push(trial);
            }
        }
        suite
    }

    #[test]
    fn a_good_experiment_has_no_warning() {
        assert_eq!(said(&good()), "");
    }

    type Change = fn(&mut SuiteResult);

    /// Changes, each with the words that a warning must then contain.
    const FAULTS: &[(Change, &str)] = &[
        (
            |s| s.trials[0].mark("failed (no space)"),
            "1 of 10 trials failed: alluvium #1",
        ),
        (|s| s.interrupted = true, "interrupted"),
        (
            |s| s.trials[0].ended_at = Some("2026-01-02T00:00:00Z".to_string()),
            "has not ended",
        ),
        (
            |s| s.resumed_at.push("2026-01-02T00:00:00Z".to_string()),
            "resumed (1 times",
        ),
        (
            |s| s.trials[1].mark("background-rate-unmet (qr100: 1 of 2 rows/s)"),
            "sqlite #1 did not reach the rate of its background clients",
        ),
        (
            |s| {
                s.trials[0].durability_facts.as_mut().unwrap().power_cut = "may corrupt".to_string()
            },
            "survive different things",
        ),
        (
            |s| {
                drop(
                    s.environment
                        .insert("compiler_flags".to_string(), "profile debug, x".to_string()),
                )
            },
            "without optimization",
        ),
        (|s| s.trials.truncate(6), "3 repetitions give a range"),
        (|s| s.trials.truncate(2), "ran once"),
        (
            |s| s.trials[0].phases[1].ops_per_s = Some(1500.0),
            "alluvium in request go from 1,500 to 2,000",
        ),
        (|s| s.trials[0].phases[1].seconds = 2.6, "less than 10 s"),
        (
            |s| s.trials[0].cache_state = "page cache not dropped (permission denied)".to_string(),
            "permission denied",
        ),
        (
            |s| {
                drop(
                    s.environment
                        .insert("memory".to_string(), "24684084 kB".to_string()),
                )
            },
            "Memory (23.5 GiB) is larger than the data (1.00 GiB",
        ),
        (
            |s| s.trials[0].phases[1].kb_written_per_op_settled = Some(6.0),
            "(up to 75 %): alluvium in request",
        ),
        (
            |s| {
                s.trials[2].phases[1]
                    .cpu_us_per_op
                    .as_mut()
                    .unwrap()
                    .machine = Some(60.0)
            },
            "up to 100 % of the processor time that the trial itself used: alluvium #2",
        ),
        (
            |s| {
                s.trials[2].phases[1].cpu_seconds = Some(CpuSeconds {
                    machine: Some(38.0),
                    stolen: 2.0,
                    ..CpuSeconds::default()
                })
            },
            "gave up to 5 % of the processor time that it wanted to others: alluvium #2",
        ),
        (
            |s| s.trials[1].phases[1].cpu_us_per_op.as_mut().unwrap().client = None,
            "not known of sqlite",
        ),
        (
            |s| {
                let second = |second: u64| Interval {
                    second,
                    ops: if second < 10 { 1000 } else { 600 },
                    ..Interval::default()
                };
                s.trials[0].phases[1].intervals = (0..30).map(second).collect();
            },
            "alluvium in request is 0.600 times as high in its last third",
        ),
    ];

    #[test]
    fn each_fault_of_an_experiment_gives_a_warning() {
        for (change, expected) in FAULTS {
            let mut suite = good();
            change(&mut suite);
            let said = said(&suite);
            assert!(said.contains(expected), "{expected}: {said}");
            assert_eq!(said.lines().count(), 1, "{expected}: {said}");
        }
    }
}
