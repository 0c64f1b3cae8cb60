//! Counters of the engine's work, cheap enough to be always on: each is updated once per job,
//! commit or wait; read counters once per read, in a shard of the thread.

use crate::sync::time::Instant;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::compaction::fold::FoldCounts;
use crate::sync::{THREAD_SHARDS, thread_shard};

/// Counter. Relaxed: it orders nothing, readers only want a recent value.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one open database.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub flushes: Counter,
    pub compactions: Counter,
    pub table_bytes_written: Counter,
    pub read_triggered_bytes: Counter,
    pub ingested_bytes: Counter,
    pub shadowed: Counter,
    pub canceled_pairs: Counter,
    pub tombstones_dropped: Counter,
    /// Commits that met the hard memory ceiling: should stay 0.
    pub ceiling_waits: Counter,
    pub delayed_commits: Counter,
    pub delay_us: Counter,
    /// Resting cursors that were made to release a replaced state.
    pub cursors_released: Counter,
    /// By powers of two: see [`Counts::note_log2`].
    pub commit_us: Counts,
    pub commits_timed: Sampling,
    pub sync_us: Counts,
    pub flush_us: Counts,
    pub flush_bytes: Counts,
    pub compaction_us: Counts,
    pub compaction_bytes: Counts,
    /// Bytes of records that commits wrote to the log.
    pub wal_bytes: Counter,
}

/// Counters of one keyspace.
#[derive(Debug, Default)]
pub(crate) struct TreeCounters {
    /// Sources searched by each point read: memtables and tables that its filters did not rule out.
    pub gets: LazyCounts,
    /// Sources that each cursor seek opened.
    pub seeks: LazyCounts,
    /// Bytes of keys and values written to the keyspace, including replayed ones.
    pub user_bytes: Counter,
    /// Bytes of tables: `flushed_bytes` written above the last level by flushes, `tier_bytes`
    /// written there by tier compactions, `last_bytes` written into the last level by compactions
    /// and flushes.
    pub flushed_bytes: Counter,
    pub tier_bytes: Counter,
    pub last_bytes: Counter,
}

/// Maximum counted number; larger ones are counted as this one.
const NOTED_MAX: usize = 47;

/// Counts of small numbers, in per-thread shards. One addition counts a read and the sources that
/// it searched; larger numbers are counted by powers of two.
///
/// A shard is allocated when one of its threads first counts: thousands of rarely read keyspaces
/// take little memory.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    shards: [OnceLock<Box<Shard>>; THREAD_SHARDS],
}

#[derive(Debug)]
struct Shard(CachePadded<[AtomicU64; NOTED_MAX + 1]>);

impl Shard {
    fn new() -> Box<Shard> {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Box::new(Shard(CachePadded::new(counts)))
    }

    /// Returns a recent value of each count.
    fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|count| count.load(Ordering::Relaxed))
    }
}

impl Counts {
    /// Counts a read with this number of sources. Returns the number of equal ones that this
    /// thread's shard counted before.
    pub fn note(&self, sources: usize) -> u64 {
        self.add(sources, 1)
    }

    /// Counts a number by its bit length: a histogram by powers of two.
    pub fn note_log2(&self, n: u64) {
        self.add_log2(n, 1);
    }

    /// As [`Counts::note_log2`], `times` times.
    pub fn add_log2(&self, n: u64, times: u64) {
        self.add((u64::BITS - n.leading_zeros()) as usize, times);
    }

    fn add(&self, n: usize, times: u64) -> u64 {
        let shard = self.shards[thread_shard()].get_or_init(Shard::new);
        shard.0[n.min(NOTED_MAX)].fetch_add(times, Ordering::Relaxed)
    }

    /// Returns the count of each number.
    pub fn counts(&self) -> Vec<u64> {
        let mut sums = vec![0; NOTED_MAX + 1];
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            let counts = sums.iter_mut().zip(shard.counts());
            counts.for_each(|(sum, count)| *sum += count);
        }
        sums
    }

    /// Returns a guard that counts a read when dropped.
    pub fn read(&self) -> ReadCount<'_> {
        let sources = 0;
        ReadCount {
            counts: self,
            sources,
        }
    }

    /// Returns the number of reads, and the total of sources that they searched.
    pub fn totals(&self) -> (u64, u64) {
        let shards = self.shards.iter().filter_map(OnceLock::get);
        let counted = shards.flat_map(|shard| (0..).zip(shard.counts()));
        counted.fold((0, 0), |(reads, sources), (n, count)| {
            (reads + count, sources + n * count)
        })
    }
}

