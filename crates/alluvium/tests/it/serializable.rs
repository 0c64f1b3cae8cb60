//! Serializable transactions: the changes that their commit detects.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use alluvium::{
    CursorOptions, Database, Durability, Error, Isolation, Keyspace, KeyspaceOptions, Options,
    Result, Transaction, TransactionOptions, WriteBatch, WriteOptions,
};
use alluvium_testkit::model::Direction;
use alluvium_testkit::random::{Rng, Seeded};

use crate::driver::collect;
use crate::fixture::{all, assert_error, database, text, tiny};

fn serializable(db: &Database) -> Transaction {
    db.begin(Isolation::Serializable).expect("begin")
}

/// Number of kinds of write in [`write_by_others`].
const WAYS: usize = 6;

/// Changes a key as another client, with the kind of write `way % WAYS`. Serializable transactions
/// must detect every kind.
fn write_by_others(db: &Database, k: &Keyspace, key: &[u8], way: usize) {
    let mut batch = WriteBatch::new();
    batch.put(k, key, b"other").expect("put");
    match way % WAYS {
        0 => k.put(key, b"other").expect("put"),
        1 => k.delete(key).expect("delete"),
        2 => {
            let untracked = WriteOptions {
                untracked: true,
                ..WriteOptions::default()
            };
            db.write_with(&batch, &untracked).expect("write");
        }
        3 => {
            let txn = db.begin(Isolation::ReadCommitted).expect("begin");
            txn.put(k, key, b"other").expect("put");
            txn.commit().expect("commit");
        }
        4 => {
            let txn = db.begin(Isolation::ReadCommitted).expect("begin");
            txn.put(k, key, b"other").expect("put");
            let prepared = txn.prepare(b"other").expect("prepare");
            prepared.commit().expect("commit");
        }
        _ => {
            let end = [key, &[0]].concat();
            k.delete_range(key, &end).expect("delete");
        }
    }
}

/// The existing rows.
const ROWS: [&str; 4] = ["b", "d", "f", "h"];

/// Commits a transaction that reads [`ROWS`] with `read` and writes to another keyspace. Between
/// the two, another client changes `key`. The rows are in tables. The change stays in the memtable
/// if `way / WAYS` is 0, is flushed if it is 1, and is compacted above that.
fn commit_after(key: &str, way: usize, read: fn(&Transaction, &Keyspace)) -> Result<()> {
    let (_vfs, db, k) = database(tiny());
    for row in ROWS {
        k.put(row.as_bytes(), b"1").expect("put");
    }
    db.settle().expect("settle");
    let other = db
        .keyspace("other", KeyspaceOptions::default())
        .expect("keyspace");
    let txn = serializable(&db);
    read(&txn, &k);
    write_by_others(&db, &k, key.as_bytes(), way);
    match way / WAYS {
        0 => {}
        1 => db.flush().expect("flush"),
        _ => db.settle().expect("settle"),
    }
    txn.put(&other, b"decided", b"1").expect("put");
    let result = txn.commit();
    assert_eq!(text(&other, "decided").is_some(), result.is_ok());
    result
}

/// Checks the conflicts of a transaction with these reads: its commit fails after a change of any
/// key in `conflicts`, and succeeds after a change of any key in `free`.
fn check_reads(read: fn(&Transaction, &Keyspace), conflicts: &[&str], free: &[&str]) {
    for way in 0..3 * WAYS {
        let merged_away = way == 3 * WAYS - 1;
        for key in conflicts {
            match commit_after(key, way, read) {
                Err(Error::Conflict {
                    keyspace,
                    key: found,
                }) => {
                    assert_eq!((keyspace.as_str(), &found[..]), ("k", key.as_bytes()));
                }
                // A compaction may remove the delete of a row that never existed.
                Ok(()) if merged_away && !ROWS.contains(key) => {}
                other => panic!("{key} written in way {way}: {other:?}"),
            }
        }
        for key in free {
            commit_after(key, way, read).unwrap_or_else(|e| panic!("{key}, way {way}: {e}"));
        }
    }
}

fn cursor(txn: &Transaction, k: &Keyspace, options: CursorOptions) -> alluvium::Cursor {
    txn.cursor(k, options).expect("cursor")
}

#[test]
fn a_key_that_was_read_must_not_change_whether_or_not_it_exists() {
    let read = |txn: &Transaction, k: &Keyspace| {
        txn.get(k, b"d").expect("get");
        txn.get(k, b"e").expect("get");
    };
    check_reads(read, &["d", "e"], &["c", "f", "ee"]);
    let several = |txn: &Transaction, k: &Keyspace| {
        txn.multi_get(k, &[b"d", b"e"]).expect("get");
    };
    check_reads(several, &["d", "e"], &["c", "f", "ee"]);
}

