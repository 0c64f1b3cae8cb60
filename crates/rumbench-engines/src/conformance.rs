//! One suite of behaviour that every ordered key-value engine passes, whatever is inside.
//!
//! [`key_value`] runs all of it, each case on a fresh database. A case panics with its name and what it found. The
//! suite never holds two transactions on one thread: engines with a single writer would wait for themselves.

use std::fmt::Debug;
use std::path::Path;

use rumbench_core::engine::{Engine, EngineError, Result};
use rumbench_core::kv::{BulkRow, Direction, KvConnection, KvEngine, KvTxn, MapDef, MapId, Scan};

/// A map without hints.
const PLAIN: MapId = MapId(0);
/// A map whose scans fix eight bytes, so that prefix filters are in play.
const PREFIXED: MapId = MapId(1);

/// The maps that the suite needs: open the engine with these.
pub const SCHEMA: &[MapDef] = &[
    MapDef {
        name: "plain",
        scan_prefix_bytes: None,
        point_reads: true,
        reads_hit: true,
    },
    MapDef {
        name: "prefixed",
        scan_prefix_bytes: Some(8),
        point_reads: true,
        reads_hit: false,
    },
];

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Runs every case. `open` opens [`SCHEMA`] in a directory that exists and may hold a database already; `root` is an
/// empty directory.
///
/// # Panics
/// When the engine misbehaves.
pub fn key_value<E: KvEngine + Engine>(root: &Path, open: &dyn Fn(&Path) -> E) {
    let cases: &[(&str, fn(&E))] = &[
        ("committed_rows_are_seen", committed_rows_are_seen),
        (
            "uncommitted_rows_are_not_seen",
            uncommitted_rows_are_not_seen,
        ),
        (
            "a_dropped_transaction_leaves_nothing",
            a_dropped_transaction_leaves_nothing,
        ),
        (
            "a_transaction_reads_its_own_writes",
            a_transaction_reads_its_own_writes,
        ),
        ("deleted_rows_are_gone", deleted_rows_are_gone),
        ("ranges_both_ways", ranges_both_ways),
        ("ranges_keep_to_their_prefix", ranges_keep_to_their_prefix),
        ("keys_are_ordered_as_bytes", keys_are_ordered_as_bytes),
        ("maps_do_not_share_keys", maps_do_not_share_keys),
        ("large_and_empty_values", large_and_empty_values),
        ("a_bulk_load_is_complete", a_bulk_load_is_complete),
        ("no_increment_is_lost", no_increment_is_lost),
        (
            "absent_rows_are_protected_too",
            absent_rows_are_protected_too,
        ),
        ("transfers_keep_the_sum", transfers_keep_the_sum),
        ("unknown_maps_are_errors", unknown_maps_are_errors),
    ];
    for (name, case) in cases {
        let dir = root.join(name);
        std::fs::create_dir(&dir).expect("create a directory for the case");
        let engine = open(&dir);
        case(&engine);
        ok(Box::new(engine).close(), name);
    }
    rows_survive_settle_and_reopen(root, open);
}

/// The value, or a panic that names the call.
fn ok<T>(result: Result<T>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn connect<E: KvEngine>(engine: &E) -> E::Connection {
    ok(engine.connect(), "connect")
}

fn get<C: KvConnection>(connection: &mut C, map: MapId, key: &[u8]) -> Option<Vec<u8>> {
    let value = connection.get(map, key, |value| value.map(<[u8]>::to_vec));
    ok(value, "get")
}

fn get_for_update<T: KvTxn>(txn: &mut T, map: MapId, key: &[u8]) -> Result<Option<Vec<u8>>> {
    txn.get_for_update(map, key, |value| value.map(<[u8]>::to_vec))
}

fn put<C: KvConnection>(connection: &mut C, map: MapId, rows: &[(&[u8], &[u8])]) {
    let mut txn = ok(connection.begin(), "begin");
    for (key, value) in rows {
        ok(txn.put(map, key, value), "put");
    }
    ok(txn.commit(), "commit");
}

fn scan<C: KvConnection>(connection: &mut C, map: MapId, scan: Scan<'_>) -> Rows {
    let mut rows = Rows::new();
    let visit = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        true
    };
    ok(connection.scan(map, scan, visit), "scan");
    rows
}

fn range<'a>(start: &'a [u8], end: &'a [u8], direction: Direction, limit: usize) -> Scan<'a> {
    Scan {
        start,
        end,
        direction,
        limit,
    }
}

