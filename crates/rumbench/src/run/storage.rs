//! `--storage`: emulates slower devices by a limit on a trial's device operations.
//!
//! The tiers are those of a published comparison (docs/guide/running.md): about 1,000 and 10,000
//! random operations a second, and no limit. Reads and writes have separate limits.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Storage tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// 1,000 reads and 1,000 writes a second
    DiskArray,
    /// 10,000 reads and 10,000 writes a second
    SlowSsd,
    /// The device as it is
    FastSsd,
}

impl Storage {
    /// Returns the limit on reads per second, also the limit on writes; `None`: no limit.
    pub fn operations_per_s(self) -> Option<u64> {
        match self {
            Storage::DiskArray => Some(1_000),
            Storage::SlowSsd => Some(10_000),
            Storage::FastSsd => None,
        }
    }

    /// Describes the tier for a result.
    pub fn words(self) -> String {
        let value = self.to_possible_value();
        let name = value.as_ref().map_or("", |value| value.get_name());
        match self.operations_per_s() {
            Some(n) => format!("{name} (at most {n} reads and {n} writes a second)"),
            None => format!("{name} (no limit)"),
        }
    }
}
