//! Row locks with real threads. A test waits for `on_wait` to be sure that a request is queued, and
//! never uses the clock. A wait that the test does not end itself has a timeout far longer than the
//! test.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::*;
use LockMode::{Exclusive, Shared};

type Outcome = Result<Granted, LockFailure>;

const LONG: Duration = Duration::from_secs(120);
const A: LockHash = LockHash(1);
const B: LockHash = LockHash(2 << 32);
const C: LockHash = LockHash(3 << 32);
const T1: TxnId = TxnId(1);
const T2: TxnId = TxnId(2);
const T3: TxnId = TxnId(3);

fn table() -> Arc<LockTable> {
    Arc::new(LockTable::new(0))
}

fn now(table: &LockTable, owner: TxnId, hash: LockHash, mode: LockMode) -> Outcome {
    table.lock(owner, hash, mode, &LockWait::none())
}

/// Request on its own thread, which is in the queue when the constructor returns.
struct Waiting {
    cancel: LockCancel,
    thread: JoinHandle<Outcome>,
}

impl Waiting {
    fn new(table: &Arc<LockTable>, owner: TxnId, hash: LockHash, mode: LockMode) -> Waiting {
        Waiting::with_timeout(table, owner, hash, mode, LONG)
    }

    fn with_timeout(
        table: &Arc<LockTable>,
        owner: TxnId,
        hash: LockHash,
        mode: LockMode,
        timeout: Duration,
    ) -> Waiting {
        let (queued, is_queued) = mpsc::channel();
        let cancel = LockCancel::new();
        let wait = LockWait {
            timeout,
            cancel: Some(cancel.clone()),
            on_wait: Some(Arc::new(move |_: &[TxnId]| {
                queued.send(()).expect("the test listens");
            })),
        };
        let table = Arc::clone(table);
        let thread = thread::spawn(move || table.lock(owner, hash, mode, &wait));
        is_queued.recv().expect("the request has to wait");
        Waiting { cancel, thread }
    }

    fn outcome(self) -> Outcome {
        self.thread.join().expect("no request panics")
    }
}

/// Asserts that the table holds no lock and the detector no wait.
fn check_empty(table: &LockTable) {
    assert_eq!(table.locks_held(), 0);
    assert_eq!(table.detector.len(), 0);
}

#[test]
fn only_two_shared_locks_go_together() {
    for held in [Shared, Exclusive] {
        for asked in [Shared, Exclusive] {
            let table = table();
            assert_eq!(now(&table, T1, A, held), Ok(Granted::New));
            let expected = if (held, asked) == (Shared, Shared) {
                Ok(Granted::New)
            } else {
                Err(LockFailure::Timeout { holders: vec![T1] })
            };
            assert_eq!(now(&table, T2, A, asked), expected, "{held:?}, {asked:?}");
            assert_eq!(now(&table, T2, B, asked), Ok(Granted::New));
            table.unlock_all(T1, &[A]);
            table.unlock_all(T2, &[A, B]);
            check_empty(&table);
        }
    }
}

#[test]
fn an_owner_is_never_in_its_own_way() {
    let table = table();
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::New));
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::Again));
    assert_eq!(now(&table, T1, A, Exclusive), Ok(Granted::Upgraded));
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::Again));
    assert_eq!(now(&table, T1, A, Exclusive), Ok(Granted::Again));
    assert_eq!(table.holders(A), [T1]);
    table.unlock_all(T1, &[A, A, A]);
    check_empty(&table);
}

#[test]
fn a_lock_is_free_after_as_many_unlocks_as_acquisitions() {
    // Two keys with one hash: a rollback to a savepoint that frees one must not free the other.
    let table = table();
    assert_eq!(now(&table, T1, A, Exclusive), Ok(Granted::New));
    assert_eq!(now(&table, T1, A, Exclusive), Ok(Granted::Again));
    table.unlock(T1, A);
    assert!(now(&table, T2, A, Shared).is_err());
    table.unlock(T1, A);
    assert_eq!(now(&table, T2, A, Exclusive), Ok(Granted::New));
}

