//! Range deletes of all sources of a merge, even of those that a filter rules out: they hide older
//! rows of every source.

use std::sync::Arc;

use crate::base::SeqNo;
use crate::iter::source::Source;
use crate::range_deletes::{Deleted, RangeDeletes, RangeHistory};
use crate::txn::write_cursor::OwnRanges;

/// Range deletes that may hide rows of a merge.
pub(super) struct HidingRanges {
    /// Range deletes of the transaction itself; they hide everything committed.
    own: Option<OwnRanges>,
    /// Range deletes of the memtables, then those of the tables of the current group.
    sources: Vec<SourceRanges>,
    /// Number of `sources` that span the keyspace.
    fixed: usize,
}

/// Range deletes of one source.
pub(super) enum SourceRanges {
    Memtable(Arc<RangeHistory>),
    Table(Arc<RangeDeletes>),
}

impl SourceRanges {
    /// Returns the newest range delete over `key` that a reader at `read_point` sees.
    fn find(&self, key: &[u8], read_point: SeqNo) -> Option<Deleted<'_>> {
        match self {
            SourceRanges::Memtable(ranges) => ranges.find(key, read_point),
            SourceRanges::Table(ranges) => ranges.find_at(key, read_point),
        }
    }
}

impl HidingRanges {
    pub fn new(own: Option<OwnRanges>) -> HidingRanges {
        HidingRanges {
            own,
            sources: Vec::new(),
            fixed: 0,
        }
    }

    /// Adds those of a source of the current group, if it has any.
    pub fn add(&mut self, ranges: Option<SourceRanges>) {
        self.sources.extend(ranges);
    }

    /// Makes all sources so far span the keyspace.
    pub fn fix(&mut self) {
        self.fixed = self.sources.len();
    }

    /// Removes those of the current group.
    pub fn leave_group(&mut self) {
        self.sources.truncate(self.fixed);
    }

    /// Removes those of all sources.
    pub fn take(&mut self) -> Vec<SourceRanges> {
        std::mem::take(&mut self.sources)
    }

    pub fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.own.is_none()
    }

    /// Returns the range delete that hides the row of `source` from a reader at `read_point`, if
    /// there is one.
    pub fn find(&self, source: &Source, read_point: SeqNo) -> Option<Deleted<'_>> {
        if source.is_own() {
            return None;
        }
        let (key, written) = (source.key(), source.seqno());
        if let Some(own) = self.own.as_ref().and_then(|own| own.find(key)) {
            let seqno = SeqNo::MAX;
            return Some(Deleted { seqno, ..own });
        }
        let visible = self.sources.iter();
        let visible = visible.filter_map(|ranges| ranges.find(key, read_point));
        let newest = visible.max_by_key(|deleted| deleted.seqno)?;
        (newest.seqno > written).then_some(newest)
    }
}
