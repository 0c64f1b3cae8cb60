//! Random numbers from a seed, and random tests that report the seed of a failed case.
//!
//! The generator is for tests: fast, small, the same on every platform, not cryptographic.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use crate::budget::Deadline;

/// Environment variable that repeats one case: `ALLUVIUM_SEED=123 cargo test NAME`.
pub const SEED_VARIABLE: &str = "ALLUVIUM_SEED";

/// Small random number generator (xorshift64*, seeded through splitmix64).
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates a generator with numbers that depend only on `seed`.
    pub fn new(seed: u64) -> Rng {
        // The state of an xorshift must not be zero.
        let state = splitmix(seed).max(1);
        Rng { state }
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below 0");
        let wide = u128::from(self.next_u64()) * bound as u128;
        (wide >> 64) as usize
    }

    /// Returns a number in `range`.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn range(&mut self, range: Range<usize>) -> usize {
        range.start + self.below(range.end - range.start)
    }

    /// Returns true in `percent` of 100 calls.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `items`.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns an index into `weights`, each chosen in proportion to its weight.
    ///
    /// # Panics
    /// If all weights are 0.
    pub fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        unreachable!("the number is below the sum of the weights")
    }

    /// Returns `count` random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next_u64() as u8).collect()
    }

    /// Shuffles `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Returns a well-mixed number for each number.
pub(crate) fn splitmix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns the seed in [`SEED_VARIABLE`], if it is set.
///
/// # Panics
/// If it is set to something other than a number.
pub fn seed_from_env() -> Option<u64> {
    let value = std::env::var(SEED_VARIABLE).ok()?;
    let seed = value.trim().parse();
    Some(seed.unwrap_or_else(|_| panic!("{SEED_VARIABLE}={value} is no number")))
}

/// Runner of random tests, each case with its own seed that repeats it alone.
///
/// ```
/// use alluvium_testkit::Seeded;
///
/// Seeded::run("sorting_keeps_the_length", 100, |rng| {
///     let count = rng.below(20);
///     let mut bytes = rng.bytes(count);
///     bytes.sort_unstable();
///     assert_eq!(bytes.len(), count);
/// });
/// ```
pub struct Seeded;

impl Seeded {
    /// Runs `case` with `iterations` different seeds, or once with the seed in [`SEED_VARIABLE`].
    /// If a case panics, its seed is printed. The seeds differ from one run to the next.
    pub fn run(name: &str, iterations: usize, case: impl FnMut(&mut Rng)) {
        let mut left = iterations;
        Seeded::cases(name, case, || {
            left = left.saturating_sub(1);
            left > 0
        });
    }

    /// Runs cases like [`Seeded::run`] until the budget of one fuzz test is used up (see
    /// [`crate::fuzz_budget`]); at least once. Name such tests `fuzz_...`, so that `make test`
    /// gives them their minute. Prints the number of cases.
    #[expect(clippy::print_stdout, reason = "test output")]
    pub fn fuzz(name: &str, mut case: impl FnMut(&mut Rng)) {
        let (deadline, mut cases) = (Deadline::of_fuzz_budget(), 0u64);
        let counted = |rng: &mut Rng| {
            cases += 1;
            case(rng);
        };
        Seeded::cases(name, counted, || !deadline.passed());
        println!("fuzz: {cases} cases of {name}");
    }

    fn cases(name: &str, mut case: impl FnMut(&mut Rng), mut another: impl FnMut() -> bool) {
        let fixed = seed_from_env();
        let first = fixed.unwrap_or_else(|| RandomState::new().hash_one(name));
        for number in 0.. {
            let seed = first.wrapping_add(number);
            let _report = SeedReport { name, seed };
            case(&mut Rng::new(seed));
            if fixed.is_some() || !another() {
                return;
            }
        }
    }
}

/// Prints the seed when dropped during a panic.
struct SeedReport<'a> {
    name: &'a str,
    seed: u64,
}

impl Drop for SeedReport<'_> {
    #[expect(clippy::print_stderr, reason = "test output")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let SeedReport { name, seed } = self;
            eprintln!("{name} failed; to repeat this case alone: {SEED_VARIABLE}={seed}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_and_others_differ() {
        let numbers = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert_ne!(numbers(0), [0, 0]);
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_all_of_it() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[rng.range(10..15) - 10] += 1;
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    }

    #[test]
    fn weights_decide_how_often_an_index_comes() {
        let mut rng = Rng::new(2);
        let mut seen = [0; 3];
        for _ in 0..1000 {
            seen[rng.weighted(&[1, 0, 9])] += 1;
        }
        assert_eq!(seen[1], 0);
        assert!(seen[2] > 5 * seen[0], "{seen:?}");
    }

    #[test]
    fn shuffling_keeps_the_items() {
        let mut items: Vec<u32> = (0..50).collect();
        Rng::new(3).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<u32>>());
    }

    #[test]
    fn each_iteration_has_numbers_of_its_own() {
        let mut seen = Vec::new();
        Seeded::run("each_iteration", 10, |rng| seen.push(rng.next_u64()));
        let expected = if seed_from_env().is_some() { 1 } else { 10 };
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), expected);
    }
}
