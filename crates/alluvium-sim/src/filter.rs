//! Compaction filter that removes some rows and replaces the values of others.
//!
//! The filter acts whenever a flush or a compaction processes a row. Once it has been set, a row
//! that it would remove may be present or absent. A row with a value that it would replace has the
//! old value or the new one. Its decision depends on the value alone. It must never be shown a row
//! that was never written.

use std::sync::{Arc, Mutex, PoisonError};

use alluvium::{CompactionFilter, FilterDecision};

use crate::world::Records;

/// Decision of the filter about a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Kept unchanged.
    Kept,
    /// Removed.
    Removed,
    /// Replaced by this value.
    Replaced(Vec<u8>),
}

/// Returns the fate of a row with this value, which contains its commit's tag and the index of the
/// write.
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

/// Filter for one keyspace, which checks the rows that it is shown.
pub struct RowFilter {
    /// Id of the keyspace.
    pub keyspace: u32,
    /// Oracle.
    pub records: Arc<Records>,
    /// Message about the first row shown that was never written.
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
            let text = format!(
                "a filter was shown {key}={value} of commit {seqno}, which was never written"
            );
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
