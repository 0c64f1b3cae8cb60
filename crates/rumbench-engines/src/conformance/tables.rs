//! Tables with columns and indexes: inserts, deletes, updates, reads by key and by range, index
//! builds, index checks.

use rumbench_core::kv::Direction;
use rumbench_core::tables::{
    Change, Fold, Path, Range, RowBatch, TableConnection, TableId, TableQueries, TableStore, Value,
    Where,
};

use super::calls::{expect, ok};
use super::table_rows::{BY_K, BY_K_AND_A, PAIRS, PLAIN, Row, batch};
use super::transactions::transactions;
use Direction::{Forward, Reverse};
use Value::{Signed, Unsigned};

/// Runs the checks on the empty tables of [`super::table_schema`].
///
/// # Panics
/// If the engine misbehaves.
pub fn table_store(store: &dyn TableStore) {
    // One index exists before the rows, the other is built from them.
    ok(store.build_index(PLAIN, 0), "build an index of no rows");
    let mut connection = ok(store.connect(), "connect");
    let rows: Vec<Row> = (1..=20).map(row).collect();
    ok(connection.insert(PLAIN, &batch(&rows[..9])), "insert");
    ok(connection.insert(PLAIN, &batch(&rows[9..])), "insert");
    expect("indexes", ok(connection.check(PLAIN), "check"), 1);
    ok(store.build_index(PLAIN, 1), "build an index");
    ok(store.build_index(PLAIN, 1), "build an index again");
    let mut connection = ok(store.connect(), "connect again");
    expect("indexes", ok(connection.check(PLAIN), "check"), 2);
    expect("rows", ok(connection.count(PLAIN), "count"), 20);
    reads_by_key(connection.as_mut());
    ranges(connection.as_mut());
    queries(connection.as_mut());
    updates(connection.as_mut());
    replacements(connection.as_mut());
    deletes(connection.as_mut());
    transactions(store);
    pairs(store);
}

/// Returns a row with repeated values of `k`, which fall while those of `a` rise.
fn row(id: u64) -> Row {
    (id, 100 - (id as u32 - 1) / 2, id as i64 - 10, b"text")
}

fn keys(ids: &[u64]) -> RowBatch {
    let mut keys = RowBatch::new(1);
    for id in ids {
        keys.push(Unsigned(*id));
    }
    keys
}

fn read(connection: &mut dyn TableConnection, ids: &[u64]) -> Vec<Option<(u64, i64, Vec<u8>)>> {
    let mut found = vec![None; ids.len()];
    let mut calls = 0;
    let got = connection.get(PLAIN, &keys(ids), &mut |place, row| {
        calls += 1;
        found[place] = row.map(|row| match row {
            [Unsigned(id), Unsigned(k), Signed(a), Value::Bytes(c)] => {
                assert_eq!(*id, ids[place], "the row of another key");
                (*k, *a, c.to_vec())
            }
            other => panic!("not the columns of a row: {other:?}"),
        });
    });
    ok(got, "get");
    expect("answers of a get", calls, ids.len());
    found
}

fn reads_by_key(connection: &mut dyn TableConnection) {
    // Out of order, one key twice, two missing keys.
    let ids = [20, 3, 99, 3, 0, 1];
    let expected = ids.map(|id| {
        let (_, k, a, c) = row(id.max(1));
        (1..=20)
            .contains(&id)
            .then(|| (u64::from(k), a, c.to_vec()))
    });
    expect("get", read(connection, &ids), expected.to_vec());
    expect("get of nothing", read(connection, &[]), Vec::new());
}

/// Returns the primary keys found by a range: the first column of a row, the last of an index
/// entry.
fn ids(
    connection: &mut dyn TableConnection,
    table: TableId,
    path: Path,
    range: Range<'_>,
) -> Vec<u64> {
    let mut found = Vec::new();
    let scanned = connection.scan(table, path, range, &mut |row| {
        let id = match path {
            Path::Primary => row.first(),
            Path::Index(_) => row.last(),
        };
        found.push(id.and_then(|id| id.unsigned()).unwrap_or(0));
        true
    });
    ok(scanned, "scan");
    found
}

/// Path, bounds, direction, limit, and the ids found.
type Case = (
    Path,
    &'static [Value<'static>],
    &'static [Value<'static>],
    Direction,
    usize,
    &'static [u64],
);

