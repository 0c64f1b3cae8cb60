//! Short forms of the workloads, for measuring the client's own cost: settings to leave out, and
//! settings to set.

use rumbench_core::oltp_range;

use super::entry::Settings;

/// Limits the nodes and uses three seconds of requests, no warm-up. They are three steps, after
/// which the client's memory grows no more.
pub(super) fn linkbench(settings: &Settings) -> (&'static [&'static str], Settings) {
    const MOST_NODES: u64 = 100_000;
    let removed = &[
        "operations",
        "seconds",
        "steps",
        "warmup_operations",
        "warmup_seconds",
    ];
    let mut overrides = at_most(settings, "nodes", MOST_NODES);
    overrides.insert("seconds".to_string(), "1".to_string());
    overrides.insert("steps".to_string(), "3".to_string());
    (removed, overrides)
}

/// Limits the rows and runs each mix for half a second without a rate.
pub(super) fn custom() -> (&'static [&'static str], Settings) {
    const MOST_ROWS: u64 = 100_000;
    let most = MOST_ROWS.to_string();
    let overrides = [("max_rows", &*most), ("seconds", "0.5"), ("rates", "no")];
    let overrides = overrides.map(|(key, value)| (key.to_string(), value.to_string()));
    (&["requests", "seconds"], overrides.into())
}

/// Limits the rows, runs queries for half a second in each step, and does not settle before them.
pub(super) fn insert_benchmark(settings: &Settings) -> (&'static [&'static str], Settings) {
    const MOST_ROWS: u64 = 200_000;
    let mut overrides = at_most(settings, "rows", MOST_ROWS);
    for key in ["rows_l_i1", "rows_l_i2"] {
        if settings.contains_key(key) {
            overrides.extend(at_most(settings, key, MOST_ROWS));
        }
    }
    overrides.insert("seconds".to_string(), "0.5".to_string());
    (&["operations", "seconds", "settle"], overrides)
}

/// Limits the rows, because the size of values decides the time and a load runs at memory speed.
/// Two seconds of queries.
pub(super) fn large_values(settings: &Settings) -> (&'static [&'static str], Settings) {
    const MOST_ROWS: u64 = 20_000;
    let mut overrides = at_most(settings, "rows", MOST_ROWS);
    overrides.insert("seconds".to_string(), "2".to_string());
    (&["operations", "seconds"], overrides)
}

/// Limits the rows to the longest range, and runs each test for 0.3 seconds.
pub(super) fn oltp_range(settings: &Settings) -> (&'static [&'static str], Settings) {
    let mut overrides = at_most(settings, "rows", oltp_range::tests::RANGE_MAX);
    overrides.insert("seconds".to_string(), "0.3".to_string());
    (&["operations", "seconds"], overrides)
}

/// Limits the keys, and runs as many operations as take some tenths of a second.
pub(super) fn kv_sequence(settings: &Settings) -> (&'static [&'static str], Settings) {
    const MOST_KEYS: u64 = 100_000;
    const OPERATIONS: u64 = 100_000;
    let mut overrides = at_most(settings, "keys", MOST_KEYS);
    overrides.insert("operations".to_string(), OPERATIONS.to_string());
    (&["operations", "seconds"], overrides)
}

/// Returns an override if the number is larger than `most`, or if it is the default, which counts
/// as larger.
fn at_most(settings: &Settings, key: &str, most: u64) -> Settings {
    let given = settings.get(key).and_then(|text| text.parse().ok());
    let mut overrides = Settings::new();
    if given.unwrap_or(u64::MAX) > most {
        overrides.insert(key.to_string(), most.to_string());
    }
    overrides
}
