//! Connection of one client to a server for tables with columns and indexes. Statements are
//! generated from the schema on first use and kept. They are prepared, except those that the server
//! is to parse each time.
//!
//! A batch of rows is one statement and, outside a transaction, one round trip. Several keys are
//! read by one statement. If a delete does not find a key and the insert that follows does, another
//! client inserted it first: in a transaction this is a conflict, and the transaction is retried.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::kv::Direction;
use rumbench_core::tables::{
    Change, Path, Range, RowBatch, TableConnection, TableId, TableQueries, TableSchema, TableStore,
    TableWrites, Value,
};

use super::check::check_table;
use super::schema::no_key_value;
use super::server::Server;
use super::session::{Session, Statement};
use super::sql::{self, Dialect, ScanShape};
use super::table_statements::{Kind, limit_of_text};

/// Maximum rows of one insert and keys of one read. A statement may have 65,535 parameters.
pub(super) const ROWS_MAX: usize = 1000;

/// Tables of a schema on a server.
pub(super) struct ServerTables<S> {
    pub(super) server: Arc<S>,
    pub(super) schema: &'static TableSchema,
}

impl<S: Server> TableStore for ServerTables<S> {
    fn connect(&self) -> Result<Box<dyn TableConnection>> {
        Ok(Box::new(TablesConnection {
            session: self.server.connect()?,
            dialect: self.server.dialect(),
            schema: self.schema,
            statements: HashMap::new(),
        }))
    }

    fn build_index(&self, table: TableId, index: usize) -> Result<()> {
        self.build_next(table, index..index + 1).map(drop)
    }

    fn build_next(&self, table: TableId, indexes: std::ops::Range<usize>) -> Result<usize> {
        let of = self.schema.table(table);
        let mut session = self.server.connect()?;
        let (text, next) = sql::create_indexes(self.server.dialect(), of, indexes.clone());
        session.query(&text)?;
        if next == indexes.end {
            self.server.analyze(&mut session, &of.name)?;
        }
        Ok(next)
    }
}

pub(super) struct TablesConnection<S> {
    pub(super) session: S,
    pub(super) dialect: Dialect,
    pub(super) schema: &'static TableSchema,
    statements: HashMap<(usize, Kind), Statement>,
}

impl<S: Session> TablesConnection<S> {
    /// Begins the message of a statement; prepares it on first use.
    pub(super) fn start(&mut self, table: TableId, kind: Kind) -> Result<()> {
        let statement = match self.statements.get(&(table.0, kind)) {
            Some(statement) => *statement,
            None => {
                let of = self.schema.table(table);
                let text = kind.text(self.dialect, of);
                let statement = match kind {
                    Kind::Insert { parsed: true, .. } => self.session.unprepared(&text),
                    _ if kind.is_of_index(of) => self.session.prepare_of_index(&text),
                    _ => self.session.prepare(&text),
                }?;
                self.statements.insert((table.0, kind), statement);
                statement
            }
        };
        self.session.start(statement);
        Ok(())
    }

