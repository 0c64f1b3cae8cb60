//! Survey of all groups of all keyspaces: their sizes, as input for picking.
//!
//! The space budget is one for the database, so that a keyspace that hardly changes leaves its
//! share to the others.

use crate::sync::collections::HashSet;
use std::sync::Arc;

use crate::base::{SeqNo, ValueFileId};
use crate::compaction::garbage::{dead_in_last, files_to_empty};
use crate::compaction::jobs::Jobs;
use crate::compaction::pick::{GroupSize, UpperSize};
use crate::db::core::Core;
use crate::keyspace::tree::Tree;
use crate::table::Table;
use crate::version::group::{Group, Upper, Version};

/// Sizes of all groups, with the group that each belongs to.
pub(crate) struct Survey {
    pub sizes: Vec<GroupSize>,
    /// The group of each element of `sizes`.
    pub places: Vec<Place>,
}

/// A group: its keyspace, the version it is in, and its index there.
pub(crate) struct Place {
    pub tree: Arc<Tree>,
    pub version: Arc<Version>,
    pub index: usize,
}

impl Place {
    /// Returns the group.
    pub fn group(&self) -> &Arc<Group> {
        &self.version.groups()[self.index]
    }
}

/// Criteria for worthless entries of a table.
struct Worth {
    horizon: SeqNo,
    /// Rows that expire at or before this time have expired for all readers.
    expired_for_all: u64,
    victims: HashSet<ValueFileId>,
}

/// Returns the sizes of all groups now.
pub(crate) fn survey(core: &Core, jobs: &Jobs) -> Survey {
    survey_of(core.trees(), core, jobs)
}

/// Returns the sizes of all groups of these keyspaces now.
pub(crate) fn survey_of(trees: Vec<Arc<Tree>>, core: &Core, jobs: &Jobs) -> Survey {
    let versions: Vec<Arc<Version>> = trees
        .iter()
        .map(|tree| Arc::clone(&tree.load().version))
        .collect();
    let worth = Worth {
        horizon: core.read_points.horizon(),
        expired_for_all: if core.clock.in_use() {
            core.clock.expired_for_all()
        } else {
            0
        },
        victims: files_to_empty(&versions),
    };
    let mut survey = Survey {
        sizes: Vec::new(),
        places: Vec::new(),
    };
    for (tree, version) in trees.into_iter().zip(versions) {
        for (index, group) in version.groups().iter().enumerate() {
            let busy = jobs.is_busy(&tree, &group.low);
            survey.sizes.push(group_size(group, &worth, busy));
            survey.places.push(Place {
                tree: Arc::clone(&tree),
                version: Arc::clone(&version),
                index,
            });
        }
    }
    survey
}

fn group_size(group: &Group, worth: &Worth, busy: bool) -> GroupSize {
    let shares = |u: &Upper| u64::from(u.shared_by.max(1));
    // If a read point may lie below an entry of the table, no tombstone is certain to be dropped.
    let dead = |table: &Table| {
        if table.max_seqno() <= worth.horizon {
            table.tombstones()
        } else {
            0
        }
    };
    let upper = group.upper.iter().map(|u| {
        let entries = u.table.entries().max(1);
        let bytes = u.bytes();
        UpperSize {
            bytes,
            tombstone_bytes: (u128::from(bytes) * u128::from(u.table.tombstones())
                / u128::from(entries)) as u64,
        }
    });
    let upper_entries = group.upper.iter().map(|u| u.table.entries() / shares(u));
    let last_entries = group.last.iter().map(|t| t.entries());
    let tables = || group.upper.iter().map(|u| &u.table).chain(&group.last);
    GroupSize {
        upper: upper.collect(),
        last_bytes: group.last_bytes(),
        entries: upper_entries.chain(last_entries).sum(),
        upper_dead: group.upper.iter().map(|u| dead(&u.table) / shares(u)).sum(),
        last_dead: group
            .last
            .iter()
            .map(|t| dead_in_last(t, worth.horizon))
            .sum(),
        // Each group that shares a table counts all of it: the first compaction corrects that.
        expired: tables().map(|table| worth.expired(table)).sum(),
        victim_bytes: tables().map(|table| worth.victim_bytes(table)).sum(),
        needless_seeks: group.scan_cost.needless_seeks(),
        busy,
    }
}

