//! Rows and index entries as bytes, the same for all ordered key-value engines.
//!
//! A key is its columns in order, big-endian and with an inverted sign bit, so that bytes compare
//! as values do. The value of a row is its other columns in order. Numbers have a fixed width;
//! bytes follow their length (4 bytes), except in the last column, which has no length field. A key
//! of bytes is these bytes. The value of an index entry is empty.

use super::rows::Value;
use super::schema::{COLUMNS_MAX, Column, ColumnType, Table};
use crate::error::{EngineError, Result};

/// Values of a row on the stack.
pub(super) type Values<'a> = [Value<'a>; COLUMNS_MAX];
pub(super) const NO_VALUES: Values<'static> = [Value::Unsigned(0); COLUMNS_MAX];

const SIGN: u64 = 1 << 63;

/// Returns the number of bytes of the columns in a key.
pub(super) fn key_bytes(columns: impl Iterator<Item = usize>, table: &Table) -> usize {
    let width = |place: usize| match table.columns[place].of {
        ColumnType::U32 => 4,
        ColumnType::U64 | ColumnType::I64 => 8,
        ColumnType::Bytes => 0,
    };
    columns.map(width).sum()
}

/// Appends one value of a key.
#[inline]
pub fn append_key_value(column: &Column, value: Value<'_>, out: &mut Vec<u8>) -> Result<()> {
    match (column.of, value) {
        (ColumnType::U32, Value::Unsigned(number)) => {
            let Ok(narrow) = u32::try_from(number) else {
                return Err(mismatch(column, value));
            };
            out.extend_from_slice(&narrow.to_be_bytes());
        }
        (ColumnType::U64, Value::Unsigned(number)) => {
            out.extend_from_slice(&number.to_be_bytes());
        }
        (ColumnType::I64, Value::Signed(number)) => {
            out.extend_from_slice(&(number as u64 ^ SIGN).to_be_bytes());
        }
        (ColumnType::Bytes, Value::Bytes(bytes)) => out.extend_from_slice(bytes),
        _ => return Err(mismatch(column, value)),
    }
    Ok(())
}

/// Appends the values of a key's first columns; `places` are the indexes of these columns in the
/// table.
pub fn append_key<'a>(
    table: &Table,
    places: impl IntoIterator<Item = usize>,
    values: impl IntoIterator<Item = Value<'a>>,
    out: &mut Vec<u8>,
) -> Result<()> {
    for (place, value) in places.into_iter().zip(values) {
        append_key_value(&table.columns[place], value, out)?;
    }
    Ok(())
}

/// Appends the value of a row; `value_of` returns the value of each column.
#[inline]
pub fn append_row<'a>(
    table: &Table,
    value_of: impl Fn(usize) -> Value<'a>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let last = table.columns.len() - 1;
    for (place, column) in table.columns.iter().enumerate().skip(table.key_columns) {
        match (column.of, value_of(place)) {
            (ColumnType::Bytes, Value::Bytes(bytes)) if place != last => {
                out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                out.extend_from_slice(bytes);
            }
            (_, value) => append_key_value(column, value, out)?,
        }
    }
    Ok(())
}

/// Decodes a whole row from its key and value into `values`; returns one value per column.
#[inline]
pub(super) fn read_row<'v, 'a>(
    table: &Table,
    key: &'a [u8],
    value: &'a [u8],
    values: &'v mut Values<'a>,
) -> Result<&'v [Value<'a>]> {
    let mut fields = Fields(key);
    for (column, out) in table.columns[..table.key_columns].iter().zip(&mut *values) {
        *out = fields.value(column)?;
    }
    fields.end(table)?;
    let columns = table.columns.len();
    let mut fields = Fields(value);
    let row = table.columns.iter().zip(&mut *values).enumerate();
    for (place, (column, value)) in row.skip(table.key_columns) {
        *value = match column.of {
            ColumnType::Bytes if place != columns - 1 => {
                let length = u32::from_be_bytes(fields.take()?) as usize;
                let Some((bytes, rest)) = fields.0.split_at_checked(length) else {
                    return Err(ends_early());
                };
                fields.0 = rest;
                Value::Bytes(bytes)
            }
            _ => fields.value(column)?,
        };
    }
    fields.end(table)?;
    Ok(&values[..columns])
}

