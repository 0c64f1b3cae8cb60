//! Cursors at rest: files that flushes and compactions replace are removed although cursors are
//! open, and the next call of a cursor continues unaffected.

use alluvium::vfs::MemVfs;
use alluvium::{
    Cursor, CursorOptions, Database, Isolation, Keyspace, KeyspaceOptions, Options, SeqNo, Snapshot,
};
use alluvium_testkit::random::Rng;

use crate::fixture::{Row, all, database, open, table_files, tiny};

fn key(n: usize) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

fn fill(keyspace: &Keyspace, rows: std::ops::Range<usize>, byte: u8) {
    for n in rows {
        keyspace.put(&key(n), &[byte; 60]).expect("put");
    }
}

fn cursor(keyspace: &Keyspace) -> Cursor {
    keyspace.cursor(CursorOptions::default()).expect("cursor")
}

fn released(db: &Database) -> u64 {
    db.stats().expect("stats").cursors_released
}

/// Returns the names of table and value files.
fn stored(vfs: &MemVfs) -> Vec<String> {
    use alluvium::vfs::Vfs;
    let mut names = vfs.list(crate::fixture::dir()).expect("list");
    names.retain(|name| name.ends_with(".sst") || name.ends_with(".val"));
    names
}

#[test]
fn a_cursor_at_rest_keeps_no_file_that_compactions_replaced() {
    let (vfs, db, k) = database(tiny());
    fill(&k, 0..300, 1);
    db.settle().expect("settle");
    let snapshot = db.snapshot().expect("snapshot");
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    let of_snapshot = snapshot.cursor(&k, CursorOptions::default());
    let of_txn = txn.cursor(&k, CursorOptions::default());
    let mut cursors = [
        cursor(&k),
        of_snapshot.expect("cursor"),
        of_txn.expect("cursor"),
    ];
    for (n, cursor) in cursors.iter_mut().enumerate() {
        assert!(cursor.seek(&key(100 * n)).expect("seek"));
    }
    let old = table_files(&vfs);
    for round in 2..8 {
        fill(&k, 0..300, round);
        db.flush().expect("flush");
        k.compact_range(&[], None).expect("compact");
    }
    let now = table_files(&vfs);
    assert!(
        !old.iter().any(|name| now.contains(name)),
        "{old:?} {now:?}"
    );
    assert!(released(&db) >= 3, "one for each cursor");
    // Each cursor rests on an old version that is gone everywhere else.
    for (n, cursor) in cursors.iter_mut().enumerate() {
        assert_eq!(
            (cursor.key(), cursor.value()),
            (&key(100 * n)[..], &[1; 60][..])
        );
        assert!(cursor.next().expect("next"));
        assert_eq!(
            (cursor.key(), cursor.value()),
            (&key(100 * n + 1)[..], &[1; 60][..])
        );
    }
    drop(cursors);
    assert_eq!(table_files(&vfs), now, "the cursors have kept files");
}

#[test]
fn an_idle_cursor_releases_each_state_once() {
    let (_vfs, db, k) = database(Options {
        idle_after: None,
        ..tiny()
    });
    let mut never_moved = cursor(&k);
    fill(&k, 0..10, 1);
    db.flush().expect("flush");
    assert_eq!(released(&db), 0, "it had taken none");
    assert!(
        !never_moved.seek_first().expect("seek"),
        "nothing was there"
    );
    let mut resting = cursor(&k);
    assert!(resting.seek_first().expect("seek"));
    // Both cursors hold the current state.
    for _ in 0..3 {
        fill(&k, 0..10, 2);
        db.flush().expect("flush");
        assert_eq!(released(&db), 2);
    }
    // No background work is left after this.
    db.settle().expect("settle");
    assert!(resting.next().expect("next"));
    drop(resting);
    fill(&k, 0..10, 3);
    db.flush().expect("flush");
    assert_eq!(released(&db), 2, "a closed cursor is not asked");
}

/// Returns the rows of a cursor from its current row on, in one direction.
fn walk(cursor: &mut Cursor, backward: bool) -> Vec<Row> {
    let mut rows = vec![(cursor.key().to_vec(), cursor.value().to_vec())];
    loop {
        let moved = if backward {
            cursor.prev()
        } else {
            cursor.next()
        };
        if !moved.expect("step") {
            return rows;
        }
        rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
    }
}

#[test]
fn a_cursor_goes_on_in_both_directions_over_what_was_deleted_and_overwritten_meanwhile() {
    for backward in [false, true] {
        for from_tables in [false, true] {
            let (_vfs, db, k) = database(tiny());
            fill(&k, 0..200, 1);
            if from_tables {
                db.settle().expect("settle");
            }
            let mut expected = all(&k);
            let mut resting = cursor(&k);
            assert!(resting.seek(&key(100)).expect("seek"));
            // The cursor's row, its neighbors, and then everything.
            for n in 98..103 {
                k.delete(&key(n)).expect("delete");
            }
            fill(&k, 110..150, 2);
            k.delete_range(&key(20), &key(40)).expect("delete");
            db.settle().expect("settle");
            k.delete_range(b"", b"z").expect("delete");
            db.flush().expect("flush");
            k.compact_range(&[], None).expect("compact");
            assert!(all(&k).is_empty());
            if backward {
                expected.truncate(101);
                expected.reverse();
            } else {
                drop(expected.drain(..100))
            }
            assert!(released(&db) > 0);
            assert_eq!(
                walk(&mut resting, backward),
                expected,
                "backward: {backward}"
            );
        }
    }
}