#[rustfmt::skip] // One case per line.
const RANGES: &[Case] = &[
    (Path::Primary, &[Unsigned(18)], &[], Forward, 9, &[18, 19, 20]),
    (Path::Primary, &[], &[Unsigned(4)], Forward, 9, &[1, 2, 3]),
    (Path::Primary, &[Unsigned(3)], &[Unsigned(6)], Reverse, 9, &[5, 4, 3]),
    (Path::Primary, &[], &[], Forward, 1, &[1]),
    (Path::Primary, &[], &[], Reverse, 2, &[20, 19]),
    (Path::Primary, &[Unsigned(21)], &[], Forward, 9, &[]),
    (Path::Primary, &[Unsigned(6)], &[Unsigned(3)], Forward, 9, &[]),
    (BY_K, &[Unsigned(99)], &[], Forward, 9, &[3, 4, 1, 2]),
    (BY_K, &[], &[], Forward, 3, &[19, 20, 17]),
    (BY_K, &[], &[Unsigned(92)], Reverse, 3, &[20, 19]),
    (BY_K, &[Unsigned(98), Unsigned(6)], &[Unsigned(100)], Forward, 9, &[6, 3, 4]),
    (BY_K_AND_A, &[Unsigned(99), Signed(-6)], &[], Forward, 2, &[4, 1]),
    (BY_K_AND_A, &[], &[Unsigned(99), Signed(-6)], Reverse, 2, &[3, 6]),
];

fn ranges(connection: &mut dyn TableConnection) {
    for (path, from, to, direction, limit, expected) in RANGES {
        let range = Range {
            from,
            to,
            direction: *direction,
            limit: *limit,
        };
        let found = ids(connection, PLAIN, *path, range);
        expect(&format!("{path:?} {range:?}"), found, expected.to_vec());
    }
    let mut seen = Vec::new();
    let scanned = connection.scan(PLAIN, BY_K_AND_A, Range::ALL, &mut |row| {
        seen.push(
            row.iter()
                .map(|value| format!("{value:?}"))
                .collect::<Vec<_>>(),
        );
        seen.len() < 2
    });
    ok(scanned, "scan");
    let second = ["Unsigned(91)", "Signed(10)", "Unsigned(20)"].map(str::to_owned);
    expect("rows before a stop", seen.len(), 2);
    expect("columns of an index", &seen[1], &second.to_vec());
}

/// Checks queries of one column, alone and in a transaction, if the engine has queries.
fn queries(connection: &mut dyn TableConnection) {
    let Some(queries) = connection.queries() else {
        return;
    };
    query(queries);
    let mut asked = false;
    let written = connection.write(&mut |writes| {
        let queries = writes.queries();
        query(queries.unwrap_or_else(|| panic!("queries, but none in a transaction")));
        asked = true;
        Ok(())
    });
    ok(written, "a transaction of queries");
    expect("calls of a transaction", asked, true);
    parsed_inserts(connection);
}

/// Checks unprepared inserts together with prepared statements, for an engine that has queries.
fn parsed_inserts(connection: &mut dyn TableConnection) {
    // Text that needs escaping in a statement, and bytes without a valid text form.
    let rows: [Row; 3] = [
        (40, 4_000_000_000, i64::MIN, b"it's \\ \0 ?"),
        (41, 0, -1, b""),
        (42, 7, i64::MAX, b"\xff\xfe\"`"),
    ];
    for rows in [&rows[..1], &rows[1..]] {
        let queries = connection.queries();
        let queries = queries.unwrap_or_else(|| panic!("queries, and then none"));
        ok(queries.insert_parsed(PLAIN, &batch(rows)), "insert");
        // Reads the row with a prepared statement.
        for (id, k, a, c) in rows {
            let expected = Some((u64::from(*k), *a, c.to_vec()));
            expect("a row", read(connection, &[*id]), vec![expected]);
        }
    }
    if let Some(queries) = connection.queries() {
        let again = queries.insert_parsed(PLAIN, &batch(&rows[..1]));
        expect("the same key again", again.is_err(), true);
    }
    for (id, ..) in rows {
        let deleted = connection.delete(PLAIN, &[Unsigned(id)]);
        expect("a row to delete", ok(deleted, "delete"), true);
    }
}

