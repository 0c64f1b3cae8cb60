//! Every order of the steps of a few small transactions, at every level.

use std::collections::BTreeSet;
use std::time::Duration;

use alluvium::{Isolation, TransactionOptions};
use alluvium_testkit::anomalies::{Anomaly, Level};

use super::client::Direction::{Backward, Forward};
use super::client::Step::{Append, Delete, Get, GetForUpdate, Put, ReadList, Scan};
use super::client::{Client, Ending, Step, World};
use crate::fixture::{database, tiny};

/// Level to judge by, isolation to run with, and true for optimistic transactions.
const LEVELS: [(Level, Isolation, bool); 5] = [
    (Level::ReadCommitted, Isolation::ReadCommitted, false),
    (Level::Snapshot, Isolation::Snapshot, false),
    (Level::Snapshot, Isolation::Snapshot, true),
    (Level::Serializable, Isolation::Serializable, false),
    (Level::Serializable, Isolation::Serializable, true),
];

/// The steps and the end of one transaction.
struct Program {
    steps: Vec<Step>,
    ending: Ending,
    /// True if the end is a separate step, so that steps of other programs can run before it.
    ends_apart: bool,
}

fn program(steps: &[Step]) -> Program {
    Program {
        steps: steps.to_vec(),
        ending: Ending::Commit,
        ends_apart: true,
    }
}

/// Returns a read-only transaction; the time of its end does not matter.
fn reader(steps: &[Step]) -> Program {
    Program {
        ends_apart: false,
        ..program(steps)
    }
}

fn ending(steps: &[Step], ending: Ending) -> Program {
    Program {
        ending,
        ..program(steps)
    }
}

impl Program {
    fn turns(&self) -> usize {
        self.steps.len() + usize::from(self.ends_apart)
    }
}

/// Calls `each` with every order in which the programs can take their turns.
fn interleave(left: &mut [usize], order: &mut Vec<usize>, each: &mut dyn FnMut(&[usize])) {
    let mut ended = true;
    for program in 0..left.len() {
        if left[program] > 0 {
            ended = false;
            left[program] -= 1;
            order.push(program);
            interleave(left, order, each);
            order.pop();
            left[program] += 1;
        }
    }
    if ended {
        each(order);
    }
}

/// Runs the programs in one order and rolls back each transaction that is refused. Returns the
/// marks of commits in commit order.
fn run(
    world: &World,
    base: u32,
    programs: &[Program],
    order: &[usize],
    options: &TransactionOptions,
) -> Vec<u64> {
    let mut clients: Vec<Option<Client<'_>>> = programs.iter().map(|_| None).collect();
    let mut taken = vec![0; programs.len()];
    let mut marks = Vec::new();
    for &turn in order {
        let (program, at) = (&programs[turn], taken[turn]);
        taken[turn] += 1;
        if at == 0 {
            clients[turn] = Some(world.begin(turn, base, options));
        }
        // A program that was refused skips its remaining turns.
        let Some(mut client) = clients[turn].take() else {
            continue;
        };
        if let Some(step) = program.steps.get(at)
            && let Err(error) = client.step(step)
        {
            assert!(super::client::refused(&error), "{error}");
            client.end(Ending::Rollback);
            continue;
        }
        if at + 1 == program.turns() {
            marks.extend(client.end(program.ending))
        } else {
            clients[turn] = Some(client)
        }
    }
    marks
}

/// Runs the programs in all orders at all levels. Returns the anomalies found at each level.
fn anomalies_of(programs: &[Program]) -> [BTreeSet<Anomaly>; 5] {
    let prepares = programs.iter().any(|p| p.ending == Ending::PrepareCommit);
    LEVELS.map(|(level, isolation, optimistic)| {
        let mut found = BTreeSet::new();
        if prepares && (optimistic || isolation == Isolation::Serializable) {
            return found;
        }
        let options = TransactionOptions {
            isolation,
            optimistic,
            lock_timeout: Some(Duration::ZERO),
            ..TransactionOptions::default()
        };
        let (_vfs, db, _k) = database(tiny());
        let world = World::new(db);
        let mut left: Vec<usize> = programs.iter().map(Program::turns).collect();
        let mut base = 0;
        interleave(&mut left, &mut Vec::new(), &mut |order| {
            base += 100;
            let marks = run(&world, base, programs, order, &options);
            let judged = world.take_history(&marks).judge(level);
            let allowed = judged.unwrap_or_else(|wrong| {
                panic!("{isolation:?}, optimistic: {optimistic}, order {order:?}\n{wrong}")
            });
            found.extend(allowed.iter().map(|finding| finding.anomaly));
            let locks = world.db.stats().expect("stats").row_locks;
            assert_eq!(locks, 0, "{isolation:?}, order {order:?}");
        });
        found
    })
}

