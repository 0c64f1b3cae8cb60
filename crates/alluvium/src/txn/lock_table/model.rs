//! Loom models of the lock table: hand-over, and a cancellation that races with a grant.
//!
//! Loom has no timeouts; a timed-out request leaves the queue by the same code as a canceled one.
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p alluvium --lib --release model`.

use std::time::Duration;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::*;
use LockMode::{Exclusive, Shared};

const A: LockHash = LockHash(1);
const B: LockHash = LockHash(2);

fn forever() -> LockWait {
    LockWait::timeout(Duration::MAX)
}

fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn check_empty(table: &LockTable) {
    assert_eq!(table.locks_held(), 0);
    assert_eq!(table.detector.len(), 0);
}

#[test]
fn model_a_lock_is_handed_over_and_no_wake_up_is_lost() {
    bounded(3, || {
        let table = Arc::new(LockTable::with_shards(0, 1));
        let inside = Arc::new(AtomicUsize::new(0));
        let take = |owner: u64| {
            let (table, inside) = (Arc::clone(&table), Arc::clone(&inside));
            move || {
                let granted = table.lock(TxnId(owner), A, Exclusive, &forever());
                assert_eq!(granted, Ok(Granted::New));
                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                inside.fetch_sub(1, Ordering::Relaxed);
                table.unlock(TxnId(owner), A);
            }
        };
        let other = thread::spawn(take(1));
        take(2)();
        other.join().expect("the other has the lock in its turn");
        check_empty(&table);
    });
}

#[test]
fn model_a_wait_given_up_at_the_moment_of_its_grant_is_one_or_the_other() {
    bounded(3, || {
        let table = Arc::new(LockTable::with_shards(0, 1));
        let cancel = LockCancel::new();
        let granted = table.lock(TxnId(1), A, Exclusive, &forever());
        assert_eq!(granted, Ok(Granted::New));
        let waiter = {
            let table = Arc::clone(&table);
            let wait = LockWait {
                cancel: Some(cancel.clone()),
                ..forever()
            };
            thread::spawn(move || match table.lock(TxnId(2), A, Shared, &wait) {
                Ok(Granted::New) => table.unlock(TxnId(2), A),
                Err(LockFailure::Canceled) => {}
                other => panic!("unexpected {other:?}"),
            })
        };
        let canceller = thread::spawn(move || cancel.cancel());
        table.unlock(TxnId(1), A);
        waiter.join().expect("the wait ends");
        canceller.join().expect("cancelling never waits");
        check_empty(&table);
    });
}

#[test]
fn model_two_waits_that_close_a_cycle_have_one_victim() {
    bounded(2, || {
        let table = Arc::new(LockTable::with_shards(0, 2));
        let cross = |owner: u64, first: LockHash, second: LockHash| {
            let table = Arc::clone(&table);
            move || {
                let owner = TxnId(owner);
                table.lock(owner, first, Exclusive, &forever())?;
                let outcome = table.lock(owner, second, Exclusive, &forever());
                table.unlock_all(owner, &[first, second]);
                outcome
            }
        };
        let other = thread::spawn(cross(1, A, B));
        let outcomes = [cross(2, B, A)(), other.join().expect("both waits end")];
        let victims = outcomes.iter().filter(|o| o.is_err()).count();
        assert!(victims <= 1, "{outcomes:?}");
        check_empty(&table);
    });
}

#[test]
fn model_two_upgrades_of_one_lock_have_one_victim() {
    bounded(2, || {
        let table = Arc::new(LockTable::with_shards(0, 1));
        for owner in [1, 2].map(TxnId) {
            let granted = table.lock(owner, A, Shared, &forever());
            assert_eq!(granted, Ok(Granted::New));
        }
        let upgrade = |owner: u64| {
            let table = Arc::clone(&table);
            move || {
                let outcome = table.lock(TxnId(owner), A, Exclusive, &forever());
                table.unlock_all(TxnId(owner), &[A]);
                outcome
            }
        };
        let other = thread::spawn(upgrade(1));
        let outcomes = [upgrade(2)(), other.join().expect("both waits end")];
        let upgraded = outcomes.iter().filter(|o| **o == Ok(Granted::Upgraded));
        assert!(upgraded.count() >= 1, "{outcomes:?}");
        check_empty(&table);
    });
}

#[test]
fn model_a_wait_ends_when_the_table_closes_at_any_moment() {
    bounded(3, || {
        let table = Arc::new(LockTable::with_shards(0, 1));
        let granted = table.lock(TxnId(1), A, Exclusive, &forever());
        assert_eq!(granted, Ok(Granted::New));
        let waiter = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let waited = table.lock(TxnId(2), A, Shared, &forever());
                assert_eq!(waited, Err(LockFailure::Closed));
            })
        };
        table.close();
        waiter.join().expect("the wait ends");
        table.unlock(TxnId(1), A);
        check_empty(&table);
    });
}
