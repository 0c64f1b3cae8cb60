//! Change of list lengths while requests run: lists grow in mode faithful, not in mode stationary.

use std::collections::HashMap;

use rumbench_core::linkbench::distribution::Zipf;
use rumbench_core::linkbench::graph::{FIRST_LINK_TYPE, Graph};
use rumbench_core::linkbench::request::{Answer, Request};
use rumbench_core::linkbench::stream::{RequestPlan, RequestStream};
use rumbench_core::linkbench::{Config, LinkKey, WriteOutcome};
use rumbench_core::random::Random;

use crate::requests::{now_ms, streams};

const NODES: u64 = 10_000;

/// A store that keeps only its differences from the loaded graph.
#[derive(Default)]
struct Differences {
    visible: HashMap<LinkKey, bool>,
    lengths: HashMap<(u64, u64), i64>,
    inserted: u64,
}

impl Differences {
    fn write(&mut self, graph: &Graph, key: LinkKey, visible: bool) -> WriteOutcome {
        let before = self.visible.get(&key).copied();
        let before = before.or_else(|| graph.is_loaded(key).then_some(true));
        let outcome = match (before, visible) {
            (None, true) => WriteOutcome::Inserted,
            (Some(false), true) => WriteOutcome::Revived,
            (Some(true), _) => WriteOutcome::Changed,
            (None | Some(false), false) => return WriteOutcome::Nothing,
        };
        self.inserted += u64::from(before.is_none());
        if before != Some(visible) {
            let change = if visible { 1 } else { -1 };
            *self.lengths.entry((key.id1, key.link_type)).or_default() += change;
        }
        self.visible.insert(key, visible);
        outcome
    }

    fn visible_change(&self) -> i64 {
        self.lengths.values().sum()
    }

    fn perform(&mut self, graph: &Graph, stream: &mut RequestStream) {
        stream.advance();
        let outcome = match stream.request() {
            Request::AddLink(link) | Request::UpdateLink(link) => self.write(graph, link.key, true),
            Request::DeleteLink(key, _) => self.write(graph, key, false),
            _ => return,
        };
        let judged = stream.answered(Answer::Link(outcome));
        assert_eq!(judged, Ok(()), "{outcome:?} for {}", stream.request());
    }
}

/// Returns the current mean rows of a list query, over a fixed sample of list reads.
fn mean_list(plan: &RequestPlan, graph: &Graph, differences: &Differences) -> f64 {
    let mut random = Random::new(77);
    let draws = 200_000;
    let rows = (0..draws).map(|_| {
        let id1 = plan.access().link_read(&mut random);
        let index = random.below(2);
        let change = differences.lengths.get(&(id1, FIRST_LINK_TYPE + index));
        (graph.links(id1, index) as i64 + change.unwrap_or(&0)).clamp(0, 10_000) as f64
    });
    rows.sum::<f64>() / f64::from(draws)
}

struct Run {
    before: f64,
    after: f64,
    links: u64,
    hidden: u64,
    differences: Differences,
}

fn run(mode: &str, clients: &str, operations: u64) -> Run {
    let pairs = [("nodes", "10000"), ("mode", mode), ("clients", clients)];
    let (graph, mut streams) = streams(&pairs);
    let plan = RequestPlan::new(&Config::from_pairs(pairs).unwrap(), graph.clone(), now_ms);
    let mut differences = Differences::default();
    let before = mean_list(&plan, &graph, &differences);
    for _ in 0..operations / streams.len() as u64 {
        for stream in &mut streams {
            differences.perform(&graph, stream);
        }
    }
    Run {
        before,
        after: mean_list(&plan, &graph, &differences),
        links: graph.totals().links,
        hidden: streams
            .iter()
            .map(|stream| stream.hidden_links() as u64)
            .sum(),
        differences,
    }
}

#[test]
fn stationary_lists_do_not_drift_over_two_million_operations() {
    let run = run("stationary", "4", 2_000_000);
    assert_eq!(run.differences.inserted, 0, "no row is added");
    assert_eq!(run.differences.visible_change(), -(run.hidden as i64));
    assert!(
        run.hidden <= 4 * 64 && run.hidden < run.links / 50,
        "{} hidden",
        run.hidden
    );
    let drift = run.after - run.before;
    assert!(
        drift.abs() < 0.02 * run.before,
        "{} to {}",
        run.before,
        run.after
    );
}

#[test]
fn stationary_hot_lists_keep_their_length_on_average() {
    let pairs = [("nodes", "10000"), ("mode", "stationary")];
    let (graph, mut streams) = streams(&pairs);
    let plan = RequestPlan::new(&Config::from_pairs(pairs).unwrap(), graph.clone(), now_ms);
    let mut differences = Differences::default();
    let mut means = Vec::new();
    for _ in 0..10 {
        for _ in 0..50_000 {
            differences.perform(&graph, &mut streams[0]);
        }
        means.push(mean_list(&plan, &graph, &differences));
    }
    // Once the pool is full, later means equal the first ones: no trend.
    let first: f64 = means[..5].iter().sum::<f64>() / 5.0;
    let second: f64 = means[5..].iter().sum::<f64>() / 5.0;
    assert!((first - second).abs() < 0.1, "{means:?}");
}

#[test]
fn faithful_lists_grow_as_the_theory_says() {
    let operations = 600_000;
    let run = run("faithful", "4", operations);
    let expected = 0.0275 * Zipf::new(NODES, 0.8).sum_of_squares() * operations as f64;
    let growth = run.after - run.before;
    assert!(
        (0.7..1.2).contains(&(growth / expected)),
        "{growth} instead of {expected}"
    );
    assert!(run.differences.inserted > operations / 25);
}
