//! Controls of a transaction for each of its statements: read points, locks on the newest version,
//! limits of lock waits; and the waits that a listener hears and a list shows.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use alluvium::{
    CursorOptions, Database, Error, Isolation, Keyspace, LockCancel, LockMode, LockWaitInfo,
    LockWaitListener, Options, Result, Snapshot, Transaction, TransactionOptions, Value,
};

use crate::fixture::{all, assert_error, database, open, rows, text, tiny};
use crate::hooks::wait_until;

fn begin(db: &Database, isolation: Isolation) -> Transaction {
    begin_with(db, isolation, |_| {})
}

fn begin_with(
    db: &Database,
    isolation: Isolation,
    change: impl FnOnce(&mut TransactionOptions),
) -> Transaction {
    let mut options = TransactionOptions {
        isolation,
        lock_timeout: Some(Duration::ZERO),
        ..TransactionOptions::default()
    };
    change(&mut options);
    db.begin_with(options).expect("begin")
}

fn late(db: &Database, isolation: Isolation) -> Transaction {
    begin_with(db, isolation, |options| options.late_read_point = true)
}

fn snapshot(db: &Database) -> Snapshot {
    db.snapshot().expect("snapshot")
}

fn read(value: Result<Option<Value>>) -> Option<String> {
    let value = value.expect("read");
    value.map(|v| String::from_utf8_lossy(&v).into_owned())
}

fn get(txn: &Transaction, k: &Keyspace, key: &str) -> Option<String> {
    read(txn.get(k, key.as_bytes()))
}

fn newest(txn: &Transaction, k: &Keyspace, key: &str) -> Option<String> {
    read(txn.get_newest_locked(k, key.as_bytes(), LockMode::Exclusive))
}

fn put(k: &Keyspace, key: &str, value: &str) {
    k.put(key.as_bytes(), value.as_bytes()).expect("put");
}

/// Returns the number of rows of a cursor of the transaction.
fn count(txn: &Transaction, k: &Keyspace) -> usize {
    rows(txn.cursor(k, CursorOptions::default()).expect("cursor")).len()
}

/// Returns true if no other transaction can lock the row now.
fn is_locked(db: &Database, k: &Keyspace, key: &str) -> bool {
    let other = begin(db, Isolation::ReadCommitted);
    other.lock(k, key.as_bytes(), LockMode::Exclusive).is_err()
}

#[test]
fn all_plain_reads_of_a_statement_see_its_read_point_and_own_writes() {
    let (_, db, k) = database(tiny());
    put(&k, "a", "1");
    let txn = begin(&db, Isolation::ReadCommitted);
    txn.set_read_point(Some(&snapshot(&db))).expect("set");
    put(&k, "a", "2");
    put(&k, "b", "2");
    txn.put(&k, b"own", b"1").expect("put");
    let seen = txn.multi_get(&k, &[b"a".as_slice(), b"b", b"own"]);
    let seen: Vec<bool> = seen.expect("read").iter().map(Option::is_some).collect();
    assert_eq!(seen, [true, false, true]);
    assert_eq!(get(&txn, &k, "a").as_deref(), Some("1"));
    assert_eq!(count(&txn, &k), 2);
    // Reads that lock see the newest version, and a write is no conflict.
    assert_eq!(
        read(txn.get_for_update(&k, b"a")).as_deref(),
        Some("2"),
        "locked"
    );
    txn.put(&k, b"b", b"3").expect("put");
    txn.set_read_point(None).expect("set");
    assert_eq!(get(&txn, &k, "a").as_deref(), Some("2"));
    assert_eq!(count(&txn, &k), 3);
    txn.commit().expect("commit");
}

#[test]
fn a_read_point_keeps_what_it_sees_after_its_snapshot_is_dropped() {
    let (_, db, k) = database(tiny());
    put(&k, "a", "first");
    let txn = begin(&db, Isolation::ReadCommitted);
    txn.set_read_point(Some(&snapshot(&db))).expect("set");
    for round in 0..20 {
        put(&k, "a", &format!("{round:0200}"));
    }
    db.flush().expect("flush");
    k.compact_range(&[], None).expect("compact");
    assert_eq!(get(&txn, &k, "a").as_deref(), Some("first"));
}