#[test]
fn any_of_many_shared_holders_may_leave_first() {
    let owners: Vec<TxnId> = (1..=4).map(TxnId).collect();
    for first in 0..owners.len() {
        let table = table();
        for &owner in &owners {
            assert_eq!(now(&table, owner, A, Shared), Ok(Granted::New));
        }
        let mut left = owners.clone();
        for step in 0..owners.len() {
            let owner = left.remove((first + step) % left.len());
            table.unlock(owner, A);
            let mut holders = table.holders(A);
            holders.sort();
            assert_eq!(holders, left);
        }
        check_empty(&table);
    }
}

#[test]
fn requests_are_granted_in_the_order_of_their_arrival() {
    let table = table();
    assert_eq!(now(&table, T1, A, Exclusive), Ok(Granted::New));
    let waiting: Vec<_> = (10..15)
        .map(|owner| {
            (
                TxnId(owner),
                Waiting::new(&table, TxnId(owner), A, Exclusive),
            )
        })
        .collect();
    let mut holder = T1;
    for (owner, request) in waiting {
        table.unlock(holder, A);
        assert_eq!(table.holders(A), [owner], "granted before anybody woke up");
        assert_eq!(request.outcome(), Ok(Granted::New));
        holder = owner;
    }
    table.unlock(holder, A);
    check_empty(&table);
}

#[test]
fn a_shared_request_does_not_overtake_an_exclusive_one() {
    let table = table();
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::New));
    let exclusive = Waiting::new(&table, T2, A, Exclusive);
    assert!(now(&table, T3, A, Shared).is_err(), "T2 came first");
    let shared = Waiting::new(&table, T3, A, Shared);
    table.unlock(T1, A);
    assert_eq!(table.holders(A), [T2]);
    assert_eq!(exclusive.outcome(), Ok(Granted::New));
    table.unlock(T2, A);
    assert_eq!(shared.outcome(), Ok(Granted::New));
}

#[test]
fn shared_requests_side_by_side_are_granted_together() {
    let table = table();
    assert_eq!(now(&table, T1, A, Exclusive), Ok(Granted::New));
    let shared = [T2, T3].map(|owner| Waiting::new(&table, owner, A, Shared));
    let exclusive = Waiting::new(&table, TxnId(4), A, Exclusive);
    table.unlock(T1, A);
    assert_eq!(table.holders(A), [T2, T3]);
    for request in shared {
        assert_eq!(request.outcome(), Ok(Granted::New));
    }
    table.unlock(T2, A);
    assert_eq!(table.waiters(A), 1);
    table.unlock(T3, A);
    assert_eq!(exclusive.outcome(), Ok(Granted::New));
}

#[test]
fn an_upgrade_goes_ahead_of_the_queue() {
    let table = table();
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::New));
    assert_eq!(now(&table, T2, A, Shared), Ok(Granted::New));
    let newcomer = Waiting::new(&table, T3, A, Exclusive);
    let upgrade = Waiting::new(&table, T1, A, Exclusive);
    table.unlock(T2, A);
    assert_eq!(upgrade.outcome(), Ok(Granted::Upgraded));
    assert_eq!(table.holders(A), [T1]);
    table.unlock(T1, A);
    assert_eq!(table.waiters(A), 1, "the shared acquisition is still there");
    table.unlock(T1, A);
    assert_eq!(newcomer.outcome(), Ok(Granted::New));
}

#[test]
fn a_sole_holder_upgrades_at_once_although_others_wait() {
    let table = table();
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::New));
    let newcomer = Waiting::new(&table, T2, A, Exclusive);
    assert_eq!(now(&table, T1, A, Exclusive), Ok(Granted::Upgraded));
    table.unlock_all(T1, &[A]);
    assert_eq!(newcomer.outcome(), Ok(Granted::New));
}

#[test]
fn a_timeout_names_the_holders_and_leaves_no_trace() {
    let table = table();
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::New));
    assert_eq!(now(&table, T2, A, Shared), Ok(Granted::New));
    let wait = LockWait::timeout(Duration::from_millis(1));
    let holders = vec![T1, T2];
    let expected = Err(LockFailure::Timeout { holders });
    assert_eq!(table.lock(T3, A, Exclusive, &wait), expected);
    assert_eq!(table.waiters(A), 0);
    let holders = vec![T2];
    let expected = Err(LockFailure::Timeout { holders });
    assert_eq!(table.lock(T1, A, Exclusive, &wait), expected, "an upgrade");
    assert_eq!(
        now(&table, T1, A, Shared),
        Ok(Granted::Again),
        "still shared"
    );
    table.unlock_all(T1, &[A]);
    table.unlock_all(T2, &[A]);
    check_empty(&table);
}