/// [`Counts`] that take no memory before the first count, for counters in each of thousands of
/// keyspaces.
#[derive(Debug, Default)]
pub(crate) struct LazyCounts(OnceLock<Box<Counts>>);

impl LazyCounts {
    fn counts(&self) -> &Counts {
        self.0.get_or_init(Box::default)
    }

    /// As [`Counts::note`].
    pub fn note(&self, sources: usize) -> u64 {
        self.counts().note(sources)
    }

    /// As [`Counts::read`].
    pub fn read(&self) -> ReadCount<'_> {
        self.counts().read()
    }

    /// As [`Counts::totals`].
    pub fn totals(&self) -> (u64, u64) {
        self.0.get().map_or((0, 0), |counts| counts.totals())
    }
}

/// Guard of a read that is being counted.
pub(crate) struct ReadCount<'a> {
    counts: &'a Counts,
    sources: usize,
}

impl ReadCount<'_> {
    /// Counts a searched source.
    pub fn source(&mut self) {
        self.sources += 1;
    }

    /// Drops the guard without counting: the read is repeated and counts then.
    pub fn cancel(self) {
        std::mem::forget(self);
    }
}

impl Drop for ReadCount<'_> {
    fn drop(&mut self) {
        self.counts.note(self.sources);
    }
}

/// Commits without a sync for each one that is timed. Two clock reads are 2 % of such a commit,
/// more than metrics may cost.
const COMMITS_PER_TIMING: u64 = 16;

/// Selection of the commits to time.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    /// Commits of each shard's threads. Hints: a lost update only delays the next timing.
    shards: [CachePadded<AtomicU64>; THREAD_SHARDS],
}

/// Number of commits that a timed commit represents; 0 if it is not timed.
pub(crate) type Weight = u64;

impl Sampling {
    /// Returns the weight of a commit: 1 with a sync, otherwise nonzero for one in
    /// `COMMITS_PER_TIMING`.
    pub fn next(&self, sync: bool) -> Weight {
        if sync {
            return 1;
        }
        let commits = &self.shards[thread_shard()];
        let n = commits.load(Ordering::Relaxed);
        commits.store(n.wrapping_add(1), Ordering::Relaxed);
        if n.is_multiple_of(COMMITS_PER_TIMING) {
            COMMITS_PER_TIMING
        } else {
            0
        }
    }
}

impl Metrics {
    /// Runs a commit and measures it if it is selected: see [`Sampling`].
    pub fn timed_commit<T>(&self, sync: bool, commit: impl FnOnce() -> T) -> T {
        let weight = self.commits_timed.next(sync);
        if weight == 0 {
            return commit();
        }
        let began = Instant::now();
        let result = commit();
        let took = began.elapsed().as_micros() as u64;
        self.commit_us.add_log2(took, weight);
        result
    }

    /// Runs a sync of the log and measures it.
    pub fn timed_sync<T>(&self, sync: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = sync();
        self.sync_us.note_log2(began.elapsed().as_micros() as u64);
        result
    }

    pub fn folded(&self, counts: &FoldCounts) {
        self.shadowed.add(counts.shadowed);
        self.canceled_pairs.add(counts.canceled_pairs);
        self.tombstones_dropped.add(counts.tombstones);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_in_sixteen_is_timed_and_stands_for_all_but_every_sync() {
        let metrics = Metrics::default();
        for _ in 0..160 {
            metrics.timed_commit(false, || ());
        }
        assert_eq!(metrics.commit_us.totals().0, 160);
        let weights: Vec<Weight> = (0..160)
            .map(|_| metrics.commits_timed.next(false))
            .collect();
        assert_eq!(weights.iter().filter(|weight| **weight > 0).count(), 10);
        for _ in 0..5 {
            metrics.timed_commit(true, || ());
        }
        assert_eq!(metrics.commit_us.totals().0, 165);
    }
}
