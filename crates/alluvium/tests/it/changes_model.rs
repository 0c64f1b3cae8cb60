//! A copy that follows a change stream ends up equal to its original, after any history of the
//! original.

use std::sync::Arc;

use alluvium::vfs::MemVfs;
use alluvium::{Change, ChangeKind, Changes, ChangesOptions, Database, Error, Operation, Options};
use alluvium_testkit::model::{Rows, State};
use alluvium_testkit::op::{Generator, KeyShape, Op, Weights};
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::{Driver, chain, small_options, state_of};

/// State that a consumer has built from a stream.
#[derive(Default)]
pub struct Replica {
    pub state: State,
    /// Sequence number at which the consumer resumes.
    pub next_seqno: u64,
    /// The open stream, and the files of the database that it reads.
    stream: Option<(Changes, Arc<MemVfs>)>,
}

/// Applies a change. The rows of an ingest are read from the original in its current state.
pub fn apply(state: &mut State, change: &Change, original: &Database) {
    match &change.kind {
        ChangeKind::Commit { operations, .. } => {
            for operation in operations {
                apply_operation(state, operation);
            }
        }
        ChangeKind::Ingest { keyspaces } => {
            let now = state_of(original);
            // Otherwise a power loss could remove rows that were copied but are in no change yet.
            original.sync().expect("sync");
            for (keyspace, rows) in keyspaces {
                assert!(*rows > 0);
                if let Some(rows) = now.get(&keyspace.name) {
                    state.insert(keyspace.name.clone(), rows.clone());
                }
            }
        }
        ChangeKind::KeyspaceCreated { keyspace, .. } => {
            let before = state.insert(keyspace.name.clone(), Rows::new());
            assert!(before.is_none(), "{} was there already", keyspace.name);
        }
        ChangeKind::KeyspaceDropped { keyspace } => {
            let dropped = state.remove(&keyspace.name);
            assert!(dropped.is_some(), "{} was not there", keyspace.name);
        }
        ChangeKind::OptionsChanged { .. } => {}
        other => panic!("an unknown change {other:?}"),
    }
}

fn apply_operation(state: &mut State, operation: &Operation) {
    let rows = |state: &mut State, name: &str| {
        std::mem::take(state.get_mut(name).unwrap_or_else(|| panic!("no {name}")))
    };
    let (name, rows) = match operation {
        Operation::Put {
            keyspace,
            key,
            value,
            ..
        } => {
            let mut rows = rows(state, &keyspace.name);
            rows.insert(key.clone(), value.clone());
            (&keyspace.name, rows)
        }
        Operation::Delete { keyspace, key } => {
            let mut rows = rows(state, &keyspace.name);
            rows.remove(key);
            (&keyspace.name, rows)
        }
        Operation::DeleteRange {
            keyspace,
            start,
            end,
        } => {
            let mut rows = rows(state, &keyspace.name);
            rows.retain(|key, _| key < start || key >= end);
            (&keyspace.name, rows)
        }
        other => panic!("an unknown operation {other:?}"),
    };
    state.insert(name.clone(), rows);
}

impl Replica {
    /// Reads up to `most` changes, from the open stream if it belongs to this database. Returns
    /// true if those were all.
    fn pull(&mut self, driver: &Driver, options: &ChangesOptions, most: usize) -> bool {
        for _ in 0..most {
            let (mut changes, vfs) = match self.stream.take() {
                Some((changes, vfs)) if Arc::ptr_eq(&vfs, &driver.vfs) => (changes, vfs),
                _ => (self.open(&driver.db, options), Arc::clone(&driver.vfs)),
            };
            let next = match changes.next() {
                // The database was reopened: the next round opens a new stream.
                Err(Error::Closed) => continue,
                other => other.unwrap_or_else(|e| panic!("next: {}", chain(&e))),
            };
            if let Some(change) = &next {
                assert!(change.seqno >= self.next_seqno, "backwards");
                apply(&mut self.state, change, &driver.db);
            }
            self.next_seqno = changes.next_seqno();
            self.stream = Some((changes, vfs));
            if next.is_none() {
                return true;
            }
        }
        false
    }

    fn open(&self, db: &Database, options: &ChangesOptions) -> Changes {
        let from = self.next_seqno.max(1);
        let changes = db.changes_with(from, options.clone());
        changes.unwrap_or_else(|e| panic!("from {from}: {}", chain(&e)))
    }
}

fn follow(rng: &mut Rng, weights: Weights, durable_only: bool) {
    let options = Options {
        change_log_bytes: 1 << 40,
        ..small_options(rng)
    };
    let mut driver = Driver::new(options);
    let shape = KeyShape {
        distinct: rng.range(5..100),
        value_bytes: 0..*rng.pick(&[100, 700]),
        ..KeyShape::default()
    };
    let mut generator = Generator::new(weights, shape, rng);
    let mut replica = Replica::default();
    let options = ChangesOptions {
        durable_only,
        ..ChangesOptions::default()
    };
    for _ in 0..250 {
        let op = generator.next(rng, &driver.model);
        driver.run(&op, rng.next_u64());
        // With a lag now and then, also across a reopening.
        if rng.percent(30) && !matches!(op, Op::Reopen | Op::Crash) {
            let most = rng.range(1..60);
            if replica.pull(&driver, &options, most) && !durable_only {
                assert_eq!(replica.state, driver.state());
            }
        }
    }
    driver.db.sync().expect("sync");
    // Ends: each round reads at least one change.
    while !replica.pull(&driver, &options, 100) {}
    assert_eq!(replica.state, driver.state());
    assert_eq!(replica.next_seqno, driver.db.visible_seqno() + 1);
    // All changes once more, in a new stream.
    let mut again = Replica::default();
    while !again.pull(&driver, &options, 100) {}
    assert_eq!(again.state, driver.state());
}

#[test]
fn a_copy_that_follows_the_changes_equals_its_original() {
    Seeded::run(
        "a_copy_that_follows_the_changes_equals_its_original",
        15,
        |rng| {
            let weights = Weights {
                drop_keyspace: 1,
                delete_range: *rng.pick(&[0, 5]),
                ingest: 3,
                flush: 5,
                reopen: 2,
                ..Weights::default()
            };
            follow(rng, weights, false);
        },
    );
}

#[test]
fn a_copy_that_follows_durable_changes_resumes_after_power_loss() {
    Seeded::run(
        "a_copy_that_follows_durable_changes_resumes_after_power_loss",
        15,
        |rng| {
            let weights = Weights {
                crash: 4,
                drop_keyspace: 1,
                delete_range: *rng.pick(&[0, 5]),
                ingest: 2,
                flush: 5,
                ..Weights::default()
            };
            follow(rng, weights, true);
        },
    );
}
