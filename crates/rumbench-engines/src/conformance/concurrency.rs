//! Transactions on several threads: no lost updates, no double inserts, no torn reads.

use std::time::Duration;

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::kv::{Direction, KvConnection, KvEngine, KvTxn};

use super::calls::{PLAIN, connect, expect, get, get_for_update, ok, put, range, scan};

/// Retries `body` as a transaction until it meets no conflict. Bounded, so that a livelock fails
/// the suite. The pauses grow to a millisecond, because the other transaction may wait for a slow
/// device.
fn with_retries<C: KvConnection>(connection: &mut C, body: impl Fn(&mut C::Txn<'_>) -> Result<()>) {
    for attempt in 0..100_000 {
        let mut txn = ok(connection.begin(), "begin");
        match body(&mut txn).and_then(|()| txn.commit()) {
            Ok(()) => return,
            Err(EngineError::Retry(_)) => {
                std::thread::sleep(Duration::from_micros(attempt.min(1_000)));
            }
            Err(error) => panic!("transaction: {error}"),
        }
    }
    panic!("a transaction conflicted 100000 times");
}

fn increment<T: KvTxn>(txn: &mut T, key: &[u8]) -> Result<()> {
    let counter = get_for_update(txn, PLAIN, key)?.map_or(0, |value| number(&value));
    txn.put(PLAIN, key, &(counter + 1).to_be_bytes())
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("a counter has eight bytes"))
}

/// Runs `body` on `threads` threads, each with its own connection.
fn concurrently<E: KvEngine>(
    engine: &E,
    threads: u64,
    body: impl Fn(u64, &mut E::Connection) + Sync,
) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let body = &body;
            scope.spawn(move || body(thread, &mut connect(engine)));
        }
    });
}

pub(super) fn no_increment_is_lost<E: KvEngine>(engine: &E) {
    const THREADS: u64 = 4;
    const INCREMENTS: u64 = 200;
    put(
        &mut connect(engine),
        PLAIN,
        &[(b"counter", &0_u64.to_be_bytes())],
    );
    concurrently(engine, THREADS, |_, connection| {
        for _ in 0..INCREMENTS {
            with_retries(connection, |txn| increment(txn, b"counter"));
        }
    });
    let value = get(&mut connect(engine), PLAIN, b"counter").expect("the counter exists");
    expect("counter", number(&value), THREADS * INCREMENTS);
}

/// Checks that only one of several clients inserts a row all of them find missing.
pub(super) fn absent_rows_are_protected_too<E: KvEngine>(engine: &E) {
    const THREADS: u64 = 3;
    const ROWS: u64 = 100;
    concurrently(engine, THREADS, |_, connection| {
        for row in 0..ROWS {
            with_retries(connection, |txn| increment(txn, &row.to_be_bytes()));
        }
    });
    let mut connection = connect(engine);
    for row in 0..ROWS {
        let value = get(&mut connection, PLAIN, &row.to_be_bytes()).expect("the row exists");
        expect("row created by many", number(&value), THREADS);
    }
}

/// Transfers amounts by locking two rows in either order, so that engines with row locks meet
/// deadlocks, while a reader scans.
pub(super) fn transfers_keep_the_sum<E: KvEngine>(engine: &E) {
    const ACCOUNTS: u64 = 4;
    const TRANSFERS: u64 = 100;
    const START: u64 = 1_000_000;
    let account = |index: u64| (index % ACCOUNTS).to_be_bytes();
    let mut connection = connect(engine);
    for index in 0..ACCOUNTS {
        put(
            &mut connection,
            PLAIN,
            &[(&account(index), &START.to_be_bytes())],
        );
    }
    concurrently(engine, 3, |thread, connection| {
        for step in 0..TRANSFERS {
            if thread == 0 {
                let all = range(&[0], &[0xFF], Direction::Forward, usize::MAX);
                let rows = scan(connection, PLAIN, all);
                let sum: u64 = rows.iter().map(|(_, value)| number(value)).sum();
                expect("sum seen by a scan", sum, ACCOUNTS * START);
                continue;
            }
            // Thread 1 walks the accounts in ascending order, thread 2 in descending order.
            let (from, to) = if thread == 1 {
                (step, step + 1)
            } else {
                (step + 1, step)
            };
            with_retries(connection, |txn| {
                let left =
                    get_for_update(txn, PLAIN, &account(from))?.map_or(0, |value| number(&value));
                let right =
                    get_for_update(txn, PLAIN, &account(to))?.map_or(0, |value| number(&value));
                txn.put(PLAIN, &account(from), &(left - 1).to_be_bytes())?;
                txn.put(PLAIN, &account(to), &(right + 1).to_be_bytes())
            });
        }
    });
    let rows = scan(
        &mut connection,
        PLAIN,
        range(&[0], &[0xFF], Direction::Forward, usize::MAX),
    );
    let sum: u64 = rows.iter().map(|(_, value)| number(value)).sum();
    expect("sum at the end", sum, ACCOUNTS * START);
}
