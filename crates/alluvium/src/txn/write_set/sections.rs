//! Sections: the writes of a set between its savepoints, for a transaction that moves them to
//! files.

use super::{View, WriteEntry, WriteSet};
use crate::base::ValueKind;

/// Writes after one savepoint and before the next one.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Number of savepoints before it.
    pub savepoints: usize,
    /// Stamp of the savepoint before it; 0 if there is none.
    after: u64,
    upto: View,
}

impl WriteSet {
    /// Returns the sections with writes, oldest first.
    pub fn sections(&self) -> Vec<Section> {
        let stamps = self.savepoints.iter().map(|savepoint| savepoint.stamp);
        let mut after = 0;
        let mut sections = Vec::new();
        for (savepoints, stamp) in stamps.chain([self.stamp]).enumerate() {
            if stamp > after {
                sections.push(Section {
                    savepoints,
                    after,
                    upto: View(stamp),
                });
            }
            after = stamp;
        }
        sections
    }

    /// Returns the latest write of each key within a section, ordered by keyspace, then key. The
    /// kind is `None` if there is nothing to commit. Not for a set with range deletes.
    pub fn section(
        &self,
        section: Section,
    ) -> impl Iterator<Item = (WriteEntry<'_>, Option<ValueKind>)> {
        debug_assert!(self.ranges.is_empty(), "a section has no range deletes");
        self.index.iter().filter_map(move |entry| {
            let version = self.version_at(entry, section.upto)?;
            (version.stamp > section.after).then(|| (self.show(entry, version), version.kind))
        })
    }
}
