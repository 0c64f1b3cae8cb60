//! Backlog of background work: the bytes above the last level and in sealed memtables, the excess
//! over their budgets, and the report to admission control.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::admission::Admission;
use crate::compaction::pick::PickRules;
use crate::db::memory::MemoryPlan;
use crate::sync::plain::Mutex;

/// Numbers of a database that decide about delays, see the module.
pub(crate) struct Backlog {
    pub sizes: TableSizes,
    pub admission: Admission,
    /// As in [`crate::Options::upper_fraction`].
    upper_fraction: f64,
    /// Bytes of memtables that wait for their flush. Relaxed: a copy of the flush queue's number.
    sealed_bytes: AtomicUsize,
    /// The same for the largest generation of them.
    largest_sealed_bytes: AtomicUsize,
    /// Upper bytes compacted into the last level per second by one thread, smoothed; 0 before the
    /// first compaction. The mutex guards nothing else.
    drain_bytes_per_s: Mutex<f64>,
}

/// Total bytes of all tables, for threads that must not visit every group. Relaxed: a reader may
/// see one number from before an edit and the other from after it.
#[derive(Debug, Default)]
pub(crate) struct TableSizes {
    upper: AtomicU64,
    last: AtomicU64,
}

/// Excess over the upper-bytes budget at which writers begin to be slowed, as a share of the
/// budget.
const DEBT_SLACK: f64 = 0.5;
/// Upper bytes that the database may always hold, in units of the active memtables' size.
const FLOOR_FLUSH_UNITS: u64 = 2;
/// Number of upper tables in one group above which they are tiered.
const TABLES_MAX: usize = 6;
/// Weight of the newest compaction in the smoothed drain rate.
const DRAIN_SMOOTHING: f64 = 0.3;
/// Drain rate assumed before the first compaction; does not slow a load down needlessly.
const DRAIN_BYTES_PER_S_FIRST: f64 = 64e6;

impl TableSizes {
    pub fn set(&self, upper: u64, last: u64) {
        self.upper.store(upper, Ordering::Relaxed);
        self.last.store(last, Ordering::Relaxed);
    }

    /// Bytes of tables above the last level.
    pub fn upper_bytes(&self) -> u64 {
        self.upper.load(Ordering::Relaxed)
    }

    /// Bytes of last-level tables.
    pub fn last_bytes(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}

impl Backlog {
    /// Creates an empty backlog of a database with this space budget.
    pub fn new(upper_fraction: f64) -> Backlog {
        Backlog {
            sizes: TableSizes::default(),
            admission: Admission::new(),
            upper_fraction,
            sealed_bytes: AtomicUsize::new(0),
            largest_sealed_bytes: AtomicUsize::new(0),
            drain_bytes_per_s: Mutex::new(0.0),
        }
    }

    /// Returns the rules by which compactions are picked.
    pub fn rules(&self, plan: &MemoryPlan) -> PickRules {
        PickRules {
            upper_fraction: self.upper_fraction,
            floor_bytes: FLOOR_FLUSH_UNITS * plan.active_bytes as u64,
            tables_max: TABLES_MAX,
        }
    }

    /// Returns true if the upper tables exceed the space budget.
    pub fn is_over_budget(&self, plan: &MemoryPlan) -> bool {
        self.upper_debt(plan) > 0.0
    }

    /// Returns the bytes of upper tables above the space budget.
    pub fn upper_excess_bytes(&self, plan: &MemoryPlan) -> u64 {
        let budget = self.rules(plan).budget(self.sizes.last_bytes());
        self.sizes.upper_bytes().saturating_sub(budget)
    }

    fn upper_debt(&self, plan: &MemoryPlan) -> f64 {
        let (upper, last) = (self.sizes.upper_bytes(), self.sizes.last_bytes());
        self.rules(plan).debt(upper, last)
    }

