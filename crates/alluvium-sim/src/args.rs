//! Arguments of the command line.

use std::collections::BTreeSet;
use std::path::PathBuf;

use alluvium_sim::shrink::numbers_of;

pub const USAGE: &str =
    "usage: alluvium-sim [--seeds N] [--from SEED] [--seconds S] [--long] [--check] [--shrink RUNS]
       alluvium-sim --seed SEED [--long] [--schedule K] [--keep NUMBERS] [--shrink RUNS]
       alluvium-sim --jobs J --failures FILE [--seeds N] [--from SEED] [--seconds S] [--long]

Runs the plans of N seeds (100) from SEED on (default: random), or as many as S seconds allow.
--long     longer plans
--check    runs each seed twice and compares the traces
--shrink   number of smaller plans tried after a failure (default 400; 0: none)
--seed     runs one seed and prints its operations; --schedule picks another order of its threads,
           and --keep runs only the parts of the plan with these numbers
--jobs     number of processes, one per core; a failure does not stop them
--failures file for the commands that reproduce and shrink each failure";

/// Arguments of the command line.
#[derive(Default)]
pub struct Args {
    pub seeds: Option<u64>,
    pub from: Option<u64>,
    pub seconds: Option<u64>,
    pub seed: Option<u64>,
    /// Number of the thread schedule of `seed`.
    pub schedule: u64,
    /// Numbers of the parts of the plan that are kept; `None`: all.
    pub keep: Option<BTreeSet<usize>>,
    pub shrink: Option<usize>,
    pub long: bool,
    pub check: bool,
    pub jobs: Option<u64>,
    pub failures: Option<PathBuf>,
    /// Core of this process, if another one with `jobs` has started it.
    pub ship: Option<u64>,
}

impl Args {
    /// Returns the first seed. A random one has at most 32 bits, to be easy to type.
    pub fn first(&self) -> u64 {
        let fresh = || alluvium::simulation::random_u64() >> 32;
        self.from.unwrap_or_else(fresh)
    }

    pub fn count(&self) -> u64 {
        let unsaid = if self.seconds.is_some() {
            u64::MAX
        } else {
            100
        };
        self.seeds.unwrap_or(unsaid)
    }
}

/// Reads the command line; `None` if it is wrong.
pub fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--long" => args.long = true,
            "--check" => args.check = true,
            "--keep" => args.keep = Some(numbers_of(&words.next()?)?),
            "--failures" => args.failures = Some(words.next()?.into()),
            _ => {
                let number: u64 = words.next()?.parse().ok()?;
                match word.as_str() {
                    "--seeds" => args.seeds = Some(number),
                    "--from" => args.from = Some(number),
                    "--seconds" => args.seconds = Some(number),
                    "--seed" => args.seed = Some(number),
                    "--schedule" => args.schedule = number,
                    "--jobs" => args.jobs = Some(number),
                    "--ship" => args.ship = Some(number),
                    "--shrink" => args.shrink = Some(number as usize),
                    _ => return None,
                }
            }
        }
    }
    Some(args)
}
