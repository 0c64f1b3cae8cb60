//! How many rows and bytes a key range holds, from counts and fences: for query planners, and for statistics.

use crate::base::{SeqNo, ValueKind};
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::tree::TreeState;
use crate::table::fraction_between;

/// What [`Keyspace::estimate_range`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RangeEstimate {
    /// Rows.
    pub rows: u64,
    /// Bytes: of table files as they are stored, without values in files of their own; of memtables the keys and values.
    pub bytes: u64,
}

/// Rows of one memtable that are counted one by one; beyond them the range is estimated from where they end.
const COUNTED_MAX: u64 = 1000;

/// Sums while an estimate is made. Rows may become negative on the way, where deletes are counted before rows.
#[derive(Default)]
struct Sum {
    rows: f64,
    bytes: f64,
}

impl Keyspace {
    /// About how many rows and bytes lie from `start` (inclusive) to `end` (exclusive; `None` is the end of the
    /// keyspace). Reads no block: it costs a walk over up to 1000 rows of each memtable, and two searches in the fences
    /// of each table of the range.
    ///
    /// For keys that lie evenly, with rows of like size, written once: each table that holds an end of the range may be
    /// wrong by the rows of one block there, and a memtable with more than 1000 rows in the range by some percent.
    /// Beyond that, a row counts once for each table and memtable that holds a version of it, a tombstone is taken to
    /// hide one row, and rows that expired or are hidden by a range delete count until they are merged away.
    ///
    /// # Errors
    ///
    /// `KeyspaceDropped`, `Closed`.
    pub fn estimate_range(&self, start: &[u8], end: Option<&[u8]>) -> Result<RangeEstimate> {
        self.check()?;
        // As any reader of an active memtable.
        let point = self.db().shared().read_points.register();
        let state = self.tree().load_full();
        self.tree().check()?;
        if end.is_some_and(|end| end <= start) {
            return Ok(RangeEstimate::default());
        }
        Ok(estimate(&state, start, end, point.seqno()))
    }
}

/// The estimate for a state of the tree; `read_point` is registered.
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

/// About how many rows a keyspace has, by counts alone.
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
            // An upper table may reach beyond the group, where others show it or nobody any more.
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
                // Kept for older readers only: what they hide is not in the last level.
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
        let first = match valid {
            true => cursor.key().to_vec(),
            false => return,
        };
        let (mut counted, mut own) = (0, Sum::default());
        while valid && cursor.key() <= &last[..] && counted < COUNTED_MAX {
            let entry = cursor.entry();
            let deleted = entry.kind == ValueKind::Delete as u8;
            own.rows += if deleted { -1.0 } else { 1.0 };
            own.bytes += (cursor.key().len() + entry.value.len()) as f64;
            counted += 1;
            valid = cursor.next();
        }
        let reached = match valid {
            true => fraction_between(cursor.key(), &first, &last),
            false => 1.0,
        };
        // More than the memtable holds would come of keys that lie closely at the beginning.
        let most = memtable.rows.entries() as f64 / counted.max(1) as f64;
        let scale = (1.0 / reached.max(f64::MIN_POSITIVE)).min(most.max(1.0));
        self.rows += own.rows * scale;
        self.bytes += own.bytes * scale;
    }
}
