//! Universal Scalability Law: throughput as a function of concurrency, with three parameters.
//!
//! `X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))` (N. J. Gunther, Guerrilla Capacity
//! Planning, Springer 2007, chapters 4 to 6; the form with lambda as in later texts). lambda is the
//! throughput of one client, sigma the share of the work that is serial, kappa the cost of
//! coherency between each pair of clients. With kappa above 0, throughput has its peak at `sqrt((1
//! - sigma) / kappa)` clients and falls above it; with kappa 0 it approaches `lambda / sigma`.
//!
//! `N / X = a + b (N - 1) + c N (N - 1)` is linear in a = 1/lambda, b = sigma/lambda and c =
//! kappa/lambda. Noise of throughput is a factor, so the fit uses logarithms, by Gauss-Newton from
//! the linear solution. Neither sigma nor kappa may be negative: if one is negative in the best
//! fit, it is set to 0. Intervals of quotients are Fieller's, which can have no upper end.

use super::least_squares::{Solution, solve};
use super::statistics::t_98;
use crate::store::sweep::Estimate;

/// Minimum number of different numbers of clients for a fit: one more than it has parameters.
pub const POINTS_MIN: usize = 4;

/// Indexes of the parameters (a, b, c) that a fit may use, the largest model first.
const MODELS: [&[usize]; 4] = [&[0, 1, 2], &[0, 1], &[0, 2], &[0]];

/// Fitted curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Throughput of one client in operations per second.
    pub lambda: Estimate,
    /// Contention: the serial share of the work.
    pub sigma: Estimate,
    /// Coherency: the cost for each pair of clients.
    pub kappa: Estimate,
    /// Number of clients at the peak, 1 or more; `None` if kappa is 0.
    pub peak: Option<Estimate>,
    /// Relative deviation of each trial from the fit, in the order given.
    pub errors: Vec<f64>,
    /// True if throughput grows faster than clients, which no sigma explains.
    pub superlinear: bool,
}

impl Fit {
    /// Returns the throughput of this number of clients.
    pub fn at(&self, clients: f64) -> f64 {
        throughput(
            self.lambda.value,
            self.sigma.value,
            self.kappa.value,
            clients,
        )
    }

