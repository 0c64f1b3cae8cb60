//! Store of tables on any ordered key-value engine: a map for each table's rows, one for each
//! index, and a catalog.
//!
//! It is written once and monomorphized per engine. An insert reads nothing: keys are new, and so
//! are index entries because they end with the key. Buffers are reused between calls.

use std::sync::Arc;

use super::encoding::{self, NO_VALUES, Values, append_key, read_entry, read_row};
use super::kv_build::{build_index, built_indexes, open_catalog};
use super::kv_check;
use super::kv_entries::{Entries, LOWEST, index_map, rows_map};
use super::kv_writes::KvWrites;
use super::rows::{RowBatch, Value};
use super::schema::{Path, TableId, TableSchema};
use super::store::{Change, Range, TableConnection, TableStore, TableWrites};
use crate::error::Result;
use crate::kv::{BulkRow, Direction, KvConnection, KvEngine, KvTxn, MapId, Scan};

/// Returns the tables of `schema` on an engine that was opened with them.
///
/// # Errors
/// [`crate::error::EngineError::Unsupported`] if the database holds other tables.
pub fn kv_table_store<E: KvEngine>(
    engine: E,
    schema: &'static TableSchema,
) -> Result<Arc<dyn TableStore>> {
    if !schema.is_key_value() {
        open_catalog(&mut engine.connect()?, schema)?;
    }
    Ok(Arc::new(KvTableStore { engine, schema }))
}

struct KvTableStore<E> {
    engine: E,
    schema: &'static TableSchema,
}

impl<E: KvEngine> TableStore for KvTableStore<E> {
    fn connect(&self) -> Result<Box<dyn TableConnection>> {
        let mut connection = self.engine.connect()?;
        let built = built_indexes(&mut connection, self.schema)?;
        Ok(Box::new(KvTables {
            connection,
            schema: self.schema,
            built,
            entries: Entries::default(),
            start: Vec::new(),
            end: Vec::new(),
        }))
    }

    fn build_index(&self, table: TableId, index: usize) -> Result<()> {
        build_index(&mut self.engine.connect()?, self.schema, table, index)
    }
}

/// One client's connection, with the indexes that it maintains.
pub(super) struct KvTables<C> {
    pub(super) connection: C,
    pub(super) schema: &'static TableSchema,
    /// Built indexes of each table.
    pub(super) built: Vec<Vec<usize>>,
    pub(super) entries: Entries,
    pub(super) start: Vec<u8>,
    end: Vec<u8>,
}

impl<C: KvConnection> KvTables<C> {
    /// Begins a transaction of statements.
    fn begin(&mut self) -> Result<KvWrites<'_, C::Txn<'_>>> {
        Ok(KvWrites {
            txn: self.connection.begin()?,
            schema: self.schema,
            built: &self.built,
            entries: &mut self.entries,
            key: &mut self.start,
        })
    }

    /// Writes the bounds of a range into `start` and `end`, and returns the map of the path.
    fn set_bounds(&mut self, table: TableId, path: Path, range: &Range<'_>) -> Result<MapId> {
        let of = self.schema.table(table);
        let columns = || of.path_columns(path);
        let (start, end) = (&mut self.start, &mut self.end);
        start.clear();
        end.clear();
        append_key(of, columns(), range.from.iter().copied(), start)?;
        append_key(of, columns(), range.to.iter().copied(), end)?;
        if start.is_empty() {
            start.extend_from_slice(LOWEST);
        }
        if end.is_empty() {
            // Upper bound of all keys.
            end.resize(encoding::key_bytes(columns(), of) + 1, 0xff);
        }
        Ok(match path {
            Path::Primary => rows_map(self.schema, table),
            Path::Index(index) => index_map(self.schema, table, index),
        })
    }

    /// Deletes the keys in `entries`.
    fn delete_entries(&mut self) -> Result<()> {
        let keys: Vec<(MapId, &[u8])> = self.entries.iter().map(|row| (row.map, row.key)).collect();
        self.connection.bulk_delete(&keys)
    }
}

impl<C: KvConnection> TableConnection for KvTables<C> {
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()> {
        let built = &self.built[table.0];
        self.entries.fill_rows((self.schema, table), built, rows)?;
        let mut entries = self.entries.iter();
        match (entries.len(), entries.next()) {
            // A load of one row a commit allocates nothing.
            (1, Some(entry)) => self.connection.bulk_insert(&[entry]),
            _ => {
                let entries: Vec<BulkRow<'_>> = self.entries.iter().collect();
                self.connection.bulk_insert(&entries)
            }
        }
    }

