//! SQLite connection of one client for tables with columns and indexes: statements built from the
//! schema.
//!
//! A primary key of one number is SQLite's own row id; a table with any other key is `WITHOUT
//! ROWID`. An index scan names its index, as the reference clients do. Each row is inserted by its
//! own statement inside one transaction. For SQLite this is no slower than one statement for all of
//! them. Reads of several keys are a loop, because a statement for several keys would sort them or
//! omit the missing ones.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::kv::Direction;
use rumbench_core::tables::{
    Change, ColumnType, Path, Range, RowBatch, Table, TableConnection, TableId, TableSchema,
    TableStore, TableWrites, Value, schema::COLUMNS_MAX,
};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, Row};

use super::connection::{Tables, as_only_writer, int};
use super::errors::sqlite_error;
use super::shared::Shared;
use super::sql;
use super::table_sql::{self, ScanShape};

/// Table store of a schema on SQLite.
pub(super) struct SqliteTables {
    pub(super) shared: Arc<Shared>,
    pub(super) schema: &'static TableSchema,
}

impl TableStore for SqliteTables {
    fn connect(&self) -> Result<Box<dyn TableConnection>> {
        Ok(Box::new(TablesConnection {
            connection: self.shared.tuning.connect(&self.shared.path)?,
            shared: Arc::clone(&self.shared),
            schema: self.schema,
            statements: self.schema.tables().iter().map(Statements::of).collect(),
        }))
    }

    fn build_index(&self, table: TableId, index: usize) -> Result<()> {
        let writer = self.shared.writer.lock();
        let _writer = writer.unwrap_or_else(PoisonError::into_inner);
        let own = self.shared.own.lock();
        let own = own.unwrap_or_else(PoisonError::into_inner);
        own.execute_batch(&table_sql::create_index(self.schema.table(table), index))
            .map_err(sqlite_error("sqlite: create index"))
    }
}

struct TablesConnection {
    shared: Arc<Shared>,
    connection: Connection,
    schema: &'static TableSchema,
    statements: Vec<Statements>,
}

/// Texts of one table's statements, each created once.
struct Statements {
    insert: String,
    replace: String,
    put: String,
    delete: String,
    delete_first: String,
    delete_all_first: String,
    get: String,
    count: String,
    check: String,
    updates: HashMap<(usize, bool), String>,
    scans: HashMap<ScanShape, String>,
}

impl Statements {
    fn of(table: &Table) -> Statements {
        Statements {
            insert: table_sql::insert(table),
            replace: table_sql::replace(table),
            put: table_sql::put(table),
            delete: table_sql::delete(table),
            delete_first: table_sql::delete_first(table, table.key_columns),
            delete_all_first: table_sql::delete_first(table, 0),
            get: table_sql::get(table),
            count: format!("SELECT count(*) FROM {}", table.name),
            check: format!("PRAGMA integrity_check('{}')", table.name),
            updates: HashMap::new(),
            scans: HashMap::new(),
        }
    }
}

impl Statements {
    /// Returns the text of an update.
    fn update(&mut self, of: &Table, column: usize, change: Change<'_>) -> &str {
        let adds = matches!(change, Change::Add(_));
        let text = self.updates.entry((column, adds));
        text.or_insert_with(|| table_sql::update(of, column, adds))
    }
}

/// Statements inside a transaction.
struct Writes<'a, 'c> {
    tables: &'a Tables<'c>,
    schema: &'static TableSchema,
    statements: &'a mut [Statements],
}

impl TableWrites for Writes<'_, '_> {
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()> {
        insert_rows(self.tables, &self.statements[table.0].insert, rows)
    }

    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool> {
        let mut statement = self.tables.prepare(&self.statements[table.0].delete)?;
        bind(&mut statement, 1, key.iter().copied())?;
        Ok(execute(&mut statement)? > 0)
    }

    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool> {
        let of = self.schema.table(table);
        let text = self.statements[table.0].update(of, column, change);
        update_row(self.tables, text, key, change)
    }
}

fn insert_rows(tables: &Tables<'_>, text: &str, rows: &RowBatch) -> Result<()> {
    let mut statement = tables.prepare(text)?;
    for row in rows.rows() {
        bind(&mut statement, 1, row.values())?;
        execute(&mut statement)?;
    }
    Ok(())
}

