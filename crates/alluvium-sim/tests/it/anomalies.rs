//! Checks isolation levels by the histories of simulated clients. Like the engine's own tests with
//! real threads, but under schedules determined by a seed, so that a failure can be repeated.

use std::path::Path;
use std::sync::{Arc, Mutex};

use alluvium::simulation::threads::Builder;
use alluvium::simulation::{End, Policy, Setup, run};
use alluvium::vfs::MemVfs;
use alluvium::{Database, Isolation, Options};
use alluvium_testkit::random::Rng;

use self::client::World;
use self::load::Load;

#[path = "../../../alluvium/tests/it/anomalies/client.rs"]
mod client;
#[path = "../../../alluvium/tests/it/anomalies/load.rs"]
mod load;

fn setup(seed: u64) -> Setup {
    Setup {
        seed,
        steps_max: 2_000_000,
        policy: Policy {
            switch_of_256: 32 + 16 * (seed % 8) as u8,
            uneven: seed % 2 == 1,
            jump_of_65536: 0,
            step_ns_max: 1_000,
            stall_of_65536: 100,
        },
    }
}

/// Runs three clients with some transactions each, and concurrent flushes.
fn history(isolation: Isolation, seed: u64) -> Result<usize, String> {
    let options = Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(4_000),
        table_bytes: 4096,
        change_log_bytes: 1 << 40,
        ..Options::default()
    };
    let opened = Database::open_on(Arc::new(MemVfs::new()), Path::new("/db"), options);
    let db = opened.expect("open");
    let world = Arc::new(World::new(db.clone()));
    let changes = db.changes(db.visible_seqno() + 1).expect("changes");
    let load = Arc::new(Load::new(isolation));
    let mut threads = Vec::new();
    for number in 0..3 {
        let (world, load) = (Arc::clone(&world), Arc::clone(&load));
        let mut rng = Rng::new(seed * 10 + number as u64);
        let serve = move || (0..8).for_each(|_| load.transaction(&world, number, &mut rng));
        let builder = Builder::new().name(format!("client {number}"));
        threads.push(builder.spawn(serve).expect("spawn"));
    }
    db.flush().expect("flush");
    for thread in threads {
        let ended = thread.join();
        ended.map_err(|_| "a client has panicked".to_owned())?;
    }
    load.judge(&world, changes)
}

fn check(isolation: Isolation, seeds: u64) {
    let mut committed = 0;
    for seed in 0..seeds {
        let found = Arc::new(Mutex::new(None));
        let told = Arc::clone(&found);
        let report = run(setup(seed), Box::new(|_, _| ()), move || {
            *told.lock().expect("told") = Some(history(isolation, seed));
        });
        assert_eq!(report.end, End::Finished, "{isolation:?}, seed {seed}");
        let found = found.lock().expect("found").take().expect("a judgment");
        committed += found.unwrap_or_else(|wrong| panic!("{isolation:?}, seed {seed}\n{wrong}"));
    }
    assert!(
        committed as u64 > 5 * seeds,
        "{committed} in {seeds} histories"
    );
}

#[test]
fn simulated_transactions_at_read_committed_show_nothing_that_it_forbids() {
    check(Isolation::ReadCommitted, 40);
}

#[test]
fn simulated_transactions_at_snapshot_isolation_show_nothing_that_it_forbids() {
    check(Isolation::Snapshot, 40);
}

#[test]
fn simulated_serializable_transactions_are_as_if_one_had_run_after_the_other() {
    check(Isolation::Serializable, 40);
}
