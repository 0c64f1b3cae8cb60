//! A value that a read found, where it lies: copied or pinned only by those who need it for longer.

use crate::table::{BlockBytes, PinnedValue};

/// The value of a version of a key that a read found.
pub(crate) enum FoundIn<'a> {
    /// In a memtable: bytes live as long as the state.
    Memory(&'a [u8]),
    /// In a block of a table.
    Block(BlockBytes<'a>),
    /// In a value file, read for this call.
    Separated(PinnedValue),
}

impl FoundIn<'_> {
    /// The value in place.
    pub fn bytes(&self) -> &[u8] {
        match self {
            FoundIn::Memory(bytes) => bytes,
            FoundIn::Block(value) => value.bytes(),
            FoundIn::Separated(value) => value,
        }
    }

    /// The value without its last bytes.
    pub fn without_last(self, bytes: usize) -> Self {
        match self {
            FoundIn::Memory(value) => FoundIn::Memory(&value[..value.len().saturating_sub(bytes)]),
            FoundIn::Block(value) => FoundIn::Block(value.without_last(bytes)),
            FoundIn::Separated(value) => FoundIn::Separated(value.without_last(bytes)),
        }
    }

    /// The value, independent of the state.
    pub fn pin(self) -> PinnedValue {
        match self {
            FoundIn::Memory(bytes) => PinnedValue::from(bytes),
            FoundIn::Block(value) => value.pin(),
            FoundIn::Separated(value) => value,
        }
    }
}