impl Worth {
    fn expired(&self, table: &Table) -> u64 {
        // A snapshot may keep expired versions below newer ones through any number of compactions.
        if table.max_seqno() > self.horizon {
            return 0;
        }
        let expiring = table.properties().expiring.as_ref();
        expiring.map_or(0, |expiring| expiring.expired(self.expired_for_all))
    }

    fn victim_bytes(&self, table: &Table) -> u64 {
        let values = table.properties().values.iter();
        let victims = values.filter(|part| self.victims.contains(&part.file));
        victims.map(|part| part.stored_bytes).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::db::{Database, Options};
    use crate::iter::CursorOptions;
    use crate::keyspace::{Keyspace, KeyspaceOptions};
    use crate::vfs::MemVfs;

    fn flush_rows(db: &Database, k: &Keyspace, rows: u32, value: &[u8]) {
        for n in 0..rows {
            k.put(&n.to_be_bytes(), value).expect("put");
        }
        db.flush().expect("flush");
    }

    fn seek(k: &Keyspace, times: u32) {
        let mut cursor = k.cursor(CursorOptions::default()).expect("cursor");
        for n in 0..times {
            assert!(cursor.seek(&(n % 100).to_be_bytes()).expect("seek"));
        }
    }

    #[test]
    fn needless_seeks_are_counted_until_tables_change() {
        let db = Database::open_on(Arc::new(MemVfs::new()), "db", Options::default());
        let db = db.expect("open");
        let k = db.keyspace("k", KeyspaceOptions::default()).expect("k");
        let other = db.keyspace("other", KeyspaceOptions::default());
        let other = other.expect("keyspace");
        let look = || {
            let survey = survey(&db.shared().core, &db.shared().jobs);
            let mut places = survey.places.iter();
            let at = places.position(|place| &*place.tree.name == "k");
            let at = at.expect("one group");
            let place = &survey.places[at];
            let cost = Arc::clone(&place.version.groups()[place.index].scan_cost);
            (survey.sizes[at].needless_seeks, cost)
        };
        let needless = || look().0;
        // The first seek after a flush finds no block in the cache, and counts for more.
        let warm = || {
            seek(&k, 1);
            look().1.reset();
        };
        flush_rows(&db, &k, 5_000, b"value");
        seek(&k, 160);
        assert_eq!(needless(), 0, "one table is no more than a merged one");
        flush_rows(&db, &k, 100, b"value");
        warm();
        seek(&k, 160);
        // One seek in sixteen is counted for all of them, about evenly.
        let about = |n: u64| n - n / 4..=n + n / 4;
        assert!(about(160).contains(&needless()), "{}", needless());
        // A flush that changes only other keyspaces.
        flush_rows(&db, &other, 100, b"value");
        seek(&k, 160);
        assert!(about(320).contains(&needless()), "{}", needless());
        flush_rows(&db, &k, 100, b"value");
        assert_eq!(needless(), 0);
        warm();
        seek(&k, 160);
        assert!(
            about(320).contains(&needless()),
            "two of three: {}",
            needless()
        );
        k.compact_range(&[], None).expect("compact");
        assert_eq!(needless(), 0);
        seek(&k, 160);
        assert_eq!(needless(), 0);
    }

    #[test]
    fn a_needless_seek_that_reads_its_block_counts_for_several() {
        const SEEKS: u32 = 200;
        let vfs = Arc::new(MemVfs::new());
        let options = Options {
            idle_after: None,
            ..Options::default()
        };
        let open = || Database::open_on(vfs.clone(), "db", options.clone()).expect("open");
        let keyspace = |db: &Database| db.keyspace("k", KeyspaceOptions::default()).expect("k");
        let db = open();
        // Some two hundred blocks in either table.
        for _ in 0..2 {
            flush_rows(&db, &keyspace(&db), 100 * SEEKS, &[7; 100]);
        }
        db.close().expect("close");
        let db = open();
        let mut cursor = keyspace(&db).cursor(CursorOptions::default());
        let cursor = cursor.as_mut().expect("cursor");
        let mut needless = || {
            for n in 0..SEEKS {
                let key = (100 * n).to_be_bytes();
                assert!(cursor.seek(&key).expect("seek"));
            }
            survey(&db.shared().core, &db.shared().jobs).sizes[0].needless_seeks
        };
        let (cold, both) = (needless(), needless());
        let about = |n: u64| n - n / 4..=n + n / 4;
        assert!(about(8 * u64::from(SEEKS)).contains(&cold), "{cold}");
        let cached = both - cold;
        assert!(about(u64::from(SEEKS)).contains(&cached), "{cached}");
    }
}
