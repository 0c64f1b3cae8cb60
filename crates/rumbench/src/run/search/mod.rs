//! Search for the highest rate that holds a service level: derives the next trial from the ended
//! ones.
//!
//! - For each engine the search begins with a closed loop, to estimate its throughput.
//! - It then tries half of that rate and raises it until a rate does not hold.
//! - The bracket between the highest holding rate and the lowest failing one is halved until it is
//!   narrow.
//! - The last trial runs at a share of the result, for response times of a system with spare
//!   capacity.
//!
//! Each trial loads a fresh database, so that no rate is affected by an earlier one. A rate counts
//! as holding only if all lower rates hold.
//!
//! The search uses neither random numbers nor a clock: a killed search continues as if it had not
//! been interrupted.

pub mod sla;

use serde::{Deserialize, Serialize};

use super::pacing::Arrivals;
use crate::measure::statistics::median;
use crate::report::marks;
use crate::store::result::{PhaseResult, TrialResult};
use sla::Condition;

/// Name of the setting that a search varies; 0 is a closed loop.
pub const RATE: &str = "rate";
/// First rate, as a share of the closed loop's throughput.
const FIRST: f64 = 0.5;
/// Factor for raising a rate that holds.
const RAISE: f64 = 1.5;
/// Factor for lowering a rate that does not hold, while none holds.
const LOWER: f64 = 0.5;
/// Lowest rate of the search, as a share of the closed loop's throughput.
const LEAST: f64 = 1.0 / 512.0;
/// Highest rate of the search, as a multiple of the closed loop's throughput.
const MOST: f64 = 8.0;
/// Digits of a rate; smaller differences cannot be measured.
const DIGITS: i32 = 4;

/// Parameters of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// Limits for response times.
    pub conditions: Vec<Condition>,
    /// Name of the judged phase, without `#n`.
    pub phase: String,
    /// The bracket ends when its upper end is at most this share above the lower one.
    pub precision: f64,
    /// Share of the highest rate at which response times are reported.
    pub share: f64,
    /// Distribution of the intended starts.
    pub arrivals: Arrivals,
}

/// Trials of one rate.
#[derive(Debug, Clone)]
pub struct Tried<'a> {
    /// The rate; 0 is a closed loop.
    pub rate: f64,
    /// Ended trials, one for each repetition.
    pub trials: Vec<&'a TrialResult>,
}

/// State of the search for one engine.
#[derive(Debug, Clone)]
pub struct State<'a> {
    /// All rates tried, in order: the closed loop, the rates of the search, the share.
    pub tried: Vec<Tried<'a>>,
    /// Throughput of the closed loop in operations per second.
    pub closed_loop: Option<f64>,
    /// Highest holding rate below the lowest failing one.
    pub highest: Option<f64>,
    /// Lowest failing rate.
    pub lowest_broken: Option<f64>,
    /// Rate at `share` of the highest rate; None before the bracket is complete, or if no rate
    /// holds.
    pub reference: Option<f64>,
    /// Rate and repetition of the next trial; None at the end.
    pub next: Option<(f64, u32)>,
}

