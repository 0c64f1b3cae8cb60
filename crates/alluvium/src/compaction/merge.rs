//! Merge of all versions of all keys: [`next_key`], and the loop of flush and compaction that emits
//! folded entries.
//!
//! A group has few inputs, and a compaction must look at the key of each stream anyway to take its
//! versions, so the least key is found by comparison and not by a heap.

use alluvium_mem::MemtableCursor;

use crate::base::{SeqNo, ValueKind};
use crate::compaction::fold::{FoldCounts, FoldRules, Version};
use crate::compaction::retire::Retire;
use crate::error::{Error, Result};
use crate::range_deletes::{Fragment, RangeDeletes};
use crate::table::TableScan;

/// Forward stream of all versions of all keys of one input.
pub(crate) enum Stream {
    Memtable {
        cursor: MemtableCursor,
        /// Exclusive end; `None` is the end of the keyspace.
        end: Option<Vec<u8>>,
    },
    /// Tables in key order that do not overlap, read one after the other.
    Tables(TableSequence),
}

/// Scans of tables in key order, as one stream.
pub(crate) struct TableSequence {
    current: TableScan,
    /// Scans of the later tables, the next one last.
    rest: Vec<TableScan>,
    /// True if `current` is on an entry; otherwise the stream is at its end.
    valid: bool,
}

/// All versions of one key from all streams, newest first, with their values.
#[derive(Default)]
struct Gathered {
    key: Vec<u8>,
    versions: Vec<Version>,
    /// Value of version `at`, as a range of `bytes`.
    values: Vec<std::ops::Range<usize>>,
    bytes: Vec<u8>,
}

impl Gathered {
    /// Replaces the versions by those of the least key of `streams`; returns false at their end.
    fn next(&mut self, streams: &mut [Stream]) -> Result<bool> {
        let Gathered {
            key,
            versions,
            values,
            bytes,
        } = self;
        versions.clear();
        values.clear();
        bytes.clear();
        next_key(streams, key, |seqno, kind, value| {
            let (at, start) = (values.len(), bytes.len());
            bytes.extend_from_slice(value);
            values.push(start..bytes.len());
            versions.push(Version { seqno, kind, at });
        })
    }

    /// Adds the range deletes over the key as versions without a value.
    ///
    /// If the commit of a range delete also wrote the key, that version stands for both. It becomes
    /// covering, or its delete would bring back the rows that the range delete hid.
    ///
    /// If the commit deleted the key, the range delete stands for both. A delete may cancel an
    /// insert and vanish with it, and the rows hidden by the range must not depend on tables that
    /// were skipped because of it.
    fn push_ranges(&mut self, fragment: Fragment<'_>) {
        for &seqno in fragment.seqnos {
            let range = Version {
                seqno,
                kind: ValueKind::RangeDelete,
                at: usize::MAX,
            };
            let at = self.versions.partition_point(|v| v.seqno > seqno);
            match self.versions.get_mut(at) {
                Some(written) if written.seqno != seqno => self.versions.insert(at, range),
                Some(written) if written.kind == ValueKind::Delete => *written = range,
                Some(written) => written.kind = written.kind.covering(),
                None => self.versions.push(range),
            }
        }
    }

    /// Applies expiry and the compaction filter to the newest version.
    fn retire_newest(&mut self, retire: &Retire) -> Result<()> {
        if retire.is_idle() {
            return Ok(());
        }
        let Some(newest) = self.versions.first_mut() else {
            return Ok(());
        };
        let Some(stored) = self.values.get(newest.at).cloned() else {
            return Ok(());
        };
        let replaced = retire.judge(&self.key, newest, &self.bytes[stored])?;
        if let Some(value) = replaced {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&value);
            newest.at = self.values.len();
            self.values.push(start..self.bytes.len());
        }
        Ok(())
    }
}

impl Stream {
    /// Returns a stream over the part of a sealed memtable from `start` to before `end`.
    pub fn memtable(mut cursor: MemtableCursor, start: &[u8], end: Option<&[u8]>) -> Stream {
        cursor.seek(start);
        let end = end.map(<[u8]>::to_vec);
        Stream::Memtable { cursor, end }
    }

    /// Returns a stream over tables in key order; `None` if they are empty.
    pub fn tables(mut scans: Vec<TableScan>) -> Result<Option<Stream>> {
        scans.reverse();
        let Some(current) = scans.pop() else {
            return Ok(None);
        };
        let mut tables = TableSequence {
            current,
            rest: scans,
            valid: true,
        };
        tables.next()?;
        Ok(tables.valid.then_some(Stream::Tables(tables)))
    }

