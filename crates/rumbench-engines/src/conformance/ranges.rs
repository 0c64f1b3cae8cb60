//! Scans: both directions, bounds, limits, adjacent prefixes, byte order.

use rumbench_core::engine::Engine;
use rumbench_core::kv::{Direction, KvConnection, KvEngine, KvTxn};

use super::calls::{PLAIN, PREFIXED, connect, expect, get, keys, ok, put, range, scan};

pub(super) fn ranges_both_ways<E: KvEngine>(engine: &E) {
    use Direction::{Forward, Reverse};
    let mut connection = connect(engine);
    let rows: [(&[u8], &[u8]); 4] = [(b"b", b"2"), (b"d", b"4"), (b"c", b"3"), (b"e", b"5")];
    put(&mut connection, PLAIN, &rows);
    // Case name, both bounds, direction, limit, and the values of the rows found.
    let cases: &[(&str, &str, &str, Direction, usize, &str)] = &[
        ("all", "a", "z", Forward, 9, "2345"),
        ("all, reverse", "a", "z", Reverse, 9, "5432"),
        ("limit", "a", "z", Forward, 2, "23"),
        ("limit, reverse", "a", "z", Reverse, 2, "54"),
        ("limit 0", "a", "z", Forward, 0, ""),
        ("bounds on rows", "b", "e", Forward, 9, "234"),
        ("bounds on rows, reverse", "b", "e", Reverse, 9, "432"),
        ("bounds between rows", "ba", "da", Forward, 9, "34"),
        ("bounds between rows, reverse", "ba", "da", Reverse, 9, "43"),
        ("no rows inside", "ba", "bb", Forward, 9, ""),
        ("no rows inside, reverse", "ba", "bb", Reverse, 9, ""),
        ("empty range", "c", "c", Forward, 9, ""),
        ("empty range, reverse", "c", "c", Reverse, 9, ""),
        ("inverted range", "e", "b", Forward, 9, ""),
        ("inverted range, reverse", "e", "b", Reverse, 9, ""),
        ("before all rows", "a", "b", Forward, 9, ""),
        ("before all rows, reverse", "a", "b", Reverse, 9, ""),
        ("after all rows", "f", "z", Forward, 9, ""),
        ("after all rows, reverse", "f", "z", Reverse, 9, ""),
    ];
    for (what, start, end, direction, limit, expected) in cases {
        let range = range(start.as_bytes(), end.as_bytes(), *direction, *limit);
        let found = scan(&mut connection, PLAIN, range);
        let values: Vec<u8> = found.into_iter().flat_map(|(_, value)| value).collect();
        expect(what, values, expected.as_bytes().to_vec());
    }
}

pub(super) fn visitors_stop_scans<E: KvEngine>(engine: &E) {
    let mut connection = connect(engine);
    put(&mut connection, PLAIN, &[(b"b", b"2"), (b"c", b"3")]);
    let mut seen = 0;
    let stop_at_once = |_: &[u8], _: &[u8]| {
        seen += 1;
        false
    };
    let all = range(b"a", b"z", Direction::Forward, 9);
    ok(connection.scan(PLAIN, all, stop_at_once), "scan");
    expect("rows seen after the visitor said stop", seen, 1);
}

pub(super) fn ranges_keep_to_their_prefix<E: KvEngine + Engine>(engine: &E) {
    let mut connection = connect(engine);
    let key = |prefix: u64, suffix: &[u8]| [&prefix.to_be_bytes()[..], suffix].concat();
    // Neighbors that differ in the last bit, across a byte boundary, and at both ends of the key
    // space.
    let prefixes = [0, 1, 0xFE, 0xFF, 0x100, u64::MAX - 1, u64::MAX];
    let suffixes: [&[u8]; 4] = [b"", b"\x00", b"m", b"\xFF\xFF"];
    let mut txn = ok(connection.begin(), "begin");
    for prefix in prefixes {
        for suffix in suffixes {
            ok(txn.insert(PREFIXED, &key(prefix, suffix), suffix), "insert");
        }
    }
    ok(txn.commit(), "commit");
    for settled in [false, true] {
        if settled {
            ok(engine.settle(&mut |_| {}), "settle");
        }
        for prefix in prefixes {
            let expected: Vec<_> = suffixes.iter().map(|suffix| key(prefix, suffix)).collect();
            let found = keys(
                &mut connection,
                PREFIXED,
                &key(prefix, b""),
                &key(prefix, &[0xFF; 9]),
            );
            expect("rows of a prefix", found, expected.clone());
            if let Some(next) = prefix.checked_add(1) {
                let found = keys(
                    &mut connection,
                    PREFIXED,
                    &key(prefix, b""),
                    &key(next, b""),
                );
                expect("rows up to the next prefix", found, expected.clone());
            }
            let found = keys(
                &mut connection,
                PREFIXED,
                &key(prefix, b"\x00"),
                &key(prefix, b"n"),
            );
            expect("rows inside a prefix", found, expected[1..3].to_vec());
        }
        let found = keys(&mut connection, PREFIXED, &key(2, b""), &key(0xFE, b""));
        expect("rows of absent prefixes", found, Vec::new());
        let across = keys(&mut connection, PREFIXED, &key(1, b"m"), &key(0xFF, b""));
        expect("rows across prefixes", across.len(), 2 + suffixes.len());
        let all = keys(&mut connection, PREFIXED, &[0], &[0xFF; 20]);
        expect("all rows", all.len(), prefixes.len() * suffixes.len());
    }
}

pub(super) fn keys_are_ordered_as_bytes<E: KvEngine>(engine: &E) {
    let mut connection = connect(engine);
    let sorted: Vec<Vec<u8>> = [
        &b"\x00"[..],
        b"\x00\x00",
        b"\x00\xFF",
        b"\x01",
        b"\x7F",
        b"\x80",
        b"a",
        b"aa",
        b"b",
        b"\xFE\xFF",
        b"\xFF",
        b"\xFF\x00",
        b"\xFF\xFF",
        b"\xFF\xFF\xFF",
    ]
    .map(<[u8]>::to_vec)
    .into();
    // Checks the list itself too: with signed bytes, `b"a" > b"\x80"` would hold.
    let mut check = sorted.clone();
    check.sort();
    let rows: Vec<(&[u8], &[u8])> = sorted
        .iter()
        .rev()
        .map(|key| (&key[..], &key[..]))
        .collect();
    put(&mut connection, PLAIN, &rows);
    let found = keys(&mut connection, PLAIN, b"\x00", &[0xFF; 8]);
    expect("order", found, check);
    for key in &sorted {
        expect("value", get(&mut connection, PLAIN, key), Some(key.clone()));
    }
    let found = keys(&mut connection, PLAIN, b"\xFF", b"\xFF\xFF");
    expect(
        "range of 0xFF",
        found,
        vec![b"\xFF".to_vec(), b"\xFF\x00".to_vec()],
    );
}
