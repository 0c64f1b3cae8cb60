//! Values of columns, and batches of rows that are refilled without allocation.

/// One value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Value of an unsigned column.
    Unsigned(u64),
    /// Value of a signed column.
    Signed(i64),
    /// Text or bytes.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Returns an unsigned number; `None` for any other value.
    #[inline]
    pub fn unsigned(self) -> Option<u64> {
        match self {
            Value::Unsigned(number) => Some(number),
            Value::Signed(_) | Value::Bytes(_) => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Cell {
    Unsigned(u64),
    Signed(i64),
    /// Range in the bytes of the batch.
    Bytes {
        start: usize,
        end: usize,
    },
}

/// Rows of one table, or keys of it. Clearing keeps the memory.
#[derive(Debug, Clone, Default)]
pub struct RowBatch {
    columns: usize,
    cells: Vec<Cell>,
    bytes: Vec<u8>,
}

impl RowBatch {
    /// Creates an empty batch of rows with this number of columns.
    pub fn new(columns: usize) -> RowBatch {
        RowBatch {
            columns,
            ..RowBatch::default()
        }
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.cells.clear();
        self.bytes.clear();
    }

    /// Appends a value. A row is complete when each of its columns has one.
    #[inline]
    pub fn push(&mut self, value: Value<'_>) {
        let cell = match value {
            Value::Unsigned(number) => Cell::Unsigned(number),
            Value::Signed(number) => Cell::Signed(number),
            Value::Bytes(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                let end = self.bytes.len();
                Cell::Bytes { start, end }
            }
        };
        self.cells.push(cell);
    }

    /// Appends a value of bytes that `append` writes in place.
    #[inline]
    pub fn push_bytes(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        append(&mut self.bytes);
        let end = self.bytes.len();
        self.cells.push(Cell::Bytes { start, end });
    }

    /// Returns the number of complete rows.
    pub fn len(&self) -> usize {
        self.cells.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Returns the total length of all values of type bytes.
    pub fn value_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if there are no complete rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = BatchRow<'_>> + '_ {
        let columns = self.columns.max(1);
        self.cells.chunks_exact(columns).map(|cells| BatchRow {
            cells,
            bytes: &self.bytes,
        })
    }
}

/// One row of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchRow<'a> {
    cells: &'a [Cell],
    bytes: &'a [u8],
}

impl<'a> BatchRow<'a> {
    /// Returns the value of one column.
    #[inline]
    pub fn value(self, column: usize) -> Value<'a> {
        self.value_of(self.cells[column])
    }

    /// Returns all values in order.
    pub fn values(self) -> impl ExactSizeIterator<Item = Value<'a>> {
        self.cells.iter().map(move |cell| self.value_of(*cell))
    }

    #[inline]
    fn value_of(self, cell: Cell) -> Value<'a> {
        match cell {
            Cell::Unsigned(number) => Value::Unsigned(number),
            Cell::Signed(number) => Value::Signed(number),
            Cell::Bytes { start, end } => Value::Bytes(&self.bytes[start..end]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_back_what_was_put_in_and_is_empty_after_clear() {
        let mut batch = RowBatch::new(3);
        for (key, text) in [(7, "a"), (8, ""), (9, "ccc")] {
            batch.push(Value::Unsigned(key));
            batch.push(Value::Signed(-1));
            batch.push_bytes(|out| out.extend_from_slice(text.as_bytes()));
        }
        let rows: Vec<Vec<Value<'_>>> = batch.rows().map(|row| row.values().collect()).collect();
        assert_eq!((batch.len(), rows.len()), (3, 3));
        assert_eq!(
            rows[2],
            [Value::Unsigned(9), Value::Signed(-1), Value::Bytes(b"ccc")]
        );
        assert_eq!(rows[1][2], Value::Bytes(b""));
        batch.clear();
        assert!(batch.is_empty() && batch.rows().next().is_none());
        assert!(RowBatch::default().is_empty());
    }
}
