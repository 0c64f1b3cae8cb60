//! Transactions of several statements on tables: visible together or not at all, rolled back by an
//! error, safe under concurrency.

use std::thread;

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::tables::{
    Change, Path, Range, RowBatch, TableConnection, TableStore, TableWrites, Value,
};

use super::calls::{expect, ok};
use super::table_rows::{PLAIN, batch};
use Value::{Signed, Unsigned};

/// Limit on retries of a conflicting transaction: more than these few clients can ever need.
const ATTEMPTS_MAX: u32 = 100_000;
const CLIENTS: u64 = 3;
const ROUNDS: u64 = 40;

/// Runs the checks on an empty table with its indexes built.
pub(super) fn transactions(store: &dyn TableStore) {
    let mut connection = ok(store.connect(), "connect");
    let rows = [
        (1, 10, 0, &b"one"[..]),
        (2, 20, 0, b"two"),
        (3, 30, 0, b"three"),
    ];
    ok(connection.insert(PLAIN, &batch(&rows)), "insert");
    statements_see_those_before_them(connection.as_mut());
    an_error_rolls_back(connection.as_mut());
    transfers_keep_the_sum(store);
    replaced_rows_are_there_once(store);
    let all = connection.delete_first(PLAIN, &[], 1000);
    expect("rows deleted", ok(all, "delete first"), 4);
}

/// Retries a transaction until it meets no conflict.
fn write(
    connection: &mut dyn TableConnection,
    statements: &mut dyn FnMut(&mut dyn TableWrites) -> Result<()>,
) -> Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        match connection.write(statements) {
            Err(EngineError::Retry(_)) => thread::yield_now(),
            done => return done,
        }
    }
    panic!("a transaction met a conflict {ATTEMPTS_MAX} times");
}

/// Returns all rows as (id, k, a).
fn rows(connection: &mut dyn TableConnection) -> Vec<(u64, u64, i64)> {
    let mut found = Vec::new();
    let scanned = connection.scan(PLAIN, Path::Primary, Range::ALL, &mut |row| {
        match row {
            [Unsigned(id), Unsigned(k), Signed(a), _] => found.push((*id, *k, *a)),
            other => panic!("not the columns of a row: {other:?}"),
        }
        true
    });
    ok(scanned, "scan");
    found
}

fn add(writes: &mut dyn TableWrites, id: u64, column: usize, more: i64) -> Result<bool> {
    writes.update(PLAIN, &[Unsigned(id)], column, Change::Add(more))
}

fn replace(writes: &mut dyn TableWrites, id: u64, with: &RowBatch) -> Result<bool> {
    let there = writes.delete(PLAIN, &[Unsigned(id)])?;
    writes.insert(PLAIN, with)?;
    Ok(there)
}

fn statements_see_those_before_them(connection: &mut dyn TableConnection) {
    let done = write(connection, &mut |writes| {
        assert!(add(writes, 1, 1, 5)?, "an indexed column");
        assert!(add(writes, 1, 1, 5)?, "the same again");
        assert!(add(writes, 2, 2, -7)?);
        assert!(writes.delete(PLAIN, &[Unsigned(2)])?, "a changed row");
        assert!(!writes.delete(PLAIN, &[Unsigned(2)])?, "a deleted row");
        assert!(!add(writes, 2, 2, 1)?, "a deleted row");
        // Restores the row as it was before its delete, so that its index entries equal the deleted
        // ones.
        writes.insert(PLAIN, &batch(&[(2, 20, 0, b"two")]))?;
        assert!(add(writes, 2, 2, 3)?, "an inserted row");
        assert!(!replace(writes, 4, &batch(&[(4, 40, 0, b"four")]))?);
        Ok(())
    });
    ok(done, "write");
    let expected = vec![(1, 20, 0), (2, 20, 3), (3, 30, 0), (4, 40, 0)];
    expect("rows after a transaction", rows(connection), expected);
    expect("indexes", ok(connection.check(PLAIN), "check"), 2);
}

fn an_error_rolls_back(connection: &mut dyn TableConnection) {
    let before = rows(connection);
    let failed = connection.write(&mut |writes| {
        assert!(add(writes, 1, 1, 1)?);
        assert!(replace(writes, 3, &batch(&[(3, 1, 1, b"")]))?);
        writes.insert(PLAIN, &batch(&[(9, 9, 9, b"nine")]))?;
        Err(EngineError::Unsupported("stop here".to_owned()))
    });
    let message = failed.map_err(|error| error.to_string());
    expect("the error", message, Err("stop here".to_owned()));
    expect("rows after an error", rows(connection), before);
    expect("indexes", ok(connection.check(PLAIN), "check"), 2);
    ok(connection.write(&mut |_| Ok(())), "write nothing");
    // The locks of the failed transaction are released.
    ok(
        write(connection, &mut |writes| add(writes, 1, 2, 0).map(drop)),
        "write",
    );
}

/// Moves amounts between rows, one transaction per transfer, with several clients: no update is
/// lost, and no reader sees half a transfer.
fn transfers_keep_the_sum(store: &dyn TableStore) {
    beside(store, |connection, client| {
        for round in 0..ROUNDS {
            let (from, to) = (1 + round % 2, 3 + (round + client) % 2);
            let moved = write(connection, &mut |writes| {
                assert!(add(writes, from, 2, -1)?);
                assert!(add(writes, to, 2, 1)?);
                assert!(add(writes, to, 1, 1)?);
                Ok(())
            });
            ok(moved, "move");
            let sum: i64 = rows(connection).iter().map(|(_, _, a)| a).sum();
            expect("the sum at any moment", sum, 3);
        }
    });
    let mut connection = ok(store.connect(), "connect");
    let k: u64 = rows(connection.as_mut()).iter().map(|(_, k, _)| k).sum();
    let before = 20 + 20 + 30 + 40;
    expect("the sum of increments", k, before + CLIENTS * ROUNDS);
    expect("indexes", ok(connection.check(PLAIN), "check"), 2);
}

/// Deletes and inserts the same row from several clients: each finds it, and it exists exactly
/// once.
fn replaced_rows_are_there_once(store: &dyn TableStore) {
    beside(store, |connection, client| {
        for round in 0..ROUNDS {
            let k = 1000 + (client * ROUNDS + round) as u32;
            let with = batch(&[(2, k, 0, b"new")]);
            let done = write(connection, &mut |writes| {
                assert!(replace(writes, 2, &with)?, "the row is always there");
                Ok(())
            });
            ok(done, "replace");
            expect("rows at any moment", rows(connection).len(), 4);
        }
    });
    let mut connection = ok(store.connect(), "connect");
    expect("indexes", ok(connection.check(PLAIN), "check"), 2);
}

fn beside(store: &dyn TableStore, client: impl Fn(&mut dyn TableConnection, u64) + Sync) {
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let client = &client;
            scope.spawn(move || {
                let mut connection = ok(store.connect(), "connect");
                client(connection.as_mut(), number);
            });
        }
    });
}