#[test]
fn a_timeout_lets_later_requests_proceed() {
    let table = table();
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::New));
    let timeout = Duration::from_millis(20);
    let exclusive = Waiting::with_timeout(&table, T2, A, Exclusive, timeout);
    let shared = table.lock(T3, A, Shared, &LockWait::timeout(LONG));
    assert_eq!(shared, Ok(Granted::New));
    let holders = vec![T1];
    assert!(matches!(
        exclusive.outcome(),
        Err(LockFailure::Timeout { holders: h }) if h == holders
    ));
}

#[test]
fn a_canceled_wait_ends_and_lets_later_requests_proceed() {
    let table = table();
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::New));
    let exclusive = Waiting::new(&table, T2, A, Exclusive);
    let shared = Waiting::new(&table, T3, A, Shared);
    exclusive.cancel.cancel();
    assert_eq!(exclusive.outcome(), Err(LockFailure::Canceled));
    assert_eq!(shared.outcome(), Ok(Granted::New));
}

#[test]
fn a_canceled_token_ends_every_wait_and_no_grant() {
    let table = table();
    let cancel = LockCancel::new();
    cancel.cancel();
    let wait = LockWait {
        cancel: Some(cancel),
        ..LockWait::timeout(LONG)
    };
    assert_eq!(table.lock(T1, A, Exclusive, &wait), Ok(Granted::New));
    let refused = table.lock(T2, A, Exclusive, &wait);
    assert_eq!(refused, Err(LockFailure::Canceled));
    table.unlock(T1, A);
    check_empty(&table);
}

#[test]
fn one_token_ends_the_waits_of_two_threads() {
    let table = table();
    assert_eq!(now(&table, T1, A, Exclusive), Ok(Granted::New));
    let cancel = LockCancel::new();
    let (queued, is_queued) = mpsc::channel();
    let wait = LockWait {
        timeout: LONG,
        cancel: Some(cancel.clone()),
        on_wait: Some(Arc::new(move |owners: &[TxnId]| {
            queued.send(owners.to_vec()).expect("the test listens");
        })),
    };
    thread::scope(|scope| {
        let waits = [T2, T3].map(|owner| {
            let (table, wait) = (&table, &wait);
            scope.spawn(move || table.lock(owner, A, Exclusive, wait))
        });
        let mut heard: Vec<Vec<TxnId>> = is_queued.iter().take(2).collect();
        heard.sort();
        assert_eq!(heard[0], [T1]);
        // The later request waits for the earlier one too.
        assert!(heard[1] == [T1, T2] || heard[1] == [T1, T3], "{heard:?}");
        cancel.cancel();
        for wait in waits {
            let outcome = wait.join().expect("no request panics");
            assert_eq!(outcome, Err(LockFailure::Canceled));
        }
    });
}

#[test]
fn two_transactions_that_wait_for_each_other_have_one_victim() {
    let table = table();
    assert_eq!(now(&table, T1, A, Exclusive), Ok(Granted::New));
    assert_eq!(now(&table, T2, B, Exclusive), Ok(Granted::New));
    let first = Waiting::new(&table, T1, B, Exclusive);
    let victim = table.lock(T2, A, Shared, &LockWait::timeout(LONG));
    let cycle = vec![T2, T1];
    assert_eq!(victim, Err(LockFailure::Deadlock { cycle }));
    assert_eq!(table.holders(A), [T1], "the victim is out of the queue");
    table.unlock_all(T2, &[B]);
    assert_eq!(first.outcome(), Ok(Granted::New));
    table.unlock_all(T1, &[A, B]);
    check_empty(&table);
}

#[test]
fn three_transactions_in_a_circle_have_one_victim() {
    let table = table();
    for (owner, hash) in [(T1, A), (T2, B), (T3, C)] {
        assert_eq!(now(&table, owner, hash, Exclusive), Ok(Granted::New));
    }
    let first = Waiting::new(&table, T1, B, Shared);
    let second = Waiting::new(&table, T2, C, Exclusive);
    let victim = table.lock(T3, A, Exclusive, &LockWait::timeout(LONG));
    let cycle = vec![T3, T1, T2];
    assert_eq!(victim, Err(LockFailure::Deadlock { cycle }));
    table.unlock_all(T3, &[C]);
    assert_eq!(second.outcome(), Ok(Granted::New));
    table.unlock_all(T2, &[B, C]);
    assert_eq!(first.outcome(), Ok(Granted::New));
    table.unlock_all(T1, &[A, B]);
    check_empty(&table);
}