/// The keys of `start..end` in ascending order, read both ways, which must agree.
fn keys<C: KvConnection>(connection: &mut C, map: MapId, start: &[u8], end: &[u8]) -> Vec<Vec<u8>> {
    let read = |connection: &mut C, direction| {
        let rows = scan(connection, map, range(start, end, direction, usize::MAX));
        rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    let forward = read(connection, Direction::Forward);
    let mut reverse = read(connection, Direction::Reverse);
    reverse.reverse();
    expect(
        &format!("reverse scan of {start:?}..{end:?}"),
        reverse,
        forward.clone(),
    );
    forward
}

fn expect<T: PartialEq + Debug>(what: &str, found: T, expected: T) {
    assert!(
        found == expected,
        "{what}: found {found:?}, expected {expected:?}"
    );
}

fn committed_rows_are_seen<E: KvEngine>(engine: &E) {
    let (mut writer, mut reader) = (connect(engine), connect(engine));
    let mut txn = ok(writer.begin(), "begin");
    ok(txn.insert(PLAIN, b"a", b"1"), "insert");
    ok(txn.put(PREFIXED, b"prefix-1a", b"2"), "put");
    ok(txn.commit(), "commit");
    expect(
        "own read",
        get(&mut writer, PLAIN, b"a"),
        Some(b"1".to_vec()),
    );
    expect(
        "other's read",
        get(&mut reader, PREFIXED, b"prefix-1a"),
        Some(b"2".to_vec()),
    );
    expect("missing key", get(&mut reader, PLAIN, b"b"), None);
    put(&mut writer, PLAIN, &[(b"a", b"3")]);
    expect(
        "after overwrite",
        get(&mut reader, PLAIN, b"a"),
        Some(b"3".to_vec()),
    );
}

fn uncommitted_rows_are_not_seen<E: KvEngine>(engine: &E) {
    let (mut writer, mut reader) = (connect(engine), connect(engine));
    put(&mut writer, PLAIN, &[(b"a", b"old"), (b"b", b"old")]);
    let mut txn = ok(writer.begin(), "begin");
    ok(txn.put(PLAIN, b"a", b"new"), "put");
    ok(txn.delete(PLAIN, b"b"), "delete");
    ok(txn.insert(PLAIN, b"c", b"new"), "insert");
    expect(
        "overwritten row",
        get(&mut reader, PLAIN, b"a"),
        Some(b"old".to_vec()),
    );
    expect(
        "deleted row",
        get(&mut reader, PLAIN, b"b"),
        Some(b"old".to_vec()),
    );
    expect("inserted row", get(&mut reader, PLAIN, b"c"), None);
    expect(
        "scan",
        keys(&mut reader, PLAIN, b"a", b"z"),
        vec![b"a".to_vec(), b"b".to_vec()],
    );
    ok(txn.commit(), "commit");
    expect(
        "scan",
        keys(&mut reader, PLAIN, b"a", b"z"),
        vec![b"a".to_vec(), b"c".to_vec()],
    );
}

fn a_dropped_transaction_leaves_nothing<E: KvEngine>(engine: &E) {
    let mut connection = connect(engine);
    put(&mut connection, PLAIN, &[(b"a", b"1")]);
    let mut txn = ok(connection.begin(), "begin");
    ok(txn.put(PLAIN, b"a", b"2"), "put");
    ok(txn.insert(PLAIN, b"b", b"2"), "insert");
    drop(txn);
    expect(
        "row",
        get(&mut connection, PLAIN, b"a"),
        Some(b"1".to_vec()),
    );
    expect("inserted row", get(&mut connection, PLAIN, b"b"), None);
    // The dropped transaction must not have kept a lock either.
    put(&mut connection, PLAIN, &[(b"a", b"3")]);
    expect(
        "row",
        get(&mut connection, PLAIN, b"a"),
        Some(b"3".to_vec()),
    );
}

fn a_transaction_reads_its_own_writes<E: KvEngine>(engine: &E) {
    let mut connection = connect(engine);
    put(&mut connection, PLAIN, &[(b"a", b"1"), (b"b", b"1")]);
    let mut txn = ok(connection.begin(), "begin");
    ok(txn.put(PLAIN, b"a", b"2"), "put");
    ok(txn.delete(PLAIN, b"b"), "delete");
    ok(txn.insert(PLAIN, b"c", b"2"), "insert");
    let mut own = |key| ok(get_for_update(&mut txn, PLAIN, key), "get");
    expect("overwritten", own(b"a"), Some(b"2".to_vec()));
    expect("deleted", own(b"b"), None);
    expect("inserted", own(b"c"), Some(b"2".to_vec()));
    ok(txn.put(PLAIN, b"b", b"3"), "put after delete");
    ok(txn.commit(), "commit");
    expect(
        "last write",
        get(&mut connection, PLAIN, b"b"),
        Some(b"3".to_vec()),
    );
}

fn deleted_rows_are_gone<E: KvEngine + Engine>(engine: &E) {
    let mut connection = connect(engine);
    put(
        &mut connection,
        PREFIXED,
        &[(b"prefix-1a", b"1"), (b"prefix-1b", b"1")],
    );
    ok(engine.settle(&mut |_| {}), "settle");
    let mut txn = ok(connection.begin(), "begin");
    ok(txn.delete(PREFIXED, b"prefix-1a"), "delete");
    ok(
        txn.delete(PREFIXED, b"prefix-1z"),
        "delete of a missing key",
    );
    ok(txn.commit(), "commit");
    for settled in [false, true] {
        if settled {
            ok(engine.settle(&mut |_| {}), "settle");
        }
        expect(
            "deleted",
            get(&mut connection, PREFIXED, b"prefix-1a"),
            None,
        );
        let left = keys(&mut connection, PREFIXED, b"prefix-1", b"prefix-2");
        expect("scan", left, vec![b"prefix-1b".to_vec()]);
    }
    put(&mut connection, PREFIXED, &[(b"prefix-1a", b"2")]);
    expect(
        "written again",
        get(&mut connection, PREFIXED, b"prefix-1a"),
        Some(b"2".to_vec()),
    );
}

fn ranges_both_ways<E: KvEngine>(engine: &E) {
    let mut connection = connect(engine);
    put(
        &mut connection,
        PLAIN,
        &[(b"b", b"2"), (b"d", b"4"), (b"c", b"3"), (b"e", b"5")],
    );
    let mut values = |start: &[u8], end: &[u8], direction, limit| {
        let rows = scan(&mut connection, PLAIN, range(start, end, direction, limit));
        rows.into_iter()
            .flat_map(|(_, value)| value)
            .collect::<Vec<u8>>()
    };
    use Direction::{Forward, Reverse};
    expect("all", values(b"a", b"z", Forward, 9), b"2345".to_vec());
    expect(
        "all, reverse",
        values(b"a", b"z", Reverse, 9),
        b"5432".to_vec(),
    );
    expect("limit", values(b"a", b"z", Forward, 2), b"23".to_vec());
    expect(
        "limit, reverse",
        values(b"a", b"z", Reverse, 2),
        b"54".to_vec(),
    );
    expect("limit 0", values(b"a", b"z", Forward, 0), Vec::new());
    expect(
        "bounds on rows",
        values(b"b", b"e", Forward, 9),
        b"234".to_vec(),
    );
    expect(
        "bounds on rows, reverse",
        values(b"b", b"e", Reverse, 9),
        b"432".to_vec(),
    );
    expect(
        "bounds between rows",
        values(b"ba", b"da", Forward, 9),
        b"34".to_vec(),
    );
    expect(
        "bounds between rows, reverse",
        values(b"ba", b"da", Reverse, 9),
        b"43".to_vec(),
    );
    for direction in [Forward, Reverse] {
        expect(
            "no rows inside",
            values(b"ba", b"bb", direction, 9),
            Vec::new(),
        );
        expect("empty range", values(b"c", b"c", direction, 9), Vec::new());
        expect(
            "inverted range",
            values(b"e", b"b", direction, 9),
            Vec::new(),
        );
        expect(
            "before all rows",
            values(b"a", b"b", direction, 9),
            Vec::new(),
        );
        expect(
            "after all rows",
            values(b"f", b"z", direction, 9),
            Vec::new(),
        );
    }
    let mut seen = 0;
    let stop_at_once = |_: &[u8], _: &[u8]| {
        seen += 1;
        false
    };
    let all = range(b"a", b"z", Forward, 9);
    ok(connection.scan(PLAIN, all, stop_at_once), "scan");
    expect("rows seen after the visitor said stop", seen, 1);
}

fn ranges_keep_to_their_prefix<E: KvEngine + Engine>(engine: &E) {
    let mut connection = connect(engine);
    let key = |prefix: u64, suffix: &[u8]| [&prefix.to_be_bytes()[..], suffix].concat();
    // Neighbours that differ in the last bit, across a byte boundary, and at both ends of the key space.
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

fn keys_are_ordered_as_bytes<E: KvEngine>(engine: &E) {
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
    // `b"a" > b"\x80"` would hold for signed bytes, so the list itself is checked.
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

fn maps_do_not_share_keys<E: KvEngine>(engine: &E) {
    let mut connection = connect(engine);
    put(&mut connection, PLAIN, &[(b"same-key", b"plain")]);
    expect(
        "other map",
        get(&mut connection, PREFIXED, b"same-key"),
        None,
    );
    put(&mut connection, PREFIXED, &[(b"same-key", b"prefixed")]);
    let mut txn = ok(connection.begin(), "begin");
    ok(txn.delete(PLAIN, b"same-key"), "delete");
    ok(txn.commit(), "commit");
    expect("deleted", get(&mut connection, PLAIN, b"same-key"), None);
    expect(
        "kept",
        get(&mut connection, PREFIXED, b"same-key"),
        Some(b"prefixed".to_vec()),
    );
}

fn large_and_empty_values<E: KvEngine + Engine>(engine: &E) {
    let mut connection = connect(engine);
    // A pattern without a short period, so that a misplaced page shows.
    let large: Vec<u8> = (0..1_u32 << 20)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    put(
        &mut connection,
        PLAIN,
        &[(b"large", &large), (b"empty", b"")],
    );
    for settled in [false, true] {
        if settled {
            ok(engine.settle(&mut |_| {}), "settle");
        }
        let found = get(&mut connection, PLAIN, b"large");
        assert!(
            found.as_deref() == Some(&large[..]),
            "the large value differs"
        );
        expect(
            "empty value",
            get(&mut connection, PLAIN, b"empty"),
            Some(Vec::new()),
        );
    }
    put(&mut connection, PLAIN, &[(b"large", b"small")]);
    expect(
        "replaced",
        get(&mut connection, PLAIN, b"large"),
        Some(b"small".to_vec()),
    );
}

/// Loads `count` rows into both maps, in batches, with keys in descending order.
fn load<E: KvEngine>(engine: &E, count: u64) {
    let mut connection = connect(engine);
    let keys: Vec<[u8; 16]> = (0..count).rev().map(numbered_key).collect();
    for chunk in keys.chunks(100) {
        let rows: Vec<BulkRow<'_>> = chunk
            .iter()
            .flat_map(|key| {
                [PLAIN, PREFIXED].map(|map| BulkRow {
                    map,
                    key,
                    value: &key[8..],
                })
            })
            .collect();
        ok(connection.bulk_insert(&rows), "bulk insert");
    }
}

/// Ten keys for each eight-byte prefix.
fn numbered_key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(number / 10).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn check_loaded<E: KvEngine>(engine: &E, count: u64) {
    let mut connection = connect(engine);
    for map in [PLAIN, PREFIXED] {
        let all = scan(
            &mut connection,
            map,
            range(&[0], &[0xFF; 16], Direction::Forward, usize::MAX),
        );
        expect("rows", all.len() as u64, count);
        for (number, (key, value)) in all.iter().enumerate() {
            let expected = numbered_key(number as u64);
            assert!(
                key == &expected && value == &expected[8..],
                "row {number} differs"
            );
        }
        for number in (0..count).step_by(37) {
            let key = numbered_key(number);
            expect(
                "value",
                get(&mut connection, map, &key),
                Some(key[8..].to_vec()),
            );
        }
        expect(
            "absent",
            get(&mut connection, map, &numbered_key(count)),
            None,
        );
    }
}

fn a_bulk_load_is_complete<E: KvEngine>(engine: &E) {
    load(engine, 2_000);
    check_loaded(engine, 2_000);
}

/// Runs `body` as a transaction until it does not conflict. Bounded, so that a live lock fails the suite.
fn with_retries<C: KvConnection>(connection: &mut C, body: impl Fn(&mut C::Txn<'_>) -> Result<()>) {
    for _ in 0..100_000 {
        let mut txn = ok(connection.begin(), "begin");
        match body(&mut txn).and_then(|()| txn.commit()) {
            Ok(()) => return,
            Err(EngineError::Retry(_)) => std::thread::yield_now(),
            Err(error) => panic!("transaction: {error}"),
        }
    }
    panic!("a transaction conflicted 100000 times");
}

fn increment<T: KvTxn>(txn: &mut T, key: &[u8]) -> Result<()> {
    let counter = get_for_update(txn, PLAIN, key)?.map_or(0, |value| number(&value));
    txn.put(PLAIN, key, &(counter + 1).to_be_bytes())
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("a counter has eight bytes"))
}

/// Runs `body` on `threads` threads with a connection each.
fn concurrently<E: KvEngine>(
    engine: &E,
    threads: u64,
    body: impl Fn(u64, &mut E::Connection) + Sync,
) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let body = &body;
            scope.spawn(move || body(thread, &mut connect(engine)));
        }
    });
}

