//! Flush of appends: rows in a key range that no table covers go straight into the last level.
//!
//! Keys that only grow, as in an ordered load or a log of events, overlap no table. An upper table
//! of them would be read and written again by a compaction that has nothing to combine. Written at
//! once as a part of the last level, they cost half as much.
//!
//! ```text
//! tables of a group:   |--last--|     |--last--||--last--|  |upper|
//! rows of a flush:          . .  .                   .          .  ..........................
//! they go to:             an upper table                                a gap: the last level
//! ```
//!
//! The group is claimed, as for a compaction, until the flush is installed, so that its gaps remain
//! gaps. Only compactions of the group, the flush thread and ingests change its tables, and an
//! ingest waits until the keyspace has no memtable with rows.

use std::sync::Arc;

use crate::base::SeqNo;
use crate::compaction::Claim;
use crate::error::Result;
use crate::flush::env::FlushEnv;
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::tree::Tree;
use crate::range_deletes::RangeDeletes;
use crate::version::group::Version;

/// Divisor of a last-level table's size: fewer bytes of rows go above the last level. Otherwise
/// frequent small flushes would leave the last level in small pieces that no compaction ever joins.
/// If memory is so small that no flush has much more, half of a flush is enough: otherwise all rows
/// of a load would be written twice.
const LEAST_PART: u64 = 4;
/// Least bytes in any case: a compaction of fewer takes no time. The simulator writes fewer.
const LEAST_BYTES: u64 = 1 << if cfg!(feature = "simulation") { 10 } else { 20 };

/// Divisor of a table's size: the end of one writer's keys does not cut a smaller table.
pub(super) const LEAST_PIECE: u64 = 16;

/// A claimed group with gaps that a flush may write to the last level.
pub(super) struct Straight<'a> {
    pub claim: Claim<'a>,
    /// Gaps in key order, not empty.
    pub gaps: Vec<Gap>,
}

/// Detector of the end of one appending writer's keys and the start of another's. A table with keys
/// of both would cover the range in which the first writer continues. That writer's rows could then
/// never again go straight into the last level.
///
/// A writer's last key is its newest, and the first key of the next writer is old: the sequence
/// number falls far, for the first time in many keys. In keys of random order it falls all the
/// time.
pub(super) struct Ends {
    /// Falls up to this are not far.
    far: SeqNo,
    before: SeqNo,
    /// Keys since the last far fall.
    keys: u32,
}

/// Keys without a far fall that indicate one writer. In random order one key in eight falls far.
const WRITERS_KEYS: u32 = 256;

impl Ends {
    /// Creates a detector for rows with sequence numbers in this range.
    pub fn new(range: Option<(SeqNo, SeqNo)>) -> Ends {
        Ends {
            far: range.map_or(0, |(least, most)| (most - least) / 2),
            before: 0,
            keys: 0,
        }
    }

    /// Returns true if a writer's keys end before this key, the next one in order.
    pub fn is_passed(&mut self, newest: SeqNo) -> bool {
        let fall = self.before.saturating_sub(newest);
        self.before = newest;
        self.keys += 1;
        fall > self.far && std::mem::take(&mut self.keys) > WRITERS_KEYS
    }
}

/// Key range of one group that no table covers, not even with a range delete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Inclusive.
    pub start: Vec<u8>,
    /// Exclusive; `None` is the end of the keyspace.
    pub end: Option<Vec<u8>>,
}

impl Gap {
    /// Returns true if the memtables have at least `least` bytes of keys and values in the gap.
    fn takes(&self, memtables: &[Arc<TreeMemtable>], least: u64) -> bool {
        let mut bytes = 0;
        for memtable in memtables {
            let mut cursor = memtable.rows.cursor(SeqNo::MAX);
            cursor.seek(&self.start);
            while cursor.valid() && self.end.as_deref().is_none_or(|end| cursor.key() < end) {
                bytes += (cursor.key().len() + cursor.entry().value.len()) as u64;
                if bytes >= least {
                    return true;
                }
                cursor.next();
            }
        }
        false
    }
}

