//! Files shipped in the binary: YCSB's workloads A to F, a mix with missing keys, and reads of data
//! larger than the cache.
//!
//! Mixes, distributions and row sizes of YCSB's workloads are those of YCSB's `workloads/` and
//! `CoreWorkload`. YCSB's tables have a thousand rows by default, these a million.

/// Workload file shipped in the binary.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Description, the same as in the file.
    pub description: &'static str,
    /// Content of the file.
    pub text: &'static str,
}

macro_rules! preset {
    ($name:literal, $description:literal) => {
        Preset {
            name: $name,
            description: $description,
            text: include_str!(concat!("../../presets/", $name, ".toml")),
        }
    };
}

/// All presets.
#[rustfmt::skip] // One preset a line.
pub const PRESETS: &[Preset] = &[
    preset!("beyond-cache", "point reads and scans of rows several times the cache, before and after the settle"),
    preset!("missing-keys", "reads of which half look for keys that no row has"),
    preset!("ycsb-a", "YCSB A, update heavy: half reads, half updates of one field, zipfian"),
    preset!("ycsb-b", "YCSB B, read mostly: 95 % reads, 5 % updates of one field, zipfian"),
    preset!("ycsb-c", "YCSB C, read only, zipfian"),
    preset!("ycsb-d", "YCSB D, read latest: 95 % reads of new rows, 5 % inserts"),
    preset!("ycsb-e", "YCSB E, short ranges: 95 % scans of 1 to 100 rows, 5 % inserts, zipfian"),
    preset!("ycsb-f", "YCSB F, read-modify-write: half reads, half reads that are followed by an update of one field, zipfian"),
];

/// Returns the preset with this name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::custom::Config;

    #[test]
    fn every_preset_can_be_read_and_is_described_by_its_own_words() {
        for preset in PRESETS {
            let config = Config::read(preset.name, preset.text).unwrap();
            assert_eq!(config.definition.description, preset.description);
            let row_bytes: Vec<u64> = config
                .definition
                .tables
                .iter()
                .map(|t| t.row_bytes())
                .collect();
            // A key, and ten fields of 100 bytes or one of 200.
            let expected = if preset.name == "beyond-cache" {
                208
            } else {
                1008
            };
            assert_eq!(row_bytes, [expected], "{}", preset.name);
        }
    }
}