    /// Notes the bytes of memtables that wait for their flush: of all, and of the largest
    /// generation.
    pub fn set_sealed(&self, bytes: usize, largest_bytes: usize) {
        self.sealed_bytes.store(bytes, Ordering::Relaxed);
        let largest = &self.largest_sealed_bytes;
        largest.store(largest_bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of the largest generation of memtables that waits for its flush; 0 if none
    /// waits.
    pub fn largest_sealed_bytes(&self) -> u64 {
        self.largest_sealed_bytes.load(Ordering::Relaxed) as u64
    }

    /// Updates the drain rate: this many upper bytes were compacted in this time.
    pub fn note_drained(&self, bytes: u64, took: Duration) {
        if bytes == 0 {
            return;
        }
        let rate = bytes as f64 / took.as_secs_f64().max(1e-3);
        let mut smoothed = self.drain_bytes_per_s.lock();
        *smoothed = if *smoothed == 0.0 {
            rate
        } else {
            *smoothed + DRAIN_SMOOTHING * (rate - *smoothed)
        };
    }

    fn drain_bytes_per_s(&self) -> f64 {
        let rate = *self.drain_bytes_per_s.lock();
        if rate == 0.0 {
            DRAIN_BYTES_PER_S_FIRST
        } else {
            rate
        }
    }

    /// Reports the backlog of compactions or of flushes, the larger one, to admission control.
    pub fn update(&self, plan: &MemoryPlan) {
        let sealed = self.sealed_bytes.load(Ordering::Relaxed) as f64 / plan.write_bytes as f64;
        let debt = (self.upper_debt(plan) - DEBT_SLACK).max(sealed_debt(sealed));
        self.admission.set_debt(debt, self.drain_bytes_per_s());
    }
}

/// Returns the debt of sealed memtables that take this share of the write memory: none up to all of
/// it, 1 at a third above. The debt is unbounded towards the ceiling at twice the write memory, so
/// writers approach the ceiling ever more slowly.
fn sealed_debt(sealed: f64) -> f64 {
    2.0 * (sealed - 1.0) / (2.0 - sealed).max(0.01)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::sealed_debt;
    use crate::compaction::survey::survey;
    use crate::db::{Database, Options};
    use crate::keyspace::KeyspaceOptions;
    use crate::vfs::MemVfs;

    #[test]
    fn the_sizes_kept_for_admission_are_those_of_a_survey() {
        let options = Options {
            memtable_bytes: Some(4_000),
            table_bytes: 4096,
            ..Options::default()
        };
        let vfs = std::sync::Arc::new(MemVfs::new());
        let db = Database::open_on(vfs.clone(), Path::new("db"), options.clone()).unwrap();
        let k = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let check = |db: &Database| {
            let shared = db.shared();
            let (sizes, kept) = (
                survey(&shared.core, &shared.jobs).sizes,
                &shared.core.backlog.sizes,
            );
            let upper: u64 = sizes.iter().flat_map(|g| &g.upper).map(|u| u.bytes).sum();
            let last: u64 = sizes.iter().map(|g| g.last_bytes).sum();
            // A table that groups share is divided among them, with a remainder.
            assert!(kept.upper_bytes().abs_diff(upper) < 1000);
            assert_eq!(kept.last_bytes(), last);
            upper + last
        };
        for n in 0..2_000_u32 {
            k.put(&n.wrapping_mul(0x9E37_79B9).to_be_bytes(), &[n as u8; 40])
                .unwrap();
            if n % 500 == 499 {
                db.settle().unwrap();
                check(&db);
            }
        }
        db.close().unwrap();
        let db = Database::open_on(vfs, Path::new("db"), options).unwrap();
        db.settle().unwrap();
        assert!(check(&db) > 0);
        let k = db.existing_keyspace("k").unwrap().unwrap();
        db.drop_keyspace(&k).unwrap();
        assert_eq!(check(&db), 0);
    }

    #[test]
    fn sealed_memtables_are_no_debt_within_their_share_and_a_growing_one_towards_the_ceiling() {
        assert!(sealed_debt(1.0) <= 0.0 && sealed_debt(0.2) < 0.0);
        assert!((sealed_debt(4.0 / 3.0) - 1.0).abs() < 1e-9);
        let debts = [1.1, 1.3, 1.5, 1.8, 1.9, 1.99].map(sealed_debt);
        assert!(debts.is_sorted() && debts[5] > 100.0, "{debts:?}");
    }
}
