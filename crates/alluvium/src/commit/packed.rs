//! Compression of commits for the log, each commit by itself.
//!
//! The rows of one commit repeat each other: keys share ids, an index entry repeats its row. A
//! packed commit is the length of its operations (varint) and an LZ4 block of them. The committing
//! thread packs it outside the queue, so compression never delays another commit. Commits that are
//! small or shrink too little stay unpacked.

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use crate::base::coding::{Decoder, put_varint};
use crate::table::LZ4_RATIO_MAX;
use crate::table::pool::Pool;
use crate::wal::PAYLOAD_BYTES_MAX;

/// Smaller commits do not repeat enough.
const RAW_BYTES_MIN: usize = 64;
/// Larger commits would need as much memory again while they wait.
const RAW_BYTES_MAX: usize = 1 << 20;
/// LZ4 needs a larger table from this size. That table is not kept: clearing it would slow down
/// every small commit.
const LARGE_BYTES: usize = u16::MAX as usize;
/// A commit is packed only if this saves at least one byte in this many: unpacking costs time at
/// recovery.
const SAVING_MIN: usize = 8;

/// Pool of hash tables of 8 KiB, small ones only. Not thread-locals: those have destructors, and a
/// library that is unloaded must not leave destructors in its callers' threads.
static TABLES: Pool<CompressTable> = Pool::new();

/// Returns the packed form of a commit's operations, if it is enough shorter.
pub(crate) fn pack(raw: &[u8]) -> Option<Vec<u8>> {
    if !(RAW_BYTES_MIN..=RAW_BYTES_MAX).contains(&raw.len()) {
        return None;
    }
    let mut packed = Vec::with_capacity(get_maximum_output_size(raw.len()) + 5);
    put_varint(&mut packed, raw.len() as u64);
    let start = packed.len();
    packed.resize(start + get_maximum_output_size(raw.len()), 0);
    let out = &mut packed[start..];
    let length = if raw.len() < LARGE_BYTES {
        let mut table = TABLES.take().unwrap_or_else(CompressTable::small);
        let length = compress_into_with_table(raw, out, &mut table);
        TABLES.keep(table);
        length
    } else {
        compress_into_with_table(raw, out, &mut CompressTable::large())
    };
    // The output has room for any input, so an error means only that this commit is not packed.
    packed.truncate(start + length.ok()?);
    (packed.len() + raw.len() / SAVING_MIN <= raw.len()).then_some(packed)
}

/// Returns the operations of a packed commit; `None` if the bytes are not a packed commit.
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut d = Decoder::new(packed);
    let length = usize::try_from(d.varint()?).ok()?;
    let block = d.rest();
    if length > PAYLOAD_BYTES_MAX || length > block.len().saturating_mul(LZ4_RATIO_MAX) {
        return None;
    }
    let mut raw = vec![0; length];
    let written = lz4_flex::block::decompress_into(block, &mut raw).ok()?;
    (written == length).then_some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz_decoder;

    #[test]
    fn repetitive_commits_are_packed_and_round_trip() {
        for length in [64usize, 200, 5_000, 70_000] {
            let raw: Vec<u8> = (0..length).map(|i| (i % 37) as u8).collect();
            let packed = pack(&raw).expect("it repeats");
            assert!(packed.len() <= length - length / SAVING_MIN);
            assert_eq!(unpack(&packed), Some(raw));
        }
    }

    #[test]
    fn incompressible_commits_stay_unpacked() {
        assert_eq!(pack(&[7; RAW_BYTES_MIN - 1]), None);
        assert_eq!(pack(&vec![7; RAW_BYTES_MAX + 1]), None);
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(1000)
        .collect();
        assert_eq!(pack(&noise), None);
    }

    #[test]
    fn damaged_bytes_are_refused_or_differ_and_never_allocate_much() {
        let raw: Vec<u8> = (0..300).map(|i| (i % 37) as u8).collect();
        let packed = pack(&raw).unwrap();
        for cut in 0..packed.len() {
            assert_ne!(unpack(&packed[..cut]).as_ref(), Some(&raw), "cut at {cut}");
        }
        for bit in 0..packed.len() * 8 {
            let mut bad = packed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Some(other) = unpack(&bad) {
                assert!(other.len() <= bad.len() * LZ4_RATIO_MAX);
            }
        }
        let mut huge = Vec::new();
        put_varint(&mut huge, PAYLOAD_BYTES_MAX as u64);
        huge.extend_from_slice(&packed[2..]);
        assert_eq!(unpack(&huge), None);
    }

    #[test]
    fn fuzz_packed_commits_are_refused_or_have_the_length_that_they_name() {
        let raws = [64, 300, 5_000].map(|n| (0..n).map(|i| (i % 37) as u8).collect::<Vec<_>>());
        let samples = raws.map(|raw| pack(&raw).unwrap());
        fuzz_decoder("packed commits", &samples, LZ4_RATIO_MAX as u64, |packed| {
            if let Some(raw) = unpack(packed) {
                let named = Decoder::new(packed).varint();
                assert_eq!(named, Some(raw.len() as u64));
            }
        });
    }
}
