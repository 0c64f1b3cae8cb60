//! The cached blocks of one table: a slot for each block, filled by misses and emptied by the cache.
//!
//! A slot is absent or holds a decoded block. Readers load it without a lock; a miss installs with a compare-and-swap,
//! so of two threads that read the same block one wins and charges the cache. A table that is dropped detaches its
//! frames by dropping this structure; ring entries of the cache hold it weakly and find it gone.

use crate::cache::{Cache, Eviction, FrameMemory, FrameOwner};
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{SwapGuard, SwapOption};
use crate::table::block::DecodedBlock;
use crate::table::pool::Pool;
use std::any::Any;
use std::sync::{Arc, Weak};

/// The frames of a table.
pub(in crate::table) struct Frames {
    cache: Arc<Cache>,
    slots: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    block: SwapOption<DecodedBlock>,
    /// How often the block was used since the cache last asked for it, up to [`USES_MAX`]. A hint: lost updates are
    /// harmless, so it is loaded and stored relaxed and written only below the maximum.
    uses: AtomicU8,
}

const USES_MAX: u8 = 3;

impl Frames {
    /// Empty frames for `blocks` blocks.
    pub(in crate::table) fn new(cache: Arc<Cache>, blocks: usize) -> Arc<Frames> {
        Arc::new(Frames {
            cache,
            slots: (0..blocks).map(|_| Slot::default()).collect(),
        })
    }

    /// The block, if it is here. The guard must not outlive the call that took it: it occupies one of the few debt
    /// slots of the thread.
    pub(in crate::table) fn load(&self, block: usize) -> SwapGuard<Option<Arc<DecodedBlock>>> {
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

    /// Whether the block is here. No use of it, and counted neither as found nor as missed.
    pub(in crate::table) fn has(&self, block: usize) -> bool {
        self.slots[block].block.load().is_some()
    }

    /// Offers a block that was just read, and returns the one to use, and one that had to go for it.
    pub(in crate::table) fn install(
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
        // New frames start unused: one that is never met again is the first to go.
        slot.uses.store(0, Ordering::Relaxed);
        let weak: Weak<Frames> = Arc::downgrade(self);
        let mut evicted = self.cache.charge(bytes, weak, block as u32);
        let spare: Option<Arc<dyn Any + Send + Sync>> = evicted.pop().map(|memory| memory as _);
        let spare = spare.and_then(|memory| memory.downcast().ok());
        evicted.into_iter().for_each(FrameMemory::give_back);
        (read, spare)
    }

    /// The bytes of memory that the slots take, without the blocks in them.
    pub(in crate::table) fn resident_bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }
}

/// An evicted block larger than this is freed.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Evicted blocks whose memory the next misses decode into: the allocator is slow at pieces of several KiB that come
/// and go on different threads.
static SPARES: Pool<DecodedBlock> = Pool::new();

/// A block to decode into.
pub(in crate::table) fn take_spare() -> DecodedBlock {
    SPARES.take().unwrap_or_else(DecodedBlock::empty)
}

/// Keeps the memory of a block that nobody else reads any more.
pub(in crate::table) fn keep_spare(block: Arc<DecodedBlock>) {
    let Some(block) = Arc::into_inner(block) else {
        return;
    };
    match block.resident_bytes() <= SPARE_BYTES_MAX {
        true => SPARES.keep(block),
        false => block.free(),
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
