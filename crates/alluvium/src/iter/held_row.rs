//! Row that a cursor shows, separate from the sources it was found in: the engine may take those
//! from the cursor while its caller still reads the row. A value in a block keeps only that block.
//! Keys, and values from memtables and write sets, are copied into buffers that are reused for the
//! next row.

use crate::table::{BlockValue, PinnedValue};

/// Key and value of a row, valid without its source.
#[derive(Default)]
pub(super) struct HeldRow {
    key: Vec<u8>,
    value: Value,
    copied: Vec<u8>,
    /// Keeps the block of an earlier row for the next one, so that its reference count changes once
    /// per block, not per row.
    in_block: BlockValue,
    /// Number of bytes at the end of the stored value that are not part of the caller's value.
    hidden_bytes: usize,
}

/// Location of the value.
#[derive(Default)]
enum Value {
    /// There is no row.
    #[default]
    None,
    Copied,
    InBlock,
    /// Read from a value file.
    Separated(PinnedValue),
}

impl HeldRow {
    /// Creates a holder of rows with `hidden_bytes` bytes of the engine at the end of each stored
    /// value.
    pub fn new(hidden_bytes: usize) -> HeldRow {
        HeldRow {
            hidden_bytes,
            ..HeldRow::default()
        }
    }

    /// Releases the row; of the last row only the key buffer remains.
    pub fn clear(&mut self) {
        self.value = Value::None;
        self.in_block.clear();
    }

    /// Holds a row with this key and a copy of the value.
    pub fn copy(&mut self, key: &[u8], value: &[u8]) {
        self.set_key(key);
        self.copied.clear();
        self.copied.extend_from_slice(value);
        self.value = Value::Copied;
    }

    /// Holds a row with this key and the value that `hold` finds in a block.
    pub fn in_block(&mut self, key: &[u8], hold: impl FnOnce(&mut BlockValue)) {
        self.set_key(key);
        hold(&mut self.in_block);
        self.value = Value::InBlock;
    }

    /// Holds a row with this key and a separated value.
    pub fn separated(&mut self, key: &[u8], value: PinnedValue) {
        self.set_key(key);
        self.value = Value::Separated(value);
    }

    fn set_key(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    pub fn is_row(&self) -> bool {
        !matches!(self.value, Value::None)
    }

    /// Returns the key. Panics if there is no row.
    pub fn key(&self) -> &[u8] {
        assert!(self.is_row(), "the cursor is not on a row");
        &self.key
    }

    /// Returns the value. Panics if there is no row.
    pub fn value(&self) -> &[u8] {
        let stored = match &self.value {
            Value::None => panic!("the cursor is not on a row"),
            Value::Copied => &self.copied,
            Value::InBlock => self.in_block.bytes(),
            Value::Separated(value) => value,
        };
        &stored[..stored.len().saturating_sub(self.hidden_bytes)]
    }

    /// Returns the value, for as long as the caller likes. Panics if there is no row.
    pub fn pin_value(&self) -> PinnedValue {
        let stored = match &self.value {
            Value::None => panic!("the cursor is not on a row"),
            Value::Copied => PinnedValue::from(&self.copied[..]),
            Value::InBlock => self.in_block.pin(),
            Value::Separated(value) => value.clone(),
        };
        match self.hidden_bytes {
            0 => stored,
            hidden => stored.without_last(hidden),
        }
    }
}
