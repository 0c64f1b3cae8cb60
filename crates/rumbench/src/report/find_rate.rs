//! Results of a search for the highest rate: a sentence for each engine, response times at a share
//! of that rate, and response time against rate as a curve.
//!
//! [`conclude`] computes rates, curves and sentences from the trials and stores them in the result.
//! Only the response times of single operations, in [`at_share`], are computed when they are shown.

mod curve;

use super::sweep::Whole;
use super::table::Table;
use crate::measure::statistics::median;
use crate::run::search::sla::needed;
use crate::run::search::{Search, State, Tried, label};
use crate::store::rate_search::{FoundRate, Limit, RatePoint, RateSearch};
use crate::store::result::{Latency, PhaseResult, SuiteResult, TrialResult};
use crate::text::{and, count, number};

pub use curve::{FIGURES, Figure, curve, figure_of};

/// Stores the conclusions from all trials so far in the suite's `rate_search`.
pub fn conclude(suite: &mut SuiteResult, search: &Search, repeat: u32) {
    let mut engines: Vec<String> = Vec::new();
    for trial in &suite.trials {
        if !engines.contains(&trial.name()) {
            engines.push(trial.name());
        }
    }
    let of = |engine: String| found(suite, search, repeat, engine);
    suite.rate_search = Some(RateSearch {
        sla: search.conditions.iter().map(limit).collect(),
        precision: search.precision,
        share: search.share,
        engines: engines.into_iter().map(of).collect(),
    });
}

/// Returns true if the search of at least one engine ended without a rate that holds.
pub fn none_holds(suite: &SuiteResult) -> bool {
    let engines = suite.rate_search.iter().flat_map(|search| &search.engines);
    let mut ended = engines.filter(|found| found.ended);
    ended.any(|found| found.highest_rate.is_none())
}

fn limit(condition: &crate::run::search::sla::Condition) -> Limit {
    Limit {
        text: condition.text.clone(),
        figure: condition.figure.clone(),
        operation: condition.operation.clone(),
        limit_us: condition.limit_us,
    }
}

fn found(suite: &SuiteResult, search: &Search, repeat: u32, engine: String) -> FoundRate {
    let ended = |trial: &&TrialResult| trial.name() == engine && trial.ended_at.is_some();
    let own: Vec<&TrialResult> = suite.trials.iter().filter(ended).collect();
    let state = search.state(&own, repeat);
    let mut points: Vec<RatePoint> = state
        .tried
        .iter()
        .map(|tried| point(search, tried))
        .collect();
    points.sort_by(|a, b| a.rate.unwrap_or(0.0).total_cmp(&b.rate.unwrap_or(0.0)));
    let mut found = FoundRate {
        engine,
        phase: search.phase.clone(),
        ended: state.next.is_none(),
        closed_loop_per_s: state.closed_loop,
        highest_rate: state.highest,
        lowest_unmet_rate: state.lowest_broken,
        share_rate: state.reference,
        judgment: String::new(),
        points,
    };
    found.judgment = judgment(&found, &state, search);
    found
}

/// Returns the medians of the repetitions of one rate.
fn point(search: &Search, tried: &Tried<'_>) -> RatePoint {
    let paced = tried.rate > 0.0;
    let phases: Vec<&PhaseResult> = tried
        .trials
        .iter()
        .flat_map(|trial| search.judged(trial))
        .collect();
    let rates: Vec<f64> = phases.iter().filter_map(|phase| phase.ops_per_s).collect();
    let broken = tried.trials.iter().map(|trial| search.broken(trial));
    let broken = broken.into_iter().find(|why| !why.is_empty());
    RatePoint {
        rate: paced.then_some(tried.rate),
        ops_per_s: median(&rates),
        holds: paced.then(|| search.holds(tried)),
        broken: broken.filter(|_| paced).unwrap_or_default(),
        response_us: worst(search, &phases),
        repetitions: tried.trials.len(),
    }
}

/// Returns the response times of the slowest operation to which a limit applies: for each figure
/// the largest value in each phase, then the median of the phases. An operation that is too rare
/// for a figure (see [`needed`]) is ignored if another one is not.
fn worst(search: &Search, phases: &[&PhaseResult]) -> Option<Latency> {
    let meant = |name: &String| {
        let mut conditions = search.conditions.iter();
        conditions.any(|c| c.operation.as_ref().is_none_or(|wanted| wanted == name))
    };
    let figure = |value: fn(&Latency) -> f64, name: &str| {
        let of = |phase: &&PhaseResult| {
            let all = phase.latency_us.iter().filter(|(name, _)| meant(name));
            let all: Vec<&Latency> = all.map(|(_, latency)| latency).collect();
            let enough = |latency: &&&Latency| latency.count >= needed(name);
            let frequent = all.iter().filter(enough).map(|of| value(of));
            let every = all.iter().map(|of| value(of));
            frequent.reduce(f64::max).or(every.reduce(f64::max))
        };
        median(&phases.iter().filter_map(of).collect::<Vec<_>>())
    };
    let counts = phases.iter().flat_map(|phase| phase.latency_us.values());
    Some(Latency {
        count: counts.map(|latency| latency.count).sum(),
        mean: figure(|l| l.mean, "mean")?,
        p50: figure(|l| l.p50, "p50")?,
        p95: figure(|l| l.p95, "p95")?,
        p99: figure(|l| l.p99, "p99")?,
        p999: figure(|l| l.p999, "p999")?,
        p9999: figure(|l| l.p9999, "p9999")?,
        max: figure(|l| l.max, "max")?,
    })
}

