//! Cached blocks of one table: a slot for each block, filled by cache misses and emptied by
//! evictions.
//!
//! Readers load a slot without a lock. A miss decodes its block into a frame of the cache and
//! installs it with a compare-and-swap, so of two threads that read the same block one wins. A
//! dropped table returns its frames.

use crate::cache::{Cache, FrameOwner};
use crate::table::block::{BlockFrame, Shape};
use alluvium_mem::epoch::{Held, Slots};
use alluvium_mem::frames::Space;
use std::sync::Arc;

/// Cached blocks of one table. The last user of a table may be a client in the middle of a read,
/// and returning thousands of blocks takes milliseconds, so an obsolete table hands this to a
/// background thread.
pub(super) struct Frames {
    cache: Arc<Cache>,
    /// Shared with evictions only.
    slots: Arc<Slots<Shape>>,
    /// Number of the slots in the cache.
    owner: u32,
}

impl Frames {
    /// Creates empty slots for `blocks` blocks.
    pub(super) fn new(cache: Arc<Cache>, blocks: usize) -> Frames {
        let slots = Arc::new(Slots::new(cache.readers(), blocks));
        let owner = cache.register(Arc::clone(&slots) as Arc<dyn FrameOwner>);
        Frames {
            cache,
            slots,
            owner,
        }
    }

    /// Returns the cache that the frames belong to.
    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the block if it is cached. It must not be held during I/O or a wait.
    #[inline]
    pub(super) fn hold(&self, block: usize) -> Option<Held<'_, Shape>> {
        let held = self.slots.hold(block);
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
        self.slots.is_full(block)
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
        if self.slots.fill(block, read.clone()).is_ok() {
            return read;
        }
        // Another thread was first; its block may be evicted by now. The own frame is in no slot,
        // so it is free when its last reference is dropped.
        let other = self.slots.hold(block);
        other.map_or(read, Held::keep)
    }

    /// Returns the memory of the slots in bytes, without the blocks in them.
    pub(super) fn resident_bytes(&self) -> usize {
        self.slots.len() * size_of::<usize>()
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.cache.unregister(self.owner);
        // The cache had the only other reference.
        if let Some(slots) = Arc::get_mut(&mut self.slots) {
            self.cache.give_back(slots.remove_all());
        }
    }
}

#[cfg(all(test, loom))]
mod model;
