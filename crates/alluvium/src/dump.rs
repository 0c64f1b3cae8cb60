//! What stored files say, piece by piece, for tools that show it to people. Not part of the public interface.
//!
//! Everything is read from the files, past an open database, and goes as far as it can be trusted: behind damage come the
//! blocks of a table that are good, but no records of the log. Nothing is written.

use std::path::Path;

use crate::base::{KeyspaceId, SegmentId, SeqNo, ValueFileId, ValueKind};
use crate::commit::batch::Ops;
use crate::commit::marker::{DdlAction, DdlMarker};
use crate::commit::packed::unpack;
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
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// What it does.
    pub kind: ValueKind,
    /// The key; the start of a range delete.
    pub key: Vec<u8>,
    /// The value; the end of a range delete; empty for a delete.
    pub value: Vec<u8>,
}

/// What a record of the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogContent {
    /// The operations of a commit.
    Operations(Vec<LoggedOperation>),
    /// A step of a prepared transaction: its id, and its operations where the step has them.
    Prepared(Vec<u8>, Vec<LoggedOperation>),
    /// A change of a keyspace: what was done, its id, its name.
    Keyspace(&'static str, KeyspaceId, String),
    /// A marker, whose bytes say nothing to a reader of the log.
    Marker,
    /// The payload is not well-formed.
    Malformed,
}

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// The segment in which it stands.
    pub segment: SegmentId,
    /// The commit.
    pub seqno: SeqNo,
    /// What it is.
    pub kind: RecordKind,
    /// Length of its payload.
    pub payload_bytes: usize,
    /// What it says.
    pub content: LogContent,
}

/// Calls `visit` with each record of the log from `oldest_needed` on, until it returns `false`, and returns why it ended
/// before the end of the log, if it did. The last two come from the manifest.
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
        match stopped {
            // Ends the reading and is seen by nobody.
            true => Err(Error::Closed),
            false => Ok(()),
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

/// The options of a keyspace from their stored form; `None` where this build cannot read it.
pub fn keyspace_options(stored: &[u8]) -> Option<KeyspaceOptions> {
    KeyspaceOptions::decode(stored)
}

/// One row of a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRow<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The commit, as it stands in the file: of an ingested table the manifest may say a later one.
    pub seqno: SeqNo,
    /// What the row says of its key.
    pub kind: ValueKind,
    /// The stored value; where rows expire its last eight bytes are the time. Behind a pointer only what follows it.
    pub value: &'a [u8],
    /// The value file, and the offset and length of the value in it.
    pub pointer: Option<(ValueFileId, u64, u32)>,
}

/// The uid that a table file says of itself, for a reader who has no manifest.
///
/// # Errors
///
/// [`Error::Corruption`] for a file that is too short; [`Error::Io`].
pub fn stored_uid(file: &dyn VfsFile) -> Result<u64> {
    table::stored_uid(file)
}

/// Calls `visit` with each row of each good block of a table, until it returns `false`, and `damage` for each block
/// that is not. Returns the range deletes; `None` where they cannot be read.
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
        // Ends the reading and is seen by nobody.
        visit(row).then_some(()).ok_or(Error::Closed)
    };
    table::salvage(file, uid, &mut row, damage).ok().flatten()
}
