//! Operations on tables that workloads are made of.

use super::rows::{RowBatch, Value};
use super::schema::{Path, TableId, TableSchema};
use crate::error::{EngineError, Result};
use crate::kv::Direction;

/// A range of a path. Bounds are values of its first columns; the other columns have no bounds.
#[derive(Debug, Clone, Copy)]
pub struct Range<'a> {
    /// First values, inclusive; empty: from the lowest.
    pub from: &'a [Value<'a>],
    /// End, exclusive; empty: to the highest.
    pub to: &'a [Value<'a>],
    /// Direction of the read.
    pub direction: Direction,
    /// Most rows.
    pub limit: usize,
}

impl Range<'_> {
    /// All rows in ascending order.
    pub const ALL: Range<'static> = Range {
        from: &[],
        to: &[],
        direction: Direction::Forward,
        limit: usize::MAX,
    };
}

/// Change of a column by an update.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// Sets this value.
    Set(Value<'a>),
    /// Adds this number; wraps around.
    Add(i64),
}

/// Operation of a server on one column of the rows of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fold {
    /// Returns the values in any order.
    Rows,
    /// Returns their sum.
    Sum,
    /// Returns the values, sorted.
    Order,
    /// Returns the different values, sorted.
    Distinct,
    /// Returns their number.
    Count,
}

/// Condition on one column for the rows that a server returns.
#[derive(Debug, Clone, Copy)]
pub enum Where<'a> {
    /// The column has one of these numbers.
    In(&'a [u64]),
    /// The column has a number between these two, both included.
    Between(u64, u64),
    /// The column has more than this many bytes; the server has to check all rows.
    Longer(usize),
}

