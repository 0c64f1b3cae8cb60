//! Anomalies that each isolation level allows: the histories for the table in
//! `docs/guide/transactions.md`.
//!
//! Two transactions of one level run a history in one thread, so that its order is fixed. The first
//! step that is refused ends the history, with the error as its result.

use std::time::Duration;

use alluvium::{
    CursorOptions, Database, Error, Isolation, Keyspace, Result, Transaction, TransactionOptions,
};

use crate::driver::chain;
use crate::fixture::{database, rows, text, tiny};

/// Isolation, and true if the transactions are optimistic.
type Level = (Isolation, bool);

const LEVELS: [Level; 5] = [
    (Isolation::ReadCommitted, false),
    (Isolation::Snapshot, false),
    (Isolation::Snapshot, true),
    (Isolation::Serializable, false),
    (Isolation::Serializable, true),
];

/// Outcome of a history at one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// No step was refused, and the anomaly occurred.
    Happens,
    /// No step was refused, and the anomaly did not occur.
    Harmless,
    /// A step was refused, with an error that asks the program to run the transaction again.
    Refused,
}
use Outcome::{Happens, Harmless, Refused};

fn begin(db: &Database, (isolation, optimistic): Level) -> Transaction {
    let options = TransactionOptions {
        isolation,
        optimistic,
        lock_timeout: Some(Duration::ZERO),
        ..TransactionOptions::default()
    };
    db.begin_with(options).expect("begin")
}

fn number(txn: &Transaction, k: &Keyspace, key: &str) -> Result<i64> {
    let value = txn.get(k, key.as_bytes())?;
    Ok(value.map_or(0, |v| {
        std::str::from_utf8(&v)
            .expect("text")
            .parse()
            .expect("a number")
    }))
}

fn set(txn: &Transaction, k: &Keyspace, key: &str, value: i64) -> Result<()> {
    txn.put(k, key.as_bytes(), value.to_string().as_bytes())
}

fn count(txn: &Transaction, k: &Keyspace) -> Result<usize> {
    Ok(rows(txn.cursor(k, CursorOptions::default())?).len())
}

/// Runs a history on a database in which `a` and `b` are 10.
fn run(level: Level, history: fn(&Database, &Keyspace, Level) -> Result<bool>) -> Outcome {
    let (_vfs, db, k) = database(tiny());
    for key in ["a", "b"] {
        k.put(key.as_bytes(), b"10").expect("put");
    }
    match history(&db, &k, level) {
        Ok(true) => Happens,
        Ok(false) => Harmless,
        Err(Error::Conflict { .. } | Error::LockTimeout { .. } | Error::Deadlock { .. }) => Refused,
        Err(other) => panic!("{level:?}: {}", chain(&other)),
    }
}

fn check(history: fn(&Database, &Keyspace, Level) -> Result<bool>, expected: [Outcome; 5]) {
    assert_eq!(LEVELS.map(|level| run(level, history)), expected);
}

#[test]
fn uncommitted_writes_are_never_read() {
    check(
        |db, k, level| {
            let (one, two) = (begin(db, level), begin(db, level));
            set(&one, k, "a", 99)?;
            let dirty = number(&two, k, "a")? == 99 || text(k, "a").as_deref() == Some("99");
            one.rollback();
            two.commit()?;
            Ok(dirty)
        },
        [Harmless; 5],
    );
}

#[test]
fn an_update_on_top_of_a_read_is_lost_under_read_committed_only() {
    check(
        |db, k, level| {
            let (one, two) = (begin(db, level), begin(db, level));
            let (seen_by_one, seen_by_two) = (number(&one, k, "a")?, number(&two, k, "a")?);
            set(&one, k, "a", seen_by_one + 1)?;
            one.commit()?;
            set(&two, k, "a", seen_by_two + 1)?;
            two.commit()?;
            Ok(text(k, "a").as_deref() == Some("11"))
        },
        [Happens, Refused, Refused, Refused, Refused],
    );
}

#[test]
fn an_update_on_top_of_a_locking_read_is_never_lost() {
    check(
        |db, k, level| {
            let (one, two) = (begin(db, level), begin(db, level));
            let mut seen = Vec::new();
            for txn in [&one, &two] {
                let value = txn.get_for_update(k, b"a")?.expect("a row");
                seen.push(value.to_vec());
            }
            one.put(k, b"a", &[&seen[0][..], b"1"].concat())?;
            two.put(k, b"a", &[&seen[1][..], b"2"].concat())?;
            one.commit()?;
            two.commit()?;
            Ok(true)
        },
        [Refused; 5],
    );
}

#[test]
fn two_reads_see_halves_of_a_commit_under_read_committed_only() {
    check(
        |db, k, level| {
            let (reader, writer) = (begin(db, level), begin(db, level));
            let a = number(&reader, k, "a")?;
            set(&writer, k, "a", 5)?;
            set(&writer, k, "b", 15)?;
            writer.commit()?;
            let b = number(&reader, k, "b")?;
            reader.commit()?;
            Ok(a + b != 20)
        },
        [Happens, Harmless, Harmless, Harmless, Harmless],
    );
}

#[test]
fn write_skew_is_refused_by_serializable_only() {
    check(
        |db, k, level| {
            let (one, two) = (begin(db, level), begin(db, level));
            for (txn, key) in [(&one, "a"), (&two, "b")] {
                if number(txn, k, "a")? + number(txn, k, "b")? >= 10 {
                    let own = number(txn, k, key)?;
                    set(txn, k, key, own - 10)?;
                }
            }
            one.commit()?;
            two.commit()?;
            let left = ["a", "b"].map(|key| text(k, key).expect("a row"));
            Ok(left == ["0", "0"])
        },
        [Happens, Happens, Happens, Refused, Refused],
    );
}

#[test]
fn a_phantom_in_a_range_that_was_read_is_refused_by_serializable_only() {
    check(
        |db, k, level| {
            let (one, two) = (begin(db, level), begin(db, level));
            for (txn, key) in [(&one, "x"), (&two, "y")] {
                // At most three rows are allowed.
                if count(txn, k)? < 3 {
                    set(txn, k, key, 1)?;
                }
            }
            one.commit()?;
            two.commit()?;
            Ok(rows(k.cursor(CursorOptions::default())?).len() > 3)
        },
        [Happens, Happens, Happens, Refused, Refused],
    );
}

#[test]
fn a_range_read_twice_changes_under_read_committed_only() {
    check(
        |db, k, level| {
            let reader = begin(db, level);
            let before = count(&reader, k)?;
            k.put(b"c", b"1")?;
            let after = count(&reader, k)?;
            reader.commit()?;
            Ok(before != after)
        },
        [Happens, Harmless, Harmless, Harmless, Harmless],
    );
}
