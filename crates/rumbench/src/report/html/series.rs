//! Reduction of values per second to buckets: adjacent seconds become one bucket that keeps their
//! lowest, mean and highest value.
//!
//! A bucket is always a whole number of seconds, the same in the whole chart, and the page states
//! this number. Nothing is interpolated: a second without a value is a gap.

/// Adjacent seconds of one or more repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Start of the first second.
    pub from: f64,
    /// End of the last second.
    pub to: f64,
    /// Lowest value.
    pub low: f64,
    /// Mean value.
    pub mean: f64,
    /// Highest value.
    pub high: f64,
}

impl Bucket {
    /// Returns the middle of the bucket on the time axis.
    pub fn middle(&self) -> f64 {
        (self.from + self.to) / 2.0
    }
}

/// Values by second; `None` for a second without a value.
pub type Seconds = Vec<Option<f64>>;

/// Returns the number of seconds per bucket so that `seconds` become at most `points` buckets.
pub fn width(seconds: usize, points: usize) -> usize {
    seconds.div_ceil(points.max(1)).max(1)
}

/// Returns buckets of `width` seconds over all repetitions together; `None` for buckets without a
/// value in any repetition.
pub fn buckets(repetitions: &[Seconds], width: usize) -> Vec<Option<Bucket>> {
    let length = repetitions.iter().map(Vec::len).max().unwrap_or(0);
    (0..length)
        .step_by(width)
        .map(|from| {
            let to = (from + width).min(length);
            let values = repetitions
                .iter()
                .flat_map(|seconds| &seconds[from.min(seconds.len())..to.min(seconds.len())]);
            bucket(
                from,
                to,
                values.filter_map(|value| value.filter(|value| value.is_finite())),
            )
        })
        .collect()
}

fn bucket(from: usize, to: usize, values: impl Iterator<Item = f64>) -> Option<Bucket> {
    let (mut low, mut high, mut sum, mut count) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0);
    for value in values {
        low = low.min(value);
        high = high.max(value);
        sum += value;
        count += 1;
    }
    (count > 0).then(|| Bucket {
        from: from as f64,
        to: to as f64,
        low,
        mean: sum / f64::from(count),
        high,
    })
}

/// Returns the growth in each second of a counter that only grows. `None` for other counters, which
/// are shown unchanged.
pub fn rates(values: &Seconds) -> Option<Seconds> {
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    let grows = known.windows(2).all(|pair| pair[0] <= pair[1]);
    let moved = known.first() != known.last();
    (grows && moved).then(|| {
        let pairs = values
            .windows(2)
            .map(|pair| pair[1].zip(pair[0]).map(|(now, before)| now - before));
        std::iter::once(None).chain(pairs).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_keeps_the_slowest_and_the_fastest_second_of_all_repetitions() {
        let a = vec![Some(10.0), Some(20.0), None];
        let b = vec![Some(0.0), Some(30.0), Some(7.0)];
        let found = buckets(&[a, b], 2);
        assert_eq!(
            found[0],
            Some(Bucket {
                from: 0.0,
                to: 2.0,
                low: 0.0,
                mean: 15.0,
                high: 30.0
            })
        );
        assert_eq!(
            found[1],
            Some(Bucket {
                from: 2.0,
                to: 3.0,
                low: 7.0,
                mean: 7.0,
                high: 7.0
            })
        );
        assert_eq!(buckets(&[vec![None], vec![]], 5), [None]);
        assert_eq!(buckets(&[vec![Some(f64::NAN)]], 1), [None]);
    }

    #[test]
    fn an_hour_fits_into_the_points_of_a_chart() {
        assert_eq!(width(3600, 60), 60);
        assert_eq!(width(3601, 60), 61);
        assert_eq!((width(0, 60), width(5, 0)), (1, 5));
    }

    #[test]
    fn growing_counters_become_rates_and_gauges_stay() {
        assert_eq!(
            rates(&vec![Some(5.0), Some(5.0), Some(9.0)]),
            Some(vec![None, Some(0.0), Some(4.0)])
        );
        assert_eq!(rates(&vec![Some(5.0), Some(3.0)]), None);
        assert_eq!(rates(&vec![Some(5.0), Some(5.0)]), None);
    }
}
