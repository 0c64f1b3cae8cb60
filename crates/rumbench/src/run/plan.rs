//! What a suite will do: its trials in order, and the disk space that they need. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rumbench_core::engine::Durability;
use serde::{Deserialize, Serialize};

use super::pacing::Rate;
use super::placement::Placement;
use super::search::{self, Search};
use super::storage::Storage;
use crate::store::result::{Host, TrialResult, engine_name};

/// Seconds without an end of any request after which a trial counts as stuck, where nobody says otherwise: ten times the longest
/// pause that any engine has been seen to recover from.
pub const STUCK_AFTER_S: u64 = 600;

fn usual_stuck_after_s() -> u64 {
    STUCK_AFTER_S
}

/// One engine of a suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineChoice {
    /// Name without the variant.
    pub engine: String,
    /// Variant.
    pub variant: Option<String>,
    /// The other build that runs its trials.
    pub host: Option<Host>,
    /// Its own settings.
    pub settings: BTreeMap<String, String>,
}

impl EngineChoice {
    /// `engine`, `engine:variant` or either with `@host`.
    pub fn name(&self) -> String {
        let host = self.host.as_ref().map(|host| host.name.as_str());
        engine_name(
            &self.engine,
            self.variant.as_deref(),
            host.filter(|name| !name.is_empty()),
        )
    }
}

/// All settings of a trial. A suite has one set of them, a sweep one for each value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// What a sweep sets, `KEY=VALUE`.
    pub label: Option<String>,
    /// Settings of the workload.
    pub settings: BTreeMap<String, String>,
    /// Engines in the order given; the same at every point but for their settings.
    pub engines: Vec<EngineChoice>,
    /// Clients that connect.
    pub clients: usize,
    /// Every engine's own cache.
    pub cache_bytes: u64,
    /// Rate of paced phases.
    pub rate: Option<Rate>,
    /// What the memory of each trial is bounded by, in bytes.
    #[serde(default)]
    pub memory: Option<u64>,
}

/// Equal steps until a database has been rewritten so often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turnover {
    /// KiB written by the steps, as a multiple of the data.
    pub multiple: f64,
    /// Name of the steps without their `#n`.
    pub phase: String,
}

/// What a sweep varies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Varied {
    /// The setting, `ENGINE.KEY` for one of an engine.
    pub key: String,
    /// Its values.
    pub values: Vec<String>,
}

impl Varied {
    /// Whether it is a setting of one engine and not of the workload or the runner.
    pub fn is_of_an_engine(&self) -> bool {
        self.key.contains('.')
    }
}

/// A suite as the command line gives it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Suite {
    /// Workload name.
    pub workload: String,
    /// Settings; one set without a sweep, never none.
    pub points: Vec<Point>,
    /// What differs among the points.
    pub varied: Option<Varied>,
    /// When trials end, where they age a database.
    pub turnover: Option<Turnover>,
    /// What is looked for, where the rates of the trials follow from each other.
    #[serde(default)]
    pub search: Option<Search>,
    /// Base of the ratios when it is not the first engine.
    pub base: Option<String>,
    /// Repetitions.
    pub repeat: u32,
    /// Seed of the first repetition.
    pub seed: u64,
    /// Class of every commit.
    pub durability: Durability,
    /// The device that trials are to find.
    #[serde(default)]
    pub storage: Option<Storage>,
    /// The phase from which on the device is so, and not before; `None`: all of them.
    #[serde(default)]
    pub storage_from: Option<String>,
    /// On which cores clients and engine run.
    #[serde(default)]
    pub placement: Placement,
    /// Whether trials are sampled and the processor's counters read.
    #[serde(default)]
    pub profile: bool,
    /// Without an end of any request for so many seconds a trial is ended.
    #[serde(default = "usual_stuck_after_s")]
    pub stuck_after_s: u64,
    /// Result folder; where it lies is no part of what a suite is.
    #[serde(skip)]
    pub out: PathBuf,
    /// Whether data directories stay.
    pub keep_data: bool,
    /// Whether its tables put engines with different durability together.
    pub mix_durability: bool,
    /// Whether it stays out of the results store.
    pub no_store: bool,
    /// The command line.
    pub command: String,
}

impl Suite {
    /// The engines, with the settings of the first point.
    pub fn engines(&self) -> &[EngineChoice] {
        self.points.first().map_or(&[], |point| &point.engines)
    }

    /// Settings that are the same at every point.
    pub fn common_settings(&self) -> BTreeMap<String, String> {
        let mut points = self.points.iter().map(|point| &point.settings);
        let mut common = points.next().cloned().unwrap_or_default();
        for other in points {
            common.retain(|key, value| other.get(key) == Some(value));
        }
        common
    }
}

