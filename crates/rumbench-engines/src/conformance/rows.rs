//! Checks of a table of keys and values: loads, puts, gets, multi-gets, scans in both directions.

use rumbench_core::kv::Direction;
use rumbench_core::tables::{
    Path, Range, RowBatch, TableConnection, TableId, TableSchema, TableStore, Value,
};

use super::calls::{Rows, expect, ok};

const ROWS: TableId = TableId(0);

/// Returns the schema that the checks need; open the engine with it.
pub fn key_value_schema() -> &'static TableSchema {
    TableSchema::key_value("rows")
}

/// Runs the checks on an empty table.
///
/// # Panics
/// If the engine misbehaves.
pub fn key_value_table(store: &dyn TableStore) {
    let mut writer = ok(store.connect(), "connect");
    let mut reader = ok(store.connect(), "connect");
    // Loads one row per commit and several, in ascending order; then puts an existing row and a new
    // key.
    ok(writer.insert(ROWS, &rows(&[(b"b", b"2")])), "load one row");
    let more = rows(&[(b"d", b"4"), (b"f", b""), (b"h\0", &[7; 3000])]);
    ok(writer.insert(ROWS, &more), "load rows");
    ok(writer.put(ROWS, &rows(&[(b"d", b"new")])), "put");
    ok(writer.put(ROWS, &rows(&[(b"c", b"3")])), "put a new key");
    for connection in [&mut writer, &mut reader] {
        gets(connection.as_mut());
        scans(connection.as_mut());
    }
}

fn rows(of: &[(&[u8], &[u8])]) -> RowBatch {
    let mut batch = RowBatch::new(2);
    for (key, value) in of {
        batch.push(Value::Bytes(key));
        batch.push(Value::Bytes(value));
    }
    batch
}

fn keys<'a>(of: impl IntoIterator<Item = &'a [u8]>) -> RowBatch {
    let mut batch = RowBatch::new(1);
    of.into_iter().for_each(|key| batch.push(Value::Bytes(key)));
    batch
}

/// Returns key and value of a row that was read.
fn pair(row: &[Value<'_>]) -> (Vec<u8>, Vec<u8>) {
    match row {
        [Value::Bytes(key), Value::Bytes(value)] => (key.to_vec(), value.to_vec()),
        _ => panic!("not a key and a value: {row:?}"),
    }
}

fn gets(connection: &mut dyn TableConnection) {
    let cases: &[(&[u8], Option<&[u8]>)] = &[
        (b"b", Some(b"2")),
        (b"d", Some(b"new")),
        (b"f", Some(b"")),
        (b"h\0", Some(&[7; 3000])),
        (b"h", None),
        (b"a", None),
    ];
    for (key, expected) in cases {
        let mut found = Some((b"not asked".to_vec(), Vec::new()));
        let read = &mut |row: Option<&[Value<'_>]>| found = row.map(pair);
        ok(connection.get_one(ROWS, &keys([*key]), read), "get");
        expect(
            "get",
            found,
            expected.map(|value| (key.to_vec(), value.to_vec())),
        );
    }
    // Out of order, with one key twice and one missing key.
    let places = [3, 0, 5, 0, 1, 4];
    let wanted = keys(places.map(|place: usize| cases[place].0));
    let mut found = vec![Some((b"not asked".to_vec(), Vec::new())); places.len()];
    let mut calls = 0;
    let read = &mut |place: usize, row: Option<&[Value<'_>]>| {
        found[place] = row.map(pair);
        calls += 1;
    };
    ok(connection.get(ROWS, &wanted, read), "multi-get");
    expect("answers of a multi-get", calls, places.len());
    for (found, place) in found.into_iter().zip(places) {
        let (key, expected) = cases[place];
        let expected = expected.map(|value| (key.to_vec(), value.to_vec()));
        expect("multi-get", found, expected);
    }
    let nothing = connection.get(ROWS, &keys([]), &mut |_, _| panic!("nothing was asked for"));
    ok(nothing, "multi-get of nothing");
}

/// Range, direction, limit, and the first bytes of the keys found.
type Case<'a> = (&'a [u8], &'a [u8], Direction, usize, &'a [u8]);

fn scans(connection: &mut dyn TableConnection) {
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
        let range = Range {
            from: &[Value::Bytes(start)],
            to: &[Value::Bytes(end)],
            direction: *direction,
            limit: *limit,
        };
        let mut rows = Rows::new();
        let visit = &mut |row: &[Value<'_>]| {
            rows.push(pair(row));
            true
        };
        ok(connection.scan(ROWS, Path::Primary, range, visit), "scan");
        let found: Vec<u8> = rows.iter().map(|(key, _)| key[0]).collect();
        expect(&format!("{range:?}"), found, expected.to_vec());
        let new = rows.iter().find(|(key, _)| key == b"d");
        assert!(new.is_none_or(|(_, value)| value == b"new"), "{rows:?}");
        let mut seen = 0;
        let stop = &mut |_: &[Value<'_>]| {
            seen += 1;
            false
        };
        ok(connection.scan(ROWS, Path::Primary, range, stop), "scan");
        expect("rows before a stop", seen, expected.len().min(1));
    }
}
