//! Finds inserts over live rows in the merged entries of a keyspace.
//!
//! The caller of `insert` promises that the key is absent. If the history keeps the promise, then
//! the next older version of the key in any source is a delete, a range delete over it (of the same
//! commit too), or absent:
//!
//! - A memtable turns an insert over any of its own versions of the key into a covering put. A
//!   compaction that drops the versions shadowed by an insert does the same. So an insert is only
//!   ever above versions of another source or of a snapshot.
//! - A delete is dropped only in two cases: together with the insert below it, if that insert was
//!   above a delete or nothing; or as the oldest version in the last level, with everything that it
//!   hid.
//!
//! A keyspace with expiring rows has no inserts: they are stored as puts.
//!
//! A broken promise that was folded into a covering put is harmless and is not found.

use crate::sync::collections::HashSet;

use alluvium_mem::MemtableCursor;

use super::report::{VerifyReport, WrongInsert};
use crate::base::{SeqNo, TableId, ValueKind};
use crate::db::shared::Shared;
use crate::error::Result;
use crate::keyspace::tree::{Tree, TreeState};
use crate::table::TableScan;

/// Number of versions checked between two calls of `pause`.
const PAUSE_EVERY: u64 = 4096;

/// Checks one keyspace. Groups with a damaged table are skipped.
pub(super) fn check(
    shared: &Shared,
    tree: &Tree,
    damaged: &HashSet<TableId>,
    pause: &mut dyn FnMut(u64),
    report: &mut VerifyReport,
) {
    // Registered first, so that the active memtable keeps the versions visible at this point during
    // the check.
    let _point = shared.core.read_points.register();
    let state = tree.load_full();
    let mut memtables: Vec<Input> = Vec::new();
    for memtable in state.memtables() {
        let mut cursor = memtable.rows.cursor(SeqNo::MAX);
        cursor.seek_first();
        memtables.push(Input::Memtable(cursor));
    }
    for index in 0..state.version.groups().len() {
        let group = &state.version.groups()[index];
        let upper = group.upper.iter().map(|upper| &upper.table);
        let skip = upper.chain(&group.last).any(|t| damaged.contains(&t.id()));
        let done = if skip {
            Ok(false)
        } else {
            check_group(tree, &state, index, &mut memtables, pause, report)
        };
        // A table that fails only now was written after the other tables had been checked.
        match done {
            Ok(true) => {}
            Ok(false) => report.groups_skipped += 1,
            Err(error) => report.damage(error),
        }
    }
}

fn check_group(
    tree: &Tree,
    state: &TreeState,
    index: usize,
    memtables: &mut Vec<Input>,
    pause: &mut dyn FnMut(u64),
    report: &mut VerifyReport,
) -> Result<bool> {
    let group = &state.version.groups()[index];
    let (low, high) = (&group.low[..], state.version.high(index));
    let deleted_at = |key: &[u8], seqno| deleted_at(state, index, key, seqno);
    for memtable in memtables.iter_mut() {
        memtable.skip_to(low);
    }
    let own = memtables.len();
    // Newest first, in the order of a point read.
    let mut inputs = std::mem::take(memtables);
    let from = (!low.is_empty()).then_some(low);
    for upper in &group.upper {
        inputs.push(Input::tables(vec![upper.table.scan_all(from, high)]));
    }
    let last = group.last.iter().map(|t| t.scan_all(None, None)).collect();
    inputs.push(Input::tables(last));
    let merged = Merged {
        tree,
        deleted_at: &deleted_at,
        high,
    };
    let result = check_merged(&merged, &mut inputs, own, pause, report);
    inputs.truncate(own);
    *memtables = inputs;
    result.map(|()| true)
}

/// Returns the newest range delete over a key of the group up to a commit; 0 if there is none.
fn deleted_at(state: &TreeState, index: usize, key: &[u8], seqno: SeqNo) -> SeqNo {
    let memtables = state
        .memtables()
        .map(|memtable| memtable.deleted_at(key, seqno));
    let upper = state.version.groups()[index].upper.iter();
    let tables = upper.map(|upper| upper.table.deleted_at(key, seqno));
    memtables.chain(tables).max().unwrap_or(0)
}

/// Context for checking the merged entries of a group.
struct Merged<'a> {
    tree: &'a Tree,
    /// Returns the newest range delete over a key up to a commit.
    deleted_at: &'a dyn Fn(&[u8], SeqNo) -> SeqNo,
    /// End of the group.
    high: Option<&'a [u8]>,
}

