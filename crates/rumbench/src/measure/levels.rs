//! Detects a series that alternates between two levels. Such a throughput is not a property of the
//! engine alone: something else selects the level, for example the cores on which threads happen to
//! run. Its mean is then meaningless.

/// Minimum number of intervals; fewer are inconclusive.
const INTERVALS_MIN: usize = 10;
/// Minimum share of the series for each level.
const SHARE_MIN: f64 = 0.2;
/// Minimum ratio of the upper level to the lower one.
const RATIO_MIN: f64 = 1.5;
/// Minimum share of the variance of the logarithms that the two levels explain. The best split of
/// evenly spread numbers explains three quarters, of normal ones 0.64.
const EXPLAINED_MIN: f64 = 0.85;
/// Minimum number of level changes: one is a warm-up or a decline, two are a pause.
const CHANGES_MIN: usize = 3;

/// Returns the two levels between which these numbers alternate, lower first; None if they do not.
/// Zeros are stalls and are ignored.
pub fn two_levels(numbers: &[u64]) -> Option<(f64, f64)> {
    let logs: Vec<f64> = numbers
        .iter()
        .filter(|&&number| number > 0)
        .map(|&number| (number as f64).ln())
        .collect();
    if logs.len() < INTERVALS_MIN {
        return None;
    }
    let mut sorted = logs.clone();
    sorted.sort_by(f64::total_cmp);
    let least = (logs.len() as f64 * SHARE_MIN).ceil() as usize;
    let splits = least..=logs.len() - least;
    let (at, explained) = splits
        .map(|at| (at, explained_by(&sorted, at)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (low, high) = (mean(&sorted[..at]), mean(&sorted[at..]));
    let between = f64::midpoint(low, high);
    let changes = logs
        .windows(2)
        .filter(|pair| (pair[0] < between) != (pair[1] < between))
        .count();
    let found =
        explained >= EXPLAINED_MIN && (high - low).exp() >= RATIO_MIN && changes >= CHANGES_MIN;
    found.then(|| (low.exp(), high.exp()))
}

/// Returns the share of the variance that lies between the means of the parts before and from `at`.
fn explained_by(sorted: &[f64], at: usize) -> f64 {
    let all = mean(sorted);
    let total: f64 = sorted.iter().map(|x| (x - all).powi(2)).sum();
    let part = |part: &[f64]| part.len() as f64 * (mean(part) - all).powi(2);
    if total > 0.0 {
        (part(&sorted[..at]) + part(&sorted[at..])) / total
    } else {
        0.0
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_that_goes_back_and_forth_has_two_levels() {
        let both = [
            80, 12, 11, 78, 82, 0, 12, 81, 13, 12, 79, 80, 11, 12, 83, 80,
        ];
        let (low, high) = two_levels(&both.map(|n| n * 1000)).unwrap();
        assert!((low - 11_800.0).abs() < 500.0, "{low}");
        assert!((high - 80_300.0).abs() < 500.0, "{high}");
    }

    #[test]
    fn warm_ups_pauses_noise_and_short_series_have_one() {
        let once = [20, 21, 19, 20, 80, 81, 79, 80, 82, 80, 81];
        let pause = [80, 81, 79, 20, 21, 20, 19, 80, 82, 80, 81, 79];
        let even = [10, 19, 12, 17, 14, 15, 11, 18, 13, 16, 20, 21];
        let near = [100, 140, 100, 140, 100, 140, 100, 140, 100, 140];
        let same = [5; 20];
        let rare = [80, 80, 80, 20, 80, 80, 80, 80, 80, 20, 80, 80, 80, 80, 80];
        for one in [&once[..], &pause, &even, &near, &same, &rare] {
            assert_eq!(two_levels(one), None, "{one:?}");
        }
        assert_eq!(two_levels(&[1, 9, 1, 9, 1, 9, 1, 9, 1]), None);
        assert!(two_levels(&[1, 9, 1, 9, 1, 9, 1, 9, 1, 9]).is_some());
    }
}
