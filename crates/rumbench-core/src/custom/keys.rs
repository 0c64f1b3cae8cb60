//! Draws of the rows that operations select, for each distribution.
//!
//! Ranks of a power law come from LinkBench's generator, the form of Gray et al. that YCSB uses
//! too. Scrambled ranks are drawn from 10^10 ranks for any table size and spread over the table by
//! a hash, as in YCSB.

use super::definition::Keys;
use super::population::Population;
use crate::linkbench::distribution::Zipf;
use crate::random::{Random, mix};

/// Ranks of a scrambled power law below exponent 1 (YCSB's ScrambledZipfianGenerator: ITEM_COUNT).
const SCRAMBLED_RANKS: u64 = 10_000_000_000;
/// Key of the hash of ranks.
const SCRAMBLE: u64 = 0x7363_7261;

/// The distribution of one operation of one client.
#[derive(Debug, Clone)]
pub struct Chooser {
    form: Form,
    /// Number of the client, and number of clients.
    client: (u64, u64),
}

#[derive(Debug, Clone)]
enum Form {
    Uniform,
    /// Rank 0 is the lowest row.
    Ranked(Zipf),
    /// Ranks, spread over this number of rows.
    Scrambled(Zipf, u64),
    Latest(Zipf),
    Sequential(Option<u64>),
    Hotspot {
        rows: f64,
        operations: f64,
    },
}

impl Chooser {
    /// Creates a distribution. `rows` is the size of the table when the phase begins; ranks are
    /// drawn from it until the phase ends.
    pub fn new(keys: Keys, rows: u64, client: (u64, u64)) -> Chooser {
        let rows = rows.max(1);
        let form = match keys {
            Keys::Uniform => Form::Uniform,
            Keys::Zipfian {
                theta,
                scrambled: false,
            } => Form::Ranked(Zipf::new(rows, theta)),
            Keys::Zipfian { theta, .. } => {
                // From exponent 1 the sum over the ranks is not approximated, so the ranks are
                // limited to the table's size.
                let ranks = if theta < 1.0 { SCRAMBLED_RANKS } else { rows };
                Form::Scrambled(Zipf::new(ranks, theta), rows)
            }
            Keys::Latest { theta } => Form::Latest(Zipf::new(rows, theta)),
            Keys::Sequential => Form::Sequential(None),
            Keys::Hotspot { rows, operations } => Form::Hotspot { rows, operations },
        };
        Chooser { form, client }
    }

    /// Draws a row, and moves to the nearest row that is present, if there is one.
    #[inline]
    pub fn draw(&mut self, random: &mut Random, population: &Population) -> u64 {
        let (low, next) = population.bounds();
        let rows = (next - low).max(1);
        let drawn = match &mut self.form {
            Form::Uniform => low + random.below(rows),
            Form::Ranked(zipf) => low + zipf.quantile(random.unit()),
            Form::Scrambled(zipf, of) => {
                let hash = mix(SCRAMBLE, zipf.quantile(random.unit()));
                low + ((u128::from(hash) * u128::from(*of)) >> 64) as u64
            }
            Form::Latest(zipf) => {
                let age = zipf.quantile(random.unit());
                let wanted = next.saturating_sub(1 + age).max(low);
                return population.present_down_from(wanted).unwrap_or(wanted);
            }
            Form::Sequential(place) => {
                let (client, clients) = self.client;
                let start =
                    || low + (u128::from(rows) * u128::from(client) / u128::from(clients)) as u64;
                let wanted = place.unwrap_or_else(start);
                let wanted = if (low..next).contains(&wanted) {
                    wanted
                } else {
                    low
                };
                let found = population.present_from(wanted).unwrap_or(wanted);
                *place = Some(found + 1);
                return found;
            }
            Form::Hotspot {
                rows: share,
                operations,
            } => {
                let hot = ((rows as f64 * *share) as u64).clamp(1, rows);
                if random.unit() < *operations || hot == rows {
                    low + random.below(hot)
                } else {
                    low + hot + random.below(rows - hot)
                }
            }
        };
        let drawn = drawn.min(next.saturating_sub(1)).max(low);
        population.present_from(drawn).unwrap_or(drawn)
    }

