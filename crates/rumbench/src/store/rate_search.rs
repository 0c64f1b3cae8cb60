//! What `rumbench find-rate` adds to `result.json`: the limits, and for each engine the rates that were tried and the highest that holds.
//!
//! As in [`super::result`], names are a contract with scripts, units are in the names, and an absent field means "not known".

use serde::{Deserialize, Serialize};

use super::result::Latency;

/// A search for the highest rate.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RateSearch {
    /// Limits of response times, as they were given.
    pub sla: Vec<Limit>,
    /// How far apart the highest rate that holds and the lowest that does not may be at the end, as a share.
    pub precision: f64,
    /// Share of the highest rate at which response times are told.
    pub share: f64,
    /// What was found, for each engine.
    pub engines: Vec<FoundRate>,
}

/// One limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// As it was given.
    pub text: String,
    /// Figure of response times.
    pub figure: String,
    /// Operation; absent where each kind of operation has to hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Largest value that holds.
    pub limit_us: f64,
}

/// The search for one engine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FoundRate {
    /// Engine, as in tables.
    pub engine: String,
    /// Phase that was judged.
    pub phase: String,
    /// Whether the search has ended.
    pub ended: bool,
    /// Throughput as fast as clients can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_loop_per_s: Option<f64>,
    /// The highest rate that holds, in operations per second; absent where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_rate: Option<f64>,
    /// The lowest that does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest_unmet_rate: Option<f64>,
    /// The share of the highest rate at which response times are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_rate: Option<f64>,
    /// The result in words.
    pub judgement: String,
    /// What was tried, by rate.
    pub points: Vec<RatePoint>,
}

/// One rate: medians of its repetitions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RatePoint {
    /// The rate asked for; absent of the closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Throughput that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// Whether it holds; absent of the closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// Why it does not, for the first repetition that does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
    /// Each figure the largest over the kinds of operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_us: Option<Latency>,
    /// Trials that ended.
    pub repetitions: usize,
}
