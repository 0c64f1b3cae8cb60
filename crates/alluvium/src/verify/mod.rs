//! Verification: reads everything that a database has on the device and checks it, while it is open
//! and in use.
//!
//! Manifest, tables and log are read from their files again, bypassing the block cache. Blocks in
//! the kernel's page cache are checked there. Each file's own checksums come first, then its
//! consistency with other files: the manifest with its tables, groups with their ranges, sequence
//! numbers with the order of sources. Last, the merged entries of each keyspace show if an `insert`
//! was written over a live row.
//!
//! The check keeps references to the tables as they are at its beginning, so their files stay. It
//! holds only one engine lock: that of the manifest's file, while reading it. Memory: one table's
//! fences and filters, and buffers of one merge.

mod groups;
mod inserts;
mod report;

pub use report::{VerifyReport, WrongInsert};

use crate::sync::collections::HashSet;
use std::sync::Arc;

use crate::base::{KeyspaceId, SegmentId, SeqNo, TableId};
use crate::cache::Cache;
use crate::commit::packed::unpack;
use crate::commit::payload::Ops;
use crate::commit::prepared;
use crate::db::Database;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::memory::CACHE_BYTES_MIN;
use crate::recovery::{check_record, records};
use crate::table::{Table, ValueFile, ValuesPart};
use crate::version::{Manifest, ManifestState, TableRecord};
use crate::wal::{RecordKind, ScrubLog, WalPosition};

impl Database {
    /// Reads and checks every file of the database, and continues after the first damage. Commits
    /// and reads go on meanwhile; the block cache is not used. Costs two passes over all tables, in
    /// this thread.
    ///
    /// The result covers the commits up to the start of the call. Damage is not repaired.
    ///
    /// # Errors
    ///
    /// `Closed`. Errors of files are in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(&mut |_| {})
    }

    /// As [`Database::verify`]. Calls `pause` with the bytes of each piece after reading it,
    /// without holding a lock; `pause` may wait to limit the rate.
    pub fn verify_with(&self, pause: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
        let shared = self.shared();
        shared.core.access.check_open()?;
        let mut report = VerifyReport::default();
        let held = hold(shared, &mut report);
        let damaged = check_tables(shared, &held, pause, &mut report);
        groups::check(&shared.core.files.dir, &held.state, &mut |error| {
            report.damage(error)
        });
        check_log(shared, &held, &mut report);
        let trees: Vec<_> = shared.core.catalog.read().values().cloned().collect();
        for tree in trees.iter().filter(|tree| !tree.stores_expiry) {
            inserts::check(shared, tree, &damaged, pause, &mut report);
        }
        Ok(report)
    }
}

/// Database as it is at the beginning of the check.
struct Held {
    state: ManifestState,
    /// Keeps the files of the state's tables.
    _tables: Vec<Arc<Table>>,
    /// End of the log; `None` if the database writes no log.
    log_end: Option<WalPosition>,
}

/// Checks the manifest's file against the state in memory, and takes references to all tables.
fn hold(shared: &Shared, report: &mut VerifyReport) -> Held {
    let log = shared.commits.log.lock();
    let log_end = log.wal.as_ref().map(|wal| wal.position());
    drop(log);
    let store = shared.store.lock();
    // Under the lock: otherwise an edit in the middle of its append would look truncated.
    match Manifest::read(&*shared.core.files.vfs, &shared.core.files.dir) {
        Err(error) => report.damage(error),
        // After a failed append the file may contain edits that were never published.
        Ok(_) if shared.core.poison.check().is_err() => {}
        Ok((uid, state)) => {
            if uid != shared.uid || state != *store.state() {
                let path = shared.core.files.path("CURRENT");
                let (expected, found) = ("the state of the open database", "another one");
                let what = "sum of all edits";
                report.damage(Error::corruption(&path, 0, what, expected, found));
            }
        }
    }
    let state = store.state().clone();
    // All tables, except those of a failed edit; their files are not deleted.
    let tables = state.table_ids().filter_map(|id| store.table(id)).collect();
    Held {
        state,
        _tables: tables,
        log_end,
    }
}

/// Checks each table file by itself and against the manifest. Returns the damaged ones.
fn check_tables(
    shared: &Shared,
    held: &Held,
    pause: &mut dyn FnMut(u64),
    report: &mut VerifyReport,
) -> HashSet<TableId> {
    let mut done = HashSet::default();
    let mut damaged = HashSet::default();
    for (keyspace, record) in records_of(&held.state) {
        if !done.insert(record.id) {
            continue;
        }
        let before = report.damage_count;
        report.tables += 1;
        report.bytes += record.file_bytes;
        if let Err(error) = check_table(shared, keyspace, record, pause, report) {
            report.damage(error);
        }
        if report.damage_count > before {
            damaged.insert(record.id);
        }
    }
    damaged
}

fn records_of(state: &ManifestState) -> impl Iterator<Item = (KeyspaceId, &TableRecord)> {
    let keyspaces = state.keyspaces.iter();
    let prepared = state.prepared_tables.values().flatten();
    keyspaces
        .flat_map(|(&id, k)| records(k.groups.values()).map(move |record| (id, record)))
        .chain(prepared.map(|(id, record)| (*id, record)))
}

