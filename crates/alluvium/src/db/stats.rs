//! What the engine tells of itself.

use crate::db::memory::MemoryUse;
use crate::db::shared::Shared;
use crate::db::store::Store;
use crate::keyspace::estimate::estimate_rows;
use crate::metrics::Counts;

/// Sizes and counters of an open database. Counters count from its opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Each keyspace, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// What takes the memory budget.
    pub memory: MemoryUse,
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
    /// How often a cursor at rest was made to let go of memtables and tables that a flush or merge had replaced.
    pub cursors_released: u64,
    /// Bytes of log segments that recovery needs no more and that stay for streams of changes.
    pub change_log_bytes: u64,
    /// Rows that transactions and prepared transactions have locked now.
    pub row_locks: u64,
    /// Jumps of the wall clock by more than a day: see [`crate::Event::ClockJump`].
    pub clock_jumps: u64,
    /// The last confirmed time, in milliseconds since 1970: compactions drop only rows that had expired by then. 0 where no
    /// time was confirmed yet, and where no keyspace has rows that expire.
    pub confirmed_time_ms: u64,
    /// How long commits took, waiting in the queue and their sync included, delays not; in microseconds. Of commits that
    /// wait for no sync one in 16 is timed and counted 16 times.
    pub commit_us: Histogram,
    /// How long syncs of the log took, those at a change of segments not included; in microseconds.
    pub sync_us: Histogram,
    /// How long flushes took, in microseconds.
    pub flush_us: Histogram,
    /// Bytes of the memtables of each flush.
    pub flush_bytes: Histogram,
    /// How long merges took, in microseconds.
    pub compaction_us: Histogram,
    /// Bytes of the tables that each merge wrote.
    pub compaction_bytes: Histogram,
}

/// Numbers counted by powers of two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Item `n` counts the numbers that need `n` bits: item 0 the zeros, item 1 the ones, item 2 twos and threes. The
    /// last item counts all larger ones too.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// How many numbers were counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A number that at least this share of all is not larger than, exact to a factor of two; `None` without any.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = (share * self.total() as f64).ceil().max(1.0) as u64;
        let mut counted = 0;
        let place = self.counts.iter().position(|count| {
            counted += count;
            counted >= wanted
        });
        place.map(|bits| (1 << bits) - 1)
    }
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
        memory: MemoryUse::of(&shared.cache),
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
        cursors_released: metrics.cursors_released.get(),
        ceiling_waits: metrics.ceiling_waits.get(),
        change_log_bytes: shared.old_segments.kept_bytes(),
        row_locks: shared.row_locks.locks_held() as u64,
        clock_jumps: shared.clock.jumps(),
        confirmed_time_ms: Store::read_clock(shared).unwrap_or(0),
        commit_us: histogram(&metrics.commit_us),
        sync_us: histogram(&metrics.sync_us),
        flush_us: histogram(&metrics.flush_us),
        flush_bytes: histogram(&metrics.flush_bytes),
        compaction_us: histogram(&metrics.compaction_us),
        compaction_bytes: histogram(&metrics.compaction_bytes),
    }
}

fn histogram(counts: &Counts) -> Histogram {
    let counts = counts.counts();
    Histogram { counts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_upper_end_of_its_power_of_two() {
        let counts = Counts::default();
        for n in [0, 1, 5, 6, 7, 7, 100, 1_000, 1_000, 1_000_000] {
            counts.note_log2(n);
        }
        let histogram = histogram(&counts);
        assert_eq!(histogram.total(), 10);
        let found = [0.0, 0.1, 0.5, 0.7, 0.9, 1.0].map(|q| histogram.quantile(q));
        let expected = [0, 0, 7, 127, 1023, (1 << 20) - 1].map(Some);
        assert_eq!(found, expected);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