/// Updates a row. Returns `true` if it exists.
fn update_row(
    tables: &Tables<'_>,
    text: &str,
    key: &[Value<'_>],
    change: Change<'_>,
) -> Result<bool> {
    let value = match change {
        Change::Set(value) => value,
        Change::Add(more) => Value::Signed(more),
    };
    let mut statement = tables.prepare(text)?;
    let next = bind(&mut statement, 1, [value])?;
    bind(&mut statement, next, key.iter().copied())?;
    Ok(execute(&mut statement)? > 0)
}

/// Binds values to parameters from `first` on. Returns the number of the next parameter.
fn bind<'a>(
    statement: &mut CachedStatement<'_>,
    first: usize,
    values: impl IntoIterator<Item = Value<'a>>,
) -> Result<usize> {
    let mut next = first;
    for value in values {
        let value = match value {
            Value::Unsigned(number) => ValueRef::Integer(int(number)?),
            Value::Signed(number) => ValueRef::Integer(number),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
        };
        statement
            .raw_bind_parameter(next, ToSqlOutput::Borrowed(value))
            .map_err(sqlite_error("sqlite: bind"))?;
        next += 1;
    }
    Ok(next)
}

fn execute(statement: &mut CachedStatement<'_>) -> Result<usize> {
    statement
        .raw_execute()
        .map_err(sqlite_error("sqlite: write"))
}

/// Returns the value of a column of a result.
fn value_of<'a>(row: &'a Row<'_>, place: usize, of: ColumnType) -> rusqlite::Result<Value<'a>> {
    let value = row.get_ref(place)?;
    let wrong = |number| rusqlite::Error::IntegralValueOutOfRange(place, number);
    Ok(match of {
        ColumnType::Bytes => Value::Bytes(value.as_blob()?),
        ColumnType::I64 => Value::Signed(value.as_i64()?),
        ColumnType::U32 | ColumnType::U64 => {
            let number = value.as_i64()?;
            Value::Unsigned(u64::try_from(number).map_err(|_| wrong(number))?)
        }
    })
}

