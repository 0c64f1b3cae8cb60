//! Range deletes: the rows they hide, the rows they leave alone, and the return of space.

use alluvium::{
    CursorOptions, Database, Error, Isolation, Keyspace, KeyspaceOptions, Options, WriteBatch,
};
use alluvium_testkit::model::Direction;
use alluvium_testkit::random::Rng;

use crate::driver::collect;
use crate::fixture::{all, assert_error, database, of, open, rows, table_files, text, tiny};

fn key(n: usize) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// Puts rows 0 to `count` in one commit.
fn fill(db: &Database, k: &Keyspace, count: usize) {
    let (mut batch, mut rng) = (WriteBatch::new(), Rng::new(7));
    for n in 0..count {
        batch.put(k, &key(n), &rng.bytes(60)).expect("put");
    }
    db.write(&batch).expect("write");
}

fn keys_of(k: &Keyspace, direction: Direction) -> Vec<Vec<u8>> {
    let cursor = k.cursor(CursorOptions::default()).expect("cursor");
    let rows = collect(cursor, direction, usize::MAX);
    rows.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn a_range_delete_hides_its_range_wherever_the_rows_are() {
    for work in ["memory", "flushed", "settled"] {
        let (vfs, db, k) = database(tiny());
        fill(&db, &k, 500);
        match work {
            "memory" => {}
            "flushed" => db.flush().expect("flush"),
            _ => db.settle().expect("settle"),
        }
        let snapshot = db.snapshot().expect("snapshot");
        k.delete_range(&key(100), &key(400)).expect("delete");
        k.put(&key(200), b"back").expect("put");
        for round in 0..4 {
            let expected: Vec<_> = (0..100).chain([200]).chain(400..500).map(key).collect();
            assert_eq!(keys_of(&k, Direction::Forward), expected, "{work} {round}");
            let reverse: Vec<_> = expected.iter().rev().cloned().collect();
            assert_eq!(keys_of(&k, Direction::Backward), reverse, "{work} {round}");
            assert_eq!(text(&k, "key00100"), None, "{work} {round}");
            assert_eq!(text(&k, "key00200").as_deref(), Some("back"));
            assert!(k.get(&key(400)).expect("get").is_some(), "{work} {round}");
            let old = snapshot.cursor(&k, CursorOptions::default());
            assert_eq!(rows(old.expect("cursor")).len(), 500, "{work} {round}");
            match round {
                0 => db.flush().expect("flush"),
                1 => db.settle().expect("settle"),
                _ => {}
            }
        }
        drop((snapshot, k));
        db.close().expect("close");
        let db = open(&vfs, tiny());
        let k = db.existing_keyspace("k").expect("look").expect("keyspace");
        assert_eq!(all(&k).len(), 201, "{work}");
    }
}

#[test]
fn a_filter_that_rules_a_table_out_does_not_rule_out_its_range_deletes() {
    let (_vfs, db, _) = database(tiny());
    let options = KeyspaceOptions {
        prefix_filter_bytes: Some(4),
        ..KeyspaceOptions::default()
    };
    let k = db.keyspace("filtered", options).expect("keyspace");
    for n in 0..50 {
        k.put(format!("pre{}x", n % 10).as_bytes(), b"v")
            .expect("put");
    }
    db.flush().expect("flush");
    // The table of this flush has no key with the requested prefixes.
    k.delete_range(b"pre2", b"pre8").expect("delete");
    k.put(b"zzzz", b"other").expect("put");
    for _ in 0..2 {
        for n in 0..10 {
            let prefix = format!("pre{n}");
            let options = CursorOptions::prefix(prefix.as_bytes());
            let found = rows(k.cursor(options).expect("cursor")).len();
            assert_eq!(found, usize::from(!(2..8).contains(&n)), "{prefix}");
            let whole = format!("pre{n}x");
            assert_eq!(text(&k, &whole).is_some(), !(2..8).contains(&n), "{whole}");
        }
        db.flush().expect("flush");
    }
}

#[test]
fn tables_inside_a_deleted_range_are_removed_at_its_flush_without_a_compaction() {
    let eager = Options {
        upper_fraction: 0.02,
        ..tiny()
    };
    let (vfs, db, k) = database(eager);
    fill(&db, &k, 4000);
    db.settle().expect("settle");
    drop(k);
    db.close().expect("close");
    // From here on no compaction is due, because the upper tables are small.
    let lazy = Options {
        memtable_bytes: Some(1 << 20),
        upper_fraction: 1.0,
        ..tiny()
    };
    let db = open(&vfs, lazy);
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    let before = db.stats().expect("stats");
    let files = table_files(&vfs).len();
    assert!(files > 20, "{files} files");
    let snapshot = db.snapshot().expect("snapshot");
    k.delete_prefix(b"key0").expect("delete");
    db.flush().expect("flush");
    assert_eq!(
        of(&db.stats().expect("stats"), "k").last_tables,
        of(&before, "k").last_tables
    );
    drop(snapshot);
    k.delete_prefix(b"key0").expect("delete");
    db.flush().expect("flush");
    let after = db.stats().expect("stats");
    // Only the range deletes were written, to each group: no row of the 280 KB was read or
    // rewritten.
    let written = after.table_bytes_written - before.table_bytes_written;
    assert!(written < 50_000, "{after:?}");
    assert_eq!(of(&after, "k").last_tables, 0, "{after:?}");
    assert!(all(&k).is_empty());
}

#[test]
fn writes_of_one_batch_keep_their_order_around_a_range_delete() {
    for flush in [false, true] {
        let (_vfs, db, k) = database(tiny());
        k.put(b"b", b"old").expect("put");
        let mut batch = WriteBatch::new();
        batch.put(&k, b"c", b"gone").expect("put");
        batch.delete_range(&k, b"a", b"x").expect("delete");
        batch.insert(&k, b"d", b"kept").expect("insert");
        batch.insert(&k, b"b", b"new").expect("insert");
        db.write(&batch).expect("write");
        if flush {
            db.flush().expect("flush");
        }
        assert_eq!(text(&k, "b").as_deref(), Some("new"));
        assert_eq!(text(&k, "c"), None);
        assert_eq!(text(&k, "d").as_deref(), Some("kept"));
        // A delete of the inserted row must not bring back the version that the range delete hides.
        k.delete(b"b").expect("delete");
        db.settle().expect("settle");
        assert_eq!(text(&k, "b"), None);
    }
}

#[test]
fn a_delete_beside_a_range_delete_does_not_cancel_an_insert_above_rows_that_the_range_hides() {
    let options = Options {
        idle_after: None,
        memtable_bytes: None,
        table_bytes: 1 << 20,
        ..tiny()
    };
    let (_vfs, db, k) = database(options);
    let flushed = |body: &dyn Fn(&mut WriteBatch)| {
        let mut batch = WriteBatch::new();
        body(&mut batch);
        db.write(&batch).expect("write");
        db.flush().expect("flush");
    };
    // So much that four small tables above it are not due for compaction.
    flushed(&|batch| {
        for n in 0..3000 {
            batch.put(&k, &key(n), &[7; 60]).expect("put");
        }
    });
    k.compact_range(&[], None).expect("compact");
    // Reaches beyond the range, as the third table does, so the compaction reads both.
    flushed(&|batch| {
        batch.put(&k, b"a", b"oldest").expect("put");
        batch.put(&k, b"y", b"1").expect("put");
    });
    // The range delete hides all of this table, so the compaction leaves the table out, and with it
    // the delete.
    flushed(&|batch| {
        batch.delete(&k, b"a").expect("delete");
        batch.put(&k, b"b", b"1").expect("put");
    });
    flushed(&|batch| {
        batch.insert(&k, b"a", b"new").expect("insert");
        batch.put(&k, b"z", b"1").expect("put");
    });
    flushed(&|batch| {
        batch.delete_range(&k, b"a", b"c").expect("delete a range");
        batch.delete(&k, b"a").expect("delete");
    });
    assert_eq!(of(&db.stats().expect("stats"), "k").upper_tables, 4);
    assert_eq!(text(&k, "a"), None);
    k.compact_range(&[], None).expect("compact");
    assert_eq!(text(&k, "a"), None);
    assert_eq!(all(&k).len(), 3002);
}

#[test]
fn a_transaction_sees_its_own_range_delete_and_a_rollback_takes_it_back() {
    let (_vfs, db, k) = database(tiny());
    fill(&db, &k, 10);
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    let count = |options: CursorOptions| rows(txn.cursor(&k, options).expect("cursor")).len();
    txn.put(&k, &key(3), b"own").expect("put");
    let savepoint = txn.savepoint();
    let mut before = txn.cursor(&k, CursorOptions::default()).expect("cursor");
    txn.delete_range(&k, &key(2), &key(8)).expect("delete");
    txn.put(&k, &key(5), b"later").expect("put");
    assert_eq!(count(CursorOptions::default()), 5);
    assert_eq!(txn.get(&k, &key(3)).expect("get"), None);
    assert_eq!(txn.get(&k, &key(4)).expect("get"), None);
    assert!(txn.get(&k, &key(5)).expect("get").is_some());
    assert_eq!(k.get(&key(4)).expect("get").map(|v| v.len()), Some(60));
    let mut seen = 0;
    let mut found = before.seek_last().expect("seek");
    while found {
        seen += 1;
        found = before.prev().expect("prev");
    }
    assert_eq!(seen, 10, "a cursor sees no later range delete");
    drop(before);
    txn.rollback_to(savepoint).expect("rollback");
    assert_eq!(count(CursorOptions::default()), 10);
    assert_eq!(
        txn.get(&k, &key(3)).expect("get").as_deref(),
        Some(&b"own"[..])
    );
    txn.delete_range(&k, &key(0), &key(9)).expect("delete");
    txn.commit().expect("commit");
    assert_eq!(keys_of(&k, Direction::Forward), [key(9)]);
}

#[test]
fn own_rows_in_a_dead_interval_are_found_after_a_scan_to_the_end() {
    let (_vfs, db, k) = database(tiny());
    fill(&db, &k, 100);
    for n in 10..90 {
        k.delete(&key(n)).expect("delete");
    }
    // The scan records a dead interval.
    assert_eq!(all(&k).len(), 20);
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    txn.put(&k, &key(50), b"own").expect("put");
    txn.put(&k, &key(99), b"own too").expect("put");
    let options = CursorOptions::range(&key(5), &key(95));
    let mut cursor = txn.cursor(&k, options).expect("cursor");
    let mut found = cursor.seek_first().expect("seek");
    while found {
        found = cursor.next().expect("next");
    }
    assert!(cursor.seek(&key(20)).expect("seek"));
    assert_eq!(cursor.key(), key(50));
    found = true;
    while found {
        found = cursor.next().expect("next");
    }
    assert!(cursor.seek_before(&key(80)).expect("seek"));
    assert_eq!(cursor.key(), key(50));
}

#[test]
fn a_range_delete_is_a_conflict_for_a_transaction_that_writes_one_of_its_rows() {
    for flush in [false, true] {
        let (_vfs, db, k) = database(tiny());
        fill(&db, &k, 10);
        let txn = db.begin(Isolation::Snapshot).expect("begin");
        txn.put(&k, &key(9), b"free").expect("put");
        k.delete_range(&key(0), &key(5)).expect("delete");
        if flush {
            db.flush().expect("flush");
        }
        assert_error!(txn.put(&k, &key(3), b"late"), Error::Conflict { .. });
        txn.put(&k, &key(6), b"free").expect("put");
    }
}

#[test]
fn a_prefix_without_an_end_is_deleted_to_the_last_key() {
    let (_vfs, db, k) = database(tiny());
    let largest = vec![0xFF; alluvium::KEY_BYTES_MAX];
    for key in [&b"a"[..], b"\xFE\xFF", b"\xFF", b"\xFF\xFFz", &largest] {
        k.put(key, b"v").expect("put");
    }
    k.delete_prefix(b"\xFF").expect("delete");
    assert_eq!(keys_of(&k, Direction::Forward), [&b"a"[..], b"\xFE\xFF"]);
    db.settle().expect("settle");
    k.delete_prefix(b"").expect("delete");
    assert!(all(&k).is_empty());
    db.settle().expect("settle");
    assert!(all(&k).is_empty());
}

#[test]
fn empty_and_overlong_ranges_are_refused() {
    let (_vfs, db, k) = database(tiny());
    assert_error!(k.delete_range(b"b", b"b"), Error::InvalidArgument(_));
    assert_error!(k.delete_range(b"c", b"b"), Error::InvalidArgument(_));
    let long = vec![1; alluvium::KEY_BYTES_MAX + 1];
    assert_error!(k.delete_range(b"", &long), Error::InvalidArgument(_));
    assert_error!(k.delete_prefix(&long), Error::InvalidArgument(_));
    let mut batch = WriteBatch::new();
    assert_error!(
        batch.delete_range(&k, b"b", b"a"),
        Error::InvalidArgument(_)
    );
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    assert_error!(txn.delete_range(&k, b"b", b"a"), Error::InvalidArgument(_));
}