#[test]
fn a_scan_reads_from_its_start_to_the_last_key_that_it_reached() {
    let read = |txn: &Transaction, k: &Keyspace| {
        let mut cursor = cursor(txn, k, CursorOptions::default());
        assert!(cursor.seek(b"c").expect("seek") && cursor.next().expect("next"));
        assert_eq!(cursor.key(), b"f");
    };
    check_reads(
        read,
        &["c", "cc", "d", "e", "f"],
        &["b", "bz", "f0", "g", "h"],
    );
}

#[test]
fn a_reverse_scan_reads_down_to_the_last_key_that_it_reached() {
    let read = |txn: &Transaction, k: &Keyspace| {
        let mut cursor = cursor(txn, k, CursorOptions::default());
        assert!(cursor.seek_before(b"h").expect("seek") && cursor.prev().expect("prev"));
        assert_eq!(cursor.key(), b"d");
    };
    check_reads(read, &["d", "d0", "f", "g", "gz"], &["a", "c", "h", "i"]);
}

#[test]
fn a_scan_that_finds_no_more_has_read_to_its_bound() {
    let forward = |txn: &Transaction, k: &Keyspace| {
        let range = CursorOptions::range(b"e", b"g");
        assert_eq!(
            collect(cursor(txn, k, range), Direction::Forward, 9).len(),
            1
        );
    };
    check_reads(forward, &["e", "f", "fz"], &["d", "g"]);
    let backward = |txn: &Transaction, k: &Keyspace| {
        let range = CursorOptions::range(b"e", b"g");
        assert_eq!(
            collect(cursor(txn, k, range), Direction::Backward, 9).len(),
            1
        );
    };
    check_reads(backward, &["e", "f", "fz"], &["d", "g"]);
    let to_the_end = |txn: &Transaction, k: &Keyspace| {
        let mut cursor = cursor(txn, k, CursorOptions::default());
        assert!(cursor.seek(b"h").expect("seek") && !cursor.next().expect("next"));
    };
    check_reads(to_the_end, &["h", "z"], &["b", "g"]);
    let to_the_start = |txn: &Transaction, k: &Keyspace| {
        let mut cursor = cursor(txn, k, CursorOptions::default());
        assert!(!cursor.seek_before(b"b").expect("seek"));
    };
    check_reads(to_the_start, &["a"], &["b", "c"]);
}

#[test]
fn turning_around_and_seeking_anew_forgets_nothing() {
    let read = |txn: &Transaction, k: &Keyspace| {
        let mut cursor = cursor(txn, k, CursorOptions::default());
        assert!(cursor.seek(b"f").expect("seek") && cursor.prev().expect("prev"));
        assert!(cursor.next().expect("next"));
        assert!(cursor.seek(b"h").expect("seek"));
    };
    check_reads(read, &["d", "e", "f", "h"], &["c", "f0", "g", "i"]);
}

#[test]
fn what_an_open_cursor_has_read_counts_too() {
    let (_vfs, db, k) = database(tiny());
    k.put(b"b", b"1").expect("put");
    let txn = serializable(&db);
    let mut cursor = cursor(&txn, &k, CursorOptions::default());
    assert!(cursor.seek_first().expect("seek"));
    k.put(b"a", b"2").expect("put");
    txn.put(&k, b"z", b"3").expect("put");
    assert_error!(txn.commit(), Error::Conflict { .. });
    assert!(cursor.valid(), "it outlives the transaction");
}

#[test]
fn two_clients_that_take_the_next_id_do_not_get_the_same() {
    for rows in [0, 5] {
        let (_vfs, db, k) = database(tiny());
        for id in 0..rows {
            k.put(&[id], b"row").expect("put");
        }
        db.settle().expect("settle");
        let next_id = |txn: &Transaction| {
            let mut cursor = cursor(txn, &k, CursorOptions::default());
            let found = cursor.seek_last().expect("seek");
            if found { cursor.key()[0] + 1 } else { 0 }
        };
        let [one, two] = [serializable(&db), serializable(&db)];
        for txn in [&one, &two] {
            let id = next_id(txn);
            assert_eq!(id, rows);
            // The key is the id and the client's number, so the keys differ and no row lock makes
            // one client wait for the other.
            let who = if std::ptr::eq(txn, &one) { 1 } else { 2 };
            txn.insert(&k, &[id, who], b"row").expect("insert");
        }
        one.commit().expect("commit");
        assert_error!(two.commit(), Error::Conflict { .. });
        assert_eq!(all(&k).len(), usize::from(rows) + 1);
    }
}

