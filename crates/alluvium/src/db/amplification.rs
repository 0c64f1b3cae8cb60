//! Read, write and space amplification of each keyspace, measured and compared with the design's
//! predictions.
//!
//! Predictions are the formulas of the design, applied to the present tree. Their variables are the
//! ratio of upper tables to last level `f`, the upper tables of a group `R`, the compression ratios
//! `c` of upper tables and last level, and the share of new keys `i`. If a number is far from its
//! prediction, the design does not assume such a workload, or the engine has a fault.
//! `docs/guide/background.md` derives the formulas. Not included: value files, which are in none of
//! the numbers.

use crate::db::shared::Shared;
use crate::keyspace::tree::Tree;
use crate::version::group::Version;

/// Amplification of all keyspaces since the database was opened, see
/// [`crate::Database::amplification`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Amplification {
    /// Each keyspace, sorted by name.
    pub keyspaces: Vec<KeyspaceAmplification>,
    /// Blocks accessed per point read or seek, over the whole database. Includes the blocks that
    /// scans read after their seek. `None` before the first read.
    pub blocks_per_read: Option<f64>,
    /// Blocks read from files per point read or seek. `None` before the first read.
    pub file_blocks_per_read: Option<f64>,
}

/// A measured number and the design's prediction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Compared {
    /// Measured number; `None` if nothing was counted yet.
    pub measured: Option<f64>,
    /// The design's formula, applied to the present state.
    pub predicted: f64,
}

/// Read, write and space amplification of one keyspace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyspaceAmplification {
    /// Name of the keyspace.
    pub name: String,
    /// Number of point reads.
    pub gets: u64,
    /// Memtables and tables searched per point read; those that filters ruled out do not count.
    pub get_sources: Compared,
    /// Number of cursor seeks.
    pub seeks: u64,
    /// Memtables and tables opened per seek.
    pub seek_sources: Compared,
    /// Bytes of keys and values written to the keyspace, including those replayed from the log at
    /// open.
    pub user_bytes: u64,
    /// Log bytes per user byte. The log is attributed to keyspaces in proportion to their user
    /// bytes.
    pub log_writes: Compared,
    /// Bytes written by flushes per user byte, except for rows that go straight into the last
    /// level.
    pub flush_writes: Compared,
    /// Bytes written by compactions of upper tables per user byte.
    pub tier_writes: Compared,
    /// Bytes written into the last level per user byte, by compactions and by flushes of rows that
    /// overlap nothing.
    pub last_level_writes: Compared,
    /// Bytes of the keyspace's tables.
    pub stored_bytes: u64,
    /// Estimated bytes of the live rows if they were all in the last level. Assumes that upper
    /// tables hold updates, except for inserts, and that each tombstone hides one entry.
    pub live_bytes_estimate: u64,
    /// Stored bytes per live byte.
    pub space: Compared,
}

/// Properties of a tree that the formulas need.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Shape {
    groups: u64,
    sealed: u64,
    upper_tables: u64,
    upper: Sums,
    last: Sums,
}

/// Sums over tables.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sums {
    file_bytes: u64,
    raw_bytes: u64,
    entries: u64,
    inserts: u64,
    tombstones: u64,
}

/// Options that the formulas need.
#[derive(Debug, Clone, Copy)]
struct Design {
    upper_fraction: f64,
    flush_bytes: f64,
    /// Rate of false positives of the filter; 1 without a filter.
    false_positives: f64,
}

/// Rate of false positives at 10 bits per key.
const FALSE_POSITIVES: f64 = 0.01;
/// Number of upper tables of one size that are compacted into one.
const TIER_WIDTH: f64 = 6.0;

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

impl Sums {
    fn of(version: &Version, last_level: bool) -> Sums {
        let mut sums = Sums::default();
        let last: crate::sync::collections::HashSet<_> = version
            .groups()
            .iter()
            .flat_map(|g| &g.last)
            .map(|t| t.id())
            .collect();
        for table in version.tables() {
            if last.contains(&table.id()) == last_level {
                sums.file_bytes += table.file_bytes();
                sums.raw_bytes += table.raw_bytes();
                sums.entries += table.entries();
                sums.inserts += table.inserts();
                sums.tombstones += table.tombstones();
            }
        }
        sums
    }