/// A trial that comes next.
#[derive(Debug, Clone)]
pub struct Upcoming {
    /// Its settings.
    pub point: Point,
    /// Index of the engine in them.
    pub engine: usize,
    /// Counted from 1.
    pub repetition: u32,
}

impl Upcoming {
    /// Its engine.
    pub fn choice(&self) -> &EngineChoice {
        &self.point.engines[self.engine]
    }
}

/// The trial that follows these, which are all that have ended; `None` after the last.
pub fn upcoming(suite: &Suite, ended: &[TrialResult]) -> Option<Upcoming> {
    if let Some(search) = &suite.search {
        return search::upcoming(suite, search, ended);
    }
    let order = order(suite.points.len(), suite.engines().len(), suite.repeat);
    let planned = order.get(ended.len())?;
    Some(Upcoming {
        point: suite.points[planned.point].clone(),
        engine: planned.engine,
        repetition: planned.repetition,
    })
}

/// Trials of the whole suite; of a search as far as that can be said.
pub fn expected(suite: &Suite, ended: &[TrialResult]) -> usize {
    match &suite.search {
        Some(search) => search::expected(suite, search, ended),
        None => suite.points.len() * suite.engines().len() * suite.repeat as usize,
    }
}

/// One trial of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Index of the point in the suite.
    pub point: usize,
    /// Index of the engine in the suite.
    pub engine: usize,
    /// Counted from 1.
    pub repetition: u32,
}

/// Interleaved trials: every second repetition goes backwards (A B, B A, A B, ...), so that a drift of the machine meets all
/// engines and all points of a sweep alike. Engines at the same point stand next to each other.
pub fn order(points: usize, engines: usize, repeat: u32) -> Vec<Planned> {
    let contestants = points * engines;
    (1..=repeat)
        .flat_map(|repetition| {
            (0..contestants).map(move |place| {
                let place = match repetition % 2 {
                    1 => place,
                    _ => contestants - 1 - place,
                };
                Planned {
                    point: place / engines,
                    engine: place % engines,
                    repetition,
                }
            })
        })
        .collect()
}

/// Folder of the short trials on `null`.
pub const CALIBRATION_FOLDER: &str = "calibration";

/// Name of a trial's folder; `index` is its place in the order.
pub fn folder(index: usize, choice: &EngineChoice) -> String {
    let name = choice.name().replace([':', '@'], "-");
    format!("{:03}-{name}", index + 1)
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
pub mod tests {
    use super::*;

    /// Two engines, two repetitions.
    pub fn suite(out: &std::path::Path) -> Suite {
        let choice = |engine: &str| EngineChoice {
            engine: engine.to_string(),
            variant: None,
            host: None,
            settings: BTreeMap::new(),
        };
        Suite {
            workload: "linkbench".to_string(),
            points: vec![Point {
                label: None,
                settings: BTreeMap::new(),
                engines: vec![choice("null"), choice("sqlite")],
                clients: 2,
                cache_bytes: 1 << 20,
                rate: None,
                memory: None,
            }],
            varied: None,
            turnover: None,
            search: None,
            base: None,
            repeat: 2,
            seed: 1,
            durability: Durability::Buffered,
            storage: None,
            storage_from: None,
            placement: Placement::Free,
            profile: false,
            stuck_after_s: STUCK_AFTER_S,
            out: out.to_path_buf(),
            keep_data: false,
            mix_durability: false,
            no_store: false,
            command: "rumbench run linkbench --engine null --engine sqlite --repeat 2".to_string(),
        }
    }

    #[test]
    fn even_repetitions_are_reversed() {
        let order: Vec<_> = order(1, 2, 3)
            .iter()
            .map(|p| (p.engine, p.repetition))
            .collect();
        assert_eq!(order, [(0, 1), (1, 1), (1, 2), (0, 2), (0, 3), (1, 3)]);
    }

    #[test]
    fn points_of_a_sweep_are_interleaved_with_engines_side_by_side() {
        let order: Vec<_> = order(2, 2, 2)
            .iter()
            .map(|p| (p.point, p.engine, p.repetition))
            .collect();
        let first = [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)];
        let second = [(1, 1, 2), (1, 0, 2), (0, 1, 2), (0, 0, 2)];
        assert_eq!(order, [first, second].concat());
    }

    #[test]
    fn kept_data_needs_space_for_every_trial() {
        assert_eq!(disk_estimate(1 << 30, 4), 4 * disk_estimate(1 << 30, 1));
    }
}