    /// Returns the whole number of clients at the peak, and its throughput.
    pub fn peak_whole(&self) -> Option<(f64, f64)> {
        let peak = self.peak?.value;
        let both = [peak.floor().max(1.0), peak.ceil()].map(|clients| (clients, self.at(clients)));
        both.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the limit of throughput without a peak; `None` if there is a peak or no limit.
    pub fn limit(&self) -> Option<f64> {
        let bounded = self.peak.is_none() && self.sigma.value > 0.0;
        bounded.then(|| self.lambda.value / self.sigma.value)
    }

    /// Returns the root mean square of the errors.
    pub fn error_rms(&self) -> f64 {
        let squares: f64 = self.errors.iter().map(|error| error * error).sum();
        (squares / self.errors.len().max(1) as f64).sqrt()
    }
}

/// Evaluates the law.
pub fn throughput(lambda: f64, sigma: f64, kappa: f64, clients: f64) -> f64 {
    lambda * clients / (1.0 + sigma * (clients - 1.0) + kappa * clients * (clients - 1.0))
}

/// Fits (clients, throughput) pairs, one for each trial. `None` for fewer than [`POINTS_MIN`]
/// different numbers of clients, or if no such curve describes them.
pub fn fit(trials: &[(f64, f64)]) -> Option<Fit> {
    let usable = |&(n, x): &(f64, f64)| n >= 1.0 && n.is_finite() && x > 0.0 && x.is_finite();
    if different(trials) < POINTS_MIN || !trials.iter().all(usable) {
        return None;
    }
    let full = descend(trials, MODELS[0]);
    let sound = |(values, _): &([f64; 3], Solution)| {
        values[0] > 0.0 && values[1] >= 0.0 && values[2] >= 0.0
    };
    let best = match full.as_ref().filter(|found| sound(found)) {
        Some(found) => found.clone(),
        // A parameter is at its bound: use the best of the smaller models.
        None => {
            let smaller = MODELS[1..].iter().filter_map(|m| descend(trials, m));
            smaller
                .filter(sound)
                .min_by(|a, b| a.1.squares.total_cmp(&b.1.squares))?
        }
    };
    let (values, _) = best;
    let (sigma, kappa) = (values[1] / values[0], values[2] / values[0]);
    let intervals = full.as_ref().map(|(values, solution)| Intervals {
        values,
        solution,
        t: t_98(solution.freedom),
    });
    let of = |value: f64, ends: fn(&Intervals<'_>) -> Option<FirstAndLast>| {
        estimate(value, intervals.as_ref().and_then(ends))
    };
    let peak = (kappa > 0.0).then(|| {
        let clients = ((1.0 - sigma).max(0.0) / kappa).sqrt().max(1.0);
        let mut peak = of(clients, |i| i.peak());
        peak.low = peak.low.map(|low| low.max(1.0));
        peak
    });
    let mut found = Fit {
        lambda: of(1.0 / values[0], |i| i.lambda()),
        sigma: of(sigma, |i| i.quotient(1)),
        kappa: of(kappa, |i| i.quotient(2)),
        peak,
        errors: Vec::new(),
        superlinear: full.as_ref().is_some_and(|(values, _)| values[1] < 0.0),
    };
    found.errors = trials.iter().map(|&(n, x)| x / found.at(n) - 1.0).collect();
    Some(found)
}

/// Returns the number of different numbers of clients.
pub fn different(trials: &[(f64, f64)]) -> usize {
    let mut clients: Vec<f64> = trials.iter().map(|(n, _)| *n).collect();
    clients.sort_by(f64::total_cmp);
    clients.dedup();
    clients.len()
}

fn basis(n: f64) -> [f64; 3] {
    [1.0, n - 1.0, n * (n - 1.0)]
}

fn per_client(values: &[f64; 3], n: f64) -> f64 {
    basis(n).iter().zip(values).map(|(b, v)| b * v).sum()
}

/// Returns the best a, b and c of one model, and the last linear step; its covariance is that of
/// the values.
fn descend(trials: &[(f64, f64)], model: &[usize]) -> Option<([f64; 3], Solution)> {
    /// Maximum number of steps: each at least halves the distance, and few are needed.
    const STEPS: usize = 60;
    let rows = |weight: &dyn Fn(f64, f64) -> f64| -> Vec<Vec<f64>> {
        let row = |&(n, x): &(f64, f64)| {
            let (basis, weight) = (basis(n), weight(n, x));
            model.iter().map(|i| basis[*i] * weight).collect()
        };
        trials.iter().map(row).collect()
    };
    let spread = |found: &[f64]| {
        let mut values = [0.0; 3];
        for (place, value) in model.iter().zip(found) {
            values[*place] = *value;
        }
        values
    };
    let first = solve(&rows(&|n, x| x / n), &vec![1.0; trials.len()])?;
    let mut values = spread(&first.values);
    for _ in 0..STEPS {
        let logs = distances(trials, &values)?;
        let before: f64 = logs.iter().map(|log| log * log).sum();
        let step = solve(&rows(&|n, _| 1.0 / per_client(&values, n)), &logs)?;
        let full = spread(&step.values);
        let mut share = 1.0;
        let moved = loop {
            let next = std::array::from_fn(|i| values[i] + share * full[i]);
            let squares =
                distances(trials, &next).map(|logs| logs.iter().map(|log| log * log).sum::<f64>());
            if squares.is_some_and(|squares| squares <= before) {
                break Some(next);
            }
            share /= 2.0;
            if share < 1e-6 {
                break None;
            }
        };
        let Some(next) = moved else { break };
        let still = (0..3).all(|i| (next[i] - values[i]).abs() <= 1e-12 * values[0].abs());
        values = next;
        if still {
            break;
        }
    }
    let logs = distances(trials, &values)?;
    let last = solve(&rows(&|n, _| 1.0 / per_client(&values, n)), &logs)?;
    Some((values, last))
}

/// Returns the logarithms of measured over fitted time; `None` if the fit is not positive.
fn distances(trials: &[(f64, f64)], values: &[f64; 3]) -> Option<Vec<f64>> {
    let distance = |&(n, x): &(f64, f64)| {
        let fitted = per_client(values, n);
        (fitted > 0.0).then(|| (n / x / fitted).ln())
    };
    trials.iter().map(distance).collect()
}

/// Both ends of an interval, if they exist.
type FirstAndLast = (Option<f64>, Option<f64>);

/// Returns the interval around a value that may be at its bound, from the interval of the unbounded
/// fit.
fn estimate(value: f64, ends: Option<FirstAndLast>) -> Estimate {
    let (low, high) = ends.unwrap_or_default();
    Estimate {
        value,
        low: low.map(|low| low.clamp(0.0, value)),
        high: high.map(|high| high.max(value)),
    }
}

/// Intervals from the fit without bounds.
struct Intervals<'a> {
    values: &'a [f64; 3],
    solution: &'a Solution,
    t: f64,
}