impl Search {
    /// Returns the phases of a trial that are judged: the named phase and its repetitions.
    pub fn judged<'a>(&self, trial: &'a TrialResult) -> Vec<&'a PhaseResult> {
        let all = trial.phases.iter();
        all.filter(|phase| phase.base_name() == self.phase)
            .collect()
    }

    /// Returns the reasons why a trial does not hold; empty if it does.
    pub fn broken(&self, trial: &TrialResult) -> Vec<String> {
        let phases = self.judged(trial);
        if failed(trial) {
            return vec![trial.marks.first().cloned().unwrap_or_default()];
        }
        if phases.is_empty() {
            return vec![format!("it has no phase {}", self.phase)];
        }
        let all = phases.iter();
        all.flat_map(|phase| sla::broken(&self.conditions, phase))
            .collect()
    }

    /// Returns true if more than half of the repetitions hold.
    pub fn holds(&self, tried: &Tried<'_>) -> bool {
        let held = tried.trials.iter().filter(|t| self.broken(t).is_empty());
        held.count() * 2 > tried.trials.len()
    }

    /// Returns the state of the search for one engine after these trials of it, all ended.
    pub fn state<'a>(&self, trials: &[&'a TrialResult], repeat: u32) -> State<'a> {
        let tried = grouped(trials);
        let mut state = State {
            closed_loop: tried.first().and_then(|first| self.throughput(first)),
            tried,
            highest: None,
            lowest_broken: None,
            reference: None,
            next: None,
        };
        if let Some(last) = state.tried.last()
            && last.trials.len() < repeat as usize
        {
            state.next = Some((last.rate, last.trials.len() as u32 + 1));
        }
        let whole = state.tried.len() - usize::from(state.next.is_some());
        let Some(top) = state.closed_loop.filter(|_| whole > 0) else {
            // Without the throughput of a closed loop the search has no first rate.
            if state.tried.is_empty() {
                state.next = Some((0.0, 1));
            }
            return state;
        };
        self.replay(&mut state, top, whole);
        state
    }

    /// Updates the bracket with the rates that have all their repetitions.
    fn replay(&self, state: &mut State<'_>, top: f64, whole: usize) {
        let mut bracket = Bracket {
            top,
            precision: self.precision,
            low: None,
            high: None,
        };
        for tried in &state.tried[1..whole] {
            if bracket.next().is_none() {
                break;
            }
            if self.holds(tried) {
                bracket.low = Some(tried.rate)
            } else {
                bracket.high = Some(tried.rate)
            }
        }
        (state.highest, state.lowest_broken) = (bracket.low, bracket.high);
        let mut next = bracket.next();
        if next.is_none() {
            let reference = bracket.low.map(|low| rounded(low * self.share));
            let known = |rate: &f64| state.tried.iter().any(|tried| tried.rate == *rate);
            next = reference.filter(|rate| !known(rate));
            state.reference = reference;
        }
        if state.next.is_none() {
            state.next = next.map(|rate| (rate, 1));
        }
    }

    /// Returns the median throughput of the judged phases of a closed loop.
    fn throughput(&self, tried: &Tried<'_>) -> Option<f64> {
        let sound = tried.trials.iter().filter(|trial| !failed(trial));
        let phases = sound.flat_map(|trial| self.judged(trial));
        let rates: Vec<f64> = phases.filter_map(|phase| phase.ops_per_s).collect();
        median(&rates).filter(|rate| *rate > 0.0)
    }

    /// Estimates the number of trials for one engine.
    pub fn expected(&self, state: &State<'_>, repeat: u32) -> usize {
        let done: usize = state.tried.iter().map(|tried| tried.trials.len()).sum();
        if state.next.is_none() {
            return done;
        }
        let halvings = |low: f64, high: f64| {
            ((high / low).ln() / (1.0 + self.precision).ln())
                .log2()
                .ceil()
                .max(0.0)
        };
        let rates = match (state.highest, state.lowest_broken) {
            (Some(low), Some(high)) => halvings(low, high),
            // Raising takes a step or two.
            (Some(_), None) => 1.0 + halvings(1.0, RAISE),
            _ => 2.0 + halvings(1.0, RAISE),
        };
        let closed = usize::from(state.tried.is_empty());
        let left = (rates as usize + 1 + closed) * repeat as usize;
        let begun = state.tried.last().map_or(0, |last| last.trials.len());
        (done + left)
            .saturating_sub(begun % repeat.max(1) as usize)
            .max(done + 1)
    }
}

/// Bracket of the search: the highest holding rate and the lowest failing one.
struct Bracket {
    top: f64,
    precision: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl Bracket {
    /// Returns the rate to try next; `None` if the bracket is narrow enough, or a missing end would
    /// be outside the range of the search.
    fn next(&self) -> Option<f64> {
        let (least, most) = (self.top * LEAST, self.top * MOST);
        match (self.low, self.high) {
            (None, None) => Some(rounded(self.top * FIRST)),
            (Some(low), None) => Some(rounded(low * RAISE)).filter(|rate| *rate <= most),
            (None, Some(high)) => Some(rounded(high * LOWER)).filter(|rate| *rate >= least),
            (Some(low), Some(high)) if high <= low * (1.0 + self.precision) => None,
            (Some(low), Some(high)) => {
                let middle = rounded((low * high).sqrt());
                // Rounding can leave no rate between the two.
                Some(middle).filter(|rate| *rate > low && *rate < high)
            }
        }
    }
}

/// Returns true if a trial has no valid measurements. Failed operations alone are judged with the
/// phase.
fn failed(trial: &TrialResult) -> bool {
    marks::failed(trial) && !trial.has_mark("errors")
}

/// Groups trials by rate, in the order of the first trial of each rate.
fn grouped<'a>(trials: &[&'a TrialResult]) -> Vec<Tried<'a>> {
    let mut found: Vec<Tried<'a>> = Vec::new();
    for trial in trials {
        let Some(rate) = trial.point.as_deref().and_then(rate_of) else {
            continue;
        };
        match found.iter_mut().find(|tried| tried.rate == rate) {
            Some(tried) => tried.trials.push(trial),
            None => found.push(Tried {
                rate,
                trials: vec![trial],
            }),
        }
    }
    found
}

/// Returns the label of a trial at this rate.
pub fn label(rate: f64) -> String {
    format!("{RATE}={rate}")
}

/// Returns the rate of such a label.
pub fn rate_of(label: &str) -> Option<f64> {
    label.strip_prefix(RATE)?.strip_prefix('=')?.parse().ok()
}

/// Rounds a rate to few digits, so that labels and results can repeat it exactly.
fn rounded(rate: f64) -> f64 {
    let exponent = rate.abs().log10().floor() as i32 + 1 - DIGITS;
    // Divides by a whole power of ten for digits after the point: 0.1 has no exact form, 10 has.
    match exponent {
        0.. => (rate / 10f64.powi(exponent)).round() * 10f64.powi(exponent),
        _ => (rate * 10f64.powi(-exponent)).round() / 10f64.powi(-exponent),
    }
}

#[cfg(test)]
mod tests;
