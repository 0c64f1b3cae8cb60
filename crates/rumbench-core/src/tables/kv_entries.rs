//! Maps of a table in an ordered key-value store, and the encoded entries of its rows: one in the
//! map of rows, and one in the map of each index.

use super::encoding::{append_key, append_row};
use super::rows::{RowBatch, Value};
use super::schema::{Table, TableId, TableSchema};
use crate::error::Result;
use crate::kv::{BulkRow, MapId};

/// Returns the map of a table's rows.
pub(super) fn rows_map(schema: &TableSchema, table: TableId) -> MapId {
    MapId(schema.first_map(table))
}

/// Returns the map of an index.
pub(super) fn index_map(schema: &TableSchema, table: TableId, index: usize) -> MapId {
    MapId(schema.first_map(table) + 1 + index)
}

/// Lower bound of all keys: an encoded key begins with a larger byte.
pub(super) const LOWEST: &[u8] = &[0];

/// Buffer of the encoded entries that one commit writes or deletes.
#[derive(Default)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    /// Map, end of the key, end of the value.
    ends: Vec<(MapId, usize, usize)>,
}

impl Entries {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends an entry with an empty value.
    #[inline]
    pub(super) fn push_key(
        &mut self,
        map: MapId,
        append: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        append(&mut self.bytes)?;
        let end = self.bytes.len();
        self.ends.push((map, end, end));
        Ok(())
    }

    /// Appends the value of the last entry.
    #[inline]
    pub(super) fn push_value(
        &mut self,
        append: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        append(&mut self.bytes)?;
        if let Some((_, _, end)) = self.ends.last_mut() {
            *end = self.bytes.len();
        }
        Ok(())
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = BulkRow<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |&(map, key_end, end)| {
            let row = BulkRow {
                map,
                key: &self.bytes[start..key_end],
                value: &self.bytes[key_end..end],
            };
            start = end;
            row
        })
    }

    /// Replaces the entries with those of new rows: first those of the rows, then those of each of
    /// the `built` indexes, the ones that exist.
    pub(super) fn fill_rows(
        &mut self,
        (schema, table): (&TableSchema, TableId),
        built: &[usize],
        rows: &RowBatch,
    ) -> Result<()> {
        self.clear();
        let (of, map) = (schema.table(table), rows_map(schema, table));
        for row in rows.rows() {
            self.push_key(map, |out| {
                append_key(of, 0..of.key_columns, row.values(), out)
            })?;
            self.push_value(|out| append_row(of, |place| row.value(place), out))?;
        }
        for &index in built {
            let map = index_map(schema, table, index);
            for row in rows.rows() {
                self.push_key(map, |out| {
                    append_entry(of, index, |place| row.value(place), out)
                })?;
            }
        }
        Ok(())
    }

    /// Appends the key of an existing row and the keys of its entries in the `built` indexes, so
    /// that the caller can delete them.
    pub(super) fn push_keys_of(
        &mut self,
        (schema, table): (&TableSchema, TableId),
        built: &[usize],
        key: &[u8],
        values: &[Value<'_>],
    ) -> Result<()> {
        let of = schema.table(table);
        self.push_key(rows_map(schema, table), |out| {
            out.extend_from_slice(key);
            Ok(())
        })?;
        for &index in built {
            self.push_key(index_map(schema, table, index), |out| {
                append_entry(of, index, |place| values[place], out)
            })?;
        }
        Ok(())
    }
}

/// Appends the key of an index entry.
#[inline]
pub(super) fn append_entry<'a>(
    table: &Table,
    index: usize,
    value_of: impl Fn(usize) -> Value<'a>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let places = || table.index_columns(index);
    append_key(table, places(), places().map(value_of), out)
}