    /// Returns `c`: stored bytes per byte of keys and values.
    fn compression(&self) -> Option<f64> {
        ratio(self.file_bytes as f64, self.raw_bytes as f64)
    }
}

impl Shape {
    fn of(tree: &Tree) -> Shape {
        let state = tree.load();
        let groups = state.version.groups();
        Shape {
            groups: groups.len() as u64,
            sealed: state.sealed.len() as u64,
            upper_tables: groups.iter().map(|g| g.upper.len() as u64).sum(),
            upper: Sums::of(&state.version, false),
            last: Sums::of(&state.version, true),
        }
    }

    fn stored_bytes(&self) -> u64 {
        self.upper.file_bytes + self.last.file_bytes
    }

    /// Returns `R`: sources above the last level, including the active memtable, as a mean over
    /// groups.
    fn upper_sources(&self) -> f64 {
        1.0 + self.sealed as f64 + self.upper_tables as f64 / self.groups.max(1) as f64
    }

    fn has_last(&self) -> f64 {
        f64::from(u8::from(self.last.entries > 0))
    }

    /// Returns `1 + R x false positives`: the table that holds the key, plus false positives.
    fn get_sources(&self, design: &Design) -> f64 {
        1.0 + self.upper_sources() * design.false_positives
    }

    /// Returns `R + 1`: a seek opens every source.
    fn seek_sources(&self) -> f64 {
        self.upper_sources() + self.has_last()
    }

    /// Returns `i`: the share of new keys in upper tables.
    fn new_keys(&self) -> f64 {
        ratio(self.upper.inserts as f64, self.upper.entries as f64).unwrap_or(0.0)
    }

    /// Returns `c0`: the compression ratio of upper tables.
    fn flush_writes(&self) -> f64 {
        self.upper.compression().unwrap_or(1.0)
    }

    /// Returns `log_K(upper bytes / flush unit)` rewrites.
    fn tier_writes(&self, design: &Design) -> f64 {
        let units = self.upper.file_bytes as f64 / self.groups.max(1) as f64 / design.flush_bytes;
        units.max(1.0).log(TIER_WIDTH) * self.flush_writes()
    }

    /// Returns `(1 / 2f + i) cl`.
    fn last_level_writes(&self, design: &Design) -> f64 {
        let compression = self.last.compression().unwrap_or(1.0);
        (0.5 / design.upper_fraction + self.new_keys()) * compression
    }

    fn live_bytes(&self) -> u64 {
        let (upper, last) = (&self.upper, &self.last);
        let added = match last.entries {
            // Without a last level there is nothing to update: upper tables hold all rows.
            0 => upper.entries.saturating_sub(upper.tombstones),
            _ => upper.inserts,
        };
        let hidden = upper.tombstones + 2 * last.tombstones;
        let live = (last.entries + added).saturating_sub(hidden);
        let model = if last.entries > 0 { last } else { upper };
        let entry_bytes = ratio(model.file_bytes as f64, model.entries as f64);
        (entry_bytes.unwrap_or(0.0) * live as f64) as u64
    }

    /// Returns `1 + f g`. At most all upper data is stale, so `g` is 1.
    fn space(&self) -> f64 {
        1.0 + ratio(self.upper.file_bytes as f64, self.last.file_bytes as f64).unwrap_or(0.0)
    }
}