#[test]
fn a_read_point_is_refused_where_it_would_promise_too_much() {
    let (vfs, db, _) = database(tiny());
    for level in [Isolation::Snapshot, Isolation::Serializable] {
        let txn = begin(&db, level);
        assert_error!(txn.set_read_point(None), Error::InvalidArgument(_));
    }
    let (_, other, _) = database(tiny());
    let of_other = snapshot(&other);
    let txn = begin(&db, Isolation::ReadCommitted);
    assert_error!(
        txn.set_read_point(Some(&of_other)),
        Error::InvalidArgument(_)
    );
    drop(txn);
    let old = snapshot(&db);
    db.close().expect("close");
    let db = open(&vfs, tiny());
    let txn = begin(&db, Isolation::ReadCommitted);
    assert_error!(txn.set_read_point(Some(&old)), Error::InvalidArgument(_));
}

#[test]
fn a_late_read_point_is_taken_by_the_first_read() {
    let (_, db, k) = database(tiny());
    for level in [Isolation::Snapshot, Isolation::Serializable] {
        put(&k, "a", "1");
        let [early, txn] = [begin(&db, level), late(&db, level)];
        put(&k, "a", "2");
        assert_eq!(get(&early, &k, "a").as_deref(), Some("1"));
        assert_eq!(get(&txn, &k, "a").as_deref(), Some("2"));
        put(&k, "a", "3");
        assert_eq!(get(&txn, &k, "a").as_deref(), Some("2"));
        assert_error!(txn.put(&k, b"a", b"4"), Error::Conflict { .. });
    }
}

#[test]
fn a_transaction_tells_its_read_point_and_takes_none() {
    let (_, db, k) = database(tiny());
    put(&k, "a", "1");
    let [early, txn] = [
        begin(&db, Isolation::Snapshot),
        late(&db, Isolation::Snapshot),
    ];
    let first = db.visible_seqno();
    put(&k, "a", "2");
    assert_eq!(early.read_point().expect("point"), Some(first));
    assert_eq!(txn.read_point().expect("point"), None);
    assert_eq!(get(&txn, &k, "a").as_deref(), Some("2"));
    assert_eq!(txn.read_point().expect("point"), Some(db.visible_seqno()));
    let statement = begin(&db, Isolation::ReadCommitted);
    assert_eq!(statement.read_point().expect("point"), None);
    statement.set_read_point(Some(&snapshot(&db))).expect("set");
    put(&k, "a", "3");
    let before = Some(db.visible_seqno() - 1);
    assert_eq!(statement.read_point().expect("point"), before);
}

#[test]
fn a_late_read_point_is_taken_after_the_first_lock_is_granted() {
    let (_, db, k) = database(tiny());
    put(&k, "a", "0");
    let holder = begin(&db, Isolation::ReadCommitted);
    holder.put(&k, b"a", b"1").expect("put");
    let txn = begin_with(&db, Isolation::Snapshot, |options| {
        options.late_read_point = true;
        options.lock_timeout = Some(Duration::from_secs(100));
    });
    thread::scope(|scope| {
        let waiter = scope.spawn(|| read(txn.get_for_update(&k, b"a")));
        wait_until(|| !db.lock_waits().expect("waits").is_empty());
        holder.commit().expect("commit");
        assert_eq!(waiter.join().expect("join").as_deref(), Some("1"));
    });
    put(&k, "b", "1");
    assert_eq!(get(&txn, &k, "b"), None, "the point is fixed now");
    txn.put(&k, b"a", b"2").expect("put");
    txn.commit().expect("commit");
    assert_eq!(text(&k, "a").as_deref(), Some("2"));
}

