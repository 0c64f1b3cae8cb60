//! Bloom filter of a table file: built once from all hashes, stored, read by many threads.
//!
//! The [parent module](super) describes the format. The filter has no checksum of its own; the
//! block that holds it has one.

use std::sync::Arc;

use crate::pages::Buffer;

use super::{LINE_BYTES, LINE_WORDS, PROBES_MAX, bits_of, line_of, lines_for, probes_for};

const TRAILER_BYTES: usize = 8;

/// Collects the hashes of a table and sizes the filter once their number is known.
///
/// ```
/// use alluvium_mem::filter::{FilterBuilder, FilterReader};
///
/// let mut builder = FilterBuilder::new(10);
/// builder.add_hash(0x1234_5678_9ABC_DEF0);
/// let filter = FilterReader::new(builder.finish()).expect("just built");
/// assert!(filter.may_contain_hash(0x1234_5678_9ABC_DEF0));
/// ```
#[derive(Debug)]
pub struct FilterBuilder {
    bits_per_key: u32,
    /// Full chunks, then the one being filled. One growing buffer would take twice the memory while
    /// it is copied.
    chunks: Vec<Buffer<u64>>,
    last: Option<u64>,
}

/// Hashes per chunk.
const CHUNK_HASHES: usize = 1 << 13;

impl FilterBuilder {
    /// Creates a builder that spends this many bits on each distinct hash (10 bits: about 1 % false
    /// positives).
    pub fn new(bits_per_key: u32) -> FilterBuilder {
        FilterBuilder {
            bits_per_key,
            chunks: Vec::new(),
            last: None,
        }
    }

    /// Adds a hash. Ignores a hash equal to the previous one, because consecutive keys share
    /// prefixes.
    pub fn add_hash(&mut self, hash: u64) {
        if self.last.replace(hash) == Some(hash) {
            return;
        }
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK_HASHES => chunk.push(hash),
            _ => {
                let mut chunk = Buffer::default();
                chunk.reserve_exact(CHUNK_HASHES);
                chunk.push(hash);
                self.chunks.push(chunk);
            }
        }
    }

    /// Returns the number of hashes counted so far.
    pub fn len(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1) * CHUNK_HASHES;
        full + self.chunks.last().map_or(0, |chunk| chunk.len())
    }

    /// Returns whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the memory of the collected hashes in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_HASHES * size_of::<u64>()
    }

    /// Returns the size in bytes of the result of calling [`finish`](Self::finish) now.
    pub fn encoded_bytes(&self) -> usize {
        lines_for(self.len(), self.bits_per_key) as usize * LINE_BYTES + TRAILER_BYTES
    }

    /// Returns the encoded filter.
    pub fn finish(self) -> Vec<u8> {
        let probes = probes_for(self.bits_per_key);
        let line_count = lines_for(self.len(), self.bits_per_key);
        let mut bytes = Vec::with_capacity(self.encoded_bytes());
        let mut lines = vec![Line::default(); line_count as usize];
        for chunk in self.chunks {
            for &hash in chunk.iter() {
                let line = &mut lines[line_of(hash, line_count as usize)];
                for (word, bit) in bits_of(hash, probes) {
                    line.0[word] |= bit;
                }
            }
        }
        for word in lines.iter().flat_map(|line| line.0) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&line_count.to_le_bytes());
        bytes.extend_from_slice(&[probes as u8, 0, 0, 0]);
        bytes
    }
}

/// Filter read back from a table. Clones share the bits.
#[derive(Debug, Clone)]
pub struct FilterReader {
    /// Copy of the stored bits, because the bytes of a file seldom start on a cache line.
    lines: Arc<[Line]>,
    probes: u32,
}

impl FilterReader {
    /// Decodes a filter; returns `None` if the bytes are not one. Never panics, whatever the bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Option<FilterReader> {
        let (body, trailer) = bytes.as_ref().split_last_chunk::<TRAILER_BYTES>()?;
        let [c0, c1, c2, c3, probes, 0, 0, 0] = *trailer else {
            return None;
        };
        let line_count = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
        let (chunks, rest) = body.as_chunks::<LINE_BYTES>();
        if chunks.len() != line_count || line_count == 0 || !rest.is_empty() {
            return None;
        }
        if probes == 0 || u32::from(probes) > PROBES_MAX {
            return None;
        }
        Some(FilterReader {
            lines: chunks.iter().map(Line::from_bytes).collect(),
            probes: u32::from(probes),
        })
    }

    /// Returns whether this hash may have been added: `false` is certain.
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        let line = &self.lines[line_of(hash, self.lines.len())];
        bits_of(hash, self.probes).all(|(word, bit)| line.0[word] & bit != 0)
    }

    /// Returns the memory of the bits in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u64; LINE_WORDS]);

