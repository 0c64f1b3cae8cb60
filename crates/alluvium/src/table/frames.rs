//! Cached blocks of one table: a slot for each block, filled by cache misses and emptied by
//! evictions.
//!
//! A slot is empty or holds a decoded block. Readers load it without a lock. A miss installs its
//! block with a compare-and-swap, so of two threads that read the same block one wins and charges
//! the cache. A dropped table drops this structure and thereby detaches its frames; ring entries of
//! the cache hold it weakly and find it gone.

use crate::cache::{Cache, Eviction, FrameMemory, FrameOwner};
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{SwapGuard, SwapOption};
use crate::table::block::DecodedBlock;
use crate::table::pool::Pool;
use std::any::Any;
use std::sync::{Arc, Weak};

/// Frames of one table.
pub(super) struct Frames {
    cache: Arc<Cache>,
    slots: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    block: SwapOption<DecodedBlock>,
    /// Uses of the block since the cache last tried to evict it, up to [`USES_MAX`]. The count is a
    /// hint: lost updates are harmless, so loads and stores are relaxed, and it is written only
    /// below the maximum.
    uses: AtomicU8,
}

const USES_MAX: u8 = 3;

impl Frames {
    /// Creates empty frames for `blocks` blocks.
    pub(super) fn new(cache: Arc<Cache>, blocks: usize) -> Arc<Frames> {
        Arc::new(Frames {
            cache,
            slots: (0..blocks).map(|_| Slot::default()).collect(),
        })
    }

    /// Returns the cache that the frames belong to.
    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the block if it is cached. The guard must not outlive the call that took it: it
    /// occupies one of the few debt slots of the thread.
    pub(super) fn load(&self, block: usize) -> SwapGuard<Option<Arc<DecodedBlock>>> {
        let slot = &self.slots[block];
        let guard = slot.block.load();
        if guard.is_some() {
            let uses = slot.uses.load(Ordering::Relaxed);
            if uses < USES_MAX {
                slot.uses.store(uses + 1, Ordering::Relaxed);
            }
            self.cache.count_hit();
        } else {
            self.cache.count_miss();
        }
        guard
    }

    /// Returns true if the block is cached. Counts as no use of it, and neither as a hit nor as a
    /// miss.
    pub(super) fn has(&self, block: usize) -> bool {
        self.slots[block].block.load().is_some()
    }

    /// Offers a block that was just read. Returns the block to use, and a spare block for its
    /// memory: an evicted one, or `read` if another thread was first.
    pub(super) fn install(
        self: &Arc<Self>,
        block: usize,
        read: Arc<DecodedBlock>,
    ) -> (Arc<DecodedBlock>, Option<Arc<DecodedBlock>>) {
        let bytes = read.resident_bytes() as u64;
        if bytes > self.cache.capacity_bytes() {
            return (read, None);
        }
        let absent: Option<Arc<DecodedBlock>> = None;
        let slot = &self.slots[block];
        let before = slot
            .block
            .compare_and_swap(&absent, Some(Arc::clone(&read)));
        if let Some(other) = &*before {
            return (Arc::clone(other), Some(read));
        }
        // New frames start unused: a block that is not used again is evicted first.
        slot.uses.store(0, Ordering::Relaxed);
        let weak: Weak<Frames> = Arc::downgrade(self);
        let mut evicted = self.cache.charge(bytes, weak, block as u32);
        let spare: Option<Arc<dyn Any + Send + Sync>> = evicted.pop().map(|memory| memory as _);
        let spare = spare.and_then(|memory| memory.downcast().ok());
        evicted.into_iter().for_each(FrameMemory::give_back);
        (read, spare)
    }

    /// Returns the memory of the slots in bytes, without the blocks in them.
    pub(super) fn resident_bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }
}

/// Size in bytes above which an evicted block is freed instead of kept.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Evicted blocks; the next misses decode into their memory. The allocator is slow at pieces of
/// several KiB that are allocated and freed on different threads.
static SPARES: Pool<DecodedBlock> = Pool::new();

/// Returns a block to decode into.
pub(super) fn take_spare() -> DecodedBlock {
    SPARES.take().unwrap_or_else(DecodedBlock::empty)
}

/// Keeps the memory of a block that has no other reader left.
pub(super) fn keep_spare(block: Arc<DecodedBlock>) {
    let Some(block) = Arc::into_inner(block) else {
        return;
    };
    if block.resident_bytes() <= SPARE_BYTES_MAX {
        SPARES.keep(block)
    } else {
        block.free()
    }
}

impl FrameMemory for DecodedBlock {
    fn give_back(self: Arc<DecodedBlock>) {
        if let Some(block) = Arc::into_inner(self) {
            block.free();
        }
    }
}

impl FrameOwner for Frames {
    fn try_evict(&self, frame: u32) -> Eviction {
        let Some(slot) = self.slots.get(frame as usize) else {
            return Eviction::Evicted(0, None);
        };
        let uses = slot.uses.load(Ordering::Relaxed);
        if uses > 0 {
            slot.uses.store(uses - 1, Ordering::Relaxed);
            return Eviction::Kept;
        }
        match slot.block.swap(None) {
            Some(block) => Eviction::Evicted(block.resident_bytes() as u64, Some(block)),
            None => Eviction::Evicted(0, None),
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let blocks = self.slots.iter().filter_map(|slot| slot.block.swap(None));
        for block in blocks {
            self.cache.release(block.resident_bytes() as u64);
            block.give_back();
        }
    }
}

#[cfg(all(test, loom))]
mod model;
