//! Intended starts of operations. Pure arithmetic on nanoseconds since the start of the phase.
//!
//! A rate is the total over all clients. Even and burst arrivals are dealt out to the clients in
//! turn. Poisson arrivals are one independent process per client; their sum is a Poisson process of
//! the total rate.

pub use rumbench_core::trial::{Arrivals, Pace as Rate};

const SECOND_NS: f64 = 1e9;

/// Intended starts of one client.
#[derive(Debug, Clone)]
pub struct Schedule {
    rate: Rate,
    clients: u64,
    /// Position of the client's next operation among all clients' operations.
    index: u64,
    /// Last Poisson arrival, in nanoseconds since the start of the phase.
    previous_ns: f64,
    random: u64,
}

impl Schedule {
    /// Returns the schedule of client `client` of `clients`.
    pub fn new(rate: Rate, client: usize, clients: usize, seed: u64) -> Schedule {
        Schedule {
            rate,
            clients: clients.max(1) as u64,
            index: client as u64,
            previous_ns: 0.0,
            random: seed ^ (client as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        }
    }

    /// Returns the intended start of the client's next operation, in nanoseconds since the start of
    /// the phase.
    pub fn next_ns(&mut self) -> u64 {
        let index = self.index;
        self.index += self.clients;
        match self.rate.arrivals {
            Arrivals::Even => (index as f64 / self.rate.per_second * SECOND_NS) as u64,
            Arrivals::Burst => ((index as f64 / self.rate.per_second).floor() * SECOND_NS) as u64,
            Arrivals::Poisson => {
                let mean = SECOND_NS * self.clients as f64 / self.rate.per_second;
                self.previous_ns -= mean * (1.0 - self.uniform()).ln();
                self.previous_ns as u64
            }
        }
    }

    /// Returns what the next call of [`Schedule::next_ns`] returns.
    pub fn peek_ns(&self) -> u64 {
        self.clone().next_ns()
    }

    /// Returns the next number of splitmix64, mapped to [0, 1).
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(arrivals: Arrivals, clients: usize, until_ns: u64) -> Vec<u64> {
        let rate = Rate {
            per_second: 1000.0,
            arrivals,
        };
        let mut all = Vec::new();
        for client in 0..clients {
            let mut schedule = Schedule::new(rate, client, clients, 7);
            loop {
                let at = schedule.next_ns();
                if at >= until_ns {
                    break;
                }
                all.push(at);
            }
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn even_arrivals_of_three_clients_interleave_with_equal_gaps() {
        let all = starts(Arrivals::Even, 3, 1_000_000_000);
        assert_eq!(all.len(), 1000);
        assert!(
            all.windows(2)
                .all(|pair| (999_999..=1_000_001).contains(&(pair[1] - pair[0])))
        );
    }

    #[test]
    fn poisson_arrivals_keep_the_total_rate_and_vary_as_they_should() {
        let all = starts(Arrivals::Poisson, 4, 20_000_000_000);
        assert!((19_300..20_700).contains(&all.len()), "{}", all.len());
        let gaps: Vec<f64> = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let variation = variance.sqrt() / mean;
        assert!((0.95..1.05).contains(&variation), "{variation}");
    }

    #[test]
    fn burst_arrivals_come_at_the_start_of_each_second() {
        let all = starts(Arrivals::Burst, 2, 2_000_000_000);
        assert_eq!(all.len(), 2000);
        assert_eq!((all[999], all[1000]), (0, 1_000_000_000));
    }
}
