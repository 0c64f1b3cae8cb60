//! Replacement of a whole existing row on any ordered key-value engine: writes the row and its
//! changed index entries.

use super::encoding::{NO_VALUES, append_row, read_row};
use super::kv_entries::{append_entry, index_map};
use super::kv_writes::KvWrites;
use super::rows::{RowBatch, Value};
use super::schema::TableId;
use crate::error::{EngineError, Result};
use crate::kv::KvTxn;

impl<T: KvTxn> KvWrites<'_, T> {
    /// Replaces a row; see [`super::store::TableConnection::replace`].
    pub(super) fn replace(&mut self, table: TableId, row: &RowBatch) -> Result<bool> {
        let (schema, of) = (self.schema, self.schema.table(table));
        let Some(new) = row.rows().next() else {
            return Err(EngineError::Unsupported(format!(
                "a row of table {} is to be replaced by none",
                of.name
            )));
        };
        let mut key = NO_VALUES;
        for (place, value) in key.iter_mut().enumerate().take(of.key_columns) {
            *value = new.value(place);
        }
        let map = self.set_key(table, &key[..of.key_columns])?;
        let (entries, key) = (&mut *self.entries, &*self.key);
        let built = &self.built[table.0];
        entries.clear();
        // The new row comes first, then the old and the new entry of each index.
        self.txn.get_for_update(map, key, |value| {
            let Some(value) = value else { return Ok(()) };
            entries.push_key(map, |out| {
                out.extend_from_slice(key);
                Ok(())
            })?;
            entries.push_value(|out| append_row(of, |place| new.value(place), out))?;
            let mut old = NO_VALUES;
            let old: &[Value<'_>] = if built.is_empty() {
                &old
            } else {
                read_row(of, key, value, &mut old)?
            };
            for &index in built {
                let map = index_map(schema, table, index);
                entries.push_key(map, |out| append_entry(of, index, |p| old[p], out))?;
                entries.push_key(map, |out| append_entry(of, index, |p| new.value(p), out))?;
            }
            Ok(())
        })??;
        self.put_moved()
    }
}
