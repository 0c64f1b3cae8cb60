//! Block that a lookup reads from.

use crate::table::block::{BlockFrame, DecodedBlock, Shape};
use alluvium_mem::epoch::Held;

/// Block that a lookup reads in place. A cached one is held without a reference, so the holder must
/// neither wait nor do I/O.
pub(crate) enum HeldBlock<'t> {
    Cached(Held<'t, Shape>),
    Read(BlockFrame),
}

impl HeldBlock<'_> {
    /// Returns the rows.
    #[inline]
    pub(super) fn rows(&self) -> DecodedBlock<'_> {
        DecodedBlock(match self {
            HeldBlock::Cached(held) => held,
            HeldBlock::Read(block) => block,
        })
    }

    /// Returns a reference that keeps the block in memory.
    pub(super) fn keep(self) -> BlockFrame {
        match self {
            HeldBlock::Cached(held) => held.keep(),
            HeldBlock::Read(block) => block,
        }
    }
}
