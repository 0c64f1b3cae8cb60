//! Statistics of an open database.

use crate::base::SeqNo;
use crate::db::memory::MemoryUse;
use crate::db::shared::Shared;
use crate::db::store::Store;
use crate::keyspace::estimate::estimate_rows;
use crate::metrics::Counts;

/// Sizes and counters of an open database. Counters start at 0 when it is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Statistics of each keyspace, sorted by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Use of the memory budget.
    pub memory: MemoryUse,
    /// Bytes of sealed memtables that wait for their flush.
    pub sealed_bytes: u64,
    /// Memory of the block cache in bytes, free frames included.
    pub cache_used_bytes: u64,
    /// Block reads answered by the cache.
    pub cache_hits: u64,
    /// Block reads that read a file.
    pub cache_misses: u64,
    /// Number of flushes installed.
    pub flushes: u64,
    /// Number of compactions installed.
    pub compactions: u64,
    /// Bytes of tables written by flushes, compactions and ingests.
    pub table_bytes_written: u64,
    /// Bytes of tables that ingests installed.
    pub ingested_bytes: u64,
    /// The part of `table_bytes_written` by compactions that scans triggered. Each table beyond one
    /// that a scan sought in pays for at most 256 bytes, or 2 KiB if the seek read a block.
    pub read_triggered_bytes: u64,
    /// Versions dropped because a newer version hides them from every reader.
    pub versions_shadowed: u64,
    /// Pairs of an insert and its delete that met above the last level: compaction dropped both.
    pub pairs_canceled: u64,
    /// Tombstones dropped at the last level.
    pub tombstones_dropped: u64,
    /// Commits that admission control delayed.
    pub delayed_commits: u64,
    /// Sum of these delays, in microseconds.
    pub delay_us: u64,
    /// Commits that waited at the hard memory ceiling. Should be 0.
    pub ceiling_waits: u64,
    /// Number of times that a resting cursor was made to release memtables and tables after a flush
    /// or compaction had replaced them.
    pub cursors_released: u64,
    /// Bytes of log segments kept only for streams of changes: recovery no longer needs them.
    pub change_log_bytes: u64,
    /// Number of row locks that transactions and prepared transactions hold now.
    pub row_locks: u64,
    /// Jumps of the wall clock by more than a day, see [`crate::Event::ClockJump`].
    pub clock_jumps: u64,
    /// The last confirmed time, in milliseconds since 1970. Compactions drop only rows that had
    /// expired by then. 0 if no time is confirmed yet, and without keyspaces with expiring rows.
    pub confirmed_time_ms: u64,
    /// Bytes of tables above the last level, over all keyspaces.
    pub upper_bytes: u64,
    /// Bytes of upper tables above the space budget: compactions of them are due.
    pub backlog_bytes: u64,
    /// Bytes of tables in the last level, over all keyspaces.
    pub last_bytes: u64,
    /// Bytes written to the log.
    pub log_bytes_written: u64,
    /// Newest commit that reads see.
    pub visible_seqno: SeqNo,
    /// Oldest commit at which a snapshot, cursor or transaction reads; `visible_seqno` without any.
    /// Compactions keep all versions of rows that have changed since.
    pub oldest_read_seqno: SeqNo,
    /// Durations of commits in microseconds, including the wait in the queue and the sync but not
    /// admission delays. Of commits that wait for no sync, one in 16 is timed and counted 16 times.
    pub commit_us: Histogram,
    /// Durations of log syncs in microseconds, except for those at a change of segments.
    pub sync_us: Histogram,
    /// Durations of flushes, in microseconds.
    pub flush_us: Histogram,
    /// Bytes of memtables per flush.
    pub flush_bytes: Histogram,
    /// Durations of compactions, in microseconds.
    pub compaction_us: Histogram,
    /// Bytes of tables written per compaction.
    pub compaction_bytes: Histogram,
}

/// Histogram with buckets at powers of two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Item `n` counts the values that need `n` bits: item 0 counts zeros, item 1 ones, item 2 twos
    /// and threes. The last item also counts all larger values.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// Returns the number of values counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns an upper bound of the quantile `share` (0.0 to 1.0), exact to a factor of two.
    /// `None` if no value was counted.
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
    /// Name of the keyspace.
    pub name: String,
    /// Bytes of its memtables, active and sealed.
    pub memtable_bytes: u64,
    /// Number of groups: key ranges with their own tables.
    pub groups: u64,
    /// Number of tables above the last level. A table counts once for each group that lists it.
    pub upper_tables: u64,
    /// Bytes of tables above the last level.
    pub upper_bytes: u64,
    /// Number of tables in the last level.
    pub last_tables: u64,
    /// Bytes of tables in the last level.
    pub last_bytes: u64,
    /// Entries in tables, including all versions and tombstones.
    pub table_entries: u64,
    /// Estimated number of rows. Exact if each row was written once and compaction has removed the
    /// deleted ones, otherwise too high. See [`crate::Keyspace::estimate_range`].
    pub rows_estimate: u64,
}

pub(super) fn collect(shared: &Shared) -> Stats {
    let trees: Vec<_> = shared.core.catalog.read().values().cloned().collect();
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
    let metrics = &shared.core.metrics;
    let oldest_read_seqno = shared.core.read_points.horizon();
    let visible_seqno = shared.core.read_points.visible();
    Stats {
        keyspaces,
        memory: shared.core.memory.in_use(),
        sealed_bytes: shared.flushes.sealed_bytes() as u64,
        cache_used_bytes: shared.core.memory.cache.used_bytes(),
        cache_hits: shared.core.memory.cache.hits(),
        cache_misses: shared.core.memory.cache.misses(),
        flushes: metrics.flushes.get(),
        compactions: metrics.compactions.get(),
        table_bytes_written: metrics.table_bytes_written.get(),
        ingested_bytes: metrics.ingested_bytes.get(),
        read_triggered_bytes: metrics.read_triggered_bytes.get(),
        versions_shadowed: metrics.shadowed.get(),
        pairs_canceled: metrics.canceled_pairs.get(),
        tombstones_dropped: metrics.tombstones_dropped.get(),
        delayed_commits: metrics.delayed_commits.get(),
        delay_us: metrics.delay_us.get(),
        cursors_released: metrics.cursors_released.get(),
        ceiling_waits: metrics.ceiling_waits.get(),
        change_log_bytes: shared.old_segments.kept_bytes(),
        row_locks: shared.row_locks.table.locks_held() as u64,
        clock_jumps: shared.core.clock.jumps(),
        confirmed_time_ms: Store::read_clock(&shared.core).unwrap_or(0),
        upper_bytes: shared.core.backlog.sizes.upper_bytes(),
        backlog_bytes: shared.core.backlog.upper_excess_bytes(&shared.core.plan()),
        last_bytes: shared.core.backlog.sizes.last_bytes(),
        log_bytes_written: metrics.wal_bytes.get(),
        visible_seqno,
        oldest_read_seqno: oldest_read_seqno.min(visible_seqno),
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
