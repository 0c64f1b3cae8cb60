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
//! zstd takes longer for such rows than their commits did. So a large flush is divided into shares
//! by key, for threads that work at once.
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

/// Distance between two samples in bytes of keys and values.
const SAMPLE_BYTES: u64 = 1 << if cfg!(feature = "simulation") { 8 } else { 16 };

/// Row of a memtable that stands for those before it.
struct Sample {
    key: Vec<u8>,
    /// Newest sequence number of the key.
    newest: SeqNo,
    /// Bytes of keys and values since the sample before, in the same memtable.
    bytes: u64,
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
        self.walk(memtables, |_, _, row| {
            bytes += row;
            bytes < least
        });
        bytes >= least
    }

    /// Returns samples of the rows in the gap, memtable by memtable.
    fn samples(&self, memtables: &[Arc<TreeMemtable>]) -> Vec<Sample> {
        let mut samples = Vec::new();
        let mut bytes = 0;
        self.walk(memtables, |key, newest, row| {
            bytes += row;
            if bytes >= SAMPLE_BYTES {
                let bytes = std::mem::take(&mut bytes);
                let key = key.to_vec();
                samples.push(Sample { key, newest, bytes });
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

    /// Calls `at_row` with the key of each row in the gap, its newest sequence number, and the
    /// bytes of its key and its newest value, until it returns false. One memtable follows another.
    fn walk(
        &self,
        memtables: &[Arc<TreeMemtable>],
        mut at_row: impl FnMut(&[u8], SeqNo, u64) -> bool,
    ) {
        for memtable in memtables {
            let mut cursor = memtable.rows.cursor(SeqNo::MAX);
            cursor.seek(&self.start);
            while cursor.valid() && self.end.as_deref().is_none_or(|end| cursor.key() < end) {
                let (key, entry) = (cursor.key(), cursor.entry());
                let bytes = key.len() + entry.value.len();
                if !at_row(key, entry.seqno, bytes as u64) {
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

/// Divides gaps into shares of about as many bytes of rows, for up to `most` writers at once. No
/// share is much smaller than a flush must be to go straight into the last level at all.
pub(super) fn shares(
    gaps: &[&Gap],
    memtables: &[Arc<TreeMemtable>],
    table_bytes: u64,
    most: usize,
) -> Vec<Vec<Gap>> {
    let least = (table_bytes / LEAST_PART).max(LEAST_BYTES);
    // An upper bound: in most flushes there is nothing to divide.
    let bytes: u64 = memtables.iter().map(|m| m.rows.bytes() as u64).sum();
    if bytes < 2 * least {
        return cut(gaps, &[]);
    }
    let mut samples: Vec<Sample> = gaps.iter().flat_map(|g| g.samples(memtables)).collect();
    samples.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    let bytes: u64 = samples.iter().map(|sample| sample.bytes).sum();
    let count = (bytes / least).min(most as u64);
    let far = Ends::new(seqno_range(memtables)).far;
    let mut borders = Vec::new();
    let (mut at, mut passed) = (0, 0);
    for share in 1..count {
        // A border that moved leaves less for the shares after it.
        let goal = passed + (bytes - passed) / (count - share + 1);
        while passed < goal {
            passed += samples[at].bytes;
            at += 1;
        }
        let (key, moved) = border(&samples[at - 1..], memtables, far, least);
        passed += samples[at..at + moved].iter().map(|s| s.bytes).sum::<u64>();
        at += moved;
        borders.push(key);
    }
    let borders: Vec<&[u8]> = borders.iter().map(Vec::as_slice).collect();
    cut(gaps, &borders)
}

/// Returns the border at the first of these samples, or at the next end of a writer's keys within
/// `near` bytes, with the number of samples that it moved by. Without the move the next share would
/// begin with a few keys of one writer, too few to see their end, and one table would cover them
/// and the keys of the next writer.
fn border(
    samples: &[Sample],
    memtables: &[Arc<TreeMemtable>],
    far: SeqNo,
    near: u64,
) -> (Vec<u8>, usize) {
    let mut passed = 0;
    for (moved, pair) in samples.windows(2).enumerate() {
        passed += pair[1].bytes;
        if pair[0].newest.saturating_sub(pair[1].newest) > far {
            return (first_after_fall(&pair[0], &pair[1], memtables, far), moved);
        }
        if passed > near {
            break;
        }
    }
    (samples[0].key.clone(), 0)
}

/// Returns the key between two samples at which the sequence numbers fall far.
fn first_after_fall(
    from: &Sample,
    to: &Sample,
    memtables: &[Arc<TreeMemtable>],
    far: SeqNo,
) -> Vec<u8> {
    let between = Gap {
        start: from.key.clone(),
        end: Some(to.key.clone()),
    };
    let mut keys = Vec::new();
    between.walk(memtables, |key, newest, _| {
        keys.push((key.to_vec(), newest));
        true
    });
    keys.sort_unstable();
    let fall = keys
        .windows(2)
        .find(|pair| pair[0].1.saturating_sub(pair[1].1) > far);
    fall.map_or_else(|| to.key.clone(), |pair| pair[1].0.clone())
}

/// Returns the lowest and the highest sequence number of the rows; `None` without rows.
pub(super) fn seqno_range(memtables: &[Arc<TreeMemtable>]) -> Option<(SeqNo, SeqNo)> {
    let ranges = memtables.iter().filter_map(|m| m.seqno_range());
    ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Cuts gaps at borders, both in key order. Returns the parts of the gaps below the first border,
/// between neighbors, and from the last one on, without empty ones.
fn cut(gaps: &[&Gap], borders: &[&[u8]]) -> Vec<Vec<Gap>> {
    let lows = iter::once(&[][..]).chain(borders.iter().copied());
    let highs = borders.iter().copied().map(Some).chain([None]);
    let between = |(low, high)| -> Vec<Gap> {
        let parts = gaps.iter().filter_map(|gap| gap.clipped(low, high));
        parts.collect()
    };
    let parts = lows.zip(highs).map(between);
    parts.filter(|part| !part.is_empty()).collect()
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
            let parts = cut(&gaps.each_ref(), &borders);
            let parts = parts.iter().map(|part| text(part));
            parts.collect::<Vec<_>>().join(" | ")
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

    /// Returns memtables with rows of `bytes` bytes, whose keys have the order of the sequence
    /// numbers within each of these writers: all write in turns, as long as they have rows.
    fn memtables(writers: &[u32], bytes: usize) -> Vec<Arc<TreeMemtable>> {
        let budget = Arc::new(MemoryBudget::new(64 << 20));
        let new = || Arc::new(TreeMemtable::new(&MemtableOptions::default(), &budget));
        let memtables = [new(), new()];
        let value = vec![7; bytes];
        let most = writers.iter().copied().max().unwrap_or(0);
        let mut seqno = 0;
        for n in 0..most {
            for (writer, rows) in writers.iter().enumerate() {
                if n < *rows {
                    seqno += 1;
                    let key = [(writer as u32).to_be_bytes(), n.to_be_bytes()].concat();
                    let memtable = &memtables[(2 * n / most) as usize];
                    (memtable.rows.writer()).insert(&key, 0, None, seqno, 0, &value, 0);
                }
            }
        }
        memtables.into()
    }

    /// Returns the first key of each share, as writer and row, and its number of rows.
    fn divided(
        memtables: &[Arc<TreeMemtable>],
        table_bytes: u64,
        most: usize,
    ) -> Vec<(u32, u32, usize)> {
        let all = Gap {
            start: Vec::new(),
            end: None,
        };
        let shares = shares(&[&all], memtables, table_bytes, most);
        let seen = |share: &Vec<Gap>| {
            let mut keys = Vec::new();
            share[0].walk(memtables, |key, _, _| {
                keys.push(key.to_vec());
                true
            });
            let first = keys.iter().min().expect("a row");
            let number = |at: usize| u32::from_be_bytes(first[at..at + 4].try_into().unwrap());
            (number(0), number(4), keys.len())
        };
        shares.iter().map(seen).collect()
    }

    #[test]
    fn shares_have_about_as_many_rows_each() {
        for (rows, bytes) in [(4_000, 2_000), (40, 200_000)] {
            let memtables = memtables(&[rows], bytes);
            let shares = |table_bytes, most| divided(&memtables, table_bytes, most);
            assert_eq!(shares(4 << 20, 1).len(), 1);
            assert_eq!(shares(32 << 20, 4).len(), 1, "too few for two");
            for (table_bytes, most, count) in [(4 << 20, 2, 2), (8 << 20, 9, 3), (1, 4, 4)] {
                let shares = shares(table_bytes, most);
                assert_eq!(shares.len(), count);
                let even = rows as usize / count;
                let sizes: Vec<usize> = shares.iter().map(|share| share.2).collect();
                assert_eq!(sizes.iter().sum::<usize>(), rows as usize);
                assert!(
                    sizes.iter().all(|n| n.abs_diff(even) <= 1 + even / 10),
                    "{sizes:?}"
                );
            }
        }
    }

    #[test]
    fn a_share_does_not_begin_with_the_last_keys_of_a_writer() {
        for ahead in [0, 3, 50, 300] {
            let memtables = memtables(&[2_000 + ahead, 2_000 - ahead], 2_000);
            let shares = divided(&memtables, 8 << 20, 2);
            let (writer, row, _) = shares[1];
            // A border after the end leaves the first share enough keys to see it.
            let exact = ahead > 3;
            assert!(
                writer == 1 && row <= if exact { 0 } else { 40 },
                "{ahead}: {shares:?}"
            );
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