fn of_tree(shared: &Shared, tree: &Tree, log_bytes: f64) -> KeyspaceAmplification {
    let shape = Shape::of(tree);
    let has_filter = tree.options().whole_key_filter;
    let design = Design {
        upper_fraction: shared.core.options.upper_fraction,
        flush_bytes: shared.core.plan().flush_bytes as f64,
        false_positives: if has_filter { FALSE_POSITIVES } else { 1.0 },
    };
    let counters = &tree.counters;
    let (gets, get_sources) = counters.gets.totals();
    let (seeks, seek_sources) = counters.seeks.totals();
    let user_bytes = counters.user_bytes.get();
    let per_read = |sources: u64, reads: u64, predicted| Compared {
        measured: ratio(sources as f64, reads as f64),
        predicted,
    };
    let written = |bytes: u64, predicted| Compared {
        measured: ratio(bytes as f64, user_bytes as f64),
        predicted,
    };
    KeyspaceAmplification {
        name: tree.name.clone(),
        gets,
        get_sources: per_read(get_sources, gets, shape.get_sources(&design)),
        seeks,
        seek_sources: per_read(seek_sources, seeks, shape.seek_sources()),
        user_bytes,
        log_writes: Compared {
            measured: (user_bytes > 0).then_some(log_bytes),
            // Rows with records that do not compress.
            predicted: 1.0,
        },
        flush_writes: written(counters.flushed_bytes.get(), shape.flush_writes()),
        tier_writes: written(counters.tier_bytes.get(), shape.tier_writes(&design)),
        last_level_writes: written(counters.last_bytes.get(), shape.last_level_writes(&design)),
        stored_bytes: shape.stored_bytes(),
        live_bytes_estimate: shape.live_bytes(),
        space: Compared {
            measured: ratio(shape.stored_bytes() as f64, shape.live_bytes() as f64),
            predicted: shape.space(),
        },
    }
}

pub(super) fn collect(shared: &Shared) -> Amplification {
    let trees: Vec<_> = shared.core.catalog.read().values().cloned().collect();
    let user_bytes: u64 = trees.iter().map(|t| t.counters.user_bytes.get()).sum();
    let log_bytes = ratio(
        shared.core.metrics.wal_bytes.get() as f64,
        user_bytes as f64,
    );
    let of = |tree: &std::sync::Arc<Tree>| of_tree(shared, tree, log_bytes.unwrap_or(0.0));
    let mut keyspaces: Vec<KeyspaceAmplification> = trees.iter().map(of).collect();
    keyspaces.sort_by(|a, b| a.name.cmp(&b.name));
    let reads: u64 = keyspaces.iter().map(|k| k.gets + k.seeks).sum();
    let (hits, misses) = (
        shared.core.memory.cache.hits(),
        shared.core.memory.cache.misses(),
    );
    Amplification {
        keyspaces,
        blocks_per_read: ratio((hits + misses) as f64, reads as f64),
        file_blocks_per_read: ratio(misses as f64, reads as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_the_formulas_of_the_design() {
        let design = Design {
            upper_fraction: 0.25,
            flush_bytes: 100.0,
            false_positives: 0.01,
        };
        let sums = |file_bytes: u64, inserts| Sums {
            file_bytes,
            raw_bytes: 2 * file_bytes,
            entries: file_bytes / 10,
            inserts,
            tombstones: 0,
        };
        let shape = Shape {
            groups: 2,
            sealed: 1,
            upper_tables: 8,
            upper: sums(7_200, 72),
            last: sums(28_800, 0),
        };
        // Active memtable, sealed memtable, and four tables in each group.
        assert_eq!(shape.upper_sources(), 6.0);
        assert_eq!(shape.get_sources(&design), 1.06);
        assert_eq!(shape.seek_sources(), 7.0);
        assert_eq!(shape.flush_writes(), 0.5);
        // 36 flush units in a group: two size classes of six.
        assert!((shape.tier_writes(&design) - 1.0).abs() < 1e-9);
        // (1 / 2f + i) c: a tenth of the upper entries are new keys.
        assert!((shape.last_level_writes(&design) - 1.05).abs() < 1e-9);
        assert_eq!(shape.space(), 1.25);
        assert_eq!(shape.live_bytes(), 28_800 + 720);
        assert_eq!(Shape::default().live_bytes(), 0);
    }
}