    fn key(&self) -> Option<&[u8]> {
        match self {
            Stream::Memtable { cursor, end } => {
                let key = cursor.valid().then(|| cursor.key())?;
                end.as_deref().is_none_or(|end| key < end).then_some(key)
            }
            Stream::Tables(tables) => tables.valid.then(|| tables.current.key()),
        }
    }

    /// Passes every version of the current key, which is `key`, to `out` and advances to the next
    /// key.
    fn take(&mut self, key: &[u8], mut out: impl FnMut(SeqNo, ValueKind, &[u8])) -> Result<()> {
        match self {
            Stream::Memtable { cursor, .. } => {
                for version in cursor.versions() {
                    out(version.seqno, memtable_kind(version.kind)?, version.value);
                }
                cursor.next();
                Ok(())
            }
            Stream::Tables(tables) => {
                while tables.valid && tables.current.key() == key {
                    let entry = &tables.current;
                    out(entry.seqno(), entry.kind(), entry.value());
                    tables.next()?;
                }
                Ok(())
            }
        }
    }
}

impl TableSequence {
    /// Moves to the next entry, of this table or of a later one.
    fn next(&mut self) -> Result<()> {
        while !self.current.next()? {
            let Some(next) = self.rest.pop() else {
                self.valid = false;
                return Ok(());
            };
            self.current = next;
        }
        Ok(())
    }
}

/// Decodes a kind. Only the engine writes memtables, so an unknown kind is a defect in memory, not
/// on disk.
fn memtable_kind(kind: u8) -> Result<ValueKind> {
    ValueKind::from_u8(kind)
        .ok_or_else(|| Error::Internal(format!("a memtable entry has the unknown kind {kind}")))
}

/// Moves `streams`, given newest first, past their least key. Stores the key in `key` and passes
/// its versions to `out`, newest first, with their values. Returns false at the end of all streams.
pub(crate) fn next_key(
    streams: &mut [Stream],
    key: &mut Vec<u8>,
    mut out: impl FnMut(SeqNo, ValueKind, &[u8]),
) -> Result<bool> {
    let Some(least) = streams.iter().filter_map(Stream::key).min() else {
        return Ok(false);
    };
    key.clear();
    key.extend_from_slice(least);
    for stream in streams.iter_mut() {
        if stream.key() == Some(key) {
            stream.take(key, &mut out)?;
        }
    }
    Ok(true)
}

/// Merges `streams`, given newest first, and passes the entries that the rules keep to `emit` in
/// table order.
///
/// `ranges` holds the range deletes of all inputs, except those that no read point of `rules` tells
/// from newer ones: the fold would drop these, with everything in between. The outputs of a merge
/// above the last level must carry them; in the last level they are written as deletes of the keys
/// that a snapshot still needs.
///
/// `at_key` is called for each key, kept or not, with the sequence number of its newest version;
/// its error ends the merge.
pub(crate) fn merge(
    streams: &mut [Stream],
    ranges: &RangeDeletes,
    retire: &Retire,
    rules: &FoldRules<'_>,
    counts: &mut FoldCounts,
    mut at_key: impl FnMut(SeqNo) -> Result<()>,
    mut emit: impl FnMut(&[u8], SeqNo, ValueKind, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut gathered = Gathered::default();
    // First fragment that ends after the key; not searched before the first key.
    let mut fragment_at: Option<usize> = None;
    while gathered.next(streams)? {
        at_key(gathered.versions.first().map_or(0, |newest| newest.seqno))?;
        let at = fragment_at.get_or_insert_with(|| ranges.first_ending_after(&gathered.key));
        while ranges.get(*at).is_some_and(|f| f.end <= &gathered.key[..]) {
            *at += 1;
        }
        let fragment = ranges.get(*at).filter(|f| f.contains(&gathered.key));
        if let Some(fragment) = fragment {
            gathered.push_ranges(fragment);
        }
        rules.cancel(&mut gathered.versions, counts);
        gathered.retire_newest(retire)?;
        rules.fold(&mut gathered.versions, counts);
        for version in &gathered.versions {
            if version.kind == ValueKind::RangeDelete {
                if rules.bottom {
                    emit(&gathered.key, version.seqno, ValueKind::Delete, &[])?;
                }
                continue;
            }
            let value = match version.kind {
                // Also the value of a retired row.
                ValueKind::Delete => &[],
                _ => &gathered.bytes[gathered.values[version.at].clone()],
            };
            emit(&gathered.key, version.seqno, version.kind, value)?;
        }
    }
    Ok(())
}
