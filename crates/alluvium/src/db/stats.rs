//! What the engine tells of itself.

use crate::db::shared::Shared;
use crate::keyspace::estimate::estimate_rows;

/// Sizes and counters of an open database. Counters count from its opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Each keyspace, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Bytes of memtables waiting for their flush.
    pub sealed_bytes: u64,
    /// Bytes of decoded blocks in the cache.
    pub cache_used_bytes: u64,
    /// Block reads answered by the cache.
    pub cache_hits: u64,
    /// Block reads that read a file.
    pub cache_misses: u64,
    /// Flushes installed.
    pub flushes: u64,
    /// Merges installed.
    pub compactions: u64,
    /// Bytes of tables written by flushes, merges and ingests.
    pub table_bytes_written: u64,
    /// Bytes of tables that ingests installed.
    pub ingested_bytes: u64,
    /// Versions dropped because a newer one hid them from every reader.
    pub versions_shadowed: u64,
    /// Inserts that met their delete above the last level: neither was rewritten.
    pub pairs_cancelled: u64,
    /// Tombstones dropped at the last level.
    pub tombstones_dropped: u64,
    /// Commits that admission control delayed.
    pub delayed_commits: u64,
    /// Their delays together, in microseconds.
    pub delay_us: u64,
    /// Commits that met the hard memory ceiling. Should be 0.
    pub ceiling_waits: u64,
}

/// Sizes of one keyspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Bytes of its memtables.
    pub memtable_bytes: u64,
    /// Key ranges that it is divided into.
    pub groups: u64,
    /// Tables not yet merged into the last level.
    pub upper_tables: u64,
    /// Their bytes.
    pub upper_bytes: u64,
    /// Tables of the last level.
    pub last_tables: u64,
    /// Their bytes.
    pub last_bytes: u64,
    /// Entries in tables, all versions and tombstones counted.
    pub table_entries: u64,
    /// About how many rows it has: exact where each was written once and the deleted ones were merged away, otherwise
    /// too many. See [`crate::Keyspace::estimate_range`].
    pub rows_estimate: u64,
}

pub(super) fn collect(shared: &Shared) -> Stats {
    let trees: Vec<_> = shared.catalog.read().values().cloned().collect();
    let keyspaces = trees.iter().map(|tree| {
        let state = tree.load();
        let groups = state.version.groups();
        KeyspaceStats {
            name: tree.name.clone(),
            memtable_bytes: state.memtable_bytes() as u64,
            groups: groups.len() as u64,
            upper_tables: groups.iter().map(|g| g.upper.len() as u64).sum(),
            upper_bytes: groups.iter().map(|g| g.upper_bytes()).sum(),
            last_tables: groups.iter().map(|g| g.last.len() as u64).sum(),
            last_bytes: groups.iter().map(|g| g.last_bytes()).sum(),
            table_entries: state.version.tables().iter().map(|t| t.entries()).sum(),
            rows_estimate: estimate_rows(&state),
        }
    });
    let mut keyspaces: Vec<_> = keyspaces.collect();
    keyspaces.sort_by(|a, b| a.name.cmp(&b.name));
    let metrics = &shared.metrics;
    Stats {
        keyspaces,
        sealed_bytes: shared.sealed_bytes() as u64,
        cache_used_bytes: shared.cache.used_bytes(),
        cache_hits: shared.cache.hits(),
        cache_misses: shared.cache.misses(),
        flushes: metrics.flushes.get(),
        compactions: metrics.compactions.get(),
        table_bytes_written: metrics.table_bytes_written.get(),
        ingested_bytes: metrics.ingested_bytes.get(),
        versions_shadowed: metrics.shadowed.get(),
        pairs_cancelled: metrics.cancelled_pairs.get(),
        tombstones_dropped: metrics.tombstones_dropped.get(),
        delayed_commits: metrics.delayed_commits.get(),
        delay_us: metrics.delay_us.get(),
        ceiling_waits: metrics.ceiling_waits.get(),
    }
}