impl TablesConnection {
    /// Runs a statement that changes rows of one table as its own transaction. Returns the number
    /// of changed rows.
    fn change(&self, text: &str, values: &[Value<'_>]) -> Result<usize> {
        as_only_writer(&self.shared, &self.connection, |tables| {
            let mut statement = tables.prepare(text)?;
            bind(&mut statement, 1, values.iter().copied())?;
            execute(&mut statement)
        })
    }
}

/// Passes the rows of a bound statement to `visit` until it returns `false`.
fn visit_rows(
    statement: &mut CachedStatement<'_>,
    types: &[ColumnType],
    visit: &mut dyn FnMut(&[Value<'_>]) -> bool,
) -> Result<()> {
    let mut walk = || {
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            let mut values = [Value::Unsigned(0); COLUMNS_MAX * 2];
            for (place, of) in types.iter().enumerate() {
                values[place] = value_of(row, place, *of)?;
            }
            if !visit(&values[..types.len()]) {
                break;
            }
        }
        Ok(())
    };
    walk().map_err(sqlite_error("sqlite: read rows"))
}

impl TableConnection for TablesConnection {
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()> {
        let text = &self.statements[table.0].insert;
        let is_one_statement = self.schema.is_key_value() && rows.len() == 1;
        as_only_writer(&self.shared, &self.connection, |tables| {
            if is_one_statement {
                return insert_rows(tables, text, rows);
            }
            tables.run(sql::BEGIN_WRITE)?;
            insert_rows(tables, text, rows)?;
            tables.run(sql::COMMIT)
        })
    }

    fn delete_first(&mut self, table: TableId, from: &[Value<'_>], rows: usize) -> Result<usize> {
        let statements = &self.statements[table.0];
        let text = match from {
            [] => &statements.delete_all_first,
            _ => &statements.delete_first,
        };
        as_only_writer(&self.shared, &self.connection, |tables| {
            let mut statement = tables.prepare(text)?;
            let next = bind(&mut statement, 1, from.iter().copied())?;
            bind(&mut statement, next, [limit(rows)])?;
            execute(&mut statement)
        })
    }

    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool> {
        let text = &self.statements[table.0].delete;
        self.change(text, key).map(|rows| rows > 0)
    }

    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool> {
        let statements = &mut self.statements[table.0];
        let of = self.schema.table(table);
        as_only_writer(&self.shared, &self.connection, |tables| {
            update_row(tables, statements.update(of, column, change), key, change)
        })
    }

    fn put(&mut self, table: TableId, row: &RowBatch) -> Result<()> {
        let text = &self.statements[table.0].put;
        as_only_writer(&self.shared, &self.connection, |tables| {
            insert_rows(tables, text, row)
        })
    }

    fn write(
        &mut self,
        statements: &mut dyn FnMut(&mut dyn TableWrites) -> Result<()>,
    ) -> Result<()> {
        let (schema, texts) = (self.schema, &mut self.statements);
        as_only_writer(&self.shared, &self.connection, |tables| {
            tables.run(sql::BEGIN_WRITE)?;
            statements(&mut Writes {
                tables,
                schema,
                statements: texts,
            })?;
            tables.run(sql::COMMIT)
        })
    }

    fn replace(&mut self, table: TableId, row: &RowBatch) -> Result<bool> {
        let text = &self.statements[table.0].replace;
        as_only_writer(&self.shared, &self.connection, |tables| {
            let mut statement = tables.prepare(text)?;
            let values = row.rows().next().into_iter().flat_map(|row| row.values());
            bind(&mut statement, 1, values)?;
            Ok(execute(&mut statement)? > 0)
        })
    }

    fn get(
        &mut self,
        table: TableId,
        keys: &RowBatch,
        read: &mut dyn FnMut(usize, Option<&[Value<'_>]>),
    ) -> Result<()> {
        let (types, columns) = self.schema.table(table).answer_types(Path::Primary);
        let tables = Tables(&self.connection);
        let mut statement = tables.prepare(&self.statements[table.0].get)?;
        for (place, key) in keys.rows().enumerate() {
            bind(&mut statement, 1, key.values())?;
            let mut found = false;
            visit_rows(&mut statement, &types[..columns], &mut |row| {
                found = true;
                read(place, Some(row));
                false
            })?;
            if !found {
                read(place, None);
            }
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
        let of = self.schema.table(table);
        let shape = ScanShape {
            path,
            from: range.from.len(),
            to: range.to.len(),
            reverse: range.direction == Direction::Reverse,
        };
        let texts = &mut self.statements[table.0].scans;
        texts
            .entry(shape)
            .or_insert_with(|| table_sql::scan(of, shape));
        let (types, columns) = self.schema.table(table).answer_types(path);
        let tables = Tables(&self.connection);
        let mut statement = tables.prepare(&self.statements[table.0].scans[&shape])?;
        let next = bind(&mut statement, 1, range.from.iter().copied())?;
        let next = bind(&mut statement, next, range.to.iter().copied())?;
        bind(&mut statement, next, [limit(range.limit)])?;
        visit_rows(&mut statement, &types[..columns], visit)
    }

    fn count(&mut self, table: TableId) -> Result<u64> {
        let count: i64 = self.one(&self.statements[table.0].count, &[])?;
        Ok(count.unsigned_abs())
    }

    /// Lets SQLite compare each index with its table in both directions.
    fn check(&mut self, table: TableId) -> Result<usize> {
        let verdict: String = self.one(&self.statements[table.0].check, &[])?;
        if verdict != "ok" {
            return Err(EngineError::Wrong(format!("integrity check: {verdict}")));
        }
        let name = &self.schema.table(table).name;
        let indexes: i64 = self.one(table_sql::COUNT_INDEXES, &[name])?;
        Ok(indexes.unsigned_abs() as usize)
    }
}

impl TablesConnection {
    /// Returns the first column of the first row of a query.
    fn one<T: rusqlite::types::FromSql>(&self, text: &str, parameters: &[&String]) -> Result<T> {
        let mut statement = Tables(&self.connection).prepare(text)?;
        let parameters = rusqlite::params_from_iter(parameters);
        statement
            .query_row(parameters, |row| row.get(0))
            .map_err(sqlite_error("sqlite: read"))
    }
}

fn limit(rows: usize) -> Value<'static> {
    Value::Signed(i64::try_from(rows).unwrap_or(i64::MAX))
}
