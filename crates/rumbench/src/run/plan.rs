//! What a suite will do: its trials in order, and the disk space that they need. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rumbench_core::engine::Durability;

use super::pacing::Rate;

/// One engine of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineChoice {
    /// Name without the variant.
    pub engine: String,
    /// Variant.
    pub variant: Option<String>,
    /// Its own settings.
    pub settings: BTreeMap<String, String>,
}

impl EngineChoice {
    /// `engine` or `engine:variant`.
    pub fn name(&self) -> String {
        match &self.variant {
            Some(variant) => format!("{}:{variant}", self.engine),
            None => self.engine.clone(),
        }
    }
}

/// A suite as the command line gives it.
#[derive(Debug, Clone)]
pub struct Suite {
    /// Workload name.
    pub workload: String,
    /// Settings of the workload.
    pub settings: BTreeMap<String, String>,
    /// Engines in the order given.
    pub engines: Vec<EngineChoice>,
    /// Base of the ratios when it is not the first engine.
    pub base: Option<String>,
    /// Repetitions.
    pub repeat: u32,
    /// Seed of the first repetition.
    pub seed: u64,
    /// Class of every commit.
    pub durability: Durability,
    /// Clients that connect.
    pub clients: usize,
    /// Every engine's own cache.
    pub cache_bytes: u64,
    /// Rate of paced phases.
    pub rate: Option<Rate>,
    /// Result folder.
    pub out: PathBuf,
    /// Whether data directories stay.
    pub keep_data: bool,
    /// The command line.
    pub command: String,
}

/// One trial of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Index of the engine in the suite.
    pub engine: usize,
    /// Counted from 1.
    pub repetition: u32,
}

/// Interleaved trials: every second repetition goes backwards (A B, B A, A B, ...), so that a drift of the machine meets all
/// engines alike.
pub fn order(engines: usize, repeat: u32) -> Vec<Planned> {
    (1..=repeat)
        .flat_map(|repetition| {
            (0..engines).map(move |place| Planned {
                engine: if repetition % 2 == 1 {
                    place
                } else {
                    engines - 1 - place
                },
                repetition,
            })
        })
        .collect()
}

/// Free bytes that a suite needs: space for logs and for the old copy during a compaction or checkpoint, three times the data.
pub fn disk_estimate(load_bytes: u64, trials_kept: u64) -> u64 {
    const SPACE_FACTOR: u64 = 3;
    const FIXED_BYTES: u64 = 256 << 20;
    load_bytes
        .saturating_mul(SPACE_FACTOR)
        .saturating_add(FIXED_BYTES)
        .saturating_mul(trials_kept.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_repetitions_are_reversed() {
        let order: Vec<_> = order(2, 3)
            .iter()
            .map(|p| (p.engine, p.repetition))
            .collect();
        assert_eq!(order, [(0, 1), (1, 1), (1, 2), (0, 2), (0, 3), (1, 3)]);
    }

    #[test]
    fn kept_data_needs_space_for_every_trial() {
        assert_eq!(disk_estimate(1 << 30, 4), 4 * disk_estimate(1 << 30, 1));
    }
}
