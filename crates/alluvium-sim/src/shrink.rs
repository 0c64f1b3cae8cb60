//! Makes a failing plan small: leaves parts out as long as some schedule of the rest still fails.

use std::collections::BTreeSet;

use crate::plan::Plan;
use crate::run::{Outcome, run};

/// Schedules that are tried for each smaller plan: one that fails seldom still shrinks.
const SCHEDULES: u64 = 4;

/// A plan that fails, and how.
pub struct Failing {
    /// The plan.
    pub plan: Plan,
    /// What became of it.
    pub outcome: Outcome,
    /// Plans that were run.
    pub runs: usize,
}

/// Shrinks with at most so many runs: halves, then quarters and so on of all parts are left out (delta debugging).
pub fn shrink(whole: &Plan, outcome: Outcome, runs_max: usize) -> Failing {
    let mut failing = Failing {
        plan: whole.clone(),
        outcome,
        runs: 0,
    };
    let mut size = failing.plan.numbers().len().div_ceil(2);
    // Ends: the size falls to one, and at one every round but the last leaves something out.
    while size > 0 && failing.runs < runs_max {
        let smaller = pass(whole, &mut failing, size, runs_max);
        if !smaller || size > 1 {
            size /= 2;
        }
    }
    failing
}

/// Tries to leave out each part of this size. Returns whether any could be.
fn pass(whole: &Plan, failing: &mut Failing, size: usize, runs_max: usize) -> bool {
    let mut any = false;
    let mut at = 0;
    loop {
        let numbers = failing.plan.numbers();
        if at >= numbers.len() || failing.runs >= runs_max {
            return any;
        }
        // From the end: what came last matters least for what came before.
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

/// Numbers as `1,4-7,9`.
pub fn shown(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// The numbers of `1,4-7,9`; `None` for any other text.
pub fn numbers_of(text: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}
