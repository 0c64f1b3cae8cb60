//! Merge of a keyspace's sources at one read point, in both directions, with bounds.
//!
//! Memtables (and a transaction's writes) span the keyspace. Tables are taken group by group, so a
//! scan inside one group opens only that group's tables, and filters are asked again in each group.
//! Range deletes of all sources, even of those that a filter rules out, hide older rows; sources
//! with older rows only seek past their end.
//!
//! `inputs` selects the sources and the state of the tree that they come from; `walk` skips dead
//! rows.

use std::sync::Arc;

use crate::base::{SeqNo, checksum, prefix_end};
use crate::error::Result;
use crate::iter::held_row::HeldRow;
use crate::iter::inputs::{Input, NO_STATE, SourceRanges};
use crate::iter::run::PrefixProbe;
use crate::iter::source::Source;
use crate::iter::walk::Walk;
use crate::keyspace::expiry::is_live;
use crate::keyspace::tree::{Tree, TreeState};
use crate::range_deletes::Deleted;
use crate::table::PinnedValue;
use crate::txn::write_cursor::{OwnRanges, WriteCursor};

/// Half-open range of keys that a cursor stays in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Inclusive; empty is the start of the keyspace.
    pub start: Vec<u8>,
    /// Exclusive; `None` is the end of the keyspace.
    pub end: Option<Vec<u8>>,
}

/// Merging cursor over writes, memtables and tables.
pub(crate) struct MergeCursor {
    pub(super) walk: Walk,
    pub(super) tree: Arc<Tree>,
    /// `None` before the first seek, and after the state was taken away.
    pub(super) state: Option<Arc<TreeState>>,
    /// Publication count of `state`, or of a later state not seen yet; [`NO_STATE`] without a
    /// state.
    pub(super) publications: u64,
    pub(super) read_point: SeqNo,
    /// Time of the reads, in a keyspace with expiry.
    pub(super) now_ms: Option<u64>,
    pub(super) bounds: Arc<Bounds>,
    pub(super) prefix: Option<PrefixProbe>,
    /// Newest first: writes, memtables, then the tables of `group`.
    pub(super) sources: Vec<Input>,
    /// Number of `sources` that span the keyspace.
    pub(super) fixed: usize,
    /// Range deletes of the transaction itself; they hide everything committed.
    own_ranges: Option<OwnRanges>,
    /// Range deletes of the memtables, then those of the tables of `group`.
    pub(super) ranges: Vec<SourceRanges>,
    /// Number of `ranges` that span the keyspace.
    pub(super) fixed_ranges: usize,
    pub(super) group: usize,
    pub(super) reverse: bool,
    pub(super) current: Option<usize>,
    /// Separated value of the current row, until the row is shown; `None` for a keys-only cursor.
    pub(super) separated: Option<PinnedValue>,
    keys_only: bool,
    /// `current` was the only source with a key inside the bounds when it was chosen. This holds
    /// until it has none left: the others have none in this group, and if the current one spans all
    /// groups, none in later ones.
    alone: bool,
    /// Range that hid the last hidden row. Kept to reuse its buffers.
    hidden: HiddenRange,
}

/// Keys from `start` to before `end`; a range delete hides each of their rows below `seqno`.
#[derive(Default)]
struct HiddenRange {
    start: Vec<u8>,
    end: Vec<u8>,
    seqno: SeqNo,
}

impl HiddenRange {
    fn set(&mut self, deleted: Deleted<'_>) {
        self.start.clear();
        self.start.extend_from_slice(deleted.start);
        self.end.clear();
        self.end.extend_from_slice(deleted.end);
        self.seqno = deleted.seqno;
    }

    fn contains(&self, key: &[u8]) -> bool {
        &self.start[..] <= key && key < &self.end[..]
    }
}