/// Claims the groups in which these memtables of a keyspace have many rows in gaps that `suits`
/// accepts.
///
/// A range delete belongs above everything that it hides: groups into which one of `ranges` reaches
/// are left out.
pub(super) fn claim<'a>(
    env: &'a FlushEnv,
    tree: &Tree,
    memtables: &[Arc<TreeMemtable>],
    ranges: &RangeDeletes,
    suits: impl Fn(&Gap) -> Result<bool>,
) -> Result<Vec<Straight<'a>>> {
    let mut claimed = Vec::new();
    let flush_bytes = env.core.plan().flush_bytes as u64;
    let least = (env.core.options.table_bytes / LEAST_PART).min(flush_bytes / 2);
    let least = least.max(LEAST_BYTES);
    let bytes: u64 = memtables.iter().map(|m| m.rows.bytes() as u64).sum();
    if bytes < least {
        return Ok(claimed);
    }
    let large = |version: &Version, index: usize| -> Vec<Gap> {
        let low = &version.groups()[index].low;
        if ranges.reaches_into(low, version.high(index)) {
            return Vec::new();
        }
        let gaps = gaps(version, index).into_iter();
        gaps.filter(|gap| gap.takes(memtables, least)).collect()
    };
    let version = Arc::clone(&tree.load().version);
    for (index, group) in version.groups().iter().enumerate() {
        if large(&version, index).is_empty() {
            continue;
        }
        let Some(claim) = env.jobs.claim(tree, &group.low) else {
            continue;
        };
        // A compaction may have changed the group just before.
        let now = Arc::clone(&tree.load().version);
        let Some(index) = now.find_low(&group.low) else {
            continue;
        };
        let mut gaps = Vec::new();
        for gap in large(&now, index) {
            if suits(&gap)? {
                gaps.push(gap);
            }
        }
        if !gaps.is_empty() {
            claimed.push(Straight { claim, gaps });
        }
    }
    Ok(claimed)
}

/// Returns the gaps of a group, in key order.
fn gaps(version: &Version, index: usize) -> Vec<Gap> {
    let group = &version.groups()[index];
    let upper = group.upper.iter().map(|u| &u.table);
    let tables = upper.chain(&group.last);
    let taken = tables.map(|t| (t.first_key(), t.last_key())).collect();
    between(&group.low, version.high(index), taken)
}

/// Returns the parts of a range, with its exclusive end, outside the `taken` ranges, given with
/// their last keys.
fn between(low: &[u8], high: Option<&[u8]>, mut taken: Vec<(&[u8], &[u8])>) -> Vec<Gap> {
    taken.sort_unstable();
    let mut gaps = Vec::new();
    let mut start = low.to_vec();
    for (first, last) in taken {
        if first > &start[..] {
            gaps.push(Gap {
                start: start.clone(),
                end: Some(first.to_vec()),
            });
        }
        if last >= &start[..] {
            start.clear();
            start.extend_from_slice(last);
            // The smallest possible next key.
            start.push(0);
        }
    }
    if high.is_none_or(|high| &start[..] < high) {
        gaps.push(Gap {
            start,
            end: high.map(<[u8]>::to_vec),
        });
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(low: &str, high: Option<&str>, taken: &[(&str, &str)]) -> String {
        let taken = taken.iter().map(|(a, b)| (a.as_bytes(), b.as_bytes()));
        let gaps = between(low.as_bytes(), high.map(str::as_bytes), taken.collect());
        let text = |key: &[u8]| String::from_utf8_lossy(key).replace('\0', "+");
        let words: Vec<String> = gaps
            .iter()
            .map(|g| {
                format!(
                    "{}..{}",
                    text(&g.start),
                    g.end.as_deref().map_or("end".into(), text)
                )
            })
            .collect();
        words.join(" ")
    }

    #[test]
    fn gaps_are_what_no_table_has() {
        assert_eq!(shown("", None, &[]), "..end");
        assert_eq!(shown("c", Some("m"), &[]), "c..m");
        assert_eq!(
            shown("", None, &[("b", "d"), ("f", "h")]),
            "..b d+..f h+..end"
        );
        assert_eq!(shown("b", Some("k"), &[("b", "d"), ("d\0", "j")]), "j+..k");
    }

    #[test]
    fn tables_may_overlap_each_other_and_reach_out_of_the_group() {
        assert_eq!(shown("c", Some("m"), &[("a", "d"), ("k", "z")]), "d+..k");
        assert_eq!(shown("c", Some("m"), &[("a", "z"), ("d", "e")]), "");
        assert_eq!(
            shown("", None, &[("f", "h"), ("b", "g"), ("c", "d")]),
            "..b h+..end"
        );
    }
    #[test]
    fn the_end_of_a_writer_is_found_and_keys_in_random_order_have_none() {
        let passed = |seqnos: &mut dyn Iterator<Item = SeqNo>| -> Vec<usize> {
            let mut ends = Ends::new(Some((1, 2_000)));
            let found = seqnos.enumerate().filter(|(_, s)| ends.is_passed(*s));
            found.map(|(at, _)| at).collect()
        };
        let (first, second) = ((0..1_000).map(|n| 2 * n + 1), (1..=1_000).map(|n| 2 * n));
        assert_eq!(passed(&mut first.chain(second)), [1_000]);
        assert_eq!(passed(&mut (1..=2_000)), []);
        let mut mixed = (1..=5_000_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 2_000);
        assert_eq!(passed(&mut mixed), []);
    }
}
