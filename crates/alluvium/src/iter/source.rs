//! One input of a merge: writes, a memtable, a table, or the last level of a group.

use alluvium_mem::MemtableCursor;

use crate::base::{SeqNo, ValueKind};
use crate::error::Result;
use crate::iter::held_row::HeldRow;
use crate::iter::run::RunCursor;
use crate::table::{PinnedValue, TableCursor};
use crate::txn::write_cursor::WriteCursor;

/// Cursor over one source, positioned on keys that have a version visible to the merge.
pub(crate) enum Source {
    /// A transaction's own writes.
    Writes(WriteCursor),
    Memtable(MemtableCursor),
    Table(TableCursor),
    /// Last level of one group.
    Run(RunCursor),
}

impl Source {
    /// Moves to the first key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            Source::Writes(c) => Ok(c.seek(key)),
            Source::Memtable(c) => Ok(c.seek(key)),
            Source::Table(c) => c.seek(key),
            Source::Run(c) => c.seek(key),
        }
    }

    /// Moves to the last key before `key`; `None` is the end.
    pub fn seek_before(&mut self, key: Option<&[u8]>) -> Result<bool> {
        match (self, key) {
            (Source::Writes(c), key) => Ok(c.seek_before(key)),
            (Source::Memtable(c), Some(key)) => Ok(c.seek_before(key)),
            (Source::Memtable(c), None) => Ok(c.seek_last()),
            (Source::Table(c), Some(key)) => c.seek_before(key),
            (Source::Table(c), None) => c.seek_last(),
            (Source::Run(c), key) => c.seek_before(key),
        }
    }

    /// Returns the cursor of the current table.
    pub fn table(&self) -> Option<&TableCursor> {
        match self {
            Source::Table(c) => Some(c),
            Source::Run(c) => c.table(),
            Source::Writes(_) | Source::Memtable(_) => None,
        }
    }

    pub fn next(&mut self) -> Result<bool> {
        match self {
            Source::Writes(c) => Ok(c.next()),
            Source::Memtable(c) => Ok(c.next()),
            Source::Table(c) => c.next(),
            Source::Run(c) => c.next(),
        }
    }

    pub fn prev(&mut self) -> Result<bool> {
        match self {
            Source::Writes(c) => Ok(c.prev()),
            Source::Memtable(c) => Ok(c.prev()),
            Source::Table(c) => c.prev(),
            Source::Run(c) => c.prev(),
        }
    }

    pub fn valid(&self) -> bool {
        match self {
            Source::Writes(c) => c.valid(),
            Source::Memtable(c) => c.valid(),
            Source::Table(c) => c.valid(),
            Source::Run(c) => c.valid(),
        }
    }

    pub fn key(&self) -> &[u8] {
        match self {
            Source::Writes(c) => c.key(),
            Source::Memtable(c) => c.key(),
            Source::Table(c) => c.key(),
            Source::Run(c) => c.key(),
        }
    }

    /// Returns true if the visible version is a tombstone.
    pub fn is_tombstone(&self) -> bool {
        match self {
            Source::Writes(c) => c.kind().is_tombstone(),
            Source::Memtable(c) => c.entry().kind == ValueKind::Delete as u8,
            Source::Table(c) => c.kind().is_tombstone(),
            Source::Run(c) => c.kind().is_tombstone(),
        }
    }

    /// Returns the seqno of the visible version; own writes are newer than all commits.
    pub fn seqno(&self) -> SeqNo {
        match self {
            Source::Writes(_) => SeqNo::MAX,
            Source::Memtable(c) => c.entry().seqno,
            Source::Table(c) => c.seqno(),
            Source::Run(c) => c.seqno(),
        }
    }

    pub fn value(&self) -> &[u8] {
        match self {
            Source::Writes(c) => c.value(),
            Source::Memtable(c) => c.entry().value,
            Source::Table(c) => c.value(),
            Source::Run(c) => c.value(),
        }
    }

    /// Returns true if the value is in a value file.
    pub fn is_pointer(&self) -> bool {
        match self {
            Source::Writes(_) | Source::Memtable(_) => false,
            Source::Table(c) => c.kind().is_pointer(),
            Source::Run(c) => c.kind().is_pointer(),
        }
    }

    /// Reads the value from its value file. Only for a separated value.
    pub fn load_value(&self) -> Result<PinnedValue> {
        match self {
            Source::Table(c) => c.load_value(),
            Source::Run(c) => c.load_value(),
            Source::Writes(_) | Source::Memtable(_) => Ok(PinnedValue::from(self.value())),
        }
    }

    /// Makes `row` hold the key and the value stored in place.
    pub fn show(&self, row: &mut HeldRow) {
        match self {
            Source::Table(c) => row.in_block(c.key(), |value| c.keep_value(value)),
            Source::Run(c) => row.in_block(c.key(), |value| c.current().keep_value(value)),
            Source::Writes(_) | Source::Memtable(_) => row.copy(self.key(), self.value()),
        }
    }
}
