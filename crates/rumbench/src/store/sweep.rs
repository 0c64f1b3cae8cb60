//! Additions of a sweep to `result.json`: the varied setting with its values, and the conclusions
//! from all of them together.
//!
//! As in [`super::result`], names are a contract with scripts, units are in the names, and an
//! absent field means "not known".

use serde::{Deserialize, Serialize};

/// Key of a sweep with steps that age one database.
pub const TURNOVER: &str = "turnover";

/// Sweep over one setting.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sweep {
    /// Setting, `ENGINE.KEY` for one of an engine, or [`TURNOVER`].
    pub key: String,
    /// Values, in the order of the command line.
    pub values: Vec<String>,
    /// Fits of the Universal Scalability Law, one for each engine and phase; only for a sweep over
    /// `clients`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scalability: Vec<Scalability>,
    /// Aging of each trial; only for a sweep of [`TURNOVER`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aging: Vec<Aging>,
}

/// Parameter of a fit with its 98 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Best fit.
    pub value: f64,
    /// Lower end; absent if the trials do not bound it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end; absent if the trials do not bound it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

/// Throughput against concurrency of one engine in one phase:
/// `X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Scalability {
    /// Engine name, as in tables.
    pub engine: String,
    /// Phase name.
    pub phase: String,
    /// `ops_per_s`, or `rows_per_s` if the phase counts rows.
    pub metric: String,
    /// Number of different numbers of clients.
    pub points: usize,
    /// Number of trials in the fit.
    pub trials: usize,
    /// Throughput of one client, in the unit of `metric`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lambda: Option<Estimate>,
    /// Contention: the share of the work that cannot run in parallel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigma: Option<Estimate>,
    /// Coherency: the cost of each pair of clients, as a share of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kappa: Option<Estimate>,
    /// Clients at the predicted peak; absent if the fit has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_clients: Option<Estimate>,
    /// Throughput at the whole number of clients nearest to the peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_per_s: Option<f64>,
    /// Limit of throughput if there is no peak; absent if nothing limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_per_s: Option<f64>,
    /// Root mean square of the relative deviations of the trials from the fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_rms: Option<f64>,
    /// Largest deviation, with its sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_max: Option<f64>,
    /// Clients of the trial with that deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_max_clients: Option<f64>,
    /// Conclusion in words.
    pub judgment: String,
}

/// Trial with a phase repeated in equal steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Aging {
    /// Engine name, as in tables.
    pub engine: String,
    /// Repetition of the trial.
    pub repetition: u32,
    /// True if the requested turnover was reached.
    pub reached: bool,
    /// Steps in order.
    pub steps: Vec<AgingStep>,
    /// Mean change of throughput from one step to the next, as a factor with its 98 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_change: Option<Estimate>,
    /// Mean change of the size of the data, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_change: Option<Estimate>,
    /// Mean change of the KiB written per operation, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_change: Option<Estimate>,
}

/// One of the equal steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgingStep {
    /// Phase name.
    pub phase: String,
    /// KiB written by all steps so far, as a multiple of the data at the end of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turnover: Option<f64>,
    /// Operations per second, or rows per second if the phase counts rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_s: Option<f64>,
    /// KiB written per operation of this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kb_written_per_op: Option<f64>,
    /// Bytes of data at the end of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_bytes: Option<u64>,
}
