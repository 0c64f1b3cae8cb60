//! Draws of the rows that operations select, for each distribution.
//!
//! Ranks of a power law come from LinkBench's generator, the form of Gray et al. that YCSB uses
//! too. Scrambled ranks are drawn from 10^10 ranks for any table size and spread over the table by
//! a hash, as in YCSB.
//!
//! Popularity belongs to a *place*, so that popular rows stay popular while others are deleted: see
//! `Ring`.

use super::definition::Keys;
use super::population::{Population, State};
use crate::linkbench::distribution::Zipf;
use crate::random::{Random, mix};

/// Ranks of a scrambled power law below exponent 1 (YCSB's ScrambledZipfianGenerator: ITEM_COUNT).
const SCRAMBLED_RANKS: u64 = 10_000_000_000;
/// Key of the hash of ranks.
const SCRAMBLE: u64 = 0x7363_7261;

/// Key of the draws that replace one of a deleted row.
const REDRAW: u64 = 0x7265_6472;
/// Draws after which a row is drawn uniformly, because few popular rows are left.
const DRAWS_MAX: usize = 64;

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
    Placed(Places, Ring),
    Latest(Zipf),
    Sequential(Option<u64>),
}

/// Distribution over the places of a ring.
#[derive(Debug, Clone)]
enum Places {
    /// Rank 0 has place 0.
    Ranked(Zipf),
    /// Ranks, spread over the places by a hash.
    Scrambled(Zipf),
    /// Share of the operations for the first places, and their number.
    Hotspot { operations: f64, places: u64 },
}

/// Places of the rows that a table has when a phase begins: `rows` of them, from the row `first`
/// on. A row has the place of its number minus `first`, modulo `rows`. So it keeps its place while
/// other rows are deleted, and where inserts follow deletes of the oldest rows, a new row has the
/// place of the one that left.
#[derive(Debug, Clone, Copy)]
struct Ring {
    first: u64,
    rows: u64,
}

impl Ring {
    /// Returns the row from `low` on that has a place and is the next one.
    fn row_at(self, place: u64, low: u64) -> u64 {
        let turned = low.saturating_sub(self.first) % self.rows;
        low + (place + self.rows - turned) % self.rows
    }
}

impl Places {
    #[inline]
    fn draw(&self, ring: Ring, random: &mut Random) -> u64 {
        let spread = |hash: u64| ((u128::from(hash) * u128::from(ring.rows)) >> 64) as u64;
        match self {
            Places::Ranked(zipf) => zipf.quantile(random.unit()),
            Places::Scrambled(zipf) => spread(mix(SCRAMBLE, zipf.quantile(random.unit()))),
            Places::Hotspot { operations, places } => {
                if random.unit() < *operations || *places == ring.rows {
                    random.below(*places)
                } else {
                    places + random.below(ring.rows - places)
                }
            }
        }
    }
}

impl Chooser {
    /// Creates a distribution. `bounds` are the lowest row of the table when the phase begins and
    /// the number above its highest: places are drawn from them until the phase ends.
    pub fn new(keys: Keys, bounds: (u64, u64), client: (u64, u64)) -> Chooser {
        let first = bounds.0;
        let rows = (bounds.1 - first).max(1);
        let placed = |places| Form::Placed(places, Ring { first, rows });
        let form = match keys {
            Keys::Uniform => Form::Uniform,
            // There is no place yet.
            Keys::Zipfian { .. } | Keys::Hotspot { .. } if bounds.0 == bounds.1 => Form::Uniform,
            Keys::Zipfian {
                theta,
                scrambled: false,
            } => placed(Places::Ranked(Zipf::new(rows, theta))),
            Keys::Zipfian { theta, .. } => {
                // From exponent 1 the first ranks have nearly all draws in any number of ranks.
                let ranks = if theta < 1.0 { SCRAMBLED_RANKS } else { rows };
                placed(Places::Scrambled(Zipf::new(ranks, theta)))
            }
            Keys::Latest { theta } => Form::Latest(Zipf::new(rows, theta)),
            Keys::Sequential => Form::Sequential(None),
            Keys::Hotspot {
                rows: share,
                operations,
            } => placed(Places::Hotspot {
                operations,
                places: ((rows as f64 * share) as u64).clamp(1, rows),
            }),
        };
        Chooser { form, client }
    }

