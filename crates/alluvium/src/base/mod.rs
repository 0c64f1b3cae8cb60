//! The vocabulary below everything else: identities, sequence numbers, value kinds, checksums, integer coding.
//!
//! Nothing here does I/O or knows of a database. What is stored on disk says so and never changes.

pub mod checksum;
pub mod coding;

use std::fmt;

/// Orders all commits of a database. One commit, one number; 0 means "older than every commit".
pub type SeqNo = u64;

/// The largest number a commit can have: the top byte is left free for packing with a [`ValueKind`].
pub const SEQNO_MAX: SeqNo = (1 << 56) - 1;

/// The longest key in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// The longest name of a keyspace in bytes. Each name is in memory as often as the keyspace is opened.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 65_535;

/// The longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Names a keyspace on disk. Never reused, also after a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u32);

/// Names a table file (`000017.sst`). Unique within a database directory, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u64);

/// Names a value file (`000017.val`). Numbered together with the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueFileId(pub u64);

/// Names a WAL segment (`000017.wal`). Increasing; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl fmt::Display for KeyspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keyspace {}", self.0)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}.sst", self.0)
    }
}

impl fmt::Display for ValueFileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}.val", self.0)
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}.wal", self.0)
    }
}

/// The smallest key larger than all keys with this prefix; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&b| b != 0xFF)?;
    let mut next = prefix[..=kept].to_vec();
    next[kept] += 1;
    Some(next)
}

/// What an entry says of its key. The numbers are stored in WAL, memtable and tables and never change.
///
/// Kinds that no release writes yet have their number already, so that the formats need not change for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// The caller knew that the key was absent: a delete that meets it cancels it, and neither is kept.
    Insert = 1,
    /// Covers whatever older entries of the key exist.
    Put = 2,
    /// The key is absent (a tombstone).
    Delete = 3,
    /// Covers every older entry in a range: the key is its start, the value its exclusive end.
    RangeDelete = 4,
    /// A change to be folded into the older value. Reserved.
    Upsert = 5,
    /// As `Put`, with the value elsewhere: a pointer to it stands in its place. In tables only.
    Pointer = 6,
    /// As `Insert`, with the value elsewhere. In tables only.
    InsertPointer = 7,
}

impl ValueKind {
    /// The kind with this stored number, if there is one.
    pub fn from_u8(byte: u8) -> Option<ValueKind> {
        Some(match byte {
            1 => ValueKind::Insert,
            2 => ValueKind::Put,
            3 => ValueKind::Delete,
            4 => ValueKind::RangeDelete,
            5 => ValueKind::Upsert,
            6 => ValueKind::Pointer,
            7 => ValueKind::InsertPointer,
            _ => return None,
        })
    }

    /// Whether a delete that meets the entry cancels it.
    pub fn is_insert(self) -> bool {
        matches!(self, ValueKind::Insert | ValueKind::InsertPointer)
    }

    /// Whether a pointer stands in the place of the value.
    pub fn is_pointer(self) -> bool {
        matches!(self, ValueKind::Pointer | ValueKind::InsertPointer)
    }

    /// The kind of the same row when it may hide something.
    pub fn covering(self) -> ValueKind {
        match self {
            ValueKind::Insert => ValueKind::Put,
            ValueKind::InsertPointer => ValueKind::Pointer,
            other => other,
        }
    }

    /// The kind of the same row with its value elsewhere; `None` for what has no value.
    pub fn separated(self) -> Option<ValueKind> {
        match self {
            ValueKind::Insert | ValueKind::InsertPointer => Some(ValueKind::InsertPointer),
            ValueKind::Put | ValueKind::Pointer => Some(ValueKind::Pointer),
            _ => None,
        }
    }

    /// Whether a reader who meets this entry first finds the key absent.
    pub fn is_tombstone(self) -> bool {
        self == ValueKind::Delete
    }
}