#[test]
fn two_upgrades_of_one_lock_have_one_victim() {
    let table = table();
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::New));
    assert_eq!(now(&table, T2, A, Shared), Ok(Granted::New));
    let first = Waiting::new(&table, T1, A, Exclusive);
    let victim = table.lock(T2, A, Exclusive, &LockWait::timeout(LONG));
    let cycle = vec![T2, T1];
    assert_eq!(victim, Err(LockFailure::Deadlock { cycle }));
    table.unlock_all(T2, &[A]);
    assert_eq!(first.outcome(), Ok(Granted::Upgraded));
}

#[test]
fn a_cycle_through_a_queue_is_found() {
    // T1 shares A; T2 waits for A exclusively; T3 is queued after T2 and holds the lock that T1
    // requests.
    let table = table();
    assert_eq!(now(&table, T1, A, Shared), Ok(Granted::New));
    assert_eq!(now(&table, T3, B, Exclusive), Ok(Granted::New));
    let second = Waiting::new(&table, T2, A, Exclusive);
    let third = Waiting::new(&table, T3, A, Shared);
    let victim = table.lock(T1, B, Exclusive, &LockWait::timeout(LONG));
    let cycle = vec![T1, T3];
    assert_eq!(victim, Err(LockFailure::Deadlock { cycle }));
    table.unlock_all(T1, &[A]);
    assert_eq!(second.outcome(), Ok(Granted::New));
    table.unlock_all(T2, &[A]);
    assert_eq!(third.outcome(), Ok(Granted::New));
}

#[test]
fn a_long_chain_without_a_cycle_is_no_deadlock() {
    let table = table();
    for n in 0..20 {
        let granted = now(&table, TxnId(n), LockHash(n << 32), Exclusive);
        assert_eq!(granted, Ok(Granted::New));
    }
    let chain: Vec<_> = (1..20)
        .rev()
        .map(|n| Waiting::new(&table, TxnId(n), LockHash((n - 1) << 32), Exclusive))
        .collect();
    for (request, n) in chain.into_iter().rev().zip(1..) {
        table.unlock_all(
            TxnId(n - 1),
            &[LockHash((n - 1) << 32), LockHash(n.saturating_sub(2) << 32)],
        );
        assert_eq!(request.outcome(), Ok(Granted::New));
    }
    table.unlock_all(TxnId(19), &[LockHash(19 << 32), LockHash(18 << 32)]);
    check_empty(&table);
}

#[test]
fn hashes_differ_by_keyspace_key_and_seed() {
    let hashes = |seed| {
        let table = LockTable::new(seed);
        [(1, "a"), (1, "b"), (2, "a"), (2, "")]
            .map(|(keyspace, key)| table.hash(KeyspaceId(keyspace), key.as_bytes()))
    };
    let mut all = [hashes(1), hashes(2)].concat();
    assert_eq!(hashes(1), hashes(1));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 8);
}

/// Small random number generator; the seed alone reproduces the requests of a thread.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        checksum(&self.0.to_le_bytes(), 0) % bound
    }
}

const ROWS: usize = 6;

/// Row protected by a lock: a counter changed in two steps, and the owners inside.
#[derive(Default)]
struct Row {
    value: AtomicU64,
    exclusive: AtomicUsize,
    shared: AtomicUsize,
}

/// Locks one row, uses it as the mode allows, and returns the outcome of the request.
fn use_row(table: &LockTable, owner: TxnId, row: usize, rows: &[Row], mode: LockMode) -> Outcome {
    let wait = LockWait::timeout(LONG);
    let outcome = table.lock(owner, LockHash((row as u64) << 32), mode, &wait);
    let row = &rows[row];
    if outcome.is_ok() && mode == Exclusive {
        assert_eq!(row.exclusive.fetch_add(1, Ordering::SeqCst), 0);
        assert_eq!(row.shared.load(Ordering::SeqCst), 0);
        // Two steps, so that broken exclusion loses one of the increments.
        let value = row.value.load(Ordering::Relaxed);
        thread::yield_now();
        row.value.store(value + 1, Ordering::Relaxed);
        row.exclusive.fetch_sub(1, Ordering::SeqCst);
    } else if outcome.is_ok() {
        row.shared.fetch_add(1, Ordering::SeqCst);
        assert_eq!(row.exclusive.load(Ordering::SeqCst), 0);
        row.shared.fetch_sub(1, Ordering::SeqCst);
    }
    outcome
}

