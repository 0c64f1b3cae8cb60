//! Entries and values that no reader needs: in last-level tables and in value files.

use crate::sync::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::{SeqNo, ValueFileId};
use crate::table::Table;
use crate::version::group::Version;

/// Returns the number of entries of a last-level table that a compaction certainly drops: its
/// tombstones and the older versions of its rows, once no read point lies below any entry of the
/// table.
pub(crate) fn dead_in_last(table: &Table, horizon: SeqNo) -> u64 {
    if table.max_seqno() <= horizon {
        let older = table.properties().older_versions;
        table
            .tombstones()
            .saturating_add(older)
            .min(table.entries())
    } else {
        0
    }
}

/// Share of garbage above which compactions empty a value file.
const GARBAGE_MAX: f64 = 0.25;

/// Returns the value files that justify compacting quiet groups: those with much garbage, if
/// garbage is also a large part of all value files together.
pub(crate) fn files_to_empty(versions: &[Arc<Version>]) -> HashSet<ValueFileId> {
    let usage = value_usage(versions);
    let (bytes, live) = usage
        .values()
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if is_mostly_garbage(bytes, live) {
        victims(&usage)
    } else {
        HashSet::default()
    }
}

/// Returns the value files with much garbage: a compaction that finds a pointer into one moves the
/// value.
pub(crate) fn victims(usage: &ValueUsage) -> HashSet<ValueFileId> {
    let garbage = usage
        .iter()
        .filter(|(_, (bytes, live))| is_mostly_garbage(*bytes, *live));
    garbage.map(|(id, _)| *id).collect()
}

fn is_mostly_garbage(bytes: u64, live: u64) -> bool {
    (live as f64) < (1.0 - GARBAGE_MAX) * bytes as f64
}

/// For each value file, the bytes of all its values and of the values that tables point to.
pub(crate) type ValueUsage = HashMap<ValueFileId, (u64, u64)>;

/// Computes the [`ValueUsage`] of these versions.
pub(crate) fn value_usage(versions: &[Arc<Version>]) -> ValueUsage {
    let mut usage = ValueUsage::default();
    let mut counted = HashSet::default();
    let groups = versions.iter().flat_map(|version| version.groups());
    let tables = groups.flat_map(|g| g.upper.iter().map(|u| &u.table).chain(&g.last));
    for table in tables.filter(|table| !table.properties().values.is_empty()) {
        // A table that groups share counts once.
        if !counted.insert(table.id()) {
            continue;
        }
        for part in &table.properties().values {
            let Some(file) = table.value_files().get(&part.file) else {
                continue;
            };
            // The footer is not garbage: in a file with one small value it is the larger part.
            let (_, live) = usage.entry(part.file).or_insert((file.stored_bytes(), 0));
            *live += part.stored_bytes;
        }
    }
    usage
}
