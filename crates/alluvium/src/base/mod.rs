//! Vocabulary of all other modules: identities, sequence numbers, value kinds, checksums, integer
//! coding.
//!
//! Nothing here does I/O or depends on a database. Items that are stored on disk say so and never
//! change.

pub mod checksum;
pub mod coding;

use std::fmt;

/// Order of all commits of a database. One commit, one number; 0 means "older than every commit".
pub type SeqNo = u64;

/// Largest number of a commit: the top byte is free for packing with a [`ValueKind`].
pub const SEQNO_MAX: SeqNo = (1 << 56) - 1;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// Maximum length in bytes of the id of a prepared transaction.
pub const XID_BYTES_MAX: usize = 255;

/// Longest name of a keyspace in bytes. Each opening of a keyspace holds a copy of the name in
/// memory.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 65_535;

/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Identity of a keyspace on disk. Never reused, even after a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u32);

/// Identity of a table file (`000017.sst`). Unique within a database directory, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u64);

/// Identity of a value file (`000017.val`). Numbered together with the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueFileId(pub u64);

/// Identity of a WAL segment (`000017.wal`). Increasing; never reused.
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

/// Returns the smallest key larger than all keys with this prefix; `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&b| b != 0xFF)?;
    let mut next = prefix[..=kept].to_vec();
    next[kept] += 1;
    Some(next)
}

/// Meaning of an entry for its key. The numbers are stored in WAL, memtable and tables and never
/// change. 5 is reserved and never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// The caller knew that the key was absent: a delete of it cancels the entry, and neither is
    /// kept.
    Insert = 1,
    /// Covers any older entries of the key.
    Put = 2,
    /// The key is absent (a tombstone).
    Delete = 3,
    /// Covers every older entry in a range: the key is its start, the value its exclusive end.
    RangeDelete = 4,
    /// Like `Put`, but a pointer to the value is stored in its place. In tables only.
    Pointer = 6,
    /// Like `Insert`, with a pointer to the value. In tables only.
    InsertPointer = 7,
}

impl ValueKind {
    /// Returns the kind with this stored number, if there is one.
    pub fn from_u8(byte: u8) -> Option<ValueKind> {
        Some(match byte {
            1 => ValueKind::Insert,
            2 => ValueKind::Put,
            3 => ValueKind::Delete,
            4 => ValueKind::RangeDelete,
            6 => ValueKind::Pointer,
            7 => ValueKind::InsertPointer,
            _ => return None,
        })
    }

    /// Returns true if a delete cancels the entry.
    pub fn is_insert(self) -> bool {
        matches!(self, ValueKind::Insert | ValueKind::InsertPointer)
    }

    /// Returns true if the entry holds a pointer instead of the value.
    pub fn is_pointer(self) -> bool {
        matches!(self, ValueKind::Pointer | ValueKind::InsertPointer)
    }

    /// Returns the kind of the same row when it may cover an older entry.
    pub fn covering(self) -> ValueKind {
        match self {
            ValueKind::Insert => ValueKind::Put,
            ValueKind::InsertPointer => ValueKind::Pointer,
            other => other,
        }
    }

    /// Returns the kind of the same row with a separated value; `None` for kinds without a value.
    pub fn separated(self) -> Option<ValueKind> {
        match self {
            ValueKind::Insert | ValueKind::InsertPointer => Some(ValueKind::InsertPointer),
            ValueKind::Put | ValueKind::Pointer => Some(ValueKind::Pointer),
            _ => None,
        }
    }

    /// Returns true if the key is absent for a reader that finds this entry first.
    pub fn is_tombstone(self) -> bool {
        self == ValueKind::Delete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_and_unknown_numbers_are_no_kinds() {
        for byte in 0..=u8::MAX {
            let known = [1, 2, 3, 4, 6, 7].contains(&byte);
            let kind = ValueKind::from_u8(byte).map(|kind| kind as u8);
            assert_eq!(kind, known.then_some(byte));
        }
    }
}
