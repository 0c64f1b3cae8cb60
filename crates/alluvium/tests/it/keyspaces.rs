//! Keyspaces are created, dropped and created again while cursors and snapshots read.

use std::collections::BTreeMap;
use std::time::Duration;

use alluvium::vfs::CrashOptions;
use alluvium::{
    Compression, CursorOptions, Error, Expiry, Isolation, KEYSPACE_NAME_BYTES_MAX, Keyspace,
    KeyspaceOptions, Options, SeqNo, WriteBatch,
};
use alluvium_testkit::random::Rng;

use crate::fixture::{all, assert_error, database, of, open, rows, table_files, text, tiny};
use crate::hooks::wait_until;

fn fill(keyspace: &Keyspace, count: u32) {
    for n in 0..count {
        let value = [n as u8; 60];
        keyspace
            .put(format!("key{n:05}").as_bytes(), &value)
            .expect("put");
    }
}

#[test]
fn creating_twice_gives_the_same_keyspace_with_its_first_options() {
    let (_vfs, db, _) = database(tiny());
    let first = KeyspaceOptions {
        compression: Compression::None,
        ..KeyspaceOptions::default()
    };
    let one = db.keyspace("a", first.clone()).expect("create");
    let two = db.keyspace("a", KeyspaceOptions::default()).expect("open");
    assert_eq!((one.id(), two.options()), (two.id(), first));
    assert_eq!(db.keyspace_names().expect("names"), ["a", "k"]);
    assert!(db.existing_keyspace("b").expect("look").is_none());
}

#[test]
fn options_out_of_range_are_refused() {
    let (_vfs, db, _) = database(tiny());
    let refused = [
        KeyspaceOptions {
            prefix_filter_bytes: Some(0),
            ..KeyspaceOptions::default()
        },
        KeyspaceOptions {
            prefix_filter_bytes: Some(256),
            ..KeyspaceOptions::default()
        },
        KeyspaceOptions {
            block_bytes: 512,
            ..KeyspaceOptions::default()
        },
    ];
    for options in refused {
        assert_error!(db.keyspace("bad", options), Error::InvalidArgument(_));
    }
    assert_eq!(db.keyspace_names().expect("names"), ["k"]);
}

#[test]
fn names_may_be_any_text() {
    let (vfs, db, _) = database(tiny());
    let long = "n".repeat(KEYSPACE_NAME_BYTES_MAX);
    let names = ["", "k", "ключ/../\n\0", long.as_str()];
    for name in names {
        let keyspace = db
            .keyspace(name, KeyspaceOptions::default())
            .expect("create");
        keyspace.put(b"name", name.as_bytes()).expect("put");
    }
    let longer = format!("{long}n");
    let created = db.keyspace(&longer, KeyspaceOptions::default());
    assert_error!(created, Error::InvalidArgument(_));
    assert!(db.existing_keyspace(&longer).expect("look").is_none());
    db.close().expect("close");
    let db = open(&vfs, tiny());
    for name in names {
        let keyspace = db.existing_keyspace(name).expect("look").expect("keyspace");
        assert_eq!(text(&keyspace, "name").as_deref(), Some(name));
    }
}

#[test]
fn options_survive_reopening() {
    let (vfs, db, _) = database(tiny());
    let options = KeyspaceOptions {
        whole_key_filter: false,
        prefix_filter_bytes: Some(255),
        expect_hits: true,
        compression: Compression::Lz4,
        block_bytes: 64 << 10,
        expiry: Expiry::After(Duration::from_secs(7)),
        value_separation_bytes: Some(300),
    };
    let before = db.keyspace("a", options.clone()).expect("create");
    db.close().expect("close");
    let db = open(&vfs, tiny());
    let after = db.existing_keyspace("a").expect("look").expect("keyspace");
    assert_eq!((after.options(), after.id()), (options, before.id()));
}

