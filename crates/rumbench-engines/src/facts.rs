//! Facts about an open engine: versions from the lock file, settings with their reasons,
//! durability.

use std::collections::BTreeMap;
use std::fmt::Display;

use rumbench_core::engine::DurabilityFacts;

/// Exact dependency versions of this build, so that a result names only versions that were
/// measured.
const LOCK: &str = include_str!("../../../Cargo.lock");

/// Returns the version of a crate in this build, or `unknown` if it is no dependency.
pub(crate) fn crate_version(name: &str) -> &'static str {
    let mut lines = LOCK.lines();
    while let Some(line) = lines.next() {
        let found = line
            .strip_prefix("name = \"")
            .and_then(|rest| rest.strip_suffix('"'));
        if found == Some(name) {
            return lines
                .next()
                .and_then(|line| line.strip_prefix("version = \""))
                .and_then(|rest| rest.strip_suffix('"'))
                .unwrap_or("unknown");
        }
    }
    "unknown"
}

/// Effective settings by name, in the form that results store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Configuration(BTreeMap<String, String>);

impl Configuration {
    /// Records a setting that is the engine's default or comes from the command line.
    pub(crate) fn given(&mut self, name: &str, value: impl Display) {
        self.0.insert(name.to_string(), value.to_string());
    }

    /// Records a setting that the adapter chose, with the reason.
    pub(crate) fn tuned(&mut self, name: &str, value: impl Display, reason: &str) {
        self.0
            .insert(name.to_string(), format!("{value} ({reason})"));
    }

    /// Returns the settings as a map.
    pub(crate) fn to_map(&self) -> BTreeMap<String, String> {
        self.0.clone()
    }
}

/// Builds durability facts from two sentences.
pub(crate) fn survives(process_kill: &str, power_cut: &str) -> DurabilityFacts {
    DurabilityFacts {
        process_kill: process_kill.to_string(),
        power_cut: power_cut.to_string(),
    }
}

/// Wording for a log that reaches the kernel at commit. Shared, so that equal facts are equal
/// strings.
pub(crate) use rumbench_core::engine::ALL_ACKNOWLEDGED;
/// Wording for a log that is synced once a second.
pub(crate) const PREFIX_ONE_SECOND: &str = "a prefix no older than about 1 s";
/// Wording for a log that is buffered in the process.
pub(crate) const SOME_PREFIX: &str = "a prefix, of unknown age";
/// Wording for possible corruption; see [`DurabilityFacts`].
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
pub(crate) const MAY_CORRUPT: &str = "may corrupt";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        assert!(
            crate_version("serde").starts_with("1."),
            "{}",
            crate_version("serde")
        );
        assert_eq!(crate_version("no-such-crate"), "unknown");
    }

    #[test]
    fn a_reason_follows_a_tuned_value_in_parentheses() {
        let mut configuration = Configuration::default();
        configuration.given("a", 1);
        configuration.tuned("b", 2, "because");
        let map = configuration.to_map();
        assert_eq!(map["a"], "1");
        assert_eq!(map["b"], "2 (because)");
    }
}
