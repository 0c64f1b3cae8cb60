//! Inputs of a merge: the memtables of its tree's state, which span the keyspace, and the tables of
//! one group at a time. `merge` is responsible for the order of rows.
//!
//! A merge takes the tree's state at its first seek, and the newest one at a later seek if it was
//! replaced meanwhile. [`MergeCursor::take_state`] makes a resting cursor release its state between
//! two calls. In both cases the user of the merge seeks again from the key of its last row: the
//! read point keeps all rows visible there.

use std::sync::Arc;

use crate::base::SeqNo;
use crate::error::Result;
use crate::iter::merge::MergeCursor;
use crate::iter::run::{PrefixProbe, RunCursor};
use crate::iter::source::Source;
use crate::keyspace::tree::TreeState;
use crate::range_deletes::{Deleted, RangeDeletes, RangeHistory};
use crate::table::TableCursor;
use crate::version::group::{ScanCost, Version};

/// Value of `publications` without a state.
pub(super) const NO_STATE: u64 = u64::MAX;

/// Message for a missing state: every use of the sources comes after a seek.
const STATE: &str = "a seek has taken the state";

/// References of a merge into its tree: memtables, tables and the objects that pin them.
pub(super) struct HeldState {
    _state: Arc<TreeState>,
    _sources: Vec<Input>,
    _ranges: Vec<SourceRanges>,
}

/// Range deletes of one source.
pub(super) enum SourceRanges {
    Memtable(Arc<RangeHistory>),
    Table(Arc<RangeDeletes>),
}

impl SourceRanges {
    /// Returns the newest range delete over `key` that a reader at `read_point` sees.
    pub fn find(&self, key: &[u8], read_point: SeqNo) -> Option<Deleted<'_>> {
        match self {
            SourceRanges::Memtable(ranges) => ranges.find(key, read_point),
            SourceRanges::Table(ranges) => ranges.find_at(key, read_point),
        }
    }
}

pub(super) struct Input {
    pub(super) source: Source,
    /// The source may extend beyond the group's range, so its keys must be compared with the
    /// borders.
    pub(super) clipped: bool,
    /// A forward scan found the source past the bounds: it has no more rows to return.
    pub(super) past_end: bool,
    /// Upper bound of the seqnos of all entries that the source shows; `None`: ask the source.
    newest: Option<SeqNo>,
}

impl Input {
    pub(super) fn new(source: Source, clipped: bool, newest: Option<SeqNo>) -> Input {
        Input {
            source,
            clipped,
            past_end: false,
            newest,
        }
    }

    /// Returns an upper bound of the seqnos of all entries from `start` to before `end`.
    pub(super) fn newest_in(&self, start: &[u8], end: &[u8]) -> SeqNo {
        match (&self.source, self.newest) {
            (_, Some(newest)) => newest,
            (Source::Run(run), None) => run.newest_in(start, end),
            _ => SeqNo::MAX,
        }
    }
}

impl MergeCursor {
    /// Returns true if the tree has a newer state than the merge; then the merge must seek instead
    /// of stepping.
    pub fn is_stale(&self) -> bool {
        self.publications != self.tree.publications()
    }

    /// Takes the tree's newest state, if the merge has an older one or none.
    pub(super) fn refresh_state(&mut self) -> Result<()> {
        if !self.is_stale() {
            return Ok(());
        }
        drop(self.take_state());
        // Read before the state: a publication in between only costs one unnecessary reload.
        let (publications, state) = (self.tree.publications(), self.tree.load_full());
        self.tree.check()?;
        (self.publications, self.state) = (publications, Some(state));
        self.open_memtables();
        Ok(())
    }

    /// Takes away everything that pins memtables and tables. Then the merge is on no row and must
    /// seek next.
    pub fn take_state(&mut self) -> Option<HeldState> {
        self.walk.stop(&self.tree.dead);
        let own = usize::from(self.has_writes());
        let held = HeldState {
            _state: self.state.take()?,
            _sources: self.sources.split_off(own),
            _ranges: std::mem::take(&mut self.ranges),
        };
        self.publications = NO_STATE;
        (self.current, self.separated) = (None, None);
        Some(held)
    }

