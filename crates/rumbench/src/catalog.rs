//! Workloads of the command line: names, settings and phases, and usage errors that suggest the
//! nearest name.

mod entry;
mod short;

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rumbench_core::custom::{self, Custom};
use rumbench_core::names::unknown;
use rumbench_core::settings::{ConfigError, Setting};
use rumbench_core::trial::Workload;
use rumbench_core::{insert_benchmark, kv_sequence, large_values, linkbench, oltp_range};

use crate::measure::environment;
pub use entry::{Settings, WorkloadEntry};

/// Error in the command line, with its message; the process exits with code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Creates a usage error as `anyhow::Error`.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// Settings that the runner itself uses, for every workload. All others go to the workload, which
/// rejects unknown keys.
pub const RUNNER_KEYS: &[&str] = &["cache_bytes", "rate", "arrivals", COMPACTION];

/// Key of the compaction style, a setting of every engine that has several styles.
pub const COMPACTION: &str = "compaction";

/// All built-in workloads.
pub const WORKLOADS: &[WorkloadEntry] = &[
    WorkloadEntry {
        name: "insert-benchmark",
        description: "tables as queues with three indexes: load, build, inserts and deletes, then queries with background inserts",
        phases: || insert_benchmark::STEPS.to_vec(),
        create: create_insert_benchmark,
        expand: |_| Ok(()),
        endless: |settings| repeat_last(settings, "l.i0,l.x,l.i1"),
        shorten: short::insert_benchmark,
    },
    WorkloadEntry {
        name: "kv-sequence",
        description: "rows of one table, and the order of steps of db_bench: load, reads, scans, overwrites",
        phases: || {
            let steps = kv_sequence::STEPS.iter();
            steps.map(|step| (step.name, step.meaning)).collect()
        },
        create: create_kv_sequence,
        expand: expand_kv_sequence,
        // The writes of a database close belong to no step, so they would not be measured.
        endless: |settings| match settings.get("reopen").map(String::as_str) {
            Some("yes") => None,
            _ => repeat_last(settings, "load,overwrite"),
        },
        shorten: short::kv_sequence,
    },
    WorkloadEntry {
        name: "large-values",
        description: "values of 100 bytes to 512 KiB in key order, then queries with background inserts; size against the compressed rows",
        phases: || large_values::PHASES.to_vec(),
        create: create_large_values,
        expand: |settings| {
            // Elsewhere `rate` paces the measured clients; here it paces the background inserts.
            if let Some(rate) = settings.remove("rate") {
                settings.insert("insert_rate".to_string(), rate);
            }
            Ok(())
        },
        endless: |_| None,
        shorten: short::large_values,
    },
    WorkloadEntry {
        name: "linkbench",
        description: "a social graph's nodes, links and counts: load, then ten operations on them",
        phases: || LINKBENCH_PHASES.to_vec(),
        create: create_linkbench,
        expand: |_| Ok(()),
        endless: |settings| {
            settings.insert("steps".to_string(), STEPS_MAX.to_string());
            Some("request".to_string())
        },
        shorten: short::linkbench,
    },
    WorkloadEntry {
        name: "oltp-range",
        description: "the tests of sysbench: points, ranges by key and by index, transactions that read and write, scans",
        phases: oltp_range::phases,
        create: create_oltp_range,
        expand: |_| Ok(()),
        endless: |settings| repeat_last(settings, "load,index,update-index"),
        shorten: short::oltp_range,
    },
];

const LINKBENCH_PHASES: &[(&str, &str)] = &[
    ("load", "writes all nodes, links and counts"),
    (
        "index",
        "builds the index of links, where the engine separates it from the load",
    ),
    ("warmup", "the mix of requests, not recorded"),
    ("request", "the mix of requests"),
    (
        "settle",
        "the engine works off its backlog: flush, compaction, checkpoint, sync",
    ),
];

fn create_linkbench(settings: &Settings) -> anyhow::Result<Box<dyn Workload>> {
    let config = linkbench::Config::from_pairs(settings.iter())
        .map_err(|error| refused(error, linkbench::SETTINGS))?;
    let hooks = linkbench::Hooks { now_ms, backoff };
    Ok(Box::new(linkbench::LinkBench::new(config, hooks)))
}

