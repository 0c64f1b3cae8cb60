//! Values that outlive the call returning them.

use crate::table::block::{BlockFrame, DecodedBlock};
use crate::table::held_block::HeldBlock;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Value that owns its bytes: small values are copied, larger ones keep their block in memory.
///
/// A kept block that has a frame of the cache keeps its slab counted, and the cache cannot free
/// that slab until the value is dropped.
#[derive(Clone)]
pub struct PinnedValue(Repr);

#[derive(Clone)]
enum Repr {
    Inline(u8, [u8; INLINE_BYTES]),
    Block(BlockFrame, Range<usize>),
    Shared(Arc<[u8]>, usize),
    /// Bytes already in their own allocation, with one more pointer: cheaper than copying a large
    /// value.
    Owned(Arc<Vec<u8>>, usize),
}

/// Largest value that is copied: up to this size a copy is cheaper than a contended reference
/// count.
const INLINE_BYTES: usize = 64;

impl PinnedValue {
    /// Returns the value in a range of `block`.
    pub(super) fn from_block(block: &BlockFrame, range: Range<usize>) -> PinnedValue {
        let inline = inline(DecodedBlock(block).bytes(range.clone()));
        PinnedValue(inline.unwrap_or_else(|| Repr::Block(block.clone(), range)))
    }

    /// Returns the value in a range of a block that a lookup holds.
    pub(super) fn of_held(block: HeldBlock<'_>, range: Range<usize>) -> PinnedValue {
        let inline = inline(block.rows().bytes(range.clone()));
        PinnedValue(inline.unwrap_or_else(|| Repr::Block(block.keep(), range)))
    }
}

impl PinnedValue {
    /// Removes the last `bytes` bytes, or all if there are fewer.
    pub(crate) fn without_last(self, bytes: usize) -> PinnedValue {
        let kept = self.len().saturating_sub(bytes);
        PinnedValue(match self.0 {
            Repr::Inline(_, copy) => Repr::Inline(kept as u8, copy),
            Repr::Block(block, range) => Repr::Block(block, range.start..range.start + kept),
            Repr::Shared(shared, _) => Repr::Shared(shared, kept),
            Repr::Owned(owned, _) => Repr::Owned(owned, kept),
        })
    }
}

/// Value in a slot of a block, which it keeps in memory. Reused for other slots, it takes a
/// reference for each block and not for each value.
#[derive(Default)]
pub struct BlockValue {
    block: Option<BlockFrame>,
    range: Range<usize>,
}

impl BlockValue {
    /// Keeps the value in a slot of `block`.
    pub(super) fn keep(&mut self, block: &BlockFrame, slot: usize) {
        if !self.block.as_ref().is_some_and(|own| own.is(block)) {
            self.block = Some(block.clone());
        }
        self.range = DecodedBlock(block).value_range(slot);
    }

    /// Drops the value and its reference.
    pub fn clear(&mut self) {
        self.block = None;
        self.range = 0..0;
    }

    /// Returns the value; empty if there is none.
    pub fn bytes(&self) -> &[u8] {
        let block = self.block.as_ref();
        block.map_or(&[], |block| DecodedBlock(block).bytes(self.range.clone()))
    }

    /// Returns the value in a holder that keeps it in memory.
    pub fn pin(&self) -> PinnedValue {
        match &self.block {
            Some(block) => PinnedValue::from_block(block, self.range.clone()),
            None => PinnedValue::from(&[][..]),
        }
    }
}

fn inline(bytes: &[u8]) -> Option<Repr> {
    let mut copy = [0; INLINE_BYTES];
    copy.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(Repr::Inline(bytes.len() as u8, copy))
}

impl From<&[u8]> for PinnedValue {
    /// Copies the bytes.
    fn from(bytes: &[u8]) -> PinnedValue {
        PinnedValue(inline(bytes).unwrap_or_else(|| Repr::Shared(bytes.into(), bytes.len())))
    }
}

impl From<Vec<u8>> for PinnedValue {
    /// Keeps the allocation, unless the bytes are few.
    fn from(bytes: Vec<u8>) -> PinnedValue {
        let length = bytes.len();
        PinnedValue(inline(&bytes).unwrap_or_else(|| Repr::Owned(Arc::new(bytes), length)))
    }
}

impl Deref for PinnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Repr::Block(block, range) => DecodedBlock(block).bytes(range.clone()),
            Repr::Shared(bytes, length) => &bytes[..*length],
            Repr::Owned(bytes, length) => &bytes[..*length],
        }
    }
}

impl AsRef<[u8]> for PinnedValue {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for PinnedValue {
    fn eq(&self, other: &PinnedValue) -> bool {
        **self == **other
    }
}

impl Eq for PinnedValue {}

impl fmt::Debug for PinnedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes: {}", self.len(), self.escape_ascii())
    }
}
