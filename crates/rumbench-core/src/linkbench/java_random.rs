//! The 48-bit linear congruential generator of the Java library, bit for bit.
//!
//! LinkBench's shufflers draw from it with fixed seeds, so it decides the hot ids and the ids with
//! many links. Nothing else uses it.

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;

/// Random generator that draws the same numbers as `java.util.Random` from the same seed.
#[derive(Debug, Clone)]
pub struct JavaRandom {
    state: u64,
    spare_gaussian: Option<f64>,
}

impl JavaRandom {
    /// Seeds a generator as the Java library does.
    pub fn new(seed: i64) -> JavaRandom {
        JavaRandom {
            state: (seed as u64 ^ MULTIPLIER) & MASK,
            spare_gaussian: None,
        }
    }

    /// Returns the next `count` bits, at most 32.
    fn bits(&mut self, count: u32) -> u32 {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        (self.state >> (48 - count)) as u32
    }

    /// Draws a signed 32-bit number.
    pub fn next_i32(&mut self) -> i32 {
        self.bits(32) as i32
    }

    /// Draws a number in [0, bound).
    ///
    /// # Panics
    /// Panics if `bound` is 0 or does not fit 31 bits.
    pub fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0 && bound <= i32::MAX as u32, "bound {bound}");
        if bound.is_power_of_two() {
            return ((u64::from(bound) * u64::from(self.bits(31))) >> 31) as u32;
        }
        // Draws from the last, incomplete multiple of `bound` are rejected: fewer than half of all
        // draws.
        loop {
            let draw = u64::from(self.bits(31));
            let remainder = draw % u64::from(bound);
            if draw - remainder + u64::from(bound - 1) < 1 << 31 {
                return remainder as u32;
            }
        }
    }

    /// Draws a signed 64-bit number.
    pub fn next_i64(&mut self) -> i64 {
        let high = i64::from(self.next_i32()) << 32;
        high.wrapping_add(i64::from(self.next_i32()))
    }

    /// Draws a number in [0, 1).
    pub fn next_f64(&mut self) -> f64 {
        let high = u64::from(self.bits(26)) << 27;
        (high + u64::from(self.bits(27))) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Draws a standard normal number; each pair of uniform draws gives two.
    pub fn next_gaussian(&mut self) -> f64 {
        if let Some(spare) = self.spare_gaussian.take() {
            return spare;
        }
        // Each round succeeds with probability pi/4.
        loop {
            let v1 = 2.0 * self.next_f64() - 1.0;
            let v2 = 2.0 * self.next_f64() - 1.0;
            let square = v1 * v1 + v2 * v2;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * square.ln() / square).sqrt();
                self.spare_gaussian = Some(v2 * scale);
                return v1 * scale;
            }
        }
    }
}