    fn delete_first(&mut self, table: TableId, from: &[Value<'_>], rows: usize) -> Result<usize> {
        let range = Range {
            from,
            limit: rows,
            ..Range::ALL
        };
        let map = self.set_bounds(table, Path::Primary, &range)?;
        let (schema, of) = (self.schema, self.schema.table(table));
        let (entries, built) = (&mut self.entries, &self.built[table.0]);
        entries.clear();
        let (mut found, mut wrong) = (0, None);
        let first = Scan {
            start: &self.start,
            end: &self.end,
            direction: Direction::Forward,
            limit: rows,
        };
        self.connection.scan(map, first, |key, value| {
            let mut values = NO_VALUES;
            let pushed = read_row(of, key, value, &mut values)
                .and_then(|values| entries.push_keys_of((schema, table), built, key, values));
            match pushed {
                Ok(()) => found += 1,
                Err(error) => wrong = Some(error),
            }
            wrong.is_none()
        })?;
        if let Some(error) = wrong {
            return Err(error);
        }
        if found > 0 {
            self.delete_entries()?;
        }
        Ok(found)
    }

    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool> {
        let mut writes = self.begin()?;
        let there = writes.delete(table, key)?;
        // No commit if the row does not exist, so that nothing is logged.
        if there {
            writes.txn.commit()?;
        }
        Ok(there)
    }

    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool> {
        let mut writes = self.begin()?;
        let there = writes.update(table, key, column, change)?;
        if there {
            writes.txn.commit()?;
        }
        Ok(there)
    }

    fn write(
        &mut self,
        statements: &mut dyn FnMut(&mut dyn TableWrites) -> Result<()>,
    ) -> Result<()> {
        let mut writes = self.begin()?;
        // An error drops the transaction, which rolls it back.
        statements(&mut writes)?;
        writes.txn.commit()
    }

    fn replace(&mut self, table: TableId, row: &RowBatch) -> Result<bool> {
        let mut writes = self.begin()?;
        let there = writes.replace(table, row)?;
        if there {
            writes.txn.commit()?;
        }
        Ok(there)
    }

    fn put(&mut self, table: TableId, row: &RowBatch) -> Result<()> {
        self.entries.fill_rows((self.schema, table), &[], row)?;
        let mut entries = self.entries.iter();
        entries.try_for_each(|entry| self.connection.put(entry.map, entry.key, entry.value))
    }

    fn get_one(
        &mut self,
        table: TableId,
        key: &RowBatch,
        read: &mut dyn FnMut(Option<&[Value<'_>]>),
    ) -> Result<()> {
        let of = self.schema.table(table);
        let bytes = &mut self.start;
        bytes.clear();
        let values = key.rows().next().into_iter().flat_map(|key| key.values());
        append_key(of, 0..of.key_columns, values, bytes)?;
        let map = rows_map(self.schema, table);
        self.connection.get(map, bytes, |value| {
            let Some(value) = value else {
                read(None);
                return Ok(());
            };
            let mut values = NO_VALUES;
            read(Some(read_row(of, bytes, value, &mut values)?));
            Ok(())
        })?
    }

    fn get(
        &mut self,
        table: TableId,
        keys: &RowBatch,
        read: &mut dyn FnMut(usize, Option<&[Value<'_>]>),
    ) -> Result<()> {
        let of = self.schema.table(table);
        let map = rows_map(self.schema, table);
        self.entries.clear();
        for key in keys.rows() {
            self.entries.push_key(map, |out| {
                append_key(of, 0..of.key_columns, key.values(), out)
            })?;
        }
        let keys: Vec<&[u8]> = self.entries.iter().map(|entry| entry.key).collect();
        let mut wrong = None;
        self.connection.multi_get(map, &keys, |place, value| {
            let mut values = NO_VALUES;
            match value.map(|value| read_row(of, keys[place], value, &mut values)) {
                None => read(place, None),
                Some(Ok(row)) => read(place, Some(row)),
                Some(Err(error)) => wrong = Some(error),
            }
        })?;
        wrong.map_or(Ok(()), Err)
    }

    fn scan(
        &mut self,
        table: TableId,
        path: Path,
        range: Range<'_>,
        visit: &mut dyn FnMut(&[Value<'_>]) -> bool,
    ) -> Result<()> {
        let map = self.set_bounds(table, path, &range)?;
        let of = self.schema.table(table);
        let scan = Scan {
            start: &self.start,
            end: &self.end,
            direction: range.direction,
            limit: range.limit,
        };
        let mut wrong = None;
        self.connection.scan(map, scan, |key, value| {
            let mut values: Values<'_> = NO_VALUES;
            let row = match path {
                Path::Primary => read_row(of, key, value, &mut values),
                Path::Index(index) => read_entry(of, index, key, &mut values),
            };
            match row {
                Ok(row) => visit(row),
                Err(error) => {
                    wrong = Some(error);
                    false
                }
            }
        })?;
        wrong.map_or(Ok(()), Err)
    }

    fn count(&mut self, table: TableId) -> Result<u64> {
        let mut rows = 0;
        self.scan(table, Path::Primary, Range::ALL, &mut |_| {
            rows += 1;
            true
        })?;
        Ok(rows)
    }

    fn check(&mut self, table: TableId) -> Result<usize> {
        let built = &self.built[table.0];
        kv_check::check(&mut self.connection, self.schema, table, built)?;
        Ok(built.len())
    }
}
