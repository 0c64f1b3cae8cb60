//! Inserts of keys that exist: only debug builds refuse them.

use alluvium::{
    Database, Error, Isolation, Keyspace, TransactionOptions, WriteBatch, WriteOptions,
};

use crate::fixture::{assert_error, database, text, tiny};

/// True if this build checks inserts.
const LOOKS: bool = cfg!(debug_assertions);

fn check(result: alluvium::Result<()>, exists: bool) {
    match result {
        Err(Error::InvalidArgument(message)) if exists && LOOKS => {
            assert!(message.contains("keyspace k of the key "), "{message}");
        }
        Ok(()) if !(exists && LOOKS) => {}
        other => panic!("{other:?}"),
    }
}

fn begin(db: &Database, isolation: Isolation, optimistic: bool) -> alluvium::Transaction {
    let options = TransactionOptions {
        isolation,
        optimistic,
        ..TransactionOptions::default()
    };
    db.begin_with(options).expect("begin")
}

#[test]
fn an_insert_of_a_key_that_exists_is_refused_in_debug_builds() {
    let (_vfs, db, k) = database(tiny());
    k.put(b"flushed", b"1").expect("put");
    db.flush().expect("flush");
    k.put(b"in memory", b"1").expect("put");
    let insert = |k: &Keyspace, key: &[u8]| k.insert(key, b"2");
    check(insert(&k, b"flushed"), true);
    check(insert(&k, b"in memory"), true);
    check(insert(&k, b"new"), false);
    k.delete(b"new").expect("delete");
    check(insert(&k, b"new"), false);
    let mut batch = WriteBatch::new();
    batch.put(&k, b"beside", b"1").expect("put");
    batch.insert(&k, b"flushed", b"3").expect("insert");
    check(db.write(&batch), true);
    if LOOKS {
        assert_eq!(text(&k, "flushed").as_deref(), Some("1"), "nothing of it");
        assert_eq!(text(&k, "beside"), None, "nothing of it");
    }
    // The locks were released.
    k.put(b"flushed", b"4").expect("put");
    let untracked = WriteOptions {
        untracked: true,
        ..WriteOptions::default()
    };
    db.write_with(&batch, &untracked)
        .expect("untracked writes are not looked at");
}

#[test]
fn an_insert_over_a_delete_of_the_same_batch_is_none() {
    let (_vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    k.put(b"b", b"1").expect("put");
    let mut batch = WriteBatch::new();
    batch.delete(&k, b"a").expect("delete");
    batch.insert(&k, b"a", b"2").expect("insert");
    batch.delete_range(&k, b"b", b"c").expect("delete");
    batch.insert(&k, b"b", b"2").expect("insert");
    db.write(&batch).expect("write");
    assert_eq!(text(&k, "a").as_deref(), Some("2"));
    assert_eq!(text(&k, "b").as_deref(), Some("2"));
}

#[test]
fn transactions_are_told_at_the_insert_and_go_on() {
    let (_vfs, db, k) = database(tiny());
    k.put(b"a", b"1").expect("put");
    for (isolation, optimistic) in [
        (Isolation::ReadCommitted, false),
        (Isolation::Snapshot, false),
        (Isolation::Snapshot, true),
        (Isolation::Serializable, false),
    ] {
        let txn = begin(&db, isolation, optimistic);
        let mark = txn.savepoint();
        check(txn.insert(&k, b"a", b"2"), true);
        txn.rollback_to(mark).expect("rollback");
        txn.delete(&k, b"a").expect("delete");
        check(txn.insert(&k, b"a", b"3"), false);
        check(txn.insert(&k, b"a", b"4"), false);
        let got = txn.get(&k, b"a").expect("get");
        assert_eq!(got.as_deref(), Some(&b"4"[..]));
        txn.rollback_to(mark).expect("rollback");
        check(txn.insert(&k, b"a", b"5"), true);
        txn.delete_range(&k, b"a", b"b").expect("delete");
        check(txn.insert(&k, b"a", b"6"), false);
        txn.commit().expect("commit");
        assert_eq!(text(&k, "a").as_deref(), Some("6"));
    }
}

#[test]
fn an_optimistic_insert_that_came_second_is_a_conflict() {
    let (_vfs, db, k) = database(tiny());
    let txn = begin(&db, Isolation::Snapshot, true);
    k.insert(b"a", b"1").expect("insert");
    txn.insert(&k, b"a", b"2").expect("absent at its beginning");
    assert_error!(txn.commit(), Error::Conflict { .. });
}

#[test]
fn a_cleared_batch_is_filled_anew_also_for_another_database() {
    let (_vfs, db, k) = database(tiny());
    let (_other_vfs, other, other_k) = database(tiny());
    let mut batch = WriteBatch::new();
    batch.put(&k, b"a", b"1").expect("put");
    batch.delete_range(&k, b"b", b"c").expect("delete range");
    batch.clear();
    assert!(batch.is_empty());
    db.write(&batch).expect("write nothing");
    assert_eq!(k.get(b"a").expect("get"), None);
    batch.put(&other_k, b"b", b"2").expect("put");
    assert_eq!(batch.len(), 1);
    other.write(&batch).expect("write");
    assert_eq!(other_k.get(b"b").expect("get").as_deref(), Some(&b"2"[..]));
    assert_eq!(other_k.get(b"a").expect("get"), None);
}
