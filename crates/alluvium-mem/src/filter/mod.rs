//! Bloom filters that put all probes of a hash into one cache line of 512 bits.
//!
//! A lookup takes at most one cache miss, for a slightly higher rate of false positives than a
//! filter that spreads its probes. [`FilterBuilder`] and [`FilterReader`] write and read the filter
//! of a table file; [`DynamicFilter`] is the growing one of a memtable. All of them work on 64-bit
//! hashes computed by the caller. A hash must be well mixed, and adding and looking up must use the
//! same hash function.
//!
//! Layout on disk, all numbers little-endian (never changes):
//!
//! ```text
//! lines    line_count x 64 bytes   bit b of a line is bit b % 8 of its byte b / 8
//! trailer  u32 line_count | u8 probes | 3 bytes of zero
//! ```
//!
//! The line of a hash is `((hash >> 32) * line_count) >> 32`. Its bits within the line are the top
//! nine bits of a state that starts as the hash with its halves exchanged and is multiplied by
//! `PROBE_MULTIPLIER` between probes.

mod dynamic;
mod table;

pub use dynamic::DynamicFilter;
pub use table::{FilterBuilder, FilterReader};

/// Stored implicitly in every filter on disk; never changes.
const PROBE_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

const LINE_BYTES: usize = 64;
const LINE_BITS: usize = LINE_BYTES * 8;
const LINE_WORDS: usize = LINE_BYTES / 8;

/// More probes than this never lower the rate of false positives within one line.
const PROBES_MAX: u32 = 12;

/// Returns the best number of probes for this many bits per key.
///
/// For a filter that spreads its probes, 0.69 probes per bit are best. Lines are unevenly filled,
/// and fewer probes are better for the fullest ones, so this returns 0.6 per bit.
fn probes_for(bits_per_key: u32) -> u32 {
    (bits_per_key.saturating_mul(6) / 10).clamp(1, PROBES_MAX)
}

/// Returns the number of lines that hold this many keys, at least one.
fn lines_for(keys: usize, bits_per_key: u32) -> u32 {
    let bits = (keys as u64).saturating_mul(u64::from(bits_per_key.max(1)));
    u32::try_from(bits.div_ceil(LINE_BITS as u64))
        .unwrap_or(u32::MAX)
        .max(1)
}

fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// Returns, for each probe of this hash, the word of the line and the bit in it.
fn bits_of(hash: u64, probes: u32) -> impl Iterator<Item = (usize, u64)> {
    let mut state = hash.rotate_left(32);
    (0..probes).map(move |_| {
        let bit = (state >> 55) as usize;
        state = state.wrapping_mul(PROBE_MULTIPLIER);
        (bit / 64, 1 << (bit % 64))
    })
}
