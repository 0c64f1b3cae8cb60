//! Latency histogram with 16 buckets for each power of two, so that a quantile is exact to about
//! six percent.

use std::time::Duration;

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = 64 * SUB;

/// Histogram of times in nanoseconds with logarithmic buckets.
pub struct Latencies {
    counts: Box<[u64]>,
    count: u64,
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies {
            counts: vec![0; BUCKETS].into(),
            count: 0,
            max_ns: 0,
        }
    }
}

impl Latencies {
    pub fn note(&mut self, took: Duration) {
        let ns = took.as_nanos() as u64;
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn add(&mut self, other: &Latencies) {
        for (own, other) in self.counts.iter_mut().zip(&other.counts) {
            *own += other;
        }
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max_us(&self) -> u64 {
        self.max_ns / 1000
    }

    /// Returns a time that this share of all times did not exceed.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut counted = 0;
        let place = self.counts.iter().position(|count| {
            counted += count;
            counted >= wanted
        });
        place.map_or(0, |bucket| upper_ns(bucket).min(self.max_ns) / 1000)
    }
}

/// Returns the bucket of a value. Values below 16 have a bucket each; for larger ones, the four
/// bits after the leading one choose it.
fn bucket(ns: u64) -> usize {
    let bits = u64::BITS - ns.leading_zeros();
    match bits.checked_sub(SUB_BITS + 1) {
        None => ns as usize,
        Some(shift) => (shift as usize + 1) * SUB + ((ns >> shift) as usize & (SUB - 1)),
    }
}

/// Returns the largest value of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    match (bucket / SUB).checked_sub(1) {
        None => bucket as u64,
        Some(shift) => (((SUB + bucket % SUB + 1) as u64) << shift) - 1,
    }
}