    pub(super) fn version(&self) -> &Arc<Version> {
        &self.state.as_ref().expect(STATE).version
    }

    fn open_memtables(&mut self) {
        let prefix = self.prefix;
        let state = self.state.as_ref().expect(STATE);
        let memtables = state.memtables();
        for memtable in memtables {
            let ranges = memtable.range_deletes();
            self.ranges.extend(ranges.map(SourceRanges::Memtable));
            let rows = &memtable.rows;
            // A filter of another prefix length, from before a change of options, rules nothing
            // out.
            let wanted = |p: PrefixProbe| {
                rows.prefix_bytes() != Some(p.bytes) || rows.may_contain_prefix(p.hash)
            };
            if prefix.is_none_or(wanted) {
                let source = Source::Memtable(rows.cursor(self.read_point));
                let newest = rows.seqno_range().map_or(0, |(_, newest)| newest);
                self.sources.push(Input::new(source, false, Some(newest)));
            }
        }
        self.fixed = self.sources.len();
        self.fixed_ranges = self.ranges.len();
        self.group = usize::MAX;
    }

    /// Makes `group` the current group and opens its tables, not positioned yet.
    pub(super) fn open_group(&mut self, group: usize) {
        if self.group == group {
            return;
        }
        self.group = group;
        self.sources.truncate(self.fixed);
        self.ranges.truncate(self.fixed_ranges);
        let version = &self.state.as_ref().expect(STATE).version;
        let tables = &version.groups()[group];
        for upper in &tables.upper {
            let table = &upper.table;
            let ranges = table.range_deletes().cloned();
            self.ranges.extend(ranges.map(SourceRanges::Table));
            if self
                .prefix
                .is_some_and(|p| !table.may_contain_prefix(p.bytes, p.hash))
            {
                continue;
            }
            let source = Source::Table(table.cursor(self.read_point));
            let clipped = tables.reaches_out(table, version.high(group));
            let newest = Some(table.max_seqno());
            self.sources.push(Input::new(source, clipped, newest));
        }
        if !tables.last.is_empty() {
            let run = RunCursor::new(Arc::clone(tables), self.read_point, self.prefix);
            self.sources.push(Input::new(Source::Run(run), false, None));
        }
    }

    /// Counts a seek, for the statistics and for the group that was searched.
    pub(super) fn note_seek(&self) {
        let nth = self.tree.counters.seeks.note(self.sources.len());
        if ScanCost::notes(nth) {
            let group = &self.version().groups()[self.group];
            // After a dead interval without an end no table was searched.
            let sought = self.sources[self.fixed..].iter().filter(|i| !i.past_end);
            // A fully compacted group has only the oldest source; seeks in the others are
            // unnecessary.
            let needless = sought.rev().skip(1);
            let reads = |i: &&Input| i.source.table().is_some_and(TableCursor::has_read);
            let (seeks, reads) = (needless.clone().count(), needless.filter(reads).count());
            group.scan_cost.note(seeks as u64, reads as u64);
        }
    }

    /// Opens the next group inside the bounds, while no table of the current group has rows left.
    pub(super) fn next_group(&mut self) -> Result<()> {
        while !(self.fixed..self.sources.len()).any(|i| self.live(i)) {
            let version = Arc::clone(self.version());
            let Some(low) = version.high(self.group) else {
                break;
            };
            if self.bounds.end.as_deref().is_some_and(|end| low >= end) {
                break;
            }
            self.open_group(self.group + 1);
            for input in &mut self.sources[self.fixed..] {
                input.source.seek(low)?;
            }
            self.drop_past_end();
        }
        Ok(())
    }

    pub(super) fn previous_group(&mut self) -> Result<()> {
        while !(self.fixed..self.sources.len()).any(|i| self.live(i)) {
            let version = Arc::clone(self.version());
            let low = &version.groups()[self.group].low;
            if self.group == 0 || low.as_slice() <= &self.bounds.start[..] {
                break;
            }
            self.open_group(self.group - 1);
            for input in &mut self.sources[self.fixed..] {
                input.source.seek_before(Some(low))?;
            }
        }
        Ok(())
    }
}
