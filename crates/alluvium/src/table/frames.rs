//! Cached blocks of one table: a slot for each block, filled by cache misses and emptied by
//! evictions.
//!
//! A slot is empty or holds a decoded block. Readers load it without a lock. A miss installs its
//! block with a compare-and-swap, so of two threads that read the same block one wins and charges
//! the cache. A dropped table drops this structure and thereby detaches its frames; ring entries of
//! the cache hold it weakly and find it gone.

use crate::cache::{Cache, Eviction, FrameOwner};
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::table::block::DecodedBlock;
use crate::table::pool::Pool;
use alluvium_mem::epoch::{Held, Slots, Taken};
use std::sync::{Arc, Weak};

/// Frames of one table.
pub(super) struct Frames {
    cache: Arc<Cache>,
    blocks: Slots<DecodedBlock>,
    /// Uses of each block since the cache last tried to evict it, up to [`USES_MAX`]. The count is
    /// a hint: lost updates are harmless, so loads and stores are relaxed, and it is written only
    /// below the maximum.
    uses: Box<[AtomicU8]>,
}

const USES_MAX: u8 = 3;

impl Frames {
    /// Creates empty frames for `blocks` blocks.
    pub(super) fn new(cache: Arc<Cache>, blocks: usize) -> Arc<Frames> {
        Arc::new(Frames {
            blocks: Slots::new(cache.readers(), blocks),
            uses: (0..blocks).map(|_| AtomicU8::new(0)).collect(),
            cache,
        })
    }

    /// Returns the cache that the frames belong to.
    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the block if it is cached. It must not be held during I/O or a wait.
    pub(super) fn hold(&self, block: usize) -> Option<Held<'_, DecodedBlock>> {
        let held = self.blocks.hold(block);
        if held.is_some() {
            let uses = self.uses[block].load(Ordering::Relaxed);
            if uses < USES_MAX {
                self.uses[block].store(uses + 1, Ordering::Relaxed);
            }
            self.cache.count_hit();
        } else {
            self.cache.count_miss();
        }
        held
    }

    /// Returns true if the block is cached. Counts as no use of it, and neither as a hit nor as a
    /// miss.
    pub(super) fn has(&self, block: usize) -> bool {
        self.blocks.is_full(block)
    }

    /// Offers a block that was just read. Returns the block to use, which may be that of another
    /// thread. Keeps unused memory for later blocks.
    pub(super) fn install(
        self: &Arc<Self>,
        block: usize,
        read: Arc<DecodedBlock>,
    ) -> Arc<DecodedBlock> {
        let bytes = read.resident_bytes() as u64;
        if !self.cache.admits(bytes) {
            return read;
        }
        if self.blocks.fill(block, Arc::clone(&read)).is_err() {
            // Another thread was first; its block may be evicted by now.
            let Some(other) = self.blocks.hold(block) else {
                return read;
            };
            let other = other.keep();
            keep_spare(read);
            return other;
        }
        // New frames start unused: a block that is not used again is evicted first.
        self.uses[block].store(0, Ordering::Relaxed);
        let weak: Weak<Frames> = Arc::downgrade(self);
        for returned in self.cache.charge(bytes, weak, block as u32) {
            if let Ok(block) = returned.downcast() {
                keep_spare(block);
            }
        }
        read
    }

    fn free_blocks(&self) {
        let taken = (0..self.blocks.len()).filter_map(|block| self.take(block));
        self.cache.discard(taken);
    }

    fn take(&self, block: usize) -> Option<Taken> {
        self.blocks
            .take(block, |block| block.resident_bytes() as u64)
    }

    /// Returns the memory of the slots in bytes, without the blocks in them.
    pub(super) fn resident_bytes(&self) -> usize {
        self.blocks.len() * (size_of::<usize>() + size_of::<AtomicU8>())
    }
}

/// Size in bytes above which an evicted block is freed instead of kept.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Evicted blocks; the next misses decode into their memory. The allocator is slow at pieces of
/// several KiB that are allocated and freed on different threads.
static SPARES: Pool<Spare> = Pool::new();

/// Block to decode into. It has the only reference.
pub(super) struct Spare(Arc<DecodedBlock>);

impl Spare {
    pub(super) fn block(&mut self) -> &mut DecodedBlock {
        Arc::get_mut(&mut self.0).expect("its only reference is here")
    }

    pub(super) fn into_shared(self) -> Arc<DecodedBlock> {
        self.0
    }
}

/// Returns a block with unspecified content.
pub(super) fn take_spare() -> Spare {
    SPARES
        .take()
        .unwrap_or_else(|| Spare(Arc::new(DecodedBlock::empty())))
}

/// Keeps the memory of a block that has no other reader left.
fn keep_spare(mut block: Arc<DecodedBlock>) {
    if Arc::get_mut(&mut block).is_some() && block.resident_bytes() <= SPARE_BYTES_MAX {
        SPARES.keep(Spare(block));
    }
}

impl FrameOwner for Frames {
    fn try_evict(&self, frame: u32) -> Eviction {
        let Some(count) = self.uses.get(frame as usize) else {
            return Eviction::Evicted(None);
        };
        let uses = count.load(Ordering::Relaxed);
        if uses > 0 {
            count.store(uses - 1, Ordering::Relaxed);
            return Eviction::Kept;
        }
        Eviction::Evicted(self.take(frame as usize))
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let bytes = self
            .blocks
            .remove_all()
            .map(|block| block.resident_bytes() as u64);
        self.cache.release(bytes.sum());
    }
}

/// Cached blocks of a dropped table, freed by the drop of this. The last user of a table may be a
/// client in the middle of a read, and freeing thousands of blocks takes tens of milliseconds.
pub(super) struct CachedBlocks(Arc<Frames>);

impl CachedBlocks {
    pub(super) fn of(frames: &Arc<Frames>) -> Box<CachedBlocks> {
        Box::new(CachedBlocks(Arc::clone(frames)))
    }
}

impl Drop for CachedBlocks {
    fn drop(&mut self) {
        // An eviction may hold the frames at this moment; it then drops empty ones.
        self.0.free_blocks();
    }
}

#[cfg(all(test, loom))]
mod model;
