//! Order of a suite's trials: the fixed one, or that of a rate search. Pure.

use super::pacing::Rate;
use super::plan::{EngineChoice, Point, Suite};
use super::search::{self, Search, State};
use crate::store::result::TrialResult;

/// Next trial to run.
#[derive(Debug, Clone)]
pub struct Upcoming {
    /// Settings of the trial.
    pub point: Point,
    /// Index of the engine in `point.engines`.
    pub engine: usize,
    /// Repetition, counted from 1.
    pub repetition: u32,
}

impl Upcoming {
    /// Returns the engine of the trial.
    pub fn choice(&self) -> &EngineChoice {
        &self.point.engines[self.engine]
    }
}

/// Returns the trial that follows `ended`, the list of all ended trials; `None` after the last.
pub fn upcoming(suite: &Suite, ended: &[TrialResult]) -> Option<Upcoming> {
    if let Some(search) = &suite.search {
        return upcoming_of_search(suite, search, ended);
    }
    let order = order(suite.points.len(), suite.engines().len(), suite.repeat);
    let planned = order.get(ended.len())?;
    Some(Upcoming {
        point: suite.points[planned.point].clone(),
        engine: planned.engine,
        repetition: planned.repetition,
    })
}

/// Returns the number of trials of the whole suite; for a search, the best estimate so far.
pub fn expected(suite: &Suite, ended: &[TrialResult]) -> usize {
    match &suite.search {
        Some(search) => expected_of_search(suite, search, ended),
        None => suite.points.len() * suite.engines().len() * suite.repeat as usize,
    }
}

/// One trial of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Index of the point in the suite.
    pub point: usize,
    /// Index of the engine in the suite.
    pub engine: usize,
    /// Repetition, counted from 1.
    pub repetition: u32,
}

/// Interleaves trials: every second repetition runs in reverse (A B, B A, A B, ...), so that a
/// drift of the machine affects all engines and all points of a sweep alike. Engines at the same
/// point are adjacent.
pub fn order(points: usize, engines: usize, repeat: u32) -> Vec<Planned> {
    let contestants = points * engines;
    (1..=repeat)
        .flat_map(|repetition| {
            (0..contestants).map(move |place| {
                let place = match repetition % 2 {
                    1 => place,
                    _ => contestants - 1 - place,
                };
                Planned {
                    point: place / engines,
                    engine: place % engines,
                    repetition,
                }
            })
        })
        .collect()
}

/// Returns the trial that follows `ended`, the list of all ended trials; `None` at the end. Engines
/// take turns, so that a drift of the machine affects all of them.
pub(super) fn upcoming_of_search(
    suite: &Suite,
    search: &Search,
    ended: &[TrialResult],
) -> Option<Upcoming> {
    let states = states(suite, search, ended);
    let open = states
        .iter()
        .enumerate()
        .filter_map(|(engine, (ran, state))| Some((*ran, engine, state.next?)));
    let (_, engine, (rate, repetition)) = open.min_by_key(|(ran, engine, _)| (*ran, *engine))?;
    let mut point = suite.points.first()?.clone();
    point.label = Some(search::label(rate));
    point.rate = (rate > 0.0).then_some(Rate {
        per_second: rate,
        arrivals: search.arrivals,
    });
    Some(Upcoming {
        point,
        engine,
        repetition,
    })
}

/// Estimates the number of trials of the whole search.
pub(super) fn expected_of_search(suite: &Suite, search: &Search, ended: &[TrialResult]) -> usize {
    let states = states(suite, search, ended);
    let each = states
        .iter()
        .map(|(_, state)| search.expected(state, suite.repeat));
    each.sum()
}

/// Returns the number of ended trials and the state of the search, for each engine.
fn states<'a>(suite: &Suite, search: &Search, ended: &'a [TrialResult]) -> Vec<(usize, State<'a>)> {
    let engines = suite.engines().iter();
    let state = |name: String| {
        let own: Vec<&TrialResult> = ended.iter().filter(|trial| trial.name() == name).collect();
        (own.len(), search.state(&own, suite.repeat))
    };
    engines.map(|choice| state(choice.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_repetitions_are_reversed() {
        let order: Vec<_> = order(1, 2, 3)
            .iter()
            .map(|p| (p.engine, p.repetition))
            .collect();
        assert_eq!(order, [(0, 1), (1, 1), (1, 2), (0, 2), (0, 3), (1, 3)]);
    }

    #[test]
    fn points_of_a_sweep_are_interleaved_with_engines_side_by_side() {
        let order: Vec<_> = order(2, 2, 2)
            .iter()
            .map(|p| (p.point, p.engine, p.repetition))
            .collect();
        let first = [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)];
        let second = [(1, 1, 2), (1, 0, 2), (0, 1, 2), (0, 0, 2)];
        assert_eq!(order, [first, second].concat());
    }
}
