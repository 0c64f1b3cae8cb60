//! The row that a cursor shows, apart from the sources in which it was found: those may be taken from the cursor while
//! its caller still looks at the row. A value in a block of a table keeps that one block; keys, and what lies in
//! memtables and write sets, are copied into buffers that are used again for the next row.

use crate::table::{BlockValue, PinnedValue};

/// See the module.
#[derive(Default)]
pub(super) struct HeldRow {
    key: Vec<u8>,
    value: Value,
    copied: Vec<u8>,
    /// Keeps the block of an earlier row for the next, so that its count changes once a block and not once a row.
    in_block: BlockValue,
    /// How many bytes at the end of the stored value are not the caller's.
    hidden_bytes: usize,
}

/// Where the value is.
#[derive(Default)]
enum Value {
    /// Nowhere: there is no row.
    #[default]
    None,
    Copied,
    InBlock,
    /// Read from where it is stored apart.
    Separated(PinnedValue),
}

impl HeldRow {
    /// A holder of rows whose stored values end with so many bytes of the engine's own.
    pub fn new(hidden_bytes: usize) -> HeldRow {
        HeldRow {
            hidden_bytes,
            ..HeldRow::default()
        }
    }

    /// Holds no row any more, nor anything of the last one but its key.
    pub fn clear(&mut self) {
        self.value = Value::None;
        self.in_block.clear();
    }

    /// Holds a row with this key, and a value that is copied.
    pub fn copy(&mut self, key: &[u8], value: &[u8]) {
        self.set_key(key);
        self.copied.clear();
        self.copied.extend_from_slice(value);
        self.value = Value::Copied;
    }

    /// Holds a row with this key, and the value that `hold` finds in a block.
    pub fn in_block(&mut self, key: &[u8], hold: impl FnOnce(&mut BlockValue)) {
        self.set_key(key);
        hold(&mut self.in_block);
        self.value = Value::InBlock;
    }

    /// Holds a row with this key and a value that was stored apart.
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

    /// The key. Panics where there is no row.
    pub fn key(&self) -> &[u8] {
        assert!(self.is_row(), "the cursor is not on a row");
        &self.key
    }

    /// The value. Panics where there is no row.
    pub fn value(&self) -> &[u8] {
        let stored = match &self.value {
            Value::None => panic!("the cursor is not on a row"),
            Value::Copied => &self.copied,
            Value::InBlock => self.in_block.bytes(),
            Value::Separated(value) => value,
        };
        &stored[..stored.len().saturating_sub(self.hidden_bytes)]
    }

    /// The value, for as long as the caller likes. Panics where there is no row.
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