/// Statements of engines that process rows on their side: servers with SQL. Reads transfer only the
/// requested data, and see the state that a scan or a get in their place would see.
pub trait TableQueries {
    /// Reads one column of the row with this key; `read` is called if the row exists.
    fn column(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        read: &mut dyn FnMut(Value<'_>),
    ) -> Result<()>;

    /// Reads the result of a fold over one column. `range` selects the rows by their single key
    /// column, both ends included; `visit` gets each value. A sum (0 for no rows) and a count are
    /// one unsigned number.
    fn fold(
        &mut self,
        table: TableId,
        range: std::ops::RangeInclusive<u64>,
        column: usize,
        fold: Fold,
        visit: &mut dyn FnMut(Value<'_>),
    ) -> Result<()>;

    /// Reads these columns of the rows that fulfill a condition on the column `by`. `visit` gets
    /// each row once, in any order.
    fn select(
        &mut self,
        table: TableId,
        columns: &'static [usize],
        by: usize,
        rows: Where<'_>,
        visit: &mut dyn FnMut(&[Value<'_>]),
    ) -> Result<()>;

    /// Sets one column of the rows with these one-column keys to one value, and returns the number
    /// of rows found. It is one statement; for more than a thousand keys it is several statements
    /// in a transaction of their own.
    fn set(&mut self, table: TableId, keys: &[u64], column: usize, value: Value<'_>)
    -> Result<u64>;

    /// Inserts rows, as [`TableConnection::insert`] does, by statements that the server parses each
    /// time. More than a thousand rows are a transaction of their own, and so must not be part of
    /// another.
    fn insert_parsed(&mut self, table: TableId, rows: &RowBatch) -> Result<()>;
}

/// The tables of one open engine.
pub trait TableStore: Send + Sync {
    /// Opens a connection for one client thread.
    fn connect(&self) -> Result<Box<dyn TableConnection>>;

    /// Builds an index from the existing rows and maintains it from then on. No other client writes
    /// to the table meanwhile. A connection made before does not maintain it: connect again.
    /// Building it twice does nothing.
    fn build_index(&self, table: TableId, index: usize) -> Result<()>;

    /// Builds the first of several indexes of a table, or more of them if one pass over the rows
    /// creates them all. Returns the next index to build.
    fn build_next(&self, table: TableId, indexes: std::ops::Range<usize>) -> Result<usize> {
        self.build_index(table, indexes.start)?;
        Ok(indexes.start + 1)
    }

    /// Returns true if written rows can be read. Only an engine that measures the client's own cost
    /// returns false; its answers are then not checked.
    fn keeps_rows(&self) -> bool {
        true
    }
}

/// One client's connection. A write is one transaction; the caller runs it again after a conflict,
/// reported as [`crate::error::EngineError::Retry`]. A row and its index entries change together.
pub trait TableConnection: Send {
    /// Inserts rows with new keys.
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()>;

    /// Deletes the first rows from the key `from` on, at most `rows`, and returns their number. No
    /// other client writes these rows meanwhile: they are read without a lock.
    fn delete_first(&mut self, table: TableId, from: &[Value<'_>], rows: usize) -> Result<usize>;

    /// Deletes one row; returns true if it existed.
    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool>;

    /// Changes one column of one row, protected from lost updates; returns true if the row existed.
    /// The column is not in the primary key.
    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool>;

    /// Writes all columns of an existing row, given as a batch of this row alone; returns true if
    /// it existed. The row is protected from lost updates of its index entries.
    fn replace(&mut self, table: TableId, row: &RowBatch) -> Result<bool>;

    /// Writes a row that may exist, given as a batch of this row alone. The table is of
    /// [`TableSchema::key_value`].
    fn put(&mut self, table: TableId, row: &RowBatch) -> Result<()>;

    /// Runs several statements as one transaction, all or nothing. A statement sees the writes of
    /// earlier ones. No other client can change rows that it changed or looked for before the
    /// transaction ends.
    ///
    /// An error of `statements` rolls back and is returned. Any statement and the commit may meet a
    /// conflict; then nothing has happened, and the caller runs the transaction again. `statements`
    /// is called once.
    fn write(
        &mut self,
        statements: &mut dyn FnMut(&mut dyn TableWrites) -> Result<()>,
    ) -> Result<()>;

    /// Reads rows by their keys; `read` gets each row, or `None`, with the key's index in `keys`. A
    /// key may occur twice.
    fn get(
        &mut self,
        table: TableId,
        keys: &RowBatch,
        read: &mut dyn FnMut(usize, Option<&[Value<'_>]>),
    ) -> Result<()>;

    /// Reads the row of one key by the engine's call for a single key; `read` gets it, or `None`.
    fn get_one(
        &mut self,
        table: TableId,
        key: &RowBatch,
        read: &mut dyn FnMut(Option<&[Value<'_>]>),
    ) -> Result<()> {
        self.get(table, key, &mut |_, row| read(row))
    }

    /// Reads a range of one point in time; `visit` returns false to stop.
    fn scan(
        &mut self,
        table: TableId,
        path: Path,
        range: Range<'_>,
        visit: &mut dyn FnMut(&[Value<'_>]) -> bool,
    ) -> Result<()>;

    /// Returns the statements on single columns, if the engine has them.
    fn queries(&mut self) -> Option<&mut dyn TableQueries> {
        None
    }

    /// Counts all rows by reading them.
    fn count(&mut self, table: TableId) -> Result<u64>;

    /// Compares every built index with the rows and fails with a wrong answer if they differ.
    /// Returns the number of indexes. No client writes meanwhile.
    fn check(&mut self, table: TableId) -> Result<usize>;
}

/// Statements of one transaction, with the meaning of those of [`TableConnection`].
pub trait TableWrites {
    /// Inserts rows with keys that are new or were deleted by an earlier statement.
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()>;

    /// Deletes one row; returns true if it existed.
    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool>;

    /// Changes one column of one row; returns true if the row existed.
    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool>;

    /// Returns the statements on single columns in this transaction, if the connection has them.
    fn queries(&mut self) -> Option<&mut dyn TableQueries> {
        None
    }
}

/// Refuses a table that is not empty before a load.
///
/// # Errors
/// [`EngineError::Unsupported`] if it holds rows.
pub fn refuse_rows(
    connection: &mut dyn TableConnection,
    schema: &TableSchema,
    table: TableId,
) -> Result<()> {
    let mut found = false;
    let one = Range {
        limit: 1,
        ..Range::ALL
    };
    connection.scan(table, Path::Primary, one, &mut |_| {
        found = true;
        false
    })?;
    if found {
        Err(EngineError::Unsupported(format!(
            "table {} holds rows of another run; give an empty directory",
            schema.table(table).name
        )))
    } else {
        Ok(())
    }
}
