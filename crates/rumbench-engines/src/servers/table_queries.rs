//! Queries that a server answers natively: one column, sums, some columns of the selected rows.

use std::ops::RangeInclusive;

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::tables::{ColumnType, Fold, RowBatch, TableId, TableQueries, Value, Where};

use super::query_sql::Condition;
use super::session::Session;
use super::sql::Dialect;
use super::table_statements::Kind;
use super::tables::{ROWS_MAX, TablesConnection};

impl<S: Session> TablesConnection<S> {
    /// Sets one column of the rows with these keys by one statement.
    fn set_part(
        &mut self,
        table: TableId,
        keys: &[u64],
        column: usize,
        value: Value<'_>,
    ) -> Result<u64> {
        let kind = Kind::SetOfList {
            column,
            keys: keys.len(),
        };
        self.start(table, kind)?;
        self.session.push(value)?;
        self.push_all(keys.iter().copied().map(Value::Unsigned))?;
        self.change()
    }
}

impl<S: Session> TableQueries for TablesConnection<S> {
    fn column(
        &mut self,
        table: TableId,
        key: &[Value<'_>],
        column: usize,
        read: &mut dyn FnMut(Value<'_>),
    ) -> Result<()> {
        let of = self.schema.table(table).columns[column].of;
        self.start(table, Kind::Column { column })?;
        self.push_all(key.iter().copied())?;
        self.session.finish(&[of], &mut |row| read(row[0]))?;
        Ok(())
    }

    fn set(
        &mut self,
        table: TableId,
        keys: &[u64],
        column: usize,
        value: Value<'_>,
    ) -> Result<u64> {
        if keys.len() <= ROWS_MAX {
            return self.set_part(table, keys, column, value);
        }
        let mut changed = 0;
        self.in_transaction(|tables| {
            for keys in keys.chunks(ROWS_MAX) {
                changed += tables.set_part(table, keys, column, value)?;
            }
            Ok(())
        })?;
        Ok(changed)
    }

    fn insert_parsed(&mut self, table: TableId, rows: &RowBatch) -> Result<()> {
        self.insert_batch(table, rows, true)
    }

    fn fold(
        &mut self,
        table: TableId,
        range: RangeInclusive<u64>,
        column: usize,
        fold: Fold,
        visit: &mut dyn FnMut(Value<'_>),
    ) -> Result<()> {
        let answer = match (fold, self.dialect) {
            (Fold::Count, _) => ColumnType::U64,
            // A decimal number as text.
            (Fold::Sum, Dialect::Maria(_)) => ColumnType::Bytes,
            (Fold::Sum, Dialect::Postgres) => ColumnType::U64,
            _ => self.schema.table(table).columns[column].of,
        };
        self.start(table, Kind::Fold { column, fold })?;
        self.push_all([*range.start(), *range.end()].map(Value::Unsigned))?;
        let mut bad = false;
        self.session.finish(&[answer], &mut |row| match row[0] {
            Value::Bytes(text) if fold == Fold::Sum => match number_of(text) {
                Some(number) => visit(Value::Unsigned(number)),
                None => bad = true,
            },
            value => visit(value),
        })?;
        if bad {
            Err(EngineError::Wrong("a sum that is no number".to_string()))
        } else {
            Ok(())
        }
    }

    fn select(
        &mut self,
        table: TableId,
        columns: &'static [usize],
        by: usize,
        rows: Where<'_>,
        visit: &mut dyn FnMut(&[Value<'_>]),
    ) -> Result<()> {
        let of = self.schema.table(table);
        let types: Vec<ColumnType> = columns.iter().map(|place| of.columns[*place].of).collect();
        let mut part = |condition, values: &[u64]| {
            let kind = Kind::Select {
                columns,
                by,
                condition,
            };
            self.start(table, kind)?;
            self.push_all(values.iter().copied().map(Value::Unsigned))?;
            self.session.finish(&types, &mut |row| visit(row)).map(drop)
        };
        match rows {
            Where::In(values) => values.chunks(ROWS_MAX).try_for_each(|values| {
                let condition = Condition::In {
                    values: values.len(),
                };
                part(condition, values)
            }),
            Where::Between(from, to) => part(Condition::Between, &[from, to]),
            Where::Longer(bytes) => part(Condition::Longer { bytes }, &[]),
        }
    }
}

fn number_of(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
