//! Configuration of one trial of large values, and the table of its keys.

use crate::settings::{
    ConfigError, Setting, decimal, effective, number, operations_of, read, seconds_of, setting,
    whole,
};
use crate::trial::PhaseEnd;

/// Name of the workload in messages and results.
pub const WORKLOAD: &str = "large-values";

/// Longest value: 512 KiB.
const VALUE_BYTES_MAX: u64 = 512 << 10;
/// Most bytes of one transaction: engines hold it in memory before they write it.
const TRANSACTION_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a key.
const KEY_BYTES: u64 = 8;

/// Configuration of a trial. `docs/guide/large-values-workload.md` explains each key.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Rows of the load.
    pub rows: u64,
    /// Shortest value in bytes.
    pub value_min: u64,
    /// Longest value in bytes.
    pub value_max: u64,
    /// Share of a value that is random bytes, in percent.
    pub random_percent: u64,
    /// Number of clients of the load, and of the queries.
    pub clients: u32,
    /// Rows of one transaction of the load.
    pub load_batch: u64,
    /// Background inserts during the queries in rows per second; 0: none.
    pub insert_rate: u64,
    /// Rows of one transaction of background inserts.
    pub batch: u64,
    /// End of the queries.
    pub end: PhaseEnd,
    /// Seed of all rows and all queries.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            rows: 1_000_000,
            value_min: 100,
            value_max: 1000,
            random_percent: 45,
            clients: 1,
            load_batch: 10,
            insert_rate: 1000,
            batch: 10,
            end: PhaseEnd::Seconds(60.0),
            seed: 1,
        }
    }
}

/// All keys, in the order of the guide.
#[rustfmt::skip] // One key a line.
pub const SETTINGS: &[Setting<Config>] = &[
    number!("rows", "rows of the load", c => c.rows, whole(1, 1 << 40)),
    number!("value_min", "shortest value in bytes", c => c.value_min, whole(1, VALUE_BYTES_MAX)),
    number!("value_max", "longest value in bytes", c => c.value_max, whole(1, VALUE_BYTES_MAX)),
    number!("random_percent", "share of a value that is random bytes, in percent", c => c.random_percent, whole(0, 100)),
    number!("clients", "clients that load, and that query", c => c.clients, whole(1, 1024)),
    number!("load_batch", "rows of one transaction of the load", c => c.load_batch, whole(1, 100_000)),
    number!("insert_rate", "rows that one more client inserts during the queries, per second; 0: none (`rate` is the same)",
        c => c.insert_rate, whole(0, 100_000_000)),
    number!("batch", "rows of one background transaction", c => c.batch, whole(1, 100_000)),
    setting("seconds", "length of the queries in seconds: the background inserts are seconds times their rate",
        |c| seconds_of(Some(c.end)),
        |c, value| decimal(value, 0.1, 1e7).map(|x| c.end = PhaseEnd::Seconds(x))),
    setting("operations", "queries over all clients, instead of seconds",
        |c| operations_of(Some(c.end)),
        |c, value| whole(value, 1, u64::MAX).map(|x| c.end = PhaseEnd::Operations(x))),
    number!("seed", "decides all rows and all queries", c => c.seed, whole(0, u64::MAX)),
];

impl Config {
    /// Reads settings; the last value of a repeated key counts.
    ///
    /// # Errors
    /// Fails on an unknown key, a forbidden value (the message names the allowed values), or
    /// settings that exclude each other.
    pub fn from_pairs<K, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Result<Config, ConfigError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        read(WORKLOAD, SETTINGS, pairs, Config::refusal)
    }

    /// Returns the reason why these settings exclude each other, if they do.
    fn refusal(&self) -> Option<String> {
        let Config {
            value_min,
            value_max,
            ..
        } = self;
        if value_min > value_max {
            return Some(format!(
                "value_min={value_min} must not be above value_max={value_max}"
            ));
        }
        let batches = [("load_batch", self.load_batch), ("batch", self.batch)];
        let (key, rows) = batches
            .into_iter()
            .find(|(_, rows)| rows * value_max > TRANSACTION_BYTES_MAX)?;
        let most = TRANSACTION_BYTES_MAX / value_max;
        Some(format!(
            "a transaction of {rows} rows could hold {} bytes; {TRANSACTION_BYTES_MAX} are allowed: set {key} to {most} or less",
            rows * value_max
        ))
    }

    /// Returns every effective setting as text, in the order of the guide.
    pub fn settings(&self) -> Vec<(String, String)> {
        effective(SETTINGS, self)
    }

    /// Returns the rows of one background transaction: at most the rows of one second.
    pub fn background_batch(&self) -> u64 {
        self.batch.min(self.insert_rate.max(1))
    }

    /// Returns the bytes of a row of mean length.
    pub fn row_bytes(&self) -> u64 {
        KEY_BYTES + u64::midpoint(self.value_min, self.value_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pairs: &[(&str, &str)]) -> String {
        let refused = Config::from_pairs(pairs.iter().copied());
        refused.unwrap_err().to_string()
    }

    #[test]
    fn printed_settings_read_back() {
        let config = Config::from_pairs([("operations", "10"), ("value_max", "524288")]).unwrap();
        assert_eq!(Config::from_pairs(config.settings()).unwrap(), config);
    }

    #[test]
    fn invalid_settings_are_rejected_with_a_reason() {
        assert!(refusal(&[("rows", "0")]).contains("from 1 to"));
        assert!(refusal(&[("value_max", "524289")]).contains("from 1 to 524288"));
        assert!(refusal(&[("value_min", "2000")]).contains("must not be above value_max=1000"));
        assert!(refusal(&[("random_percent", "101")]).contains("from 0 to 100"));
        assert!(refusal(&[("seconds", "1"), ("operations", "1")]).contains("not both"));
        let large = refusal(&[("value_max", "524288"), ("batch", "129")]);
        assert!(large.contains("set batch to 128 or less"), "{large}");
    }
}
