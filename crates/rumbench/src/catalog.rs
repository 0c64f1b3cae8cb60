//! The engines and workloads that the command line can name, and usage errors that offer the nearest name.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rumbench_core::linkbench;
use rumbench_core::names::unknown;
use rumbench_core::trial::Workload;

/// Something on the command line cannot be done: exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A usage error as `anyhow::Error`.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// Settings of every workload, which the runner takes: a misspelled one reaches the workload.
pub const RUNNER_KEYS: &[&str] = &["cache_bytes", "rate", "arrivals"];

/// Makes a workload from its settings.
type Create = fn(&BTreeMap<String, String>) -> anyhow::Result<Box<dyn Workload>>;

/// One workload.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadEntry {
    /// Name on the command line.
    pub name: &'static str,
    /// One sentence.
    pub description: &'static str,
    create: Create,
}

/// All workloads of this version.
pub const WORKLOADS: &[WorkloadEntry] = &[WorkloadEntry {
    name: "linkbench",
    description: "a social graph's nodes, links and counts: load, then ten operations on them",
    create: create_linkbench,
}];

fn create_linkbench(settings: &BTreeMap<String, String>) -> anyhow::Result<Box<dyn Workload>> {
    let config = linkbench::Config::from_pairs(settings.iter()).map_err(|error| match error {
        linkbench::ConfigError::UnknownKey { key } => {
            let own = linkbench::SETTINGS.iter().map(|setting| setting.key);
            let known: Vec<&str> = own.chain(RUNNER_KEYS.iter().copied()).collect();
            usage(unknown("linkbench setting", &key, &known))
        }
        error => usage(error.to_string()),
    })?;
    let hooks = linkbench::Hooks { now_ms, backoff };
    Ok(Box::new(linkbench::LinkBench::new(config, hooks)))
}

/// Milliseconds since the epoch.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |elapsed| elapsed.as_millis() as u64)
}

/// The wait of the reference before a transaction is run again: none before the first retry, then 20 ms more each time.
fn backoff(attempt: u32) {
    let ms = 20 * u64::from(attempt.saturating_sub(2));
    if ms > 0 {
        std::thread::sleep(Duration::from_millis(ms));
    }
}

/// A configured workload.
///
/// # Errors
/// [`Usage`] when the name or a setting is unknown, with the nearest known one.
pub fn workload(
    name: &str,
    settings: &BTreeMap<String, String>,
    seed: u64,
) -> anyhow::Result<Box<dyn Workload>> {
    let Some(entry) = WORKLOADS.iter().find(|entry| entry.name == name) else {
        let names: Vec<&str> = WORKLOADS.iter().map(|entry| entry.name).collect();
        return Err(usage(unknown("workload", name, &names)));
    };
    let mut settings = settings.clone();
    settings
        .entry("seed".to_string())
        .or_insert_with(|| seed.to_string());
    (entry.create)(&settings)
}
