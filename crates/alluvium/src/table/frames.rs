//! Cached blocks of one table: a slot for each block, filled by cache misses and emptied by
//! evictions.
//!
//! Readers load a slot without a lock. A miss decodes its block into a frame of the cache and
//! installs it with a compare-and-swap, so of two threads that read the same block one wins. A
//! dropped table returns its frames.

use crate::cache::{Cache, FrameOwner};
use crate::table::block::{BlockFrame, Shape};
use alluvium_mem::epoch::{Eviction, Held, Limbo, Slots};
use alluvium_mem::frames::{FrameAddress, Place, Space};
use std::sync::Arc;

/// Frames of one table. The last user of a table may be a client in the middle of a read, and
/// returning thousands of blocks takes milliseconds, so the table hands its frames over.
pub(super) struct Frames {
    cache: Arc<Cache>,
    slots: Arc<TableSlots>,
    /// Number of the slots in the cache.
    owner: u32,
}

/// Slots that the cache may empty. Only evictions share it with a table.
struct TableSlots(Slots<Shape>);

impl Frames {
    /// Creates empty frames for `blocks` blocks.
    pub(super) fn new(cache: Arc<Cache>, blocks: usize) -> Arc<Frames> {
        let slots = Arc::new(TableSlots(Slots::new(cache.readers(), blocks)));
        let owner = cache.register(Arc::clone(&slots) as Arc<dyn FrameOwner>);
        Arc::new(Frames {
            cache,
            slots,
            owner,
        })
    }

    /// Returns the cache that the frames belong to.
    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the block if it is cached. It must not be held during I/O or a wait.
    #[inline]
    pub(super) fn hold(&self, block: usize) -> Option<Held<'_, Shape>> {
        let held = self.slots.0.hold(block);
        if held.is_some() {
            self.cache.count_hit();
        } else {
            self.cache.count_miss();
        }
        held
    }

    /// Returns true if the block is cached. Counts as no use of it, and neither as a hit nor as a
    /// miss.
    pub(super) fn has(&self, block: usize) -> bool {
        self.slots.0.is_full(block)
    }

    /// Returns memory of at least `bytes` to decode a block into: a frame of the cache, or memory
    /// of its own if the cache has none.
    pub(super) fn space(&self, block: usize, bytes: usize) -> Space {
        let space = self.cache.claim(self.owner, block as u32, bytes);
        space.unwrap_or_else(|| Space::alone(bytes))
    }

    /// Offers a block that was just read into memory of [`Frames::space`]. Returns the block to
    /// use, which may be that of another thread.
    pub(super) fn install(&self, block: usize, read: BlockFrame) -> BlockFrame {
        if read.place().is_none() {
            return read;
        }
        if self.slots.0.fill(block, read.clone()).is_ok() {
            return read;
        }
        // Another thread was first; its block may be evicted by now. The own frame is in no slot,
        // so it is free when its last reference is dropped.
        let other = self.slots.0.hold(block);
        other.map_or(read, Held::keep)
    }

    /// Returns the memory of the slots in bytes, without the blocks in them.
    pub(super) fn resident_bytes(&self) -> usize {
        self.slots.0.len() * size_of::<usize>()
    }
}

impl FrameOwner for TableSlots {
    fn evict(
        &self,
        slot: u32,
        frame: (FrameAddress, Place),
        used_too: bool,
        limbo: &mut Limbo,
    ) -> Eviction {
        let slot = slot as usize;
        // The frame may have been claimed for a dropped table whose number this one has now.
        if slot >= self.0.len() {
            return Eviction::Other;
        }
        self.0.evict(slot, frame, used_too, limbo)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.cache.unregister(self.owner);
        // The cache had the only other reference.
        if let Some(slots) = Arc::get_mut(&mut self.slots) {
            self.cache.give_back(slots.0.remove_all());
        }
    }
}

#[cfg(all(test, loom))]
mod model;
