//! Buffers that decoded blocks have left, kept for blocks to come that they fit.
//!
//! A miss decodes into the memory of a block that was given up, but blocks differ in length, and half of them are longer
//! than the one before. An allocator serves such a pair badly: the shorter piece is a hole that no longer block fills, its
//! pages have to be given back to the system so that it is not missed (`alluvium_mem::pages::free`), which interrupts the
//! other cores, and the longer one faults fresh pages in. Here the two are exchanged with a few others of their kind, of
//! which one nearly always fits.

use alluvium_mem::pages;
use parking_lot::Mutex;
use std::mem;

/// Bytes of idle buffers that are kept at most: those of some fifty usual blocks.
const IDLE_BYTES_MAX: usize = 512 << 10;
/// Idle buffers at most, however short they are: each look goes over all of them.
const IDLE_MAX: usize = 128;

/// A longer buffer, which few blocks need, is as long as its block.
const ROUNDED_MAX: usize = 64 << 10;

/// Elements that a buffer may have unused beside an eighth of what is asked for.
const EXCESS_ALLOWED: usize = 16;

/// Buffers of one kind. The mutex is a leaf in the lock order, held for a look at each of them; nothing is freed under
/// it. It is no simulation's: other simulations of the process have the buffers too, and nothing depends on them.
pub(in crate::table) struct Buffers<T>(Mutex<Idle<T>>);

struct Idle<T> {
    /// Oldest first.
    buffers: Vec<Vec<T>>,
    bytes: usize,
}

/// For rows.
pub(in crate::table) static BYTES: Buffers<u8> = Buffers::new();
/// For the heads of keys, and for seqnos.
pub(in crate::table) static WORDS: Buffers<u64> = Buffers::new();

impl<T: Copy> Buffers<T> {
    const fn new() -> Buffers<T> {
        Buffers(Mutex::new(Idle {
            buffers: Vec::new(),
            bytes: 0,
        }))
    }

    /// Makes `buffer` one that has room for `len` elements and not for many more. What is in it is of no meaning.
    pub(in crate::table) fn fit(&self, buffer: &mut Vec<T>, len: usize) {
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
    /// The smallest one that fits.
    fn take(&mut self, len: usize) -> Option<Vec<T>> {
        let fitting = self.buffers.iter().enumerate();
        let fitting = fitting.filter(|(_, buffer)| fits(buffer, len));
        let (place, _) = fitting.min_by_key(|(_, buffer)| buffer.capacity())?;
        let found = self.buffers.remove(place);
        self.bytes -= bytes_of(&found);
        Some(found)
    }

    /// Keeps a buffer. Returns those that have to go for it, which nobody has asked for in the longest time.
    fn keep(&mut self, buffer: Vec<T>) -> Vec<Vec<T>> {
        if buffer.capacity() == 0 {
            return Vec::new();
        }
        self.bytes += bytes_of(&buffer);
        self.buffers.push(buffer);
        let mut going = 0;
        // The newest one goes as well where it alone is too large.
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

/// Usual lengths are rounded up to one of sixteen for each power of two, so that a buffer fits others than its first
/// block, by less than a sixteenth.
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
    fn of_those_that_fit_the_smallest_is_taken() {
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
    fn the_oldest_go_and_what_is_too_large_is_not_kept() {
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