    pub(super) fn push_all<'a>(
        &mut self,
        values: impl IntoIterator<Item = Value<'a>>,
    ) -> Result<()> {
        values
            .into_iter()
            .try_for_each(|value| self.session.push(value))
    }

    /// Sends a statement that returns no rows; returns the number of rows changed.
    pub(super) fn change(&mut self) -> Result<u64> {
        self.session.finish(&[], &mut |_| ())
    }

    fn insert_rows(&mut self, table: TableId, batch: &RowBatch, parsed: bool) -> Result<()> {
        let mut left = batch.len();
        let mut rows = batch.rows();
        // Terminates: each iteration takes at least one of the rows that are left.
        while left > 0 {
            let part = left.min(ROWS_MAX);
            self.start(table, Kind::Insert { rows: part, parsed })?;
            for row in rows.by_ref().take(part) {
                self.push_all(row.values())?;
            }
            self.change()?;
            left -= part;
        }
        Ok(())
    }

    /// Inserts all rows in one transaction.
    pub(super) fn insert_batch(
        &mut self,
        table: TableId,
        batch: &RowBatch,
        parsed: bool,
    ) -> Result<()> {
        match batch.len() {
            0..=ROWS_MAX => self.insert_rows(table, batch, parsed),
            _ => self.in_transaction(|tables| tables.insert_rows(table, batch, parsed)),
        }
    }

    fn delete_row(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool> {
        self.start(table, Kind::Delete)?;
        self.push_all(key.iter().copied())?;
        self.change().map(|rows| rows > 0)
    }

    fn update_row(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool> {
        let (adds, value) = match change {
            Change::Set(value) => (false, value),
            Change::Add(more) => (true, Value::Signed(more)),
        };
        self.start(table, Kind::Update { column, adds })?;
        self.session.push(value)?;
        self.push_all(key.iter().copied())?;
        self.change().map(|rows| rows > 0)
    }

    pub(super) fn in_transaction(
        &mut self,
        body: impl FnOnce(&mut TablesConnection<S>) -> Result<()>,
    ) -> Result<()> {
        self.session.query("BEGIN")?;
        let done = body(self).and_then(|()| self.session.query("COMMIT").map(drop));
        if done.is_err() {
            // The first error is the one to report; the connection must be usable for a retry.
            let _ = self.session.query("ROLLBACK");
        }
        done
    }

    /// Reads the rows of some keys; `first` is the place of the first key.
    fn get_part(
        &mut self,
        table: TableId,
        keys: &[Vec<Value<'_>>],
        first: usize,
        read: &mut dyn FnMut(usize, Option<&[Value<'_>]>),
    ) -> Result<()> {
        let (types, columns) = self.schema.table(table).answer_types(Path::Primary);
        self.start(table, Kind::Get { keys: keys.len() })?;
        for key in keys {
            self.push_all(key.iter().copied())?;
        }
        // Rows arrive in any order, and only once even for a duplicate key.
        let mut sorted: Vec<usize> = (0..keys.len()).collect();
        sorted.sort_unstable_by(|a, b| compare(&keys[*a], &keys[*b]));
        let mut found = vec![false; keys.len()];
        let mut foreign = false;
        self.session.finish(&types[..columns], &mut |row| {
            let from = sorted.partition_point(|place| compare(&keys[*place], row).is_lt());
            let same = sorted[from..]
                .iter()
                .take_while(|place| compare(&keys[**place], row).is_eq());
            let mut wanted = false;
            for place in same {
                wanted = true;
                found[*place] = true;
                read(first + place, Some(row));
            }
            foreign |= !wanted;
        })?;
        if foreign {
            return Err(EngineError::Wrong(
                "a row with a key that was not requested".to_string(),
            ));
        }
        for place in (0..keys.len()).filter(|place| !found[*place]) {
            read(first + place, None);
        }
        Ok(())
    }
}

/// Compares a key with the first columns of a row, which are numbers of the same types.
fn compare(key: &[Value<'_>], row: &[Value<'_>]) -> Ordering {
    let number = |value: &Value<'_>| match value {
        Value::Unsigned(number) => i128::from(*number),
        Value::Signed(number) => i128::from(*number),
        Value::Bytes(_) => 0,
    };
    key.iter()
        .map(number)
        .cmp(row[..key.len()].iter().map(number))
}

impl<S: Session> TableConnection for TablesConnection<S> {
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()> {
        self.insert_batch(table, rows, false)
    }

    fn delete_first(&mut self, table: TableId, from: &[Value<'_>], rows: usize) -> Result<usize> {
        let dialect = self.dialect;
        let kind = Kind::DeleteFirst {
            from: from.len(),
            rows,
        };
        self.start(table, kind)?;
        self.push_all(sql::bound_values(dialect, from))?;
        self.change().map(|rows| rows as usize)
    }

    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool> {
        self.delete_row(table, key)
    }

    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool> {
        self.update_row(table, key, column, change)
    }

    fn replace(&mut self, table: TableId, row: &RowBatch) -> Result<bool> {
        let key_columns = self.schema.table(table).key_columns;
        let Some(row) = row.rows().next() else {
            return Ok(false);
        };
        self.start(table, Kind::Replace)?;
        self.push_all(row.values().skip(key_columns))?;
        self.push_all(row.values().take(key_columns))?;
        self.change().map(|rows| rows > 0)
    }

    fn put(&mut self, _table: TableId, _row: &RowBatch) -> Result<()> {
        Err(no_key_value())
    }

    fn write(
        &mut self,
        statements: &mut dyn FnMut(&mut dyn TableWrites) -> Result<()>,
    ) -> Result<()> {
        self.in_transaction(|tables| statements(&mut Writes(tables)))
    }

    fn get(
        &mut self,
        table: TableId,
        keys: &RowBatch,
        read: &mut dyn FnMut(usize, Option<&[Value<'_>]>),
    ) -> Result<()> {
        let keys: Vec<Vec<Value<'_>>> = keys.rows().map(|key| key.values().collect()).collect();
        for (part, keys) in keys.chunks(ROWS_MAX).enumerate() {
            self.get_part(table, keys, part * ROWS_MAX, read)?;
        }
        Ok(())
    }

    fn scan(
        &mut self,
        table: TableId,
        path: Path,
        range: Range<'_>,
        visit: &mut dyn FnMut(&[Value<'_>]) -> bool,
    ) -> Result<()> {
        let dialect = self.dialect;
        let kind = Kind::Scan(ScanShape {
            path,
            from: range.from.len(),
            to: range.to.len(),
            reverse: range.direction == Direction::Reverse,
            limit: limit_of_text(range.limit),
        });
        let (types, columns) = self.schema.table(table).answer_types(path);
        self.start(table, kind)?;
        self.push_all(sql::bound_values(dialect, range.from))?;
        self.push_all(sql::bound_values(dialect, range.to))?;
        let mut left = range.limit;
        self.session.finish(&types[..columns], &mut |row| {
            if left > 0 {
                left -= 1;
                if !visit(row) {
                    left = 0;
                }
            }
        })?;
        Ok(())
    }

    fn queries(&mut self) -> Option<&mut dyn TableQueries> {
        Some(self)
    }

    fn count(&mut self, table: TableId) -> Result<u64> {
        let name = &self.schema.table(table).name;
        let text = self.dialect.text(&format!("SELECT count(*) FROM `{name}`"));
        let count = self.session.ask(&text)?;
        count
            .parse()
            .map_err(|_| EngineError::Wrong(format!("a count of `{count}` rows")))
    }

    fn check(&mut self, table: TableId) -> Result<usize> {
        let name = &self.schema.table(table).name;
        check_table(&mut self.session, self.dialect, name)
    }
}

/// Statements inside a transaction.
struct Writes<'a, S>(&'a mut TablesConnection<S>);

impl<S: Session> TableWrites for Writes<'_, S> {
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()> {
        let inserted = self.0.insert_rows(table, rows, false);
        inserted.map_err(|error| {
            if self.0.session.met_duplicate() {
                EngineError::Retry(format!("another client was faster: {error}"))
            } else {
                error
            }
        })
    }

    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool> {
        self.0.delete_row(table, key)
    }

    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool> {
        self.0.update_row(table, key, column, change)
    }

    fn queries(&mut self) -> Option<&mut dyn TableQueries> {
        Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_among_the_first_columns_of_rows() {
        let row = [Value::Unsigned(3), Value::Signed(-1), Value::Bytes(b"x")];
        assert!(compare(&[Value::Unsigned(3)], &row).is_eq());
        assert!(compare(&[Value::Unsigned(3), Value::Signed(-2)], &row).is_lt());
        assert!(compare(&[Value::Unsigned(u64::MAX)], &row).is_gt());
    }
}
