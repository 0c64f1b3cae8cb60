//! Block that a lookup reads from.

use crate::table::block::DecodedBlock;
use alluvium_mem::epoch::Held;
use std::ops::Deref;
use std::sync::Arc;

/// Block that a lookup reads in place. A cached one is held without a reference, so the holder must
/// neither wait nor do I/O.
pub(crate) enum HeldBlock<'t> {
    Cached(Held<'t, DecodedBlock>),
    Read(Arc<DecodedBlock>),
}

impl HeldBlock<'_> {
    /// Returns a reference that keeps the block in memory.
    pub(super) fn keep(self) -> Arc<DecodedBlock> {
        match self {
            HeldBlock::Cached(held) => held.keep(),
            HeldBlock::Read(block) => block,
        }
    }
}

impl Deref for HeldBlock<'_> {
    type Target = DecodedBlock;

    fn deref(&self) -> &DecodedBlock {
        match self {
            HeldBlock::Cached(held) => held,
            HeldBlock::Read(block) => block,
        }
    }
}
