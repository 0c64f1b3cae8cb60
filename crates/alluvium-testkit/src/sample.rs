//! Sample of very many cases: every crash point, every failing call, every bit.
//!
//! Such a test numbers its cases and tries those that a [`Sample`] selects. The default share fits
//! into a test run. The seed of the selection is printed on failure and differs each time;
//! `ALLUVIUM_ONE_IN=1` tries all cases.

use std::hash::{BuildHasher, RandomState};

use crate::random::{SEED_VARIABLE, seed_from_env, splitmix};

/// Environment variable for the share: one in this many cases is tried, as in `ALLUVIUM_ONE_IN=1
/// cargo test NAME`.
pub const ONE_IN_VARIABLE: &str = "ALLUVIUM_ONE_IN";

/// Selects cases by their numbers.
#[derive(Debug, Clone)]
pub struct Sample {
    name: &'static str,
    one_in: u64,
    seed: u64,
}

impl Sample {
    /// Creates a sample of one case in `one_in`, or in [`ONE_IN_VARIABLE`] if it is set.
    /// [`SEED_VARIABLE`] selects the cases; without it they differ each time.
    ///
    /// # Panics
    /// If one of the variables is set to something other than a number.
    pub fn new(name: &'static str, one_in: u64) -> Sample {
        let asked = std::env::var(ONE_IN_VARIABLE).ok().map(|value| {
            let number = value.trim().parse().ok().filter(|number| *number > 0);
            number.unwrap_or_else(|| panic!("{ONE_IN_VARIABLE}={value} is no number above 0"))
        });
        Sample {
            name,
            one_in: asked.unwrap_or(one_in).max(1),
            seed: seed_from_env().unwrap_or_else(|| RandomState::new().hash_one(name)),
        }
    }

    /// Creates a sample of all cases regardless of the variables, for a test that proves nothing
    /// with fewer.
    pub fn whole(name: &'static str) -> Sample {
        let (one_in, seed) = (1, RandomState::new().hash_one(name));
        Sample { name, one_in, seed }
    }

    /// Returns whether to try this case. The result depends only on the number and the seed, so
    /// threads may share the cases.
    pub fn takes(&self, case: u64) -> bool {
        self.random(case).is_multiple_of(self.one_in)
    }

    /// Selects like [`Sample::takes`], but only one case in `times` as many, even if all others are
    /// tried. Each of these contains many cases itself.
    pub fn takes_rarely(&self, case: u64, times: u64) -> bool {
        self.random(!case).is_multiple_of(self.one_in * times)
    }

    /// Returns a number that depends on the case and the seed.
    pub fn random(&self, case: u64) -> u64 {
        splitmix(self.seed ^ splitmix(case))
    }

    /// Returns whether every case is tried.
    pub fn is_whole(&self) -> bool {
        self.one_in == 1
    }
}

impl Drop for Sample {
    #[expect(clippy::print_stderr, reason = "test output")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Sample { name, one_in, seed } = self;
            eprintln!(
                "{name} failed; to try the same cases: {ONE_IN_VARIABLE}={one_in} {SEED_VARIABLE}={seed}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(one_in: u64, seed: u64) -> Sample {
        let name = "a test";
        Sample { name, one_in, seed }
    }

    #[test]
    fn one_in_one_is_all_and_others_are_about_their_share() {
        let taken = |sample: Sample| (0..10_000).filter(|case| sample.takes(*case)).count();
        assert_eq!(taken(sample(1, 3)), 10_000);
        assert!((800..1_200).contains(&taken(sample(10, 3))));
        let rarely = |sample: Sample| {
            (0..10_000)
                .filter(|case| sample.takes_rarely(*case, 5))
                .count()
        };
        assert!((100..300).contains(&rarely(sample(10, 3))));
    }

    #[test]
    fn seeds_choose_different_cases() {
        let cases = |seed| (0..1_000).filter(move |case| sample(10, seed).takes(*case));
        assert!(cases(1).ne(cases(2)));
        assert!(cases(1).eq(cases(1)));
    }
}