#[test]
fn optimistic_transactions_with_a_late_read_point_check_from_their_first_read() {
    let (_, db, k) = database(tiny());
    put(&k, "a", "1");
    let begin = || {
        begin_with(&db, Isolation::Snapshot, |options| {
            (options.late_read_point, options.optimistic) = (true, true);
        })
    };
    let [fine, refused] = [begin(), begin()];
    refused.put(&k, b"a", b"by refused").expect("put");
    put(&k, "a", "2");
    fine.put(&k, b"a", b"by fine").expect("put");
    fine.commit().expect("commit");
    assert_error!(refused.commit(), Error::Conflict { .. });
    assert_eq!(text(&k, "a").as_deref(), Some("by fine"));
}

#[test]
fn the_newest_version_is_locked_without_a_conflict() {
    let (_, db, k) = database(tiny());
    put(&k, "a", "1");
    let txn = begin(&db, Isolation::Snapshot);
    put(&k, "a", "2");
    assert_error!(txn.get_for_update(&k, b"a"), Error::Conflict { .. });
    assert_eq!(newest(&txn, &k, "a").as_deref(), Some("2"));
    assert!(is_locked(&db, &k, "a"));
    assert_eq!(get(&txn, &k, "a").as_deref(), Some("1"));
    txn.put(&k, b"a", b"3").expect("no conflict");
    assert_eq!(newest(&txn, &k, "a").as_deref(), Some("3"));
    txn.commit().expect("commit");
    assert_eq!(text(&k, "a").as_deref(), Some("3"));

    // The commit of a serializable transaction checks what it has read.
    let txn = begin(&db, Isolation::Serializable);
    put(&k, "a", "4");
    assert_eq!(newest(&txn, &k, "a").as_deref(), Some("4"));
    txn.put(&k, b"other", b"1").expect("put");
    assert_error!(txn.commit(), Error::Conflict { .. });

    let optimistic = begin_with(&db, Isolation::Snapshot, |options| {
        options.optimistic = true;
    });
    let refused = optimistic.get_newest_locked(&k, b"a", LockMode::Shared);
    assert_error!(refused, Error::InvalidArgument(_));
}

#[test]
fn a_late_read_point_is_not_newer_than_what_was_read_with_a_lock() {
    let (_, db, k) = database(tiny());
    put(&k, "a", "1");
    put(&k, "b", "1");
    // Each reads the row that the other writes, and gives its lock back.
    let [one, two] = [0; 2].map(|_| late(&db, Isolation::Serializable));
    newest(&one, &k, "a");
    assert!(one.unlock(&k, b"a").expect("unlock"));
    assert!(two.insert_new(&k, b"b", b"2").expect("insert").is_some());
    assert!(two.unlock(&k, b"b").expect("unlock"));
    one.put(&k, b"b", b"2").expect("put");
    one.commit().expect("commit");
    two.put(&k, b"a", b"2").expect("put");
    assert_error!(two.commit(), Error::Conflict { .. });

    let txn = late(&db, Isolation::Snapshot);
    newest(&txn, &k, "a");
    assert!(txn.unlock(&k, b"a").expect("unlock"));
    put(&k, "a", "3");
    assert_error!(txn.put(&k, b"a", b"4"), Error::Conflict { .. });
}

#[test]
fn a_row_whose_newest_version_was_locked_is_read_and_written_as_it_is() {
    let (_, db, k) = database(tiny());
    for mode in [LockMode::Shared, LockMode::Exclusive] {
        put(&k, "a", "1");
        let txn = begin(&db, Isolation::Snapshot);
        put(&k, "a", "2");
        let found = txn.get_newest_locked(&k, b"a", mode);
        assert_eq!(read(found).as_deref(), Some("2"));
        let found = txn.get_for_update(&k, b"a");
        assert_eq!(read(found).as_deref(), Some("2"), "not of the read point");
        txn.put(&k, b"a", b"3").expect("no conflict");
        txn.commit().expect("commit");
        assert_eq!(text(&k, "a").as_deref(), Some("3"));
    }
}

