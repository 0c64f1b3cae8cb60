//! Shrinks a failing plan: removes parts as long as some schedule of the rest still fails.

use std::collections::BTreeSet;

use crate::plan::Plan;
use crate::run::{Outcome, run};

/// Schedules tried for each smaller plan, so that a plan that fails rarely still shrinks.
const SCHEDULES: u64 = 4;

/// A failing plan and its outcome.
pub struct Failing {
    /// Smallest failing plan so far.
    pub plan: Plan,
    /// Outcome of its run.
    pub outcome: Outcome,
    /// Number of plans run.
    pub runs: usize,
}

/// Shrinks with at most `runs_max` runs: removes halves, then quarters and so on of all parts
/// (delta debugging).
pub fn shrink(whole: &Plan, outcome: Outcome, runs_max: usize) -> Failing {
    let mut failing = Failing {
        plan: whole.clone(),
        outcome,
        runs: 0,
    };
    let mut size = failing.plan.numbers().len().div_ceil(2);
    // Terminates: the size falls to one, and at one every round but the last removes a part.
    while size > 0 && failing.runs < runs_max {
        let smaller = pass(whole, &mut failing, size, runs_max);
        if !smaller || size > 1 {
            size /= 2;
        }
    }
    failing
}

/// Tries to remove each part of this size. Returns whether any was removed.
fn pass(whole: &Plan, failing: &mut Failing, size: usize, runs_max: usize) -> bool {
    let mut any = false;
    let mut at = 0;
    loop {
        let numbers = failing.plan.numbers();
        if at >= numbers.len() || failing.runs >= runs_max {
            return any;
        }
        // From the end, because the last parts matter least for those before them.
        let end = numbers.len() - at;
        let out = end.saturating_sub(size)..end;
        let kept = |(place, number): (usize, usize)| (!out.contains(&place)).then_some(number);
        let kept: BTreeSet<usize> = numbers.into_iter().enumerate().filter_map(kept).collect();
        match fails(&whole.keep(&kept), failing) {
            Some((plan, outcome)) => {
                failing.plan = plan;
                failing.outcome = outcome;
                any = true;
            }
            None => at += size,
        }
    }
}

fn fails(plan: &Plan, failing: &mut Failing) -> Option<(Plan, Outcome)> {
    for schedule in 0..SCHEDULES {
        let plan = Plan {
            schedule,
            ..plan.clone()
        };
        failing.runs += 1;
        let outcome = run(&plan);
        if outcome.failure.is_some() {
            return Some((plan, outcome));
        }
    }
    None
}

/// Formats numbers as `1,4-7,9`.
pub fn shown(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(usize, usize)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// Parses numbers such as `1,4-7,9`; `None` for any other text.
pub fn numbers_of(text: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}
