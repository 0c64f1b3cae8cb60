//! Random input for the engine's decoders, in tests: a matching checksum proves nothing about the
//! data that it covers.

#[cfg(not(any(loom, feature = "simulation")))]
mod forged;

use allocation_counter::measure;
use alluvium_testkit::{Seeded, odd_input};

/// Bytes that any decoder may allocate, even for short input: error messages, and contexts of
/// decompressors.
const FREE_BYTES: u64 = 512 << 10;

/// Calls `decode` with damaged copies of `samples` and with noise until the budget ends. It must
/// not panic. At any time it must not hold more than `bytes_per_byte` bytes for each byte of its
/// input, plus a fixed amount.
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
