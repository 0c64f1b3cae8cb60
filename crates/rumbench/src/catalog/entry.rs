//! Description of a built-in workload.

use std::collections::BTreeMap;

use rumbench_core::trial::Workload;

/// Settings by key.
pub type Settings = BTreeMap<String, String>;

/// Description and constructor of a built-in workload.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadEntry {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one phrase, for `rumbench list workloads`.
    pub description: &'static str,
    /// Returns the name and the description of each phase.
    pub phases: fn() -> Vec<(&'static str, &'static str)>,
    /// Creates the workload from its settings.
    pub(super) create: fn(&Settings) -> anyhow::Result<Box<dyn Workload>>,
    /// Adds settings derived from the given ones and from the machine, including settings of the
    /// runner.
    pub(super) expand: fn(&mut Settings) -> anyhow::Result<()>,
    /// Makes the settings repeat one writing step for the whole trial. Returns the name of this
    /// step, or `None` if the workload has no step to repeat.
    pub(super) endless: fn(&mut Settings) -> Option<String>,
    /// Returns the changes to the settings for a trial that only measures the client's own cost:
    /// keys to remove, and new values.
    pub(super) shorten: fn(&Settings) -> (&'static [&'static str], Settings),
}