impl Line {
    fn from_bytes(bytes: &[u8; LINE_BYTES]) -> Line {
        let mut line = Line::default();
        for (word, chunk) in line.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The finalizer of SplitMix64: a bijection, so distinct numbers give distinct, well mixed
    /// hashes.
    fn hash(number: u64) -> u64 {
        let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn filter(keys: u64, bits_per_key: u32) -> FilterReader {
        let mut builder = FilterBuilder::new(bits_per_key);
        (0..keys).for_each(|key| builder.add_hash(hash(key)));
        FilterReader::new(builder.finish()).expect("a filter that was just built")
    }

    fn false_positives(filter: &FilterReader, asked: u64) -> f64 {
        let found = (1 << 40..(1 << 40) + asked).filter(|key| filter.may_contain_hash(hash(*key)));
        found.count() as f64 / asked as f64
    }

    #[test]
    fn every_added_hash_is_found() {
        let keys = if cfg!(miri) { 100 } else { 50_000 };
        for bits_per_key in [0, 1, 4, 10, 20, 100] {
            let filter = filter(keys, bits_per_key);
            assert!((0..keys).all(|key| filter.may_contain_hash(hash(key))));
        }
    }

    #[test]
    #[cfg_attr(
        miri,
        ignore = "statistics need many keys, and there is nothing unsafe here"
    )]
    fn ten_bits_per_key_give_about_one_percent_of_false_positives() {
        for keys in [3_000, 100_000] {
            let rate = false_positives(&filter(keys, 10), 200_000);
            assert!(rate < 0.016, "{keys} keys: {rate}");
        }
    }

    #[test]
    #[cfg_attr(
        miri,
        ignore = "statistics need many keys, and there is nothing unsafe here"
    )]
    fn more_bits_give_fewer_false_positives() {
        let rates = [4, 8, 12, 16].map(|bits| false_positives(&filter(50_000, bits), 200_000));
        assert!(rates.is_sorted_by(|a, b| a > b), "{rates:?}");
        assert!(rates[0] < 0.2 && rates[3] < 0.002, "{rates:?}");
    }

    #[test]
    fn repeated_hashes_in_a_row_cost_nothing() {
        let mut builder = FilterBuilder::new(10);
        for key in 0..100 {
            (0..50).for_each(|_| builder.add_hash(hash(key)));
        }
        assert_eq!(builder.len(), 100);
        assert_eq!(builder.encoded_bytes(), 2 * LINE_BYTES + TRAILER_BYTES);
        assert_eq!(builder.encoded_bytes(), builder.finish().len());
    }

    #[test]
    fn an_empty_filter_contains_nothing() {
        let filter = FilterReader::new(FilterBuilder::new(10).finish()).expect("valid");
        assert!((0..100).all(|key| !filter.may_contain_hash(hash(key))));
    }

    #[test]
    fn the_stored_bytes_of_a_known_filter_do_not_change() {
        let mut builder = FilterBuilder::new(10);
        builder.add_hash(0x0123_4567_89AB_CDEF);
        let bytes = builder.finish();
        let set: Vec<usize> = (0..512)
            .filter(|bit| bytes[bit / 8] & (1 << (bit % 8)) != 0)
            .collect();
        assert_eq!(set, KNOWN_BITS);
        assert_eq!(bytes[64..], [1, 0, 0, 0, 6, 0, 0, 0]);
    }

    const KNOWN_BITS: [usize; 6] = [53, 234, 275, 297, 336, 496];

    #[test]
    fn malformed_bytes_are_refused() {
        let mut builder = FilterBuilder::new(10);
        (0..100).for_each(|key| builder.add_hash(hash(key)));
        let good = builder.finish();
        for length in 0..good.len() {
            assert!(FilterReader::new(&good[..length]).is_none(), "{length}");
        }
        let trailer = good.len() - TRAILER_BYTES;
        for (offset, byte) in [
            (0, 1),
            (0, 0xFF),
            (3, 0xFF),
            (4, 0),
            (4, 13),
            (5, 1),
            (7, 1),
        ] {
            let mut bad = good.clone();
            bad[trailer + offset] = byte;
            assert!(FilterReader::new(bad).is_none(), "{offset} {byte}");
        }
        assert!(FilterReader::new([0u8; TRAILER_BYTES]).is_none());
    }
}
