//! XXH3-64, seeded so that a structure read from the wrong place or file does not pass as the right
//! one.
//!
//! Stored checksums depend on the seeds, so the seeds never change.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Returns the checksum of `bytes` under `seed`.
pub fn checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// Checksum of bytes that come in pieces: equal to [`checksum`] of all of them with seed 0.
#[derive(Clone, Default)]
pub struct RunningChecksum(Xxh3);

impl RunningChecksum {
    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of all pieces so far.
    pub fn value(&self) -> u64 {
        self.0.digest()
    }
}

/// Returns the seed of a structure at `offset` of the file with this uid.
///
/// The uid is random per file, so two files with the same number, reused after a crash, are not
/// confused.
pub fn place_seed(file_uid: u64, offset: u64) -> u64 {
    // The multiplier is 2^64 divided by the golden ratio, made odd: distinct offsets give distinct
    // seeds.
    file_uid ^ offset.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns a 64-bit hash of a key for filters, locks and shards. Stored in filters, so it never
/// changes.
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, 0)
}
