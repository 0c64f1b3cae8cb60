//! Keys and values: pure functions of the seed and of numbers, so that each value read can be
//! checked.
//!
//! ```text
//! key    number 8, big-endian; then ASCII `0` up to its length
//! value  number 8, checksum of the number and the rest 8, a slice of the pool
//! ```
//!
//! The pool is a mebibyte of 100-byte fragments. Each repeats a random beginning, so that it
//! compresses to about the ratio in the settings. A value is a slice of the pool at an offset that
//! its writer draws.

use crate::random::{Random, mix};

/// Length of the shortest value: its head and eight bytes of the pool.
pub const VALUE_BYTES_MIN: u64 = HEAD_BYTES as u64 + 8;

/// Bytes of number and checksum.
const HEAD_BYTES: usize = 16;
/// Number of pool offsets at which a value can start.
const POOL_BYTES: usize = 1 << 20;
/// Bytes of one fragment of the pool.
const FRAGMENT_BYTES: usize = 100;
/// Key of the random generator of the pool.
const POOL_KEY: u64 = 0x706f_6f6c;

/// Generator and verifier of keys and values.
#[derive(Debug)]
pub struct Values {
    pool: Vec<u8>,
    key_bytes: usize,
    value_bytes: usize,
}

impl Values {
    /// Creates the generator and fills the pool.
    pub fn new(seed: u64, key_bytes: usize, value_bytes: usize, ratio: f64) -> Values {
        let mut random = Random::keyed(seed, &[POOL_KEY]);
        let unique = ((FRAGMENT_BYTES as f64 * ratio).round() as usize).clamp(1, FRAGMENT_BYTES);
        let bytes = POOL_BYTES + value_bytes;
        let mut pool = Vec::with_capacity(bytes + FRAGMENT_BYTES);
        while pool.len() < bytes {
            // Printable characters, as in db_bench.
            let start: Vec<u8> = (0..unique).map(|_| b' ' + random.below(95) as u8).collect();
            pool.extend(start.iter().cycle().take(FRAGMENT_BYTES));
        }
        Values {
            pool,
            key_bytes,
            value_bytes,
        }
    }

    /// Appends the key of a number.
    #[inline]
    pub fn append_key(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&number.to_be_bytes());
        out.resize(out.len() + self.key_bytes - 8, b'0');
    }

    /// Appends a value of a number; `draw` selects one of its possible values.
    pub fn append_value(&self, number: u64, draw: u64, out: &mut Vec<u8>) {
        let place = (draw % POOL_BYTES as u64) as usize;
        let rest = &self.pool[place..place + self.value_bytes - HEAD_BYTES];
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&checksum(number, rest).to_be_bytes());
        out.extend_from_slice(rest);
    }

    /// Returns true if these bytes are the key of a number.
    #[inline]
    pub fn is_key(&self, number: u64, key: &[u8]) -> bool {
        key.len() == self.key_bytes
            && key[..8] == number.to_be_bytes()
            && key[8..].iter().all(|byte| *byte == b'0')
    }

    /// Returns true if these bytes are a value written for a number.
    #[inline]
    pub fn is_value(&self, number: u64, value: &[u8]) -> bool {
        value.len() == self.value_bytes
            && value[..8] == number.to_be_bytes()
            && value[8..HEAD_BYTES] == checksum(number, &value[HEAD_BYTES..]).to_be_bytes()
    }
}

/// Hashes sixteen bytes per step: the check of a read takes some tens of nanoseconds.
#[inline]
fn checksum(number: u64, bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let mut steps = bytes.chunks_exact(16);
    let mut hash = mix(number, bytes.len() as u64);
    for step in &mut steps {
        let (low, high) = step.split_at(8);
        hash = mix(hash ^ word(low), word(high));
    }
    for rest in steps.remainder().chunks(8) {
        hash = mix(hash, word(rest));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values::new(1, 20, 400, 0.5)
    }

    #[test]
    fn a_value_is_known_by_its_number_and_every_bit() {
        let values = values();
        let mut value = Vec::new();
        values.append_value(7, 12_345, &mut value);
        assert_eq!(value.len(), 400);
        assert!(values.is_value(7, &value));
        assert!(!values.is_value(8, &value));
        assert!(!values.is_value(7, &value[..399]));
        for place in 0..value.len() {
            value[place] ^= 1;
            assert!(!values.is_value(7, &value), "byte {place} changed");
            value[place] ^= 1;
        }
    }

    #[test]
    fn keys_are_the_number_and_a_filler() {
        let values = values();
        let mut key = Vec::new();
        values.append_key(258, &mut key);
        assert_eq!(key, b"\0\0\0\0\0\0\x01\x02000000000000");
        assert!(values.is_key(258, &key));
        assert!(!values.is_key(259, &key));
        key[19] = b'1';
        assert!(!values.is_key(258, &key));
    }

    #[test]
    fn fragments_repeat_their_first_half() {
        let values = values();
        for fragment in values.pool.chunks_exact(FRAGMENT_BYTES).take(1000) {
            assert_eq!(fragment[..50], fragment[50..]);
        }
        assert_ne!(values.pool[..50], values.pool[100..150]);
    }

    #[test]
    fn the_shortest_value_can_be_checked() {
        let values = Values::new(1, 8, VALUE_BYTES_MIN as usize, 1.0);
        let mut value = Vec::new();
        values.append_value(3, u64::MAX, &mut value);
        assert_eq!(value.len(), 24);
        assert!(values.is_value(3, &value));
    }
}
