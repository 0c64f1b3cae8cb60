//! Inputs of a merge at one read point: a transaction's writes and the memtables, which span the
//! keyspace, and the tables of one group at a time.
//!
//! A scan inside one group opens only that group's tables, and filters are asked again in each
//! group. The merge decides which rows are shown; here a row hides others only by a range delete.
//!
//! The inputs take the tree's state at the first seek, and the newest one at a later seek if it was
//! replaced meanwhile. [`Inputs::take_state`] releases the state of a resting cursor between two
//! calls. In both cases the cursor seeks again from the key of its last row: the read point keeps
//! all rows visible there.

use std::sync::Arc;

use crate::base::{SeqNo, checksum};
use crate::error::Result;
use crate::iter::bounds::{Bounds, Direction};
use crate::iter::hiding::{HidingRanges, SourceRanges};
use crate::iter::run::{PrefixProbe, RunCursor};
use crate::iter::source::Source;
use crate::keyspace::dead::Reach;
use crate::keyspace::state::TreeState;
use crate::keyspace::tree::Tree;
use crate::table::TableCursor;
use crate::txn::write_cursor::WriteCursor;
use crate::version::group::{ScanCost, Version};

/// Value of `publications` without a state.
const NO_STATE: u64 = u64::MAX;

/// Message for a missing state: every use of the sources comes after a seek.
const STATE: &str = "a seek has taken the state";

/// References of a merge into its tree: memtables, tables and the objects that pin them.
pub(super) struct HeldState {
    _state: Arc<TreeState>,
    _inputs: Vec<Input>,
    _ranges: Vec<SourceRanges>,
}

/// Sources of a merge, each at its first row that the merge has not passed.
pub(super) struct Inputs {
    tree: Arc<Tree>,
    /// `None` before the first seek, and after the state was taken away.
    state: Option<Arc<TreeState>>,
    /// Publication count of `state`, or of a later state not seen yet; [`NO_STATE`] without a
    /// state.
    publications: u64,
    read_point: SeqNo,
    bounds: Arc<Bounds>,
    prefix: Option<PrefixProbe>,
    /// Direction of the last seek.
    direction: Direction,
    /// Newest first: writes, memtables, then the tables of `group`.
    inputs: Vec<Input>,
    /// Number of `inputs` that span the keyspace.
    fixed: usize,
    ranges: HidingRanges,
    group: usize,
    leaps: Leaps,
}

struct Input {
    source: Source,
    /// The source may extend beyond the group's range, so its keys must be compared with the
    /// borders.
    clipped: bool,
    /// The source was found past the bounds or a dead interval: it has no more rows to return.
    past_end: bool,
    /// Upper bound of the seqnos of all entries that the source shows; `None`: ask the source.
    newest: Option<SeqNo>,
}

/// First row of the inputs in their direction.
pub(super) struct First {
    /// Index of its source, the newest one that has this key.
    pub at: usize,
    pub lead: Lead,
}

/// Rows of the first source that come before those of all other sources. They are found by steps of
/// this source alone, until it has none left. If it spans all groups, no table of a later group has
/// a row before them: the groups are opened until one has rows.
#[derive(Clone, Copy)]
pub(super) enum Lead {
    /// Not known: another source has the same key, a range delete may hide rows, or the source may
    /// leave the group while it still has keys.
    None,
    /// The keys before that of this source.
    Before(usize),
    /// All keys.
    Alone,
}

/// Key from which sources were last moved by seeks; empty if there was no such move since the seek
/// of the merge.
#[derive(Default)]
struct Leaps(Vec<u8>);

impl Input {
    fn new(source: Source, clipped: bool, newest: Option<SeqNo>) -> Input {
        Input {
            source,
            clipped,
            past_end: false,
            newest,
        }
    }

    fn seek(&mut self, direction: Direction, edge: Option<&[u8]>) -> Result<()> {
        self.past_end = false;
        self.source.seek(direction, edge)?;
        Ok(())
    }

    /// Returns an upper bound of the seqnos of all entries from `start` to before `end`.
    fn newest_in(&self, start: &[u8], end: &[u8]) -> SeqNo {
        match (&self.source, self.newest) {
            (_, Some(newest)) => newest,
            (Source::Run(run), None) => run.newest_in(start, end),
            _ => SeqNo::MAX,
        }
    }
}

