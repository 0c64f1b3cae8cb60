//! Compaction backlog: the limit on bytes above the last level, the excess over it, and the report
//! to admission control.

use crate::compaction::pick::PickRules;
use crate::db::shared::Shared;

/// Excess over the upper-bytes budget at which writers begin to be slowed, as a share of the
/// budget.
const DEBT_SLACK: f64 = 0.5;

pub(super) fn rules(shared: &Shared) -> PickRules {
    PickRules {
        upper_fraction: shared.options.upper_fraction,
        floor_bytes: FLOOR_FLUSH_UNITS * shared.plan().active_bytes as u64,
        tables_max: TABLES_MAX,
    }
}

/// Upper bytes that the database may always hold, in units of the active memtables' size.
const FLOOR_FLUSH_UNITS: u64 = 2;
/// Number of upper tables in one group above which they are tiered.
const TABLES_MAX: usize = 6;

/// Returns true if the upper tables exceed the space budget.
pub(crate) fn is_over_budget(shared: &Shared) -> bool {
    let sizes = &shared.table_sizes;
    rules(shared).debt(sizes.upper_bytes(), sizes.last_bytes()) > 0.0
}

/// Reports the backlog of compaction or of flushes, the larger one, to admission control. Cheap: it
/// runs under the log's mutex whenever memtables are sealed.
pub(crate) fn update_admission(shared: &Shared) {
    let sizes = &shared.table_sizes;
    let upper_debt = rules(shared).debt(sizes.upper_bytes(), sizes.last_bytes());
    let sealed = shared.sealed_bytes() as f64 / shared.plan().write_bytes as f64;
    let debt = (upper_debt - DEBT_SLACK).max(sealed_debt(sealed));
    shared
        .admission
        .set_debt(debt, shared.jobs.drain_bytes_per_s());
    shared.events.delaying(shared.admission.rate().is_finite());
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
            let (sizes, kept) = (survey(shared).sizes, &shared.table_sizes);
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