#[test]
fn own_writes_and_what_reads_nothing_are_no_conflict() {
    let (_vfs, db, k) = database(tiny());
    let txn = serializable(&db);
    txn.put(&k, b"own", b"1").expect("put");
    assert!(txn.get(&k, b"own").expect("get").is_some());
    assert_eq!(
        collect(
            cursor(&txn, &k, CursorOptions::default()),
            Direction::Forward,
            9
        )
        .len(),
        1
    );
    txn.commit().expect("its own write is in what it read");
    let blind = serializable(&db);
    blind.put(&k, b"x", b"1").expect("put");
    k.put(b"y", b"2").expect("put");
    blind.commit().expect("it has read nothing");
    let reader = serializable(&db);
    assert!(reader.get(&k, b"x").expect("get").is_some());
    k.put(b"x", b"3").expect("put");
    reader.commit().expect("it has written nothing");
}

#[test]
fn a_blind_delete_reads_no_block_and_conflicts_with_nothing_but_its_row() {
    let (_vfs, db, k) = database(Options {
        idle_after: None,
        ..tiny()
    });
    for n in 0..200 {
        k.put(format!("key{n:03}").as_bytes(), &[7; 50])
            .expect("put");
    }
    db.settle().expect("settle");
    let blocks = || {
        let stats = db.stats().expect("stats");
        stats.cache_hits + stats.cache_misses
    };
    let before = blocks();
    for optimistic in [false, true] {
        let txn = if optimistic {
            crate::optimistic::optimistic(&db, Isolation::Serializable)
        } else {
            serializable(&db)
        };
        // Deletes an existing and a missing key, while other clients write the neighboring keys.
        for key in [&b"key100"[..], b"key100x"] {
            txn.delete(&k, key).expect("delete");
        }
        for key in [&b"key099"[..], b"key100w", b"key101"] {
            k.put(key, b"beside").expect("put");
        }
        txn.commit().expect("it has read nothing");
    }
    assert_eq!(blocks(), before, "a blind delete has read");
    assert!(k.get(b"key100").expect("get").is_none());
    assert_eq!(
        k.get(b"key101").expect("get").as_deref(),
        Some(&b"beside"[..])
    );
}

#[test]
fn reads_before_a_savepoint_rolled_back_to_still_count() {
    let (_vfs, db, k) = database(tiny());
    let txn = serializable(&db);
    let mark = txn.savepoint();
    assert!(txn.get_for_update(&k, b"a").expect("get").is_none());
    txn.rollback_to(mark).expect("rollback");
    k.put(b"a", b"1").expect("the lock was given back");
    txn.put(&k, b"b", b"1").expect("put");
    assert_error!(txn.commit(), Error::Conflict { .. });
}

#[test]
fn a_keyspace_dropped_since_it_was_read_is_an_error() {
    let (_vfs, db, k) = database(tiny());
    let gone = db
        .keyspace("gone", KeyspaceOptions::default())
        .expect("keyspace");
    let txn = serializable(&db);
    assert!(txn.get(&gone, b"a").expect("get").is_none());
    txn.put(&k, b"a", b"1").expect("put");
    db.drop_keyspace(&gone).expect("drop");
    assert_error!(txn.commit(), Error::KeyspaceDropped(_));
    assert!(all(&k).is_empty());
}

#[test]
fn more_reads_than_can_be_remembered_miss_no_conflict() {
    let (_vfs, db, k) = database(tiny());
    let key = |n: u32| [&[b'k'; 100][..], &n.to_be_bytes()].concat();
    let reads = |txn: &Transaction| {
        for n in 0..20_000 {
            assert!(txn.get(&k, &key(2 * n)).expect("get").is_none());
        }
    };
    for written in [0, 17_776, 39_998] {
        let txn = serializable(&db);
        reads(&txn);
        k.put(&key(written), b"1").expect("put");
        txn.put(&k, b"z", b"1").expect("put");
        assert_error!(txn.commit(), Error::Conflict { .. });
        k.delete(&key(written)).expect("delete");
    }
    let txn = serializable(&db);
    reads(&txn);
    k.put(b"a", b"below all of them").expect("put");
    txn.put(&k, b"z", b"1").expect("put");
    txn.commit()
        .expect("joined neighbors end where the reads end");
}

