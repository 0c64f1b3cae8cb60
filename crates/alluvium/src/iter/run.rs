//! Cursor over the last level of one group: disjoint tables in key order, one open at a time.

use std::sync::Arc;

use crate::base::{SeqNo, ValueKind};
use crate::error::Result;
use crate::iter::bounds::Direction;
use crate::table::{PinnedValue, TableCursor};
use crate::version::group::Group;

/// Prefix of a scan, in the form that filters take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrefixProbe {
    /// Length of the prefix in bytes.
    pub bytes: usize,
    /// Hash of the prefix.
    pub hash: u64,
}

/// Cursor over the tables of the last level of `group`.
pub(crate) struct RunCursor {
    group: Arc<Group>,
    read_point: SeqNo,
    prefix: Option<PrefixProbe>,
    /// Index of the table that `cursor` reads; meaningless while `cursor` is `None`.
    index: usize,
    cursor: Option<TableCursor>,
}

impl RunCursor {
    pub fn new(group: Arc<Group>, read_point: SeqNo, prefix: Option<PrefixProbe>) -> RunCursor {
        RunCursor {
            group,
            read_point,
            prefix,
            index: 0,
            cursor: None,
        }
    }

    /// Opens the table at `index`; returns false if its filter rules the prefix out.
    fn open(&mut self, index: usize) -> bool {
        if self.cursor.is_some() && self.index == index {
            return true;
        }
        let table = &self.group.last[index];
        if self
            .prefix
            .is_some_and(|p| !table.may_contain_prefix(p.bytes, p.hash))
        {
            self.cursor = None;
            return false;
        }
        self.index = index;
        self.cursor = Some(table.cursor(self.read_point));
        true
    }

    /// Returns the cursor of the open table.
    pub fn table(&self) -> Option<&TableCursor> {
        self.cursor.as_ref()
    }

    /// Moves to the first key from `edge` on.
    pub fn seek(&mut self, direction: Direction, edge: Option<&[u8]>) -> Result<bool> {
        let tables = &self.group.last;
        let from = match (direction, edge) {
            (Direction::Forward, edge) => Some(self.group.last_from(edge.unwrap_or_default())),
            (Direction::Reverse, Some(edge)) => tables
                .partition_point(|t| t.first_key() < edge)
                .checked_sub(1),
            (Direction::Reverse, None) => tables.len().checked_sub(1),
        };
        self.seek_from(from, direction, edge)
    }

    /// Moves to the next key in `direction`.
    #[inline]
    pub fn step(&mut self, direction: Direction) -> Result<bool> {
        let Some(table) = &mut self.cursor else {
            return Ok(false);
        };
        if step_table(table, direction)? {
            return Ok(true);
        }
        self.seek_from(next(self.index, direction), direction, None)
    }

    /// Seeks in the table at `index`, and in the next ones until one has a key.
    fn seek_from(
        &mut self,
        mut index: Option<usize>,
        direction: Direction,
        edge: Option<&[u8]>,
    ) -> Result<bool> {
        while let Some(at) = index.filter(|&at| at < self.group.last.len()) {
            if self.open(at)
                && let Some(table) = &mut self.cursor
                && seek_table(table, direction, edge)?
            {
                return Ok(true);
            }
            index = next(at, direction);
        }
        self.cursor = None;
        Ok(false)
    }

    pub fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(TableCursor::valid)
    }

    pub fn key(&self) -> &[u8] {
        self.current().key()
    }

    pub fn seqno(&self) -> SeqNo {
        self.current().seqno()
    }

    /// Returns the newest seqno of all tables that overlap the range. Other tables of the level may
    /// be newer, because appends go directly into the last level.
    pub fn newest_in(&self, start: &[u8], end: &[u8]) -> SeqNo {
        let from = self.group.last_from(start);
        let tables = self.group.last[from..].iter();
        let inside = tables.take_while(|t| t.first_key() < end);
        inside.map(|t| t.max_seqno()).max().unwrap_or(0)
    }

    pub fn kind(&self) -> ValueKind {
        self.current().kind()
    }

    pub fn value(&self) -> &[u8] {
        self.current().value()
    }

    pub fn load_value(&self) -> Result<PinnedValue> {
        self.current().load_value()
    }

    /// Returns the cursor of the current table. Panics if this cursor is not valid.
    pub fn current(&self) -> &TableCursor {
        self.cursor.as_ref().expect("the cursor is valid")
    }
}

/// Returns the index after `index` in `direction`.
fn next(index: usize, direction: Direction) -> Option<usize> {
    match direction {
        Direction::Forward => Some(index + 1),
        Direction::Reverse => index.checked_sub(1),
    }
}

/// Moves the cursor of a table to the first key from `edge` on.
pub(super) fn seek_table(
    table: &mut TableCursor,
    direction: Direction,
    edge: Option<&[u8]>,
) -> Result<bool> {
    match (direction, edge) {
        (Direction::Forward, Some(edge)) => table.seek(edge),
        (Direction::Forward, None) => table.seek_first(),
        (Direction::Reverse, Some(edge)) => table.seek_before(edge),
        (Direction::Reverse, None) => table.seek_last(),
    }
}

/// Moves the cursor of a table to the next key in `direction`.
#[inline]
pub(super) fn step_table(table: &mut TableCursor, direction: Direction) -> Result<bool> {
    match direction {
        Direction::Forward => table.next(),
        Direction::Reverse => table.prev(),
    }
}
