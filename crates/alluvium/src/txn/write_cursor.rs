//! Cursor over a transaction's own writes as of its opening.
//!
//! It copies its current row, so that the transaction can write between two steps.

use std::ops::Bound;
use std::sync::Arc;

use crate::sync::plain::Mutex;

use crate::base::{KeyspaceId, ValueKind};
use crate::range_deletes::{Deleted, RangeHistory};
use crate::txn::write_set::{View, WriteSet};

/// Cursor over the own writes of one keyspace, as of its opening.
pub struct WriteCursor {
    writes: Arc<Mutex<WriteSet>>,
    keyspace: KeyspaceId,
    view: View,
    valid: bool,
    key: Vec<u8>,
    kind: ValueKind,
    value: Vec<u8>,
}

/// Range deletes of the transaction that the cursor sees.
pub(crate) struct OwnRanges {
    ranges: RangeHistory,
    view: View,
}

impl OwnRanges {
    /// Returns a range delete that covers `key`, if there is one.
    pub fn find(&self, key: &[u8]) -> Option<Deleted<'_>> {
        self.ranges.find(key, self.view.stamp())
    }
}

impl WriteCursor {
    pub(crate) fn open(writes: Arc<Mutex<WriteSet>>, keyspace: KeyspaceId) -> WriteCursor {
        let view = writes.lock().open_view();
        let (key, value) = (Vec::new(), Vec::new());
        WriteCursor {
            writes,
            keyspace,
            view,
            valid: false,
            key,
            kind: ValueKind::Put,
            value,
        }
    }

    /// Returns the range deletes that the cursor sees, if there are any.
    pub(crate) fn own_ranges(&self) -> Option<OwnRanges> {
        let writes = self.writes.lock();
        let ranges = writes.range_deletes(self.keyspace)?.clone();
        let view = self.view;
        Some(OwnRanges { ranges, view })
    }

    fn step(&mut self, forward: bool, from: Bound<&[u8]>) -> bool {
        let writes = self.writes.lock();
        let found = if forward {
            writes.next(self.keyspace, from, self.view)
        } else {
            writes.prev(self.keyspace, from, self.view)
        };
        self.valid = found.is_some();
        if let Some(entry) = found {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.kind = entry.kind;
            self.value.clear();
            self.value.extend_from_slice(entry.value);
        }
        self.valid
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> bool {
        self.step(true, Bound::Included(key))
    }

    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) -> bool {
        self.step(false, key.map_or(Bound::Unbounded, Bound::Excluded))
    }

    pub(crate) fn next(&mut self) -> bool {
        let key = std::mem::take(&mut self.key);
        let found = self.valid && self.step(true, Bound::Excluded(&key));
        if !found {
            self.key = key;
        }
        found
    }

    pub(crate) fn prev(&mut self) -> bool {
        let key = std::mem::take(&mut self.key);
        let found = self.valid && self.step(false, Bound::Excluded(&key));
        if !found {
            self.key = key;
        }
        found
    }

    pub(crate) fn valid(&self) -> bool {
        self.valid
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn kind(&self) -> ValueKind {
        self.kind
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }
}

impl Drop for WriteCursor {
    fn drop(&mut self) {
        self.writes.lock().close_view(self.view);
    }
}
