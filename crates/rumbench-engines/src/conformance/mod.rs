//! Conformance suite for ordered key-value engines, independent of their implementation.
//!
//! [`key_value`] runs all cases, each on a fresh database. A case panics with the value found and
//! the value expected. The suite never holds two transactions on one thread: an engine with a
//! single writer would deadlock.

mod concurrency;
mod loading;
mod ranges;
mod rows;
mod tables;
mod transactions;
mod visibility;

pub use rows::{key_value_schema, key_value_table};
pub use tables::{table_schema, table_store};

use std::fmt::Debug;
use std::path::Path;

use rumbench_core::engine::{Engine, Result};
use rumbench_core::kv::{Direction, KvConnection, KvEngine, KvTxn, MapDef, MapId, Scan};

/// Map without hints.
const PLAIN: MapId = MapId(0);
/// Map with a scan prefix of eight bytes, so that engines use prefix filters.
const PREFIXED: MapId = MapId(1);

/// Maps that the suite needs; open the engine with these.
pub const SCHEMA: &[MapDef] = &[
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

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Runs every case. `open` opens [`SCHEMA`] in an existing directory, empty or with a database in
/// it. `root` is an empty directory.
///
/// # Panics
/// If the engine misbehaves.
pub fn key_value<E: KvEngine + Engine>(root: &Path, open: &dyn Fn(&Path) -> E) {
    let with_transactions: &[fn(&E)] = &[
        visibility::committed_rows_are_seen,
        visibility::uncommitted_rows_are_not_seen,
        visibility::a_dropped_transaction_leaves_nothing,
        visibility::a_transaction_reads_its_own_writes,
        visibility::deleted_rows_are_gone,
        ranges::ranges_keep_to_their_prefix,
        visibility::maps_do_not_share_keys,
        concurrency::no_increment_is_lost,
        concurrency::absent_rows_are_protected_too,
        concurrency::transfers_keep_the_sum,
        visibility::unknown_maps_are_errors,
    ];
    run(&root.join("with-transactions"), open, with_transactions);
    key_value_without_transactions(root, open);
}

/// Runs the cases of [`key_value`] that begin no transaction, for an engine opened without
/// transactions.
///
/// # Panics
/// If the engine misbehaves.
pub fn key_value_without_transactions<E: KvEngine + Engine>(
    root: &Path,
    open: &dyn Fn(&Path) -> E,
) {
    let cases: &[fn(&E)] = &[
        visibility::single_puts_are_commits_of_their_own,
        visibility::multi_gets_answer_each_key_in_its_place,
        ranges::ranges_both_ways,
        ranges::visitors_stop_scans,
        ranges::keys_are_ordered_as_bytes,
        visibility::large_and_empty_values,
        loading::a_bulk_load_is_complete,
        loading::ingested_rows_are_rows_like_all_others,
        loading::two_maps_are_ingested_at_once,
        loading::bulk_deletes_remove_exactly_their_keys,
    ];
    run(&root.join("without-transactions"), open, cases);
    loading::rows_survive_settle_and_reopen(root, open);
}

fn run<E: Engine>(root: &Path, open: &dyn Fn(&Path) -> E, cases: &[fn(&E)]) {
    for (number, case) in cases.iter().enumerate() {
        let dir = root.join(format!("case-{number}"));
        std::fs::create_dir_all(&dir).expect("create a directory for the case");
        let engine = open(&dir);
        case(&engine);
        ok(Box::new(engine).close(), "close");
    }
}

/// Returns the value, or panics with the name of the call.
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
    for (key, value) in rows {
        ok(connection.put(map, key, value), "put");
    }
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

/// Returns the keys of `start..end` in ascending order after checking that both scan directions
/// agree.
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
