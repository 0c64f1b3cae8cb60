//! Exit codes and seeds, common to all subcommands.

use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;

/// End of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// No difference.
    Done = 0,
    /// A difference, an anomaly, or a gap of the coverage.
    Different = 1,
    /// The run was not possible.
    Failed = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Returns the given seed, or a new one that is short enough to copy.
pub fn seed_or_new(given: Option<u64>) -> u64 {
    given.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()) % 1_000_000_000)
}
