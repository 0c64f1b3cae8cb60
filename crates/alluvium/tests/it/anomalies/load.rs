//! Random transactions over few rows, and the check of their history. Threads run them here, and
//! simulated threads in the tests of `alluvium-sim`.

use std::time::Duration;

use alluvium::{ChangeKind, Changes, Isolation, Operation, TransactionOptions};
use alluvium_testkit::anomalies::Level;
use alluvium_testkit::random::Rng;

use super::client::{Direction, Ending, Step, World, refused};

/// Few rows, so that transactions conflict all the time.
const REGISTERS: u32 = 8;
const LISTS: u32 = 3;

fn step(rng: &mut Rng) -> Step {
    let (register, list) = (
        rng.below(REGISTERS as usize) as u32,
        rng.below(LISTS as usize) as u32,
    );
    match rng.weighted(&[3, 2, 4, 1, 3, 2, 3]) {
        0 => Step::Get(register),
        1 => Step::GetForUpdate(register),
        2 => Step::Put(register),
        // A read of an absent row proves little after a delete, so few rows are deleted.
        3 => Step::Delete(register % 2),
        4 => {
            let end = register + rng.below((REGISTERS - register) as usize) as u32;
            let direction = *rng.pick(&[Direction::Forward, Direction::Backward]);
            Step::Scan(register..=end, direction, rng.range(1..5))
        }
        5 => Step::ReadList(list),
        _ => Step::Append(list),
    }
}

/// Returns a step that locks every row it reads: a prepared transaction of such steps is
/// serializable at any level.
fn locked_step(rng: &mut Rng) -> Step {
    match step(rng) {
        Step::Put(key) => Step::Put(key),
        Step::Get(key) | Step::Delete(key) => Step::GetForUpdate(key),
        Step::Scan(keys, ..) => Step::GetForUpdate(*keys.start()),
        other => other,
    }
}

/// The workload of all clients.
pub struct Load {
    pub isolation: Isolation,
}

impl Load {
    pub fn transaction(&self, world: &World, number: usize, rng: &mut Rng) {
        if rng.percent(10) {
            let mut keys: Vec<u32> = (0..REGISTERS).collect();
            rng.shuffle(&mut keys);
            world.write_batch(number, &keys[..rng.range(1..4)]);
            return;
        }
        let prepares = rng.percent(15);
        let serializable = self.isolation == Isolation::Serializable;
        let options = TransactionOptions {
            // A list is read with a lock at read committed only.
            isolation: match (prepares, self.isolation) {
                (true, Isolation::Serializable) => Isolation::ReadCommitted,
                (_, isolation) => isolation,
            },
            optimistic: !prepares && self.isolation != Isolation::ReadCommitted && rng.percent(40),
            // Two waits for one victim can close a cycle that only a timeout ends.
            lock_timeout: Some(Duration::from_secs(1)),
            ..TransactionOptions::default()
        };
        let mut client = world.begin(number, 0, &options);
        for _ in 0..rng.range(2..6) {
            let next = if prepares && serializable {
                locked_step(rng)
            } else {
                step(rng)
            };
            // Without a lock it would see another state than the transaction's other reads.
            if prepares && serializable && matches!(next, Step::ReadList(_)) {
                continue;
            }
            if let Err(error) = client.step(&next) {
                assert!(refused(&error), "{error}");
                client.end(Ending::Rollback);
                return;
            }
        }
        client.end(match (prepares, rng.percent(85)) {
            (false, true) => Ending::Commit,
            (false, false) => Ending::Rollback,
            (true, true) => Ending::PrepareCommit,
            (true, false) => Ending::PrepareRollback,
        });
    }
}

/// Returns the marks of all commits, in the order of the log.
fn order_of_commits(world: &World, mut changes: Changes) -> Vec<u64> {
    let mut marks = Vec::new();
    while let Some(change) = changes.next().expect("a change") {
        let ChangeKind::Commit { operations, .. } = &change.kind else {
            continue;
        };
        for operation in operations {
            if let Operation::Put { keyspace, key, .. } = operation {
                marks.extend(world.mark_of(keyspace.id, key));
            }
        }
    }
    marks
}

fn read_everything(world: &World) {
    let mut client = world.begin(usize::MAX, 0, &TransactionOptions::default());
    let all = Step::Scan(0..=REGISTERS - 1, Direction::Forward, usize::MAX);
    client.step(&all).expect("scan");
    for list in 0..LISTS {
        client.step(&Step::ReadList(list)).expect("read");
    }
    client.end(Ending::Commit);
}

impl Load {
    /// Returns a workload of transactions of this level.
    pub fn new(isolation: Isolation) -> Load {
        Load { isolation }
    }

    /// Judges the transactions of all clients since `changes` began. Returns the number of
    /// committed ones.
    pub fn judge(&self, world: &World, changes: Changes) -> Result<usize, String> {
        read_everything(world);
        let history = world.take_history(&order_of_commits(world, changes));
        let level = match self.isolation {
            Isolation::ReadCommitted => Level::ReadCommitted,
            Isolation::Snapshot => Level::Snapshot,
            Isolation::Serializable => Level::Serializable,
        };
        history.judge(level)?;
        match world.db.stats().expect("stats").row_locks {
            0 => Ok(history.committed()),
            locks => Err(format!("{locks} row locks have leaked")),
        }
    }
}
