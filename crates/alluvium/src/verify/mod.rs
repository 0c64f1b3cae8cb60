//! Reading everything that a database has on the device and checking it, while it is open and used.
//!
//! Manifest, tables and log are read from their files again, past the block cache; blocks that the system holds in its
//! page cache are checked there. Each file's own checksums come first, then what the files say of each other: the
//! manifest of its tables, groups of their ranges, sequence numbers of the order of sources. Last, the merged entries of
//! each keyspace tell whether an `insert` was written over a live row.
//!
//! The check holds on to the tables as they are at its beginning, so their files stay. It takes no lock of the engine but
//! for the manifest's file, for as long as that is read. Memory: one table's fences and filters, and buffers of one merge.

mod groups;
mod inserts;

use crate::sync::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::{KeyspaceId, SegmentId, SeqNo, TableId};
use crate::cache::{CACHE_BYTES_MIN, Cache};
use crate::commit::batch::Ops;
use crate::commit::packed::unpack;
use crate::commit::prepared;
use crate::db::Database;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::recovery::{check_record, records};
use crate::table::{Table, ValueFile, ValuesPart};
use crate::version::{Manifest, ManifestState, TableRecord};
use crate::wal::{RecordKind, ScrubLog, WalPosition};

/// At most this many are kept of each list in a report; all are counted.
const REPORTED_MAX: usize = 1000;

/// What [`Database::verify`] has read and found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files that are damaged or cannot be read: [`Error::Corruption`] with file and offset, or [`Error::Io`]. The
    /// first thousand.
    pub damages: Vec<Error>,
    /// How many there are.
    pub damage_count: u64,
    /// Inserts over live rows that merges have not folded yet. The first thousand.
    pub wrong_inserts: Vec<WrongInsert>,
    /// How many there are.
    pub wrong_insert_count: u64,
    /// Groups of tables whose inserts were not looked at, because a table of theirs is damaged.
    pub groups_skipped: u64,
    /// Table files read.
    pub tables: u64,
    /// Entries in them.
    pub entries: u64,
    /// Log segments read.
    pub log_segments: u64,
    /// Records in them.
    pub log_records: u64,
    /// Bytes read of all files.
    pub bytes: u64,
}

/// An [`insert`](crate::Keyspace::insert) of a key that was there: after its delete the older value may come back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrongInsert {
    /// The keyspace.
    pub keyspace: String,
    /// The key.
    pub key: Vec<u8>,
    /// The commit that inserted it.
    pub seqno: SeqNo,
    /// The commit that wrote the older value; 0 where that is so old that its number is no longer kept.
    pub older_seqno: SeqNo,
}

impl VerifyReport {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0 && self.wrong_insert_count == 0
    }

    fn damage(&mut self, error: Error) {
        self.damage_count += 1;
        if self.damages.len() < REPORTED_MAX {
            self.damages.push(error);
        }
    }

    fn wrong_insert(&mut self, wrong: WrongInsert) {
        self.wrong_insert_count += 1;
        if self.wrong_inserts.len() < REPORTED_MAX {
            self.wrong_inserts.push(wrong);
        }
    }
}

impl Database {
    /// Reads every file of the database and checks it, and goes on after the first damage. Commits and reads go on
    /// meanwhile; the block cache is left alone. Costs two passes over all tables, in this thread.
    ///
    /// The result is about the commits of its beginning. What is damaged is not repaired.
    ///
    /// # Errors
    ///
    /// `Closed`. Whatever is found about files is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(&mut |_| {})
    }

    /// As [`Database::verify`]; `pause` is called with the bytes of each piece that was read, after it and under no
    /// lock, and may wait so as to limit the rate.
    pub fn verify_with(&self, pause: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
        let shared = self.shared();
        shared.check_open()?;
        let mut report = VerifyReport::default();
        let held = hold(shared, &mut report);
        let damaged = check_tables(shared, &held, pause, &mut report);
        groups::check(&shared.dir, &held.state, &mut |error| report.damage(error));
        check_log(shared, &held, &mut report);
        let trees: Vec<_> = shared.catalog.read().values().cloned().collect();
        for tree in trees.iter().filter(|tree| !tree.stores_expiry) {
            inserts::check(shared, tree, &damaged, pause, &mut report);
        }
        Ok(report)
    }
}

/// The database as it is at the beginning.
struct Held {
    state: ManifestState,
    /// Keeps the files of the state's tables.
    _tables: Vec<Arc<Table>>,
    /// Up to where the log is written; `None` where nobody writes one.
    log_end: Option<WalPosition>,
}

/// Checks the manifest's file against the state in memory, and holds on to everything.
fn hold(shared: &Shared, report: &mut VerifyReport) -> Held {
    let log = shared.log.lock();
    let log_end = log.wal.as_ref().map(|wal| wal.position());
    drop(log);
    let store = shared.store.lock();
    // Under the lock: an edit that is being appended would look cut off.
    match Manifest::read(&*shared.vfs, &shared.dir) {
        Err(error) => report.damage(error),
        // After a failed append the file may say more than was ever published.
        Ok(_) if shared.poison.check().is_err() => {}
        Ok((uid, state)) => {
            if uid != shared.uid || state != *store.state() {
                let path = shared.path("CURRENT");
                let (expected, found) = ("the state of the open database", "another one");
                let what = "sum of all edits";
                report.damage(Error::corruption(&path, 0, what, expected, found));
            }
        }
    }
    let state = store.state().clone();
    // All of them, but for those of an edit that has failed: their files stay where they are.
    let tables = state.table_ids().filter_map(|id| store.table(id)).collect();
    Held {
        state,
        _tables: tables,
        log_end,
    }
}

/// Checks each table file by itself and against what the manifest says of it. Returns the damaged ones.
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
    keyspaces.flat_map(|(&id, k)| records(k.groups.values()).map(move |record| (id, record)))
}

fn check_table(
    shared: &Shared,
    keyspace: KeyspaceId,
    record: &TableRecord,
    pause: &mut dyn FnMut(u64),
    report: &mut VerifyReport,
) -> Result<()> {
    let path = shared.path(record.id.to_string());
    let file = shared.vfs.open_read(&path);
    let file = file.map_err(|e| Error::io("open", &path, e))?;
    // Opened anew: what is in memory was right when it was read.
    let cache = Arc::new(Cache::new(CACHE_BYTES_MIN as u64));
    let open_values = |part: &ValuesPart| ValueFile::open_in(&*shared.vfs, &shared.dir, part);
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

/// Checks the log up to where it was written at the beginning.
fn check_log(shared: &Shared, held: &Held, report: &mut VerifyReport) {
    let mut check = LogCheck {
        shared,
        next_keyspace: held.state.next_keyspace,
        report,
    };
    let (vfs, dir) = (&*shared.vfs, &shared.dir);
    if let Some(end) = held.log_end {
        let done = crate::wal::scrub(vfs, dir, shared.uid, end, &mut check);
        report.log_segments += done.segments;
        report.log_records += done.records;
        report.bytes += done.bytes;
        return;
    }
    // Nobody writes: a replay that keeps nothing. What was replayed at the opening may be flushed meanwhile, which
    // trims the log: then what is left of it is checked. Ends, because the oldest needed segment only grows.
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
    let (vfs, dir) = (&*shared.vfs, &shared.dir);
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

/// The file in which a keyspace's list of tables stands, for messages.
fn manifest_path(dir: &std::path::Path) -> PathBuf {
    dir.join("CURRENT")
}
