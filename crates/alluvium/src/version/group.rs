//! Open form of a keyspace's tables: an immutable list of groups, each a key range with its own
//! tables.
//!
//! ```text
//! groups:  [ low "" .. "g" )   [ low "g" .. "p" )   [ low "p" .. end )
//! upper:   run 9, run 8        run 9                run 9, run 7         newest first
//! last:    t1 | t2 | t3        t4 | t5              t6                   key order, one run
//! ```
//!
//! An upper table may be listed by several adjacent groups (it was written before they were split);
//! each group shows only its own range of it. Within a group, from newest to oldest, the sequence
//! number ranges of the sources never overlap. So the first source that holds a key, searched
//! newest first, holds its newest version. A last-level table that an ingest or a flush added may
//! be newer than upper tables; it shares no key with them. A last-level table is listed by one
//! group only.

use std::sync::{Arc, OnceLock};

use crate::base::TableId;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::table::Table;
use crate::version::sum::Sum;

/// An upper table as one group lists it.
#[derive(Clone)]
pub(crate) struct Upper {
    /// Orders upper tables by age: a newer table has a larger run number.
    pub run: u64,
    /// The open table.
    pub table: Arc<Table>,
    /// Number of groups that share its bytes.
    pub shared_by: u32,
}

/// A key range and its tables.
#[derive(Clone, Default)]
pub(crate) struct Group {
    /// First key of the range, inclusive; empty for the first group. The range ends at the next
    /// group's low key.
    pub low: Vec<u8>,
    /// Upper tables, newest first.
    pub upper: Vec<Upper>,
    /// Last-level tables, in key order, not overlapping.
    pub last: Vec<Arc<Table>>,
    /// Extra cost of scans due to its upper tables, since the group has these tables.
    pub scan_cost: Arc<ScanCost>,
}

/// Seeks of scans in tables of a group beyond those that a fully compacted group would need, in
/// units of a seek in a cached block. Relaxed: it orders nothing, and a lost reset causes at most
/// one needless compaction.
#[derive(Debug, Default)]
pub(crate) struct ScanCost(AtomicU64);

/// All groups of a keyspace at one time. Never empty: a new keyspace has one group without tables.
pub(crate) struct Version {
    groups: Vec<Arc<Group>>,
    /// Estimated rows and bytes of the groups before each group, and of all; see
    /// [`Version::sums_before`].
    sums_before: OnceLock<Box<[Sum]>>,
}

impl Group {
    /// Returns the last-level table that may hold `key`.
    pub fn last_for(&self, key: &[u8]) -> Option<&Arc<Table>> {
        let table = self.last.get(self.last_from(key))?;
        (table.first_key() <= key).then_some(table)
    }

    /// Returns the index of the first last-level table that ends at or after `key`; the number of
    /// tables if all end before it.
    pub fn last_from(&self, key: &[u8]) -> usize {
        self.last.partition_point(|t| t.last_key() < key)
    }

    /// Returns true if a table holds keys outside this group's range, which ends at `high`. Still
    /// true when the other groups that it reaches into have compacted their part of it: that part
    /// is obsolete then.
    pub fn reaches_out(&self, table: &Table, high: Option<&[u8]>) -> bool {
        table.first_key() < self.low.as_slice() || high.is_some_and(|high| table.last_key() >= high)
    }

    /// Returns true if this group has the same tables as `before`.
    fn is_same(&self, before: &Group) -> bool {
        let upper = |group: &Group| group.upper.iter().map(|u| u.table.id()).collect::<Vec<_>>();
        let last = |group: &Group| group.last.iter().map(|t| t.id()).collect::<Vec<_>>();
        self.low == before.low && upper(self) == upper(before) && last(self) == last(before)
    }

    /// Returns the bytes of its upper tables, counting its share of shared tables.
    pub fn upper_bytes(&self) -> u64 {
        self.upper.iter().map(Upper::bytes).sum()
    }

    /// Returns the bytes of its last-level tables.
    pub fn last_bytes(&self) -> u64 {
        self.last.iter().map(|t| t.file_bytes()).sum()
    }
}

impl Upper {
    /// Returns the share of the table's bytes that counts for one group.
    pub fn bytes(&self) -> u64 {
        self.table.file_bytes() / u64::from(self.shared_by.max(1))
    }
}

