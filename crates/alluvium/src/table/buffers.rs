//! Idle buffers of evicted blocks, kept for later blocks of a similar length.
//!
//! A cache miss decodes into the memory of an evicted block, but blocks differ in length, and half
//! of them are longer than the one before. An allocator serves such a pair badly. The shorter piece
//! becomes a hole too small for any longer block, and its pages have to be returned to the system
//! (`alluvium_mem::pages::free`), which interrupts the other cores. The longer piece faults fresh
//! pages in. Here the two are exchanged within a small pool of buffers, in which one nearly always
//! fits.

use alluvium_mem::pages;
use parking_lot::Mutex;
use std::mem;

/// Limit on the bytes of idle buffers, enough for about fifty usual blocks.
const IDLE_BYTES_MAX: usize = 512 << 10;
/// Limit on the number of idle buffers of any length, because each exchange scans all of them.
const IDLE_MAX: usize = 128;

/// Largest length, in elements, that is rounded up. The few longer buffers are as long as their
/// block.
const ROUNDED_MAX: usize = 64 << 10;

/// Unused elements that a fitting buffer may have, in addition to an eighth of the requested
/// length.
const EXCESS_ALLOWED: usize = 16;

/// Pool of idle buffers of one element type. The mutex is a leaf in the lock order, held while the
/// pool is scanned; no buffer is freed under it. The pool is not part of a simulation: all
/// simulations of the process share it, and no result depends on it.
pub(super) struct Buffers<T>(Mutex<Idle<T>>);

struct Idle<T> {
    /// Oldest first.
    buffers: Vec<Vec<T>>,
    bytes: usize,
}

/// Pool for the bytes of rows.
pub(super) static BYTES: Buffers<u8> = Buffers::new();
/// Pool for heads of keys.
pub(super) static HEADS: Buffers<u64> = Buffers::new();
/// Pool for offsets of suffixes and values.
pub(super) static OFFSETS: Buffers<u32> = Buffers::new();

impl<T: Copy> Buffers<T> {
    const fn new() -> Buffers<T> {
        Buffers(Mutex::new(Idle {
            buffers: Vec::new(),
            bytes: 0,
        }))
    }

    /// Ensures that `buffer` has room for `len` elements and not many more. Its content becomes
    /// unspecified.
    pub(super) fn fit(&self, buffer: &mut Vec<T>, len: usize) {
        if fits(buffer, len) {
            return;
        }
        let old = mem::take(buffer);
        let (found, gone) = {
            let mut idle = self.0.lock();
            (idle.take(len), idle.keep(old))
        };
        *buffer = found.unwrap_or_else(|| Vec::with_capacity(rounded(len)));
        gone.into_iter().for_each(pages::free);
    }
}

impl<T: Copy> Idle<T> {
    /// Removes and returns the smallest buffer that fits.
    fn take(&mut self, len: usize) -> Option<Vec<T>> {
        let fitting = self.buffers.iter().enumerate();
        let fitting = fitting.filter(|(_, buffer)| fits(buffer, len));
        let (place, _) = fitting.min_by_key(|(_, buffer)| buffer.capacity())?;
        let found = self.buffers.remove(place);
        self.bytes -= bytes_of(&found);
        Some(found)
    }

    /// Keeps a buffer. Returns the buffers evicted to make room, the longest unused first.
    fn keep(&mut self, buffer: Vec<T>) -> Vec<Vec<T>> {
        if buffer.capacity() == 0 {
            return Vec::new();
        }
        self.bytes += bytes_of(&buffer);
        self.buffers.push(buffer);
        let mut going = 0;
        // The newest buffer is evicted as well if it alone is too large.
        while self.bytes > IDLE_BYTES_MAX || self.buffers.len() - going > IDLE_MAX {
            self.bytes -= bytes_of(&self.buffers[going]);
            going += 1;
        }
        self.buffers.drain(..going).collect()
    }
}

fn fits<T>(buffer: &Vec<T>, len: usize) -> bool {
    (len..=len + len / 8 + EXCESS_ALLOWED).contains(&buffer.capacity())
}

/// Rounds a usual length up to one of sixteen steps for each power of two, so that a buffer fits
/// blocks other than its first one. The result is less than a sixteenth larger than `len`.
fn rounded(len: usize) -> usize {
    match len {
        0..=ROUNDED_MAX => len.next_multiple_of((len.next_power_of_two() / 32).max(1)),
        _ => len,
    }
}

fn bytes_of<T>(buffer: &Vec<T>) -> usize {
    buffer.capacity() * size_of::<T>()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_fits_stays_and_another_is_exchanged() {
        let buffers = Buffers::<u8>::new();
        let mut buffer = Vec::new();
        buffers.fit(&mut buffer, 8_300);
        let (place, room) = (buffer.as_ptr(), buffer.capacity());
        assert!((8_300..=8_704).contains(&room), "{room}");
        buffers.fit(&mut buffer, room);
        assert_eq!(buffer.as_ptr(), place);
        buffers.fit(&mut buffer, room + 1);
        assert_ne!(buffer.as_ptr(), place);
        let mut other = Vec::new();
        buffers.fit(&mut other, 8_200);
        assert_eq!(other.as_ptr(), place, "what the first has left");
        buffers.fit(&mut other, 1_000);
        assert!(other.capacity() < 1_200, "nor is one far too large");
        buffers.fit(&mut other, 1_000_001);
        assert_eq!(other.capacity(), 1_000_001);
    }

    #[test]
    fn the_smallest_fitting_buffer_is_reused() {
        let mut idle = Idle {
            buffers: Vec::new(),
            bytes: 0,
        };
        for room in [1_100, 1_030, 1_200, 900] {
            assert!(idle.keep(Vec::<u64>::with_capacity(room)).is_empty());
        }
        assert_eq!(idle.take(1_000).map(|found| found.capacity()), Some(1_030));
        assert_eq!(idle.take(2_000), None);
        assert_eq!(idle.bytes, (1_100 + 1_200 + 900) * 8);
    }

    #[test]
    fn the_oldest_buffers_are_evicted_and_oversize_ones_are_not_kept() {
        let mut idle = Idle {
            buffers: Vec::new(),
            bytes: 0,
        };
        for room in [300 << 10, 100 << 10, 100 << 10] {
            assert!(idle.keep(Vec::<u8>::with_capacity(room)).is_empty());
        }
        let gone = idle.keep(Vec::with_capacity(200 << 10));
        assert_eq!(gone.len(), 1);
        assert_eq!(idle.bytes, 400 << 10);
        let gone = idle.keep(Vec::with_capacity(IDLE_BYTES_MAX + 1));
        assert_eq!(gone.len(), 4);
        assert_eq!((idle.bytes, idle.buffers.len()), (0, 0));
    }
}