fn create_insert_benchmark(settings: &Settings) -> anyhow::Result<Box<dyn Workload>> {
    let config = insert_benchmark::Config::from_pairs(settings.iter())
        .map_err(|error| refused(error, insert_benchmark::SETTINGS))?;
    let workload = insert_benchmark::InsertBenchmark::new(config, backoff)?;
    Ok(Box::new(workload))
}

fn create_large_values(settings: &Settings) -> anyhow::Result<Box<dyn Workload>> {
    let config = large_values::Config::from_pairs(settings.iter())
        .map_err(|error| refused(error, large_values::SETTINGS))?;
    Ok(Box::new(large_values::LargeValues::new(config, backoff)?))
}

fn create_oltp_range(settings: &Settings) -> anyhow::Result<Box<dyn Workload>> {
    let config = oltp_range::Config::from_pairs(settings.iter())
        .map_err(|error| refused(error, oltp_range::SETTINGS))?;
    Ok(Box::new(oltp_range::OltpRange::new(config, backoff)?))
}

fn create_kv_sequence(settings: &Settings) -> anyhow::Result<Box<dyn Workload>> {
    let config = kv_sequence_config(settings)?;
    Ok(Box::new(kv_sequence::KvSequence::new(config, backoff)))
}

fn kv_sequence_config(settings: &Settings) -> anyhow::Result<kv_sequence::Config> {
    kv_sequence::Config::from_pairs(settings.iter())
        .map_err(|error| refused(error, kv_sequence::SETTINGS))
}

/// Key of the setting that holds the file text of a custom workload. With it, a trial or a result
/// does not need the file.
pub const DEFINITION: &str = "definition";

/// Returns the file text of a custom workload or preset, or `None` for a built-in workload.
fn definition<'a>(name: &str, settings: &'a Settings) -> Option<&'a str> {
    let given = settings.get(DEFINITION).map(String::as_str);
    given.or_else(|| custom::presets::find(name).map(|preset| preset.text))
}

fn create_custom(name: &str, text: &str, settings: &Settings) -> anyhow::Result<Custom> {
    let config = custom::Config::read(name, text).map_err(|error| usage(error.to_string()))?;
    let own = settings.iter().filter(|(key, _)| *key != DEFINITION);
    let config = config
        .with_settings(own)
        .map_err(|error| refused(error, custom::SETTINGS))?;
    Ok(Custom::new(config, backoff)?)
}

/// Checks the file text of a custom workload. `file` is the name of the file in messages.
///
/// # Errors
/// [`Usage`] with the file, the line and the allowed values.
pub fn check_definition(file: &str, text: &str) -> anyhow::Result<()> {
    let read = custom::Config::read(file, text);
    read.map_or_else(|error| Err(usage(error.to_string())), |_| Ok(()))
}

/// Converts an error in the settings to a usage error. For an unknown key it suggests the nearest
/// key of the workload or the runner.
fn refused<C>(error: ConfigError, table: &[Setting<C>]) -> anyhow::Error {
    match error {
        ConfigError::UnknownKey { workload, key } => {
            let own = table.iter().map(|setting| setting.key);
            let known: Vec<&str> = own.chain(RUNNER_KEYS.iter().copied()).collect();
            usage(unknown(&format!("{workload} setting"), &key, &known))
        }
        error => usage(error.to_string()),
    }
}

/// Sets the number of keys and the engine's cache size for the requested `cached`, according to the
/// machine's memory, unless they are given.
fn expand_kv_sequence(settings: &mut Settings) -> anyhow::Result<()> {
    // The workload rejects the runner's keys; the runner checks them later.
    let mut own = settings.clone();
    own.retain(|key, _| !RUNNER_KEYS.contains(&key.as_str()));
    let config = kv_sequence_config(&own)?;
    let Some(memory) = config.memory_bytes.or_else(environment::memory_bytes) else {
        return Ok(());
    };
    let row_bytes = config.row_bytes();
    if let Some((keys, cache)) = kv_sequence::config::sized(config.cached, memory, row_bytes) {
        let mut choose = |key: &str, value: u64| {
            let entry = settings.entry(key.to_string());
            entry.or_insert_with(|| value.to_string());
        };
        choose("keys", keys);
        choose("cache_bytes", cache);
        choose("memory_bytes", memory);
    }
    Ok(())
}

/// Maximum number of steps in a trial that ages its database: the limit of LinkBench.
pub const STEPS_MAX: usize = 1000;

