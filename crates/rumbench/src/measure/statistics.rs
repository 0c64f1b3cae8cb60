//! Spread of repeated measurements: paired log ratios with a t interval, and stall detection.

/// Minimum number of pairs for a verdict.
pub const PAIRS_FOR_VERDICT: usize = 5;

/// Two-sided 98 % quantiles of Student's t for 1 to 30 degrees of freedom. At 95 %, one of twenty
/// comparisons of equal engines would get a verdict; at 98 %, one of fifty does. Five pairs still
/// show a change of 10 % through noise of 3 %.
const T_98: [f64; 30] = [
    31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764, 2.71808, 2.681, 2.650,
    2.624, 2.602, 2.583, 2.567, 2.552, 2.539, 2.528, 2.518, 2.508, 2.500, 2.492, 2.485, 2.479,
    2.473, 2.467, 2.462, 2.457,
];
/// Two-sided 98 % quantile of the normal distribution.
const NORMAL_98: f64 = 2.326;

/// A ratio with its spread.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    /// Geometric mean of the paired ratios.
    pub ratio: f64,
    /// Lower end of the 98 % interval, or the smallest ratio with fewer than five pairs.
    pub low: f64,
    /// Upper end of the interval, or the largest ratio with fewer than five pairs.
    pub high: f64,
    /// Number of pairs used.
    pub pairs: usize,
}

impl Ratio {
    /// Returns the verdict: `higher` or `lower` needs five pairs and an interval that does not
    /// contain 1.
    pub fn verdict(&self) -> &'static str {
        if self.pairs == 1 {
            "n=1, no spread"
        } else if self.pairs < PAIRS_FOR_VERDICT {
            "range only"
        } else if self.low > 1.0 {
            "higher"
        } else if self.high < 1.0 {
            "lower"
        } else {
            "no verdict"
        }
    }
}

/// Returns the ratios `other / base` of adjacent trials. `None` without a pair of positive numbers.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let logs: Vec<f64> = pairs
        .iter()
        .filter(|(base, other)| *base > 0.0 && *other > 0.0)
        .map(|(base, other)| (other / base).ln())
        .collect();
    let n = logs.len();
    if n == 0 {
        return None;
    }
    let mean = logs.iter().sum::<f64>() / n as f64;
    let (low, high) = if n < PAIRS_FOR_VERDICT {
        (
            logs.iter().copied().fold(f64::INFINITY, f64::min),
            logs.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        )
    } else {
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
        let t = t_98(n - 1);
        let half = t * (variance / n as f64).sqrt();
        (mean - half, mean + half)
    };
    Some(Ratio {
        ratio: mean.exp(),
        low: low.exp(),
        high: high.exp(),
        pairs: n,
    })
}

/// Returns the quantile of Student's t for a two-sided 98 % interval; infinity without a degree of
/// freedom.
pub fn t_98(freedom: usize) -> f64 {
    match freedom.checked_sub(1) {
        Some(i) => T_98.get(i).copied().unwrap_or(NORMAL_98),
        None => f64::INFINITY,
    }
}

/// Returns the median; `None` of an empty list.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Returns the number of operations below which an interval counts as stalled: a tenth of the
/// median. `None` for fewer than three intervals, because the usual number is unknown then.
pub fn stalled_limit(ops: &[u64]) -> Option<f64> {
    if ops.len() < 3 {
        return None;
    }
    let numbers: Vec<f64> = ops.iter().map(|&n| n as f64).collect();
    Some(median(&numbers)? / 10.0)
}

/// Returns the number of intervals below [`stalled_limit`].
pub fn stalled_intervals(ops: &[u64]) -> Option<u64> {
    let limit = stalled_limit(ops)?;
    Some(ops.iter().filter(|&&n| (n as f64) < limit).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_needs_five_pairs_and_an_interval_without_one() {
        let four = paired_ratio(&[(100.0, 150.0); 4]).unwrap();
        assert_eq!(four.verdict(), "range only");
        let clear: Vec<_> = [148.0, 150.0, 152.0, 149.0, 151.0]
            .map(|x| (100.0, x))
            .to_vec();
        let ratio = paired_ratio(&clear).unwrap();
        assert_eq!(ratio.verdict(), "higher");
        assert!((ratio.ratio - 1.5).abs() < 0.001, "{ratio:?}");
        let noisy: Vec<_> = [50.0, 150.0, 90.0, 120.0, 100.0]
            .map(|x| (100.0, x))
            .to_vec();
        assert_eq!(paired_ratio(&noisy).unwrap().verdict(), "no verdict");
        assert_eq!(
            paired_ratio(&[(1.0, 2.0)]).unwrap().verdict(),
            "n=1, no spread"
        );
    }

    #[test]
    fn t_interval_of_known_log_ratios_is_the_textbook_one() {
        // ln 1, ln e^0.1 ... ln e^0.4: mean 0.2, standard deviation 0.1581, half width 3.747 *
        // 0.0707.
        let pairs: Vec<_> = (0..5).map(|i| (1.0, (f64::from(i) * 0.1).exp())).collect();
        let ratio = paired_ratio(&pairs).unwrap();
        assert!((ratio.low.ln() - (0.2 - 0.26495)).abs() < 1e-4, "{ratio:?}");
        assert!(
            (ratio.high.ln() - (0.2 + 0.26495)).abs() < 1e-4,
            "{ratio:?}"
        );
    }

    #[test]
    fn stalled_interval_is_one_under_a_tenth_of_the_median() {
        assert_eq!(stalled_intervals(&[100, 100, 9, 100, 11]), Some(1));
        assert_eq!(stalled_intervals(&[100, 1]), None);
    }
}