#[test]
fn every_call_on_a_dropped_keyspace_is_refused_also_steps_of_open_cursors() {
    for flushed in [false, true] {
        let (_vfs, db, k) = database(tiny());
        fill(&k, 300);
        if flushed {
            db.settle().expect("settle");
        }
        let snapshot = db.snapshot().expect("snapshot");
        let txn = db.begin(Isolation::ReadCommitted).expect("begin");
        let mut forward = k.cursor(CursorOptions::default()).expect("cursor");
        let mut backward = k.cursor(CursorOptions::default()).expect("cursor");
        assert!(forward.seek_first().expect("seek") && backward.seek_last().expect("seek"));
        db.drop_keyspace(&k).expect("drop");
        // The cursors own their current rows.
        assert_eq!(
            (forward.key(), backward.key()),
            (&b"key00000"[..], &b"key00299"[..])
        );
        assert_error!(forward.next(), Error::KeyspaceDropped(_));
        assert_error!(backward.prev(), Error::KeyspaceDropped(_));
        assert!(!forward.valid() && !forward.next().expect("from no row"));
        assert_error!(forward.seek_first(), Error::KeyspaceDropped(_));
        assert_error!(k.get(b"key00000"), Error::KeyspaceDropped(_));
        assert_error!(k.put(b"a", b"1"), Error::KeyspaceDropped(_));
        assert_error!(
            k.cursor(CursorOptions::default()),
            Error::KeyspaceDropped(_)
        );
        assert_error!(snapshot.get(&k, b"key00000"), Error::KeyspaceDropped(_));
        assert_error!(txn.put(&k, b"a", b"1"), Error::KeyspaceDropped(_));
        assert_error!(
            WriteBatch::new().put(&k, b"a", b"1"),
            Error::KeyspaceDropped(_)
        );
        assert_error!(db.drop_keyspace(&k), Error::KeyspaceDropped(_));
    }
}

#[test]
fn a_name_created_again_is_an_empty_keyspace_with_a_new_id() {
    let (vfs, mut db, mut k) = database(tiny());
    let mut ids = vec![k.id()];
    for round in 0..4 {
        fill(&k, 200);
        if round % 2 == 0 {
            db.flush().expect("flush");
        }
        db.drop_keyspace(&k).expect("drop");
        if round >= 2 {
            db.close().expect("close");
            db = open(&vfs, tiny());
            assert!(db.keyspace_names().expect("names").is_empty());
        }
        k = db
            .keyspace("k", KeyspaceOptions::default())
            .expect("create");
        assert!(all(&k).is_empty(), "round {round}");
        assert!(!ids.contains(&k.id()));
        ids.push(k.id());
    }
    db.close().expect("close");
    let db = open(&vfs, tiny());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert!(all(&k).is_empty(), "a dropped keyspace's log came back");
}

#[test]
fn dropping_a_keyspace_gives_its_files_back_under_a_cursor_at_rest() {
    let (vfs, db, k) = database(tiny());
    let other = db
        .keyspace("other", KeyspaceOptions::default())
        .expect("create");
    other.put(b"a", b"1").expect("put");
    db.settle().expect("settle");
    let others = table_files(&vfs);
    fill(&k, 500);
    db.settle().expect("settle");
    assert!(table_files(&vfs).len() > others.len());
    let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
    assert!(cursor.seek_first().expect("seek"));
    db.drop_keyspace(&k).expect("drop");
    // A background thread that looks for work may hold the tables a little longer.
    wait_until(|| table_files(&vfs) == others);
    assert_eq!(cursor.key(), b"key00000");
}

#[test]
fn a_drop_with_unflushed_rows_does_not_disturb_the_flush_of_the_others() {
    let (vfs, db, k) = database(tiny());
    let other = db
        .keyspace("other", KeyspaceOptions::default())
        .expect("create");
    fill(&k, 30);
    fill(&other, 30);
    db.drop_keyspace(&k).expect("drop");
    fill(&other, 40);
    db.flush().expect("flush");
    assert_eq!(all(&other).len(), 40);
    drop(db);
    drop((k, other));
    let db = open(&vfs, tiny());
    let other = db
        .existing_keyspace("other")
        .expect("look")
        .expect("keyspace");
    assert_eq!(all(&other).len(), 40);
}

#[test]
fn a_batch_over_keyspaces_is_one_commit() {
    let (_vfs, db, a) = database(tiny());
    let b = db
        .keyspace("b", KeyspaceOptions::default())
        .expect("create");
    a.put(b"gone", b"1").expect("put");
    let before: SeqNo = db.visible_seqno();
    let mut batch = WriteBatch::new();
    batch.put(&a, b"x", b"first").expect("put");
    batch.put(&b, b"x", b"in b").expect("put");
    batch.delete(&a, b"gone").expect("delete");
    batch.put(&a, b"x", b"last").expect("put");
    assert_eq!(batch.len(), 3);
    db.write(&batch).expect("write");
    assert_eq!(db.visible_seqno(), before + 1);
    assert_eq!(all(&a), [(b"x".to_vec(), b"last".to_vec())]);
    assert_eq!(text(&b, "x").as_deref(), Some("in b"));
}

