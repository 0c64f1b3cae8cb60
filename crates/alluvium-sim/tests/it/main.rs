//! Fixed seeds pass, a seed always gives the same history, and failures are found and shrunk.

use std::collections::BTreeSet;

use alluvium_sim::plan::Plan;
use alluvium_sim::run::run;
use alluvium_sim::shrink::{numbers_of, shown, shrink};

mod anomalies;
mod events;
mod orders;
mod waits;

#[test]
fn a_seed_is_one_history() {
    for seed in 0..10 {
        let plan = Plan::new(seed, false);
        assert_eq!(run(&plan).report, run(&plan).report, "seed {seed}");
    }
}

#[test]
fn fixed_seeds_pass() {
    for seed in 1_000..1_030 {
        let failure = run(&Plan::new(seed, false)).failure;
        assert_eq!(failure, None, "seed {seed}");
    }
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_and_the_plan_shrunk() {
    let lying = |seed| Plan {
        lying_disk: true,
        ..Plan::new(seed, false)
    };
    let found = (0..100).find_map(|seed| {
        let plan = lying(seed);
        let outcome = run(&plan);
        outcome.failure.is_some().then_some((plan, outcome))
    });
    let (plan, outcome) =
        found.expect("one of a hundred seeds loses a commit that was acknowledged as durable");
    let whole = plan.numbers().len();
    let failing = shrink(&plan, outcome, 60);
    assert!(failing.outcome.failure.is_some());
    assert!(
        2 * failing.plan.numbers().len() < whole,
        "{:?}",
        failing.plan.numbers()
    );
    let again = run(&failing.plan);
    assert_eq!(
        again.failure, failing.outcome.failure,
        "it fails again as it did"
    );
}

#[test]
fn parts_of_a_plan_are_named_by_ranges() {
    assert_eq!(shown(&[1, 4, 5, 6, 9]), "1,4-6,9");
    assert_eq!(numbers_of("1,4-6,9"), Some(BTreeSet::from([1, 4, 5, 6, 9])));
    assert_eq!(numbers_of("1,x"), None);
    let plan = Plan::new(7, false);
    let kept: BTreeSet<usize> = plan.numbers().into_iter().step_by(3).collect();
    assert!(
        plan.keep(&kept)
            .numbers()
            .iter()
            .all(|number| kept.contains(number))
    );
}