fn query(queries: &mut dyn TableQueries) {
    for (id, expected) in [(3, vec!["Unsigned(99)"]), (99, vec![])] {
        let mut found = Vec::new();
        let read = &mut |value: Value<'_>| found.push(format!("{value:?}"));
        ok(queries.column(PLAIN, &[Unsigned(id)], 1, read), "column");
        let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        expect("a column", found, expected);
    }
    // k of 3 to 6 is 99, 99, 98, 98.
    let cases: [(_, _, &[u64]); 7] = [
        (Fold::Rows, 3..=6, &[99, 99, 98, 98]),
        (Fold::Order, 3..=6, &[98, 98, 99, 99]),
        (Fold::Distinct, 3..=6, &[98, 99]),
        (Fold::Sum, 3..=6, &[394]),
        (Fold::Count, 3..=6, &[4]),
        (Fold::Sum, 50..=60, &[0]),
        (Fold::Rows, 50..=60, &[]),
    ];
    for (fold, range, expected) in cases {
        let mut found = Vec::new();
        let visit = &mut |value: Value<'_>| found.push(value.unsigned().unwrap_or(u64::MAX));
        ok(queries.fold(PLAIN, range.clone(), 1, fold, visit), "fold");
        if fold == Fold::Rows {
            found.sort_unstable_by(|a, b| b.cmp(a));
        }
        expect(&format!("{fold:?} of {range:?}"), found, expected.to_vec());
    }
    selects(queries);
    // Rows that already have the value count too. The last two calls restore all values.
    for (k, rows) in [(98, 2), (98, 2), (99, 2)] {
        let set = queries.set(PLAIN, &[3, 4, 50], 1, Unsigned(k));
        expect("rows of a list", ok(set, "set"), rows);
    }
}

