//! Whether a series goes back and forth between two levels: a throughput that does is no property of the engine alone, for
//! something else decides which of the two it is at, as the cores on which threads happen to run. Its mean says nothing then.

/// Fewer intervals say nothing.
const INTERVALS_MIN: usize = 10;
/// The share of a series that each level has at least.
const SHARE_MIN: f64 = 0.2;
/// The upper level is at least so many times the lower one.
const RATIO_MIN: f64 = 1.5;
/// How much of the variance of the logarithms the two levels explain at least. Of evenly spread numbers the best split explains
/// three quarters, of normal ones 0.64.
const EXPLAINED_MIN: f64 = 0.85;
/// How often the series changes its level at least: once is a warm-up or a decline, twice a pause.
const CHANGES_MIN: usize = 3;

/// The two levels, lower first, between which these numbers go back and forth. Zeros are stalls, and left out.
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

/// The share of the variance that remains between the means of the parts below and from `at` on.
fn explained_by(sorted: &[f64], at: usize) -> f64 {
    let all = mean(sorted);
    let total: f64 = sorted.iter().map(|x| (x - all).powi(2)).sum();
    let part = |part: &[f64]| part.len() as f64 * (mean(part) - all).powi(2);
    match total > 0.0 {
        true => (part(&sorted[..at]) + part(&sorted[at..])) / total,
        false => 0.0,
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
