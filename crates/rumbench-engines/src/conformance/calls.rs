//! Maps of the suite, and calls that panic with their name.

use std::fmt::Debug;

use rumbench_core::engine::Result;
use rumbench_core::kv::{Direction, KvConnection, KvEngine, KvTxn, MapDef, MapId, Scan};

/// Map without hints.
pub(super) const PLAIN: MapId = MapId(0);
/// Map with a scan prefix of eight bytes, so that engines use prefix filters.
pub(super) const PREFIXED: MapId = MapId(1);

/// Maps that the suite needs; open the engine with these.
pub const KEY_VALUE_MAPS: &[MapDef] = &[
    MapDef {
        name: "plain",
        scan_prefix_bytes: None,
        point_reads: true,
        expect_hits: true,
        is_queue: true,
    },
    MapDef {
        name: "prefixed",
        scan_prefix_bytes: Some(8),
        point_reads: true,
        expect_hits: false,
        is_queue: false,
    },
];

pub(super) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the value, or panics with the name of the call.
pub(super) fn ok<T>(result: Result<T>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

pub(super) fn connect<E: KvEngine>(engine: &E) -> E::Connection {
    ok(engine.connect(), "connect")
}

pub(super) fn get<C: KvConnection>(connection: &mut C, map: MapId, key: &[u8]) -> Option<Vec<u8>> {
    let value = connection.get(map, key, |value| value.map(<[u8]>::to_vec));
    ok(value, "get")
}

pub(super) fn get_for_update<T: KvTxn>(
    txn: &mut T,
    map: MapId,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    txn.get_for_update(map, key, |value| value.map(<[u8]>::to_vec))
}

pub(super) fn put<C: KvConnection>(connection: &mut C, map: MapId, rows: &[(&[u8], &[u8])]) {
    for (key, value) in rows {
        ok(connection.put(map, key, value), "put");
    }
}

pub(super) fn scan<C: KvConnection>(connection: &mut C, map: MapId, scan: Scan<'_>) -> Rows {
    let mut rows = Rows::new();
    let visit = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        true
    };
    ok(connection.scan(map, scan, visit), "scan");
    rows
}

pub(super) fn range<'a>(
    start: &'a [u8],
    end: &'a [u8],
    direction: Direction,
    limit: usize,
) -> Scan<'a> {
    Scan {
        start,
        end,
        direction,
        limit,
    }
}

/// Returns the keys of `start..end` in ascending order after checking that both scan directions
/// agree.
pub(super) fn keys<C: KvConnection>(
    connection: &mut C,
    map: MapId,
    start: &[u8],
    end: &[u8],
) -> Vec<Vec<u8>> {
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

pub(super) fn expect<T: PartialEq + Debug>(what: &str, found: T, expected: T) {
    assert!(
        found == expected,
        "{what}: found {found:?}, expected {expected:?}"
    );
}
