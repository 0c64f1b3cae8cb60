//! Parser of an engine's `--set` settings: typed values with defaults, and an error for every
//! unknown key.
//!
//! An engine takes each setting it knows, then calls [`Settings::finish`]. A setting that is left
//! is a spelling mistake of the user, and the error suggests the nearest key.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use rumbench_core::engine::{EngineError, OpenConfig, Result};
use rumbench_core::names::nearest;

/// Settings of one engine that have not been taken yet.
pub(crate) struct Settings<'a> {
    engine: &'static str,
    left: BTreeMap<&'a str, &'a str>,
    known: Vec<&'static str>,
}

impl<'a> Settings<'a> {
    /// Returns all settings that `config` gives to `engine`.
    pub(crate) fn of(engine: &'static str, config: &'a OpenConfig) -> Settings<'a> {
        let left = config
            .settings
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        Settings {
            engine,
            left,
            known: Vec::new(),
        }
    }

    /// Like [`Settings::of`], for an engine that has no variants.
    pub(crate) fn without_variants(
        engine: &'static str,
        config: &'a OpenConfig,
    ) -> Result<Settings<'a>> {
        match &config.variant {
            None => Ok(Settings::of(engine, config)),
            Some(variant) => Err(EngineError::Unsupported(format!(
                "{engine} has no variant `{variant}`"
            ))),
        }
    }

    /// Takes the value of `key`, or `default` if the user gave none.
    pub(crate) fn take<T>(&mut self, key: &'static str, default: T) -> Result<T>
    where
        T: FromStr,
        T::Err: Display,
    {
        Ok(self.take_parsed(key)?.unwrap_or(default))
    }

    /// Takes the text of `key`, if the user gave one.
    #[cfg(any(feature = "mariadb", feature = "postgresql", feature = "rocksdb"))]
    pub(crate) fn take_text(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        self.left.remove(key).map(str::to_string)
    }

    /// Takes the value of `key`, if the user gave one.
    pub(crate) fn take_parsed<T>(&mut self, key: &'static str) -> Result<Option<T>>
    where
        T: FromStr,
        T::Err: Display,
    {
        self.known.push(key);
        let Some(text) = self.left.remove(key) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|error| {
            EngineError::Unsupported(format!("{}.{key}={text}: {error}", self.engine))
        })
    }

    /// Like [`Settings::take`], for a value that must lie in `range`.
    pub(crate) fn take_in<T>(
        &mut self,
        key: &'static str,
        default: T,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<T>
    where
        T: FromStr + PartialOrd + Display + Copy,
        T::Err: Display,
    {
        Ok(self.take_optional(key, range)?.unwrap_or(default))
    }

    /// Takes the value of `key`, if the user gave one. It must lie in `range`.
    pub(crate) fn take_optional<T>(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<Option<T>>
    where
        T: FromStr + PartialOrd + Display + Copy,
        T::Err: Display,
    {
        match self.take_parsed(key)? {
            Some(value) if !range.contains(&value) => Err(EngineError::Unsupported(format!(
                "{}.{key}={value}: must lie between {} and {}",
                self.engine,
                range.start(),
                range.end()
            ))),
            value => Ok(value),
        }
    }

    /// Fails if a setting is left that the engine did not take.
    pub(crate) fn finish(self) -> Result<()> {
        let Some((&key, _)) = self.left.iter().next() else {
            return Ok(());
        };
        let engine = self.engine;
        if key == "options_file" {
            return Err(EngineError::Unsupported(format!(
                "{engine} takes no options file; --set {engine}.KEY=VALUE gives its settings"
            )));
        }
        let hint = match nearest(key, self.known.iter().copied()) {
            Some(near) => format!("; did you mean `{near}`?"),
            None if self.known.is_empty() => "; it has none".to_string(),
            None => format!("; it has: {}", self.known.join(", ")),
        };
        Err(EngineError::Unsupported(format!(
            "{engine} has no setting `{key}`{hint}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rumbench_core::engine::{Durability, Schema};

    use super::*;

    fn config(settings: &[(&str, &str)]) -> OpenConfig {
        OpenConfig {
            dir: PathBuf::new(),
            schema: Schema::LinkBench,
            variant: None,
            cache_bytes: 0,
            durability: Durability::Buffered,
            clients: 1,
            settings: settings
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        }
    }

    #[test]
    fn a_setting_replaces_the_default() {
        let config = config(&[("block_bytes", "4096")]);
        let mut settings = Settings::of("x", &config);
        assert_eq!(settings.take("block_bytes", 8192_u32).unwrap(), 4096);
        assert_eq!(settings.take("other", 7_u32).unwrap(), 7);
        settings.finish().unwrap();
    }

    #[test]
    fn a_misspelled_setting_is_an_error_that_names_the_nearest() {
        let config = config(&[("blok_bytes", "4096")]);
        let mut settings = Settings::of("x", &config);
        settings.take("block_bytes", 8192_u32).unwrap();
        let error = settings.finish().unwrap_err().to_string();
        assert_eq!(
            error,
            "x has no setting `blok_bytes`; did you mean `block_bytes`?"
        );
    }

    #[test]
    fn values_that_do_not_parse_or_lie_outside_are_errors() {
        let config = config(&[("a", "many"), ("b", "9")]);
        let mut settings = Settings::of("x", &config);
        let error = settings.take("a", 1_u32).unwrap_err().to_string();
        assert!(error.starts_with("x.a=many: "), "{error}");
        let error = settings.take_in("b", 1_u32, 1..=8).unwrap_err().to_string();
        assert_eq!(error, "x.b=9: must lie between 1 and 8");
    }
}