/// Runs one client: transactions of a few rows, some rolled back to a savepoint. Returns increments
/// and deadlocks.
fn client(table: &LockTable, rows: &[Row], client: u64, seed: u64) -> (Vec<u64>, u64) {
    let mut random = Random(seed << 8 | client);
    let (mut increments, mut deadlocks) = (vec![0; ROWS], 0);
    for n in 0..400 {
        let owner = TxnId(client << 32 | n);
        let mut held = Vec::new();
        for _ in 0..1 + random.below(4) {
            let row = random.below(ROWS as u64) as usize;
            let mode = if random.below(3) == 0 {
                Exclusive
            } else {
                Shared
            };
            match use_row(table, owner, row, rows, mode) {
                Ok(_) => {
                    held.push(LockHash((row as u64) << 32));
                    increments[row] += u64::from(mode == Exclusive);
                }
                Err(LockFailure::Deadlock { cycle }) => {
                    assert_eq!(cycle.first(), Some(&owner));
                    deadlocks += 1;
                    break;
                }
                Err(other) => panic!("seed {seed}: {other:?}"),
            }
            if random.below(8) == 0 {
                table.unlock(owner, held.pop().expect("one was just granted"));
            }
        }
        table.unlock_all(owner, &held);
    }
    (increments, deadlocks)
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "a failure shows the seed that repeats it"
)]
fn random_clients_never_share_an_exclusive_lock_and_leave_no_locks() {
    let mut deadlocks = 0;
    for seed in 0..6 {
        println!("seed {seed}");
        // In one shard, rows share the place and the map of `Locks`.
        let table = LockTable::with_shards(seed, if seed % 2 == 0 { SHARDS } else { 1 });
        let rows: Vec<Row> = (0..ROWS).map(|_| Row::default()).collect();
        let start = Barrier::new(6);
        let results: Vec<_> = thread::scope(|scope| {
            let clients: Vec<_> = (0..6)
                .map(|n| {
                    let (table, rows, start) = (&table, &rows, &start);
                    scope.spawn(move || {
                        start.wait();
                        client(table, rows, n, seed)
                    })
                })
                .collect();
            let joined = clients.into_iter().map(|client| client.join());
            joined.collect::<Result<_, _>>().expect("no client panics")
        });
        for (row, state) in rows.iter().enumerate() {
            let expected: u64 = results.iter().map(|(increments, _)| increments[row]).sum();
            assert_eq!(state.value.load(Ordering::SeqCst), expected);
        }
        deadlocks += results.iter().map(|(_, deadlocks)| deadlocks).sum::<u64>();
        check_empty(&table);
    }
    assert!(deadlocks > 0, "the clients never met");
}

#[test]
fn closing_the_table_ends_every_wait_and_refuses_those_to_come() {
    for shards in [1, SHARDS] {
        close_with_waits(&Arc::new(LockTable::with_shards(0, shards)));
    }
}

fn close_with_waits(table: &Arc<LockTable>) {
    for hash in [A, B] {
        assert_eq!(now(table, T1, hash, Exclusive), Ok(Granted::New));
    }
    let waits = [
        Waiting::new(table, T2, A, Shared),
        Waiting::new(table, T2, B, Exclusive),
        Waiting::new(table, T3, A, Exclusive),
    ];
    table.close();
    for wait in waits {
        assert_eq!(wait.outcome(), Err(LockFailure::Closed));
    }
    let late = table.lock(T2, A, Shared, &LockWait::timeout(LONG));
    assert_eq!(late, Err(LockFailure::Closed));
    assert_eq!(now(table, T2, C, Shared), Ok(Granted::New));
    table.unlock_all(T1, &[A, B]);
    table.unlock_all(T2, &[C]);
    check_empty(table);
}