impl Intervals<'_> {
    fn covariance(&self, i: usize, j: usize) -> Option<f64> {
        self.solution.covariance(i, j)
    }

    fn lambda(&self) -> Option<FirstAndLast> {
        let half = self.t * self.covariance(0, 0)?.sqrt();
        let (low, high) = (self.values[0] - half, self.values[0] + half);
        Some((Some(1.0 / high), (low > 0.0).then(|| 1.0 / low)))
    }

    /// Returns the interval of b/a or c/a.
    fn quotient(&self, i: usize) -> Option<FirstAndLast> {
        Some(fieller(
            (self.values[i], self.covariance(i, i)?),
            (self.values[0], self.covariance(0, 0)?),
            self.covariance(i, 0)?,
            self.t,
        ))
    }

    /// Returns the interval of the root of (a - b) / c.
    fn peak(&self) -> Option<FirstAndLast> {
        let of = |i, j| self.covariance(i, j);
        let above = of(0, 0)? + of(1, 1)? - 2.0 * of(0, 1)?;
        let (low, high) = fieller(
            (self.values[0] - self.values[1], above),
            (self.values[2], of(2, 2)?),
            of(0, 2)? - of(1, 2)?,
            self.t,
        );
        Some((
            low.map(|low| low.max(0.0).sqrt()),
            high.map(|high| high.max(0.0).sqrt()),
        ))
    }
}

