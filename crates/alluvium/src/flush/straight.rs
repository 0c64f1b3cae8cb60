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
//! Such rows are compressed into their final form at once, which takes longer than their commits
//! did. So a large flush is divided into pieces of the key range, for threads that work at once.
//!
//! The group is claimed, as for a compaction, until the flush is installed, so that its gaps remain
//! gaps. Only compactions of the group, the flush thread and ingests change its tables, and an
//! ingest waits until the keyspace has no memtable with rows.

use std::iter;
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
pub(super) const LEAST_PART: u64 = 4;
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

/// Bytes of keys and values for each key that [`pieces`] looks at.
const SAMPLE_BYTES: u64 = 1 << if cfg!(feature = "simulation") { 8 } else { 16 };

/// Key range of one group that no table covers, not even with a range delete.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        self.walk(memtables, |_, row| {
            bytes += row;
            bytes < least
        });
        bytes >= least
    }

    /// Returns a key for each [`SAMPLE_BYTES`] of keys and values in the gap, in no order.
    fn samples(&self, memtables: &[Arc<TreeMemtable>]) -> Vec<Vec<u8>> {
        let mut samples = Vec::new();
        let mut bytes = 0;
        self.walk(memtables, |key, row| {
            bytes += row;
            if bytes >= SAMPLE_BYTES {
                bytes -= SAMPLE_BYTES;
                samples.push(key.to_vec());
            }
            true
        });
        samples
    }

    /// Returns the part of the gap from `low` to before `high`, `None` if it is empty.
    fn clipped(&self, low: &[u8], high: Option<&[u8]>) -> Option<Gap> {
        let start = low.max(&self.start[..]).to_vec();
        let ends = [self.end.as_deref(), high].into_iter().flatten();
        let end = ends.min().map(<[u8]>::to_vec);
        let is_empty = end.as_ref().is_some_and(|end| start >= *end);
        (!is_empty).then_some(Gap { start, end })
    }

    /// Calls `at_row` with the key of each row in the gap and the bytes of its key and its newest
    /// value, one memtable after the other, until it returns false.
    fn walk(&self, memtables: &[Arc<TreeMemtable>], mut at_row: impl FnMut(&[u8], u64) -> bool) {
        for memtable in memtables {
            let mut cursor = memtable.rows.cursor(SeqNo::MAX);
            cursor.seek(&self.start);
            while cursor.valid() && self.end.as_deref().is_none_or(|end| cursor.key() < end) {
                let bytes = cursor.key().len() + cursor.entry().value.len();
                if !at_row(cursor.key(), bytes as u64) {
                    return;
                }
                cursor.next();
            }
        }
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

/// Divides gaps into at most `most` pieces, for writers that work at once. Each piece has about as
/// many bytes of rows as the others, and not much fewer than `least`.
pub(super) fn pieces(
    gaps: &[&Gap],
    memtables: &[Arc<TreeMemtable>],
    least: u64,
    most: usize,
) -> Vec<Vec<Gap>> {
    let mut samples: Vec<Vec<u8>> = gaps.iter().flat_map(|g| g.samples(memtables)).collect();
    samples.sort_unstable();
    samples.dedup();
    let count = (samples.len() as u64 * SAMPLE_BYTES / least.max(1)).min(most as u64) as usize;
    let borders = (1..count).map(|n| &samples[n * samples.len() / count][..]);
    cut(gaps, &borders.collect::<Vec<_>>())
}

/// Cuts gaps at borders, both in key order. Returns what lies before the first border, between each
/// two, and after the last one; nothing for a place without gaps.
fn cut(gaps: &[&Gap], borders: &[&[u8]]) -> Vec<Vec<Gap>> {
    let lows = iter::once(&[][..]).chain(borders.iter().copied());
    let highs = borders.iter().copied().map(Some).chain([None]);
    let between = |(low, high)| {
        gaps.iter()
            .filter_map(|gap| gap.clipped(low, high))
            .collect()
    };
    let pieces = lows.zip(highs).map(between);
    pieces
        .filter(|piece: &Vec<Gap>| !piece.is_empty())
        .collect()
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
    use alluvium_mem::MemtableOptions;

    use super::*;
    use crate::memory::MemoryBudget;

    fn shown(low: &str, high: Option<&str>, taken: &[(&str, &str)]) -> String {
        let taken = taken.iter().map(|(a, b)| (a.as_bytes(), b.as_bytes()));
        text(&between(
            low.as_bytes(),
            high.map(str::as_bytes),
            taken.collect(),
        ))
    }

    fn text(gaps: &[Gap]) -> String {
        let key = |key: &[u8]| String::from_utf8_lossy(key).replace('\0', "+");
        let end = |gap: &Gap| gap.end.as_deref().map_or("end".into(), key);
        let words = gaps
            .iter()
            .map(|g| format!("{}..{}", key(&g.start), end(g)));
        words.collect::<Vec<_>>().join(" ")
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
    fn borders_cut_gaps_or_lie_between_them() {
        let gap = |start: &str, end: Option<&str>| Gap {
            start: start.into(),
            end: end.map(Into::into),
        };
        let gaps = [gap("b", Some("d")), gap("f", Some("m")), gap("p", None)];
        let shown = |borders: &[&str]| -> String {
            let borders: Vec<&[u8]> = borders.iter().map(|b| b.as_bytes()).collect();
            let pieces = cut(&gaps.each_ref(), &borders);
            let pieces = pieces.iter().map(|piece| text(piece));
            pieces.collect::<Vec<_>>().join(" | ")
        };
        assert_eq!(shown(&[]), "b..d f..m p..end");
        assert_eq!(shown(&["g"]), "b..d f..g | g..m p..end");
        assert_eq!(shown(&["e", "q"]), "b..d | f..m p..q | q..end");
        assert_eq!(shown(&["a", "f", "m"]), "b..d | f..m | p..end");
        assert_eq!(
            shown(&["c", "c+", "r"]),
            "b..c | c..c+ | c+..d f..m p..r | r..end"
        );
    }

    #[test]
    fn pieces_have_about_as_many_rows_each() {
        let budget = Arc::new(MemoryBudget::new(64 << 20));
        let memtables: Vec<_> = (0..4_u32)
            .map(|of| {
                let memtable = TreeMemtable::new(&MemtableOptions::default(), &budget);
                let mut writer = memtable.rows.writer();
                for n in (of * 1_000..).take(1_000) {
                    writer.insert(&n.to_be_bytes(), 0, None, 1, 0, &[7; 2_000], 0);
                }
                drop(writer);
                Arc::new(memtable)
            })
            .collect();
        let all = Gap {
            start: Vec::new(),
            end: None,
        };
        let rows = |least, most| -> Vec<usize> {
            let pieces = pieces(&[&all], &memtables, least, most);
            let count = |piece: &Vec<Gap>| {
                let mut rows = 0;
                piece[0].walk(&memtables, |_, _| {
                    rows += 1;
                    true
                });
                rows
            };
            pieces.iter().map(count).collect()
        };
        assert_eq!(rows(1 << 20, 1), [4_000]);
        assert_eq!(rows(16 << 20, 4), [4_000], "too few for two");
        for (least, most, count) in [(1 << 20, 2, 2), (2 << 20, 9, 3), (1, 4, 4)] {
            let rows = rows(least, most);
            assert!(rows.len() == count && rows.iter().sum::<usize>() == 4_000);
            let even = 4_000 / count;
            assert!(rows.iter().all(|n| n.abs_diff(even) < 100), "{rows:?}");
        }
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