    /// Draws a row that is present, if there is one.
    ///
    /// The rows of a power law or a hotspot have the law's shares of the draws, divided by the
    /// share of the places that have a row. The other distributions move from a row that is not
    /// present to the nearest one.
    #[inline]
    pub fn draw(&mut self, random: &mut Random, population: &Population) -> u64 {
        let (low, next) = population.bounds();
        let rows = (next - low).max(1);
        let drawn = match &mut self.form {
            Form::Uniform => low + random.below(rows),
            Form::Placed(places, ring) => {
                let row = ring.row_at(places.draw(*ring, random), low);
                if population.state(row) == State::Present {
                    return row;
                }
                return redraw(places, *ring, random, population);
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
        };
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

/// Draws again after a draw of a place without a row. The generator of the client is not used, so
/// that its later operations do not depend on what other clients have deleted.
#[cold]
fn redraw(places: &Places, ring: Ring, random: &Random, population: &Population) -> u64 {
    let mut random = Random::keyed(random.clone().bits(), &[REDRAW]);
    let (low, next) = population.bounds();
    for _ in 1..DRAWS_MAX {
        let row = ring.row_at(places.draw(ring, &mut random), low);
        if population.state(row) == State::Present {
            return row;
        }
    }
    let drawn = low + random.below((next - low).max(1));
    population.present_from(drawn).unwrap_or(drawn)
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
        let mut chooser = Chooser::new(keys, (0, ROWS), (1, 4));
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

    /// Deletes this many of the oldest rows.
    fn delete_oldest(population: &Population, count: u64) {
        let low = population.bounds().0;
        for row in low..low + count {
            assert!(population.claim(row));
            population.note_deleted(row);
        }
    }

    fn insert(population: &Population, count: u64) {
        for _ in 0..count {
            population.note_inserted(population.take());
        }
    }

    /// Checks that the places below each border have their shares of the draws: those of `law` (the
    /// probability of each place), among the places that have a row.
    fn check_shares(chooser: &mut Chooser, population: &Population, law: &[f64]) {
        const DRAWS: usize = 40_000;
        let rows = law.len() as u64;
        let (low, next) = population.bounds();
        let has_row = |place: u64| {
            let row = low + (place + rows - low % rows) % rows;
            row < next && population.state(row) == State::Present
        };
        let left = |(place, share): (usize, &f64)| if has_row(place as u64) { *share } else { 0.0 };
        let left: Vec<f64> = law.iter().enumerate().map(left).collect();
        let whole: f64 = left.iter().sum();
        let mut random = Random::new(11);
        let drawn = (0..DRAWS).map(|_| chooser.draw(&mut random, population) % rows);
        let mut drawn: Vec<u64> = drawn.collect();
        drawn.sort_unstable();
        for border in [1, 2, 5, rows / 100, rows / 3, rows / 2, rows] {
            let expected: f64 = left.iter().take(border as usize).sum::<f64>() / whole;
            let found = drawn.partition_point(|place| *place < border) as f64 / DRAWS as f64;
            let deviation = (expected * (1.0 - expected) / DRAWS as f64).sqrt();
            assert!(
                (found - expected).abs() <= 4.5 * deviation + 1e-9,
                "{rows} rows, {low} deleted, below place {border}: {found}, not {expected}"
            );
        }
    }

    /// Returns the probability of each rank of a power law, from the inverse of its quantiles.
    fn power_law(rows: u64, theta: f64) -> Vec<f64> {
        let zipf = Zipf::new(rows, theta);
        let (n, eta) = (rows as f64, zipf.eta());
        let below = |rank: u64| match rank {
            0 => 0.0,
            _ if rank >= rows => 1.0,
            1 => 1.0 / zipf.zeta(),
            _ => ((rank as f64 / n).powf(1.0 - theta) - 1.0 + eta) / eta,
        };
        (0..rows)
            .map(|rank| below(rank + 1) - below(rank))
            .collect()
    }

    #[test]
    fn popular_rows_stay_popular_while_other_rows_are_deleted() {
        for rows in [1, 2, 3, 10, 1000, 1_000_000] {
            let hot = (rows / 5).max(1);
            let cold_share = 0.2 / (rows - hot).max(1) as f64;
            let hotspot = |place| {
                if place < hot {
                    0.8 / hot as f64
                } else {
                    cold_share
                }
            };
            let mut hotspot: Vec<f64> = (0..rows).map(hotspot).collect();
            if rows == 1 {
                hotspot[0] = 1.0;
            }
            let plain = Keys::Zipfian {
                theta: 0.99,
                scrambled: false,
            };
            let spots = Keys::Hotspot {
                rows: 0.2,
                operations: 0.8,
            };
            for (keys, law) in [(plain, power_law(rows, 0.99)), (spots, hotspot)] {
                let population = Population::default();
                insert(&population, rows);
                let mut chooser = Chooser::new(keys, (0, rows), (0, 1));
                check_shares(&mut chooser, &population, &law);
                // New rows take the places of the oldest ones.
                delete_oldest(&population, rows / 3);
                insert(&population, rows / 3);
                check_shares(&mut chooser, &population, &law);
                delete_oldest(&population, rows / 3);
                check_shares(&mut chooser, &population, &law);
            }
        }
    }

    #[test]
    fn the_most_popular_scrambled_row_keeps_its_share_over_deletes_of_the_oldest() {
        let population = population();
        let keys = Keys::Zipfian {
            theta: 0.99,
            scrambled: true,
        };
        let mut chooser = Chooser::new(keys, (0, ROWS), (0, 1));
        let mut hottest = |seed| {
            let mut random = Random::new(seed);
            let mut counts = std::collections::HashMap::new();
            for _ in 0..50_000 {
                *counts
                    .entry(chooser.draw(&mut random, &population))
                    .or_insert(0) += 1;
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count);
            delete_oldest(&population, 50);
            insert(&population, 50);
            most.expect("rows")
        };
        let (row, before) = hottest(1);
        let (after_row, after) = hottest(2);
        assert_eq!(row, after_row);
        assert!((1_800..2_200).contains(&before) && (1_800..2_200).contains(&after));
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
        let mut chooser = Chooser::new(Keys::Sequential, (0, ROWS), (1, 4));
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
            let mut chooser = Chooser::new(keys, (0, ROWS), (0, 1));
            let all = (0..2000).map(|_| chooser.draw(&mut random, &population));
            assert!(all.into_iter().all(|number| number % 3 == 0), "{keys:?}");
        }
    }
}
