//! Contents of stored files, piece by piece, for tools that display them. Not part of the public
//! interface.
//!
//! Everything is read from the files, bypassing an open database, as far as it can be trusted.
//! After damage, the good blocks of a table are still returned, but no further records of the log.
//! Nothing is written.

use std::path::Path;

use crate::base::{KeyspaceId, SegmentId, SeqNo, ValueFileId, ValueKind};
use crate::commit::marker::{DdlAction, DdlMarker};
use crate::commit::packed::unpack;
use crate::commit::payload::Ops;
use crate::commit::prepared;
use crate::error::{Error, Result};
use crate::keyspace::KeyspaceOptions;
use crate::range_deletes::RangeDeletes;
use crate::table::{self, Pointer};
use crate::vfs::{Vfs, VfsFile};
use crate::wal::RecordKind;

/// One operation of a commit in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedOperation {
    /// Keyspace of the operation.
    pub keyspace: KeyspaceId,
    /// Kind of the operation.
    pub kind: ValueKind,
    /// Key, or the start of a range delete.
    pub key: Vec<u8>,
    /// Value, or the end of a range delete; empty for a delete.
    pub value: Vec<u8>,
}

/// Content of a record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogContent {
    /// Operations of a commit.
    Operations(Vec<LoggedOperation>),
    /// Step of a prepared transaction: its id, and its operations if the step has them.
    Prepared(Vec<u8>, Vec<LoggedOperation>),
    /// Change of a keyspace: the action, the keyspace's id, its name.
    Keyspace(&'static str, KeyspaceId, String),
    /// Marker without content for a reader of the log.
    Marker,
    /// The payload is not well-formed.
    Malformed,
}

/// Record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Log segment that contains the record.
    pub segment: SegmentId,
    /// Seqno of the commit.
    pub seqno: SeqNo,
    /// Kind of the record.
    pub kind: RecordKind,
    /// Length of the payload.
    pub payload_bytes: usize,
    /// Decoded payload.
    pub content: LogContent,
}

/// Calls `visit` with each record of the log, starting at `oldest_needed`, until it returns
/// `false`. Returns the error that stopped it before the end of the log, if any. `database_uid` and
/// `oldest_needed` come from the manifest.
///
/// # Errors
///
/// [`Error::Io`].
pub fn log(
    vfs: &dyn Vfs,
    dir: &Path,
    database_uid: u64,
    oldest_needed: SegmentId,
    visit: &mut dyn FnMut(LogRecord) -> bool,
) -> Result<Option<Error>> {
    let mut stopped = false;
    let mut each = |segment, seqno, kind, payload: &[u8]| {
        let record = LogRecord {
            segment,
            seqno,
            kind,
            payload_bytes: payload.len(),
            content: content(kind, payload),
        };
        stopped = !visit(record);
        if stopped {
            // Stops the replay; never returned to the caller.
            Err(Error::Closed)
        } else {
            Ok(())
        }
    };
    let read = crate::wal::salvage(vfs, dir, database_uid, oldest_needed, &mut each);
    if stopped { Ok(None) } else { read }
}

fn content(kind: RecordKind, payload: &[u8]) -> LogContent {
    let read = match kind {
        RecordKind::Commit => operations(payload).map(LogContent::Operations),
        RecordKind::PackedCommit => unpack(payload)
            .and_then(|raw| operations(&raw))
            .map(LogContent::Operations),
        RecordKind::Prepare | RecordKind::CommitPrepared | RecordKind::Rollback => {
            prepared::decode(payload).and_then(|(xid, raw)| {
                let operations = operations(raw)?;
                Some(LogContent::Prepared(xid.to_vec(), operations))
            })
        }
        RecordKind::Ddl => keyspace_change(payload),
        _ => Some(LogContent::Marker),
    };
    read.unwrap_or(LogContent::Malformed)
}

fn operations(raw: &[u8]) -> Option<Vec<LoggedOperation>> {
    let owned = Ops::new(raw).map(|op| {
        let op = op.ok()?;
        Some(LoggedOperation {
            keyspace: op.keyspace,
            kind: op.kind,
            key: op.key.to_vec(),
            value: op.value.to_vec(),
        })
    });
    owned.collect()
}

fn keyspace_change(payload: &[u8]) -> Option<LogContent> {
    let marker = DdlMarker::decode(payload)?;
    let action = match marker.action {
        DdlAction::Create => "create",
        DdlAction::Drop => "drop",
        DdlAction::SetOptions => "set options",
    };
    Some(LogContent::Keyspace(
        action,
        marker.keyspace,
        marker.name.to_owned(),
    ))
}

/// Decodes the options of a keyspace from their stored form; returns `None` if this build cannot
/// read it.
pub fn keyspace_options(stored: &[u8]) -> Option<KeyspaceOptions> {
    KeyspaceOptions::decode(stored)
}

/// One row of a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRow<'a> {
    /// Key of the row.
    pub key: &'a [u8],
    /// Seqno of the commit as stored in the file; for an ingested table the manifest may give a
    /// later one.
    pub seqno: SeqNo,
    /// Kind of the row.
    pub kind: ValueKind,
    /// Stored value; if rows expire, its last eight bytes are the expiry time. For a pointer, only
    /// the bytes after it.
    pub value: &'a [u8],
    /// Value file, and the offset and length of the value in it.
    pub pointer: Option<(ValueFileId, u64, u32)>,
}

/// Returns the uid stored in a table file, for a reader without a manifest.
///
/// # Errors
///
/// [`Error::Corruption`] for a file that is too short; [`Error::Io`].
pub fn stored_uid(file: &dyn VfsFile) -> Result<u64> {
    table::stored_uid(file)
}

/// Calls `visit` with each row of each good block of a table, until it returns `false`, and
/// `damage` for each bad block. Returns the range deletes; `None` if they cannot be read.
pub fn table(
    file: &dyn VfsFile,
    uid: u64,
    visit: &mut dyn FnMut(TableRow<'_>) -> bool,
    damage: &mut dyn FnMut(Error),
) -> Option<RangeDeletes> {
    let mut row = |key: &[u8], seqno, kind: ValueKind, stored: &[u8]| {
        let pointer = kind.is_pointer().then(|| Pointer::decode(stored)).flatten();
        let row = TableRow {
            key,
            seqno,
            kind,
            value: pointer.as_ref().map_or(stored, |(_, rest)| rest),
            pointer: pointer
                .as_ref()
                .map(|(p, _)| (p.file, p.offset, p.value_bytes)),
        };
        // Stops the scan; never returned to the caller.
        visit(row).then_some(()).ok_or(Error::Closed)
    };
    table::salvage(file, uid, &mut row, damage).ok().flatten()
}
