//! `result.json` of a kill test, and its verdict.

use std::collections::BTreeMap;

use rumbench_core::engine::{ALL_ACKNOWLEDGED, Durability, DurabilityFacts};
use serde::Serialize;

use super::judge::Violation;
use super::power::Lost;

/// Recovery times, in milliseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Recovery {
    /// Median.
    pub p50: f64,
    /// Maximum.
    pub max: f64,
}

/// One violation with the kill after which it was found.
#[derive(Debug, Clone, Serialize)]
pub struct Detail {
    /// Number of kills before it was found.
    pub after_kill: u32,
    /// The violation.
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
    /// Command line.
    pub command: String,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Machine and build.
    pub environment: BTreeMap<String, String>,
    /// Engine name, with its variant.
    pub engine: String,
    /// The engine's version text.
    pub engine_version: String,
    /// Effective configuration.
    pub configuration: BTreeMap<String, String>,
    /// Durability class of every commit.
    pub durability: Durability,
    /// Promise of the class on this engine; `None` if the engine was never opened.
    pub durability_facts: Option<DurabilityFacts>,
    /// True if other clients may see a commit before it is durable: `seen_lost` then breaks no
    /// promise.
    pub shows_commits_early: bool,
    /// Seed of scripts and kill moments.
    pub seed: u64,
    /// Number of writing clients.
    pub clients: usize,
    /// Number of kills.
    pub kills: u32,
    /// Number of simulated power losses.
    pub power_losses: u32,
    /// Commits acknowledged over all kills.
    pub commits_acknowledged: u64,
    /// Acknowledged commits that were missing after a kill.
    pub acknowledged_lost: u64,
    /// Missing commits that a reader or an earlier check had seen.
    pub seen_lost: u64,
    /// Number of times that a client's links were in no possible state.
    pub order_violations: u64,
    /// Checks in which links, index and counts did not match.
    pub atomicity_violations: u64,
    /// Milliseconds from opening to the first answered read, after a kill.
    pub recovery_ms: Recovery,
    /// Total losses of all power losses; `None` in a test without them.
    pub power_loss: Option<Lost>,
    /// Violations, up to a maximum number.
    pub violations: Vec<Detail>,
    /// Errors of the engine: reported ones, failures to open or close, hangs and early ends.
    pub errors: Vec<String>,
    /// True if the user interrupted the test.
    pub interrupted: bool,
}

impl DurabilityResult {
    /// Returns true if the engine broke its promise for a killed process or a power loss. Loss is
    /// allowed if the engine does not promise to keep all acknowledged commits; wrong order and
    /// torn transactions are never allowed.
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
