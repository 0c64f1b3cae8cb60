//! Fuzzing on the stable toolchain: damaged copies of good input.

use crate::random::Rng;

/// Numbers that often break the handling of lengths, counts and offsets.
const ODD_NUMBERS: [u64; 8] = [0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, u64::MAX];

/// Returns a copy of `bytes` with one to four damages: flipped bits, odd numbers, truncation, a
/// removed, repeated or overwritten stretch, appended bytes. Rarely equal to the original.
///
/// A decoder must reject the result or decode it; it must not panic, hang or allocate without
/// bounds.
pub fn mutate(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.range(1..5) {
        if bytes.is_empty() {
            let count = rng.below(16);
            bytes = rng.bytes(count);
            continue;
        }
        let at = rng.below(bytes.len());
        let stretch = at..(at + rng.range(1..33)).min(bytes.len());
        match rng.below(8) {
            0 | 1 => bytes[at] ^= 1 << rng.below(8),
            2 => overwrite(&mut bytes, at, rng),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(stretch)),
            5 => {
                let copy = bytes[stretch].to_vec();
                let to = rng.below(bytes.len() + 1);
                drop(bytes.splice(to..to, copy));
            }
            6 => bytes[stretch].fill(*rng.pick(&[0, 0xFF])),
            _ => {
                let count = rng.range(1..17);
                bytes.extend(rng.bytes(count));
            }
        }
    }
    bytes
}

/// Returns input for a decoder: mostly damaged copies of good `samples`, also two of them spliced,
/// and noise of small numbers. Small numbers get further into a decoder than large ones.
///
/// # Panics
/// If `samples` is empty.
pub fn odd_input(samples: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    match rng.below(8) {
        0 => {
            let count = rng.below(100);
            let mut noise = rng.bytes(count);
            noise.iter_mut().for_each(|byte| *byte %= 12);
            noise
        }
        kind @ 1..3 => {
            let [front, back]: [&Vec<u8>; 2] = [rng.pick(samples), rng.pick(samples)];
            let both = splice(front, back, rng);
            if kind == 1 { both } else { mutate(&both, rng) }
        }
        _ => {
            let sample: &Vec<u8> = rng.pick(samples);
            mutate(sample, rng)
        }
    }
}

/// Overwrites the bytes at `at` with an odd number of 1, 2, 4 or 8 bytes.
fn overwrite(bytes: &mut [u8], at: usize, rng: &mut Rng) {
    let number = rng.pick(&ODD_NUMBERS).to_le_bytes();
    let width = *rng.pick(&[1, 2, 4, 8]);
    for (byte, new) in bytes[at..].iter_mut().zip(&number[..width]) {
        *byte = *new;
    }
}

/// Returns the beginning of `front` followed by the end of `back`, both cut at random: two good
/// inputs make one odd input.
pub fn splice(front: &[u8], back: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = front[..rng.below(front.len() + 1)].to_vec();
    bytes.extend(&back[rng.below(back.len() + 1)..]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_shorten_lengthen_and_change() {
        let original = vec![7; 100];
        let mut rng = Rng::new(1);
        let (mut shorter, mut longer, mut changed) = (0, 0, 0);
        for _ in 0..1000 {
            let mutant = mutate(&original, &mut rng);
            shorter += usize::from(mutant.len() < original.len());
            longer += usize::from(mutant.len() > original.len());
            changed += usize::from(mutant != original);
        }
        assert!(shorter > 100 && longer > 100 && changed > 950);
    }

    #[test]
    fn an_empty_input_can_be_mutated() {
        let mut rng = Rng::new(2);
        assert!((0..100).any(|_| !mutate(&[], &mut rng).is_empty()));
    }

    #[test]
    fn a_splice_is_a_beginning_and_an_end() {
        let mut rng = Rng::new(3);
        for _ in 0..100 {
            let bytes = splice(b"aaaa", b"bbbb", &mut rng);
            let front = bytes.iter().take_while(|byte| **byte == b'a').count();
            assert!(front <= 4 && bytes[front..].iter().all(|byte| *byte == b'b'));
        }
    }
}