/// Checks the anomalies at read committed and at snapshot isolation; at serializable none may
/// happen.
fn check(programs: &[Program], read_committed: &[Anomaly], snapshot: &[Anomaly]) {
    let expected = [read_committed, snapshot, snapshot, &[], &[]];
    let prepares = programs.iter().any(|p| p.ending == Ending::PrepareCommit);
    for (at, (found, expected)) in anomalies_of(programs).iter().zip(expected).enumerate() {
        let level = LEVELS[at];
        let skipped = prepares && (level.2 || level.0 == Level::Serializable);
        let expected: BTreeSet<Anomaly> = expected.iter().copied().collect();
        assert!(
            skipped || *found == expected,
            "{level:?}: {found:?} instead of {expected:?}"
        );
    }
}

#[test]
fn in_every_order_two_updates_of_a_row_lose_one_at_read_committed_only() {
    check(
        &[program(&[Get(1), Put(1)]), program(&[Get(1), Put(1)])],
        &[Anomaly::LostUpdate, Anomaly::GSingle],
        &[],
    );
}

#[test]
fn in_no_order_and_at_no_level_an_update_of_a_locked_row_is_lost() {
    let update = || program(&[GetForUpdate(1), Put(1)]);
    check(&[update(), update(), program(&[Put(1)])], &[], &[]);
    let append = || program(&[Append(1), Append(2)]);
    check(&[append(), append()], &[], &[]);
}

#[test]
fn in_every_order_a_commit_is_seen_by_half_at_read_committed_only() {
    let write = || program(&[Put(1), Put(7)]);
    check(
        &[write(), reader(&[Get(1), Get(7)])],
        &[Anomaly::GSingle],
        &[],
    );
    let scans = [Scan(0..=4, Forward, 9), Scan(5..=9, Backward, 9)];
    check(&[write(), reader(&scans)], &[Anomaly::GSingle], &[]);
    check(&[write(), reader(&[Scan(0..=9, Backward, 9)])], &[], &[]);
    let lists = program(&[Append(1), Append(2)]);
    check(
        &[lists, reader(&[ReadList(1), ReadList(2)])],
        &[Anomaly::GSingle],
        &[],
    );
}

#[test]
fn in_every_order_write_skew_is_refused_at_serializable_only() {
    check(
        &[program(&[Get(1), Put(2)]), program(&[Get(2), Put(1)])],
        &[Anomaly::G2Item],
        &[Anomaly::G2Item],
    );
    let three = [(1, 2), (2, 3), (3, 1)].map(|(read, write)| program(&[Get(read), Put(write)]));
    check(&three, &[Anomaly::G2Item], &[Anomaly::G2Item]);
    let lists = [(1, 2), (2, 1)].map(|(read, write)| program(&[ReadList(read), Append(write)]));
    check(&lists, &[Anomaly::G2Item], &[Anomaly::G2Item]);
}

#[test]
fn in_every_order_phantoms_are_refused_at_serializable_only() {
    let add = |key, direction, limit| program(&[Scan(0..=9, direction, limit), Put(key)]);
    check(
        &[add(3, Forward, 9), add(4, Backward, 9)],
        &[Anomaly::G2],
        &[Anomaly::G2],
    );
    // Two clients that take the number after the largest one.
    check(
        &[program(&[Put(2)]), add(3, Backward, 1), add(4, Backward, 1)],
        &[Anomaly::G2],
        &[Anomaly::G2],
    );
}

#[test]
fn in_every_order_write_skew_through_a_delete_is_refused_at_serializable_only() {
    check(
        &[
            program(&[Put(1)]),
            program(&[Get(1), Put(2)]),
            program(&[Get(2), Delete(1)]),
        ],
        &[Anomaly::GSingle, Anomaly::G2Item],
        &[Anomaly::G2Item],
    );
}

#[test]
fn in_every_order_rolled_back_and_replaced_rows_stay_unseen() {
    let reads = || program(&[Get(1), Put(2), Scan(0..=9, Forward, 9)]);
    check(&[ending(&[Put(1)], Ending::Rollback), reads()], &[], &[]);
    check(
        &[program(&[Put(1), Put(1)]), reader(&[Get(1), Get(1)])],
        &[Anomaly::GSingle],
        &[],
    );
}

#[test]
fn in_every_order_two_readers_see_two_writers_alike_above_read_committed() {
    check(
        &[
            program(&[Put(1)]),
            program(&[Put(2)]),
            reader(&[Get(1), Get(2)]),
            reader(&[Get(2), Get(1)]),
        ],
        // Read skew if one writer ended before the other began.
        &[Anomaly::GSingle, Anomaly::GNonadjacent],
        &[],
    );
}

#[test]
fn in_every_order_a_prepared_transaction_is_as_isolated_as_its_level() {
    let prepared = ending(&[GetForUpdate(1), Put(1), Put(2)], Ending::PrepareCommit);
    check(
        &[prepared, program(&[Get(1), Get(2), Put(1)])],
        &[Anomaly::LostUpdate, Anomaly::GSingle],
        &[],
    );
    let skew = ending(&[Get(2), Put(1)], Ending::PrepareCommit);
    let rolled_back = ending(&[Get(1), Put(2)], Ending::PrepareRollback);
    check(&[skew, rolled_back], &[], &[]);
}
