//! What a sweep adds to `result.json`: which setting took which values, and what follows from all of them together.
//!
//! As in [`super::result`], names are a contract with scripts, units are in the names, and an absent field means "not known".

use serde::{Deserialize, Serialize};

/// The key of a sweep whose steps age one database.
pub const TURNOVER: &str = "turnover";

/// A sweep.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sweep {
    /// The setting, `ENGINE.KEY` for one of an engine, or [`TURNOVER`].
    pub key: String,
    /// Its values, in the order of the command line.
    pub values: Vec<String>,
    /// Fits of the Universal Scalability Law, one for each engine and phase; only of a sweep over `clients`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scalability: Vec<Scalability>,
    /// How each trial aged; only of a sweep of [`TURNOVER`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ageing: Vec<Ageing>,
}

/// A number of a fit with its 98 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best fit.
    pub value: f64,
    /// Lower end; absent where the trials allow any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

/// Throughput against concurrency of one engine in one phase: `X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Scalability {
    /// Engine, as in tables.
    pub engine: String,
    /// Phase.
    pub phase: String,
    /// `ops_per_s`, or `rows_per_s` where rows are what counts.
    pub metric: String,
    /// Different numbers of clients.
    pub points: usize,
    /// Trials that were fitted.
    pub trials: usize,
    /// Throughput of one client, in the unit of `metric`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lambda: Option<Estimate>,
    /// Contention: the share of the work that cannot be done at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigma: Option<Estimate>,
    /// Coherency: what each pair of clients costs, as a share of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kappa: Option<Estimate>,
    /// Clients at the predicted peak; absent where the fit has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_clients: Option<Estimate>,
    /// Throughput at the whole number of clients nearest to the peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_per_s: Option<f64>,
    /// What throughput approaches where there is no peak; absent where nothing limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_per_s: Option<f64>,
    /// Root mean square of the trials' distances from the fit, as shares of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_rms: Option<f64>,
    /// Largest distance, with its sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_max: Option<f64>,
    /// Clients of the trial with that distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_max_clients: Option<f64>,
    /// What may be concluded, in words.
    pub judgement: String,
}

/// One trial whose phase was repeated in equal steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ageing {
    /// Engine, as in tables.
    pub engine: String,
    /// Repetition of the trial.
    pub repetition: u32,
    /// Whether the turnover asked for was reached.
    pub reached: bool,
    /// The steps, in order.
    pub steps: Vec<AgeingStep>,
    /// Mean change of throughput from one step to the next, as a factor with its 98 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_change: Option<Estimate>,
    /// The same of the size of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_change: Option<Estimate>,
    /// The same of the KiB written for each operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_change: Option<Estimate>,
}

/// One of the equal steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgeingStep {
    /// Phase.
    pub phase: String,
    /// KiB written by all steps so far, as a multiple of the data at the end of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turnover: Option<f64>,
    /// Operations per second, or rows where rows are what counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_s: Option<f64>,
    /// KiB written for each operation of this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_written_per_op: Option<f64>,
    /// Bytes of data at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_bytes: Option<u64>,
}
