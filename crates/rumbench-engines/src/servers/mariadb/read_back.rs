//! Effective configuration of a server, compared with the requested one.
//!
//! A keyword other than the configuration file's is an error, because it would make the label of
//! every number wrong. The server may round sizes, such as the buffer pool to whole chunks; both
//! sizes are then reported. Settings of the user's own lines are reported without a check.

use std::collections::BTreeMap;

use rumbench_core::engine::{EngineError, Result};

use super::tuned::Setting;
use super::wire::MariaSession;
use crate::facts::Configuration;
use crate::servers::own_lines;
use crate::servers::session::Session;
use crate::servers::sql::{CATALOG_TABLE, Form};

/// Settings that stay at their defaults but affect performance.
const ALSO_TOLD: [&str; 10] = [
    "alluvium_compaction_threads",
    "log_bin",
    "innodb_doublewrite",
    "innodb_page_size",
    "innodb_checksum_algorithm",
    "innodb_compression_algorithm",
    "innodb_use_native_aio",
    "innodb_read_io_threads",
    "innodb_write_io_threads",
    "rocksdb_max_background_jobs",
];

/// Variables with a name other than that of their option, up to MariaDB 11.
const RENAMED: [(&str, &str); 1] = [("transaction_isolation", "tx_isolation")];

/// Requested configuration of a server.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked<'a> {
    pub(super) settings: &'a [Setting],
    /// Required value of `log_bin`, if any.
    pub(super) log_bin: Option<&'static str>,
    /// Settings of the user's own lines.
    pub(super) own: &'a [String],
    /// Names of settings that are reported as they are.
    pub(super) told: &'a [&'static str],
}

/// Variables of a server.
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    pub(super) fn of(session: &mut MariaSession) -> Result<Variables> {
        let rows = session.query("SHOW GLOBAL VARIABLES")?.into_iter();
        let pairs = rows.filter_map(|row| {
            let [name, value] = <[String; 2]>::try_from(row).ok()?;
            Some((name, value))
        });
        Ok(Variables(pairs.collect()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let renamed = RENAMED.iter().find(|(option, _)| *option == name);
        let found = self.0.get(name);
        let found = found.or_else(|| self.0.get(renamed?.1));
        found.map(String::as_str)
    }

    /// Returns the effective configuration.
    ///
    /// # Errors
    /// If the server runs with other values than requested.
    pub(super) fn effective(&self, asked: &Asked<'_>) -> Result<Configuration> {
        let mut configuration = Configuration::default();
        let is_own = |name: &str| asked.own.iter().any(|own| own == name);
        for (name, asked, reason) in asked.settings.iter().filter(|(name, ..)| !is_own(name)) {
            let Some(found) = self.get(name) else {
                return Err(other_than_asked(name, asked, "nothing"));
            };
            if same(asked, found) {
                configuration.tuned(name, found, reason);
            } else if is_size(asked) && is_size(found) {
                configuration.tuned(name, found, &format!("{reason}; asked for {asked}"));
            } else {
                return Err(other_than_asked(name, asked, found));
            }
        }
        let log_bin = self.get("log_bin").unwrap_or("nothing");
        if let Some(wanted) = asked.log_bin.filter(|wanted| !same(wanted, log_bin)) {
            return Err(other_than_asked("log_bin", wanted, log_bin));
        }
        for name in ALSO_TOLD.iter().chain(asked.told) {
            if let Some(value) = self.get(name) {
                configuration.given(name, value);
            }
        }
        for name in asked.own {
            if let Some(value) = self.get(name) {
                configuration.tuned(name, value, own_lines::REASON);
            }
        }
        Ok(configuration)
    }
}

fn other_than_asked(name: &str, asked: &str, found: &str) -> EngineError {
    EngineError::Unsupported(format!(
        "mariadb runs with {name}={found} and was asked for {asked}"
    ))
}

/// Returns true if two words mean the same to the server.
fn same(asked: &str, found: &str) -> bool {
    let plain = |word: &str| match word.to_ascii_lowercase().as_str() {
        "on" | "1" | "true" | "yes" => "on".to_string(),
        "off" | "0" | "false" | "no" => "off".to_string(),
        other => other.to_string(),
    };
    plain(asked) == plain(found)
}

/// Returns true for a number that a server may round; small ones choose a behavior.
fn is_size(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|number| number >= 1000)
}

