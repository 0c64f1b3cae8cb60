//! Additions of `rumbench find-rate` to `result.json`: the limits, and for each engine the tried
//! rates and the highest that meets them.
//!
//! As in [`super::result`], names are a contract with scripts, units are in the names, and an
//! absent field means "not known".

use serde::{Deserialize, Serialize};

use super::figures::Latency;

/// Search for the highest rate.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RateSearch {
    /// Response time limits, as given.
    pub sla: Vec<Limit>,
    /// Largest relative gap at the end between the highest passing and the lowest failing rate.
    pub precision: f64,
    /// Share of the highest rate at which response times are reported.
    pub share: f64,
    /// Result for each engine.
    pub engines: Vec<FoundRate>,
}

/// One response time limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Limit as given.
    pub text: String,
    /// Figure of the response times, such as `p99`.
    pub figure: String,
    /// Operation; absent if the limit applies to each kind of operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Largest permitted value.
    pub limit_us: f64,
}

/// Search for one engine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FoundRate {
    /// Engine name, as in tables.
    pub engine: String,
    /// Phase that is judged.
    pub phase: String,
    /// True if the search has ended.
    pub ended: bool,
    /// Throughput of clients that do not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_loop_per_s: Option<f64>,
    /// Highest rate that meets the limits, in operations per second; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_rate: Option<f64>,
    /// Lowest rate that does not meet them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest_unmet_rate: Option<f64>,
    /// Rate at the given share of the highest rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_rate: Option<f64>,
    /// Result in words.
    pub judgment: String,
    /// Tried rates, in increasing order.
    pub points: Vec<RatePoint>,
}

/// One rate, with medians of its repetitions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RatePoint {
    /// Requested rate; absent for the closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Achieved throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// True if the limits are met; absent for the closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// Violated limits of the first repetition that violates one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
    /// Response times: each figure is the maximum over the kinds of operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_us: Option<Latency>,
    /// Number of completed trials.
    pub repetitions: usize,
}