impl Bounds {
    /// Returns the range of all keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Bounds {
        Bounds {
            start: prefix.to_vec(),
            end: prefix_end(prefix),
        }
    }

    /// Returns the prefix of `bytes` bytes that all keys of the range share, if they do.
    fn shared_prefix(&self, bytes: usize) -> Option<&[u8]> {
        let prefix = self.start.get(..bytes)?;
        let end = self.end.as_deref()?;
        let inside = end.starts_with(prefix) || prefix_end(prefix).as_deref() == Some(end);
        inside.then_some(prefix)
    }
}

impl MergeCursor {
    pub fn new(
        tree: Arc<Tree>,
        read_point: SeqNo,
        now_ms: Option<u64>,
        bounds: Bounds,
        writes: Option<WriteCursor>,
    ) -> MergeCursor {
        let prefix = tree.options().prefix_filter_bytes.and_then(|bytes| {
            let hash = checksum::key_hash(bounds.shared_prefix(bytes)?);
            Some(PrefixProbe { bytes, hash })
        });
        let mut cursor = MergeCursor {
            tree,
            state: None,
            publications: NO_STATE,
            read_point,
            now_ms,
            bounds: Arc::new(bounds),
            prefix,
            walk: Walk::default(),
            sources: Vec::with_capacity(8),
            fixed: 0,
            own_ranges: None,
            ranges: Vec::new(),
            fixed_ranges: 0,
            group: usize::MAX,
            reverse: false,
            current: None,
            separated: None,
            keys_only: false,
            alone: false,
            hidden: HiddenRange::default(),
        };
        if let Some(writes) = writes {
            cursor.own_ranges = writes.own_ranges();
            let writes = Source::Writes(writes);
            cursor.sources.push(Input::new(writes, false, None));
        }
        cursor
    }

    /// Makes `row` hold the current row, if there is one. Called once for each move.
    pub fn show(&mut self, row: &mut HeldRow) {
        let Some(at) = self.current else {
            return row.clear();
        };
        let source = &self.sources[at].source;
        match self.separated.take() {
            Some(value) => row.separated(source.key(), value),
            None if self.keys_only => row.copy(source.key(), &[]),
            None => source.show(row),
        }
    }

    /// Makes the cursor find keys only: values are shown as empty, and separated values are not
    /// read.
    pub fn keys_only(mut self) -> MergeCursor {
        self.keys_only = true;
        self
    }

    /// Makes the row of source `at` the current one.
    fn land(&mut self, at: usize) -> Result<()> {
        let source = &self.sources[at].source;
        self.separated = if source.is_pointer() && !self.keys_only {
            Some(source.load_value()?)
        } else {
            None
        };
        self.current = Some(at);
        self.end_walk(Some(at));
        Ok(())
    }

