//! Merge of a keyspace's sources at one read point, in both directions, with bounds.
//!
//! The first row of all sources decides about its key: the newest source comes first among equal
//! keys. Deleted and expired rows, and rows under a range delete, are skipped.
//!
//! `inputs` selects the sources and the state of the tree that they come from; `dead_walk` skips
//! dead rows. Flush and compaction have a merge of their own (`compaction/merge.rs`): it reads all
//! versions of all keys once and forward, while this one shows the newest versions, goes both ways,
//! and opens sources only as it meets their groups.

use std::sync::Arc;

use crate::base::SeqNo;
use crate::error::Result;
use crate::iter::bounds::{Bounds, Direction};
use crate::iter::dead_walk::DeadWalk;
use crate::iter::held_row::HeldRow;
use crate::iter::inputs::{HeldState, Inputs, Lead};
use crate::keyspace::expiry::is_live;
use crate::keyspace::tree::Tree;
use crate::table::PinnedValue;
use crate::txn::write_cursor::WriteCursor;

/// Merging cursor over writes, memtables and tables.
pub(crate) struct MergeCursor {
    inputs: Inputs,
    walk: DeadWalk,
    /// Time of the reads, in a keyspace with expiry.
    now_ms: Option<u64>,
    /// Source of the current row.
    current: Option<usize>,
    /// Rows that `current` has before the other sources.
    lead: Lead,
    /// Separated value of the current row, until the row is shown; `None` for a keys-only cursor.
    separated: Option<PinnedValue>,
    keys_only: bool,
}

impl MergeCursor {
    pub fn new(
        tree: Arc<Tree>,
        read_point: SeqNo,
        now_ms: Option<u64>,
        bounds: Bounds,
        writes: Option<WriteCursor>,
    ) -> MergeCursor {
        MergeCursor {
            inputs: Inputs::new(tree, read_point, bounds, writes),
            walk: DeadWalk::default(),
            now_ms,
            current: None,
            lead: Lead::None,
            separated: None,
            keys_only: false,
        }
    }

    /// Makes the cursor find keys only: values are shown as empty, and separated values are not
    /// read.
    pub fn keys_only(mut self) -> MergeCursor {
        self.keys_only = true;
        self
    }

    /// Returns true if the tree has a newer state than the merge; then the merge must seek instead
    /// of stepping.
    pub fn is_stale(&self) -> bool {
        self.inputs.is_stale()
    }

    /// Takes away everything that pins memtables and tables. Then the merge is on no row and must
    /// seek next.
    pub fn take_state(&mut self) -> Option<HeldState> {
        self.walk.stop(&self.inputs.tree().dead);
        let held = self.inputs.take_state()?;
        (self.current, self.separated) = (None, None);
        Some(held)
    }

    /// Makes `row` hold the current row, if there is one. Called once for each move.
    pub fn show(&mut self, row: &mut HeldRow) {
        let Some(at) = self.current else {
            return row.clear();
        };
        let source = self.inputs.source(at);
        match self.separated.take() {
            Some(value) => row.separated(source.key(), value),
            None if self.keys_only => row.copy(source.key(), &[]),
            None => source.show(row),
        }
    }

    /// Moves to the first row from `edge` on, within the bounds.
    pub fn seek(&mut self, direction: Direction, edge: Option<&[u8]>) -> Result<bool> {
        self.current = None;
        self.walk.stop(&self.inputs.tree().dead);
        self.inputs.begin_seek(direction)?;
        let bounds = Arc::clone(self.inputs.bounds());
        let edge = bounds.enter(direction, edge);
        // From the end of the keyspace there is no edge that an interval could name.
        let interval = edge.and_then(|edge| Some((edge, self.walk.begin(&self.inputs, edge)?)));
        match interval {
            Some((edge, reach)) => self.inputs.seek_over(edge, reach, self.walk.to())?,
            None => self.inputs.seek(edge)?,
        }
        self.inputs.note_seek();
        self.settle()
    }

    /// Moves to the first row after `key` in `direction`, within the bounds.
    pub fn seek_past(&mut self, direction: Direction, key: &[u8]) -> Result<bool> {
        self.seek(direction, Some(&direction.edge_after(key)))
    }

    /// Moves to the next row in `direction`, in the state that the merge holds.
    pub fn step(&mut self, direction: Direction) -> Result<bool> {
        let Some(at) = self.current else {
            return Ok(false);
        };
        if self.inputs.direction() != direction {
            let key = self.inputs.source(at).key().to_vec();
            return self.seek_past(direction, &key);
        }
        // Cleared first: after an error the cursor is on no row.
        self.current = None;
        if let Lead::None = self.lead {
            self.inputs.step_equal(at)?;
        } else {
            self.inputs.step(at)?;
            if self.leads(at)? {
                self.land(at)?;
                return Ok(true);
            }
        }
        self.settle()
    }

    /// Returns true if source `at`, which had a lead before its last step, has the next row. If it
    /// has not, or is on a deleted key, all sources must be examined.
    fn leads(&self, at: usize) -> Result<bool> {
        let (source, direction) = (self.inputs.source(at), self.inputs.direction());
        if !source.valid() || self.is_gone(at)? {
            return Ok(false);
        }
        let key = source.key();
        Ok(match self.lead {
            Lead::None => false,
            // The other source is inside the bounds.
            Lead::Before(other) => direction.is_before(key, self.inputs.source(other).key()),
            Lead::Alone => !self.inputs.bounds().is_past(direction, key),
        })
    }

    /// Moves to the first row from the positions of the sources on.
    fn settle(&mut self) -> Result<bool> {
        loop {
            let Some(first) = self.inputs.first()? else {
                self.walk.end(&self.inputs, None);
                return Ok(false);
            };
            let at = first.at;
            if self.is_gone(at)? {
                match self.walk.pass(&self.inputs, at) {
                    Some(reach) => self.inputs.leap(at, reach, self.walk.to())?,
                    None => self.inputs.step_equal(at)?,
                }
            } else if !self.inputs.skip_hidden(at)? {
                self.lead = first.lead;
                self.land(at)?;
                return Ok(true);
            }
        }
    }

    /// Returns true if source `at` is on a deleted or expired row.
    fn is_gone(&self, at: usize) -> Result<bool> {
        let source = self.inputs.source(at);
        match self.now_ms {
            _ if source.is_tombstone() => Ok(true),
            Some(now_ms) => Ok(!is_live(&self.inputs.tree().name, source.value(), now_ms)?),
            None => Ok(false),
        }
    }

    /// Makes the row of source `at` the current one.
    fn land(&mut self, at: usize) -> Result<()> {
        let source = self.inputs.source(at);
        self.separated = if source.is_pointer() && !self.keys_only {
            Some(source.load_value()?)
        } else {
            None
        };
        self.current = Some(at);
        self.walk.end(&self.inputs, Some(at));
        Ok(())
    }
}

impl Drop for MergeCursor {
    fn drop(&mut self) {
        self.walk.stop(&self.inputs.tree().dead);
    }
}
