//! Random histories on the engine and on the reference model give the same answers, also across
//! reopening and power loss at any moment.

use alluvium_testkit::op::{Generator, KeyShape, Weights};
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::{Driver, small_options};

fn history(rng: &mut Rng, weights: Weights, steps: usize) {
    let mut driver = Driver::new(small_options(rng));
    let shape = KeyShape {
        distinct: rng.range(5..200),
        value_bytes: 0..*rng.pick(&[100, 700]),
        ..KeyShape::default()
    };
    let mut generator = Generator::new(weights, shape, rng);
    for _ in 0..steps {
        let op = generator.next(rng, &driver.model);
        driver.run(&op, rng.next_u64());
    }
    driver.check_state();
}

#[test]
fn random_histories_match_the_model() {
    Seeded::run("random_histories_match_the_model", 40, |rng| {
        let weights = Weights {
            drop_keyspace: 1,
            delete_range: *rng.pick(&[0, 3, 10]),
            // Few live rows among many deleted ones: cursors record dead intervals and skip them.
            delete: *rng.pick(&[15, 80]),
            ..Weights::default()
        };
        history(rng, weights, 600);
    });
}

#[test]
fn power_loss_at_any_moment_keeps_a_prefix_of_the_commits() {
    Seeded::run(
        "power_loss_at_any_moment_keeps_a_prefix_of_the_commits",
        60,
        |rng| {
            let weights = Weights {
                crash: 3,
                drop_keyspace: 1,
                delete_range: *rng.pick(&[0, 3, 10]),
                delete: *rng.pick(&[15, 80]),
                flush: 5,
                compact: 4,
                ..Weights::default()
            };
            history(rng, weights, 400);
        },
    );
}

#[test]
fn fuzz_random_histories_with_power_loss_match_the_model() {
    Seeded::fuzz(
        "fuzz_random_histories_with_power_loss_match_the_model",
        |rng| {
            let crash = rng.below(4);
            let weights = Weights {
                crash,
                drop_keyspace: 1,
                delete_range: *rng.pick(&[0, 3, 10]),
                delete: *rng.pick(&[15, 80]),
                flush: 5,
                compact: 4,
                ..Weights::default()
            };
            history(rng, weights, 300);
        },
    );
}
