//! Bulk loads, and their rows after settling and reopening.

use std::path::Path;

use rumbench_core::engine::Engine;
use rumbench_core::kv::{BulkRow, Direction, KvConnection, KvEngine, MapId};

use super::calls::{PLAIN, PREFIXED, Rows, connect, expect, get, ok, range, scan};

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

/// Returns the key for `number`; ten keys share each eight-byte prefix.
fn numbered_key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(number / 10).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn check_loaded<E: KvEngine>(engine: &E, count: u64) {
    let mut connection = connect(engine);
    for map in [PLAIN, PREFIXED] {
        check_map(&mut connection, map, count);
    }
}

fn all_rows<C: KvConnection>(connection: &mut C, map: MapId) -> Rows {
    let all = range(&[0], &[0xFF; 16], Direction::Forward, usize::MAX);
    scan(connection, map, all)
}

fn check_map<C: KvConnection>(connection: &mut C, map: MapId, count: u64) {
    let all = all_rows(connection, map);
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
        expect("value", get(connection, map, &key), Some(key[8..].to_vec()));
    }
    expect("absent", get(connection, map, &numbered_key(count)), None);
}

pub(super) fn a_bulk_load_is_complete<E: KvEngine>(engine: &E) {
    load(engine, 2_000);
    check_loaded(engine, 2_000);
}

pub(super) fn rows_survive_settle_and_reopen<E: KvEngine + Engine>(
    root: &Path,
    open: &dyn Fn(&Path) -> E,
) {
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

/// Ingests two interleaved sorted runs, with a bulk insert between them, then deletes every second
/// row. An engine without ingestion writes nothing.
pub(super) fn ingested_rows_are_rows_like_all_others<E: KvEngine>(engine: &E) {
    const ROWS: u64 = 900;
    let mut connection = connect(engine);
    let keys: Vec<[u8; 16]> = (0..ROWS).map(numbered_key).collect();
    let run = |place: usize| {
        let keys = keys.iter().skip(place).step_by(3);
        keys.map(|key| (&key[..], &key[8..]))
    };
    for map in [PLAIN, PREFIXED] {
        if !ok(connection.ingest(map, run(0)), "ingest") {
            expect("rows", all_rows(&mut connection, map), Vec::new());
            continue;
        }
        let rows: Vec<BulkRow<'_>> = run(1)
            .map(|(key, value)| BulkRow { map, key, value })
            .collect();
        ok(connection.bulk_insert(&rows), "bulk insert");
        expect(
            "ingested",
            ok(connection.ingest(map, run(2)), "ingest"),
            true,
        );
        check_map(&mut connection, map, ROWS);
        let gone: Vec<(MapId, &[u8])> = keys.iter().step_by(2).map(|key| (map, &key[..])).collect();
        ok(connection.bulk_delete(&gone), "bulk delete");
        let left = all_rows(&mut connection, map).into_iter().map(|row| row.0);
        let kept = keys.iter().skip(1).step_by(2).map(|key| key.to_vec());
        expect(
            "keys left",
            left.collect::<Vec<_>>(),
            kept.collect::<Vec<_>>(),
        );
    }
}

/// Ingests one map halfway through the ingestion of another.
pub(super) fn two_maps_are_ingested_at_once<E: KvEngine>(engine: &E) {
    const ROWS: u64 = 500;
    let (mut outer, mut inner) = (connect(engine), connect(engine));
    let keys: Vec<[u8; 16]> = (0..ROWS).map(numbered_key).collect();
    let rows = || keys.iter().map(|key| (&key[..], &key[8..]));
    let half_way = rows().enumerate().map(|(place, row)| {
        if place as u64 == ROWS / 2 {
            expect("inner", ok(inner.ingest(PREFIXED, rows()), "ingest"), true);
        }
        row
    });
    if ok(outer.ingest(PLAIN, half_way), "ingest") {
        check_loaded(engine, ROWS);
    }
}

/// Deletes every second key of both maps in one commit.
pub(super) fn bulk_deletes_remove_exactly_their_keys<E: KvEngine>(engine: &E) {
    load(engine, 300);
    let mut connection = connect(engine);
    let gone: Vec<[u8; 16]> = (0..300).step_by(2).map(numbered_key).collect();
    let both = |key| [(PLAIN, key), (PREFIXED, key)];
    let keys: Vec<(MapId, &[u8])> = gone.iter().flat_map(|key| both(&key[..])).collect();
    ok(connection.bulk_delete(&keys), "bulk delete");
    for map in [PLAIN, PREFIXED] {
        let left = all_rows(&mut connection, map);
        let left: Vec<Vec<u8>> = left.into_iter().map(|(key, _)| key).collect();
        let kept: Vec<Vec<u8>> = (1..300)
            .step_by(2)
            .map(|n| numbered_key(n).to_vec())
            .collect();
        expect("keys left", left, kept);
        expect(
            "a deleted key",
            get(&mut connection, map, &numbered_key(0)),
            None,
        );
    }
}
