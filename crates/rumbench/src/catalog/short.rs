//! Short forms of the workloads, which measure the client's own cost: settings to leave out, and settings to set.

use rumbench_core::oltp_range;

use super::Settings;

/// Few nodes when there are many, two seconds of requests, no warm-up, one step.
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
    overrides.insert("seconds".to_string(), "2".to_string());
    (removed, overrides)
}

/// Few rows when there are many, and each mix for half a second as fast as it can be.
pub(super) fn custom() -> (&'static [&'static str], Settings) {
    const MOST_ROWS: u64 = 100_000;
    let most = MOST_ROWS.to_string();
    let overrides = [("max_rows", &*most), ("seconds", "0.5"), ("rates", "no")];
    let overrides = overrides.map(|(key, value)| (key.to_string(), value.to_string()));
    (&["requests", "seconds"], overrides.into())
}

/// Few rows when there are many, queries for half a second in each step, and no wait before them.
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

/// Few rows when there are many: values decide what they take, and a load goes at memory's speed. Two seconds of queries.
pub(super) fn large_values(settings: &Settings) -> (&'static [&'static str], Settings) {
    const MOST_ROWS: u64 = 20_000;
    let mut overrides = at_most(settings, "rows", MOST_ROWS);
    overrides.insert("seconds".to_string(), "2".to_string());
    (&["operations", "seconds"], overrides)
}

/// Few rows when there are many, but not fewer than the longest range, and a third of a second for each test.
pub(super) fn oltp_range(settings: &Settings) -> (&'static [&'static str], Settings) {
    let mut overrides = at_most(settings, "rows", oltp_range::tests::RANGE_MAX);
    overrides.insert("seconds".to_string(), "0.3".to_string());
    (&["operations", "seconds"], overrides)
}

/// Few keys when there are many, and as many operations as take some tenths of a second.
pub(super) fn kv_sequence(settings: &Settings) -> (&'static [&'static str], Settings) {
    const MOST_KEYS: u64 = 100_000;
    const OPERATIONS: u64 = 100_000;
    let mut overrides = at_most(settings, "keys", MOST_KEYS);
    overrides.insert("operations".to_string(), OPERATIONS.to_string());
    (&["operations", "seconds"], overrides)
}

/// An override where a number is larger than `most`, or the default, which is taken to be.
fn at_most(settings: &Settings, key: &str, most: u64) -> Settings {
    let given = settings.get(key).and_then(|text| text.parse().ok());
    let mut overrides = Settings::new();
    if given.unwrap_or(u64::MAX) > most {
        overrides.insert(key.to_string(), most.to_string());
    }
    overrides
}
