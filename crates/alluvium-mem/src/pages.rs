//! Memory straight from the operating system, in whole pages, for large data that is freed as a
//! whole.
//!
//! A general allocator keeps most freed memory for itself; glibc keeps it in several heaps, each
//! for a few threads. The memory of a memtable is allocated by the leader of a commit group and
//! freed by the flush thread. It would pile up in heaps that allocate nothing from it, uncounted by
//! the engine: a third of a memory budget of 128 MiB, measured. Memory freed here returns to the
//! operating system at once. A fresh page costs a fault, about as much time as filling it with
//! rows.
//!
//! [`Buffer`] does the same for the whole pages of a vector from the general allocator.

use std::alloc::{Layout, handle_alloc_error};
use std::mem::{self, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Page size of the machines we know; where pages are larger, the system rounds up again.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Largest page size of the systems we know. An aligned mapping is cut at whole pages.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// Size and alignment of the huge pages of the machines we know.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Returns the size of [`Pages::huge`].
pub(crate) fn huge_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES_MAX)
}

/// Zeroed memory with a single owner. Unmapped when dropped.
pub(crate) struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is the only owner of its memory, and any thread may unmap it.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps at least `bytes`, which is not 0. Aborts if there is no memory, as any allocation does.
    pub(crate) fn new(bytes: usize) -> Pages {
        let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE_BYTES), PAGE_BYTES)
            .expect("pieces are far smaller than the address space");
        Pages::mapped(layout)
    }

    /// Maps at least `bytes`, which is not 0, and lets the system use huge pages for whatever of it
    /// fills them. Aborts if there is no memory.
    pub(crate) fn huge(bytes: usize) -> Pages {
        let layout = Layout::from_size_align(huge_bytes(bytes), HUGE_PAGE_BYTES)
            .expect("pieces are far smaller than the address space");
        let pages = Pages::mapped(layout);
        prefer_huge_pages(&pages);
        pages
    }

    fn mapped(layout: Layout) -> Pages {
        assert!(layout.size() > 0);
        match map(layout) {
            Some(start) => Pages { start, layout },
            None => handle_alloc_error(layout),
        }
    }

    /// Returns the start address, aligned to a page.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the size in bytes, a multiple of the page size.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped with this layout in `new`, and unmapped only here.
        unsafe { unmap(self.start, self.layout) }
    }
}

#[cfg(not(miri))]
fn map(layout: Layout) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    // The system aligns to a page. Whatever lies outside of the aligned piece is returned.
    let excess = layout.align() - PAGE_BYTES;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let (size, none) = (layout.size() + excess, std::ptr::null_mut());
    // SAFETY: a new mapping at an address chosen by the system replaces nothing.
    let mapped = unsafe { mmap_anonymous(none, size, access, MapFlags::PRIVATE) };
    let mapped = NonNull::new(mapped.ok()?.cast::<u8>())?;
    let before = mapped.align_offset(layout.align()).min(excess);
    // SAFETY: both pieces are whole pages of the mapping, and nothing refers to them. If it fails,
    // they stay mapped without ever taking memory.
    unsafe {
        let start = mapped.add(before);
        for (piece, bytes) in [
            (mapped, before),
            (start.add(layout.size()), excess - before),
        ] {
            if bytes > 0 {
                let _ = munmap(piece.as_ptr().cast(), bytes);
            }
        }
        Some(start)
    }
}

/// A system without huge pages refuses, which only costs time.
#[cfg(all(target_os = "linux", not(miri)))]
fn prefer_huge_pages(pages: &Pages) {
    let advice = rustix::mm::Advice::LinuxHugepage;
    // SAFETY: the advice does not change the content of the mapping, which is alive.
    let _ = unsafe { rustix::mm::madvise(pages.start.as_ptr().cast(), pages.bytes(), advice) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn prefer_huge_pages(_pages: &Pages) {}

/// # Safety
///
/// `start` is from `map` with the same layout, and nothing refers to the memory anymore.
#[cfg(not(miri))]
unsafe fn unmap(start: NonNull<u8>, layout: Layout) {
    // SAFETY: the contract. It cannot fail for a whole mapping; if it did, the memory would leak
    // and nothing else.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), layout.size()) };
}

/// Miri supports no system calls.
#[cfg(miri)]
fn map(layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
}

/// # Safety
///
/// `start` is from `map` with the same layout, and nothing refers to the memory anymore.
#[cfg(miri)]
unsafe fn unmap(start: NonNull<u8>, layout: Layout) {
    // SAFETY: the contract.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) }
}

/// Vector that returns its whole pages to the operating system when dropped.
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

/// Frees a vector, after returning its whole pages to the operating system. If the system refuses,
/// the vector is still freed.
///
/// An allocator keeps freed memory for the next request of that size; without such a request the
/// memory is lost. After this call the freed block takes address space but no memory, except in the
/// pages that it shares with its neighbors.
fn free<T: Copy>(mut vector: Vec<T>) {
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
        // SAFETY: the pages lie within spare capacity that is borrowed exclusively and need not
        // hold anything.
        let _ = unsafe { rustix::mm::madvise(first.add(start).cast(), whole, advice) };
    }
}

/// Miri supports no system calls.
#[cfg(miri)]
fn release<T>(room: &mut [MaybeUninit<T>]) {
    room.fill_with(MaybeUninit::zeroed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_pages_are_empty_and_their_neighbors_untouched() {
        // Two pages of the largest size in use are in the middle.
        let (edge, middle) = (500, 2 << 16);
        let mut bytes = Vec::with_capacity(edge + middle + edge);
        bytes.resize(bytes.capacity(), 7u8);
        bytes.truncate(edge);
        release(&mut bytes.spare_capacity_mut()[..middle]);
        // SAFETY: all bytes were written above; since then they are unchanged or zero.
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
        // SAFETY: this much is mapped, and there is no other reference to it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(pages.start().as_ptr(), 8_192) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        let huge = Pages::huge(3 << 20);
        assert_eq!(huge.bytes(), 3 << 20);
        assert!(huge.start().addr().get().is_multiple_of(HUGE_PAGE_BYTES));
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts_mut(huge.start().as_ptr(), 3 << 20) };
        let some = bytes.iter_mut().step_by(PAGE_BYTES);
        some.for_each(|byte| assert_eq!(mem::replace(byte, 7), 0));
    }
}
