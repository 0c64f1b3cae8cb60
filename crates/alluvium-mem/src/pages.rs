//! Memory straight from the system, in whole pages, for what is large and goes as a whole.
//!
//! A general allocator keeps most of what is freed for itself, glibc in a heap for each few threads. The memory of a
//! memtable is taken by whichever client leads a commit and freed by the flusher, so it would pile up in heaps where
//! nobody asks for it, beside what the engine believes to have: a third of a memory number of 128 MiB, measured. What is
//! freed here is the system's at once. A fresh page costs a fault, about as much as filling it with rows.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

/// Of the machines that we know; where pages are larger, the system rounds up once more.
const PAGE_BYTES: usize = 4096;

/// Zeroed memory that nobody else has. Given back when dropped.
pub(crate) struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory alone, and the system does not care which thread gives it back.
unsafe impl Send for Pages {}

impl Pages {
    /// At least `bytes`, which is not 0. Aborts like any allocation where there is no memory.
    pub(crate) fn new(bytes: usize) -> Pages {
        let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE_BYTES), PAGE_BYTES)
            .expect("pieces are far smaller than the address space");
        assert!(layout.size() > 0);
        match map(layout) {
            Some(start) => Pages { start, layout },
            None => handle_alloc_error(layout),
        }
    }

    /// Where it begins: at a page.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How large it is.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped with this layout in `new`, and only here given back.
        unsafe { unmap(self.start, self.layout) }
    }
}

#[cfg(not(miri))]
fn map(layout: Layout) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place that the system chooses replaces nothing.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            layout.size(),
            access,
            MapFlags::PRIVATE,
        )
    };
    NonNull::new(start.ok()?.cast())
}

/// # Safety
///
/// `start` is from `map` with the same layout, and nothing refers to the memory any more.
#[cfg(not(miri))]
unsafe fn unmap(start: NonNull<u8>, layout: Layout) {
    // SAFETY: the contract. It cannot fail for a whole mapping; if it did, the memory would be lost and nothing else.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), layout.size()) };
}

/// Miri knows no system calls.
#[cfg(miri)]
fn map(layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
}

/// # Safety
///
/// `start` is from `map` with the same layout, and nothing refers to the memory any more.
#[cfg(miri)]
unsafe fn unmap(start: NonNull<u8>, layout: Layout) {
    // SAFETY: the contract.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeroed_writable_and_rounded_up() {
        let pages = Pages::new(5_000);
        assert_eq!(pages.bytes(), 2 * PAGE_BYTES);
        assert!(pages.start().addr().get().is_multiple_of(PAGE_BYTES));
        // SAFETY: this much is mapped, and nobody else has it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(pages.start().as_ptr(), 8_192) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
    }
}
