//! Row visibility: rows appear on commit, not before it, and not after a rollback or delete; in
//! their own map only, and with empty or large values.

use rumbench_core::engine::Engine;
use rumbench_core::kv::{Direction, KvConnection, KvEngine, KvTxn, MapId};

use super::calls::{
    KEY_VALUE_MAPS, PLAIN, PREFIXED, connect, expect, get, get_for_update, keys, ok, put, range,
};

pub(super) fn committed_rows_are_seen<E: KvEngine>(engine: &E) {
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

pub(super) fn single_puts_are_commits_of_their_own<E: KvEngine>(engine: &E) {
    let (mut writer, mut reader) = (connect(engine), connect(engine));
    for value in [&b"1"[..], b"", b"3"] {
        ok(writer.put(PLAIN, b"a", value), "put");
        let found = get(&mut reader, PLAIN, b"a");
        expect("after a put", found, Some(value.to_vec()));
    }
    expect("other map", get(&mut reader, PREFIXED, b"a"), None);
}

pub(super) fn multi_gets_answer_each_key_in_its_place<E: KvEngine + Engine>(engine: &E) {
    let mut connection = connect(engine);
    put(
        &mut connection,
        PLAIN,
        &[(b"a", b"1"), (b"b", b"2"), (b"d", b"")],
    );
    let keys: [&[u8]; 6] = [b"d", b"a", b"c", b"a", b"e", b"b"];
    let expected: [Option<&[u8]>; 6] = [Some(b""), Some(b"1"), None, Some(b"1"), None, Some(b"2")];
    for settled in [false, true] {
        if settled {
            ok(engine.settle(&mut |_| {}), "settle");
        }
        let mut found = vec![Some(b"not asked".to_vec()); keys.len()];
        let read = |place: usize, value: Option<&[u8]>| found[place] = value.map(<[u8]>::to_vec);
        ok(connection.multi_get(PLAIN, &keys, read), "multi-get");
        let found: Vec<Option<&[u8]>> = found.iter().map(Option::as_deref).collect();
        expect("multi-get", found, expected.to_vec());
    }
}

pub(super) fn uncommitted_rows_are_not_seen<E: KvEngine>(engine: &E) {
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

pub(super) fn a_dropped_transaction_leaves_nothing<E: KvEngine>(engine: &E) {
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
    // The dropped transaction must not hold a lock either.
    put(&mut connection, PLAIN, &[(b"a", b"3")]);
    expect(
        "row",
        get(&mut connection, PLAIN, b"a"),
        Some(b"3".to_vec()),
    );
}

pub(super) fn a_transaction_reads_its_own_writes<E: KvEngine>(engine: &E) {
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

pub(super) fn deleted_rows_are_gone<E: KvEngine + Engine>(engine: &E) {
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

pub(super) fn maps_do_not_share_keys<E: KvEngine>(engine: &E) {
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

pub(super) fn large_and_empty_values<E: KvEngine + Engine>(engine: &E) {
    let mut connection = connect(engine);
    // A pattern without a short period, so that a misplaced page is detected.
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

pub(super) fn unknown_maps_are_errors<E: KvEngine>(engine: &E) {
    let mut connection = connect(engine);
    let missing = MapId(KEY_VALUE_MAPS.len());
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
