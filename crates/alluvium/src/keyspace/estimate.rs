//! Estimates of the rows and bytes in a key range, from counts and fences: for query planners and
//! statistics.

use alluvium_mem::MemtableCursor;

use crate::base::{SeqNo, ValueKind};
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::state::TreeState;
use crate::version::group::Version;
use crate::version::sum::Sum;

/// Result of [`Keyspace::estimate_range`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RangeEstimate {
    /// Estimated number of rows.
    pub rows: u64,
    /// Estimated bytes: for table files as stored, without separated values; for memtables the keys
    /// and values.
    pub bytes: u64,
}

/// Number of rows at the beginning of a range that are read in each memtable. A range with fewer
/// rows there is counted; of a longer one, the mean row is taken from these and half as many at its
/// end.
const SAMPLED_ROWS: usize = 8;

impl Keyspace {
    /// Estimates the number of rows and bytes from `start` (inclusive) to `end` (exclusive; `None`
    /// is the end of the keyspace). Reads no block, and its cost does not depend on the width of
    /// the range: it reads up to 12 rows of each memtable, and searches the fences of the tables
    /// that may contain an end of the range, in about a microsecond each. Groups of tables between
    /// them were summed by the first estimate after a flush or compaction.
    ///
    /// The estimate is good for evenly distributed keys with rows of similar size, written once.
    /// Then each table that contains an end of the range may be wrong by the rows of one block. A
    /// memtable with more than 8 rows in the range may be wrong by some percent of all its rows.
    /// Otherwise, a row counts once for each table and memtable with a version of it, and a
    /// tombstone is assumed to hide one row. Rows that expired or are hidden by a range delete
    /// count until a compaction removes them.
    ///
    /// # Errors
    ///
    /// `KeyspaceDropped`, `Closed`.
    pub fn estimate_range(&self, start: &[u8], end: Option<&[u8]>) -> Result<RangeEstimate> {
        self.check()?;
        // Registered as by any reader of an active memtable.
        let point = self.db().shared().core.read_points.register();
        let state = self.tree().load_full();
        self.tree().check()?;
        if end.is_some_and(|end| end <= start) {
            return Ok(RangeEstimate::default());
        }
        Ok(estimate(&state, start, end, point.seqno()))
    }
}

/// Returns the estimate for a state of the tree; `read_point` is registered.
fn estimate(
    state: &TreeState,
    start: &[u8],
    end: Option<&[u8]>,
    read_point: SeqNo,
) -> RangeEstimate {
    let mut sum = in_tables(&state.version, start, end);
    for memtable in state.memtables() {
        sum += in_memtable(memtable, start, end, read_point);
    }
    RangeEstimate {
        rows: sum.rows.max(0.0).round() as u64,
        bytes: sum.bytes.round() as u64,
    }
}

/// Estimates the rows of a keyspace from counts alone.
pub(crate) fn estimate_rows(state: &TreeState) -> u64 {
    let stored = in_tables(&state.version, &[], None);
    let memtables = state.memtables();
    let in_memory: usize = memtables.map(|m| m.rows.keys()).sum();
    stored.rows.max(0.0).round() as u64 + in_memory as u64
}

fn in_tables(version: &Version, start: &[u8], end: Option<&[u8]>) -> Sum {
    let count = version.groups().len();
    let first = version.find(start);
    let last = end.map_or(count, |end| version.find(end));
    let mut sum = in_group(version, first, start, end);
    if last > first {
        let sums = version.sums_before(|group| in_group(version, group, &[], None));
        sum += sums[last] - sums[first + 1];
    }
    if last > first && last < count {
        sum += in_group(version, last, start, end);
    }
    sum
}

/// Estimates the part of a range in one group.
fn in_group(version: &Version, index: usize, start: &[u8], end: Option<&[u8]>) -> Sum {
    let group = &version.groups()[index];
    // An upper table may extend beyond the group; those rows belong to other groups or to none.
    let low = start.max(&group.low);
    let high = match (version.high(index), end) {
        (Some(high), Some(end)) => Some(high.min(end)),
        (high, end) => high.or(end),
    };
    let mut sum = Sum::default();
    for upper in &group.upper {
        let share = upper.table.estimate(low, high);
        sum.rows += share.entries - 2.0 * share.tombstones;
        sum.bytes += share.bytes;
    }
    for table in &group.last[group.last_from(low)..] {
        if high.is_some_and(|high| high <= table.first_key()) {
            break;
        }
        let share = table.estimate(low, high);
        // Tombstones kept only for older readers: the rows they hide are not in the last level.
        sum.rows += share.entries - share.tombstones;
        sum.bytes += share.bytes;
    }
    sum
}

fn in_memtable(
    memtable: &TreeMemtable,
    start: &[u8],
    end: Option<&[u8]>,
    read_point: SeqNo,
) -> Sum {
    let rows = &memtable.rows;
    let mut cursor = rows.cursor(read_point);
    let (mut sum, mut read) = (Sum::default(), 0_u32);
    let mut note = |cursor: &MemtableCursor| {
        let entry = cursor.entry();
        let is_delete = entry.kind == ValueKind::Delete as u8;
        sum.rows += if is_delete { -1.0 } else { 1.0 };
        sum.bytes += (cursor.key().len() + entry.value.len()) as f64;
        read += 1;
    };
    let mut found = cursor.seek(start);
    let is_inside = |cursor: &MemtableCursor| end.is_none_or(|end| cursor.key() < end);
    for _ in 0..SAMPLED_ROWS {
        if !(found && is_inside(&cursor)) {
            return sum;
        }
        note(&cursor);
        found = cursor.next();
    }
    if !(found && is_inside(&cursor)) {
        return sum;
    }
    let mut found = match end {
        Some(end) => cursor.seek_before(end),
        None => cursor.seek_last(),
    };
    for _ in 0..SAMPLED_ROWS / 2 {
        if !found {
            break;
        }
        note(&cursor);
        found = cursor.prev();
    }
    let before_end = end.map_or(1.0, |end| rows.share_before(end));
    let share = before_end - rows.share_before(start);
    let keys = (share * rows.keys() as f64).max(SAMPLED_ROWS as f64);
    Sum {
        rows: sum.rows / f64::from(read) * keys,
        bytes: sum.bytes / f64::from(read) * keys,
    }
}
