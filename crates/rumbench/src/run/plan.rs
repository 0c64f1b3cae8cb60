//! Definition of a suite: its settings, and the folders and disk space of its trials. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rumbench_core::engine::Durability;
use serde::{Deserialize, Serialize};

use super::pacing::Rate;
use super::placement::Placement;
use super::search::Search;
use super::storage::Storage;
use crate::store::result::{Host, engine_name};

/// Default number of seconds without a completed request after which a trial counts as stuck: ten
/// times the longest pause with a recovery seen in any engine.
pub const STUCK_AFTER_S: u64 = 600;

fn usual_stuck_after_s() -> u64 {
    STUCK_AFTER_S
}

/// One engine of a suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineChoice {
    /// Name without the variant.
    pub engine: String,
    /// Variant of the engine. None: the default.
    pub variant: Option<String>,
    /// Other build that runs the trials. None: this build.
    pub host: Option<Host>,
    /// Settings of this engine.
    pub settings: BTreeMap<String, String>,
}

impl EngineChoice {
    /// Returns `engine`, `engine:variant` or either with `@host`.
    pub fn name(&self) -> String {
        engine_name(&self.engine, self.variant.as_deref(), self.host.as_ref())
    }
}

/// All settings of a trial. A suite has one point, a sweep one for each value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// Setting and value of a sweep, `KEY=VALUE`.
    pub label: Option<String>,
    /// Settings of the workload.
    pub settings: BTreeMap<String, String>,
    /// Engines in the order given; only their settings differ between points.
    pub engines: Vec<EngineChoice>,
    /// Number of clients that connect.
    pub clients: usize,
    /// Size of every engine's own cache in bytes.
    pub cache_bytes: u64,
    /// Rate of paced phases. None: the workload's own pace, or a closed loop.
    pub rate: Option<Rate>,
    /// Memory limit of each trial in bytes. None: no limit.
    #[serde(default)]
    pub memory: Option<u64>,
}

/// Equal steps that repeat until the database has been rewritten a given number of times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turnover {
    /// Bytes to be written by the steps, as a multiple of the data.
    pub multiple: f64,
    /// Name of the steps without their `#n`.
    pub phase: String,
}

/// Setting that a sweep varies, with its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Varied {
    /// Name of the setting, `ENGINE.KEY` for a setting of an engine.
    pub key: String,
    /// Values of the setting, in order.
    pub values: Vec<String>,
}

impl Varied {
    /// Returns true for a setting of one engine, false for one of the workload or the runner.
    pub fn is_of_an_engine(&self) -> bool {
        self.key.contains('.')
    }
}

/// A suite as the command line gives it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Suite {
    /// Workload name.
    pub workload: String,
    /// Points of a sweep; exactly one without a sweep.
    pub points: Vec<Point>,
    /// Setting that differs between the points, if this is a sweep.
    pub varied: Option<Varied>,
    /// End of the trials, if they age a database.
    pub turnover: Option<Turnover>,
    /// Search that derives the rate of each trial from earlier trials, if this is one.
    #[serde(default)]
    pub search: Option<Search>,
    /// Base of the ratios if it is not the first engine.
    pub base: Option<String>,
    /// Number of repetitions.
    pub repeat: u32,
    /// Seed of the first repetition.
    pub seed: u64,
    /// Durability of every commit.
    pub durability: Durability,
    /// Emulated storage tier. None: the device as it is.
    #[serde(default)]
    pub storage: Option<Storage>,
    /// First phase with the storage limit; earlier phases run without it. `None`: all phases have
    /// it.
    #[serde(default)]
    pub storage_from: Option<String>,
    /// Cores of clients and engine.
    #[serde(default)]
    pub placement: Placement,
    /// True if trials are sampled and the processor's counters read.
    #[serde(default)]
    pub profile: bool,
    /// Seconds without a completed request after which a trial is ended.
    #[serde(default = "usual_stuck_after_s")]
    pub stuck_after_s: u64,
    /// Result folder; its location is not part of the suite's identity.
    #[serde(skip)]
    pub out: PathBuf,
    /// True if data directories are kept.
    pub keep_data: bool,
    /// True if its tables combine engines with different durability.
    pub mix_durability: bool,
    /// True if the result is not added to the results store.
    pub no_store: bool,
    /// The command line.
    pub command: String,
}

impl Suite {
    /// Returns a suite without options: one repetition, all cores, the device as it is.
    pub fn plain(workload: &str, points: Vec<Point>) -> Suite {
        Suite {
            workload: workload.to_string(),
            points,
            varied: None,
            turnover: None,
            search: None,
            base: None,
            repeat: 1,
            seed: 1,
            durability: Durability::Buffered,
            storage: None,
            storage_from: None,
            placement: Placement::Free,
            profile: false,
            stuck_after_s: STUCK_AFTER_S,
            out: PathBuf::new(),
            keep_data: false,
            mix_durability: false,
            no_store: false,
            command: String::new(),
        }
    }

    /// Returns the engines, with the settings of the first point.
    pub fn engines(&self) -> &[EngineChoice] {
        self.points.first().map_or(&[], |point| &point.engines)
    }

    /// Returns the settings that are the same at every point.
    pub fn common_settings(&self) -> BTreeMap<String, String> {
        let mut points = self.points.iter().map(|point| &point.settings);
        let mut common = points.next().cloned().unwrap_or_default();
        for other in points {
            common.retain(|key, value| other.get(key) == Some(value));
        }
        common
    }
}

/// Folder of the short calibration trials on `null`.
pub const CALIBRATION_FOLDER: &str = "calibration";

/// Returns the name of a trial's folder; `index` is its position in the order.
pub fn folder(index: usize, choice: &EngineChoice) -> String {
    let name = choice.name().replace([':', '@'], "-");
    format!("{:03}-{name}", index + 1)
}

/// Estimates the free bytes that a suite needs: three times the data, to leave space for logs and
/// for the old copy during a compaction or checkpoint.
pub fn disk_estimate(load_bytes: u64, trials_kept: u64) -> u64 {
    const SPACE_FACTOR: u64 = 3;
    const FIXED_BYTES: u64 = 256 << 20;
    load_bytes
        .saturating_mul(SPACE_FACTOR)
        .saturating_add(FIXED_BYTES)
        .saturating_mul(trials_kept.max(1))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a suite with two engines and two repetitions.
    pub fn suite(out: &std::path::Path) -> Suite {
        let choice = |engine: &str| EngineChoice {
            engine: engine.to_string(),
            variant: None,
            host: None,
            settings: BTreeMap::new(),
        };
        let point = Point {
            label: None,
            settings: BTreeMap::new(),
            engines: vec![choice("null"), choice("sqlite")],
            clients: 2,
            cache_bytes: 1 << 20,
            rate: None,
            memory: None,
        };
        Suite {
            repeat: 2,
            out: out.to_path_buf(),
            command: "rumbench run linkbench --engine null --engine sqlite --repeat 2".to_string(),
            ..Suite::plain("linkbench", vec![point])
        }
    }

    #[test]
    fn kept_data_needs_space_for_every_trial() {
        assert_eq!(disk_estimate(1 << 30, 4), 4 * disk_estimate(1 << 30, 1));
    }
}