/// Formats the result of a search.
fn judgment(found: &FoundRate, state: &State<'_>, search: &Search) -> String {
    let limits: Vec<String> = search.conditions.iter().map(|c| c.text.clone()).collect();
    let limits = and(&limits);
    let rate = |rate: f64| number(Some(rate));
    let mut text = match (found.highest_rate, found.lowest_unmet_rate) {
        (Some(low), Some(high)) => format!(
            "holds {limits} up to {} op/s, not at {} ({})",
            rate(low),
            rate(high),
            why(found, high)
        ),
        (Some(low), None) if found.ended => {
            format!(
                "holds {limits} at every rate that was tried, the highest {} op/s",
                rate(low)
            )
        }
        (Some(low), None) => format!("holds {limits} at {} op/s so far", rate(low)),
        (None, Some(high)) if found.ended => format!(
            "holds {limits} at no rate down to {} op/s ({})",
            rate(high),
            why(found, high)
        ),
        (None, Some(high)) => format!("does not hold {limits} at {} op/s so far", rate(high)),
        (None, None) if found.ended => {
            let mut failed = state.tried.iter().flat_map(|tried| &tried.trials);
            let mark = failed.find_map(|trial| trial.marks.first());
            let because = mark.map_or("no throughput".to_string(), String::clone);
            format!("has no closed loop to begin with: {because}")
        }
        (None, None) => "no rate has been tried yet".to_string(),
    };
    if let Some((highest, top)) = found.highest_rate.zip(found.closed_loop_per_s) {
        text += &format!(
            "; that is {:.0} % of its closed loop of {}",
            highest / top * 100.0,
            rate(top)
        );
    }
    let mut points = found.points.iter();
    let share = points.find(|point| point.rate.is_some() && point.rate == found.share_rate);
    if share.is_some_and(|point| point.holds == Some(false)) {
        text += &format!(
            "; a lower rate, {}, did not hold: response times scatter here, and --repeat 3 or longer phases say more",
            rate(found.share_rate.unwrap_or(0.0))
        );
    }
    if !found.ended {
        text += "; the search has not ended";
    }
    text
}

fn why(found: &FoundRate, rate: f64) -> String {
    let mut points = found.points.iter();
    let point = points.find(|point| point.rate == Some(rate));
    point.map_or(String::new(), |point| point.broken.join(", "))
}

/// Returns all tables of a search, for the engines of one durability.
pub fn tables(suite: &SuiteResult, search: &RateSearch, whole: &Whole<'_>) -> Vec<Table> {
    let own = own(search, whole);
    let mut tables = vec![highest(search, &own)];
    tables.extend(at_share(suite, search, &own));
    tables.push(curve(search, &own, true));
    tables
}

/// Returns the results for the engines of one durability.
pub fn own<'a>(search: &'a RateSearch, whole: &Whole<'_>) -> Vec<&'a FoundRate> {
    let engines = whole.engines();
    let found = search.engines.iter();
    found
        .filter(|found| engines.contains(&found.engine))
        .collect()
}

fn limits(search: &RateSearch) -> String {
    let limits: Vec<String> = search.sla.iter().map(|limit| limit.text.clone()).collect();
    and(&limits)
}

/// Returns a table with one row for each engine, and the sentences as notes.
pub fn highest(search: &RateSearch, own: &[&FoundRate]) -> Table {
    let mut table = Table::new(
        format!("Highest rate that holds {}", limits(search)),
        &[
            "engine",
            "phase",
            "highest rate (op/s)",
            "lowest that does not (op/s)",
            "closed loop (op/s)",
            "of the closed loop (%)",
            "trials",
        ],
    );
    table.text_columns = 2;
    for found in own {
        let share = found.highest_rate.zip(found.closed_loop_per_s);
        let trials: usize = found.points.iter().map(|point| point.repetitions).sum();
        table.rows.push(vec![
            found.engine.clone(),
            found.phase.clone(),
            number(found.highest_rate),
            number(found.lowest_unmet_rate),
            number(found.closed_loop_per_s),
            number(share.map(|(highest, top)| highest / top * 100.0)),
            trials.to_string(),
        ]);
        let sentence = format!("{} {}.", found.engine, found.judgment);
        table.notes.push(sentence);
    }
    table.notes.push("A rate holds when each kind of operation stays within the limits from its intended start, at least 95 % of the rate is reached, no more than 1 % of the starts are left at the end and no operation fails; of several repetitions, when more than half do.".to_string());
    table
}

