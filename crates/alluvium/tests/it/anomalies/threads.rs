//! Random transactions in real threads, concurrent with flushes and compactions: no level shows an
//! anomaly that it forbids.

use std::thread;

use alluvium::{Database, Isolation, Options};
use alluvium_testkit::random::{Rng, Seeded};

use super::client::World;
use super::load::Load;
use crate::fixture::{database, tiny};

const CLIENTS: usize = 4;
const TRANSACTIONS: usize = 60;

/// Flushes and compacts while the clients run.
fn move_data(db: &Database) {
    for _ in 0..8 {
        db.flush().expect("flush");
        db.settle().expect("settle");
    }
}

fn run(isolation: Isolation, rng: &mut Rng) {
    let options = Options {
        change_log_bytes: 1 << 40,
        ..tiny()
    };
    let (_vfs, db, _k) = database(options);
    let world = World::new(db.clone());
    let changes = db.changes(db.visible_seqno() + 1).expect("changes");
    let load = Load::new(isolation);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (world, load) = (&world, &load);
            let mut rng = Rng::new(rng.next_u64());
            scope.spawn(move || {
                for _ in 0..TRANSACTIONS {
                    load.transaction(world, number, &mut rng);
                }
            });
        }
        move_data(&db);
    });
    let committed = load.judge(&world, changes);
    let committed = committed.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(committed > TRANSACTIONS / 2, "{committed}");
}

#[test]
fn random_transactions_at_read_committed_show_nothing_that_it_forbids() {
    Seeded::run("read_committed", 3, |rng| {
        run(Isolation::ReadCommitted, rng);
    });
}

#[test]
fn random_transactions_at_snapshot_isolation_show_nothing_that_it_forbids() {
    Seeded::run("snapshot", 3, |rng| {
        run(Isolation::Snapshot, rng);
    });
}

#[test]
fn random_serializable_transactions_are_as_if_one_had_run_after_the_other() {
    Seeded::run("serializable", 3, |rng| {
        run(Isolation::Serializable, rng);
    });
}
