//! `result.json` of a kill test, and whether a promise was broken.

use std::collections::BTreeMap;

use rumbench_core::engine::{ALL_ACKNOWLEDGED, Durability, DurabilityFacts};
use serde::Serialize;

use super::judge::Violation;
use super::power::Lost;

/// Recovery times.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Recovery {
    /// Median.
    pub p50: f64,
    /// Largest.
    pub max: f64,
}

/// One violation with the kill after which it was found.
#[derive(Debug, Clone, Serialize)]
pub struct Detail {
    /// Kills before it was found.
    pub after_kill: u32,
    /// What it is.
    #[serde(flatten)]
    pub violation: Violation,
}

/// `result.json` of a kill test.
#[derive(Debug, Clone, Serialize)]
pub struct DurabilityResult {
    /// Version of the result schema.
    pub schema_version: u32,
    /// Version of the laboratory.
    pub rumbench_version: String,
    /// The command line.
    pub command: String,
    /// RFC 3339.
    pub started_at: String,
    /// Machine and build.
    pub environment: BTreeMap<String, String>,
    /// Engine name, with its variant.
    pub engine: String,
    /// The engine's version text.
    pub engine_version: String,
    /// Effective configuration.
    pub configuration: BTreeMap<String, String>,
    /// Class of every commit.
    pub durability: Durability,
    /// What the class promises on this engine.
    pub durability_facts: Option<DurabilityFacts>,
    /// Whether other clients may see a commit before it is safe: `seen_lost` then breaks no promise.
    pub shows_commits_early: bool,
    /// Seed of scripts and kill moments.
    pub seed: u64,
    /// Writing clients.
    pub clients: usize,
    /// Kills done.
    pub kills: u32,
    /// Power losses simulated.
    pub power_losses: u32,
    /// Commits acknowledged over all kills.
    pub commits_acknowledged: u64,
    /// Acknowledged commits that were gone after a kill.
    pub acknowledged_lost: u64,
    /// Commits gone that a reader or an earlier check had seen.
    pub seen_lost: u64,
    /// Clients whose links were in no possible state.
    pub order_violations: u64,
    /// Checks in which links, index and counts did not match.
    pub atomicity_violations: u64,
    /// From opening to the first answered read, after a kill.
    pub recovery_ms: Recovery,
    /// What the power losses took back.
    pub power_loss: Option<Lost>,
    /// Every violation.
    pub violations: Vec<Detail>,
    /// Whether the engine failed to open, hung or reported errors, and how.
    pub errors: Vec<String>,
    /// Whether the user stopped it.
    pub interrupted: bool,
}

impl DurabilityResult {
    /// Whether what the engine promises, of a killed process or of a power loss, was broken. Loss is allowed where the
    /// engine does not promise to keep all acknowledged commits; wrong order and torn transactions never are.
    pub fn violated(&self) -> bool {
        let promise = self
            .durability_facts
            .as_ref()
            .map(|facts| match self.power_loss {
                None => &facts.process_kill,
                Some(_) => &facts.power_cut,
            });
        let promises_all = promise.is_none_or(|promise| promise == ALL_ACKNOWLEDGED);
        let lost = self.acknowledged_lost > 0 || (self.seen_lost > 0 && !self.shows_commits_early);
        self.order_violations > 0 || self.atomicity_violations > 0 || (lost && promises_all)
    }
}