fn check_merged(
    group: &Merged<'_>,
    inputs: &mut [Input],
    memtables: usize,
    pause: &mut dyn FnMut(u64),
    report: &mut VerifyReport,
) -> Result<()> {
    for tables in &mut inputs[memtables..] {
        tables.next()?;
    }
    let mut versions: Vec<(SeqNo, Option<ValueKind>)> = Vec::new();
    let mut key = Vec::new();
    let mut looked_at = 0;
    // Terminates with the entries of all inputs.
    loop {
        let keys = inputs.iter().filter_map(Input::key);
        let Some(least) = keys
            .min()
            .filter(|key| group.high.is_none_or(|high| *key < high))
        else {
            return Ok(());
        };
        key.clear();
        key.extend_from_slice(least);
        versions.clear();
        for input in inputs.iter_mut() {
            input.take(&key, &mut versions)?;
        }
        looked_at += versions.len() as u64;
        if looked_at >= PAUSE_EVERY {
            looked_at = 0;
            pause(0);
        }
        for (seqno, older_seqno) in wrong(&versions, |seqno| (group.deleted_at)(&key, seqno)) {
            report.wrong_insert(WrongInsert {
                keyspace: group.tree.name.clone(),
                key: key.clone(),
                seqno,
                older_seqno,
            });
        }
    }
}

/// Returns the inserts among the versions of a key, newest first, directly above a live version.
/// `deleted_at` returns the newest range delete up to a commit.
fn wrong(
    versions: &[(SeqNo, Option<ValueKind>)],
    deleted_at: impl Fn(SeqNo) -> SeqNo,
) -> Vec<(SeqNo, SeqNo)> {
    let pairs = versions.windows(2).map(|pair| (pair[0], pair[1]));
    let stands_on_live = pairs.filter(|((seqno, kind), (older, below))| {
        kind.is_some_and(ValueKind::is_insert)
            && *below != Some(ValueKind::Delete)
            && deleted_at(*seqno) <= *older
    });
    stands_on_live
        .map(|(above, below)| (above.0, below.0))
        .collect()
}

/// Forward stream of the versions of one source.
enum Input {
    Memtable(MemtableCursor),
    /// Disjoint tables in key order; the current one last.
    Tables {
        scans: Vec<TableScan>,
        valid: bool,
    },
}

impl Input {
    fn tables(mut scans: Vec<TableScan>) -> Input {
        scans.reverse();
        let valid = false;
        Input::Tables { scans, valid }
    }

    /// Moves to the next entry.
    fn next(&mut self) -> Result<()> {
        match self {
            Input::Memtable(cursor) => {
                cursor.next();
            }
            Input::Tables { scans, valid } => {
                *valid = false;
                while let Some(scan) = scans.last_mut() {
                    if scan.next()? {
                        *valid = true;
                        break;
                    }
                    scans.pop();
                }
            }
        }
        Ok(())
    }

    fn key(&self) -> Option<&[u8]> {
        match self {
            Input::Memtable(cursor) => cursor.valid().then(|| cursor.key()),
            Input::Tables { scans, valid } => scans.last().filter(|_| *valid).map(TableScan::key),
        }
    }

    /// Moves to the first key at or after `low`, unless the input is already there or beyond.
    fn skip_to(&mut self, low: &[u8]) {
        if let Input::Memtable(cursor) = self
            && cursor.valid()
            && cursor.key() < low
        {
            cursor.seek(low);
        }
    }

    /// Moves the versions of `key` into `out` and steps past them.
    fn take(&mut self, key: &[u8], out: &mut Vec<(SeqNo, Option<ValueKind>)>) -> Result<()> {
        while self.key() == Some(key) {
            match self {
                Input::Memtable(cursor) => {
                    let versions = cursor.versions();
                    out.extend(versions.map(|v| (v.seqno, ValueKind::from_u8(v.kind))));
                }
                Input::Tables { scans, .. } => {
                    out.extend(scans.last().map(|scan| (scan.seqno(), Some(scan.kind()))));
                }
            }
            self.next()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, deleted: SeqNo) -> Vec<(SeqNo, SeqNo)> {
        let kind = |c| match c {
            'i' => ValueKind::Insert,
            'p' => ValueKind::Put,
            _ => ValueKind::Delete,
        };
        let versions: Vec<_> = text
            .split_whitespace()
            .map(|w| (w[1..].parse().unwrap(), w.chars().next().map(kind)))
            .collect();
        wrong(
            &versions,
            |seqno| if deleted <= seqno { deleted } else { 0 },
        )
    }

    #[test]
    fn an_insert_stands_on_a_delete_or_on_nothing() {
        for (history, deleted, expected) in [
            ("i9", 0, vec![]),
            ("i9 d7 p3", 0, vec![]),
            ("d9 i7", 0, vec![]),
            ("p9 i7 d5", 0, vec![]),
            ("i9 p7", 0, vec![(9, 7)]),
            ("i9 i0", 0, vec![(9, 0)]),
            ("d9 i7 p5 i3 d2", 0, vec![(7, 5)]),
            ("i9 p7", 8, vec![]),
            // A range delete in the insert's own commit, and a later one.
            ("i9 p7", 9, vec![]),
            ("i9 p7", 10, vec![(9, 7)]),
            ("i9 p7", 7, vec![(9, 7)]),
        ] {
            assert_eq!(found(history, deleted), expected, "{history} {deleted}");
        }
    }
}
