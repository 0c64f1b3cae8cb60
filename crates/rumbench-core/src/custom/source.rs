//! TOML text with its lines: typed parsing of tables. Every error names the file, the line and the
//! allowed values.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::definition::DefinitionError;
use crate::names::unknown;
use crate::units;

type Result<T> = std::result::Result<T, DefinitionError>;

/// Source of a definition: file name and text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// Returns an error at an offset of the text.
    pub(super) fn refuse(&self, at: usize, message: impl Into<String>) -> DefinitionError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        DefinitionError {
            file: self.file.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            message: message.into(),
        }
    }
}

/// A value and the offset of its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

/// One table of the text: a section, or an inline table.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    pub(super) source: Source<'a>,
    /// Name of the table in messages.
    what: &'a str,
    /// Offset of its start.
    pub(super) at: usize,
    table: &'a DeTable<'a>,
}

impl<'a> Section<'a> {
    /// Wraps a table; only these keys are allowed in it.
    pub(super) fn new(
        source: Source<'a>,
        what: &'a str,
        at: usize,
        table: &'a DeTable<'a>,
        allowed: &[&str],
    ) -> Result<Section<'a>> {
        let known = |key: &str| allowed.contains(&key);
        let keys = table.iter().map(|(key, _)| key);
        // The map is sorted by name, but the user fixes a file from the top.
        let bad = keys
            .filter(|key| !known(key.get_ref()))
            .min_by_key(|key| key.span().start);
        match bad {
            None => Ok(Section {
                source,
                what,
                at,
                table,
            }),
            Some(key) => {
                let message = unknown(&format!("key of {what}"), key.get_ref(), allowed);
                Err(source.refuse(key.span().start, message))
            }
        }
    }

    pub(super) fn refuse(&self, at: usize, message: impl Into<String>) -> DefinitionError {
        self.source.refuse(at, message)
    }

    fn find(&self, key: &str) -> Option<At<&'a DeValue<'a>>> {
        let value = self.table.get(key)?;
        Some(located(value))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Returns the offset of a key's value, or of the section if the key is missing.
    pub(super) fn place_of(&self, key: &str) -> usize {
        self.find(key).map_or(self.at, |found| found.at)
    }

    /// Returns the value of a required key. The error contains `form`, the expected form.
    pub(super) fn required<T>(&self, key: &str, form: &str, found: Option<T>) -> Result<T> {
        found.ok_or_else(|| {
            let what = self.what;
            self.refuse(self.at, format!("{what} needs `{key}`: {form}"))
        })
    }

    fn mistyped(&self, key: &str, wanted: &str, found: At<&DeValue<'_>>) -> DefinitionError {
        let article = match found.value.type_str() {
            "array" | "integer" => "an",
            _ => "a",
        };
        let of = found.value.type_str();
        self.refuse(
            found.at,
            format!("`{key}` must be {wanted}, not {article} {of}"),
        )
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<At<&'a str>>> {
        self.find(key)
            .map(|found| match found.value.as_str() {
                Some(value) => Ok(At {
                    value,
                    at: found.at,
                }),
                None => Err(self.mistyped(key, "a string", found)),
            })
            .transpose()
    }

    /// Parses one of a few names.
    pub(super) fn choice<T: Copy>(&self, key: &str, names: &[(&str, T)]) -> Result<Option<T>> {
        let Some(given) = self.text(key)? else {
            return Ok(None);
        };
        let found = names.iter().find(|(name, _)| *name == given.value);
        match found {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
                let message = unknown(&format!("`{key}`"), given.value, &known);
                Err(self.refuse(given.at, message))
            }
        }
    }

    /// Returns true if a key, or the key whose minimum and maximum this section has, is a number of
    /// bytes.
    fn is_size(&self, key: &str) -> bool {
        key.ends_with("bytes") || self.what == "`bytes`"
    }

    /// Parses a whole number in a range; a size may have a unit.
    pub(super) fn whole(&self, key: &str, allowed: Range<u64>) -> Result<Option<u64>> {
        let Some(found) = self.find(key) else {
            return Ok(None);
        };
        let wanted = format!(
            "a whole number from {} to {}",
            allowed.start,
            allowed.end - 1
        );
        let (number, text) = match found.value {
            DeValue::Integer(integer) => {
                let number = u64::from_str_radix(integer.as_str(), integer.radix());
                (number.ok(), integer.as_str())
            }
            DeValue::String(size) if self.is_size(key) => (units::bytes(size).ok(), &**size),
            _ => return Err(self.mistyped(key, &wanted, found)),
        };
        match number.filter(|number| allowed.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.refuse(found.at, format!("`{key}` must be {wanted}, not {text}"))),
        }
    }

    /// Parses a number in a range, both ends allowed.
    pub(super) fn decimal(&self, key: &str, min: f64, max: f64) -> Result<Option<f64>> {
        let Some(found) = self.find(key) else {
            return Ok(None);
        };
        let wanted = format!("a number from {min} to {max}");
        let text = match found.value {
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            DeValue::Float(float) => float.as_str(),
            DeValue::String(time) if key.ends_with("seconds") => time,
            _ => return Err(self.mistyped(key, &wanted, found)),
        };
        // Without a unit it is the number itself.
        let number = text.parse().ok().or_else(|| units::seconds(text).ok());
        match number.filter(|number: &f64| (min..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.refuse(found.at, format!("`{key}` must be {wanted}, not {text}"))),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.find(key)
            .map(|found| {
                let value = found.value.as_bool();
                value.ok_or_else(|| self.mistyped(key, "true or false", found))
            })
            .transpose()
    }

    /// Parses an array of tables: sections in double brackets, or inline tables.
    pub(super) fn tables(&self, key: &str) -> Result<Vec<At<&'a DeTable<'a>>>> {
        let Some(found) = self.find(key) else {
            return Ok(Vec::new());
        };
        let wanted = "a list of tables";
        let Some(list) = found.value.as_array() else {
            return Err(self.mistyped(key, wanted, found));
        };
        let table = |value: &'a Spanned<DeValue<'a>>| {
            let At { value, at } = located(value);
            let table = value.as_table().map(|value| At { value, at });
            table.ok_or_else(|| self.mistyped(key, wanted, At { value, at }))
        };
        list.iter().map(table).collect()
    }

    /// Parses an array of strings.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<At<&'a str>>>> {
        let Some(found) = self.find(key) else {
            return Ok(None);
        };
        let wanted = "a list of strings";
        let Some(list) = found.value.as_array() else {
            return Err(self.mistyped(key, wanted, found));
        };
        let text = |value: &'a Spanned<DeValue<'a>>| {
            let At { value, at } = located(value);
            let text = value.as_str().map(|value| At { value, at });
            text.ok_or_else(|| self.mistyped(key, wanted, At { value, at }))
        };
        list.iter().map(text).collect::<Result<_>>().map(Some)
    }

    /// Returns an inline table.
    pub(super) fn inline(&self, key: &str) -> Option<At<&'a DeTable<'a>>> {
        let found = self.find(key)?;
        let table = found.value.as_table();
        table.map(|value| At {
            value,
            at: found.at,
        })
    }
}

fn located<'a>(value: &'a Spanned<DeValue<'a>>) -> At<&'a DeValue<'a>> {
    At {
        value: value.get_ref(),
        at: value.span().start,
    }
}