/// Repeats the last step of the `steps` setting, or of `default` if it is not set. Returns the name
/// of the step.
fn repeat_last(settings: &mut Settings, default: &str) -> Option<String> {
    let list = settings.entry("steps".to_string());
    let list = list.or_insert_with(|| default.to_string());
    let last = list.rsplit(',').next().unwrap_or(list).trim().to_string();
    *list += &format!(",{last}").repeat(STEPS_MAX - 1);
    Some(last)
}

/// Returns the milliseconds since the Unix epoch.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |elapsed| elapsed.as_millis() as u64)
}

/// Waits before the given attempt of a transaction; attempt 2 is the first retry.
fn backoff(attempt: u32) {
    let ms = backoff_ms(attempt);
    if ms > 0 {
        std::thread::sleep(Duration::from_millis(ms));
    }
}

/// Returns the wait of the reference implementation: none before the first retry, then 20 ms more
/// each time. Ours is capped at half a second. Both give up after a thousand attempts, but without
/// the cap these take three hours, and a trial counts as stuck long before.
fn backoff_ms(attempt: u32) -> u64 {
    20 * u64::from(attempt.saturating_sub(2)).min(25)
}

fn find(name: &str) -> anyhow::Result<&'static WorkloadEntry> {
    WORKLOADS
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| {
            let presets = custom::PRESETS.iter().map(|preset| preset.name);
            let names = WORKLOADS.iter().map(|entry| entry.name);
            let names: Vec<&str> = names.chain(presets).collect();
            let unknown = unknown("workload", name, &names);
            usage(format!(
                "{unknown} (an own one is named by its file: ./{name}.toml)"
            ))
        })
}

/// Creates a workload from its name and settings. `seed` applies unless the settings have one.
///
/// # Errors
/// [`Usage`] if the name or a setting is unknown, with the nearest known one, or if a value is
/// invalid.
pub fn workload(name: &str, settings: &Settings, seed: u64) -> anyhow::Result<Box<dyn Workload>> {
    let mut settings = settings.clone();
    settings
        .entry("seed".to_string())
        .or_insert_with(|| seed.to_string());
    if let Some(text) = definition(name, &settings) {
        return Ok(Box::new(create_custom(name, text, &settings)?));
    }
    (find(name)?.create)(&settings)
}

/// Adds settings derived from the given ones and from the machine.
///
/// # Errors
/// As [`workload`].
pub fn expand(name: &str, settings: &mut Settings) -> anyhow::Result<()> {
    match definition(name, settings) {
        Some(_) => Ok(()),
        None => (find(name)?.expand)(settings),
    }
}

/// Prepares the settings for a search of the highest rate, and returns the names of the phases that
/// the rate applies to, in order; a repeated phase is named once. A search begins without a rate,
/// so the rates that a custom workload gives its phases are turned off.
///
/// # Errors
/// As [`workload`].
pub fn paced_phases(name: &str, settings: &mut Settings) -> anyhow::Result<Vec<String>> {
    if definition(name, settings).is_some() {
        settings.insert("rates".to_string(), "no".to_string());
    }
    let mut phases: Vec<String> = Vec::new();
    for phase in workload(name, settings, 1)?.paced_phases() {
        let base = crate::store::result::base_name(&phase).to_string();
        if !phases.contains(&base) {
            phases.push(base);
        }
    }
    Ok(phases)
}

/// Makes a workload repeat one writing step up to [`STEPS_MAX`] times. Returns the name of the
/// step: the last one in `steps`, `request` for LinkBench, or the last phase of kind `run` for a
/// custom workload.
///
/// # Errors
/// A usage error if the workload is unknown or has no steps, or if the last step is a settle.
pub fn endless(name: &str, settings: &mut Settings) -> anyhow::Result<String> {
    let repeated = match definition(name, settings).map(str::to_owned) {
        Some(text) => {
            settings.insert("repeats".to_string(), STEPS_MAX.to_string());
            let config = custom::Config::read(name, &text);
            let config = config.map_err(|error| usage(error.to_string()))?;
            config.last_run().map(str::to_owned)
        }
        None => (find(name)?.endless)(settings),
    };
    let phase = repeated.ok_or_else(|| {
        usage(format!(
            "{name} cannot be aged: it needs a list of steps, the repeated one must rewrite existing rows, and reopen=yes is not allowed"
        ))
    })?;
    if phase == "settle" {
        return Err(usage(
            "steps end with settle, which writes nothing: the last step is the one that is repeated",
        ));
    }
    Ok(phase)
}

