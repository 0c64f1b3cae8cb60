//! Block that a lookup reads from.

use crate::sync::SwapGuard;
use crate::table::block::DecodedBlock;
use std::sync::Arc;

/// Block that a lookup reads in place. A cached one is held without a reference, so it must not
/// outlive the call: its guard occupies one of the few debt slots of the thread.
pub(crate) enum HeldBlock {
    /// Loaded from a slot that held a block.
    Cached(SwapGuard<Option<Arc<DecodedBlock>>>),
    Read(Arc<DecodedBlock>),
}

impl HeldBlock {
    /// Holds the block that was loaded from a slot, if the slot was not empty.
    pub(super) fn cached(guard: SwapGuard<Option<Arc<DecodedBlock>>>) -> Option<HeldBlock> {
        guard.is_some().then_some(HeldBlock::Cached(guard))
    }

    pub(super) fn block(&self) -> &Arc<DecodedBlock> {
        match self {
            HeldBlock::Cached(guard) => guard.as_ref().expect("only made of a full slot"),
            HeldBlock::Read(block) => block,
        }
    }
}
