//! Bump allocation for one memtable: hands out memory front to back and frees it all at once.
//!
//! Invariant: a pointer that was handed out stays valid, at the same address, until the arena is
//! dropped. Nothing is dropped in place, so only types without drop glue may live here.
//!
//! An arena has no memory until the first request. Each new chunk roughly doubles the size of the
//! arena, from 2 KiB up to chunks of 1 MiB, so thousands of memtables with a few rows each take
//! little memory. Small chunks come from the allocator. Large ones are pages from the operating
//! system and return to it as soon as they are freed (see [`crate::pages`]).

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::chunk::{CHUNK_ALIGN, Chunk, PAGES_BYTES_MIN};

/// Size of the first chunk. A leaf and a few rows fit.
const CHUNK_BYTES_MIN: usize = 2 << 10;

/// Maximum size of a chunk that requests share: few allocations, and little space left unused in
/// the last one. A chunk for one large request may be larger.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Memory of one memtable.
pub(crate) struct Arena {
    chunks: Vec<Chunk>,
    /// Start of the chunk being filled. A request above a quarter of the next chunk, or of 64 KiB
    /// if that is more, gets a chunk of its own.
    current: NonNull<u8>,
    current_bytes: usize,
    used_bytes: usize,
    next_chunk_bytes: usize,
    bytes: usize,
}

// SAFETY: the arena owns its chunks alone; the pointers in it refer to nothing that is tied to a
// thread.
unsafe impl Send for Arena {}

impl Arena {
    pub(crate) fn new() -> Arena {
        Arena {
            chunks: Vec::new(),
            current: NonNull::dangling(),
            current_bytes: 0,
            used_bytes: 0,
            next_chunk_bytes: CHUNK_BYTES_MIN,
            bytes: 0,
        }
    }

    /// Returns the bytes of all chunks, used or not.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns uninitialized memory of this layout, valid until the arena is dropped.
    ///
    /// # Panics
    ///
    /// If the alignment exceeds a cache line.
    pub(crate) fn alloc(&mut self, layout: Layout) -> NonNull<u8> {
        assert!(layout.align() <= CHUNK_ALIGN);
        if let Some(found) = self.bump(layout) {
            return found;
        }
        if layout.size() > self.next_chunk_bytes.max(PAGES_BYTES_MIN) / 4 {
            return self.add_chunk(layout.size());
        }
        let next_chunk_bytes = self.next_chunk_bytes;
        self.current_bytes = next_chunk_bytes.max(layout.size().next_power_of_two());
        self.current = self.add_chunk(self.current_bytes);
        self.used_bytes = 0;
        self.next_chunk_bytes = match self.bytes {
            bytes if bytes < PAGES_BYTES_MIN => bytes.next_power_of_two(),
            _ => (2 * next_chunk_bytes).clamp(2 * PAGES_BYTES_MIN, CHUNK_BYTES_MAX),
        };
        self.bump(layout)
            .expect("a fresh chunk holds what was asked for")
    }

    fn bump(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let start = self.used_bytes.next_multiple_of(layout.align());
        if start > self.current_bytes || layout.size() > self.current_bytes - start {
            return None;
        }
        self.used_bytes = start + layout.size();
        // SAFETY: `start + size` was just checked to lie within the current chunk.
        Some(unsafe { self.current.add(start) })
    }

    fn add_chunk(&mut self, bytes: usize) -> NonNull<u8> {
        let chunk = Chunk::new(bytes.max(1));
        let start = chunk.start();
        self.bytes += chunk.bytes();
        self.chunks.push(chunk);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn allocations_are_aligned_and_do_not_overlap() {
        let mut arena = Arena::new();
        let mut taken = Vec::new();
        for round in 0..if cfg!(miri) { 60 } else { 5_000 } {
            let layout = layout(round % 97 + 1, [1, 8, 64][round % 3]);
            let start = arena.alloc(layout);
            assert!(start.addr().get().is_multiple_of(layout.align()));
            // SAFETY: this many bytes were just allocated.
            unsafe { start.write_bytes(round as u8, layout.size()) };
            taken.push((start, layout.size(), round as u8));
        }
        for (start, size, fill) in taken {
            // SAFETY: written above, and the arena is still alive.
            let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), size) };
            assert!(bytes.iter().all(|byte| *byte == fill));
        }
    }

    #[test]
    fn chunks_double_the_arena_up_to_their_limit() {
        let mut arena = Arena::new();
        assert_eq!(arena.bytes(), 0);
        let mut sizes = Vec::new();
        while arena.bytes() < 6 * CHUNK_BYTES_MAX {
            let before = arena.bytes();
            arena.alloc(layout(1024, 8));
            if arena.bytes() != before {
                sizes.push((arena.bytes() - before) >> 10);
            }
        }
        let expected = [2, 2, 4, 8, 16, 32, 128, 256, 512, 1024, 1024];
        assert_eq!(sizes[..expected.len()], expected);
    }

    #[test]
    fn requests_above_the_size_of_the_next_chunk_make_the_chunks_grow() {
        let mut arena = Arena::new();
        for count in 1..=64 {
            arena.alloc(layout(3_000, 8));
            assert!(
                arena.bytes() <= 3 * count * 4096,
                "{count}: {}",
                arena.bytes()
            );
        }
        assert!(arena.chunks.len() < 12, "{}", arena.chunks.len());
    }

    #[test]
    fn a_large_request_has_its_own_chunk_and_leaves_the_current_one_in_use() {
        let mut arena = Arena::new();
        arena.alloc(layout(100, 8));
        arena.alloc(layout(3 << 20, 8));
        // Smaller than a chunk of pages, and too large for the next chunks.
        arena.alloc(layout(20 << 10, 64));
        assert_eq!(arena.bytes(), CHUNK_BYTES_MIN + (3 << 20) + (20 << 10));
        arena.alloc(layout(100, 8));
        assert_eq!(arena.bytes(), CHUNK_BYTES_MIN + (3 << 20) + (20 << 10));
    }
}