    /// Moves to the first row at or after `key`, within the bounds.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.refresh_state()?;
        let bounds = Arc::clone(&self.bounds);
        self.seek_forward(key.max(&bounds.start))
    }

    /// Moves to the last row before `key` (`None`: before the end), within the bounds.
    pub fn seek_before(&mut self, key: Option<&[u8]>) -> Result<bool> {
        self.refresh_state()?;
        let bounds = Arc::clone(&self.bounds);
        let limit = match (key, bounds.end.as_deref()) {
            (Some(key), Some(end)) => Some(key.min(end)),
            (key, end) => key.or(end),
        };
        self.seek_reverse(limit)
    }

    /// Moves to the first row after `key`, within the bounds.
    pub fn seek_behind(&mut self, key: &[u8]) -> Result<bool> {
        self.seek(&[key, &[0]].concat())
    }

    /// Moves to the next row, in the state that the merge holds.
    pub fn next(&mut self) -> Result<bool> {
        let Some(at) = self.current else {
            return Ok(false);
        };
        if self.reverse {
            let key = self.sources[at].source.key().to_vec();
            return self.seek_behind(&key);
        }
        // Cleared first: after an error the cursor is on no row.
        self.current = None;
        if self.alone {
            self.step(at)?;
            if let Some(found) = self.stay_forward(at)? {
                return Ok(found);
            }
        } else {
            self.step_equal(at)?;
        }
        self.settle_forward()
    }

    /// Stays on source `at`, which was alone. Returns true if it has the next row, false if it is
    /// past the bounds, and `None` if it is at its end or on a deleted key: then the other sources
    /// must be examined.
    fn stay_forward(&mut self, at: usize) -> Result<Option<bool>> {
        if !self.sources[at].source.valid() || self.is_gone(at)? {
            return Ok(None);
        }
        let source = &self.sources[at].source;
        let end = self.bounds.end.as_deref();
        let inside = end.is_none_or(|end| source.key() < end);
        if inside {
            self.land(at)?;
        }
        Ok(Some(inside))
    }

    /// Returns true if source `at` is on a deleted or expired row.
    fn is_gone(&self, at: usize) -> Result<bool> {
        let source = &self.sources[at].source;
        match self.now_ms {
            _ if source.is_tombstone() => Ok(true),
            Some(now_ms) => Ok(!is_live(&self.tree.name, source.value(), now_ms)?),
            None => Ok(false),
        }
    }

    /// Moves to the previous row, in the state that the merge holds.
    pub fn prev(&mut self) -> Result<bool> {
        let Some(at) = self.current else {
            return Ok(false);
        };
        if !self.reverse {
            let key = self.sources[at].source.key().to_vec();
            return self.seek_before(Some(&key));
        }
        self.current = None;
        self.step_equal(at)?;
        self.settle_reverse()
    }

    fn seek_forward(&mut self, key: &[u8]) -> Result<bool> {
        self.reverse = false;
        self.current = None;
        if !self.begin_walk(key)? {
            self.open_group(self.version().find(key));
            for input in &mut self.sources {
                input.past_end = false;
                input.source.seek(key)?;
            }
        }
        self.note_seek();
        self.settle_forward()
    }

    fn seek_reverse(&mut self, key: Option<&[u8]>) -> Result<bool> {
        self.reverse = true;
        self.current = None;
        if self.begin_walk_back(key)? {
            self.note_seek();
            return self.settle_reverse();
        }
        let group = match key {
            // The group that holds the keys just below `key`, not the group that starts with it.
            Some(key) => {
                let groups = self.version().groups();
                groups.partition_point(|g| g.low.as_slice() < key)
            }
            None => self.version().groups().len(),
        };
        self.open_group(group.saturating_sub(1));
        for input in &mut self.sources {
            input.past_end = false;
            input.source.seek_before(key)?;
        }
        self.note_seek();
        self.settle_reverse()
    }

    /// Steps every source that is on the key of source `at`, and `at` last.
    fn step_equal(&mut self, at: usize) -> Result<()> {
        for i in at + 1..self.sources.len() {
            let same = {
                let source = &self.sources[i].source;
                source.valid() && source.key() == self.sources[at].source.key()
            };
            if same {
                self.step(i)?;
            }
        }
        self.step(at)
    }

    fn step(&mut self, at: usize) -> Result<()> {
        let source = &mut self.sources[at].source;
        if self.reverse {
            source.prev()?
        } else {
            source.next()?
        };
        Ok(())
    }

    /// Returns true if source `i` is on a key of its range.
    pub(super) fn live(&self, i: usize) -> bool {
        let input = &self.sources[i];
        if input.past_end || !input.source.valid() {
            return false;
        }
        if !input.clipped {
            return true;
        }
        let version = self.version();
        if self.reverse {
            input.source.key() >= version.groups()[self.group].low.as_slice()
        } else {
            version
                .high(self.group)
                .is_none_or(|high| input.source.key() < high)
        }
    }

    /// Moves to the first row at or after the positions of the sources.
    fn settle_forward(&mut self) -> Result<bool> {
        self.current = None;
        loop {
            self.drop_past_end();
            self.next_group()?;
            let Some((at, live)) = self.choose(|a, b| a < b) else {
                self.end_walk(None);
                return Ok(false);
            };
            // A clipped source may leave the group while it still has keys.
            self.alone = live == 1 && !self.sources[at].clipped && !self.has_ranges();
            if self.is_gone(at)? {
                if !self.pass_dead(at)? {
                    self.step_equal(at)?;
                }
            } else if self.note_hidden(at) {
                self.skip_hidden(at)?;
            } else {
                self.land(at)?;
                return Ok(true);
            }
        }
    }

    fn has_ranges(&self) -> bool {
        !self.ranges.is_empty() || self.own_ranges.is_some()
    }

    /// Stores the range delete that hides the row of source `at` in `hidden`. Returns false if
    /// there is none.
    fn note_hidden(&mut self, at: usize) -> bool {
        if !self.has_ranges() {
            return false;
        }
        let mut hidden = std::mem::take(&mut self.hidden);
        let found = self.hiding(at).map(|deleted| hidden.set(deleted)).is_some();
        self.hidden = hidden;
        found
    }

    /// Returns the range delete that hides the row of source `at`, if there is one.
    fn hiding(&self, at: usize) -> Option<Deleted<'_>> {
        let source = &self.sources[at].source;
        if matches!(source, Source::Writes(_)) {
            return None;
        }
        let (key, written) = (source.key(), source.seqno());
        if let Some(own) = self.own_ranges.as_ref().and_then(|own| own.find(key)) {
            let seqno = SeqNo::MAX;
            return Some(Deleted { seqno, ..own });
        }
        let ranges = self.ranges.iter();
        let visible = ranges.filter_map(|ranges| ranges.find(key, self.read_point));
        let newest = visible.max_by_key(|deleted| deleted.seqno)?;
        (newest.seqno > written).then_some(newest)
    }

    /// Moves sources past the rows that the range delete in `hidden` hides. Sources with only older
    /// rows seek past its range; other sources on the key of source `at` step past it.
    fn skip_hidden(&mut self, at: usize) -> Result<()> {
        self.note_leap(at)?;
        let key = self.sources[at].source.key().to_vec();
        let HiddenRange { start, end, seqno } = &self.hidden;
        for i in 0..self.sources.len() {
            let input = &mut self.sources[i];
            let inside = input.source.valid() && self.hidden.contains(input.source.key());
            if !inside || matches!(input.source, Source::Writes(_)) {
                continue;
            }
            if input.newest_in(start, end) < *seqno {
                if self.reverse {
                    input.source.seek_before(Some(start))?
                } else {
                    input.source.seek(end)?
                };
            } else if input.source.key() == key {
                if self.reverse {
                    input.source.prev()?
                } else {
                    input.source.next()?
                };
            }
        }
        Ok(())
    }

    /// Marks the sources that reached the end of the bounds.
    pub(super) fn drop_past_end(&mut self) {
        let Some(end) = self.bounds.end.as_deref() else {
            return;
        };
        for input in &mut self.sources {
            let has_key = !input.past_end && input.source.valid();
            input.past_end |= has_key && input.source.key() >= end;
        }
    }

    fn settle_reverse(&mut self) -> Result<bool> {
        self.current = None;
        loop {
            self.previous_group()?;
            let Some((at, _)) = self.choose(|a, b| a > b) else {
                self.end_walk(None);
                return Ok(false);
            };
            let source = &self.sources[at].source;
            if source.key() < &self.bounds.start[..] {
                self.end_walk(None);
                return Ok(false);
            }
            if self.is_gone(at)? {
                if !self.pass_dead(at)? {
                    self.step_equal(at)?;
                }
            } else if self.note_hidden(at) {
                self.skip_hidden(at)?;
            } else {
                self.land(at)?;
                return Ok(true);
            }
        }
    }

    /// Returns the live source with the first key, the newest source among equal keys, and the
    /// number of live sources.
    fn choose(&self, before: impl Fn(&[u8], &[u8]) -> bool) -> Option<(usize, usize)> {
        let mut best: Option<(usize, &[u8])> = None;
        let mut live = 0;
        for i in 0..self.sources.len() {
            if self.live(i) {
                live += 1;
                let key = self.sources[i].source.key();
                if best.is_none_or(|(_, least)| before(key, least)) {
                    best = Some((i, key));
                }
            }
        }
        best.map(|(i, _)| (i, live))
    }
}
