//! A plain Bloom filter over 64-bit hashes.

/// Collects hashes.
pub(in crate::table) struct FilterBuilder {
    bits_per_key: u32,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    pub(in crate::table) fn new(bits_per_key: u32) -> FilterBuilder {
        FilterBuilder {
            bits_per_key,
            hashes: Vec::new(),
        }
    }

    pub(in crate::table) fn add_hash(&mut self, hash: u64) {
        self.hashes.push(hash);
    }

    pub(in crate::table) fn finish(self) -> Vec<u8> {
        let bytes = (self.hashes.len() * self.bits_per_key as usize / 8).max(8);
        let mut bits = vec![0; bytes];
        for hash in self.hashes {
            for bit in probes(hash, bytes) {
                bits[bit / 8] |= 1u8 << (bit % 8);
            }
        }
        bits
    }
}

/// Answers from the bytes.
pub(in crate::table) struct FilterReader(Vec<u8>);

impl FilterReader {
    pub(in crate::table) fn new(bytes: Vec<u8>) -> Option<FilterReader> {
        (!bytes.is_empty()).then_some(FilterReader(bytes))
    }

    pub(in crate::table) fn may_contain_hash(&self, hash: u64) -> bool {
        probes(hash, self.0.len()).all(|bit| self.0[bit / 8] >> (bit % 8) & 1 == 1)
    }
}

fn probes(hash: u64, bytes: usize) -> impl Iterator<Item = usize> {
    let step = hash.rotate_left(32) | 1;
    (0..6u64).map(move |i| (hash.wrapping_add(step.wrapping_mul(i)) % (bytes as u64 * 8)) as usize)
}
