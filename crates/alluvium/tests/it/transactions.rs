//! Transactions: their reads, their locks, and the loser of each conflict.

use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use alluvium::{
    CursorOptions, Database, Error, Isolation, Keyspace, KeyspaceOptions, LockCancel, LockMode,
    Options, Transaction, TransactionOptions, WriteBatch, WriteOptions,
};

use crate::fixture::{all, assert_error, database, rows, text, tiny};

const BOTH: [Isolation; 2] = [Isolation::ReadCommitted, Isolation::Snapshot];

fn seen(txn: &Transaction, keyspace: &Keyspace, key: &str) -> Option<String> {
    let value = txn.get(keyspace, key.as_bytes()).expect("get");
    value.map(|v| String::from_utf8_lossy(&v).into_owned())
}

/// Begins a transaction that does not wait for locks.
fn impatient(db: &Database, isolation: Isolation) -> Transaction {
    let options = TransactionOptions {
        isolation,
        lock_timeout: Some(Duration::ZERO),
        ..TransactionOptions::default()
    };
    db.begin_with(options).expect("begin")
}

#[test]
fn own_writes_are_visible_inside_only_until_commit() {
    for isolation in BOTH {
        let (_vfs, db, k) = database(tiny());
        k.put(b"old", b"1").expect("put");
        let txn = db.begin(isolation).expect("begin");
        txn.put(&k, b"new", b"2").expect("put");
        txn.delete(&k, b"old").expect("delete");
        assert_eq!(
            (seen(&txn, &k, "new").as_deref(), seen(&txn, &k, "old")),
            (Some("2"), None)
        );
        assert_eq!(
            (text(&k, "new"), text(&k, "old").as_deref()),
            (None, Some("1"))
        );
        txn.commit().expect("commit");
        assert_eq!(
            (text(&k, "new").as_deref(), text(&k, "old")),
            (Some("2"), None)
        );
    }
}

#[test]
fn dropping_a_transaction_takes_its_writes_back_and_frees_its_rows() {
    let (_vfs, db, k) = database(tiny());
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    txn.put(&k, b"a", b"1").expect("put");
    drop(txn);
    assert_eq!(text(&k, "a"), None);
    let other = impatient(&db, Isolation::Snapshot);
    other.put(&k, b"a", b"2").expect("the row is free");
    other.rollback();
    assert!(all(&k).is_empty());
}

#[test]
fn a_commit_shows_up_in_all_its_keyspaces_at_once() {
    let (_vfs, db, a) = database(tiny());
    let b = db
        .keyspace("b", KeyspaceOptions::default())
        .expect("keyspace");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reader = {
        let (db, a, b, stop) = (db.clone(), a.clone(), b.clone(), Arc::clone(&stop));
        thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Acquire) {
                let snapshot = db.snapshot().expect("snapshot");
                let in_a = snapshot.get(&a, b"n").expect("get");
                let in_b = snapshot.get(&b, b"n").expect("get");
                assert_eq!(in_a.as_deref(), in_b.as_deref());
            }
        })
    };
    for n in 0..500_u32 {
        let txn = db.begin(Isolation::ReadCommitted).expect("begin");
        txn.put(&a, b"n", &n.to_le_bytes()).expect("put");
        txn.put(&b, b"n", &n.to_le_bytes()).expect("put");
        txn.commit().expect("commit");
    }
    stop.store(true, std::sync::atomic::Ordering::Release);
    reader.join().expect("a snapshot saw half a commit");
}

