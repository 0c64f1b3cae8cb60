//! Checks for numbers that no database reaches and for numbers out of order. A manifest or log with
//! such numbers is damaged, even if its checksum is right.
//!
//! All numbers grow by one. A limit far below the maximum of a field leaves room for every number
//! that this session adds, so the code after recovery need not check for overflow.

use std::path::{Path, PathBuf};

use crate::base::{SEQNO_MAX, SegmentId, SeqNo};
use crate::error::{Error, Result};
use crate::version::{GroupState, ManifestState};
use crate::wal::RecordKind;

/// Reached after a thousand years at a million commits a second.
const SEQNO_LIMIT: SeqNo = SEQNO_MAX / 2;
/// Limit for table and log segment numbers: 600 files a second for ten thousand years.
const FILE_LIMIT: u64 = 1 << 48;

/// Returns the newest commit that the manifest records. It includes every flushed number, otherwise
/// the next flush would go back.
pub(super) fn newest_commit(state: &ManifestState) -> SeqNo {
    let flushed = state.keyspaces.values().map(|k| k.flushed_seqno);
    flushed.fold(state.last_seqno, SeqNo::max)
}

/// Checks the numbers in a manifest.
pub(super) fn check_manifest(dir: &Path, state: &ManifestState) -> Result<()> {
    let numbers = [
        (
            "number of the newest commit",
            newest_commit(state),
            SEQNO_LIMIT,
        ),
        ("number of the next table", state.next_table.0, FILE_LIMIT),
        (
            "number of the next log segment",
            state.next_segment.0,
            FILE_LIMIT,
        ),
        (
            "number of the oldest log segment",
            state.oldest_segment.0,
            FILE_LIMIT,
        ),
    ];
    let path = dir.join("CURRENT");
    let check = |(what, found, limit)| below(|| path.clone(), what, found, limit);
    numbers.into_iter().try_for_each(check)?;
    let mut groups = state.keyspaces.values().flat_map(|k| k.groups.values());
    groups.try_for_each(|group| check_order(&path, group))
}

/// Checks the order of upper tables: of two in one group, the one of the higher run has newer
/// commits.
fn check_order(path: &Path, group: &GroupState) -> Result<()> {
    for pair in group.upper.windows(2) {
        let [(newer_run, newer), (older_run, older)] = pair else {
            continue;
        };
        // The tables of one ingest share their sequence number.
        if newer_run <= older_run || newer.seqnos().0 < older.seqnos().1 {
            let (newer, older) = (newer.id, older.id);
            let found = format!("{newer} of run {newer_run} above {older} of run {older_run}");
            let (what, expected) = ("upper tables", "those of higher runs to be newer");
            return Err(Error::corruption(path, 0, what, expected, found));
        }
    }
    Ok(())
}

/// Checks the sequence numbers of log records.
pub(super) struct LogOrder<'a> {
    dir: &'a Path,
    /// Newest number of the records that must be in order.
    newest: SeqNo,
}

impl LogOrder<'_> {
    pub fn new(dir: &Path) -> LogOrder<'_> {
        LogOrder { dir, newest: 0 }
    }

    /// Checks the next record.
    pub fn check(&mut self, segment: SegmentId, kind: RecordKind, seqno: SeqNo) -> Result<()> {
        // Called for each record of a replay, so the path is built only for an error.
        let path = || self.dir.join(segment.to_string());
        let what = "number of a commit";
        if kind.is_of_order() {
            let newest = self.newest;
            if seqno <= newest {
                let expected = format!("one above {newest}");
                return Err(Error::corruption(&path(), 0, what, expected, seqno));
            }
            self.newest = seqno;
        }
        below(path, what, seqno, SEQNO_LIMIT)
    }
}

fn below(path: impl FnOnce() -> PathBuf, what: &'static str, found: u64, limit: u64) -> Result<()> {
    if found < limit {
        return Ok(());
    }
    let expected = format!("one below {limit}");
    Err(Error::corruption(&path(), 0, what, expected, found))
}
