//! Zeroed memory with one owner: small pieces from the allocator, large ones straight from the
//! operating system (see [`crate::pages`]).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::pages::{HUGE_PAGE_BYTES, PAGE_BYTES, Pages, huge_bytes};

/// Alignment of every chunk, a cache line. So an aligned offset within a chunk is an aligned
/// address.
pub(crate) const CHUNK_ALIGN: usize = 64;

/// Smallest chunk that consists of pages of the operating system.
pub(crate) const PAGES_BYTES_MIN: usize = 64 << 10;

/// Zeroed memory that is freed as a whole.
pub(crate) enum Chunk {
    Pages(Pages),
    Small(Small),
}

impl Chunk {
    /// Returns the size of a chunk with huge pages for at least `bytes`.
    pub(crate) fn bytes_with_huge_pages(bytes: usize) -> usize {
        match bytes {
            0..PAGES_BYTES_MIN => bytes,
            PAGES_BYTES_MIN..HUGE_PAGE_BYTES => bytes.next_multiple_of(PAGE_BYTES),
            _ => huge_bytes(bytes),
        }
    }

    /// Allocates at least `bytes`, which is not 0.
    pub(crate) fn new(bytes: usize) -> Chunk {
        if bytes < PAGES_BYTES_MIN {
            Chunk::Small(Small::new(bytes))
        } else {
            Chunk::Pages(Pages::new(bytes))
        }
    }

    /// Does the same as [`Chunk::new`], with huge pages where they fit.
    pub(crate) fn with_huge_pages(bytes: usize) -> Chunk {
        if bytes < HUGE_PAGE_BYTES {
            Chunk::new(bytes)
        } else {
            Chunk::Pages(Pages::huge(bytes))
        }
    }

    /// Returns the start address, aligned to [`CHUNK_ALIGN`].
    pub(crate) fn start(&self) -> NonNull<u8> {
        match self {
            Chunk::Pages(pages) => pages.start(),
            Chunk::Small(small) => small.start,
        }
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Chunk::Pages(pages) => pages.bytes(),
            Chunk::Small(small) => small.layout.size(),
        }
    }
}

/// Memory from the allocator, aligned to a cache line. Freed when dropped.
pub(crate) struct Small {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is the only owner of its memory, and any thread may free it.
unsafe impl Send for Small {}

impl Small {
    /// Allocates `bytes`, which is not 0. Aborts if there is no memory, as any allocation does.
    fn new(bytes: usize) -> Small {
        assert!(bytes > 0);
        let layout = Layout::from_size_align(bytes, CHUNK_ALIGN)
            .expect("less than pages are far smaller than the address space");
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Small { start, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, and freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
