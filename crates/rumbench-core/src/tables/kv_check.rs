//! Compares the entries of every index with the rows of its table, on an idle database.
//!
//! It compares their number and two sums of 64-bit digests, so the memory does not depend on the
//! table size. If they differ, a second scan finds the first row without its entry.

use super::encoding::{NO_VALUES, read_row};
use super::kv_entries::{LOWEST, append_entry, index_map, rows_map};
use super::schema::{TableId, TableSchema};
use crate::error::{EngineError, Result};
use crate::kv::{Direction, KvConnection, MapId, Scan};
use crate::random::mix;

/// Upper bound, longer than any key.
const HIGHEST: [u8; 512] = [0xff; 512];
const ALL: Scan<'static> = Scan {
    start: LOWEST,
    end: &HIGHEST,
    direction: Direction::Forward,
    limit: usize::MAX,
};
/// Rows that are read at once.
const STRIDE: usize = 4096;

/// Digest of a multiset of entries: it depends on their multiplicity, but not on their order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Digest {
    entries: u64,
    sums: [u64; 2],
}

impl Digest {
    fn add(&mut self, entry: &[u8]) {
        self.entries += 1;
        for (seed, sum) in self.sums.iter_mut().enumerate() {
            let mut hash = mix(seed as u64, entry.len() as u64);
            for word in entry.chunks(8) {
                let mut bytes = [0; 8];
                bytes[..word.len()].copy_from_slice(word);
                hash = mix(hash, u64::from_le_bytes(bytes));
            }
            *sum = sum.wrapping_add(hash);
        }
    }
}

/// Checks these indexes of a table.
pub(super) fn check<C: KvConnection>(
    connection: &mut C,
    schema: &TableSchema,
    table: TableId,
    built: &[usize],
) -> Result<()> {
    let of = schema.table(table);
    let mut wanted = vec![Digest::default(); built.len()];
    let mut entry = Vec::new();
    let mut read = Ok(());
    connection.scan(rows_map(schema, table), ALL, |key, value| {
        let mut values = NO_VALUES;
        read = read_row(of, key, value, &mut values).and_then(|values| {
            for (index, digest) in built.iter().zip(&mut wanted) {
                entry.clear();
                append_entry(of, *index, |place| values[place], &mut entry)?;
                digest.add(&entry);
            }
            Ok(())
        });
        read.is_ok()
    })?;
    read?;
    for (index, wanted) in built.iter().zip(wanted) {
        let mut found = Digest::default();
        connection.scan(index_map(schema, table, *index), ALL, |key, _| {
            found.add(key);
            true
        })?;
        if found != wanted {
            let name = of.index_name(*index);
            let (rows, entries) = (wanted.entries, found.entries);
            let example = missing_entry(connection, schema, table, *index)?;
            return Err(EngineError::Wrong(format!(
                "index {name} has {entries} entries for {rows} rows; {}",
                example.unwrap_or_else(|| "some entry has no row".to_owned())
            )));
        }
    }
    Ok(())
}

/// Describes the first row without its entry.
fn missing_entry<C: KvConnection>(
    connection: &mut C,
    schema: &TableSchema,
    table: TableId,
    index: usize,
) -> Result<Option<String>> {
    let of = schema.table(table);
    let mut start = LOWEST.to_vec();
    // Each round starts after the last row of the previous one.
    loop {
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let some = Scan {
            start: &start,
            limit: STRIDE,
            ..ALL
        };
        let mut read = Ok(());
        connection.scan(rows_map(schema, table), some, |key, value| {
            let mut values = NO_VALUES;
            let mut entry = Vec::new();
            read = read_row(of, key, value, &mut values)
                .and_then(|values| append_entry(of, index, |place| values[place], &mut entry));
            rows.push((key.to_vec(), entry));
            read.is_ok()
        })?;
        read?;
        for (key, entry) in &rows {
            if !has(connection, index_map(schema, table, index), entry)? {
                return Ok(Some(format!("the row with key {key:02x?} has none")));
            }
        }
        match rows.pop() {
            None => return Ok(None),
            Some((mut last, _)) => {
                last.push(0);
                start = last;
            }
        }
    }
}

fn has<C: KvConnection>(connection: &mut C, map: MapId, key: &[u8]) -> Result<bool> {
    connection.get(map, key, |found| found.is_some())
}
