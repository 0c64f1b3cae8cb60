//! SQLite connection of one client for kv-sequence: a table of keys and values as prepared
//! statements.
//!
//! A put is one statement that SQLite runs as a transaction; it holds the process's writer mutex. A
//! multi-get is a loop, because a statement for several keys would sort them or omit the missing
//! ones.

use std::sync::Arc;

use rumbench_core::engine::Result;
use rumbench_core::kv::{Direction, Scan};
use rumbench_core::kv_sequence::{Row, RowConnection, RowStore};
use rusqlite::{Connection, params};

use super::connection::{Tables, as_only_writer};
use super::{Shared, sql, sqlite_error};

/// Row store of kv-sequence on SQLite.
pub(super) struct SqliteRows(pub(super) Arc<Shared>);

impl RowStore for SqliteRows {
    fn connect(&self) -> Result<Box<dyn RowConnection>> {
        Ok(Box::new(RowsConnection {
            connection: self.0.tuning.connect(&self.0.path)?,
            shared: Arc::clone(&self.0),
        }))
    }
}

struct RowsConnection {
    shared: Arc<Shared>,
    connection: Connection,
}

impl RowConnection for RowsConnection {
    fn load(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let insert = |tables: &Tables<'_>, row: &Row<'_>| {
            let columns = params![row.key, row.value];
            tables.change(sql::INSERT_ROW, columns).map(|_rows| ())
        };
        as_only_writer(&self.shared, &self.connection, |tables| match rows {
            [row] => insert(tables, row),
            _ => {
                tables.run(sql::BEGIN_WRITE)?;
                rows.iter().try_for_each(|row| insert(tables, row))?;
                tables.run(sql::COMMIT)
            }
        })
    }

    fn put(&mut self, row: Row<'_>) -> Result<()> {
        let columns = params![row.key, row.value];
        as_only_writer(&self.shared, &self.connection, |tables| {
            tables.change(sql::PUT_ROW, columns).map(|_rows| ())
        })
    }

    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let tables = Tables(&self.connection);
        let mut statement = tables.prepare(sql::READ_ROW)?;
        let mut get = || {
            let mut rows = statement.query([key])?;
            match rows.next()? {
                Some(row) => read(Some(row.get_ref(0)?.as_blob()?)),
                None => read(None),
            }
            Ok(())
        };
        get().map_err(sqlite_error("sqlite: get"))
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        read: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (place, key) in keys.iter().enumerate() {
            self.get(key, &mut |value| read(place, value))?;
        }
        Ok(())
    }

    fn scan(&mut self, scan: Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let text = match scan.direction {
            Direction::Forward => sql::SCAN_ROWS,
            Direction::Reverse => sql::SCAN_ROWS_REVERSE,
        };
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
        let tables = Tables(&self.connection);
        let mut statement = tables.prepare(text)?;
        let mut walk = || {
            let mut rows = statement.query(params![scan.start, scan.end, limit])?;
            while let Some(row) = rows.next()? {
                if !visit(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?) {
                    break;
                }
            }
            Ok(())
        };
        walk().map_err(sqlite_error("sqlite: scan"))
    }
}
