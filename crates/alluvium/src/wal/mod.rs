//! Write-ahead log: one record per commit, in segments that are allocated in full, used once and
//! unlinked.
//!
//! ```text
//! 000017.wal:  | header 80 B | frame | frame | ... | zeros up to the allocated length |
//! frame:       | checksum 8 | header check 4 | payload length 4 | kind << 56 + seqno 8
//!              | predecessor's checksum 8 | known durable offset 8 | payload
//!              | zeros up to a multiple of 8 |
//! ```
//!
//! [`WalWriter`] frames records and writes them in groups, [`replay()`] reads them back. Payloads
//! are opaque here. `docs/format/wal.md` specifies the bytes and the rules. The reasons for the
//! rules:
//!
//! - A record is bound to its place (its checksum is seeded with database, segment and offset) and
//!   to its predecessor. So neither stale bytes nor a record after a gap can pass as the
//!   continuation of the log.
//! - A segment's header says where the previous segment ended, and whether that one was durable by
//!   then, so a change of segments does not wait for the device. Segments are synced in order. A
//!   segment therefore proves all earlier ones if its header says that the previous segment was
//!   durable, or if one of its records carries a nonzero durable mark. After the newest proven
//!   segment a power loss may have cut the log anywhere; before it an invalid record is damage.
//! - Each record says up to where the segment was known durable when it was written. In a segment
//!   in which the log may end, an invalid record below such a mark is damage; above all marks it is
//!   a torn tail.
//! - Nothing is ever appended to a segment that was replayed.
//!
//! ```
//! use std::{path::Path, sync::Arc};
//! use alluvium::base::SegmentId;
//! use alluvium::vfs::MemVfs;
//! use alluvium::internal::{RecordKind, WalWriter, replay};
//!
//! let (vfs, dir, database_uid) = (Arc::new(MemVfs::new()), Path::new("/"), 7);
//! let mut wal =
//!     WalWriter::create(vfs.clone(), dir, database_uid, SegmentId(1), None, false, 4096)?;
//! wal.append(1, RecordKind::Commit, b"operations");
//! let position = wal.write()?; // survives the death of the process
//! wal.syncer().sync()?; // survives a power loss
//! wal.note_durable(position);
//!
//! let end = replay(&*vfs, dir, database_uid, SegmentId(1), &mut |_, seqno, _, payload| {
//!     assert_eq!((seqno, payload), (1, &b"operations"[..]));
//!     Ok(())
//! })?;
//! assert_eq!(end.records, 1);
//! # Ok::<(), alluvium::Error>(())
//! ```

mod follow;
pub(crate) mod frame;
mod prepare;
mod replay;
mod room;
mod salvage;
mod scrub;
mod segment;
mod sync;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use follow::{FollowedRecord, LogFollower, LogPlace};
pub(crate) use frame::frame_bytes;
pub use prepare::{PreparedSegment, SegmentPlan};
pub use replay::{ReplayEnd, replay};
pub(crate) use salvage::salvage;
pub(crate) use scrub::{ScrubLog, scrub};
pub use segment::{SHORT_SEGMENT_BYTES, parse_segment_name};
pub use sync::{LateSync, WalSync};
pub use writer::{PAYLOAD_BYTES_MAX, WalWriter};

use std::path::Path;
use std::sync::Arc;

use crate::base::SegmentId;
use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsFile};

/// The newest log format that this build reads, and the one it writes.
pub const FORMAT_VERSION: u32 = 1;

/// Type of a record. The numbers are stored and never change. 7 is reserved and never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// The operations of one commit.
    Commit = 1,
    /// The id and the operations of a transaction prepared for an external coordinator.
    Prepare = 2,
    /// A prepared transaction was committed: its id and its operations again.
    CommitPrepared = 3,
    /// A prepared transaction was rolled back: its id.
    Rollback = 4,
    /// Tables were ingested at this place in the commit order, if the manifest says so.
    Ingest = 5,
    /// Keyspaces are created, dropped or changed at this place in the commit order.
    Ddl = 6,
    /// No payload, only the durable mark that every record carries. Written by
    /// [`WalWriter::mark_synced`]; replay does not pass it to the visitor.
    SyncMark = 8,
    /// The operations of one commit, compressed.
    PackedCommit = 9,
}

impl RecordKind {
    /// Returns true if the record is about a prepared transaction.
    pub fn is_of_prepared(self) -> bool {
        matches!(
            self,
            RecordKind::Prepare | RecordKind::CommitPrepared | RecordKind::Rollback
        )
    }

    /// Returns true if records of this kind are in the log in the order of their sequence numbers.
    /// Prepares may be written again, with their original number.
    pub fn is_of_order(self) -> bool {
        !matches!(
            self,
            RecordKind::Prepare | RecordKind::Rollback | RecordKind::SyncMark
        )
    }

    /// Returns the kind with this stored number, if there is one.
    pub fn from_u8(byte: u8) -> Option<RecordKind> {
        Some(match byte {
            1 => RecordKind::Commit,
            2 => RecordKind::Prepare,
            3 => RecordKind::CommitPrepared,
            4 => RecordKind::Rollback,
            5 => RecordKind::Ingest,
            6 => RecordKind::Ddl,
            8 => RecordKind::SyncMark,
            9 => RecordKind::PackedCommit,
            _ => return None,
        })
    }

    /// Returns the kind of the record at `offset` of a segment.
    ///
    /// # Errors
    ///
    /// [`Error::Corruption`] if there is no kind with this number.
    fn decode(byte: u8, path: &Path, offset: u64) -> Result<RecordKind> {
        let known = "1 to 6, 8 or 9";
        let unknown = || Error::corruption(path, offset, "record kind", known, byte);
        RecordKind::from_u8(byte).ok_or_else(unknown)
    }
}

/// A place between two records. Positions compare in log order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalPosition {
    /// The segment.
    pub segment: SegmentId,
    /// The byte offset in it.
    pub offset: u64,
}

/// End of a segment's valid records, which the next segment's header repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentEnd {
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the first byte after its last record.
    pub offset: u64,
    /// The checksum of its last record, or of its header if it has none.
    pub chain: u64,
}

/// Returns the error of a call that may have changed something; it poisons the database whatever
/// its kind. If a device fills up during a write or a sync, acknowledged data may be affected, so
/// this is never the retriable [`Error::NoSpace`].
pub(crate) fn hard_io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        action,
        path: path.to_path_buf(),
        source: Arc::new(source),
        changed: true,
    }
}

/// Makes the names in a directory durable.
fn sync_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    vfs.sync_dir(dir)
        .map_err(|error| hard_io("sync directory", dir, error))
}

/// Opens a file of durable state, and returns it with its length.
///
/// Dirty pages of the file are first written to the device, then dropped from the page cache: the
/// caller reads the state that a later crash would leave. Otherwise such a crash could take away
/// data already read, and pages left in the cache by an earlier, failed sync could pose as durable.
pub(crate) fn open_settled(vfs: &dyn Vfs, path: &Path) -> Result<(Arc<dyn VfsFile>, u64)> {
    let file = vfs
        .open_read(path)
        .map_err(|error| Error::io("open", path, error))?;
    file.sync().map_err(|error| hard_io("sync", path, error))?;
    let len = file
        .len()
        .map_err(|error| Error::io("measure", path, error))?;
    file.drop_cached(0, len);
    Ok((file, len))
}
