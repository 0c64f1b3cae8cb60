//! Limit on disk space.
//!
//! Settled, the live rows take `S` bytes: everything is in the last level, each row once. While
//! writers run, upper tables may hold `upper_fraction` of that. Write stalls begin at 1.5 times
//! that amount, so that the upper tables settle below 2.5 times. More space goes to:
//!
//! - the outputs of compactions that are not installed yet, at most a group each,
//! - the log of the memtables, which at their ceiling take half of the memory budget,
//! - the log's segments at both ends of that, and the segments ready for writing.
//!
//! So at any time
//!
//! ```text
//! stored <= S (1 + 2.5 upper_fraction) + threads (largest group) + memory / 2 + 14 log segments
//! ```
//!
//! The largest group is assumed to be four times the mean one. The limit is a tenth above that sum.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use alluvium::{Database, Keyspace, Options};

use crate::{Failure, MIB, verdict};

const DEBT_MAX: f64 = 2.5;
const GROUP_FACTOR: u64 = 4;
const TOLERANCE: f64 = 0.1;
/// A log segment takes this fraction (1/16) of the memory budget, twice as much as a memtable: see
/// `docs/guide/keyspaces.md`.
const SEGMENTS_PER_MEMORY: u64 = 16;
/// Two segments being written or removed, and up to 12 ready for writing.
const SEGMENTS: u64 = 14;

/// Returns the bytes that the files of the directory take.
pub fn disk_bytes(dir: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        // The engine may remove a file between the two calls.
        if let Ok(metadata) = entry?.metadata() {
            bytes += metadata.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// Compacts everything, then compares the peak of stored bytes with the limit that follows from the
/// settled size.
pub fn report(
    db: &Database,
    rows: &Keyspace,
    dir: &Path,
    options: &Options,
    peak_bytes: u64,
) -> Result<bool, Failure> {
    let now = disk_bytes(dir)?;
    db.flush()?;
    rows.compact_range(&[], None)?;
    let keyspace = db.stats()?.keyspaces.pop().ok_or("the keyspace is gone")?;
    let settled = keyspace.last_bytes + keyspace.upper_bytes;
    let group = GROUP_FACTOR * settled / keyspace.groups.max(1);
    let budget = settled as f64 * (1.0 + DEBT_MAX * options.upper_fraction);
    let beside = group.min(settled) * options.compaction_threads as u64
        + options.memory_bytes as u64 / 2
        + SEGMENTS * options.memory_bytes as u64 / SEGMENTS_PER_MEMORY;
    let limit = budget + beside as f64;
    let met = peak_bytes as f64 <= limit * (1.0 + TOLERANCE);
    let mib = |bytes: u64| bytes as f64 / MIB;
    println!(
        "space: {:.0} MiB at the end, {:.0} at the peak, {:.0} settled: {:.2} times",
        mib(now),
        mib(peak_bytes),
        mib(settled),
        peak_bytes as f64 / settled.max(1) as f64,
    );
    println!(
        "bar: stored {:.0} MiB of settled x (1 + {DEBT_MAX} x {}) = {:.0}, {:.0} for merges and log, and a tenth, {}",
        mib(peak_bytes),
        options.upper_fraction,
        budget / MIB,
        mib(beside),
        verdict(met),
    );
    Ok(met)
}