#[test]
fn a_keyspace_of_another_database_is_refused_everywhere() {
    let (_vfs, db, k) = database(tiny());
    let (_other_vfs, other, foreign) = database(tiny());
    let mut batch = WriteBatch::new();
    batch
        .put(&foreign, b"a", b"1")
        .expect("its own database's batch");
    assert_error!(db.write(&batch), Error::InvalidArgument(_));
    assert_error!(batch.put(&k, b"a", b"1"), Error::InvalidArgument(_));
    assert_error!(db.drop_keyspace(&foreign), Error::InvalidArgument(_));
    let snapshot = db.snapshot().expect("snapshot");
    assert_error!(snapshot.get(&foreign, b"a"), Error::InvalidArgument(_));
    let cursor = snapshot.cursor(&foreign, CursorOptions::default());
    assert_error!(cursor, Error::InvalidArgument(_));
    other.write(&batch).expect("write");
    assert_eq!(
        (text(&foreign, "a").as_deref(), text(&k, "a")),
        (Some("1"), None)
    );
}

#[test]
fn a_closed_database_refuses_all_calls() {
    let (_vfs, db, k) = database(tiny());
    fill(&k, 100);
    let snapshot = db.snapshot().expect("snapshot");
    let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
    let mut back = k.cursor(CursorOptions::default()).expect("cursor");
    assert!(cursor.seek_first().expect("seek") && back.seek_last().expect("seek"));
    db.close().expect("close");
    db.close().expect("closing again does nothing");
    assert_eq!(cursor.key(), b"key00000");
    assert_error!(cursor.next(), Error::Closed);
    assert_error!(back.prev(), Error::Closed);
    assert_error!(k.get(b"key00000"), Error::Closed);
    assert_error!(k.put(b"a", b"1"), Error::Closed);
    assert_error!(cursor.seek_first(), Error::Closed);
    assert_error!(snapshot.get(&k, b"a"), Error::Closed);
    assert_error!(db.snapshot(), Error::Closed);
    assert_error!(db.begin(Isolation::Snapshot), Error::Closed);
    assert_error!(db.keyspace("k", KeyspaceOptions::default()), Error::Closed);
    assert_error!(db.drop_keyspace(&k), Error::Closed);
    assert_error!(db.flush(), Error::Closed);
    assert_error!(db.sync(), Error::Closed);
    assert_error!(db.stats(), Error::Closed);
    assert_error!(db.write(&WriteBatch::new()), Error::Closed);
}

#[test]
fn the_space_budget_is_one_for_all_keyspaces() {
    let options = |upper_fraction| Options {
        upper_fraction,
        ..tiny()
    };
    let (vfs, db, quiet) = database(options(0.02));
    let mut rng = Rng::new(1);
    let mut put_noise = |keyspace: &Keyspace, rows: u32| {
        for row in 0..rows {
            keyspace
                .put(&row.to_be_bytes(), &rng.bytes(300))
                .expect("put");
        }
    };
    put_noise(&quiet, 600);
    db.settle().expect("settle");
    db.close().expect("close");
    let db = open(&vfs, options(0.25));
    let hot = db
        .keyspace("hot", KeyspaceOptions::default())
        .expect("keyspace");
    put_noise(&hot, 60);
    db.settle().expect("settle");
    let stats = db.stats().expect("stats");
    let (quiet, hot) = (of(&stats, "k"), of(&stats, "hot"));
    // Far more than a quarter of the keyspace's own last level, which is still empty.
    assert!(hot.upper_bytes > 15_000 && hot.last_bytes == 0, "{stats:?}");
    let upper = hot.upper_bytes + quiet.upper_bytes;
    assert!(upper * 4 <= quiet.last_bytes, "{stats:?}");
}

/// Returns keys that share prefixes of every length, and short keys.
fn prefixed(n: u32) -> Vec<u8> {
    let text = format!("{:02}:{:02}:{n:04}", n % 7, n % 3);
    match n % 50 {
        0 => text.as_bytes()[..n as usize % 5 + 1].to_vec(),
        _ => text.into_bytes(),
    }
}

