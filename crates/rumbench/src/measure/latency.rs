//! Latency histograms of one client, with merging.
//!
//! HDR histograms with three significant digits over 1 ns to one hour, recorded in nanoseconds:
//! about 100 KiB for each operation type. The exact maximum is kept separately.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::store::result::{BUCKET_BOUNDS_US, Buckets, Latency};

fn buckets(histogram: &Histogram<u64>) -> Buckets {
    let mut found = [0; BUCKET_BOUNDS_US.len() + 1];
    for value in histogram.iter_recorded() {
        // The lower end of the histogram's own bucket, which is exact to three digits.
        let ns = histogram.lowest_equivalent(value.value_iterated_to());
        let place = BUCKET_BOUNDS_US.partition_point(|bound| bound * 1000 < ns);
        found[place] += value.count_at_value();
    }
    found
}

const HOUR_NS: u64 = 3_600_000_000_000;

/// One histogram for each operation type.
pub struct Latencies {
    histograms: Vec<Histogram<u64>>,
    sums_ns: Vec<u128>,
    maxima_ns: Vec<u64>,
}

impl Latencies {
    /// Returns empty histograms with all memory allocated.
    pub fn new(operations: usize) -> Latencies {
        let empty =
            Histogram::new_with_bounds(1, HOUR_NS, 3).expect("the bounds are constant and valid");
        Latencies {
            histograms: vec![empty; operations],
            sums_ns: vec![0; operations],
            maxima_ns: vec![0; operations],
        }
    }

    /// Records one operation; values above an hour count as an hour except in the maximum and mean.
    pub fn record(&mut self, operation: usize, ns: u64) {
        self.histograms[operation].saturating_record(ns.max(1));
        self.sums_ns[operation] += u128::from(ns);
        self.maxima_ns[operation] = self.maxima_ns[operation].max(ns);
    }

    /// Adds another client's histograms.
    pub fn merge(&mut self, other: &Latencies) {
        for (mine, theirs) in self.histograms.iter_mut().zip(&other.histograms) {
            mine.add(theirs).expect("all histograms have equal bounds");
        }
        for (mine, theirs) in self.sums_ns.iter_mut().zip(&other.sums_ns) {
            *mine += theirs;
        }
        for (mine, theirs) in self.maxima_ns.iter_mut().zip(&other.maxima_ns) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Returns the figures of one operation type, `None` if it never ran.
    pub fn summary(&self, operation: usize) -> Option<Latency> {
        let histogram = &self.histograms[operation];
        let count = histogram.len();
        if count == 0 {
            return None;
        }
        let max = self.maxima_ns[operation] as f64 / 1e3;
        // The upper end of a bucket may exceed its largest value.
        let at = |quantile: f64| (histogram.value_at_quantile(quantile) as f64 / 1e3).min(max);
        Some(Latency {
            count,
            mean: self.sums_ns[operation] as f64 / 1e3 / count as f64,
            p50: at(0.50),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max,
        })
    }

    /// Returns counts by [`BUCKET_BOUNDS_US`] for all operation types that ran.
    pub fn buckets(&self, names: &[&str]) -> BTreeMap<String, Buckets> {
        let ran = names.iter().zip(&self.histograms);
        ran.filter(|(_, histogram)| !histogram.is_empty())
            .map(|(name, histogram)| ((*name).to_string(), buckets(histogram)))
            .collect()
    }

    /// Returns the figures of all operation types that ran.
    pub fn summaries(&self, names: &[&str]) -> BTreeMap<String, Latency> {
        names
            .iter()
            .enumerate()
            .filter_map(|(i, name)| Some(((*name).to_string(), self.summary(i)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_fall_into_the_buckets_of_the_reference() {
        let mut latencies = Latencies::new(2);
        for us in [1, 255, 256, 300, 1_000, 1_010, 70_000, 17_000_000] {
            latencies.record(1, us * 1000);
        }
        let buckets = latencies.buckets(&["A", "B"]);
        assert_eq!(buckets.len(), 1, "only what ran");
        assert_eq!(buckets["B"], [3, 2, 1, 0, 0, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn merged_histograms_equal_one_that_saw_everything() {
        let (mut a, mut b, mut all) = (Latencies::new(2), Latencies::new(2), Latencies::new(2));
        for i in 1..=1000u64 {
            let part = if i % 3 == 0 { &mut a } else { &mut b };
            part.record(1, i * 1000);
            all.record(1, i * 1000);
        }
        a.merge(&b);
        assert_eq!(a.summary(1), all.summary(1));
        assert_eq!(a.summary(0), None);
        let summary = a.summary(1).unwrap();
        assert_eq!(
            (summary.count, summary.max, summary.mean),
            (1000, 1000.0, 500.5)
        );
        assert!((summary.p99 / 990.0 - 1.0).abs() < 0.002, "{summary:?}");
    }
}