/// One seek in this many is counted, on behalf of all of them: every reader of the group writes to
/// the same counter. A power of two.
const SEEKS_PER_NOTE: u64 = 16;
/// Cost of a block that is read from the page cache and decoded, in seeks in cached blocks: some 15
/// us, as measured (docs/decisions/0029). A block from the device costs more; the file system does
/// not say which it was.
const SEEKS_PER_READ: u64 = 7;
/// 2^64 divided by the golden ratio: products with it are spread evenly, regardless of the steps
/// that a reader takes from group to group.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl ScanCost {
    /// Returns true if the `nth` seek of its kind is to be counted.
    pub fn notes(nth: u64) -> bool {
        nth.wrapping_mul(SPREAD) < u64::MAX / SEEKS_PER_NOTE
    }

    /// Counts a scan with seeks in `needless` tables of a group beyond one and block reads in
    /// `reads` of these, and the scans that it represents.
    pub fn note(&self, needless: u64, reads: u64) {
        if needless > 0 {
            let cost = needless + SEEKS_PER_READ * reads;
            self.0.fetch_add(SEEKS_PER_NOTE * cost, Ordering::Relaxed);
        }
    }

    /// Restarts the count at zero.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns the cost so far, in seeks in cached blocks.
    pub fn needless_seeks(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Version {
    /// Returns the version of a keyspace without tables.
    pub fn empty() -> Version {
        Version {
            groups: vec![Arc::new(Group::default())],
            sums_before: OnceLock::new(),
        }
    }

    /// Creates a version of these groups, given in key order, and checks the invariants of every
    /// version.
    pub fn new(groups: Vec<Arc<Group>>) -> Version {
        assert!(
            !groups.is_empty() && groups[0].low.is_empty(),
            "the first group starts at the empty key"
        );
        assert!(
            groups.windows(2).all(|w| w[0].low < w[1].low),
            "groups are in key order"
        );
        let version = Version {
            groups: share(groups),
            sums_before: OnceLock::new(),
        };
        if cfg!(debug_assertions) {
            version.check();
        }
        version
    }

    /// Makes this version the successor of `before`: unchanged groups keep their scan cost.
    pub fn after(mut self, before: &Version) -> Version {
        for group in &mut self.groups {
            let same = before.find_low(&group.low).map(|i| &before.groups[i]);
            if let Some(same) = same.filter(|same| group.is_same(same)) {
                Arc::make_mut(group).scan_cost = Arc::clone(&same.scan_cost);
            }
        }
        self
    }

    /// Checks each group: upper runs are newest first with descending, disjoint sequence number
    /// ranges; the last level is in key order and inside the group's range.
    fn check(&self) {
        for (i, group) in self.groups.iter().enumerate() {
            let high = self.high(i);
            for pair in group.upper.windows(2) {
                let (newer, older) = (&pair[0], &pair[1]);
                assert!(
                    newer.run > older.run,
                    "upper tables are newest first: {} of run {}, {} of run {}; {} to {}, {} to {}, group {} to {:?}",
                    newer.table.id(),
                    newer.run,
                    older.table.id(),
                    older.run,
                    newer.table.first_key().escape_ascii(),
                    newer.table.last_key().escape_ascii(),
                    older.table.first_key().escape_ascii(),
                    older.table.last_key().escape_ascii(),
                    group.low.escape_ascii(),
                    high.map(|h| h.escape_ascii().to_string()),
                );
                // The tables of one ingest share their number, and no key.
                let apart = newer.table.min_seqno() >= older.table.max_seqno();
                assert!(
                    apart,
                    "sequence numbers of {} and {} overlap",
                    newer.table.id(),
                    older.table.id()
                );
            }
            for table in &group.last {
                let inside = table.first_key() >= &group.low[..]
                    && high.is_none_or(|h| table.last_key() < h);
                assert!(inside, "last-level table {} leaves its group", table.id());
            }
            for pair in group.last.windows(2) {
                assert!(
                    pair[0].last_key() < pair[1].first_key(),
                    "last-level tables overlap"
                );
            }
        }
    }

    /// Returns the groups in key order.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Returns the index of the group with `key` in its range.
    pub fn find(&self, key: &[u8]) -> usize {
        self.groups.partition_point(|g| g.low.as_slice() <= key) - 1
    }

    /// Returns the index of the group that starts at `low`.
    pub fn find_low(&self, low: &[u8]) -> Option<usize> {
        self.groups
            .binary_search_by(|g| g.low.as_slice().cmp(low))
            .ok()
    }

    /// Returns for each group the sum over the groups before it; one more is the sum over all. The
    /// first call for a version computes them with `of_group`, which estimates one group.
    pub fn sums_before(&self, of_group: impl Fn(usize) -> Sum) -> &[Sum] {
        self.sums_before.get_or_init(|| {
            let mut sum = Sum::default();
            let mut sums = vec![sum];
            for i in 0..self.groups.len() {
                sum += of_group(i);
                sums.push(sum);
            }
            sums.into()
        })
    }

    /// Returns the exclusive end of a group's range; `None` is the end of the keyspace.
    pub fn high(&self, index: usize) -> Option<&[u8]> {
        self.groups.get(index + 1).map(|g| g.low.as_slice())
    }

    /// Returns every table once.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let mut tables: Vec<Arc<Table>> = Vec::new();
        for group in &self.groups {
            tables.extend(group.upper.iter().map(|u| Arc::clone(&u.table)));
            tables.extend(group.last.iter().cloned());
        }
        tables.sort_by_key(|t| t.id());
        tables.dedup_by_key(|t| t.id());
        tables
    }
}

/// Sets for each upper table the number of groups that list it.
fn share(groups: Vec<Arc<Group>>) -> Vec<Arc<Group>> {
    let count = |id: TableId| {
        groups
            .iter()
            .filter(|g| g.upper.iter().any(|u| u.table.id() == id))
            .count() as u32
    };
    let wrong = |g: &Group| g.upper.iter().any(|u| u.shared_by != count(u.table.id()));
    let fixed = groups.iter().map(|g| {
        if !wrong(g) {
            return Arc::clone(g);
        }
        let mut group = Group::clone(g);
        for upper in &mut group.upper {
            upper.shared_by = count(upper.table.id());
        }
        Arc::new(group)
    });
    fixed.collect()
}