/// Checks scans of prefixes of several lengths and point reads against the model.
fn check_prefixes(k: &Keyspace, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let prefixes = (0..7).flat_map(|a| {
        let text = format!("{a:02}:01:");
        [1, 2, 3, 6].map(|bytes| text.as_bytes()[..bytes].to_vec())
    });
    for prefix in prefixes {
        let found = rows(k.cursor(CursorOptions::prefix(&prefix)).expect("cursor"));
        let expected = model.iter().filter(|(key, _)| key.starts_with(&prefix));
        let expected: Vec<_> = expected.map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(found, expected, "{prefix:?}");
    }
    for (key, value) in model {
        assert_eq!(k.get(key).expect("get").as_deref(), Some(&value[..]));
    }
}

#[test]
fn no_row_is_lost_when_the_prefix_filter_changes_under_memtables_tables_and_cursors() {
    let (vfs, db, k) = database(Options {
        upper_fraction: 0.02,
        ..tiny()
    });
    let mut model = BTreeMap::new();
    let with = |prefix: Option<usize>| KeyspaceOptions {
        prefix_filter_bytes: prefix,
        whole_key_filter: prefix != Some(2),
        compression: match prefix {
            Some(2) => Compression::None,
            _ => Compression::Lz4,
        },
        ..KeyspaceOptions::default()
    };
    let mut n = 0;
    for (round, prefix) in [None, Some(2), Some(6), Some(1), None, Some(3)]
        .into_iter()
        .enumerate()
    {
        for _ in 0..60 {
            n += 1;
            let value = vec![round as u8; 20];
            k.put(&prefixed(n), &value).expect("put");
            model.insert(prefixed(n), value);
        }
        // Now the prefix filters of the active memtable and of the options differ.
        k.set_options(with(prefix)).expect("options");
        assert_eq!(k.options(), with(prefix));
        check_prefixes(&k, &model);
        n += 1;
        k.put(&prefixed(n), b"after").expect("put");
        model.insert(prefixed(n), b"after".to_vec());
        check_prefixes(&k, &model);
        match round % 3 {
            0 => db.flush().expect("flush"),
            1 => db.settle().expect("settle"),
            _ => {}
        }
        check_prefixes(&k, &model);
    }
    let bad = KeyspaceOptions {
        block_bytes: 1,
        ..with(None)
    };
    assert_error!(k.set_options(bad), Error::InvalidArgument(_));
    let expiring = KeyspaceOptions {
        expiry: Expiry::PerRow,
        ..with(None)
    };
    assert_error!(k.set_options(expiring), Error::InvalidArgument(_));
    // Power fails: the options are as durable as a commit under `Sync`.
    let left = vfs.crash(1, CrashOptions::LOSE_UNSYNCED);
    let db = open(&left, tiny());
    let k = db.existing_keyspace("k").expect("look").expect("keyspace");
    assert_eq!(k.options(), with(Some(3)));
    db.drop_keyspace(&k).expect("drop");
    assert_error!(k.set_options(with(None)), Error::KeyspaceDropped(_));
}

#[test]
fn the_memory_budget_changes_while_the_database_is_open() {
    let options = Options {
        memory_bytes: 64 << 20,
        memtable_bytes: None,
        ..tiny()
    };
    let (_vfs, db, k) = database(options);
    let mut rng = Rng::new(1);
    let mut written = 0_u32;
    let mut fill = |bytes: usize| {
        for _ in 0..bytes / 1_000 {
            k.put(&written.to_be_bytes(), &rng.bytes(1_000))
                .expect("put");
            written += 1;
        }
    };
    fill(12 << 20);
    db.settle().expect("settle");
    assert_eq!(all(&k).len(), 12_582);
    assert!(db.stats().expect("stats").cache_used_bytes > 6 << 20);
    assert_error!(db.set_memory_bytes(1), Error::InvalidArgument(_));
    db.set_memory_bytes(8 << 20).expect("memory");
    assert!(db.stats().expect("stats").cache_used_bytes <= 6 << 20);
    // Memtables are now sealed at 1 MiB and flushed from 2 MiB, instead of 2 and 8 MiB.
    let flushes = db.stats().expect("stats").flushes;
    fill(6 << 20);
    while db.stats().expect("stats").flushes == flushes {
        std::thread::yield_now();
    }
}