#[test]
fn read_committed_sees_each_new_commit_and_a_snapshot_none() {
    let (_vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    let committed = db.begin(Isolation::ReadCommitted).expect("begin");
    let snapshot = db.begin(Isolation::Snapshot).expect("begin");
    for value in ["2", "3"] {
        k.put(b"a", value.as_bytes()).expect("put");
        db.flush().expect("flush");
        assert_eq!(seen(&committed, &k, "a").as_deref(), Some(value));
        assert_eq!(seen(&snapshot, &k, "a").as_deref(), Some("1"));
    }
}

/// Lets `holder` write the row and commit while another transaction, begun before, asks for it.
/// Returns the other's result.
fn contended_read(isolation: Isolation) -> Result<Option<Vec<u8>>, Error> {
    let (_vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    let holder = db.begin(Isolation::ReadCommitted).expect("begin");
    holder.put(&k, b"a", b"2").expect("put");
    let waiter = db.begin(isolation).expect("begin");
    // A read before the wait must not fix the read point of the locking read.
    assert_eq!(seen(&waiter, &k, "a").as_deref(), Some("1"));
    let (asking, asked) = mpsc::channel();
    let thread = {
        let k = k.clone();
        thread::spawn(move || {
            asking.send(()).expect("send");
            let value = waiter.get_for_update(&k, b"a")?;
            Ok(value.map(|v| v.to_vec()))
        })
    };
    asked.recv().expect("the waiter runs");
    holder.commit().expect("commit");
    thread.join().expect("join")
}

#[test]
fn a_locking_read_sees_the_commit_it_waited_for_under_read_committed() {
    let value = contended_read(Isolation::ReadCommitted).expect("get");
    assert_eq!(value.as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_locking_read_of_a_row_changed_since_the_snapshot_is_a_conflict() {
    assert_error!(contended_read(Isolation::Snapshot), Error::Conflict { .. });
}

#[test]
fn the_first_committer_wins_under_snapshot_isolation() {
    for flushed in [false, true] {
        let (_vfs, db, k) = database(tiny());
        let late = impatient(&db, Isolation::Snapshot);
        let first = impatient(&db, Isolation::Snapshot);
        first.put(&k, b"a", b"first").expect("put");
        first.commit().expect("commit");
        if flushed {
            // Into the last level, where sequence numbers that no snapshot needs are removed.
            k.compact_range(b"", None).expect("merge");
        }
        // Blind writes, deletes and bare locks are checked alike, and the answer does not change.
        for _ in 0..2 {
            let conflict = late.put(&k, b"a", b"late");
            assert_error!(conflict, Error::Conflict { .. });
        }
        assert_error!(late.delete(&k, b"a"), Error::Conflict { .. });
        assert_error!(
            late.lock(&k, b"a", LockMode::Shared),
            Error::Conflict { .. }
        );
        late.put(&k, b"b", b"late").expect("another row");
        late.commit().expect("commit");
        assert_eq!(text(&k, "a").as_deref(), Some("first"));
    }
}

#[test]
fn a_delete_since_the_snapshot_is_a_conflict_too() {
    let (_vfs, db, k) = database(tiny());
    k.insert(b"a", b"1").expect("insert");
    let late = impatient(&db, Isolation::Snapshot);
    k.delete(b"a").expect("delete");
    k.compact_range(b"", None).expect("merge");
    assert_error!(late.put(&k, b"a", b"2"), Error::Conflict { .. });
}

#[test]
fn an_absent_key_can_be_locked() {
    let (_vfs, db, k) = database(tiny());
    let holder = db.begin(Isolation::Snapshot).expect("begin");
    assert!(holder.get_for_update(&k, b"none").expect("get").is_none());
    let other = impatient(&db, Isolation::ReadCommitted);
    assert_error!(other.put(&k, b"none", b"1"), Error::LockTimeout { .. });
    holder.rollback();
    other.put(&k, b"none", b"1").expect("put");
}

#[test]
fn shared_locks_go_together_and_exclude_writers() {
    let (_vfs, db, k) = database(tiny());
    let [one, two, writer] = [0; 3].map(|_| impatient(&db, Isolation::ReadCommitted));
    one.lock(&k, b"a", LockMode::Shared).expect("lock");
    two.lock(&k, b"a", LockMode::Shared).expect("lock");
    assert_error!(writer.put(&k, b"a", b"1"), Error::LockTimeout { .. });
    assert_error!(two.put(&k, b"a", b"2"), Error::LockTimeout { .. });
    one.rollback();
    two.put(&k, b"a", b"2").expect("the last sharer may write");
    two.commit().expect("commit");
    writer.put(&k, b"a", b"1").expect("put");
}

#[test]
fn a_deadlock_has_one_victim_and_the_other_commits() {
    let (_vfs, db, k) = database(tiny());
    let locked = Arc::new(Barrier::new(2));
    let threads = [("a", "b"), ("b", "a")].map(|(first, second)| {
        let (db, k, locked) = (db.clone(), k.clone(), Arc::clone(&locked));
        thread::spawn(move || {
            let txn = db.begin(Isolation::ReadCommitted)?;
            txn.put(&k, first.as_bytes(), first.as_bytes())?;
            locked.wait();
            txn.put(&k, second.as_bytes(), first.as_bytes())?;
            txn.commit()
        })
    });
    let results = threads.map(|t| t.join().expect("join"));
    let victims = results.iter().filter(|r| r.is_err()).count();
    assert_eq!(victims, 1);
    for result in results.into_iter().filter(Result::is_err) {
        assert_error!(result, Error::Deadlock { .. });
    }
    let values = all(&k).into_iter().map(|(_, value)| value);
    assert_eq!(values.collect::<std::collections::BTreeSet<_>>().len(), 1);
}

#[test]
fn a_lock_timeout_names_keyspace_and_key() {
    let (_vfs, db, k) = database(tiny());
    let holder = db.begin(Isolation::Snapshot).expect("begin");
    holder.put(&k, b"row", b"1").expect("put");
    let other = impatient(&db, Isolation::Snapshot);
    match other.put(&k, b"row", b"2") {
        Err(Error::LockTimeout { keyspace, key, .. }) => {
            assert_eq!((keyspace.as_str(), &key[..]), ("k", &b"row"[..]));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_canceled_token_ends_the_wait_for_a_lock() {
    let (_vfs, db, k) = database(tiny());
    let holder = db.begin(Isolation::Snapshot).expect("begin");
    holder.put(&k, b"row", b"1").expect("put");
    let cancel = LockCancel::new();
    let options = TransactionOptions {
        cancel: Some(cancel.clone()),
        lock_timeout: Some(Duration::from_secs(3600)),
        ..TransactionOptions::default()
    };
    let waiter = db.begin_with(options).expect("begin");
    let (asking, asked) = mpsc::channel();
    let thread = {
        let k = k.clone();
        thread::spawn(move || {
            asking.send(()).expect("send");
            waiter.put(&k, b"row", b"2")
        })
    };
    asked.recv().expect("the waiter runs");
    cancel.cancel();
    assert_error!(thread.join().expect("join"), Error::Canceled { .. });
    holder.commit().expect("commit");
}

#[test]
fn a_close_ends_the_waits_for_row_locks() {
    let patient = Options {
        lock_timeout: Duration::from_secs(60),
        ..tiny()
    };
    let (_vfs, db, k) = database(patient);
    let holder = db.begin(Isolation::Snapshot).expect("begin");
    holder.put(&k, b"row", b"1").expect("put");
    let (asking, asked) = mpsc::channel();
    let waiting = |write: Box<dyn FnOnce() -> alluvium::Result<()> + Send>| {
        let asking = asking.clone();
        thread::spawn(move || {
            asking.send(()).expect("send");
            write()
        })
    };
    let txn = db.begin(Isolation::ReadCommitted).expect("begin");
    let (of_txn, of_put) = (k.clone(), k.clone());
    let threads = [
        waiting(Box::new(move || txn.put(&of_txn, b"row", b"2"))),
        waiting(Box::new(move || of_put.put(b"row", b"3"))),
    ];
    threads.iter().for_each(|_| asked.recv().expect("it runs"));
    db.close().expect("close");
    for thread in threads {
        assert_error!(thread.join().expect("join"), Error::Closed);
    }
    assert_error!(holder.commit(), Error::Closed);
}

#[test]
fn rolling_back_to_a_savepoint_restores_writes_and_frees_later_locks() {
    let (_vfs, db, k) = database(tiny());
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    txn.put(&k, b"a", b"1").expect("put");
    let outer = txn.savepoint();
    txn.delete(&k, b"a").expect("delete");
    txn.put(&k, b"b", b"2").expect("put");
    let inner = txn.savepoint();
    assert!(inner > outer);
    txn.put(&k, b"c", b"3").expect("put");
    txn.rollback_to(outer).expect("rollback");
    assert_eq!(seen(&txn, &k, "a").as_deref(), Some("1"));
    assert_eq!((seen(&txn, &k, "b"), seen(&txn, &k, "c")), (None, None));
    assert_error!(txn.rollback_to(inner), Error::InvalidArgument(_));
    let other = impatient(&db, Isolation::Snapshot);
    other.put(&k, b"b", b"other").expect("freed");
    other.put(&k, b"c", b"other").expect("freed");
    assert_error!(other.put(&k, b"a", b"other"), Error::LockTimeout { .. });
    other.commit().expect("commit");
    txn.rollback_to(outer).expect("it stays");
    txn.commit().expect("commit");
    let values = ["a", "b", "c"].map(|key| text(&k, key).expect("value"));
    assert_eq!(values, ["1", "other", "other"]);
}

#[test]
fn a_released_savepoint_is_gone_and_its_number_is_not_used_again() {
    let (_vfs, db, k) = database(tiny());
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    let outer = txn.savepoint();
    txn.put(&k, b"a", b"1").expect("put");
    let inner = txn.savepoint();
    txn.put(&k, b"a", b"2").expect("put");
    txn.release(inner);
    assert_error!(txn.rollback_to(inner), Error::InvalidArgument(_));
    let later = txn.savepoint();
    assert!(later > inner, "{later:?} after {inner:?}");
    assert_error!(txn.rollback_to(inner), Error::InvalidArgument(_));
    assert_eq!(seen(&txn, &k, "a").as_deref(), Some("2"));
    txn.rollback_to(outer).expect("rollback");
    assert_eq!(seen(&txn, &k, "a"), None);
}

#[test]
fn a_cursor_shows_own_writes_made_before_it_was_opened_and_none_made_later() {
    for isolation in BOTH {
        let (_vfs, db, k) = database(tiny());
        for key in ["b", "d", "f"] {
            k.put(key.as_bytes(), b"old").expect("put");
        }
        db.flush().expect("flush");
        let txn = db.begin(isolation).expect("begin");
        txn.put(&k, b"c", b"own").expect("put");
        txn.delete(&k, b"d").expect("delete");
        let before = txn.savepoint();
        let cursor = txn.cursor(&k, CursorOptions::default()).expect("cursor");
        txn.put(&k, b"a", b"later").expect("put");
        txn.put(&k, b"c", b"later").expect("put");
        txn.delete(&k, b"f").expect("delete");
        let keys: Vec<_> = rows(cursor)
            .into_iter()
            .map(|(k, v)| [k, v].concat())
            .collect();
        assert_eq!(keys, [&b"bold"[..], b"cown", b"fold"], "{isolation:?}");
        txn.rollback_to(before).expect("rollback");
        let again = rows(txn.cursor(&k, CursorOptions::default()).expect("cursor"));
        assert_eq!(again.len(), 3);
    }
}

#[test]
fn a_plain_batch_waits_for_a_row_lock_and_an_untracked_one_does_not() {
    let options = Options {
        lock_timeout: Duration::ZERO,
        ..tiny()
    };
    let (_vfs, db, k) = database(options);
    let txn = db.begin(Isolation::ReadCommitted).expect("begin");
    assert!(txn.get_for_update(&k, b"a").expect("get").is_none());
    let mut batch = WriteBatch::new();
    batch.put(&k, b"a", b"batch").expect("put");
    assert_error!(db.write(&batch), Error::LockTimeout { .. });
    assert_error!(k.put(b"a", b"put"), Error::LockTimeout { .. });
    assert_eq!(text(&k, "a"), None);
    let untracked = WriteOptions {
        untracked: true,
        ..WriteOptions::default()
    };
    db.write_with(&batch, &untracked).expect("write");
    assert_eq!(text(&k, "a").as_deref(), Some("batch"));
    txn.rollback();
    k.put(b"a", b"put").expect("the row is free");
}

#[test]
fn write_skew_is_possible_under_snapshot_isolation() {
    let (_vfs, db, k) = database(tiny());
    let [one, two] = [0; 2].map(|_| impatient(&db, Isolation::Snapshot));
    assert_eq!((seen(&one, &k, "b"), seen(&two, &k, "a")), (None, None));
    one.put(&k, b"a", b"1").expect("put");
    two.put(&k, b"b", b"1").expect("put");
    one.commit().expect("commit");
    two.commit().expect("commit");
    assert_eq!(all(&k).len(), 2);
}

#[test]
fn an_ended_or_foreign_transaction_is_refused() {
    let (_vfs, db, k) = database(tiny());
    let (_other_vfs, _other, foreign) = database(tiny());
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    assert_error!(txn.put(&foreign, b"a", b"1"), Error::InvalidArgument(_));
    assert_error!(txn.get(&foreign, b"a"), Error::InvalidArgument(_));
    txn.put(&k, b"a", b"1").expect("put");
    db.close().expect("close");
    assert_error!(txn.get(&k, b"a"), Error::Closed);
    assert_error!(txn.commit(), Error::Closed);
}

fn small_transactions() -> Options {
    Options {
        transaction_bytes: Some(2_000),
        ..tiny()
    }
}

#[test]
fn a_write_that_makes_a_transaction_too_large_is_refused_and_the_rest_can_be_committed() {
    let (_vfs, db, k) = database(small_transactions());
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    txn.put(&k, b"a", &[1; 1_000]).expect("put");
    for refused in [
        txn.put(&k, b"b", &[2; 1_000]),
        txn.put_untracked(&k, b"b", &[2; 1_000]),
        txn.insert(&k, b"b", &[2; 4_000]),
        txn.delete(&k, &[2; 1_000]),
        txn.delete_untracked(&k, &[2; 1_000]),
    ] {
        match refused {
            Err(Error::TransactionTooLarge { bytes, limit }) => {
                assert!(bytes > limit && limit == 2_000, "{bytes}, {limit}");
            }
            other => panic!("{other:?}"),
        }
    }
    let other = impatient(&db, Isolation::Snapshot);
    other.put(&k, b"b", b"free").expect("no lock was taken");
    other.rollback();
    txn.put(&k, b"c", &[3; 200]).expect("a smaller one");
    txn.commit().expect("commit");
    assert_eq!(all(&k).len(), 2);
}

#[test]
fn writes_that_replace_each_other_count_once_unless_a_savepoint_keeps_them() {
    let (_vfs, db, k) = database(small_transactions());
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    for n in 0..100_u8 {
        txn.put(&k, b"a", &[n; 800]).expect("put");
    }
    txn.savepoint();
    txn.put(&k, b"a", &[100; 700]).expect("put");
    assert_error!(
        txn.put(&k, b"a", &[101; 700]),
        Error::TransactionTooLarge { .. }
    );
    txn.commit().expect("commit");
    assert_eq!(all(&k), [(b"a".to_vec(), vec![100; 700])]);
}

#[test]
fn a_batch_or_a_single_write_that_is_too_large_is_refused() {
    let (_vfs, db, k) = database(small_transactions());
    let mut batch = WriteBatch::new();
    batch.put(&k, b"a", &[1; 1_500]).expect("put");
    db.write(&batch).expect("write");
    batch.put(&k, b"b", &[1; 1_500]).expect("put");
    assert_error!(db.write(&batch), Error::TransactionTooLarge { .. });
    assert_error!(k.put(b"c", &[1; 2_000]), Error::TransactionTooLarge { .. });
    assert_eq!(all(&k).len(), 1);
    for wrong in [0, usize::MAX] {
        let options = Options {
            transaction_bytes: Some(wrong),
            ..tiny()
        };
        assert_error!(options.check(), Error::InvalidArgument(_));
    }
}
