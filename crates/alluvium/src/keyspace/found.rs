//! Value found by a read, in place: copied or pinned only by callers that need it for longer.

use crate::table::{BlockBytes, PinnedValue};

/// Value of a version of a key that a read found.
pub(crate) enum FoundIn<'a> {
    /// In a memtable: the bytes live as long as the state.
    Memory(&'a [u8]),
    /// In a block of a table.
    Block(BlockBytes<'a>),
    /// Kept by this value: read from a value file, or pinned.
    Pinned(PinnedValue),
}

impl FoundIn<'_> {
    /// Returns the value in place.
    pub fn bytes(&self) -> &[u8] {
        match self {
            FoundIn::Memory(bytes) => bytes,
            FoundIn::Block(value) => value.bytes(),
            FoundIn::Pinned(value) => value,
        }
    }

    /// Removes the last `bytes` bytes from the value.
    pub fn without_last(self, bytes: usize) -> Self {
        match self {
            FoundIn::Memory(value) => FoundIn::Memory(&value[..value.len().saturating_sub(bytes)]),
            FoundIn::Block(value) => FoundIn::Block(value.without_last(bytes)),
            FoundIn::Pinned(value) => FoundIn::Pinned(value.without_last(bytes)),
        }
    }

    /// Returns the value such that its holder may wait and do I/O: pins a value in a block.
    pub fn settled(self) -> Self {
        match self {
            FoundIn::Block(value) => FoundIn::Pinned(value.pin()),
            other => other,
        }
    }

    /// Returns the value, independent of the state.
    pub fn pin(self) -> PinnedValue {
        match self {
            FoundIn::Memory(bytes) => PinnedValue::from(bytes),
            FoundIn::Block(value) => value.pin(),
            FoundIn::Pinned(value) => value,
        }
    }
}
