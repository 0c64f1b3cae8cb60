//! State of a keyspace that a reader searches: memtables and tables, in one immutable value.
//!
//! A search goes from the newest source to the oldest and ends at the first one that has the key.

use std::sync::Arc;

use crate::base::{SeqNo, ValueKind, checksum};
use crate::error::Result;
use crate::keyspace::found::FoundIn;
use crate::keyspace::memtable::TreeMemtable;
use crate::metrics::{ReadCount, TreeCounters};
use crate::table::{Access, Prefetch, Read, Started, Table};
use crate::version::group::Version;

/// Everything of a keyspace that reads search, newest first.
#[derive(Clone)]
pub(crate) struct TreeState {
    /// Memtable that receives the writes. `None` between a seal and the next write, so that
    /// thousands of idle keyspaces have none.
    pub active: Option<Arc<TreeMemtable>>,
    /// Sealed memtables that wait for their flush, newest first.
    pub sealed: Vec<Arc<TreeMemtable>>,
    /// Groups and tables.
    pub version: Arc<Version>,
    /// Counters of the keyspace.
    pub counters: Arc<TreeCounters>,
}

impl TreeState {
    /// Returns the newest version of `key` at or below `read_point`, in place; `None` if it is
    /// absent or deleted.
    pub fn get(&self, key: &[u8], read_point: SeqNo) -> Result<Option<FoundIn<'_>>> {
        self.find::<Read>(key, read_point, &mut self.counters.gets.read())
    }

    /// As [`TreeState::get`] if everything that it reads is in memory. Otherwise starts a device
    /// read of the first missing block or value.
    pub fn get_or_prefetch(
        &self,
        key: &[u8],
        read_point: SeqNo,
    ) -> Result<Option<FoundIn<'_>>, Started> {
        let mut count = self.counters.gets.read();
        let found = self.find::<Prefetch>(key, read_point, &mut count);
        if found.is_err() {
            count.cancel();
        }
        found
    }

    fn find<A: Access>(
        &self,
        key: &[u8],
        read_point: SeqNo,
        count: &mut ReadCount<'_>,
    ) -> Result<Option<FoundIn<'_>>, A::Stop> {
        let hash = checksum::key_hash(key);
        for memtable in self.memtables() {
            let deleted_at = memtable.deleted_at(key, read_point);
            let entry = if memtable.rows.may_contain(hash) {
                count.source();
                memtable.rows.get(key, read_point)
            } else {
                None
            };
            if let Some(entry) = entry {
                let live = entry.kind != ValueKind::Delete as u8 && entry.seqno >= deleted_at;
                return Ok(live.then_some(FoundIn::Memory(entry.value)));
            }
            if deleted_at > 0 {
                return Ok(None);
            }
        }
        let group = &self.version.groups()[self.version.find(key)];
        let upper = group.upper.iter().map(|u| &u.table);
        for table in upper.chain(group.last_for(key)) {
            if !(table.first_key() <= key && key <= table.last_key()) {
                continue;
            }
            let deleted_at = table.deleted_at(key, read_point);
            if table.may_contain(hash) {
                count.source();
                if let Some(entry) = table.find::<A>(key, read_point)? {
                    let (kind, seqno) = (entry.kind(), entry.seqno());
                    if kind.is_tombstone() || seqno < deleted_at {
                        return Ok(None);
                    }
                    let stored = entry.into_value();
                    return Ok(Some(if kind.is_pointer() {
                        // The block is not held during the read of the value.
                        let pointer = stored.pin();
                        FoundIn::Pinned(A::value(table, &pointer)?)
                    } else {
                        FoundIn::Block(stored)
                    }));
                }
            }
            if deleted_at > 0 {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Returns the newest sequence number at which `key` was written after `snapshot`, if any.
    /// Sources without such new rows are skipped, so that a blind write seldom reads a block.
    pub fn written_after(&self, key: &[u8], snapshot: SeqNo) -> Result<Option<SeqNo>> {
        let hash = checksum::key_hash(key);
        for memtable in self.memtables() {
            if memtable
                .seqno_range()
                .is_none_or(|(_, newest)| newest <= snapshot)
            {
                continue;
            }
            let deleted_at = memtable.deleted_at(key, SeqNo::MAX);
            let entry = memtable.get(key, hash, SeqNo::MAX);
            let newest = entry.map_or(deleted_at, |entry| entry.seqno.max(deleted_at));
            if newest > 0 {
                return Ok((newest > snapshot).then_some(newest));
            }
        }
        let group = &self.version.groups()[self.version.find(key)];
        let upper = group.upper.iter().map(|u| &u.table);
        for table in upper.chain(group.last_for(key)) {
            if table.max_seqno() <= snapshot {
                continue;
            }
            let written = table.newest_seqno(key, hash)?;
            let newest = written.max(Some(table.deleted_at(key, SeqNo::MAX)));
            if let Some(seqno) = newest.filter(|&seqno| seqno > 0) {
                return Ok((seqno > snapshot).then_some(seqno));
            }
        }
        Ok(None)
    }

    /// Returns a key from `start` to `end` (exclusive; `None`: the end of the keyspace) written
    /// after `snapshot`, if any. Sources without such new rows are skipped; the range is walked in
    /// the others, so this costs at most a scan of the range.
    pub fn range_written_after(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        snapshot: SeqNo,
    ) -> Result<Option<Vec<u8>>> {
        let inside = |key: &[u8]| end.is_none_or(|end| key < end);
        for memtable in self.memtables() {
            if memtable
                .seqno_range()
                .is_none_or(|(_, newest)| newest <= snapshot)
            {
                continue;
            }
            let ranges = memtable.range_deletes();
            if let Some(key) = ranges.and_then(|r| r.newer_in(start, end, snapshot)) {
                return Ok(Some(key));
            }
            let mut cursor = memtable.rows.cursor(SeqNo::MAX);
            let mut found = cursor.seek(start);
            while found && inside(cursor.key()) {
                if cursor.entry().seqno > snapshot {
                    return Ok(Some(cursor.key().to_vec()));
                }
                found = cursor.next();
            }
        }
        let from = self.version.find(start);
        for (at, group) in self.version.groups().iter().enumerate().skip(from) {
            if !inside(&group.low) {
                break;
            }
            let start = start.max(&group.low);
            let high = match (end, self.version.high(at)) {
                (Some(end), Some(high)) => Some(end.min(high)),
                (end, high) => end.or(high),
            };
            let upper = group.upper.iter().map(|u| &u.table);
            for table in upper.chain(&group.last) {
                if let Some(key) = table_written_after(table, start, high, snapshot)? {
                    return Ok(Some(key));
                }
            }
        }
        Ok(None)
    }

    /// Returns the memtables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<TreeMemtable>> {
        self.active.iter().chain(&self.sealed)
    }

    /// Returns true if any row is only in memory.
    pub fn has_memtable_rows(&self) -> bool {
        let written = |active: &Arc<TreeMemtable>| !active.is_empty();
        self.active.as_ref().is_some_and(written) || !self.sealed.is_empty()
    }

    /// Returns the bytes of all memtables.
    pub fn memtable_bytes(&self) -> usize {
        self.memtables().map(|m| m.bytes()).sum()
    }
}

/// As [`TreeState::range_written_after`], for one table.
fn table_written_after(
    table: &Arc<Table>,
    start: &[u8],
    end: Option<&[u8]>,
    snapshot: SeqNo,
) -> Result<Option<Vec<u8>>> {
    let inside = |key: &[u8]| end.is_none_or(|end| key < end);
    if table.max_seqno() <= snapshot || table.last_key() < start || !inside(table.first_key()) {
        return Ok(None);
    }
    let ranges = table.range_deletes();
    if let Some(key) = ranges.and_then(|r| r.newer_in(start, end, snapshot)) {
        return Ok(Some(key));
    }
    let mut cursor = table.cursor(SeqNo::MAX);
    let mut found = cursor.seek(start)?;
    while found && inside(cursor.key()) {
        if cursor.seqno() > snapshot {
            return Ok(Some(cursor.key().to_vec()));
        }
        found = cursor.next()?;
    }
    Ok(None)
}