/// Returns the interval of the quotient of two `(value, variance)` pairs, `above` and `below` (E.
/// C. Fieller, 1954). It has no upper end if the divisor may be 0.
fn fieller(above: (f64, f64), below: (f64, f64), covariance: f64, t: f64) -> FirstAndLast {
    let square = below.0 * below.0 - t * t * below.1;
    let middle = above.0 * below.0 - t * t * covariance;
    let rest = above.0 * above.0 - t * t * above.1;
    let root = middle * middle - square * rest;
    if root < 0.0 || square == 0.0 {
        return (None, None);
    }
    let ends = [-1.0, 1.0].map(|sign| (middle + sign * root.sqrt()) / square);
    let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    if square > 0.0 {
        (Some(low), Some(high))
    } else if above.0 / below.0 >= high {
        (Some(high), None)
    } else {
        (None, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(lambda: f64, sigma: f64, kappa: f64, clients: &[f64]) -> Vec<(f64, f64)> {
        let point = |n: &f64| (*n, throughput(lambda, sigma, kappa, *n));
        clients.iter().map(point).collect()
    }

    const DOUBLINGS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

    #[test]
    fn exact_curves_give_their_own_coefficients_and_peak() {
        for (sigma, kappa) in [(0.1, 0.002), (0.0, 0.01), (0.5, 1e-6), (0.02, 0.0005)] {
            let found = fit(&curve(12_345.0, sigma, kappa, &DOUBLINGS)).unwrap();
            assert!(
                (found.lambda.value / 12_345.0 - 1.0).abs() < 1e-9,
                "{found:?}"
            );
            assert!((found.sigma.value - sigma).abs() < 1e-9, "{found:?}");
            assert!((found.kappa.value - kappa).abs() < 1e-9, "{found:?}");
            let peak = found.peak.unwrap().value;
            assert!(
                (peak / ((1.0 - sigma) / kappa).sqrt() - 1.0).abs() < 1e-3,
                "{found:?}"
            );
            assert!(found.error_rms() < 1e-9 && !found.superlinear);
        }
    }

    #[test]
    fn the_peak_is_a_whole_number_of_clients_and_no_neighbor_is_better() {
        let found = fit(&curve(100.0, 0.05, 0.02, &DOUBLINGS)).unwrap();
        let (clients, best) = found.peak_whole().unwrap();
        assert_eq!(clients.fract(), 0.0);
        assert!(found.at(clients - 1.0) <= best && found.at(clients + 1.0) <= best);
        assert_eq!(found.limit(), None);
    }

    #[test]
    fn without_coherency_there_is_a_limit_and_no_peak() {
        let found = fit(&curve(100.0, 0.25, 0.0, &DOUBLINGS)).unwrap();
        assert!(found.kappa.value < 1e-9);
        // Rounding may leave a kappa above 0, with a peak that is far away.
        assert!(found.peak.is_none_or(|peak| peak.value > 1e4));
        let straight = fit(&curve(100.0, 0.0, 0.0, &DOUBLINGS)).unwrap();
        assert!(straight.sigma.value < 1e-9 && straight.at(64.0) > 6399.0);
    }

    #[test]
    fn better_than_linear_growth_is_named_and_not_fitted_with_a_negative_sigma() {
        let trials: Vec<(f64, f64)> = DOUBLINGS.iter().map(|n| (*n, 10.0 * n.powf(1.2))).collect();
        let found = fit(&trials).unwrap();
        assert!(found.superlinear, "{found:?}");
        assert!(
            found.sigma.value == 0.0 && found.kappa.value >= 0.0,
            "{found:?}"
        );
        assert!(
            found.error_rms() > 0.1,
            "the fit is bad and says so: {found:?}"
        );
    }

    #[test]
    fn more_clients_that_only_disturb_put_the_peak_at_one() {
        let found = fit(&curve(100.0, 0.9, 0.9, &DOUBLINGS)).unwrap();
        assert_eq!(found.peak_whole().unwrap().0, 1.0);
        let falls = fit(&curve(100.0, 1.5, 0.2, &DOUBLINGS)).unwrap();
        assert_eq!(falls.peak.unwrap().value, 1.0);
    }

    #[test]
    fn too_few_points_and_unusable_numbers_give_no_fit() {
        assert!(fit(&curve(100.0, 0.1, 0.01, &[1.0, 2.0, 4.0])).is_none());
        let same: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 1.0, 2.0, 4.0].map(|n| (n, 5.0)).into();
        assert!(fit(&same).is_none(), "repetitions are no further points");
        let mut none = curve(100.0, 0.1, 0.01, &DOUBLINGS);
        none[3].1 = 0.0;
        assert!(fit(&none).is_none());
    }

    /// Returns uniform numbers between 0 and 1 from a seed (splitmix64).
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn noisy(seed: u64, share: f64, sigma: f64, kappa: f64) -> Vec<(f64, f64)> {
        let mut state = seed;
        let mut trials = Vec::new();
        for _ in 0..3 {
            for (n, x) in curve(5000.0, sigma, kappa, &DOUBLINGS) {
                // A sum of twelve uniform numbers is nearly normal, with variance 1.
                let normal: f64 = (0..12).map(|_| uniform(&mut state) - 0.5).sum();
                trials.push((n, x * (normal * share).exp()));
            }
        }
        trials
    }

    fn holds(found: Estimate, truth: f64) -> bool {
        found.low.is_some_and(|low| low <= truth) && found.high.is_none_or(|high| truth <= high)
    }

    #[test]
    fn with_noise_the_interval_holds_the_truth_in_most_of_two_hundred_cases() {
        let (sigma, kappa) = (0.1, 0.004);
        let truth = ((1.0_f64 - sigma) / kappa).sqrt();
        let (mut sigmas, mut kappas, mut peaks, mut near) = (0, 0, 0, 0);
        for seed in 1..=200 {
            let found = fit(&noisy(seed, 0.03, sigma, kappa)).unwrap();
            sigmas += u32::from(holds(found.sigma, sigma));
            kappas += u32::from(holds(found.kappa, kappa));
            let peak = found.peak.unwrap();
            peaks += u32::from(holds(peak, truth));
            near += u32::from((peak.value / truth - 1.0).abs() < 0.2);
        }
        // Of 200 intervals at 98 %, 196 are expected to contain the truth.
        for count in [sigmas, kappas, peaks] {
            assert!((190..=200).contains(&count), "{sigmas} {kappas} {peaks}");
        }
        assert!(near >= 190, "{near}");
    }

    #[test]
    fn noise_over_a_curve_without_a_peak_seldom_proves_one() {
        let proven = (1..=200).filter(|seed| {
            let found = fit(&noisy(*seed, 0.05, 0.2, 0.0)).unwrap();
            found.peak.is_some_and(|peak| peak.high.is_some())
        });
        let count = proven.count();
        assert!(count <= 8, "{count} of 200");
    }
}
