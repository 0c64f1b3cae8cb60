//! Cursors at edges, across changes of the tree, with filters of every kind and rows of every size.

use std::collections::BTreeMap;

use alluvium::{
    Compression, Cursor, CursorOptions, KEY_BYTES_MAX, Keyspace, KeyspaceOptions, Options,
};
use alluvium_testkit::random::{Rng, Seeded};

use crate::fixture::{Row, all, database, of, rows, tiny};

fn cursor(keyspace: &Keyspace, options: CursorOptions) -> Cursor {
    keyspace.cursor(options).expect("cursor")
}

/// Returns options with small groups: a few dozen rows make several of them.
fn many_groups() -> Options {
    Options {
        upper_fraction: 0.02,
        ..tiny()
    }
}

fn key(n: usize) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// Puts rows with even numbers, with values long enough to make several groups.
fn fill(keyspace: &Keyspace, rng: &mut Rng, count: usize) {
    for n in 0..count {
        keyspace.put(&key(2 * n), &rng.bytes(100)).expect("put");
    }
}

#[test]
fn an_empty_keyspace_has_no_rows_in_any_direction() {
    let (_vfs, db, k) = database(tiny());
    for _ in 0..2 {
        let mut cursor = cursor(&k, CursorOptions::default());
        assert!(!cursor.next().expect("next") && !cursor.prev().expect("prev"));
        assert!(!cursor.seek_first().expect("seek") && !cursor.seek_last().expect("seek"));
        assert!(!cursor.seek(b"a").expect("seek") && !cursor.seek_before(b"a").expect("seek"));
        assert!(!cursor.valid());
        k.put(b"a", b"1").expect("put");
        k.delete(b"a").expect("delete");
        db.settle().expect("settle");
    }
}

#[test]
fn seeks_at_the_edges_of_groups_find_the_neighbors() {
    let (_vfs, db, k) = database(many_groups());
    fill(&k, &mut Rng::new(1), 1000);
    db.settle().expect("settle");
    assert!(of(&db.stats().expect("stats"), "k").groups > 4);
    let mut cursor = cursor(&k, CursorOptions::default());
    for n in 0..1000 {
        for (at, next) in [(2 * n, 2 * n), (2 * n + 1, 2 * n + 2)] {
            let found = cursor.seek(&key(at)).expect("seek");
            assert_eq!(found, next < 2000);
            assert!(!found || cursor.key() == key(next));
            let found = cursor.seek_before(&key(at)).expect("seek");
            let before = at.div_ceil(2) * 2;
            assert_eq!(found, before >= 2, "before {at}");
            assert!(!found || cursor.key() == key(before - 2));
        }
    }
    assert!(cursor.seek_before(&[0xFF]).expect("seek"));
    assert_eq!(cursor.key(), key(1998));
    assert!(!cursor.seek(&[0xFF]).expect("seek"));
    assert!(!cursor.next().expect("next"), "past the end");
}

#[test]
fn a_cursor_never_leaves_its_bounds() {
    let (_vfs, db, k) = database(many_groups());
    fill(&k, &mut Rng::new(2), 400);
    db.settle().expect("settle");
    let mut inside = cursor(&k, CursorOptions::range(&key(101), &key(300)));
    assert!(inside.seek_first().expect("seek"));
    assert_eq!(inside.key(), key(102));
    assert!(!inside.prev().expect("prev"));
    assert!(inside.seek(b"").expect("seek"));
    assert_eq!(inside.key(), key(102));
    assert!(inside.seek_last().expect("seek"));
    assert_eq!(inside.key(), key(298));
    assert!(!inside.next().expect("next"));
    assert!(inside.seek_before(&[0xFF]).expect("seek"));
    assert_eq!(inside.key(), key(298));
    assert!(!inside.seek(&key(300)).expect("seek"));
    assert!(!inside.seek_before(&key(102)).expect("seek"));
    let mut none = cursor(&k, CursorOptions::range(&key(300), &key(100)));
    assert!(!none.seek_first().expect("seek") && !none.seek_last().expect("seek"));
    let same = CursorOptions::range(&key(100), &key(100));
    assert!(rows(cursor(&k, same)).is_empty());
}

/// Walks at random and compares each step with an ordered map.
fn walk(cursor: &mut Cursor, model: &BTreeMap<Vec<u8>, Vec<u8>>, rng: &mut Rng, steps: usize) {
    let mut at: Option<Vec<u8>> = None;
    for _ in 0..steps {
        let (found, expected) = match (rng.below(10), at) {
            (0, _) => {
                let target = key(rng.below(1000));
                let next = model.range(target.clone()..).next();
                (cursor.seek(&target), next)
            }
            (1, _) => {
                let target = key(rng.below(1000));
                let before = model.range(..target.clone()).next_back();
                (cursor.seek_before(&target), before)
            }
            (_, None) => (cursor.seek_last(), model.iter().next_back()),
            (2..6, Some(key)) => {
                let after = [&key[..], &[0]].concat();
                (cursor.next(), model.range(after..).next())
            }
            (_, Some(key)) => (cursor.prev(), model.range(..key).next_back()),
        };
        assert_eq!(found.expect("step"), expected.is_some());
        at = expected.map(|(key, _)| key.clone());
        if let Some((key, value)) = expected {
            assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
        }
    }
}