#[test]
fn a_turn_after_a_rest_finds_the_other_neighbor() {
    let (_vfs, db, k) = database(tiny());
    fill(&k, 0..50, 1);
    let mut resting = cursor(&k);
    assert!(resting.seek(&key(10)).expect("seek") && resting.next().expect("next"));
    let rest = |byte| {
        fill(&k, 0..50, byte);
        db.settle().expect("settle");
    };
    rest(2);
    assert!(resting.prev().expect("prev"));
    assert_eq!(resting.key(), key(10));
    rest(3);
    assert!(resting.next().expect("next"));
    assert_eq!(
        (resting.key(), resting.value()),
        (&key(11)[..], &[1; 60][..])
    );
    rest(4);
    assert!(resting.seek_before(&key(11)).expect("seek"));
    assert_eq!(resting.key(), key(10));
}

#[test]
fn rows_of_every_kind_stay_readable_while_their_cursor_rests() {
    let (vfs, db, _) = database(tiny());
    let options = KeyspaceOptions {
        value_separation_bytes: Some(2_000),
        ..KeyspaceOptions::default()
    };
    let k = db.keyspace("values", options).expect("keyspace");
    let mut rng = Rng::new(1);
    let values: Vec<Vec<u8>> = [0, 10, 64, 65, 1_500, 5_000]
        .iter()
        .map(|&bytes| rng.bytes(bytes))
        .collect();
    for (n, value) in values.iter().enumerate() {
        k.put(&key(n), value).expect("put");
    }
    let old = stored(&vfs);
    for place in ["memory", "tables"] {
        let resting: Vec<Cursor> = (0..values.len())
            .map(|n| {
                let mut resting = cursor(&k);
                assert!(resting.seek(&key(n)).expect("seek"));
                resting
            })
            .collect();
        for (n, value) in values.iter().enumerate() {
            k.put(&key(n), value).expect("put");
        }
        db.flush().expect("flush");
        k.compact_range(&[], None).expect("compact");
        assert!(!old.iter().any(|name| stored(&vfs).contains(name)));
        for (resting, value) in resting.iter().zip(&values) {
            assert!(resting.value() == value, "{place}");
            assert!(resting.pin_value()[..] == value[..], "{place}");
        }
    }
}

#[test]
fn an_ingest_under_a_cursor_at_rest_stays_unseen() {
    let (_vfs, db, k) = database(tiny());
    fill(&k, 0..20, 1);
    let (mut resting, before) = (cursor(&k), all(&k));
    assert!(resting.seek_first().expect("seek"));
    let mut ingest = db.ingest().expect("ingest");
    for n in 0..40 {
        ingest.put(&k, &key(n), b"ingested").expect("put");
    }
    ingest.finish().expect("finish");
    db.settle().expect("settle");
    assert_eq!(walk(&mut resting, false), before);
}

#[test]
fn a_transactions_cursor_keeps_its_own_writes_over_a_rest() {
    let (_vfs, db, k) = database(tiny());
    fill(&k, 0..20, 1);
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    txn.put(&k, &key(5), b"own").expect("put");
    txn.delete(&k, &key(6)).expect("delete");
    txn.delete_range(&k, &key(10), &key(15)).expect("delete");
    let mut resting = txn.cursor(&k, CursorOptions::default()).expect("cursor");
    assert!(resting.seek(&key(4)).expect("seek"));
    txn.put(&k, &key(7), b"later").expect("put");
    let other = db.keyspace("other", KeyspaceOptions::default());
    fill(&other.expect("keyspace"), 0..300, 9);
    fill(&k, 15..20, 2);
    db.settle().expect("settle");
    let rows = walk(&mut resting, false);
    let keys: Vec<&[u8]> = rows.iter().map(|(key, _)| &key[..]).collect();
    let expected = [4, 5, 7, 8, 9, 15, 16, 17, 18, 19].map(key);
    assert_eq!(keys, expected.each_ref().map(|key| &key[..]));
    assert_eq!(rows[1].1, b"own");
    assert!(rows[2..].iter().all(|(_, value)| value == &[1; 60]));
}

#[test]
fn moving_cursors_meet_every_state_during_writes_and_compactions() {
    let (vfs, db, k) = database(tiny());
    fill(&k, 0..400, 1);
    let expected = all(&k);
    let scan = |snapshot: &Snapshot| {
        let mut reader = snapshot
            .cursor(&k, CursorOptions::default())
            .expect("cursor");
        assert!(reader.seek_first().expect("seek"));
        walk(&mut reader, false)
    };
    let snapshot = db.snapshot().expect("snapshot");
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| (0..10).all(|_| scan(&snapshot) == expected)))
            .collect();
        for round in 2..6 {
            fill(&k, 0..400, round);
            db.settle().expect("settle");
        }
        for reader in readers {
            assert!(reader.join().expect("join"), "a scan has missed rows");
        }
    });
    let visible: SeqNo = db.visible_seqno();
    drop((snapshot, k));
    db.close().expect("close");
    assert_eq!(open(&vfs, tiny()).visible_seqno(), visible);
}