/// Returns the settings of a short trial that measures the client's own cost, and the subset that
/// was added or changed.
///
/// # Errors
/// As [`workload`].
pub fn shortened(name: &str, settings: &Settings) -> anyhow::Result<(Settings, Settings)> {
    let (removed, overrides) = match definition(name, settings) {
        Some(_) => short::custom(),
        None => (find(name)?.shorten)(settings),
    };
    let mut short = settings.clone();
    short.retain(|key, _| !removed.contains(&key.as_str()));
    short.extend(overrides.clone());
    Ok((short, overrides))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::result::base_name;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let pairs = pairs.iter();
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn the_limit_of_retries_comes_before_a_trial_is_stuck() {
        let first = [2, 3, 4, 30].map(backoff_ms);
        assert_eq!(first, [0, 20, 40, 500]);
        let all: u64 = (2..=rumbench_core::retry::ATTEMPTS_MAX)
            .map(backoff_ms)
            .sum();
        assert!(all < 1000 * crate::run::plan::STUCK_AFTER_S, "{all}");
    }

    #[test]
    fn a_cached_table_is_sized_by_the_memory_unless_sizes_are_given() {
        let mut os = settings(&[("cached", "os"), ("memory_bytes", "16000000000")]);
        expand("kv-sequence", &mut os).unwrap();
        assert_eq!(os["cache_bytes"], "1000000000");
        assert_eq!(os["keys"], "19047619");
        let mut given = settings(&[("cached", "os"), ("keys", "7"), ("cache_bytes", "9")]);
        expand("kv-sequence", &mut given).unwrap();
        assert_eq!(
            (given["keys"].as_str(), given["cache_bytes"].as_str()),
            ("7", "9")
        );
        let mut none = settings(&[("keys", "7"), ("rate", "5")]);
        expand("kv-sequence", &mut none).unwrap();
        assert_eq!(none.len(), 2);
    }

    #[test]
    fn calibration_keeps_what_decides_the_clients_cost() {
        let given = settings(&[
            ("keys", "40000000"),
            ("steps", "load,get"),
            ("seconds", "9"),
        ]);
        let (short, overrides) = shortened("kv-sequence", &given).unwrap();
        assert_eq!(short["steps"], "load,get");
        assert_eq!(short["keys"], "100000");
        assert!(!short.contains_key("seconds"));
        assert_eq!(overrides.len(), 2);
        let given = settings(&[("nodes", "10"), ("steps", "3"), ("operations", "9")]);
        let (short, _) = shortened("linkbench", &given).unwrap();
        assert_eq!(
            short,
            settings(&[("nodes", "10"), ("seconds", "1"), ("steps", "3")])
        );
        let given = settings(&[("rows", "10"), ("settle", "reference")]);
        let (short, _) = shortened("insert-benchmark", &given).unwrap();
        assert_eq!(short, settings(&[("rows", "10"), ("seconds", "0.5")]));
    }

    #[test]
    fn an_endless_workload_repeats_its_last_step() {
        let mut own = settings(&[("steps", "fillseq,get,put")]);
        assert_eq!(endless("kv-sequence", &mut own).unwrap(), "put");
        assert!(own["steps"].starts_with("fillseq,get,put,put,"));
        let all = [
            "insert-benchmark",
            "kv-sequence",
            "linkbench",
            "oltp-range",
            "ycsb-a",
        ];
        for name in all {
            let mut none = Settings::new();
            let phase = endless(name, &mut none).unwrap();
            let phases = workload(name, &none, 1).unwrap().phase_names();
            let repeated = phases.iter().filter(|name| base_name(name) == phase);
            assert!(repeated.count() >= STEPS_MAX, "{name}");
        }
        let mut settle = settings(&[("steps", "load,put,settle")]);
        assert!(endless("kv-sequence", &mut settle).is_err());
        assert!(endless("large-values", &mut Settings::new()).is_err());
    }

    #[test]
    fn a_misspelled_setting_is_answered_with_the_nearest() {
        let error = workload("kv-sequence", &settings(&[("valu_bytes", "5")]), 1);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("did you mean `value_bytes`?"), "{error}");
    }
}
