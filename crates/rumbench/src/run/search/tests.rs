//! Tests of the search with engines that answer according to a formula.

use super::*;
use crate::report::sample;
use crate::run::plan::Suite;
use crate::run::plan::tests::suite;
use crate::run::schedule::{expected_of_search as expected, upcoming_of_search as upcoming};
use crate::store::result::Latency;

fn search() -> Search {
    Search {
        conditions: vec![Condition::parse("p99=5ms").unwrap()],
        phase: "request".to_string(),
        precision: 0.05,
        share: 0.7,
        arrivals: Arrivals::Even,
    }
}

/// Returns a trial at a rate (0: closed loop) of an engine that does `most` operations per second.
fn trial(engine: &str, rate: f64, repetition: u32, most: f64) -> TrialResult {
    let mut trial = sample::suite().trials.remove(0);
    trial.engine = engine.to_string();
    trial.point = Some(label(rate));
    trial.repetition = repetition;
    trial.ended_at = Some(String::new());
    let phase = &mut trial.phases[1];
    let reached = if rate > 0.0 { rate.min(most) } else { most };
    phase.rate = (rate > 0.0).then_some(rate);
    phase.ops_per_s = Some(reached);
    phase.seconds = 10.0;
    phase.missed_arrivals = Some(((rate - reached).max(0.0) * 10.0) as u64);
    let latency = Latency {
        count: 1000,
        // A queue with one server, in ms.
        p99: 1000.0 / (1.0 - (rate / most).min(0.999)),
        ..Latency::default()
    };
    phase.latency_us = [("GET".to_string(), latency)].into();
    trial
}

/// Runs a search to its end.
fn follow(suite: &Suite, search: &Search, most: &dyn Fn(&str) -> f64) -> Vec<TrialResult> {
    let mut ended = Vec::new();
    while let Some(next) = upcoming(suite, search, &ended) {
        let name = suite.engines()[next.engine].name();
        let rate = rate_of(next.point.label.as_deref().unwrap()).unwrap();
        assert_eq!(next.point.rate.map_or(0.0, |r| r.per_second), rate);
        assert!(expected(suite, search, &ended) > ended.len());
        ended.push(trial(&name, rate, next.repetition, most(&name)));
        assert!(ended.len() < 100, "the search has an end");
    }
    assert_eq!(expected(suite, search, &ended), ended.len());
    ended
}

fn of<'a>(ended: &'a [TrialResult], engine: &str) -> Vec<&'a TrialResult> {
    ended.iter().filter(|t| t.engine == engine).collect()
}

#[test]
fn the_highest_rate_that_holds_is_found_within_the_precision() {
    let dir = tempfile::tempdir().unwrap();
    let mut suite = suite(dir.path());
    suite.repeat = 1;
    // p99 is 5 ms at 80 % of the engine's capacity.
    let most = |name: &str| if name == "null" { 20_000.0 } else { 313.0 };
    let ended = follow(&suite, &search(), &most);
    for (engine, right) in [("null", 16_000.0), ("sqlite", 250.4)] {
        let state = search().state(&of(&ended, engine), 1);
        let (low, high) = (state.highest.unwrap(), state.lowest_broken.unwrap());
        assert!(low <= right && right < high, "{engine}: {low} {high}");
        assert!(high <= low * 1.05, "{engine}: {low} {high}");
        let reference = state.reference.unwrap();
        assert!((reference / low - 0.7).abs() < 0.001);
        assert_eq!(state.tried.last().unwrap().rate, reference);
        assert_eq!(state.tried[0].rate, 0.0);
    }
    // Engines take turns.
    let names: Vec<&str> = ended[..4].iter().map(|t| t.engine.as_str()).collect();
    assert_eq!(names, ["null", "sqlite", "null", "sqlite"]);
    assert!(ended.len() <= 20, "{} trials", ended.len());
}

