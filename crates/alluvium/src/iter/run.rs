//! Cursor over the last level of one group: disjoint tables in key order, one open at a time.

use std::sync::Arc;

use crate::base::{SeqNo, ValueKind};
use crate::error::Result;
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

    fn table_mut(&mut self) -> Option<&mut TableCursor> {
        self.cursor.as_mut()
    }

    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let from = self.group.last_from(key);
        for index in from..self.group.last.len() {
            if self.open(index)
                && let Some(table) = self.table_mut()
                && table.seek(key)?
            {
                return Ok(true);
            }
        }
        self.cursor = None;
        Ok(false)
    }

    pub fn seek_before(&mut self, key: Option<&[u8]>) -> Result<bool> {
        let tables = &self.group.last;
        let end = key.map_or(tables.len(), |k| {
            tables.partition_point(|t| t.first_key() < k)
        });
        for index in (0..end).rev() {
            if self.open(index)
                && let Some(table) = self.table_mut()
                && match key {
                    Some(key) => table.seek_before(key)?,
                    None => table.seek_last()?,
                }
            {
                return Ok(true);
            }
        }
        self.cursor = None;
        Ok(false)
    }

    pub fn next(&mut self) -> Result<bool> {
        let Some(table) = self.table_mut() else {
            return Ok(false);
        };
        if table.next()? {
            return Ok(true);
        }
        for index in self.index + 1..self.group.last.len() {
            if self.open(index)
                && let Some(table) = self.table_mut()
                && table.seek_first()?
            {
                return Ok(true);
            }
        }
        self.cursor = None;
        Ok(false)
    }

    pub fn prev(&mut self) -> Result<bool> {
        let Some(table) = self.table_mut() else {
            return Ok(false);
        };
        if table.prev()? {
            return Ok(true);
        }
        for index in (0..self.index).rev() {
            if self.open(index)
                && let Some(table) = self.table_mut()
                && table.seek_last()?
            {
                return Ok(true);
            }
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
