//! Bloom filter of a memtable: the writer adds single hashes while readers use it.
//!
//! Readers and the writer use relaxed operations only. A reader must find the hashes of all commits
//! up to the engine's visible seqno. It has loaded that seqno before the lookup, and the load makes
//! their bits visible.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{LINE_BYTES, LINE_WORDS, bits_of, line_of, lines_for, probes_for};

/// Filter for one writer and any number of readers, with a size fixed at creation.
///
/// More hashes than expected only raise the rate of false positives.
#[derive(Debug)]
pub struct DynamicFilter {
    lines: Box<[AtomicLine]>,
    probes: u32,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct AtomicLine([AtomicU64; LINE_WORDS]);

impl DynamicFilter {
    /// Creates an empty filter with `bits_per_key` bits for each of `keys` expected hashes.
    pub fn new(keys: usize, bits_per_key: u32) -> DynamicFilter {
        let lines = lines_for(keys, bits_per_key);
        DynamicFilter {
            lines: (0..lines).map(|_| AtomicLine::default()).collect(),
            probes: probes_for(bits_per_key),
        }
    }

    /// Adds a hash. Only one thread may add at a time: with two, bits could be lost.
    pub fn add_hash(&self, hash: u64) {
        let line = &self.lines[line_of(hash, self.lines.len())];
        for (word, bit) in bits_of(hash, self.probes) {
            let word = &line.0[word];
            // A separate load and store suffice for the single writer; a locked operation would
            // take several times as long.
            word.store(word.load(Relaxed) | bit, Relaxed);
        }
    }

    /// Returns whether this hash may have been added: `false` is certain. Touches one cache line.
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        let line = &self.lines[line_of(hash, self.lines.len())];
        bits_of(hash, self.probes).all(|(word, bit)| line.0[word].load(Relaxed) & bit != 0)
    }

    /// Returns the memory of the bits in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_hashes_are_found_and_few_others() {
        let filter = DynamicFilter::new(1_000, 10);
        let hash = |number: u64| (number + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        assert!(!(0..1_000).any(|number| filter.may_contain_hash(hash(number))));
        (0..1_000).for_each(|number| filter.add_hash(hash(number)));
        assert!((0..1_000).all(|number| filter.may_contain_hash(hash(number))));
        let wrong = (1_000..11_000).filter(|number| filter.may_contain_hash(hash(*number)));
        assert!(wrong.count() < 300);
    }
}