impl Leaps {
    /// Records that sources are about to be moved by seeks from the key of input `at`. Each such
    /// key is further in the direction of the merge, unless a table's rows are out of order. A
    /// seek can move such a table back, and the merge would pass the same keys forever; then this
    /// returns an error.
    fn note(&mut self, direction: Direction, inputs: &[Input], at: usize) -> Result<()> {
        let source = &inputs[at].source;
        let further = self.0.is_empty() || direction.is_before(&self.0, source.key());
        self.0.clear();
        self.0.extend_from_slice(source.key());
        if further {
            return Ok(());
        }
        let tables = || inputs.iter().find_map(|input| input.source.table());
        // Memtables are always in order.
        let table = source.table().or_else(tables);
        table.map_or(Ok(()), |table| Err(table.out_of_order()))
    }
}

impl Inputs {
    pub fn new(
        tree: Arc<Tree>,
        read_point: SeqNo,
        bounds: Bounds,
        writes: Option<WriteCursor>,
    ) -> Inputs {
        let prefix = tree.options().prefix_filter_bytes.and_then(|bytes| {
            let hash = checksum::key_hash(bounds.shared_prefix(bytes)?);
            Some(PrefixProbe { bytes, hash })
        });
        let ranges = HidingRanges::new(writes.as_ref().and_then(WriteCursor::own_ranges));
        let mut inputs = Vec::with_capacity(8);
        inputs.extend(writes.map(|writes| Input::new(Source::Writes(writes), false, None)));
        Inputs {
            tree,
            state: None,
            publications: NO_STATE,
            read_point,
            bounds: Arc::new(bounds),
            prefix,
            direction: Direction::Forward,
            inputs,
            fixed: 0,
            ranges,
            group: usize::MAX,
            leaps: Leaps::default(),
        }
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub fn read_point(&self) -> SeqNo {
        self.read_point
    }

    pub fn bounds(&self) -> &Arc<Bounds> {
        &self.bounds
    }

    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns source `at`.
    pub fn source(&self, at: usize) -> &Source {
        &self.inputs[at].source
    }

    /// Returns true if the first source is a transaction's writes.
    pub fn has_writes(&self) -> bool {
        self.inputs
            .first()
            .is_some_and(|input| input.source.is_own())
    }

    /// Returns true if the tree has a newer state than the inputs; then the merge must seek instead
    /// of stepping.
    pub fn is_stale(&self) -> bool {
        self.publications != self.tree.publications()
    }

    /// Begins a seek in `direction`: takes the tree's newest state, if the inputs have an older one
    /// or none.
    pub fn begin_seek(&mut self, direction: Direction) -> Result<()> {
        self.direction = direction;
        self.leaps.0.clear();
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

    /// Takes away everything that pins memtables and tables. Then the next call must be a seek.
    pub fn take_state(&mut self) -> Option<HeldState> {
        let own = usize::from(self.has_writes());
        let held = HeldState {
            _state: self.state.take()?,
            _inputs: self.inputs.split_off(own),
            _ranges: self.ranges.take(),
        };
        self.publications = NO_STATE;
        Some(held)
    }

    fn version(&self) -> &Arc<Version> {
        &self.state.as_ref().expect(STATE).version
    }

    fn open_memtables(&mut self) {
        let prefix = self.prefix;
        let state = self.state.as_ref().expect(STATE);
        for memtable in state.memtables() {
            let ranges = memtable.range_deletes().map(SourceRanges::Memtable);
            self.ranges.add(ranges);
            let rows = &memtable.rows;
            // A filter of another prefix length, from before a change of options, rules nothing
            // out.
            let wanted = |p: PrefixProbe| {
                rows.prefix_bytes() != Some(p.bytes) || rows.may_contain_prefix(p.hash)
            };
            if prefix.is_none_or(wanted) {
                let source = Source::Memtable(rows.cursor(self.read_point));
                let newest = rows.seqno_range().map_or(0, |(_, newest)| newest);
                self.inputs.push(Input::new(source, false, Some(newest)));
            }
        }
        self.fixed = self.inputs.len();
        self.ranges.fix();
        self.group = usize::MAX;
    }

    /// Makes `group` the current group and opens its tables, not positioned yet.
    fn open_group(&mut self, group: usize) {
        if self.group == group {
            return;
        }
        self.group = group;
        self.inputs.truncate(self.fixed);
        self.ranges.leave_group();
        let version = &self.state.as_ref().expect(STATE).version;
        let tables = &version.groups()[group];
        for upper in &tables.upper {
            let table = &upper.table;
            let ranges = table.range_deletes().cloned().map(SourceRanges::Table);
            self.ranges.add(ranges);
            if self
                .prefix
                .is_some_and(|p| !table.may_contain_prefix(p.bytes, p.hash))
            {
                continue;
            }
            let source = Source::Table(table.cursor(self.read_point));
            let clipped = tables.reaches_out(table, version.high(group));
            let newest = Some(table.max_seqno());
            self.inputs.push(Input::new(source, clipped, newest));
        }
        if !tables.last.is_empty() {
            let run = RunCursor::new(Arc::clone(tables), self.read_point, self.prefix);
            self.inputs.push(Input::new(Source::Run(run), false, None));
        }
    }

    /// Returns the group that a scan from `edge` meets first.
    fn group_at(&self, edge: Option<&[u8]>) -> usize {
        let groups = self.version().groups();
        match (self.direction, edge) {
            (Direction::Forward, edge) => self.version().find(edge.unwrap_or_default()),
            // The group that holds the keys just below the edge, not the group that starts with it.
            (Direction::Reverse, Some(edge)) => groups
                .partition_point(|g| g.low.as_slice() < edge)
                .saturating_sub(1),
            (Direction::Reverse, None) => groups.len() - 1,
        }
    }

    /// Moves all sources to their first rows from `edge` on.
    pub fn seek(&mut self, edge: Option<&[u8]>) -> Result<()> {
        self.open_group(self.group_at(edge));
        for input in &mut self.inputs {
            input.seek(self.direction, edge)?;
        }
        Ok(())
    }

    /// As [`Inputs::seek`], if no committed row is live before `reach`, whose key is `to`.
    pub fn seek_over(&mut self, edge: &[u8], reach: Reach, to: &[u8]) -> Result<()> {
        if self.has_writes() {
            self.inputs[0].seek(self.direction, Some(edge))?;
        }
        self.jump(reach, to)
    }

    /// Moves the committed sources from the row of source `at` past an interval without live rows.
    pub fn leap(&mut self, at: usize, reach: Reach, to: &[u8]) -> Result<()> {
        self.leaps.note(self.direction, &self.inputs, at)?;
        self.jump(reach, to)
    }

    fn jump(&mut self, reach: Reach, to: &[u8]) -> Result<()> {
        self.open_group(match (reach, self.direction) {
            (Reach::To, _) => self.group_at(Some(to)),
            (Reach::Everything, Direction::Forward) => self.version().groups().len() - 1,
            (Reach::Everything, Direction::Reverse) => 0,
        });
        let own = usize::from(self.has_writes());
        for input in &mut self.inputs[own..] {
            match reach {
                Reach::To => input.seek(self.direction, Some(to))?,
                Reach::Everything => input.past_end = true,
            }
        }
        Ok(())
    }

    /// Counts a seek, for the statistics and for the group that was searched.
    pub fn note_seek(&self) {
        let nth = self.tree.counters.seeks.note(self.inputs.len());
        if ScanCost::notes(nth) {
            let group = &self.version().groups()[self.group];
            // After a dead interval without an end no table was searched.
            let sought = self.inputs[self.fixed..].iter().filter(|i| !i.past_end);
            // A fully compacted group has only the oldest source; seeks in the others are
            // unnecessary.
            let needless = sought.rev().skip(1);
            let reads = |i: &&Input| i.source.table().is_some_and(TableCursor::has_read);
            let (seeks, reads) = (needless.clone().count(), needless.filter(reads).count());
            group.scan_cost.note(seeks as u64, reads as u64);
        }
    }

    /// Moves source `at` to its next row.
    #[inline]
    pub fn step(&mut self, at: usize) -> Result<()> {
        self.inputs[at].source.step(self.direction)?;
        Ok(())
    }

    /// Steps every source that is on the key of source `at`, and `at` last.
    pub fn step_equal(&mut self, at: usize) -> Result<()> {
        let (newer, older) = self.inputs.split_at_mut(at + 1);
        let source = &mut newer[at].source;
        for input in older {
            if input.source.valid() && input.source.key() == source.key() {
                input.source.step(self.direction)?;
            }
        }
        source.step(self.direction)?;
        Ok(())
    }

    /// Moves sources past the rows that the range delete over the row of source `at` hides. Sources
    /// with only older rows seek past its range; other sources on this key step past it. Returns
    /// false if there is no such range delete.
    #[inline]
    pub fn skip_hidden(&mut self, at: usize) -> Result<bool> {
        Ok(!self.ranges.is_empty() && self.skip_range(at)?)
    }

    fn skip_range(&mut self, at: usize) -> Result<bool> {
        let Some(hidden) = self.ranges.find(&self.inputs[at].source, self.read_point) else {
            return Ok(false);
        };
        self.leaps.note(self.direction, &self.inputs, at)?;
        let key = self.inputs[at].source.key().to_vec();
        let edge = match self.direction {
            Direction::Forward => hidden.end,
            Direction::Reverse => hidden.start,
        };
        for input in &mut self.inputs {
            if !input.source.valid() || input.source.is_own() {
                continue;
            }
            let at = input.source.key();
            if !(hidden.start <= at && at < hidden.end) {
                continue;
            }
            if input.newest_in(hidden.start, hidden.end) < hidden.seqno {
                input.source.seek(self.direction, Some(edge))?;
            } else if at == key {
                input.source.step(self.direction)?;
            }
        }
        Ok(true)
    }

    /// Returns the first row of all sources in the current group and later ones, inside the bounds.
    pub fn first(&mut self) -> Result<Option<First>> {
        self.drop_past_end();
        self.open_next_groups()?;
        let mut first: Option<(usize, &[u8])> = None;
        let mut second: Option<(usize, &[u8])> = None;
        for (at, input) in self.inputs.iter().enumerate() {
            if self.is_live(input) {
                let key = input.source.key();
                let is_before = |other: Option<(usize, &[u8])>| {
                    other.is_none_or(|(_, other)| self.direction.is_before(key, other))
                };
                if is_before(first) {
                    (first, second) = (Some((at, key)), first);
                } else if is_before(second) {
                    second = Some((at, key));
                }
            }
        }
        Ok(first.map(|(at, key)| First {
            at,
            lead: match second {
                _ if self.inputs[at].clipped || !self.ranges.is_empty() => Lead::None,
                Some((_, second)) if second == key => Lead::None,
                Some((second, _)) => Lead::Before(second),
                None => Lead::Alone,
            },
        }))
    }

    /// Marks the sources that left the bounds.
    #[inline]
    fn drop_past_end(&mut self) {
        if self.bounds.exit(self.direction).is_none() {
            return;
        }
        for input in &mut self.inputs {
            let has_key = !input.past_end && input.source.valid();
            input.past_end |= has_key && self.bounds.is_past(self.direction, input.source.key());
        }
    }

    /// Returns true if the source is on a key inside the bounds and the current group.
    fn is_live(&self, input: &Input) -> bool {
        if input.past_end || !input.source.valid() {
            return false;
        }
        if !input.clipped {
            return true;
        }
        let (version, key) = (self.version(), input.source.key());
        match self.direction {
            Direction::Forward => version.high(self.group).is_none_or(|high| key < high),
            Direction::Reverse => key >= version.groups()[self.group].low.as_slice(),
        }
    }

    /// Opens the next group inside the bounds, while no table of the current group has rows left.
    fn open_next_groups(&mut self) -> Result<()> {
        while !self.inputs[self.fixed..].iter().any(|i| self.is_live(i)) {
            let version = Arc::clone(self.version());
            let (next, edge) = match self.direction {
                Direction::Forward => (Some(self.group + 1), version.high(self.group)),
                Direction::Reverse => {
                    let low = &version.groups()[self.group].low;
                    (self.group.checked_sub(1), Some(low.as_slice()))
                }
            };
            let (Some(next), Some(edge)) = (next, edge) else {
                break;
            };
            let exit = self.bounds.exit(self.direction);
            if exit.is_some_and(|exit| !self.direction.is_before(edge, exit)) {
                break;
            }
            self.open_group(next);
            for input in &mut self.inputs[self.fixed..] {
                input.seek(self.direction, Some(edge))?;
            }
            self.drop_past_end();
        }
        Ok(())
    }
}
