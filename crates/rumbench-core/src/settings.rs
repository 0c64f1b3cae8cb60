//! Settings of a workload: one table of keys for parsing, printing and explaining them.
//!
//! A workload has a configuration `C` and a table of [`Setting`]s; each can print its effective
//! value and set it from text. The macros write the common rows of such tables.

use crate::trial::PhaseEnd;

/// One key of a workload with configuration `C`.
pub struct Setting<C: 'static> {
    /// Name of the key.
    pub key: &'static str,
    /// Meaning of the setting, with its unit.
    pub meaning: &'static str,
    /// Returns the effective value; `None` if it does not apply.
    get: fn(&C) -> Option<String>,
    /// Sets the value. The error is the text of the allowed values.
    set: fn(&mut C, &str) -> Result<(), String>,
}

/// Creates one row of a table.
pub(crate) const fn setting<C>(
    key: &'static str,
    meaning: &'static str,
    get: fn(&C) -> Option<String>,
    set: fn(&mut C, &str) -> Result<(), String>,
) -> Setting<C> {
    Setting {
        key,
        meaning,
        get,
        set,
    }
}

/// A number in one field of the configuration; the given function parses it and checks its bounds.
macro_rules! number {
    ($key:literal, $meaning:literal, $c:ident => $place:expr, $parse:ident($($bound:expr),*)) => {
        setting(
            $key,
            $meaning,
            |$c| Some($place.to_string()),
            |$c, value| $parse(value, $($bound),*).map(|x| $place = x as _),
        )
    };
}
pub(crate) use number;

/// One of a few names.
macro_rules! choice {
    ($key:literal, $meaning:literal, $c:ident => $place:expr, $names:expr) => {
        setting(
            $key,
            $meaning,
            |$c| name_of(&$names, &$place),
            |$c, value| choose(value, &$names).map(|x| $place = x),
        )
    };
}
pub(crate) use choice;

/// Reason for refusing settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No such key.
    #[error("unknown {workload} setting {key}")]
    UnknownKey {
        /// Workload of the settings.
        workload: &'static str,
        /// The unknown key.
        key: String,
    },
    /// The key's value cannot be used.
    #[error("{workload} setting {key}={value}: {allowed}")]
    BadValue {
        /// Workload of the settings.
        workload: &'static str,
        /// The key.
        key: String,
        /// The value given.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// Values that exclude each other.
    #[error("{workload} settings: {reason}")]
    Combination {
        /// Workload of the settings.
        workload: &'static str,
        /// Reason why the values exclude each other.
        reason: String,
    },
}

/// Parses settings; the last of a repeated key counts. `refusal` returns a reason if the values
/// exclude each other.
pub(crate) fn read<C: Default, K: AsRef<str>, V: AsRef<str>>(
    workload: &'static str,
    table: &[Setting<C>],
    pairs: impl IntoIterator<Item = (K, V)>,
    refusal: impl FnOnce(&C) -> Option<String>,
) -> Result<C, ConfigError> {
    let pairs = owned(pairs);
    let mut config = C::default();
    for (key, value) in &pairs {
        apply(workload, table, &mut config, key, value)?;
    }
    refuse_both(workload, &pairs, &[("seconds", "operations")])?;
    match refusal(&config) {
        None => Ok(config),
        Some(reason) => Err(ConfigError::Combination { workload, reason }),
    }
}

/// Sets one key of a workload's configuration.
pub(crate) fn apply<C>(
    workload: &'static str,
    table: &[Setting<C>],
    config: &mut C,
    key: &str,
    value: &str,
) -> Result<(), ConfigError> {
    let Some(setting) = table.iter().find(|setting| setting.key == key) else {
        return Err(ConfigError::UnknownKey {
            workload,
            key: key.to_owned(),
        });
    };
    (setting.set)(config, value.trim()).map_err(|allowed| ConfigError::BadValue {
        workload,
        key: key.to_owned(),
        value: value.to_owned(),
        allowed,
    })
}

/// Refuses settings that give both keys of an exclusive pair.
pub(crate) fn refuse_both(
    workload: &'static str,
    given: &[(String, String)],
    exclusive: &[(&str, &str)],
) -> Result<(), ConfigError> {
    let has = |key: &str| given.iter().any(|(known, _)| known == key);
    match exclusive.iter().find(|(a, b)| has(a) && has(b)) {
        Some((a, b)) => Err(ConfigError::Combination {
            workload,
            reason: format!("give {a} or {b}, not both"),
        }),
        None => Ok(()),
    }
}

/// Returns every effective setting as text, in the order of the table.
pub(crate) fn effective<C>(table: &[Setting<C>], config: &C) -> Vec<(String, String)> {
    let shown = table
        .iter()
        .filter_map(|setting| Some((setting.key.to_owned(), (setting.get)(config)?)));
    shown.collect()
}

/// Returns key and value pairs as owned text.
pub(crate) fn owned<K, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<(String, String)>
where
    K: AsRef<str>,
    V: AsRef<str>,
{
    pairs
        .into_iter()
        .map(|(key, value)| (key.as_ref().to_owned(), value.as_ref().to_owned()))
        .collect()
}

/// Returns the name of a value.
pub(crate) fn name_of<T: PartialEq>(names: &[(&str, T)], value: &T) -> Option<String> {
    names
        .iter()
        .find(|(_, known)| known == value)
        .map(|(name, _)| (*name).to_owned())
}

/// Returns the value of a name. The error lists the allowed names.
pub(crate) fn choose<T: Copy>(value: &str, names: &[(&str, T)]) -> Result<T, String> {
    let found = names
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(value));
    found.map(|(_, known)| *known).ok_or_else(|| {
        let allowed: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("{} is allowed", allowed.join(" or "))
    })
}

/// Parses a whole number in a range.
pub(crate) fn whole(value: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = value
        .parse()
        .ok()
        .filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("a whole number from {min} to {max} is allowed"))
}

/// Parses a number in a range.
pub(crate) fn decimal(value: &str, min: f64, max: f64) -> Result<f64, String> {
    let number = value
        .parse()
        .ok()
        .filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("a number from {min} to {max} is allowed"))
}

/// Returns the seconds of an end by time.
pub(crate) fn seconds_of(end: Option<PhaseEnd>) -> Option<String> {
    match end {
        Some(PhaseEnd::Seconds(seconds)) => Some(seconds.to_string()),
        _ => None,
    }
}

/// Returns the operations of an end by count.
pub(crate) fn operations_of(end: Option<PhaseEnd>) -> Option<String> {
    match end {
        Some(PhaseEnd::Operations(operations)) => Some(operations.to_string()),
        _ => None,
    }
}
