//! Counters of what the engine did, cheap enough to stay on: each is touched once a job or once a wait, never once
//! a row.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::compaction::fold::FoldCounts;

/// A counter. Relaxed: it orders nothing, readers want a recent value only.
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

/// All counters of one open database.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub flushes: Counter,
    pub compactions: Counter,
    pub table_bytes_written: Counter,
    pub ingested_bytes: Counter,
    pub shadowed: Counter,
    pub cancelled_pairs: Counter,
    pub tombstones_dropped: Counter,
    /// Commits that met the hard memory ceiling: should stay 0.
    pub ceiling_waits: Counter,
    pub delayed_commits: Counter,
    pub delay_us: Counter,
}

impl Metrics {
    pub fn folded(&self, counts: &FoldCounts) {
        self.shadowed.add(counts.shadowed);
        self.cancelled_pairs.add(counts.cancelled_pairs);
        self.tombstones_dropped.add(counts.tombstones);
    }
}
