//! Concurrent transfers between accounts: no update is lost, and no snapshot shows half of a
//! transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use alluvium::{CursorOptions, Database, Error, Isolation, Keyspace, Result};
use alluvium_testkit::random::{Rng, Seeded};

use crate::fixture::{database, rows, tiny};

const ACCOUNTS: usize = 6;
const START: i64 = 1_000;
const THREADS: usize = 4;
const TRANSFERS: usize = 120;

fn name(account: usize) -> [u8; 1] {
    [b'a' + account as u8]
}

fn amount(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

/// Moves one unit and counts the transfers into an account in a separate row.
fn transfer(db: &Database, k: &Keyspace, isolation: Isolation, rng: &mut Rng) -> Result<()> {
    let from = rng.below(ACCOUNTS);
    let to = (from + rng.range(1..ACCOUNTS)) % ACCOUNTS;
    let txn = db.begin(isolation)?;
    for (account, change) in [(from, -1), (to, 1)] {
        let key = name(account);
        let old = txn.get_for_update(k, &key)?.expect("an account");
        txn.put(k, &key, &(amount(&old) + change).to_le_bytes())?;
    }
    let counted = [b'#', name(to)[0]];
    let old = txn.get_for_update(k, &counted)?.map_or(0, |v| amount(&v));
    txn.put(k, &counted, &(old + 1).to_le_bytes())?;
    if rng.percent(10) {
        txn.rollback();
        // A reader that sees any of it has read dirty data.
        return Err(Error::Closed);
    }
    txn.commit()
}

fn sums(db: &Database, k: &Keyspace) -> (i64, i64) {
    let snapshot = db.snapshot().expect("snapshot");
    let cursor = snapshot
        .cursor(k, CursorOptions::default())
        .expect("cursor");
    let rows = rows(cursor);
    let sum = |counted: bool| {
        let wanted = rows.iter().filter(|(key, _)| (key[0] == b'#') == counted);
        wanted.map(|(_, value)| amount(value)).sum()
    };
    (sum(false), sum(true))
}

fn run(isolation: Isolation, rng: &mut Rng) {
    let (_vfs, db, k) = database(tiny());
    for account in 0..ACCOUNTS {
        k.insert(&name(account), &START.to_le_bytes())
            .expect("insert");
    }
    let running = Arc::new(AtomicUsize::new(THREADS));
    let clients: Vec<_> = (0..THREADS)
        .map(|_| {
            let (db, k, running) = (db.clone(), k.clone(), Arc::clone(&running));
            let mut rng = Rng::new(rng.next_u64());
            thread::spawn(move || {
                let mut committed = 0_i64;
                let mut failure = None;
                for _ in 0..TRANSFERS {
                    match transfer(&db, &k, isolation, &mut rng) {
                        Ok(()) => committed += 1,
                        Err(Error::Conflict { .. } | Error::Deadlock { .. } | Error::Closed) => {}
                        Err(other) => failure = Some(other),
                    }
                }
                running.fetch_sub(1, Ordering::Release);
                (committed, failure)
            })
        })
        .collect();
    let total = START * ACCOUNTS as i64;
    let mut looks = 0;
    while running.load(Ordering::Acquire) > 0 {
        assert_eq!(sums(&db, &k).0, total, "money appeared or vanished");
        looks += 1;
        if looks % 16 == 0 {
            db.flush().expect("flush");
        }
    }
    let mut committed = 0;
    for client in clients {
        let (own, failure) = client.join().expect("join");
        assert!(failure.is_none(), "{failure:?}");
        committed += own;
    }
    assert!(committed > 0);
    assert_eq!(sums(&db, &k), (total, committed), "an update was lost");
}

#[test]
fn concurrent_transfers_keep_their_sum_in_every_snapshot() {
    Seeded::run("concurrent_transfers_keep_their_sum", 4, |rng| {
        run(Isolation::ReadCommitted, rng);
        run(Isolation::Snapshot, rng);
    });
}
