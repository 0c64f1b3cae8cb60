//! Distributions of LinkBench: popularity ranks, ids per multi-get, payload lengths.

use crate::random::Random;

/// Zeta is approximated for this many ranks and more.
const ZETA_EXACT_BELOW: u64 = 100_000;

/// Zipf ranks in the form of Gray et al. (1994), with constants computed once.
///
/// The draw is not an exact Zipf: for r >= 2, P(rank < r) = ((r/n)^(1-theta) - 1 + eta) / eta.
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    count: f64,
    last: u64,
    zeta: f64,
    eta: f64,
    alpha: f64,
    second: f64,
}

impl Zipf {
    /// Creates ranks [0, count) with shape `theta`. A shape of 1 has a zeta but cannot be drawn:
    /// callers reject it.
    ///
    /// # Panics
    /// Panics if `count` is 0 or `theta` is not above 0.
    pub fn new(count: u64, theta: f64) -> Zipf {
        assert!(
            count > 0 && theta > 0.0,
            "zipf of {count} ranks, shape {theta}"
        );
        let n = count as f64;
        let zeta = zeta(count, theta);
        let second = 1.0 + 0.5f64.powf(theta);
        Zipf {
            count: n,
            last: count - 1,
            zeta,
            eta: (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - second / zeta),
            alpha: 1.0 / (1.0 - theta),
            second,
        }
    }

    /// Returns the sum of k^-theta over the ranks; for many ranks it is an approximation.
    pub fn zeta(&self) -> f64 {
        self.zeta
    }

    /// Returns the constant eta of the draw.
    pub fn eta(&self) -> f64 {
        self.eta
    }

    /// Returns the rank at the uniform draw `p` in [0, 1).
    #[inline]
    pub fn quantile(&self, p: f64) -> u64 {
        let scaled = p * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1.min(self.last);
        }
        let rank = self.count * (self.eta * p - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.last)
    }

    /// Returns S, the sum of squared access probabilities: the speed at which hot lists grow (see
    /// the guide).
    pub fn sum_of_squares(&self) -> f64 {
        let below = |rank: f64| match rank {
            0.0 => 0.0,
            1.0 => (1.0 / self.zeta).min(1.0),
            _ => {
                let share = (rank / self.count).powf(1.0 / self.alpha);
                ((share - 1.0 + self.eta) / self.eta).min(1.0)
            }
        };
        let head = 10_000.min(self.last + 1);
        (0..head)
            .map(|rank| {
                (below(rank as f64 + 1.0) - below(rank as f64))
                    .max(0.0)
                    .powi(2)
            })
            .sum()
    }
}

fn zeta(count: u64, theta: f64) -> f64 {
    let n = count as f64;
    if count < ZETA_EXACT_BELOW || theta > 1.0 {
        return power_sum(count, theta);
    }
    if theta == 1.0 {
        return n.ln() + 0.577_22;
    }
    n.powf(1.0 - theta) / (1.0 - theta) + 0.58 - 1.0 / (1.0 - theta)
}

/// Returns the sum of k^-theta for k from 1 to `count`, by the formula of Euler and Maclaurin from
/// the 1000th term on. The first term that it leaves out is below 10^-18.
///
/// Each client computes it for each operation of a mix, so it must not take a step for each rank.
fn power_sum(count: u64, theta: f64) -> f64 {
    const DIRECT: u64 = 1000;
    let added = (1..=count.min(DIRECT - 1)).map(|k| (k as f64).powf(-theta));
    let head: f64 = added.sum();
    if count < DIRECT {
        return head;
    }
    let (from, to) = (DIRECT as f64, count as f64);
    let span = (to / from).ln();
    // The integral of x^-theta, without a difference of two large powers near theta = 1.
    let integral = if theta == 1.0 {
        span
    } else {
        from.powf(1.0 - theta) * ((1.0 - theta) * span).exp_m1() / (1.0 - theta)
    };
    let value = |x: f64| x.powf(-theta);
    let first = |x: f64| -theta * x.powf(-theta - 1.0);
    let third = |x: f64| -theta * (theta + 1.0) * (theta + 2.0) * x.powf(-theta - 3.0);
    head + integral + (value(from) + value(to)) / 2.0 + (first(to) - first(from)) / 12.0
        - (third(to) - third(from)) / 720.0
}

/// Popularity of the ranks [0, count).
#[derive(Debug, Clone, Copy)]
pub enum Popularity {
    /// Rank 0 is the most popular; popularity falls by a power.
    Zipf(Zipf),
    /// All ranks are equally popular; the field is their number.
    Uniform(u64),
}

impl Popularity {
    /// Draws a rank.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Popularity::Zipf(zipf) => zipf.quantile(random.unit()),
            Popularity::Uniform(count) => random.below(*count),
        }
    }
}

/// Geometric numbers starting at `min`, capped at `max` - 1.
#[derive(Debug, Clone, Copy)]
pub struct Geometric {
    min: u64,
    last: u64,
    per_log: f64,
    rounds_up: bool,
}

