//! Catalog of a database of tables, and the build of an index from existing rows.

use super::encoding::{NO_VALUES, key_bytes, read_row};
use super::kv_entries::{LOWEST, append_entry, index_map, rows_map};
use super::schema::{TableId, TableSchema};
use crate::error::Result;
use crate::kv::{BulkRow, Direction, KvConnection, MapId, Scan};
use crate::retry::retried_with;

/// The catalog's map.
const CATALOG: MapId = MapId(0);
/// Key of the schema description.
const SCHEMA_KEY: &[u8] = b"schema";
/// Size of the sort buffer for entries, like that of servers (Postgres' maintenance_work_mem: 64
/// MiB). It is allocated once: a growing buffer would need twice as much, more than a trial with
/// little memory has.
const SORT_BYTES: usize = 64 << 20;
/// Entries of one commit.
const COMMIT_ENTRIES: usize = 1000;

/// Checks that a database holds these tables, or records them in an empty one.
pub(super) fn open_catalog<C: KvConnection>(
    connection: &mut C,
    schema: &TableSchema,
) -> Result<()> {
    let found = connection.get(CATALOG, SCHEMA_KEY, |found| {
        found.map(|found| String::from_utf8_lossy(found).into_owned())
    })?;
    match found {
        Some(found) => schema.compare(&found),
        None => note(connection, SCHEMA_KEY, schema.describe().as_bytes()),
    }
}

/// Writes into the catalog.
fn note<C: KvConnection>(connection: &mut C, key: &[u8], value: &[u8]) -> Result<()> {
    at_once(|| connection.put(CATALOG, key, value))
}

/// Retries a refused commit immediately, without a restart of the build. No other client runs
/// during a build, and a restarted build would find its own entries.
fn at_once(commit: impl FnMut() -> Result<()>) -> Result<()> {
    retried_with(|_attempt| {}, commit).map(|((), _retries)| ())
}

fn built_key(schema: &TableSchema, table: TableId, index: usize) -> String {
    format!("built {}", schema.table(table).index_name(index))
}

/// Returns the built indexes of each table.
pub(super) fn built_indexes<C: KvConnection>(
    connection: &mut C,
    schema: &TableSchema,
) -> Result<Vec<Vec<usize>>> {
    let mut all = Vec::new();
    for (place, table) in schema.tables().iter().enumerate() {
        let mut built = Vec::new();
        for index in 0..table.indexes.len() {
            let key = built_key(schema, TableId(place), index);
            if connection.get(CATALOG, key.as_bytes(), |found| found.is_some())? {
                built.push(index);
            }
        }
        all.push(built);
    }
    Ok(all)
}

/// Builds an index in rounds: reads rows in order, sorts as many entries as fit into the sort
/// buffer, and writes them. Each sorted run is ingested if the engine can do that, as MyRocks
/// builds its indexes, and otherwise committed in parts.
pub(super) fn build_index<C: KvConnection>(
    connection: &mut C,
    schema: &TableSchema,
    table: TableId,
    index: usize,
) -> Result<()> {
    let key = built_key(schema, table, index);
    if connection.get(CATALOG, key.as_bytes(), |found| found.is_some())? {
        return Ok(());
    }
    let of = schema.table(table);
    let entry_bytes = key_bytes(of.index_columns(index), of);
    let row_key_bytes = key_bytes(0..of.key_columns, of);
    let end = vec![0xff; row_key_bytes + 1];
    let mut start = LOWEST.to_vec();
    let limit = SORT_BYTES / entry_bytes;
    let mut entries = Vec::with_capacity(limit * entry_bytes);
    // Each round starts after the last row of the previous one.
    loop {
        entries.clear();
        let rows = Scan {
            start: &start,
            end: &end,
            direction: Direction::Forward,
            limit,
        };
        let (mut last, mut wrong) = (Vec::new(), None);
        connection.scan(rows_map(schema, table), rows, |key, value| {
            last.clear();
            last.extend_from_slice(key);
            let mut values = NO_VALUES;
            let appended = read_row(of, key, value, &mut values)
                .and_then(|values| append_entry(of, index, |place| values[place], &mut entries));
            wrong = appended.err();
            wrong.is_none()
        })?;
        if let Some(error) = wrong {
            return Err(error);
        }
        if last.is_empty() {
            return note(connection, key.as_bytes(), b"");
        }
        write_sorted(
            connection,
            index_map(schema, table, index),
            &entries,
            entry_bytes,
        )?;
        // The first key after the last one.
        last.push(0);
        start = last;
    }
}

fn write_sorted<C: KvConnection>(
    connection: &mut C,
    map: MapId,
    entries: &[u8],
    entry_bytes: usize,
) -> Result<()> {
    let entry = |place: u32| &entries[place as usize * entry_bytes..][..entry_bytes];
    // Sort numbers, not slices: a slice can be as large as the entry itself.
    let mut sorted: Vec<u32> = (0..(entries.len() / entry_bytes) as u32).collect();
    sorted.sort_unstable_by(|&a, &b| entry(a).cmp(entry(b)));
    const NO_VALUE: &[u8] = b"";
    let rows = sorted.iter().map(|&place| (entry(place), NO_VALUE));
    if connection.ingest(map, rows)? {
        return Ok(());
    }
    let mut commit = Vec::with_capacity(COMMIT_ENTRIES);
    for places in sorted.chunks(COMMIT_ENTRIES) {
        commit.clear();
        commit.extend(places.iter().map(|&place| BulkRow {
            map,
            key: entry(place),
            value: NO_VALUE,
        }));
        at_once(|| connection.bulk_insert(&commit))?;
    }
    Ok(())
}
