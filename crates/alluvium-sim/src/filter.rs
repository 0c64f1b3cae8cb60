//! A compaction filter that removes some rows and replaces the values of others.
//!
//! It acts whenever a flush or a merge meets a row, so from the moment at which it was first set a row that it would remove
//! is there or not, and one whose value it would replace has the old value or the new one. What it decides follows from the
//! value alone. And it is shown nothing that nobody wrote.

use std::sync::{Arc, Mutex, PoisonError};

use alluvium::{CompactionFilter, FilterDecision};

use crate::world::Records;

/// What may become of a row in the keyspace that is filtered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It stays.
    Kept,
    /// It goes.
    Removed,
    /// It gets this value.
    Replaced(Vec<u8>),
}

/// The fate of a row with this value, which names its commit and its place in it.
pub fn fate(value: &[u8]) -> Fate {
    let numbers = value.strip_prefix(b"v").unwrap_or_default();
    let mut numbers = numbers.split(|byte| *byte == b'.').map(|digits| {
        let text = std::str::from_utf8(digits).ok()?;
        text.parse::<u64>().ok()
    });
    let (Some(Some(tag)), Some(Some(at))) = (numbers.next(), numbers.next()) else {
        return Fate::Kept;
    };
    match (tag + at) % 5 {
        0 => Fate::Removed,
        1 => Fate::Replaced([b"another ", value].concat()),
        _ => Fate::Kept,
    }
}

/// The filter.
pub struct RowFilter {
    /// The id of the keyspace.
    pub keyspace: u32,
    /// The oracle.
    pub records: Arc<Records>,
    /// What it was shown and nobody wrote.
    pub wrong: Arc<Mutex<Option<String>>>,
}

impl CompactionFilter for RowFilter {
    fn filter(&self, key: &[u8], value: &[u8], seqno: u64) -> FilterDecision {
        let row = (self.keyspace, key.to_vec());
        if !self.records.history().has_ever_written(&row, value) {
            let (key, value) = (
                key.escape_ascii(),
                value[..value.len().min(16)].escape_ascii(),
            );
            let text =
                format!("a filter was shown {key}={value} of commit {seqno}, which nobody wrote");
            let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.get_or_insert(text);
        }
        match fate(value) {
            Fate::Kept => FilterDecision::Keep,
            Fate::Removed => {
                self.records.count("rows that a filter removed", 1);
                FilterDecision::Remove
            }
            Fate::Replaced(value) => {
                self.records.count("rows that a filter replaced", 1);
                FilterDecision::Replace(value)
            }
        }
    }
}
