//! Statements of a writing transaction on ordered maps: rows and their index entries change
//! together.
//!
//! A statement reads for update before it changes a row. So no other transaction can change the row
//! before this one ends, and the statement sees the writes of earlier statements.

use super::encoding::{NO_VALUES, append_key, append_row, read_row};
use super::kv_entries::{Entries, append_entry, index_map, rows_map};
use super::rows::{RowBatch, Value};
use super::schema::{ColumnType, Table, TableId, TableSchema};
use super::store::{Change, TableWrites};
use crate::error::{EngineError, Result};
use crate::kv::{KvTxn, MapId};

/// A transaction with the buffers of its statements.
pub(super) struct KvWrites<'a, T> {
    pub(super) txn: T,
    pub(super) schema: &'static TableSchema,
    /// Built indexes of each table.
    pub(super) built: &'a [Vec<usize>],
    /// Keys and values of one statement.
    pub(super) entries: &'a mut Entries,
    /// The key of the row of the current statement.
    pub(super) key: &'a mut Vec<u8>,
}

impl<T: KvTxn> KvWrites<'_, T> {
    /// Writes the key of a row into `key`.
    pub(super) fn set_key(&mut self, table: TableId, key: &[Value<'_>]) -> Result<MapId> {
        let of = self.schema.table(table);
        if key.len() != of.key_columns {
            return Err(EngineError::Unsupported(format!(
                "a key of table {} has {} values, not {}",
                of.name,
                of.key_columns,
                key.len()
            )));
        }
        self.key.clear();
        append_key(of, 0..of.key_columns, key.iter().copied(), self.key)?;
        Ok(rows_map(self.schema, table))
    }

    /// Writes the entries: first a row, then the old and the new entry of each index. Returns false
    /// if there is no row.
    pub(super) fn put_moved(&mut self) -> Result<bool> {
        let mut entries = self.entries.iter();
        let Some(row) = entries.next() else {
            return Ok(false);
        };
        self.txn.put(row.map, row.key, row.value)?;
        while let (Some(old), Some(new)) = (entries.next(), entries.next()) {
            if old.key != new.key {
                self.txn.delete(old.map, old.key)?;
                self.txn.insert(new.map, new.key, new.value)?;
            }
        }
        Ok(true)
    }
}

impl<T: KvTxn> TableWrites for KvWrites<'_, T> {
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()> {
        let built = &self.built[table.0];
        self.entries.fill_rows((self.schema, table), built, rows)?;
        for entry in self.entries.iter() {
            self.txn.insert(entry.map, entry.key, entry.value)?;
        }
        Ok(())
    }

    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool> {
        let map = self.set_key(table, key)?;
        let (schema, of) = (self.schema, self.schema.table(table));
        let (entries, built, key) = (&mut *self.entries, &self.built[table.0], &*self.key);
        entries.clear();
        self.txn.get_for_update(map, key, |value| {
            let Some(value) = value else { return Ok(()) };
            let mut values = NO_VALUES;
            let values = read_row(of, key, value, &mut values)?;
            entries.push_keys_of((schema, table), built, key, values)
        })??;
        for entry in entries.iter() {
            self.txn.delete(entry.map, entry.key)?;
        }
        Ok(!entries.is_empty())
    }

    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool> {
        let map = self.set_key(table, key)?;
        let (schema, of) = (self.schema, self.schema.table(table));
        let (entries, key) = (&mut *self.entries, &*self.key);
        let built = self.built[table.0].iter().copied();
        let moved = || {
            let with_column = |index: &usize| of.indexes[*index].columns.contains(&column);
            built.clone().filter(with_column)
        };
        entries.clear();
        // The new row comes first, then the old and the new entry of each index.
        self.txn.get_for_update(map, key, |value| {
            let Some(value) = value else { return Ok(()) };
            let mut values = NO_VALUES;
            read_row(of, key, value, &mut values)?;
            let new = changed(of, column, values[column], change)?;
            let new_of = |place: usize| if place == column { new } else { values[place] };
            entries.push_key(map, |out| {
                out.extend_from_slice(key);
                Ok(())
            })?;
            entries.push_value(|out| append_row(of, new_of, out))?;
            for index in moved() {
                let map = index_map(schema, table, index);
                entries.push_key(map, |out| append_entry(of, index, |p| values[p], out))?;
                entries.push_key(map, |out| append_entry(of, index, new_of, out))?;
            }
            Ok(())
        })??;
        self.put_moved()
    }
}

/// Returns the new value of a column.
fn changed<'a>(
    table: &Table,
    column: usize,
    old: Value<'a>,
    change: Change<'a>,
) -> Result<Value<'a>> {
    match (change, old) {
        (Change::Set(value), _) => Ok(value),
        (Change::Add(more), Value::Signed(old)) => Ok(Value::Signed(old.wrapping_add(more))),
        (Change::Add(more), Value::Unsigned(old)) => {
            let sum = old.wrapping_add_signed(more);
            Ok(Value::Unsigned(match table.columns[column].of {
                ColumnType::U32 => u64::from(sum as u32),
                _ => sum,
            }))
        }
        (Change::Add(_), Value::Bytes(_)) => Err(EngineError::Unsupported(format!(
            "column {} is no number that can be added to",
            table.columns[column].name
        ))),
    }
}