impl Geometric {
    /// Creates numbers in [min, max) with success probability `probability`. `rounds_up` selects
    /// the reference's quantile. It is one too high (D3) and practically never gives `min`.
    ///
    /// # Panics
    /// Panics unless 0 < probability < 1 and min < max.
    pub fn new(min: u64, max: u64, probability: f64, rounds_up: bool) -> Geometric {
        assert!(min < max && probability > 0.0 && probability < 1.0);
        Geometric {
            min,
            last: max - 1,
            per_log: 1.0 / (1.0 - probability).ln(),
            rounds_up,
        }
    }

    /// Returns the number at the uniform draw `p` in [0, 1).
    pub fn quantile(&self, p: f64) -> u64 {
        let steps = (1.0 - p).ln() * self.per_log;
        let steps = if self.rounds_up {
            steps.ceil()
        } else {
            steps.floor()
        };
        (self.min + steps as u64).min(self.last)
    }

    /// Draws a number.
    pub fn draw(&self, random: &mut Random) -> u64 {
        self.quantile(random.unit())
    }
}

/// Payload lengths: log-normal with sigma 1, clamped to [0, cap).
#[derive(Debug, Clone, Copy)]
pub struct LogNormal {
    mu: f64,
    last: f64,
}

impl LogNormal {
    /// Creates lengths with this median, below `cap`.
    ///
    /// # Panics
    /// Panics if `median` or `cap` is 0.
    pub fn new(median: u64, cap: u64) -> LogNormal {
        assert!(median > 0 && cap > 0);
        LogNormal {
            mu: (median as f64).ln(),
            last: (cap - 1) as f64,
        }
    }

    /// Draws a length in bytes.
    pub fn draw(&self, random: &mut Random) -> usize {
        (self.mu + random.gaussian())
            .exp()
            .round()
            .clamp(0.0, self.last) as usize
    }

    /// Returns the mean length in bytes without the clamp.
    pub fn mean(&self) -> f64 {
        (self.mu + 0.5).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(mut draw: impl FnMut(&mut Random) -> f64) -> f64 {
        let mut random = Random::new(11);
        (0..300_000).map(|_| draw(&mut random)).sum::<f64>() / 300_000.0
    }

    #[test]
    fn sums_of_powers_are_those_of_all_their_terms() {
        for theta in [0.3, 0.99, 1.0, 1.000_001, 1.2, 3.0] {
            for count in [1, 2, 999, 1000, 1001, 5000, 1_000_000] {
                // From the smallest term on, so that the sum itself is exact.
                let terms = (1..=count).rev().map(|k| (k as f64).powf(-theta));
                let exact: f64 = terms.sum();
                let found = power_sum(count, theta);
                assert!(
                    (found / exact - 1.0).abs() < 1e-13,
                    "{count}, {theta}: {found}, not {exact}"
                );
            }
        }
    }

    #[test]
    fn geometric_means_are_those_of_both_forms() {
        let reference = Geometric::new(1, 128, 0.382, true);
        let repaired = Geometric::new(1, 128, 0.382, false);
        assert!((mean(|random| reference.draw(random) as f64) - 3.62).abs() < 0.02);
        assert!((mean(|random| repaired.draw(random) as f64) - 2.62).abs() < 0.02);
        assert_eq!((reference.quantile(0.0), reference.quantile(1e-9)), (1, 2));
        assert_eq!(
            (repaired.quantile(0.0), repaired.quantile(1.0 - 1e-16)),
            (1, 77)
        );
    }

    #[test]
    fn payload_lengths_have_the_published_means() {
        let link = LogNormal::new(23, 255);
        let node = LogNormal::new(168, 1 << 20);
        assert!((mean(|random| link.draw(random) as f64) - 36.95).abs() < 0.3);
        assert!((mean(|random| node.draw(random) as f64) - 277.0).abs() < 2.5);
        let mut random = Random::new(3);
        assert!((0..100_000).all(|_| link.draw(&mut random) <= 254));
    }

    #[test]
    fn sum_of_squares_matches_the_published_table() {
        for (count, expected) in [
            (100_000, 1.16e-3),
            (1_000_000, 4.32e-4),
            (10_000_000, 1.65e-4),
        ] {
            let found = Zipf::new(count, 0.8).sum_of_squares();
            assert!((found / expected - 1.0).abs() < 0.01, "{count}: {found}");
        }
    }

    #[test]
    fn a_shape_above_one_draws_within_range_and_favors_the_head() {
        let zipf = Zipf::new(50_000, 1.2);
        let mut random = Random::new(5);
        let ranks: Vec<u64> = (0..10_000).map(|_| zipf.quantile(random.unit())).collect();
        assert!(ranks.iter().all(|rank| *rank < 50_000));
        assert!(ranks.iter().filter(|rank| **rank < 10).count() > 5_000);
    }
}