/// Checks the storage form of the workload's tables and returns it as the server describes it.
///
/// # Errors
/// If a table is stored in another form than the variant's.
pub(super) fn check_form(session: &mut MariaSession, form: Form) -> Result<Option<String>> {
    let wanted = match form {
        Form::InnoDb | Form::MyRocks | Form::Alluvium => return Ok(None),
        Form::KeyBlocks { kib } => format!("row_format compressed, key_block_size={kib}"),
        Form::PageCompressed { level } => {
            format!("page_compressed=1, page_compression_level={level}")
        }
    };
    let tables = session.query(&format!(
        "SELECT table_name, lower(row_format), lower(create_options) \
         FROM information_schema.tables WHERE table_schema = database() AND table_name <> '{CATALOG_TABLE}'"
    ))?;
    for row in &tables {
        let [table, row_format, options] = &row[..] else {
            continue;
        };
        // Names and values may be quoted.
        let options = options.replace(['`', '\''], "").replace(' ', ", ");
        let described = format!("row_format {row_format}, {options}");
        let holds = wanted.split(", ").all(|part| {
            let mut parts = described.split(", ");
            parts.any(|found| found == part)
        });
        if !holds {
            return Err(EngineError::Unsupported(format!(
                "mariadb stores the table {table} as `{described}` and was asked for `{wanted}`"
            )));
        }
    }
    Ok(Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        let pairs = pairs.iter();
        let pairs = pairs.map(|(name, value)| (name.to_string(), value.to_string()));
        Variables(pairs.collect())
    }

    #[test]
    fn another_word_is_an_error_and_another_number_is_told() {
        let found = variables(&[
            ("log_bin", "OFF"),
            ("tx_isolation", "READ-COMMITTED"),
            ("performance_schema", "0"),
            ("pool", "134217728"),
            ("at_commit", "2"),
        ]);
        let effective = |isolation: &str, own: &[String]| {
            let settings = [
                ("transaction_isolation", isolation.to_string(), "why"),
                ("performance_schema", "OFF".to_string(), "why"),
                ("pool", "130000000".to_string(), "cache"),
            ];
            found.effective(&Asked {
                settings: &settings,
                log_bin: Some("OFF"),
                own,
                told: &["at_commit"],
            })
        };
        let map = effective("READ-COMMITTED", &[]).unwrap().to_map();
        assert_eq!(map["at_commit"], "2");
        assert!(map["pool"].contains("134217728") && map["pool"].contains("asked for 130000000"));
        let error = effective("SERIALIZABLE", &[]).unwrap_err().to_string();
        assert_eq!(
            error,
            "mariadb runs with transaction_isolation=READ-COMMITTED and was asked for SERIALIZABLE"
        );
        let own = ["transaction_isolation", "pool", "at_commit", "unknown"].map(String::from);
        let map = effective("SERIALIZABLE", &own).unwrap().to_map();
        assert_eq!(
            map["transaction_isolation"],
            "READ-COMMITTED (the options file)"
        );
        assert_eq!(map["pool"], "134217728 (the options file)");
        assert_eq!(map["at_commit"], "2 (the options file)");
        assert!(!map.contains_key("unknown"));
        let with_log = Asked {
            log_bin: Some("ON"),
            ..Asked::default()
        };
        assert!(found.effective(&with_log).is_err());
        for (name, value) in [("none", "1"), ("at_commit", "1")] {
            let asked = Asked {
                settings: &[(name, value.to_string(), "")],
                ..Asked::default()
            };
            assert!(found.effective(&asked).is_err(), "{name}");
        }
    }
}
