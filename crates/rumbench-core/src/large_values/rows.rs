//! The table and its rows: each row is a function of the seed and its id.
//!
//! A value is a run of the letter `a`, then random bytes, in the shares of the settings. No row
//! shares its random bytes with another row, so a codec saves nothing by looking further back.

use super::config::Config;
use crate::random::Random;
use crate::tables::{Column, ColumnType, RowBatch, Table, TableId, TableSchema, Value};

/// The only table.
pub const TABLE: TableId = TableId(0);
/// Number of columns of the table.
pub const COLUMNS: usize = 2;
/// Key of the random generators of rows.
const ROW_KEY: u64 = 0x6c61_7267;

/// Returns the schema of the table `large` with its key and its value.
pub fn schema() -> Result<&'static TableSchema, String> {
    TableSchema::without_transactions(vec![Table {
        name: "large".to_owned(),
        columns: vec![
            Column::new("id", ColumnType::U64),
            Column::new("value", ColumnType::Bytes),
        ],
        key_columns: 1,
        indexes: Vec::new(),
        expect_hits: true,
    }])
}

/// Generator and checker of rows.
#[derive(Debug, Clone)]
pub struct Rows {
    seed: u64,
    value_min: u64,
    /// Number of different lengths.
    lengths: u64,
    random_percent: u64,
}

impl Rows {
    /// Creates the generator of a configuration.
    pub fn new(config: &Config) -> Rows {
        Rows {
            seed: config.seed,
            value_min: config.value_min,
            lengths: config.value_max - config.value_min + 1,
            random_percent: config.random_percent,
        }
    }

    /// Appends the value of an id to `out`.
    pub fn append_value(&self, id: u64, out: &mut Vec<u8>) {
        let mut random = Random::keyed(self.seed, &[ROW_KEY, id]);
        let length = self.value_min + random.below(self.lengths);
        let bytes = (length * self.random_percent / 100) as usize;
        out.resize(out.len() + length as usize - bytes, b'a');
        for _ in 0..bytes / 8 {
            out.extend_from_slice(&random.bits().to_le_bytes());
        }
        out.extend_from_slice(&random.bits().to_le_bytes()[..bytes % 8]);
    }

    /// Appends a row to a batch.
    pub fn push(&self, id: u64, batch: &mut RowBatch) {
        batch.push(Value::Unsigned(id));
        batch.push_bytes(|out| self.append_value(id, out));
    }

    /// Returns true if a whole row is the row of this id, with the value `value`.
    pub fn is_row(id: u64, value: &[u8], row: &[Value<'_>]) -> bool {
        *row == [Value::Unsigned(id), Value::Bytes(value)]
    }

    /// Returns the keys and values of rows evenly chosen among the first `rows`, in sequence, until
    /// they have `bytes` bytes.
    pub fn sample(&self, rows: u64, bytes: usize, mean_bytes: u64) -> Vec<u8> {
        let wanted = (bytes as u64 / mean_bytes.max(1)).clamp(1, rows);
        let mut out = Vec::with_capacity(bytes);
        for place in 0..wanted {
            // Quotient and remainder are separate, so that no product overflows.
            let id = 1 + rows / wanted * place + rows % wanted * place / wanted;
            out.extend_from_slice(&id.to_be_bytes());
            self.append_value(id, &mut out);
            if out.len() >= bytes {
                break;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(pairs: &[(&str, &str)]) -> Rows {
        Rows::new(&Config::from_pairs(pairs.iter().copied()).unwrap())
    }

    #[test]
    fn values_have_the_lengths_and_the_share_of_random_bytes_that_are_asked_for() {
        for percent in [0, 20, 45, 75, 95, 100] {
            let text = percent.to_string();
            let rows = rows(&[("random_percent", &text), ("value_max", "300")]);
            let (mut all, mut random, mut shortest, mut longest) = (0, 0, 1000, 0);
            for id in 1..=2000 {
                let mut value = Vec::new();
                rows.append_value(id, &mut value);
                shortest = shortest.min(value.len());
                longest = longest.max(value.len());
                all += value.len();
                random += value.len() * percent / 100;
                let constant = value.len() - value.len() * percent / 100;
                assert!(value[..constant].iter().all(|byte| *byte == b'a'));
            }
            assert_eq!((shortest, longest), (100, 300));
            let share = random as f64 / all as f64;
            assert!((share - percent as f64 / 100.0).abs() < 0.01, "{share}");
        }
    }

    #[test]
    fn random_parts_are_random_to_their_last_byte_and_differ_between_rows() {
        let rows = rows(&[("random_percent", "100"), ("value_min", "1000")]);
        let mut seen = [0u32; 256];
        for id in 1..=500 {
            let mut value = Vec::new();
            rows.append_value(id, &mut value);
            value.iter().for_each(|byte| seen[usize::from(*byte)] += 1);
        }
        // 500,000 bytes: 1953 of each are expected, give or take 44.
        assert!(seen.iter().all(|n| (1700..2200).contains(n)), "{seen:?}");
    }

    #[test]
    fn a_sample_is_of_rows_from_the_whole_table() {
        let rows = rows(&[("value_min", "1000")]);
        let sample = rows.sample(1_000_000, 100 * 1008, 1008);
        let ids: Vec<u64> = sample
            .chunks(1008)
            .map(|row| u64::from_be_bytes(row[..8].try_into().unwrap()))
            .collect();
        assert_eq!(ids.len(), 100);
        assert_eq!((ids[0], ids[1], ids[99]), (1, 10_001, 990_001));
        assert_eq!(rows.sample(3, 1 << 20, 1008).len(), 3 * 1008);
    }
}
