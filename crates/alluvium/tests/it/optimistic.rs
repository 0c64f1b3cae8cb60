//! Optimistic transactions: no locks before the commit, which detects the changes of what was
//! written, locked or read for update.

use std::time::Duration;

use alluvium::{Database, Error, Isolation, LockMode, Transaction, TransactionOptions};

use crate::fixture::{assert_error, database, text, tiny};

/// Begins an optimistic transaction that waits for no lock.
pub fn optimistic(db: &Database, isolation: Isolation) -> Transaction {
    let options = TransactionOptions {
        isolation,
        optimistic: true,
        lock_timeout: Some(Duration::ZERO),
        ..TransactionOptions::default()
    };
    db.begin_with(options).expect("begin")
}

#[test]
fn the_first_optimistic_committer_wins() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let (_vfs, db, k) = database(tiny());
        let [one, two, blind] = [0; 3].map(|_| optimistic(&db, isolation));
        for txn in [&one, &two] {
            assert!(txn.get_for_update(&k, b"a").expect("no lock").is_none());
            txn.put(&k, b"a", b"own").expect("no lock");
        }
        blind.put(&k, b"a", b"blind").expect("no lock");
        two.commit().expect("the first to commit");
        assert_error!(one.commit(), Error::Conflict { .. });
        assert_error!(blind.commit(), Error::Conflict { .. });
        assert_eq!(text(&k, "a").as_deref(), Some("own"));
    }
}

#[test]
fn an_optimistic_transaction_checks_what_it_locked_or_read_for_update_and_no_plain_read() {
    let (_vfs, db, k) = database(tiny());
    let read = optimistic(&db, Isolation::Snapshot);
    assert!(read.get(&k, b"a").expect("get").is_none());
    read.put(&k, b"x", b"1").expect("put");
    let for_update = optimistic(&db, Isolation::Snapshot);
    assert!(for_update.get_for_update(&k, b"a").expect("get").is_none());
    for_update.put(&k, b"y", b"1").expect("put");
    let locked = optimistic(&db, Isolation::Snapshot);
    locked.lock(&k, b"a", LockMode::Shared).expect("lock");
    locked.put(&k, b"z", b"1").expect("put");
    k.put(b"a", b"1").expect("put");
    read.commit().expect("a plain read is not checked");
    assert_error!(for_update.commit(), Error::Conflict { .. });
    assert_error!(locked.commit(), Error::Conflict { .. });
}

#[test]
fn an_optimistic_transaction_without_writes_checks_what_it_locked_or_read_for_update() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        for flushed in [false, true] {
            let (_vfs, db, k) = database(tiny());
            k.put(b"a", b"1").expect("put");
            let [for_update, locked, absent, undone, plain, other] =
                [0; 6].map(|_| optimistic(&db, isolation));
            let seen = for_update.get_for_update(&k, b"a").expect("get");
            assert_eq!(seen.as_deref(), Some(&b"1"[..]));
            locked.lock(&k, b"a", LockMode::Shared).expect("lock");
            assert!(absent.get_for_update(&k, b"b").expect("get").is_none());
            // A write that was rolled back is not checked, but a read for update is.
            let savepoint = undone.savepoint();
            undone.put(&k, b"a", b"3").expect("put");
            undone.rollback_to(savepoint).expect("rollback");
            undone.get_for_update(&k, b"c").expect("get");
            plain.get(&k, b"a").expect("get");
            other.get_for_update(&k, b"c").expect("get");
            let unchanged = optimistic(&db, isolation);
            unchanged.get_for_update(&k, b"a").expect("get");
            unchanged.commit().expect("nothing has changed");
            k.put(b"a", b"2").expect("put");
            k.delete_range(b"b", b"c").expect("delete");
            if flushed {
                db.settle().expect("settle");
            }
            assert_error!(for_update.commit(), Error::Conflict { .. });
            assert_error!(locked.commit(), Error::Conflict { .. });
            plain.commit().expect("a plain read is not checked");
            undone.commit().expect("its row is unchanged");
            other.commit().expect("its row is unchanged");
            drop(absent);
        }
    }
}

#[test]
fn an_optimistic_commit_respects_row_locks_and_holds_none_before() {
    let (_vfs, db, k) = database(tiny());
    let waiting = optimistic(&db, Isolation::Snapshot);
    waiting.put(&k, b"a", b"optimistic").expect("put");
    let holder = db.begin(Isolation::ReadCommitted).expect("begin");
    assert!(holder.get_for_update(&k, b"a").expect("free").is_none());
    assert_error!(waiting.commit(), Error::LockTimeout { .. });
    holder.put(&k, b"a", b"locked").expect("put");
    holder.commit().expect("commit");
    assert_eq!(text(&k, "a").as_deref(), Some("locked"));
    let free = optimistic(&db, Isolation::Snapshot);
    free.put(&k, b"a", b"optimistic").expect("put");
    free.commit().expect("commit");
    assert_eq!(text(&k, "a").as_deref(), Some("optimistic"));
    let again = db.begin(Isolation::ReadCommitted).expect("begin");
    assert!(
        again
            .get_for_update(&k, b"a")
            .expect("given back")
            .is_some()
    );
}

#[test]
fn an_optimistic_transaction_needs_a_fixed_read_point() {
    let (_vfs, db, _k) = database(tiny());
    let options = TransactionOptions {
        isolation: Isolation::ReadCommitted,
        optimistic: true,
        ..TransactionOptions::default()
    };
    assert_error!(db.begin_with(options), Error::InvalidArgument(_));
}
