//! Range deletes of a write set, by keyspace, each at the stamp of its write.
//!
//! A copy costs a few pointers for each keyspace with range deletes, so a savepoint keeps one.

use std::collections::BTreeMap;

use crate::base::KeyspaceId;
use crate::range_deletes::{KeyRange, RangeHistory};

#[derive(Debug, Clone, Default)]
pub(super) struct OwnRanges {
    by_keyspace: BTreeMap<KeyspaceId, RangeHistory>,
    key_bytes: usize,
    memory_bytes: usize,
}

impl OwnRanges {
    /// Adds a range that is not empty. Stamps must rise.
    pub fn add(&mut self, keyspace: KeyspaceId, range: KeyRange<'_>, stamp: u64) {
        let history = self.by_keyspace.entry(keyspace).or_default();
        let before = history.memory_bytes();
        history.add(vec![range], stamp);
        self.memory_bytes += history.memory_bytes() - before;
        self.key_bytes += range.0.len() + range.1.len();
    }

    pub fn of(&self, keyspace: KeyspaceId) -> Option<&RangeHistory> {
        self.by_keyspace.get(&keyspace)
    }

    pub fn iter(&self) -> impl Iterator<Item = (KeyspaceId, &RangeHistory)> {
        self.by_keyspace
            .iter()
            .map(|(keyspace, ranges)| (*keyspace, ranges))
    }

    pub fn is_empty(&self) -> bool {
        self.by_keyspace.is_empty()
    }

    /// Returns the bytes of the keys of all ranges.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}