fn no_increment_is_lost<E: KvEngine>(engine: &E) {
    const THREADS: u64 = 4;
    const INCREMENTS: u64 = 200;
    put(
        &mut connect(engine),
        PLAIN,
        &[(b"counter", &0_u64.to_be_bytes())],
    );
    concurrently(engine, THREADS, |_, connection| {
        for _ in 0..INCREMENTS {
            with_retries(connection, |txn| increment(txn, b"counter"));
        }
    });
    let value = get(&mut connect(engine), PLAIN, b"counter").expect("the counter exists");
    expect("counter", number(&value), THREADS * INCREMENTS);
}

/// Two clients that find the same row missing must not both insert it.
fn absent_rows_are_protected_too<E: KvEngine>(engine: &E) {
    const THREADS: u64 = 3;
    const ROWS: u64 = 100;
    concurrently(engine, THREADS, |_, connection| {
        for row in 0..ROWS {
            with_retries(connection, |txn| increment(txn, &row.to_be_bytes()));
        }
    });
    let mut connection = connect(engine);
    for row in 0..ROWS {
        let value = get(&mut connection, PLAIN, &row.to_be_bytes()).expect("the row exists");
        expect("row created by many", number(&value), THREADS);
    }
}

/// Transfers lock two rows in either order, so that engines with row locks meet deadlocks; a reader scans meanwhile.
fn transfers_keep_the_sum<E: KvEngine>(engine: &E) {
    const ACCOUNTS: u64 = 4;
    const TRANSFERS: u64 = 100;
    const START: u64 = 1_000_000;
    let account = |index: u64| (index % ACCOUNTS).to_be_bytes();
    let mut connection = connect(engine);
    for index in 0..ACCOUNTS {
        put(
            &mut connection,
            PLAIN,
            &[(&account(index), &START.to_be_bytes())],
        );
    }
    concurrently(engine, 3, |thread, connection| {
        for step in 0..TRANSFERS {
            if thread == 0 {
                let all = range(&[0], &[0xFF], Direction::Forward, usize::MAX);
                let rows = scan(connection, PLAIN, all);
                let sum: u64 = rows.iter().map(|(_, value)| number(value)).sum();
                expect("sum seen by a scan", sum, ACCOUNTS * START);
                continue;
            }
            // Thread 1 walks the accounts upwards, thread 2 downwards.
            let (from, to) = if thread == 1 {
                (step, step + 1)
            } else {
                (step + 1, step)
            };
            with_retries(connection, |txn| {
                let left =
                    get_for_update(txn, PLAIN, &account(from))?.map_or(0, |value| number(&value));
                let right =
                    get_for_update(txn, PLAIN, &account(to))?.map_or(0, |value| number(&value));
                txn.put(PLAIN, &account(from), &(left - 1).to_be_bytes())?;
                txn.put(PLAIN, &account(to), &(right + 1).to_be_bytes())
            });
        }
    });
    let rows = scan(
        &mut connection,
        PLAIN,
        range(&[0], &[0xFF], Direction::Forward, usize::MAX),
    );
    let sum: u64 = rows.iter().map(|(_, value)| number(value)).sum();
    expect("sum at the end", sum, ACCOUNTS * START);
}

