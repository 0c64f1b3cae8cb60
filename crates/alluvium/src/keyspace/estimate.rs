//! Estimates of the rows and bytes in a key range, from counts and fences: for query planners and
//! statistics.

use crate::base::{SeqNo, ValueKind};
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::state::TreeState;
use crate::table::fraction_between;

/// Result of [`Keyspace::estimate_range`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RangeEstimate {
    /// Estimated number of rows.
    pub rows: u64,
    /// Estimated bytes: for table files as stored, without separated values; for memtables the keys
    /// and values.
    pub bytes: u64,
}

/// Number of rows of one memtable that are counted one by one; the rest of the range is
/// extrapolated from their extent.
const COUNTED_MAX: u64 = 1000;

/// Running sums of an estimate. `rows` may become negative meanwhile, if deletes are counted before
/// rows.
#[derive(Default)]
struct Sum {
    rows: f64,
    bytes: f64,
}

impl Keyspace {
    /// Estimates the number of rows and bytes from `start` (inclusive) to `end` (exclusive; `None`
    /// is the end of the keyspace). Reads no block: it costs a walk over up to 1000 rows of each
    /// memtable, and two searches in the fences of each table of the range.
    ///
    /// The estimate is good for evenly distributed keys with rows of similar size, written once.
    /// Then each table that contains an end of the range may be wrong by the rows of one block. A
    /// memtable with more than 1000 rows in the range may be wrong by some percent. Otherwise, a
    /// row counts once for each table and memtable with a version of it, and a tombstone is assumed
    /// to hide one row. Rows that expired or are hidden by a range delete count until a compaction
    /// removes them.
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
    let mut sum = Sum::default();
    for memtable in state.memtables() {
        sum.add_memtable(memtable, start, end, read_point);
    }
    sum.add_tables(state, start, end);
    RangeEstimate {
        rows: sum.rows.max(0.0).round() as u64,
        bytes: sum.bytes.round() as u64,
    }
}

/// Estimates the rows of a keyspace from counts alone.
pub(crate) fn estimate_rows(state: &TreeState) -> u64 {
    let mut sum = Sum::default();
    sum.add_tables(state, &[], None);
    let memtables = state.memtables();
    let in_memory: usize = memtables.map(|m| m.rows.entries()).sum();
    sum.rows.max(0.0).round() as u64 + in_memory as u64
}

impl Sum {
    fn add_tables(&mut self, state: &TreeState, start: &[u8], end: Option<&[u8]>) {
        let version = &state.version;
        for (i, group) in version
            .groups()
            .iter()
            .enumerate()
            .skip(version.find(start))
        {
            if end.is_some_and(|end| end <= &group.low[..]) {
                return;
            }
            // An upper table may extend beyond the group; those rows belong to other groups or to
            // none.
            let low = start.max(&group.low);
            let high = match (version.high(i), end) {
                (Some(high), Some(end)) => Some(high.min(end)),
                (high, end) => high.or(end),
            };
            for upper in &group.upper {
                let share = upper.table.estimate(low, high);
                self.rows += share.entries - 2.0 * share.tombstones;
                self.bytes += share.bytes;
            }
            for table in &group.last[group.last_from(low)..] {
                if high.is_some_and(|high| high <= table.first_key()) {
                    break;
                }
                let share = table.estimate(low, high);
                // Tombstones kept only for older readers: the rows they hide are not in the last
                // level.
                self.rows += share.entries - share.tombstones;
                self.bytes += share.bytes;
            }
        }
    }

    fn add_memtable(
        &mut self,
        memtable: &TreeMemtable,
        start: &[u8],
        end: Option<&[u8]>,
        read_point: SeqNo,
    ) {
        let mut cursor = memtable.rows.cursor(read_point);
        let found = match end {
            Some(end) => cursor.seek_before(end),
            None => cursor.seek_last(),
        };
        if !found || cursor.key() < start {
            return;
        }
        let last = cursor.key().to_vec();
        let mut valid = cursor.seek(start);
        let first = if valid { cursor.key().to_vec() } else { return };
        let (mut counted, mut own) = (0, Sum::default());
        while valid && cursor.key() <= &last[..] && counted < COUNTED_MAX {
            let entry = cursor.entry();
            let deleted = entry.kind == ValueKind::Delete as u8;
            own.rows += if deleted { -1.0 } else { 1.0 };
            own.bytes += (cursor.key().len() + entry.value.len()) as f64;
            counted += 1;
            valid = cursor.next();
        }
        let reached = if valid {
            fraction_between(cursor.key(), &first, &last)
        } else {
            1.0
        };
        // Cap at the memtable's own size: keys that are dense at the beginning would give more.
        let most = memtable.rows.entries() as f64 / counted.max(1) as f64;
        let scale = (1.0 / reached.max(f64::MIN_POSITIVE)).min(most.max(1.0));
        self.rows += own.rows * scale;
        self.bytes += own.bytes * scale;
    }
}
