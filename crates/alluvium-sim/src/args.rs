//! Arguments of the command line.

use std::collections::BTreeSet;
use std::path::PathBuf;

use alluvium_sim::shrink::numbers_of;

pub const USAGE: &str =
    "usage: alluvium-sim [--seeds N] [--from SEED] [--seconds S] [--long] [--check] [--shrink RUNS]
       alluvium-sim --seed SEED [--long] [--schedule K] [--keep NUMBERS] [--shrink RUNS]
       alluvium-sim --jobs J --failures FILE [--seeds N] [--from SEED] [--seconds S] [--long]

Runs the plans of N seeds from SEED on (a fresh one by default), or as many as S seconds allow.
--long     longer plans
--check    runs each seed twice and compares the traces
--shrink   how many smaller plans are tried after a failure (400; 0: none)
--seed     runs one seed alone and says what it does; --schedule and --keep name a part of it
--jobs     so many processes, each on a core of its own, that go on behind a failure
--failures where the commands go that repeat and shrink what has failed";

/// Arguments of the command line.
#[derive(Default)]
pub struct Args {
    pub seeds: Option<u64>,
    pub from: Option<u64>,
    pub seconds: Option<u64>,
    pub seed: Option<u64>,
    pub schedule: u64,
    pub keep: Option<BTreeSet<usize>>,
    pub shrink: Option<usize>,
    pub long: bool,
    pub check: bool,
    pub jobs: Option<u64>,
    pub failures: Option<PathBuf>,
    /// Core of this process, if it is one of a fleet.
    pub ship: Option<u64>,
}

impl Args {
    /// Returns the first seed. A fresh one is short enough to type.
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
