//! Checks of the kv-sequence table for SQL engines, which implement it themselves: loads, puts,
//! gets, multi-gets, scans in both directions.

use rumbench_core::kv::{Direction, Scan};
use rumbench_core::kv_sequence::{Row, RowConnection, RowStore};

use super::{Rows, expect, ok};

/// Runs the checks on an empty table.
///
/// # Panics
/// If the engine misbehaves.
pub fn row_store(store: &dyn RowStore) {
    let mut writer = ok(store.connect(), "connect");
    let mut reader = ok(store.connect(), "connect");
    // Loads one row per commit and several, in ascending order; then puts an existing row and a new
    // key.
    ok(writer.load(&[row(b"b", b"2")]), "load one row");
    let more = [row(b"d", b"4"), row(b"f", b""), row(b"h\0", &[7; 3000])];
    ok(writer.load(&more), "load rows");
    ok(writer.put(row(b"d", b"new")), "put");
    ok(writer.put(row(b"c", b"3")), "put a new key");
    for connection in [&mut writer, &mut reader] {
        gets(connection.as_mut());
        scans(connection.as_mut());
    }
}

fn row<'a>(key: &'a [u8], value: &'a [u8]) -> Row<'a> {
    Row { key, value }
}

fn gets(connection: &mut dyn RowConnection) {
    let cases: &[(&[u8], Option<&[u8]>)] = &[
        (b"b", Some(b"2")),
        (b"d", Some(b"new")),
        (b"f", Some(b"")),
        (b"h\0", Some(&[7; 3000])),
        (b"h", None),
        (b"a", None),
    ];
    for (key, expected) in cases {
        let mut found = Some(b"not asked".to_vec());
        let read = &mut |value: Option<&[u8]>| found = value.map(<[u8]>::to_vec);
        ok(connection.get(key, read), "get");
        expect("get", found.as_deref(), *expected);
    }
    // Out of order, with one key twice and one missing key.
    let places = [3, 0, 5, 0, 1, 4];
    let keys = places.map(|place: usize| cases[place].0);
    let mut found = vec![Some(b"not asked".to_vec()); keys.len()];
    let mut calls = 0;
    let read = &mut |place: usize, value: Option<&[u8]>| {
        found[place] = value.map(<[u8]>::to_vec);
        calls += 1;
    };
    ok(connection.multi_get(&keys, read), "multi-get");
    expect("answers of a multi-get", calls, keys.len());
    for (found, place) in found.iter().zip(places) {
        expect("multi-get", found.as_deref(), cases[place].1);
    }
    let nothing = connection.multi_get(&[], &mut |_, _| panic!("nothing was asked for"));
    ok(nothing, "multi-get of nothing");
}

/// Range, direction, limit, and the first bytes of the keys found.
type Case<'a> = (&'a [u8], &'a [u8], Direction, usize, &'a [u8]);

fn scans(connection: &mut dyn RowConnection) {
    use Direction::{Forward, Reverse};
    let cases: &[Case<'_>] = &[
        (b"a", b"z", Forward, usize::MAX, b"bcdfh"),
        (b"a", b"z", Reverse, usize::MAX, b"hfdcb"),
        (b"c", b"z", Forward, 2, b"cd"),
        (b"a", b"d\0", Reverse, 2, b"dc"),
        (b"a", b"d", Reverse, 2, b"cb"),
        (b"e", b"f", Forward, 9, b""),
        (b"g", b"z", Forward, 9, b"h"),
        (b"a", b"z", Forward, 1, b"b"),
    ];
    for (start, end, direction, limit, expected) in cases {
        let scan = Scan {
            start,
            end,
            direction: *direction,
            limit: *limit,
        };
        let mut rows = Rows::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            rows.push((key.to_vec(), value.to_vec()));
            true
        };
        ok(connection.scan(scan, visit), "scan");
        let found: Vec<u8> = rows.iter().map(|(key, _)| key[0]).collect();
        expect(&format!("{scan:?}"), found, expected.to_vec());
        let new = rows.iter().find(|(key, _)| key == b"d");
        assert!(new.is_none_or(|(_, value)| value == b"new"), "{rows:?}");
        let mut seen = 0;
        let stop = &mut |_: &[u8], _: &[u8]| {
            seen += 1;
            false
        };
        ok(connection.scan(scan, stop), "scan");
        expect("rows before a stop", seen, expected.len().min(1));
    }
}
