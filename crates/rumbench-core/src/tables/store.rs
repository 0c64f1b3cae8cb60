//! The operations on tables that workloads are made of.

use super::rows::{RowBatch, Value};
use super::schema::{TableId, TableSchema};
use crate::engine::{EngineError, Result};
use crate::kv::Direction;

/// Which order a range is read in, and what it answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// Whole rows by primary key.
    Primary,
    /// The columns of this index and the primary key, from the index alone.
    Index(usize),
}

/// A range of an order. Bounds are values of its first columns; the columns that are not given are not bounded.
#[derive(Debug, Clone, Copy)]
pub struct Range<'a> {
    /// First values, inclusive; empty: from the lowest.
    pub from: &'a [Value<'a>],
    /// End, exclusive; empty: to the highest.
    pub to: &'a [Value<'a>],
    /// Which end comes first.
    pub direction: Direction,
    /// Rows at most.
    pub limit: usize,
}

impl Range<'_> {
    /// Everything in ascending order.
    pub const ALL: Range<'static> = Range {
        from: &[],
        to: &[],
        direction: Direction::Forward,
        limit: usize::MAX,
    };
}

/// What an update makes of a column.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// This value.
    Set(Value<'a>),
    /// So much more than it was; wraps around.
    Add(i64),
}

/// What a server makes of one column of the rows of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fold {
    /// Its values, in any order.
    Rows,
    /// Their sum.
    Sum,
    /// Its values, sorted.
    Order,
    /// Its different values, sorted.
    Distinct,
    /// How many they are.
    Count,
}

/// Which rows of a table a server is to answer with, by one column.
#[derive(Debug, Clone, Copy)]
pub enum Where<'a> {
    /// Those that have one of these numbers there.
    In(&'a [u64]),
    /// Those that have a number there between these two, both included.
    Between(u64, u64),
    /// Those that have more bytes there: all have to be looked at.
    Longer(usize),
}

/// Statements of engines which work on rows where these are: servers with SQL. Reads send no more than was asked for, and see
/// what a scan or a get at the same place would see.
pub trait TableQueries {
    /// Reads one column of the row with this key; `read` is called where the row is there.
    fn column(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        read: &mut dyn FnMut(Value<'_>),
    ) -> Result<()>;

    /// Reads what is made of one column of the rows whose one key column lies in the range, both ends in it; `visit` gets each
    /// value. A sum, 0 of no rows, and a count are one number without a sign.
    fn fold(
        &mut self,
        table: TableId,
        range: std::ops::RangeInclusive<u64>,
        column: usize,
        fold: Fold,
        visit: &mut dyn FnMut(Value<'_>),
    ) -> Result<()>;

    /// Reads these columns of the rows for which a condition on the column `by` holds; `visit` gets each row once, in any
    /// order.
    fn select(
        &mut self,
        table: TableId,
        columns: &'static [usize],
        by: usize,
        rows: Where<'_>,
        visit: &mut dyn FnMut(&[Value<'_>]),
    ) -> Result<()>;

    /// Sets one column of the rows with these keys, which have one column, to one value, by one statement, or by several in a
    /// transaction of their own where there are more than a thousand keys; answers how many rows there were.
    fn set(&mut self, table: TableId, keys: &[u64], column: usize, value: Value<'_>)
    -> Result<u64>;

    /// Inserts rows, as [`TableConnection::insert`] does, by statements that the server parses each time. More than a thousand
    /// rows are a transaction of their own, and so must not be part of another.
    fn insert_parsed(&mut self, table: TableId, rows: &RowBatch) -> Result<()>;
}

/// The tables of one open engine.
pub trait TableStore: Send + Sync {
    /// A connection for one client thread.
    fn connect(&self) -> Result<Box<dyn TableConnection>>;

    /// Builds an index from the rows that are there, and keeps it from then on. Nobody else writes to the table
    /// meanwhile. A connection made before does not keep it: connect again. Building it twice does nothing.
    fn build_index(&self, table: TableId, index: usize) -> Result<()>;

    /// Builds the first of several indexes of a table, or more of them where one pass over the rows makes them all. Answers
    /// which is the next one to build.
    fn build_next(&self, table: TableId, indexes: std::ops::Range<usize>) -> Result<usize> {
        self.build_index(table, indexes.start)?;
        Ok(indexes.start + 1)
    }

    /// Whether rows written can be read. Only an engine that measures the client's own cost answers no; its answers
    /// are then not judged.
    fn keeps_rows(&self) -> bool {
        true
    }
}

/// One client's connection. A write is one transaction, run again on conflict by the caller of the trait
/// ([`crate::engine::EngineError::Retry`] says so). A row and its index entries change together.
pub trait TableConnection: Send {
    /// Inserts rows whose keys are new.
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()>;

    /// Deletes the first rows, at most so many, whose keys are not below `from`; answers how many there were. Nobody else
    /// writes these rows meanwhile: they are read without a lock.
    fn delete_first(&mut self, table: TableId, from: &[Value<'_>], rows: usize) -> Result<usize>;

    /// Deletes one row; answers whether it was there.
    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool>;

    /// Changes one column of one row, which is protected from lost updates; answers whether the row was there. The
    /// column is not in the primary key.
    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool>;

    /// Writes all columns of one row that is there, given as a batch of this row alone; answers whether it was there.
    /// The row is protected from lost updates of its index entries.
    fn replace(&mut self, table: TableId, row: &RowBatch) -> Result<bool>;

    /// Runs several statements as one transaction: all that they write happens, or nothing. A statement sees what those
    /// before it wrote, and what it has changed or looked for nobody else can change before the end. An error of
    /// `statements` rolls back and is answered. A conflict may be met by any statement and by the commit; nothing has
    /// happened then, and the caller runs it again. `statements` is called once.
    fn write(
        &mut self,
        statements: &mut dyn FnMut(&mut dyn TableWrites) -> Result<()>,
    ) -> Result<()>;

    /// Reads rows by their keys; `read` gets each row, or `None`, with its place among `keys`. A key may be there twice.
    fn get(
        &mut self,
        table: TableId,
        keys: &RowBatch,
        read: &mut dyn FnMut(usize, Option<&[Value<'_>]>),
    ) -> Result<()>;

    /// Reads a range of one point in time; `visit` returns whether to go on.
    fn scan(
        &mut self,
        table: TableId,
        path: Path,
        range: Range<'_>,
        visit: &mut dyn FnMut(&[Value<'_>]) -> bool,
    ) -> Result<()>;

    /// Reads of single columns, where the engine has them.
    fn queries(&mut self) -> Option<&mut dyn TableQueries> {
        None
    }

    /// Counts the rows, all of them.
    fn count(&mut self, table: TableId) -> Result<u64>;

    /// Compares every built index with the rows; a wrong answer where they differ. Answers how many indexes there are.
    /// Nobody writes meanwhile.
    fn check(&mut self, table: TableId) -> Result<usize>;
}

/// Statements of one transaction; they mean what those of [`TableConnection`] mean.
pub trait TableWrites {
    /// Inserts rows whose keys are new, or were deleted by a statement before.
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()>;

    /// Deletes one row; answers whether it was there.
    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool>;

    /// Changes one column of one row; answers whether the row was there.
    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool>;

    /// Reads of single columns in this transaction, where the connection has them.
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
    match found {
        false => Ok(()),
        true => Err(EngineError::Unsupported(format!(
            "table {} holds rows of another run; give an empty directory",
            schema.table(table).name
        ))),
    }
}
