//! One input of a merge: writes, a memtable, a table, or the last level of a group.

use alluvium_mem::MemtableCursor;

use crate::base::{SeqNo, ValueKind};
use crate::error::Result;
use crate::iter::bounds::Direction;
use crate::iter::held_row::HeldRow;
use crate::iter::run::{RunCursor, seek_table, step_table};
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
    /// Moves to the first key from `edge` on.
    pub fn seek(&mut self, direction: Direction, edge: Option<&[u8]>) -> Result<bool> {
        match (self, direction, edge) {
            (Source::Writes(c), Direction::Forward, edge) => c.seek(edge.unwrap_or_default()),
            (Source::Writes(c), Direction::Reverse, edge) => c.seek_before(edge),
            (Source::Memtable(c), Direction::Forward, Some(edge)) => Ok(c.seek(edge)),
            (Source::Memtable(c), Direction::Forward, None) => Ok(c.seek_first()),
            (Source::Memtable(c), Direction::Reverse, Some(edge)) => Ok(c.seek_before(edge)),
            (Source::Memtable(c), Direction::Reverse, None) => Ok(c.seek_last()),
            (Source::Table(c), direction, edge) => seek_table(c, direction, edge),
            (Source::Run(c), direction, edge) => c.seek(direction, edge),
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

    /// Moves to the next key in `direction`.
    #[inline]
    pub fn step(&mut self, direction: Direction) -> Result<bool> {
        match (self, direction) {
            (Source::Writes(c), Direction::Forward) => c.next(),
            (Source::Writes(c), Direction::Reverse) => c.prev(),
            (Source::Memtable(c), Direction::Forward) => Ok(c.next()),
            (Source::Memtable(c), Direction::Reverse) => Ok(c.prev()),
            (Source::Table(c), direction) => step_table(c, direction),
            (Source::Run(c), direction) => c.step(direction),
        }
    }

    /// Returns true if these are a transaction's own writes.
    pub fn is_own(&self) -> bool {
        matches!(self, Source::Writes(_))
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