#[test]
fn insert_new_writes_or_returns_the_row_that_exists() {
    let (_, db, k) = database(tiny());
    let insert = |txn: &Transaction, key: &str| read(txn.insert_new(&k, key.as_bytes(), b"new"));
    for level in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let txn = begin(&db, level);
        assert_eq!(insert(&txn, "a"), None);
        assert_eq!(insert(&txn, "a").as_deref(), Some("new"), "own row");
        txn.delete(&k, b"a").expect("delete");
        assert_eq!(insert(&txn, "a"), None);
        // A row that another transaction inserted after the read point exists.
        put(&k, "late", "theirs");
        assert_eq!(insert(&txn, "late").as_deref(), Some("theirs"));
        assert!(is_locked(&db, &k, "late") && is_locked(&db, &k, "a"));
        txn.commit().expect("commit");
        assert_eq!(all(&k).len(), 2);
        k.delete_prefix(b"").expect("delete");
    }
}

#[test]
fn insert_new_conflicts_with_a_row_that_came_and_went() {
    let (_, db, k) = database(tiny());
    let txn = begin(&db, Isolation::Snapshot);
    put(&k, "a", "1");
    k.delete(b"a").expect("delete");
    for _ in 0..2 {
        assert_error!(txn.insert_new(&k, b"a", b"2"), Error::Conflict { .. });
        assert!(!is_locked(&db, &k, "a"));
    }
    let txn = late(&db, Isolation::Snapshot);
    put(&k, "a", "1");
    k.delete(b"a").expect("delete");
    assert_eq!(read(txn.insert_new(&k, b"a", b"2")), None);
    txn.commit().expect("commit");

    // A row that an own range delete hides was not locked by it.
    let txn = begin(&db, Isolation::Snapshot);
    txn.delete_range(&k, b"x", b"z").expect("delete");
    put(&k, "y", "theirs");
    assert_error!(txn.insert_new(&k, b"y", b"2"), Error::Conflict { .. });
    drop(txn);

    let optimistic = begin_with(&db, Isolation::Snapshot, |options| {
        options.optimistic = true;
    });
    assert_eq!(read(optimistic.insert_new(&k, b"b", b"1")), None);
    put(&k, "b", "theirs");
    assert_error!(optimistic.commit(), Error::Conflict { .. });
}

#[test]
fn unlock_releases_the_newest_lock_of_a_row_that_was_only_read() {
    let (_, db, k) = database(tiny());
    let txn = begin(&db, Isolation::ReadCommitted);
    let unlock = |key: &str| txn.unlock(&k, key.as_bytes()).expect("unlock");
    newest(&txn, &k, "a");
    newest(&txn, &k, "a");
    assert!(unlock("a") && is_locked(&db, &k, "a"));
    assert!(unlock("a") && !is_locked(&db, &k, "a"));
    assert!(!unlock("a"), "not locked");

    newest(&txn, &k, "written");
    txn.put(&k, b"written", b"1").expect("put");
    assert!(!unlock("written") && is_locked(&db, &k, "written"));

    newest(&txn, &k, "before");
    let savepoint = txn.savepoint();
    newest(&txn, &k, "after");
    assert!(!unlock("before") && unlock("after"));
    assert!(is_locked(&db, &k, "before"));
    newest(&txn, &k, "before");
    assert!(unlock("before") && is_locked(&db, &k, "before"));
    newest(&txn, &k, "later");
    txn.rollback_to(savepoint).expect("rollback");
    assert!(is_locked(&db, &k, "before") && !is_locked(&db, &k, "later"));
    drop(txn);
    assert_eq!(db.stats().expect("stats").row_locks, 0);
}

