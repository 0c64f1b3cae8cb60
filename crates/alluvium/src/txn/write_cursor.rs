//! Cursor over a transaction's own writes as of its opening: those in memory, merged with those in
//! layers.
//!
//! It copies its current row from memory, so that the transaction can write between two steps.

use std::ops::Bound;
use std::sync::Arc;

use crate::error::Result;
use crate::table::TableCursor;

use crate::base::{KeyspaceId, ValueKind};
use crate::range_deletes::{Deleted, RangeHistory};
use crate::txn::layers::Layer;
use crate::txn::write_set::{SharedWrites, View};

/// Cursor over the own writes of one keyspace, as of its opening.
pub struct WriteCursor {
    memory: MemoryCursor,
    /// Newest first.
    layers: Vec<LayerCursor>,
    /// Source of the current row: 0 is the memory, others are layers by their index plus one.
    /// `None` if there is no row.
    at: Option<usize>,
}

/// Cursor over the writes in memory.
struct MemoryCursor {
    writes: SharedWrites,
    keyspace: KeyspaceId,
    view: View,
    valid: bool,
    key: Vec<u8>,
    kind: ValueKind,
    value: Vec<u8>,
}

/// Cursor over the writes of a layer, which a rollback may remove meanwhile.
struct LayerCursor {
    layer: Arc<Layer>,
    rows: TableCursor,
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

impl LayerCursor {
    fn key(&self) -> Option<&[u8]> {
        (self.rows.valid() && !self.layer.is_undone()).then(|| self.rows.key())
    }
}

impl WriteCursor {
    /// Opens a cursor over the writes of a keyspace in memory, and in `layers`, oldest first.
    pub(crate) fn open(
        writes: SharedWrites,
        layers: &[Arc<Layer>],
        keyspace: KeyspaceId,
    ) -> WriteCursor {
        let newest_first = layers.iter().rev();
        let layers = newest_first.filter_map(|layer| {
            let rows = layer.cursor(keyspace)?;
            let layer = Arc::clone(layer);
            Some(LayerCursor { layer, rows })
        });
        WriteCursor {
            memory: MemoryCursor::open(writes, keyspace),
            layers: layers.collect(),
            at: None,
        }
    }

    /// Returns the range deletes that the cursor sees, if there are any.
    pub(crate) fn own_ranges(&self) -> Option<OwnRanges> {
        let writes = self.memory.writes.lock();
        let ranges = writes.range_deletes(self.memory.keyspace)?.clone();
        let view = self.memory.view;
        Some(OwnRanges { ranges, view })
    }

    /// Moves to the first row from `key` on.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.memory.step(true, Bound::Included(key));
        for layer in &mut self.layers {
            layer.rows.seek(key)?;
        }
        Ok(self.settle(true))
    }

    /// Moves to the last row before `key`; `None` is the end.
    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) -> Result<bool> {
        self.memory
            .step(false, key.map_or(Bound::Unbounded, Bound::Excluded));
        for layer in &mut self.layers {
            match key {
                Some(key) => layer.rows.seek_before(key)?,
                None => layer.rows.seek_last()?,
            };
        }
        Ok(self.settle(false))
    }

    /// Moves to the next row, after a seek forward.
    pub(crate) fn next(&mut self) -> Result<bool> {
        self.pass(true)
    }

    /// Moves to the row before, after a seek backward.
    pub(crate) fn prev(&mut self) -> Result<bool> {
        self.pass(false)
    }

    /// Moves all sources past the current key.
    fn pass(&mut self, forward: bool) -> Result<bool> {
        let Some(at) = self.at else {
            return Ok(false);
        };
        if self.layers.is_empty() {
            self.memory.pass(forward);
            return Ok(self.settle(forward));
        }
        let key = match at {
            0 => self.memory.key.clone(),
            at => self.layers[at - 1].rows.key().to_vec(),
        };
        if self.memory.valid {
            // A rollback may have removed the row that the memory shows meanwhile.
            match self.memory.key == key {
                true => self.memory.pass(forward),
                false => self.memory.look_again(forward),
            }
        }
        for layer in &mut self.layers {
            if layer.rows.valid() && layer.rows.key() == key {
                match forward {
                    true => layer.rows.next()?,
                    false => layer.rows.prev()?,
                };
            }
        }
        Ok(self.settle(forward))
    }

    /// Chooses the first row of all sources, of equal keys the newest. Returns false at the end.
    fn settle(&mut self, forward: bool) -> bool {
        let memory = self.memory.valid.then_some((0, &self.memory.key[..]));
        let layers = self.layers.iter().enumerate();
        let layers = layers.filter_map(|(at, layer)| Some((at + 1, layer.key()?)));
        let mut first = memory;
        for (at, key) in layers {
            let is_before = |first: &[u8]| if forward { key < first } else { key > first };
            if first.is_none_or(|(_, first)| is_before(first)) {
                first = Some((at, key));
            }
        }
        self.at = first.map(|(at, _)| at);
        self.at.is_some()
    }

    fn row(&self) -> Option<&TableCursor> {
        let layer = self.at?.checked_sub(1)?;
        Some(&self.layers[layer].rows)
    }

    pub(crate) fn valid(&self) -> bool {
        self.at.is_some()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.row().map_or(&self.memory.key, TableCursor::key)
    }

    pub(crate) fn kind(&self) -> ValueKind {
        self.row().map_or(self.memory.kind, TableCursor::kind)
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.row().map_or(&self.memory.value, TableCursor::value)
    }
}

impl MemoryCursor {
    fn open(writes: SharedWrites, keyspace: KeyspaceId) -> MemoryCursor {
        let view = writes.lock().open_view();
        let (key, value) = (Vec::new(), Vec::new());
        MemoryCursor {
            writes,
            keyspace,
            view,
            valid: false,
            key,
            kind: ValueKind::Put,
            value,
        }
    }

    fn step(&mut self, forward: bool, from: Bound<&[u8]>) {
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
    }

    /// Moves past the current row.
    fn pass(&mut self, forward: bool) {
        self.step_from_here(forward, |key| Bound::Excluded(key));
    }

    /// Moves to the current row, or past it if it is gone.
    fn look_again(&mut self, forward: bool) {
        self.step_from_here(forward, |key| Bound::Included(key));
    }

    /// Moves from the current key. At the end it keeps the key.
    fn step_from_here(&mut self, forward: bool, bound: fn(&[u8]) -> Bound<&[u8]>) {
        let key = std::mem::take(&mut self.key);
        self.step(forward, bound(&key));
        if !self.valid {
            self.key = key;
        }
    }
}

impl Drop for MemoryCursor {
    fn drop(&mut self) {
        self.writes.lock().close_view(self.view);
    }
}