/// Columns to return, column of the condition, condition, and expected rows.
type Select<'a> = (&'static [usize], usize, Where<'a>, &'a [&'a [u64]]);

/// Checks selects on the rows with ids 3 to 6, as above.
fn selects(queries: &mut dyn TableQueries) {
    let cases: [Select<'_>; 6] = [
        (&[0, 1], 0, Where::In(&[99, 3, 5]), &[&[3, 99], &[5, 98]]),
        (&[1], 1, Where::In(&[98]), &[&[98], &[98]]),
        (&[0], 1, Where::In(&[98, 99]), &[&[3], &[4], &[5], &[6]]),
        (&[1, 0], 1, Where::Between(98, 98), &[&[98, 5], &[98, 6]]),
        (&[0], 0, Where::Between(3, 4), &[&[3], &[4]]),
        (&[0], 3, Where::Longer(100_000), &[]),
    ];
    for (columns, by, rows, expected) in cases {
        let mut found: Vec<Vec<u64>> = Vec::new();
        let visit = &mut |row: &[Value<'_>]| {
            let number = |value: &Value<'_>| value.unsigned().unwrap_or(u64::MAX);
            found.push(row.iter().map(number).collect());
        };
        ok(queries.select(PLAIN, columns, by, rows, visit), "select");
        found.sort_unstable();
        let expected: Vec<Vec<u64>> = expected.iter().map(|row| row.to_vec()).collect();
        expect(
            &format!("columns {columns:?} where {by} is {rows:?}"),
            found,
            expected,
        );
    }
}

fn updates(connection: &mut dyn TableConnection) {
    let mut update = |id, column, change| {
        let key = [Unsigned(id)];
        ok(connection.update(PLAIN, &key, column, change), "update")
    };
    assert!(update(5, 3, Change::Set(Value::Bytes(b"longer text"))));
    assert!(update(5, 1, Change::Add(7)), "an indexed column");
    assert!(update(6, 2, Change::Add(-1000)));
    assert!(update(7, 1, Change::Set(Unsigned(0))));
    assert!(update(8, 1, Change::Add(0)), "the same value");
    assert!(!update(50, 1, Change::Add(1)), "no such row");
    let found = read(connection, &[5, 6, 7, 50]);
    let expected = [
        Some((105, -5, b"longer text".to_vec())),
        Some((98, -1004, b"text".to_vec())),
        Some((0, -3, b"text".to_vec())),
        None,
    ];
    expect("rows after updates", found, expected.to_vec());
    let one = |direction| Range {
        direction,
        limit: 1,
        ..Range::ALL
    };
    expect(
        "lowest",
        ids(connection, PLAIN, BY_K, one(Forward)),
        vec![7],
    );
    expect(
        "highest",
        ids(connection, PLAIN, BY_K, one(Reverse)),
        vec![5],
    );
    expect("indexes", ok(connection.check(PLAIN), "check"), 2);
}

/// Replaces whole rows: one with new index entries, one with the same, one that does not exist.
fn replacements(connection: &mut dyn TableConnection) {
    let mut replace = |row: Row| ok(connection.replace(PLAIN, &batch(&[row])), "replace");
    assert!(replace((10, 1, 7, b"another text")));
    let (id, k, a, _) = row(11);
    assert!(replace((id, k, a, b"")), "the same index entries");
    assert!(!replace((50, 1, 1, b"nobody")), "no such row");
    let found = read(connection, &[10, 11, 50]);
    let expected = [
        Some((1, 7, b"another text".to_vec())),
        Some((u64::from(k), a, Vec::new())),
        None,
    ];
    expect("rows after replacements", found, expected.to_vec());
    let low = Range {
        to: &[Unsigned(2)],
        ..Range::ALL
    };
    expect(
        "entries below 2",
        ids(connection, PLAIN, BY_K, low),
        vec![7, 10],
    );
    expect("indexes", ok(connection.check(PLAIN), "check"), 2);
    let back = [row(10), row(11)].map(|row| connection.replace(PLAIN, &batch(&[row])));
    assert!(back.into_iter().all(|replaced| ok(replaced, "replace")));
}

fn deletes(connection: &mut dyn TableConnection) {
    let first = connection.delete_first(PLAIN, &[], 2);
    expect("rows deleted", ok(first, "delete first"), 2);
    let from = connection.delete_first(PLAIN, &[Unsigned(2)], 3);
    expect("rows deleted", ok(from, "delete first"), 3);
    let key = [Unsigned(9)];
    assert!(ok(connection.delete(PLAIN, &key), "delete"));
    assert!(!ok(connection.delete(PLAIN, &key), "delete again"));
    expect("rows", ok(connection.count(PLAIN), "count"), 14);
    let left = [6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
    expect(
        "rows left",
        ids(connection, PLAIN, Path::Primary, Range::ALL),
        left.to_vec(),
    );
    let mut indexed = ids(connection, PLAIN, BY_K_AND_A, Range::ALL);
    indexed.sort_unstable();
    expect("entries left", indexed, left.to_vec());
    expect("indexes", ok(connection.check(PLAIN), "check"), 2);
    let rest = connection.delete_first(PLAIN, &[], 1000);
    expect("rows deleted", ok(rest, "delete first"), 14);
    let none = connection.delete_first(PLAIN, &[], 1);
    expect("rows deleted", ok(none, "delete first"), 0);
    expect("indexes", ok(connection.check(PLAIN), "check"), 2);
}

/// Checks a key of two columns, by which rows are ordered.
fn pairs(store: &dyn TableStore) {
    let mut connection = ok(store.connect(), "connect");
    let rows: Vec<Row> = [(2, 1), (1, 9), (2, 0), (1, 3)]
        .map(|(id, k)| (id, k, -1, &b""[..]))
        .to_vec();
    ok(connection.insert(PAIRS, &batch(&rows)), "insert");
    ok(store.build_index(PAIRS, 0), "build an index");
    let mut connection = ok(store.connect(), "connect again");
    let mut order = Vec::new();
    let from = [Unsigned(1), Unsigned(4)];
    let range = Range {
        from: &from,
        ..Range::ALL
    };
    let scanned = connection.scan(PAIRS, Path::Primary, range, &mut |row| {
        order.push((row[0].unsigned(), row[1].unsigned()));
        true
    });
    ok(scanned, "scan");
    let expected = [(1, 9), (2, 0), (2, 1)].map(|(id, k)| (Some(id), Some(k)));
    expect("rows by two columns", order, expected.to_vec());
    let deleted = connection.delete_first(PAIRS, &from, 2);
    expect("rows deleted", ok(deleted, "delete first"), 2);
    expect("indexes", ok(connection.check(PAIRS), "check"), 1);
    expect("rows", ok(connection.count(PAIRS), "count"), 2);
}
