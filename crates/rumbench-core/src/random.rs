//! Fast random generator of the laboratory, used by everything except LinkBench's shufflers.
//!
//! It is xoshiro256++ by David Blackman and Sebastiano Vigna (2019, public domain,
//! prng.di.unimi.it); their SplitMix64 fills its state. One draw costs about a nanosecond and a new
//! generator four SplitMix64 steps, so each row of a load can have its own generator, seeded by the
//! row's key.

/// A seeded stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Creates a generator; its stream depends on `seed` alone.
    pub fn new(seed: u64) -> Random {
        let mut split = seed;
        Random {
            state: std::array::from_fn(|_| split_mix(&mut split)),
        }
    }

    /// Creates a generator for one purpose, client or row: streams of different `parts` are
    /// independent.
    pub fn keyed(seed: u64, parts: &[u64]) -> Random {
        Random::new(parts.iter().fold(seed, |hash, part| mix(hash, *part)))
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a whole number in [0, bound), or 0 if `bound` is 0. The bias is below bound / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in [0, 1) with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a standard normal number, by the polar form of Box and Muller.
    pub fn gaussian(&mut self) -> f64 {
        // Each round succeeds with probability pi/4.
        loop {
            let v1 = 2.0 * self.unit() - 1.0;
            let v2 = 2.0 * self.unit() - 1.0;
            let square = v1 * v1 + v2 * v2;
            if square > 0.0 && square < 1.0 {
                return v1 * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }
}

/// Folds `part` into `hash`: XORs the two halves of a 128-bit product, which spreads every input
/// bit over the result.
#[inline]
pub fn mix(hash: u64, part: u64) -> u64 {
    let product =
        u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * u128::from(part ^ 0xd1b5_4a32_d192_ed03);
    (product >> 64) as u64 ^ product as u64 ^ part.rotate_left(32)
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_draws_of_the_known_state_are_those_of_the_reference() {
        // The reference program's first outputs for the state 1, 2, 3, 4.
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        let drawn: [u64; 4] = std::array::from_fn(|_| random.bits());
        assert_eq!(
            drawn,
            [
                41_943_041,
                58_720_359,
                3_588_806_011_781_223,
                3_591_011_842_654_386
            ]
        );
    }

    #[test]
    fn gaussian_has_mean_zero_and_variance_one() {
        let mut random = Random::new(7);
        let draws: Vec<f64> = (0..200_000).map(|_| random.gaussian()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn keyed_generators_of_neighboring_keys_differ() {
        let mut first = Random::keyed(1, &[5, 6]);
        let mut second = Random::keyed(1, &[6, 5]);
        assert_ne!(first.bits(), second.bits());
    }
}
