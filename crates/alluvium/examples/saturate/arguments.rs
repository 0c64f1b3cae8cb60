//! Command line of the example.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use alluvium::Durability;

use crate::Failure;

const USAGE: &str = "usage: saturate [--seconds N] [--clients N] [--readers N] [--memory-mib N] [--keys N] \
                     [--value-bytes N] [--durability buffered|sync] DIR";

/// Parsed command line.
pub struct Arguments {
    pub duration: Duration,
    pub clients: u64,
    pub readers: u64,
    pub memory_mib: usize,
    pub keys: u64,
    pub value_bytes: usize,
    pub durability: Durability,
    /// Directory of the database; must not hold one yet.
    pub dir: PathBuf,
}

impl Arguments {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
        let mut found = Arguments {
            duration: Duration::from_secs(600),
            clients: 2,
            readers: 0,
            memory_mib: 256,
            keys: 4_000_000,
            value_bytes: 400,
            durability: Durability::Buffered,
            dir: PathBuf::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(USAGE);
            match &word[..] {
                "--seconds" => found.duration = Duration::from_secs(number(value()?)?),
                "--clients" => found.clients = number(value()?)?,
                "--readers" => found.readers = number(value()?)?,
                "--memory-mib" => found.memory_mib = number(value()?)?,
                "--keys" => found.keys = number(value()?)?,
                "--value-bytes" => found.value_bytes = number(value()?)?,
                "--durability" => found.durability = durability(&value()?)?,
                option if option.starts_with("--") => return Err(USAGE.into()),
                dir => found.dir = dir.into(),
            }
        }
        if found.dir.as_os_str().is_empty() || found.keys == 0 {
            Err(USAGE.into())
        } else {
            Ok(found)
        }
    }
}

fn number<T: FromStr>(word: String) -> Result<T, Failure> {
    let parsed = word.parse();
    parsed.map_err(|_| format!("{word} is no number; {USAGE}").into())
}

fn durability(word: &str) -> Result<Durability, Failure> {
    match word {
        "buffered" => Ok(Durability::Buffered),
        "sync" => Ok(Durability::Sync),
        _ => Err(USAGE.into()),
    }
}
