//! Payload bytes with the compressibility of LinkBench's: copies of motifs between fresh random
//! bytes.

use crate::random::Random;

/// Bytes drawn or copied at a time.
const CHUNK: usize = 128;

/// Shape of the content of payloads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PayloadShape {
    /// First byte of the alphabet.
    pub start_byte: u8,
    /// Last byte of the alphabet.
    pub end_byte: u8,
    /// Probability that a chunk is fresh random bytes instead of a copy.
    pub uniqueness: f64,
    /// Bytes of the motif buffer, the source of copies.
    pub motif_bytes: usize,
}

/// Payload generator with its own motif buffer: values of one generator compress against each
/// other.
#[derive(Debug, Clone)]
pub struct PayloadGenerator {
    shape: PayloadShape,
    motif: Vec<u8>,
}

impl PayloadGenerator {
    /// Creates a generator and draws its motifs from `random`.
    pub fn new(shape: PayloadShape, random: &mut Random) -> PayloadGenerator {
        let mut motif = Vec::new();
        append_uniform(&shape, random, shape.motif_bytes, &mut motif);
        PayloadGenerator { shape, motif }
    }

    /// Appends a value of `length` bytes to `out`.
    pub fn append(&self, random: &mut Random, length: usize, out: &mut Vec<u8>) {
        let chunk = CHUNK.min(self.motif.len());
        let mut left = length;
        while left > 0 {
            let size = chunk.min(left);
            if random.unit() < self.shape.uniqueness {
                append_uniform(&self.shape, random, size, out);
            } else {
                let offset = random.below((self.motif.len() - size + 1) as u64) as usize;
                out.extend_from_slice(&self.motif[offset..offset + size]);
            }
            left -= size;
        }
    }
}

fn append_uniform(shape: &PayloadShape, random: &mut Random, length: usize, out: &mut Vec<u8>) {
    let range = u64::from(shape.end_byte) - u64::from(shape.start_byte) + 1;
    // Each draw gives four bytes of 16 bits scaled to the alphabet; the bias is below 1/256.
    let mut left = length;
    while left > 0 {
        let bits = random.bits();
        let bytes: [u8; 4] = std::array::from_fn(|lane| {
            let lane_bits = (bits >> (16 * lane)) & 0xffff;
            shape.start_byte + ((lane_bits * range) >> 16) as u8
        });
        let size = left.min(4);
        out.extend_from_slice(&bytes[..size]);
        left -= size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: PayloadShape = PayloadShape {
        start_byte: 32,
        end_byte: 100,
        uniqueness: 0.225,
        motif_bytes: 512,
    };

    #[test]
    fn bytes_stay_in_the_alphabet_and_reach_both_ends() {
        let mut random = Random::new(1);
        let generator = PayloadGenerator::new(SHAPE, &mut random);
        let mut out = Vec::new();
        generator.append(&mut random, 100_000, &mut out);
        assert_eq!(out.len(), 100_000);
        assert_eq!(out.iter().min(), Some(&32));
        assert_eq!(out.iter().max(), Some(&100));
    }

    #[test]
    fn about_the_unique_share_of_chunks_is_not_in_the_motif() {
        let mut random = Random::new(2);
        let generator = PayloadGenerator::new(SHAPE, &mut random);
        let mut out = Vec::new();
        generator.append(&mut random, 128 * 4_000, &mut out);
        let motif = &generator.motif;
        let copied = |chunk: &[u8]| motif.windows(16).any(|window| window == &chunk[..16]);
        let fresh = out.chunks(128).filter(|chunk| !copied(chunk)).count();
        assert!((800..1_000).contains(&fresh), "{fresh} of 4000");
    }

    #[test]
    fn a_motif_shorter_than_a_chunk_still_fills_any_length() {
        let mut random = Random::new(3);
        let shape = PayloadShape {
            motif_bytes: 5,
            ..SHAPE
        };
        let generator = PayloadGenerator::new(shape, &mut random);
        let mut out = Vec::new();
        generator.append(&mut random, 33, &mut out);
        assert_eq!(out.len(), 33);
    }
}
