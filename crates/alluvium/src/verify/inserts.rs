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

use super::report::{VerifyReport, WrongInsert};
use crate::base::{SeqNo, TableId, ValueKind};
use crate::compaction::merge::{Stream, next_key};
use crate::db::shared::Shared;
use crate::error::Result;
use crate::keyspace::state::TreeState;
use crate::keyspace::tree::Tree;

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
    for index in 0..state.version.groups().len() {
        let group = &state.version.groups()[index];
        let upper = group.upper.iter().map(|upper| &upper.table);
        let skip = upper.chain(&group.last).any(|t| damaged.contains(&t.id()));
        if skip {
            report.groups_skipped += 1;
        } else if let Err(error) = check_group(tree, &state, index, pause, report) {
            // A table that fails only now was written after the other tables had been checked.
            report.damage(error);
        }
    }
}

fn check_group(
    tree: &Tree,
    state: &TreeState,
    index: usize,
    pause: &mut dyn FnMut(u64),
    report: &mut VerifyReport,
) -> Result<()> {
    let mut streams = streams(state, index)?;
    let mut versions: Vec<(SeqNo, ValueKind)> = Vec::new();
    let mut key = Vec::new();
    let mut looked_at = 0;
    while next_key(&mut streams, &mut key, |seqno, kind, _| {
        versions.push((seqno, kind))
    })? {
        looked_at += versions.len() as u64;
        if looked_at >= PAUSE_EVERY {
            looked_at = 0;
            pause(0);
        }
        for (seqno, older_seqno) in wrong(&versions, |seqno| deleted_at(state, index, &key, seqno))
        {
            report.wrong_insert(WrongInsert {
                keyspace: tree.name.clone(),
                key: key.clone(),
                seqno,
                older_seqno,
            });
        }
        versions.clear();
    }
    Ok(())
}

/// Returns the versions in the range of a group, newest first, in the order of a point read.
fn streams(state: &TreeState, index: usize) -> Result<Vec<Stream>> {
    let group = &state.version.groups()[index];
    let (low, high) = (&group.low[..], state.version.high(index));
    let from = (!low.is_empty()).then_some(low);
    let memtables = state.memtables();
    let memtables = memtables.map(|m| Stream::memtable(m.rows.cursor(SeqNo::MAX), low, high));
    let mut streams: Vec<Stream> = memtables.collect();
    for upper in &group.upper {
        streams.extend(Stream::tables(vec![upper.table.scan_all(from, high)])?);
    }
    let last = group.last.iter().map(|t| t.scan_all(None, None)).collect();
    streams.extend(Stream::tables(last)?);
    Ok(streams)
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

/// Returns the inserts among the versions of a key, newest first, directly above a live version.
/// `deleted_at` returns the newest range delete up to a commit.
fn wrong(
    versions: &[(SeqNo, ValueKind)],
    deleted_at: impl Fn(SeqNo) -> SeqNo,
) -> Vec<(SeqNo, SeqNo)> {
    let pairs = versions.windows(2).map(|pair| (pair[0], pair[1]));
    let stands_on_live = pairs.filter(|((seqno, kind), (older, below))| {
        kind.is_insert() && *below != ValueKind::Delete && deleted_at(*seqno) <= *older
    });
    stands_on_live
        .map(|(above, below)| (above.0, below.0))
        .collect()
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
            .map(|w| (w[1..].parse().unwrap(), kind(w.as_bytes()[0] as char)))
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
