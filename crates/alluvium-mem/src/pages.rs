//! Memory straight from the system, in whole pages, for what is large and goes as a whole.
//!
//! A general allocator keeps most of what is freed for itself, glibc in a heap for each few threads. The memory of a
//! memtable is taken by whichever client leads a commit and freed by the flusher, so it would pile up in heaps where
//! nobody asks for it, beside what the engine believes to have: a third of a memory budget of 128 MiB, measured. What is
//! freed here is the system's at once. A fresh page costs a fault, about as much as filling it with rows.
//!
//! And [`free`] for what comes from the allocator, and is large enough that its pages are missed.

use std::alloc::{Layout, handle_alloc_error};
use std::mem::{self, MaybeUninit};
use std::ops::{Deref, DerefMut};
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

/// A vector that is freed as [`free`] does.
#[derive(Debug)]
pub struct Buffer<T: Copy>(Vec<T>);

impl<T: Copy> Default for Buffer<T> {
    fn default() -> Buffer<T> {
        Buffer(Vec::new())
    }
}

impl<T: Copy> From<Vec<T>> for Buffer<T> {
    fn from(vector: Vec<T>) -> Buffer<T> {
        Buffer(vector)
    }
}

impl<T: Copy> Deref for Buffer<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Copy> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T: Copy> Drop for Buffer<T> {
    fn drop(&mut self) {
        free(mem::take(&mut self.0));
    }
}

/// Frees a vector, and gives the whole pages under it back to the system before. Where the system refuses, it is freed.
///
/// An allocator keeps what is freed for the next who asks for as much. That is a loss where much is freed and nobody
/// comes: the hole then costs its address, not its memory, but for the pages that it shares with its neighbours.
pub fn free<T: Copy>(mut vector: Vec<T>) {
    vector.clear();
    release(vector.spare_capacity_mut());
}

#[cfg(not(miri))]
fn release<T>(room: &mut [MaybeUninit<T>]) {
    let page = rustix::param::page_size();
    let (first, bytes) = (room.as_mut_ptr().cast::<u8>(), size_of_val(room));
    let start = first.align_offset(page);
    let whole = bytes.saturating_sub(start) / page * page;
    if whole > 0 {
        let advice = rustix::mm::Advice::LinuxDontNeed;
        // SAFETY: the pages lie within room that nobody else refers to, and that need not hold anything.
        let _ = unsafe { rustix::mm::madvise(first.add(start).cast(), whole, advice) };
    }
}

/// Miri knows no system calls.
#[cfg(miri)]
fn release<T>(room: &mut [MaybeUninit<T>]) {
    room.fill_with(MaybeUninit::zeroed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_pages_are_empty_and_their_neighbours_untouched() {
        // Two pages of the largest size that systems use are in the middle.
        let (edge, middle) = (500, 2 << 16);
        let mut bytes = Vec::with_capacity(edge + middle + edge);
        bytes.resize(bytes.capacity(), 7u8);
        bytes.truncate(edge);
        release(&mut bytes.spare_capacity_mut()[..middle]);
        // SAFETY: written above, and zeros or what was there before since then.
        unsafe { bytes.set_len(edge + middle + edge) };
        assert!(bytes[..edge].iter().all(|byte| *byte == 7));
        assert!(bytes[edge + middle..].iter().all(|byte| *byte == 7));
        let zeros = bytes.iter().filter(|byte| **byte == 0).count();
        assert!(zeros >= middle / 2, "{zeros}");
        bytes.fill(9);
        assert!(bytes.iter().all(|byte| *byte == 9));
        free(bytes);
        free(vec![1u64; 3]);
        free(Vec::<u8>::new());
    }

    #[test]
    fn a_buffer_is_a_vector() {
        let mut buffer = Buffer::default();
        buffer.extend_from_slice(&[7u64; 100_000]);
        assert_eq!((buffer.len(), buffer[99_999]), (100_000, 7));
    }

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