#[test]
fn limits_of_waits_change_between_statements() {
    let (_, db, k) = database(tiny());
    let holder = begin(&db, Isolation::ReadCommitted);
    newest(&holder, &k, "a");
    let txn = begin_with(&db, Isolation::ReadCommitted, |options| {
        options.lock_timeout = Some(Duration::from_secs(1000));
    });
    for _ in 0..2 {
        let cancel = LockCancel::new();
        txn.set_cancel(Some(cancel.clone())).expect("set");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| txn.lock(&k, b"a", LockMode::Shared));
            wait_until(|| !db.lock_waits().expect("waits").is_empty());
            cancel.cancel();
            assert_error!(waiter.join().expect("join"), Error::Canceled { .. });
        });
    }
    txn.set_cancel(None).expect("set");
    txn.set_lock_timeout(Some(Duration::ZERO)).expect("set");
    assert_error!(
        txn.lock(&k, b"a", LockMode::Shared),
        Error::LockTimeout { .. }
    );
    drop(holder);
    txn.lock(&k, b"a", LockMode::Shared).expect("lock");
}

/// Listener that keeps what it hears, and then panics.
#[derive(Default)]
struct Heard(Mutex<Vec<LockWaitInfo>>);

impl LockWaitListener for Heard {
    fn on_lock_wait(&self, wait: &LockWaitInfo) {
        self.0.lock().expect("a lock").push(wait.clone());
        panic!("a panic of a listener ends no wait");
    }
}

impl Heard {
    /// Returns the tags of the waiter and of those that it waits for, for the wait `nth`.
    fn tags(&self, nth: usize) -> (Option<u64>, Vec<Option<u64>>) {
        tags(&self.0.lock().expect("a lock")[nth])
    }

    fn count(&self) -> usize {
        self.0.lock().expect("a lock").len()
    }
}

fn tags(wait: &LockWaitInfo) -> (Option<u64>, Vec<Option<u64>>) {
    let owners = wait.owners.iter().map(|owner| owner.tag);
    (wait.waiter.tag, owners.collect())
}

#[test]
fn the_listener_and_the_list_say_who_waits_for_whom() {
    let heard = Arc::new(Heard::default());
    let (_, db, k) = database(Options {
        lock_wait_listener: Some(heard.clone()),
        ..tiny()
    });
    let tagged = |tag: u64| {
        begin_with(&db, Isolation::ReadCommitted, |options| {
            options.tag = Some(tag);
            options.lock_timeout = Some(Duration::from_secs(1000));
        })
    };
    let holder = tagged(1);
    holder.put(&k, b"row", b"1").expect("put");
    let holder = holder.prepare(b"xid").expect("prepare");
    let [second, third] = &[tagged(2), tagged(3)];
    let [savepoint, third_savepoint] = [second.savepoint(), third.savepoint()];
    thread::scope(|scope| {
        let first = scope.spawn(|| second.lock(&k, b"row", LockMode::Exclusive));
        wait_until(|| heard.count() > 0);
        let last = scope.spawn(|| third.lock(&k, b"row", LockMode::Exclusive));
        wait_until(|| heard.count() > 1);
        assert_eq!(heard.tags(0), (Some(2), vec![Some(1)]));
        assert_eq!(heard.tags(1), (Some(3), vec![Some(1), Some(2)]));
        // A batch waits as well, without a tag.
        let batch = scope.spawn(|| k.put(b"row", b"2"));
        wait_until(|| heard.count() > 2);
        assert_eq!(heard.tags(2), (None, vec![Some(1), Some(2), Some(3)]));

        let waits = db.lock_waits().expect("waits");
        assert_eq!(waits.len(), 3);
        assert_eq!(tags(&waits[1]), heard.tags(1));
        assert_eq!((&*waits[0].keyspace, &*waits[0].key), ("k", &b"row"[..]));
        holder.commit().expect("commit");
        first.join().expect("join").expect("lock");
        // The next in the queue has the lock after its owner's rollback to a savepoint.
        second.rollback_to(savepoint).expect("rollback");
        last.join().expect("join").expect("lock");
        third.rollback_to(third_savepoint).expect("rollback");
        batch.join().expect("join").expect("put");
    });
    assert!(db.lock_waits().expect("waits").is_empty());
    assert_eq!(heard.count(), 3, "a lock without a wait is not heard");
}