#[test]
fn a_search_that_was_stopped_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let suite = suite(dir.path());
    let whole = follow(&suite, &search(), &|_| 1000.0);
    for stopped in 0..whole.len() {
        let next = upcoming(&suite, &search(), &whole[..stopped]).unwrap();
        let trial = &whole[stopped];
        assert_eq!(next.point.label, trial.point);
        assert_eq!(next.repetition, trial.repetition);
        assert_eq!(suite.engines()[next.engine].name(), trial.name());
    }
}

#[test]
fn most_repetitions_decide() {
    let search = search();
    let (good, bad) = (trial("null", 10.0, 1, 1000.0), trial("null", 10.0, 1, 5.0));
    let of = |trials: &[&'static str]| {
        let trials = trials
            .iter()
            .map(|t| if *t == "good" { &good } else { &bad });
        search.holds(&Tried {
            rate: 10.0,
            trials: trials.collect(),
        })
    };
    assert!(of(&["good"]) && of(&["good", "bad", "good"]));
    assert!(!of(&["bad"]) && !of(&["good", "bad"]) && !of(&[]));
}

#[test]
fn a_limit_that_no_rate_holds_ends_the_search_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut suite = suite(dir.path());
    suite.repeat = 1;
    let mut impossible = search();
    impossible.conditions = vec![Condition::parse("p99=1us").unwrap()];
    let ended = follow(&suite, &impossible, &|_| 1000.0);
    let state = impossible.state(&of(&ended, "null"), 1);
    assert_eq!((state.highest, state.reference), (None, None));
    assert!(state.lowest_broken.unwrap() < 1000.0 * LEAST * 2.0);
}

#[test]
fn a_limit_that_every_rate_holds_ends_it_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut suite = suite(dir.path());
    suite.repeat = 1;
    // The throughput of a closed loop with little work says little about the capacity.
    let mut ended: Vec<TrialResult> = Vec::new();
    while let Some(next) = upcoming(&suite, &search(), &ended) {
        let name = suite.engines()[next.engine].name();
        let rate = rate_of(next.point.label.as_deref().unwrap()).unwrap();
        let most = if rate > 0.0 { 1e9 } else { 100.0 };
        ended.push(trial(&name, rate, next.repetition, most));
        assert!(ended.len() < 40);
    }
    let state = search().state(&of(&ended, "null"), 1);
    assert!(state.highest.unwrap() > 500.0);
    assert_eq!(state.lowest_broken, None);
    assert!(state.reference.is_some());
}

#[test]
fn an_engine_whose_closed_loop_fails_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut suite = suite(dir.path());
    suite.repeat = 1;
    let mut failed = trial("null", 0.0, 1, 1000.0);
    failed.phases.truncate(1);
    failed.mark("failed (no)");
    let next = upcoming(&suite, &search(), &[failed]).unwrap();
    assert_eq!(next.engine, 1, "the other one goes on");
}

#[test]
fn every_repetition_of_the_phase_that_is_judged_has_to_hold() {
    let mut some = trial("null", 100.0, 1, 1000.0);
    let mut second = some.phases[1].clone();
    second.name = "request#2".to_string();
    second.ops_per_s = Some(10.0);
    some.phases.insert(2, second);
    let names = |search: &Search| -> Vec<String> {
        let phases = search.judged(&some);
        phases.iter().map(|phase| phase.name.clone()).collect()
    };
    assert_eq!(names(&search()), ["request", "request#2"]);
    let mut named = search();
    named.phase = "load".to_string();
    assert_eq!(names(&named), ["load"]);
    assert_eq!(search().broken(&some), ["10.0 of 100 operations/s reached"]);
    assert_eq!(named.broken(&some), ["load has no rate"]);
}

#[test]
fn rates_have_few_digits_and_come_back_from_their_labels() {
    assert_eq!(rounded(123_456.0), 123_500.0);
    assert_eq!(rounded(0.0123456), 0.01235);
    for rate in [0.0, 0.01235, 99.37, 1e6 / 3.0] {
        let rate = if rate > 0.0 { rounded(rate) } else { rate };
        assert_eq!(rate_of(&label(rate)), Some(rate));
    }
    assert_eq!(rate_of("clients=4"), None);
}