/// Runs rounds of concurrent transactions that read all rows and then insert one: exactly one of
/// each round must commit.
fn rounds_of_write_skew(options: Options, optimistic: bool) {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 150;
    let (_vfs, db, k) = database(options);
    let barrier = Arc::new(Barrier::new(CLIENTS));
    let committed = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS as u8)
        .map(|client| {
            let (db, k) = (db.clone(), k.clone());
            let (barrier, committed) = (Arc::clone(&barrier), Arc::clone(&committed));
            thread::spawn(move || {
                let mut errors = Vec::new();
                for round in 0..ROUNDS {
                    let options = TransactionOptions {
                        isolation: Isolation::Serializable,
                        optimistic,
                        ..TransactionOptions::default()
                    };
                    let txn = db.begin_with(options).expect("begin");
                    let cursor = txn.cursor(&k, CursorOptions::default()).expect("cursor");
                    let before = collect(cursor, Direction::Forward, usize::MAX).len();
                    let key = [&(round as u32).to_be_bytes()[..], &[client]].concat();
                    txn.insert(&k, &key, &before.to_le_bytes()).expect("insert");
                    barrier.wait();
                    match txn.commit() {
                        Ok(()) => drop(committed.fetch_add(1, Ordering::SeqCst)),
                        Err(Error::Conflict { .. }) => {}
                        Err(other) => errors.push(other),
                    }
                    // No client begins the next round before all have committed.
                    barrier.wait();
                }
                errors
            })
        })
        .collect();
    for client in clients {
        let errors = client.join().expect("join");
        assert!(errors.is_empty(), "{errors:?}");
    }
    assert_eq!(
        committed.load(Ordering::SeqCst),
        ROUNDS,
        "one of each round"
    );
    let mut counts: Vec<_> = all(&k).into_iter().map(|(_, count)| count).collect();
    counts.sort();
    counts.dedup();
    assert_eq!(counts.len(), ROUNDS, "each has seen another number of rows");
}

#[test]
fn of_transactions_that_wait_in_the_commit_queue_together_one_wins() {
    for durability in [Durability::Buffered, Durability::Sync] {
        for optimistic in [false, true] {
            let options = Options {
                durability,
                ..tiny()
            };
            rounds_of_write_skew(options, optimistic);
        }
    }
}

/// Takes a random doctor off call if another one is on call, and otherwise puts the doctor on call.
/// Invariant: at least one doctor is on call.
fn leave_or_come(db: &Database, k: &Keyspace, rng: &mut Rng) -> Result<()> {
    let me = [rng.below(5) as u8];
    let txn = db.begin(Isolation::Serializable)?;
    let on_call = collect(
        txn.cursor(k, CursorOptions::default())?,
        *rng.pick(&[Direction::Forward, Direction::Backward]),
        usize::MAX,
    );
    if on_call.len() > 1 && on_call.iter().any(|(key, _)| *key == me) {
        txn.delete(k, &me)?;
    } else {
        txn.put(k, &me, b"on call")?;
    }
    txn.commit()
}

#[test]
fn an_invariant_over_a_range_holds_under_any_concurrent_work() {
    Seeded::run("an_invariant_over_a_range", 3, |rng| {
        let (_vfs, db, k) = database(tiny());
        k.put(&[0], b"on call").expect("put");
        let running = AtomicUsize::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                let (db, k, running) = (&db, &k, &running);
                let mut rng = Rng::new(rng.next_u64());
                scope.spawn(move || {
                    for _ in 0..150 {
                        match leave_or_come(db, k, &mut rng) {
                            Ok(()) | Err(Error::Conflict { .. } | Error::Deadlock { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                    running.fetch_sub(1, Ordering::Release);
                });
            }
            // Meanwhile flushes and compactions move entries from memory into tables.
            while running.load(Ordering::Acquire) > 0 {
                assert!(!all(&k).is_empty(), "nobody is on call");
                db.settle().expect("settle");
            }
        });
        assert!(!all(&k).is_empty(), "nobody is on call");
    });
}

#[test]
fn a_range_delete_over_what_was_read_is_a_conflict_and_its_own_is_not() {
    for settled in [false, true] {
        let (_vfs, db, k) = database(tiny());
        for row in ROWS {
            k.put(row.as_bytes(), b"1").expect("put");
        }
        db.flush().expect("flush");
        let [inside, outside, own] = [0; 3].map(|_| serializable(&db));
        let range = CursorOptions::range(b"c", b"e");
        assert_eq!(
            collect(cursor(&inside, &k, range), Direction::Forward, 9).len(),
            1
        );
        assert!(outside.get(&k, b"h").expect("get").is_some());
        own.delete_range(&k, b"a", b"c").expect("delete");
        assert!(own.get(&k, b"b").expect("get").is_none());
        k.delete_range(b"a", b"g").expect("delete");
        if settled {
            db.settle().expect("settle");
        }
        for (txn, key) in [(&inside, b"x"), (&outside, b"y"), (&own, b"z")] {
            txn.put(&k, key, b"1").expect("put");
        }
        assert_error!(inside.commit(), Error::Conflict { .. });
        outside.commit().expect("what it has read is as it was");
        own.commit().expect("it has read its own delete only");
    }
}