/// Decodes an index entry into `values`: the index's columns, then the primary key.
#[inline]
pub(super) fn read_entry<'v, 'a>(
    table: &Table,
    index: usize,
    key: &'a [u8],
    values: &'v mut Values<'a>,
) -> Result<&'v [Value<'a>]> {
    let mut fields = Fields(key);
    let mut columns = 0;
    for place in table.index_columns(index) {
        values[columns] = fields.value(&table.columns[place])?;
        columns += 1;
    }
    fields.end(table)?;
    Ok(&values[..columns])
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((field, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(ends_early());
        };
        self.0 = rest;
        Ok(*field)
    }

    /// Takes a number, or all bytes that are left.
    #[inline]
    fn value(&mut self, column: &Column) -> Result<Value<'a>> {
        Ok(match column.of {
            ColumnType::U32 => Value::Unsigned(u64::from(u32::from_be_bytes(self.take()?))),
            ColumnType::I64 => Value::Signed((u64::from_be_bytes(self.take()?) ^ SIGN) as i64),
            ColumnType::U64 => Value::Unsigned(u64::from_be_bytes(self.take()?)),
            ColumnType::Bytes => Value::Bytes(std::mem::take(&mut self.0)),
        })
    }

    fn end(&self, table: &Table) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let (bytes, name) = (self.0.len(), &table.name);
        Err(EngineError::Wrong(format!(
            "a row or entry of {name} is {bytes} bytes too long"
        )))
    }
}

#[cold]
fn ends_early() -> EngineError {
    EngineError::Wrong("a row or an index entry ends early".to_owned())
}

#[cold]
fn mismatch(column: &Column, value: Value<'_>) -> EngineError {
    EngineError::Unsupported(format!(
        "column {} of type {:?} cannot hold {value:?}",
        column.name, column.of
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Index;

    fn table() -> Table {
        Table {
            name: "t".to_owned(),
            columns: vec![
                Column::new("a", ColumnType::I64),
                Column::new("b", ColumnType::U32),
                Column::new("c", ColumnType::Bytes),
                Column::new("d", ColumnType::U64),
                Column::new("e", ColumnType::Bytes),
            ],
            key_columns: 2,
            indexes: vec![Index {
                name: "d".to_owned(),
                columns: vec![3, 1],
            }],
            expect_hits: true,
        }
    }

    #[test]
    fn rows_and_entries_are_read_as_they_were_written() {
        let table = table();
        let row = [
            Value::Signed(-5),
            Value::Unsigned(7),
            Value::Bytes(b"x\0y"),
            Value::Unsigned(u64::MAX),
            Value::Bytes(b""),
        ];
        let (mut key, mut value, mut entry) = (Vec::new(), Vec::new(), Vec::new());
        append_key(&table, 0..2, row, &mut key).unwrap();
        append_row(&table, |place| row[place], &mut value).unwrap();
        assert_eq!((key.len(), value.len()), (12, 4 + 3 + 8));
        assert_eq!(key_bytes(0..2, &table), 12);
        let mut values = NO_VALUES;
        assert_eq!(read_row(&table, &key, &value, &mut values).unwrap(), row);
        let of_entry = [row[3], row[1], row[0], row[1]];
        append_key(&table, table.index_columns(0), of_entry, &mut entry).unwrap();
        let mut values = NO_VALUES;
        assert_eq!(
            read_entry(&table, 0, &entry, &mut values).unwrap(),
            of_entry
        );
    }

    #[test]
    fn keys_compare_as_their_values_do() {
        let table = table();
        let key = |number| {
            let mut key = Vec::new();
            append_key(&table, 0..1, [Value::Signed(number)], &mut key).unwrap();
            key
        };
        let ordered = [i64::MIN, -256, -1, 0, 1, 255, 256, i64::MAX];
        assert!(ordered.map(key).is_sorted());
    }

    #[test]
    fn damaged_rows_and_values_of_other_types_are_errors() {
        let table = table();
        let mut values = NO_VALUES;
        for value in [&[0, 0, 0, 9, 1][..], &[0; 5], &[]] {
            let read = read_row(&table, &[0; 12], value, &mut values);
            assert!(matches!(read, Err(EngineError::Wrong(_))), "{read:?}");
        }
        let read = read_entry(&table, 0, &[0; 25], &mut values);
        assert!(matches!(read, Err(EngineError::Wrong(_))), "{read:?}");
        let wide = append_key(&table, [1], [Value::Unsigned(1 << 32)], &mut Vec::new());
        let error = wide.unwrap_err().to_string();
        assert!(error.contains("column b of type U32"), "{error}");
    }
}
