//! Random input for the engine's decoders, in tests: a checksum that fits says nothing about what stands behind it.

#[cfg(not(any(loom, feature = "simulation")))]
mod forged;

use allocation_counter::measure;
use alluvium_testkit::{Seeded, odd_input};

/// What any decoder may allocate, however short its input is: messages of errors, and contexts of decompressors.
const FREE_BYTES: u64 = 512 << 10;

/// Calls `decode` with damaged copies of `samples` and with noise until the budget ends. It must not panic, and must not
/// have more than `bytes_per_byte` bytes for each byte of its input at a time, a fixed amount aside.
pub(crate) fn fuzz_decoder(
    name: &str,
    samples: &[Vec<u8>],
    bytes_per_byte: u64,
    mut decode: impl FnMut(&[u8]),
) {
    samples.iter().for_each(|sample| decode(sample));
    Seeded::fuzz(name, |rng| {
        let input = odd_input(samples, rng);
        let taken = measure(|| decode(&input)).bytes_max;
        let most = FREE_BYTES + bytes_per_byte * input.len() as u64;
        assert!(
            taken <= most,
            "{taken} bytes for an input of {} bytes",
            input.len()
        );
    });
}