/// Returns the response times of every operation at the share and at the highest rate; `None` if no
/// engine has such a rate.
pub fn at_share(suite: &SuiteResult, search: &RateSearch, own: &[&FoundRate]) -> Option<Table> {
    let title = format!(
        "Response times at {:.0} % of the highest rate, and at the highest rate (us)",
        search.share * 100.0
    );
    let mut table = Table::new(
        title,
        &[
            "engine",
            "operation",
            "rate (op/s)",
            "of the highest (%)",
            "operations",
            "mean (us)",
            "p50 (us)",
            "p95 (us)",
            "p99 (us)",
            "p99.9 (us)",
            "p99.99 (us)",
            "max (us)",
        ],
    );
    table.text_columns = 2;
    for found in own {
        for rate in [found.share_rate, found.highest_rate].into_iter().flatten() {
            let highest = found.highest_rate.unwrap_or(rate);
            let share = format!("{:.0}", rate / highest * 100.0);
            for (operation, latency) in operations(suite, found, rate) {
                let mut row = vec![found.engine.clone(), operation];
                row.extend([number(Some(rate)), share.clone()]);
                row.push(count(Some(latency.count as f64)));
                let figures = [
                    latency.mean,
                    latency.p50,
                    latency.p95,
                    latency.p99,
                    latency.p999,
                    latency.p9999,
                    latency.max,
                ];
                row.extend(figures.map(|us| number(Some(us))));
                table.rows.push(row);
            }
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the latencies of each operation at a rate, as medians over repetitions.
fn operations(suite: &SuiteResult, found: &FoundRate, rate: f64) -> Vec<(String, Latency)> {
    let label = label(rate);
    let trials = suite.trials.iter().filter(|trial| {
        trial.name() == found.engine && trial.point.as_deref() == Some(label.as_str())
    });
    let phases: Vec<&PhaseResult> = trials
        .flat_map(|trial| &trial.phases)
        .filter(|phase| phase.base_name() == found.phase)
        .collect();
    let Some(first) = phases.first() else {
        return Vec::new();
    };
    let names = first.latency_us.keys();
    let of = |name: &String| {
        let all: Vec<&Latency> = phases
            .iter()
            .filter_map(|phase| phase.latency_us.get(name))
            .collect();
        let figure = |value: fn(&Latency) -> f64| {
            median(&all.iter().map(|l| value(l)).collect::<Vec<_>>()).unwrap_or(f64::NAN)
        };
        let latency = Latency {
            count: all.iter().map(|latency| latency.count).sum(),
            mean: figure(|l| l.mean),
            p50: figure(|l| l.p50),
            p95: figure(|l| l.p95),
            p99: figure(|l| l.p99),
            p999: figure(|l| l.p999),
            p9999: figure(|l| l.p9999),
            max: figure(|l| l.max),
        };
        (name.clone(), latency)
    };
    names.map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ReportOptions, assert_snapshot, render, sample};

    #[test]
    fn text_report_of_a_fixed_search_is_unchanged() {
        let suite = sample::rate_search();
        let text = render(&suite, &ReportOptions::default());
        assert_snapshot("find_rate.txt", &text);
        assert_eq!(suite.version(), 2, "rates are no repetitions");
    }

    #[test]
    fn a_search_that_was_stopped_says_how_far_it_came() {
        let mut suite = sample::rate_search();
        suite.trials.truncate(3);
        conclude(&mut suite, &sample::search(), 1);
        let found = &suite.rate_search.as_ref().unwrap().engines[0];
        assert!(!found.ended);
        assert!(
            found.judgment.ends_with("the search has not ended"),
            "{}",
            found.judgment
        );
        suite.trials.clear();
        conclude(&mut suite, &sample::search(), 1);
        assert!(render(&suite, &ReportOptions::default()).contains("find-rate"));
    }

    #[test]
    fn a_share_of_the_highest_rate_that_does_not_hold_is_a_warning() {
        let mut suite = sample::rate_search();
        let engine = suite.trials[0].name();
        let share = suite.rate_search.as_ref().unwrap().engines[0].share_rate;
        let label = label(share.unwrap());
        for trial in &mut suite.trials {
            if trial.name() == engine && trial.point.as_deref() == Some(label.as_str()) {
                trial.phases[1].errors = 1;
            }
        }
        conclude(&mut suite, &sample::search(), 1);
        let engines = &suite.rate_search.as_ref().unwrap().engines;
        assert!(
            engines[0]
                .judgment
                .contains("26,250, did not hold: response times scatter")
        );
        assert!(!engines[1].judgment.contains("scatter"));
    }
}