#[test]
fn a_cursor_keeps_its_snapshot_in_both_directions_while_the_tree_is_rebuilt() {
    Seeded::run("a_cursor_keeps_its_snapshot", 6, |rng| {
        let (_vfs, db, k) = database(many_groups());
        fill(&k, rng, 300);
        if rng.percent(50) {
            db.settle().expect("settle");
        }
        let model: BTreeMap<_, _> = all(&k).into_iter().collect();
        let mut cursor = cursor(&k, CursorOptions::default());
        for _ in 0..12 {
            walk(&mut cursor, &model, rng, 25);
            for _ in 0..20 {
                let key = key(rng.below(1000));
                if rng.percent(50) {
                    k.put(&key, &rng.bytes(150))
                } else {
                    k.delete(&key)
                }
                .expect("write");
            }
            match rng.below(3) {
                0 => db.flush(),
                1 => db.settle(),
                _ => Ok(()),
            }
            .expect("background work");
        }
        let mut step = cursor.seek_first().expect("seek");
        let mut found = Vec::<Row>::new();
        while step {
            found.push((cursor.key().to_vec(), cursor.value().to_vec()));
            step = cursor.next().expect("next");
        }
        assert_eq!(found, model.into_iter().collect::<Vec<_>>());
    });
}

#[test]
fn a_prefix_scan_is_exact_with_filters_of_every_kind() {
    let prefix_lengths = [None, Some(1), Some(3), Some(200)];
    Seeded::run("a_prefix_scan_is_exact", 3, |rng| {
        for prefix_filter_bytes in prefix_lengths {
            let options = KeyspaceOptions {
                whole_key_filter: rng.percent(50),
                expect_hits: rng.percent(50),
                prefix_filter_bytes,
                compression: *rng.pick(&[Compression::Lz4, Compression::None]),
                block_bytes: 1024,
                ..KeyspaceOptions::default()
            };
            prefix_scans(&options, rng);
        }
    });
}

fn prefix_scans(options: &KeyspaceOptions, rng: &mut Rng) {
    let (_vfs, db, _) = database(many_groups());
    let k = db.keyspace("p", options.clone()).expect("keyspace");
    let mut model = BTreeMap::new();
    let letters = |rng: &mut Rng, length: usize| -> Vec<u8> {
        (0..length)
            .map(|_| *rng.pick(&[0, b'a', b'b', 0xFF]))
            .collect()
    };
    for step in 0..600 {
        let length = rng.below(6);
        let (key, value) = (letters(rng, length), rng.bytes(40));
        if rng.percent(20) {
            k.delete(&key).expect("delete");
            model.remove(&key);
        } else {
            k.put(&key, &value).expect("put");
            model.insert(key, value);
        }
        match step {
            200 | 500 => db.flush().expect("flush"),
            400 => db.settle().expect("settle"),
            _ => {}
        }
    }
    for _ in 0..200 {
        let length = rng.below(5);
        let prefix = letters(rng, length);
        let expected: Vec<_> = model
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let found = rows(cursor(&k, CursorOptions::prefix(&prefix)));
        assert_eq!(found, expected, "{options:?} {prefix:?}");
        let last = expected.last().map(|(key, _)| key.clone());
        let mut backward = cursor(&k, CursorOptions::prefix(&prefix));
        let found = backward
            .seek_last()
            .expect("seek")
            .then(|| backward.key().to_vec());
        assert_eq!(found, last, "{options:?} {prefix:?}");
        let key = letters(rng, 4);
        assert_eq!(
            k.get(&key).expect("get").as_deref(),
            model.get(&key).map(|v| &v[..])
        );
    }
}

#[test]
fn rows_of_the_largest_sizes_are_read_back_from_memory_and_tables() {
    let mut rng = Rng::new(3);
    let (_vfs, db, k) = database(tiny());
    let mut model = BTreeMap::new();
    for edge in [vec![], vec![0], vec![0, 0], vec![0xFF], vec![0xFF; 300]] {
        model.insert(edge, rng.bytes(10));
    }
    for n in 0..3_u8 {
        let mut long = vec![0xFE; KEY_BYTES_MAX];
        long[KEY_BYTES_MAX - 1] = n;
        model.insert(long, rng.bytes(3));
        model.insert(vec![b'v', n], rng.bytes(1 << 20));
    }
    model.insert(vec![0xFD; KEY_BYTES_MAX], rng.bytes(1 << 20));
    for (key, value) in &model {
        k.put(key, value).expect("put");
    }
    let expected: Vec<Row> = model.clone().into_iter().collect();
    for step in ["memory", "flushed", "settled"] {
        assert!(all(&k) == expected, "scan, {step}");
        for (key, value) in &model {
            assert!(
                k.get(key).expect("get").as_deref() == Some(value),
                "get, {step}"
            );
        }
        match step {
            "memory" => db.flush(),
            _ => db.settle(),
        }
        .expect("background work");
    }
    let mut backward = cursor(&k, CursorOptions::default());
    assert!(backward.seek_last().expect("seek"));
    for (key, _) in expected.iter().rev() {
        assert!(backward.key() == key);
        backward.prev().expect("prev");
    }
    assert!(!backward.valid());
    let too_long = vec![0; KEY_BYTES_MAX + 1];
    crate::fixture::assert_error!(k.put(&too_long, b""), alluvium::Error::InvalidArgument(_));
}

#[test]
fn a_pinned_value_outlives_its_cursor_and_its_table() {
    let (_vfs, db, k) = database(tiny());
    let value = vec![7; 3_000];
    k.put(b"a", &value).expect("put");
    db.settle().expect("settle");
    let mut cursor = cursor(&k, CursorOptions::default());
    assert!(cursor.seek_first().expect("seek"));
    let pinned = cursor.pin_value();
    drop(cursor);
    db.drop_keyspace(&k).expect("drop");
    db.close().expect("close");
    assert_eq!(&pinned[..], &value[..]);
}