fn unknown_maps_are_errors<E: KvEngine>(engine: &E) {
    let mut connection = connect(engine);
    let missing = MapId(SCHEMA.len());
    assert!(
        connection.get(missing, b"a", |_| ()).is_err(),
        "get of an unknown map"
    );
    let all = range(b"a", b"z", Direction::Forward, 1);
    assert!(
        connection.scan(missing, all, |_, _| true).is_err(),
        "scan of an unknown map"
    );
    let mut txn = ok(connection.begin(), "begin");
    assert!(
        txn.put(missing, b"a", b"1").is_err(),
        "put to an unknown map"
    );
    assert!(
        txn.delete(missing, b"a").is_err(),
        "delete in an unknown map"
    );
}

fn rows_survive_settle_and_reopen<E: KvEngine + Engine>(root: &Path, open: &dyn Fn(&Path) -> E) {
    const ROWS: u64 = 3_000;
    let dir = root.join("rows_survive_settle_and_reopen");
    std::fs::create_dir(&dir).expect("create a directory for the case");
    let engine = open(&dir);
    load(&engine, ROWS);
    ok(Box::new(engine).close(), "close after load");
    let engine = open(&dir);
    check_loaded(&engine, ROWS);
    ok(engine.settle(&mut |_| {}), "settle");
    check_loaded(&engine, ROWS);
    ok(Box::new(engine).close(), "close after settle");
    let engine = open(&dir);
    check_loaded(&engine, ROWS);
    ok(Box::new(engine).close(), "close after reopen");
}