    /// Draws a row for a delete; a sequential distribution takes the oldest row.
    pub fn draw_for_delete(&mut self, random: &mut Random, population: &Population) -> u64 {
        match self.form {
            Form::Sequential(_) => population.bounds().0,
            _ => self.draw(random, population),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: u64 = 1000;

    fn population() -> Population {
        let population = Population::default();
        population.reserve(ROWS);
        (0..ROWS).for_each(|number| population.note_inserted(number));
        population
    }

    /// Returns the number of draws of each row.
    fn drawn(keys: Keys, draws: usize) -> Vec<usize> {
        let (population, mut random) = (population(), Random::new(5));
        let mut chooser = Chooser::new(keys, ROWS, (1, 4));
        let mut counts = vec![0; ROWS as usize];
        for _ in 0..draws {
            counts[chooser.draw(&mut random, &population) as usize] += 1;
        }
        counts
    }

    #[test]
    fn a_power_law_gives_its_first_ranks_their_shares() {
        let plain = drawn(
            Keys::Zipfian {
                theta: 0.99,
                scrambled: false,
            },
            100_000,
        );
        // 1 / zeta(1000, 0.99) = 1 / 7.73.
        assert!((12_400..13_500).contains(&plain[0]), "{}", plain[0]);
        let mut scrambled = drawn(
            Keys::Zipfian {
                theta: 0.99,
                scrambled: true,
            },
            100_000,
        );
        assert!(scrambled[0] < 2000, "the first row is not the popular one");
        scrambled.sort_unstable();
        // 1 / 26.47 of the draws, plus other ranks that hash to the same row.
        assert!(
            (3_700..4_300).contains(&scrambled[999]),
            "{}",
            scrambled[999]
        );
        assert!(scrambled[0] > 10, "every row is drawn");
        let latest = drawn(Keys::Latest { theta: 0.99 }, 100_000);
        assert!((12_400..13_500).contains(&latest[999]), "{}", latest[999]);
        assert_eq!(
            plain.iter().rev().collect::<Vec<_>>(),
            latest.iter().collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_hotspot_has_its_share_of_the_operations() {
        let counts = drawn(
            Keys::Hotspot {
                rows: 0.2,
                operations: 0.8,
            },
            100_000,
        );
        let hot: usize = counts[..200].iter().sum();
        assert!((79_000..81_000).contains(&hot), "{hot}");
        assert!(counts.iter().all(|count| *count > 0));
    }

    #[test]
    fn a_sequence_begins_at_the_clients_own_place_and_goes_round() {
        let (population, mut random) = (population(), Random::new(5));
        let mut chooser = Chooser::new(Keys::Sequential, ROWS, (1, 4));
        let mut next = || chooser.draw(&mut random, &population);
        assert_eq!((next(), next()), (250, 251));
        let round: Vec<u64> = (0..748).map(|_| next()).collect();
        assert_eq!(round.last(), Some(&999));
        assert_eq!(next(), 0);
        population.claim(1);
        assert_eq!(next(), 2, "over a row that leaves");
    }

    #[test]
    fn draws_select_only_present_rows() {
        let population = population();
        (0..ROWS)
            .filter(|n| n % 3 != 0)
            .for_each(|n| assert!(population.claim(n)));
        let mut random = Random::new(9);
        for keys in [
            Keys::Uniform,
            Keys::Zipfian {
                theta: 1.2,
                scrambled: true,
            },
            Keys::Latest { theta: 0.5 },
        ] {
            let mut chooser = Chooser::new(keys, ROWS, (0, 1));
            let all = (0..2000).map(|_| chooser.draw(&mut random, &population));
            assert!(all.into_iter().all(|number| number % 3 == 0), "{keys:?}");
        }
    }
}