fn check_table(
    shared: &Shared,
    keyspace: KeyspaceId,
    record: &TableRecord,
    pause: &mut dyn FnMut(u64),
    report: &mut VerifyReport,
) -> Result<()> {
    let path = shared.core.files.path(record.id.to_string());
    let file = shared.core.files.vfs.open_read(&path);
    let file = file.map_err(|e| Error::io("open", &path, e))?;
    // Opened again: the data in memory was correct when it was read.
    let cache = Cache::of_bytes(CACHE_BYTES_MIN as u64);
    let open_values = |part: &ValuesPart| {
        ValueFile::open_in(&*shared.core.files.vfs, &shared.core.files.dir, part)
    };
    let table = Table::open_with(file, record.id, record.uid, cache, open_values)?;
    check_record(&path, record, &table)?;
    let expected = (record.file_bytes, record.tombstones, vec![keyspace]);
    let properties = table.properties();
    let keyspaces = properties.keyspaces.iter().map(|part| part.keyspace);
    let found = (table.file_bytes(), table.tombstones(), keyspaces.collect());
    if expected != found {
        let shown = |(bytes, tombstones, keyspaces): (u64, u64, Vec<KeyspaceId>)| {
            let keyspaces: Vec<_> = keyspaces.iter().map(KeyspaceId::to_string).collect();
            let keyspaces = keyspaces.join(", ");
            format!("{bytes} bytes, {tombstones} tombstones, {keyspaces}")
        };
        let what = "table properties";
        return Err(Error::corruption(
            &path,
            0,
            what,
            shown(expected),
            shown(found),
        ));
    }
    report.entries += table.entries();
    table.verify_all(pause, &mut |error| report.damage(error));
    Ok(())
}

/// Checks the log up to its end at the beginning of the check.
fn check_log(shared: &Shared, held: &Held, report: &mut VerifyReport) {
    let mut check = LogCheck {
        shared,
        next_keyspace: held.state.next_keyspace,
        report,
    };
    let (vfs, dir) = (&*shared.core.files.vfs, &shared.core.files.dir);
    if let Some(end) = held.log_end {
        let done = crate::wal::scrub(vfs, dir, shared.uid, end, &mut check);
        report.log_segments += done.segments;
        report.log_records += done.records;
        report.bytes += done.bytes;
        return;
    }
    // There is no log writer: replays the log and keeps nothing. A flush of the rows replayed at
    // the opening may trim the log meanwhile; then the rest of it is checked. Terminates, because
    // the oldest needed segment only increases.
    let mut oldest = held.state.oldest_segment;
    while let Err(error) = check_still_log(&mut check, oldest) {
        let needed = check.oldest_needed();
        if needed == oldest {
            report.damage(error);
            return;
        }
        oldest = needed;
    }
}

fn check_still_log(check: &mut LogCheck<'_>, oldest: SegmentId) -> Result<()> {
    let shared = check.shared;
    let (vfs, dir) = (&*shared.core.files.vfs, &shared.core.files.dir);
    let mut visit = |segment: SegmentId, seqno, kind, payload: &[u8]| {
        if let Err(found) = check.record(seqno, kind, payload) {
            let path = dir.join(segment.to_string());
            let what = "payload of a commit record";
            check.report(Error::corruption(&path, 0, what, "operations", found));
        }
        Ok(())
    };
    let end = crate::wal::replay(vfs, dir, shared.uid, oldest, &mut visit)?;
    check.report.log_segments += end.segments.len() as u64;
    check.report.log_records += end.records;
    Ok(())
}

struct LogCheck<'a> {
    shared: &'a Shared,
    next_keyspace: KeyspaceId,
    report: &'a mut VerifyReport,
}

impl ScrubLog for LogCheck<'_> {
    fn oldest_needed(&self) -> SegmentId {
        self.shared.store.lock().state().oldest_segment
    }

    fn record(&mut self, seqno: SeqNo, kind: RecordKind, payload: &[u8]) -> Result<(), String> {
        let operations = |raw: &[u8]| {
            let malformed = || format!("a malformed operation in commit {seqno}");
            for op in Ops::new(raw) {
                let op = op.map_err(|()| malformed())?;
                if op.keyspace >= self.next_keyspace {
                    return Err(format!("{}, never created, in commit {seqno}", op.keyspace));
                }
            }
            Ok(())
        };
        match kind {
            RecordKind::Commit => operations(payload),
            RecordKind::PackedCommit => match unpack(payload) {
                Some(raw) => operations(&raw),
                None => Err(format!("a malformed packing in commit {seqno}")),
            },
            RecordKind::Prepare | RecordKind::CommitPrepared | RecordKind::Rollback => {
                match prepared::decode(payload) {
                    Some((_, raw)) => operations(raw),
                    None => Err(format!(
                        "a malformed prepared transaction in commit {seqno}"
                    )),
                }
            }
            _ => Ok(()),
        }
    }

    fn report(&mut self, error: Error) {
        self.report.damage(error);
    }
}
