//! Table store without rows: it counts rows, and every read returns the first inserted row.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rumbench_core::engine::Result;
use rumbench_core::tables::{
    Change, Path, Range, RowBatch, TableConnection, TableId, TableSchema, TableStore, TableWrites,
    Value,
};

use super::state::{NullTable, Shared};

/// Table store without rows.
pub(super) struct NullTables {
    shared: Arc<Shared>,
    schema: &'static TableSchema,
}

impl NullTables {
    pub(super) fn new(shared: Arc<Shared>, schema: &'static TableSchema) -> NullTables {
        shared.tables.get_or_init(|| {
            let tables = schema.tables().iter();
            tables.map(|_| NullTable::default()).collect()
        });
        NullTables { shared, schema }
    }
}

impl TableStore for NullTables {
    fn connect(&self) -> Result<Box<dyn TableConnection>> {
        Ok(Box::new(NullTableConnection {
            shared: Arc::clone(&self.shared),
            schema: self.schema,
        }))
    }

    fn build_index(&self, table: TableId, index: usize) -> Result<()> {
        self.shared.delays.start()?;
        black_box((table, index));
        Ok(())
    }

    fn keeps_rows(&self) -> bool {
        false
    }
}

struct NullTableConnection {
    shared: Arc<Shared>,
    schema: &'static TableSchema,
}

/// Maximum number of values in a row of any workload.
const VALUES: usize = 16;

impl NullTableConnection {
    /// Returns the state of a table. `new` has created one for each table of the schema.
    fn table(&self, table: TableId) -> &NullTable {
        &self.shared.tables.get().map_or(&[][..], Vec::as_slice)[table.0]
    }

    /// Returns the first row with the columns that `path` answers.
    fn row<'a>(
        &'a self,
        table: TableId,
        path: Path,
        values: &'a mut [Value<'a>; VALUES],
    ) -> Option<&'a [Value<'a>]> {
        let first = self.table(table).first.get()?.rows().next()?;
        let of = self.schema.table(table);
        let mut columns = 0;
        let mut push = |place| {
            values[columns] = first.value(place);
            columns += 1;
        };
        match path {
            Path::Primary => (0..of.columns.len()).for_each(&mut push),
            Path::Index(_) => of.path_columns(path).for_each(&mut push),
        }
        Some(&values[..columns])
    }
}

impl TableConnection for NullTableConnection {
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()> {
        self.shared.delays.start()?;
        let rows = black_box(rows);
        let table = self.table(table);
        table.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
        table.first.get_or_init(|| rows.clone());
        Ok(())
    }

    fn delete_first(&mut self, table: TableId, from: &[Value<'_>], rows: usize) -> Result<usize> {
        self.shared.delays.start()?;
        black_box(from);
        let counted = &self.table(table).rows;
        counted.fetch_sub(rows as u64, Ordering::Relaxed);
        Ok(rows)
    }

    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool> {
        self.shared.delays.start()?;
        black_box((table, key));
        Ok(true)
    }

    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool> {
        self.shared.delays.start()?;
        black_box((table, key, column, change));
        Ok(true)
    }

    fn replace(&mut self, table: TableId, row: &RowBatch) -> Result<bool> {
        self.shared.delays.start()?;
        black_box((table, row));
        Ok(true)
    }

    fn put(&mut self, table: TableId, row: &RowBatch) -> Result<()> {
        self.shared.delays.start()?;
        black_box((table, row));
        Ok(())
    }

    fn write(
        &mut self,
        statements: &mut dyn FnMut(&mut dyn TableWrites) -> Result<()>,
    ) -> Result<()> {
        self.shared.delays.start()?;
        statements(&mut NullWrites(&*self))
    }

    fn get(
        &mut self,
        table: TableId,
        keys: &RowBatch,
        read: &mut dyn FnMut(usize, Option<&[Value<'_>]>),
    ) -> Result<()> {
        self.shared.delays.start()?;
        let mut values = [Value::Unsigned(0); VALUES];
        let row = self.row(table, Path::Primary, &mut values);
        for place in 0..black_box(keys).len() {
            read(place, row);
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
        self.shared.delays.start()?;
        let range = black_box(range);
        let mut values = [Value::Unsigned(0); VALUES];
        let Some(row) = self.row(table, path, &mut values) else {
            return Ok(());
        };
        for _ in 0..answered(&range) {
            if !visit(row) {
                break;
            }
        }
        Ok(())
    }

    fn count(&mut self, table: TableId) -> Result<u64> {
        Ok(self.table(table).rows.load(Ordering::Relaxed))
    }

    fn check(&mut self, _table: TableId) -> Result<usize> {
        Ok(0)
    }
}

/// Returns the number of rows that a range answers: its limit, or the count of numbers between its
/// bounds if that is smaller. A range with neither is a check, which finds nothing here.
fn answered(range: &Range<'_>) -> u64 {
    let number = |bound: &[Value<'_>]| bound.first().and_then(|value| value.unsigned());
    let span = number(range.from).zip(number(range.to));
    let span = span.map(|(from, to)| to.saturating_sub(from));
    match (range.limit, span) {
        (usize::MAX, span) => span.unwrap_or(0),
        (limit, span) => span.map_or(limit as u64, |span| span.min(limit as u64)),
    }
}

/// Statements of a transaction; their rows are counted at once.
struct NullWrites<'a>(&'a NullTableConnection);

impl TableWrites for NullWrites<'_> {
    fn insert(&mut self, table: TableId, rows: &RowBatch) -> Result<()> {
        let rows = black_box(rows).len() as u64;
        let counted = &self.0.table(table).rows;
        counted.fetch_add(rows, Ordering::Relaxed);
        Ok(())
    }

    fn delete(&mut self, table: TableId, key: &[Value<'_>]) -> Result<bool> {
        black_box(key);
        let counted = &self.0.table(table).rows;
        counted.fetch_sub(1, Ordering::Relaxed);
        Ok(true)
    }

    fn update(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        change: Change<'_>,
    ) -> Result<bool> {
        black_box((table, key, column, change));
        Ok(true)
    }
}
