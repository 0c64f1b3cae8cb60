//! Appends: rows that have their range of keys to themselves are flushed straight into the last level.
//!
//! Keys that only grow, as those of a load in order or of a log of events, meet nothing in the tables. An upper table of
//! them would be read and written again by a merge that has nothing to merge; written as a part of the last level at
//! once they cost half as much.
//!
//! ```text
//! tables of a group:   |--last--|     |--last--||--last--|  |upper|
//! rows of a flush:          . .  .                   .          .  ..........................
//! they go to:             an upper table                                a gap: the last level
//! ```
//!
//! The group is claimed as for a merge until the flush is installed, so that what was found of it stays true: nothing
//! but merges of the group, this flusher, and ingests change its tables, and an ingest waits until the keyspace has no
//! memtable with rows.

use std::sync::Arc;

use crate::base::SeqNo;
use crate::compaction::Claim;
use crate::db::shared::Shared;
use crate::error::Result;
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::tree::Tree;
use crate::range_deletes::RangeDeletes;
use crate::version::group::Version;

/// Rows of fewer bytes than this part of a last-level table go above the last level: otherwise frequent small flushes
/// would leave it in small pieces that no merge ever puts together. Where memory is so small that no flush has many
/// more, half of a flush is enough: all rows of a load would be written twice instead.
const LEAST_PART: u64 = 4;
/// Of so few bytes a merge is made in no time. The simulator makes fewer.
const LEAST_BYTES: u64 = 1 << if cfg!(feature = "simulation") { 10 } else { 20 };

/// The end of one writer's keys is no reason to cut a table that is smaller than this part of one.
pub(super) const LEAST_PIECE: u64 = 16;

/// A group of which a flush may write to the last level.
pub(super) struct Straight<'a> {
    pub claim: Claim<'a>,
    /// In key order, not empty.
    pub gaps: Vec<Gap>,
}

/// Finds where the keys of one writer of appends end and those of another begin. A table with keys of both would hold the
/// range in which the first one goes on, whose rows could never again go straight into the last level.
///
/// A writer's last key is its newest, and the first key of the next one is old: the sequence number falls by far, for the
/// first time in many keys. In keys of random order it falls all the time.
pub(super) struct Ends {
    /// Falls by less are not far.
    far: SeqNo,
    before: SeqNo,
    /// Keys since the last far fall.
    keys: u32,
}

/// Keys without a far fall that are one writer's. Of keys in random order one in eight falls far.
const WRITERS_KEYS: u32 = 256;

impl Ends {
    /// Of rows with sequence numbers in this range.
    pub fn new(range: Option<(SeqNo, SeqNo)>) -> Ends {
        Ends {
            far: range.map_or(0, |(least, most)| (most - least) / 2),
            before: 0,
            keys: 0,
        }
    }

    /// Whether a writer's keys end before this key, the next one in order.
    pub fn is_passed(&mut self, newest: SeqNo) -> bool {
        let fall = self.before.saturating_sub(newest);
        self.before = newest;
        self.keys += 1;
        fall > self.far && std::mem::take(&mut self.keys) > WRITERS_KEYS
    }
}

/// Keys of one group between which no table has anything, range deletes included.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Inclusive.
    pub start: Vec<u8>,
    /// Exclusive; `None` is the end of the keyspace.
    pub end: Option<Vec<u8>>,
}

impl Gap {
    /// Whether the memtables have so many bytes of keys and values in it.
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

/// Claims the groups in which these memtables of a keyspace have many rows in gaps of which `suits` holds.
///
/// A range delete belongs above all that it hides: groups into which one of `ranges` reaches are left out.
pub(super) fn claim<'a>(
    shared: &'a Shared,
    tree: &Tree,
    memtables: &[Arc<TreeMemtable>],
    ranges: &RangeDeletes,
    suits: impl Fn(&Gap) -> Result<bool>,
) -> Result<Vec<Straight<'a>>> {
    let mut claimed = Vec::new();
    let flush_bytes = shared.plan().flush_bytes as u64;
    let least = (shared.options.table_bytes / LEAST_PART).min(flush_bytes / 2);
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
        let Some(claim) = shared.jobs.claim(tree, &group.low) else {
            continue;
        };
        // A merge may have changed the group just before.
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

/// The gaps of a group, in key order.
fn gaps(version: &Version, index: usize) -> Vec<Gap> {
    let group = &version.groups()[index];
    let upper = group.upper.iter().map(|u| &u.table);
    let tables = upper.chain(&group.last);
    let taken = tables.map(|t| (t.first_key(), t.last_key())).collect();
    between(&group.low, version.high(index), taken)
}

/// What lies in a range, to its exclusive end, outside of others that are given with their last keys.
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
            // The next key there can be.
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
