//! The operations of one commit: how callers collect them and how the log stores them.
//!
//! The payload of a commit record is the operations in order of keyspace and key, each
//! `kind: u8, keyspace: varint, key: varint length + bytes, value: varint length + bytes` (no value behind a
//! delete; a range delete's key is the start of its range and its value the end). There is one operation a key, because
//! a commit has one sequence number. A range delete hides older commits only, so its place among the others is
//! without meaning: this build writes range deletes first, and joins those that overlap or touch.

use std::sync::Arc;

use crate::base::coding::{Decoder, put_bytes, put_varint};
use crate::base::{KEY_BYTES_MAX, KeyspaceId, VALUE_BYTES_MAX, ValueKind};
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::keyspace::tree::Tree;
use crate::txn::write_set::{WriteEntry, WriteSet};

/// Writes to any keyspaces that become visible and durable together: see [`crate::Database::write`].
///
/// Later writes of a key replace earlier ones of the same batch. It is in memory until then, and may be written more than
/// once, or cleared and filled again, which spares its allocations. Its methods fail with `InvalidArgument` for keys and
/// values that are too large and for a keyspace of another database than the first, and with `KeyspaceDropped` and
/// `Closed`; the batch stays as it was.
#[derive(Default)]
pub struct WriteBatch {
    writes: WriteSet,
    /// The database of its keyspaces, once it has one.
    database: Option<u64>,
    /// Its keyspaces, each once.
    trees: Vec<Arc<Tree>>,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Writes `value` under `key`, whether or not the key exists.
    pub fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(keyspace, ValueKind::Put, key, value, None)
    }

    /// Writes `value` under `key`, gone from `until_ms` on: see [`Keyspace::put_until`].
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        until_ms: u64,
    ) -> Result<()> {
        self.add(keyspace, ValueKind::Put, key, value, Some(until_ms))
    }

    /// Writes a key that the caller knows to be absent: see [`Keyspace::insert`]. It is the write of the batch that debug
    /// builds refuse where the key exists.
    pub fn insert(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(keyspace, ValueKind::Insert, key, value, None)
    }

    /// Removes `key`, whether or not it exists.
    pub fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.add(keyspace, ValueKind::Delete, key, &[], None)
    }

    /// Removes every key from `start` (inclusive) to `end` (exclusive): see [`Keyspace::delete_range`].
    pub fn delete_range(&mut self, keyspace: &Keyspace, start: &[u8], end: &[u8]) -> Result<()> {
        check_range(start, end)?;
        self.enter(keyspace)?;
        self.writes.delete_range(keyspace.id(), start, end);
        Ok(())
    }

    /// Removes every key that begins with `prefix`: see [`Keyspace::delete_prefix`].
    pub fn delete_prefix(&mut self, keyspace: &Keyspace, prefix: &[u8]) -> Result<()> {
        check_sizes(prefix, &[])?;
        self.enter(keyspace)?;
        self.writes.delete_prefix(keyspace.id(), prefix);
        Ok(())
    }

    fn add(
        &mut self,
        keyspace: &Keyspace,
        kind: ValueKind,
        key: &[u8],
        value: &[u8],
        until_ms: Option<u64>,
    ) -> Result<()> {
        let kind = keyspace.written_as(kind);
        let value = keyspace.stored(kind, value, until_ms)?;
        check_sizes(key, &value)?;
        self.enter(keyspace)?;
        self.writes.put(keyspace.id(), key, kind, &value);
        Ok(())
    }

    /// Takes everything out, and keeps the memory for the next writes.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.trees.clear();
        self.database = None;
    }

    /// Makes the keyspace one of the batch's.
    fn enter(&mut self, keyspace: &Keyspace) -> Result<()> {
        keyspace.check()?;
        let uid = keyspace.db().shared().uid;
        if *self.database.get_or_insert(uid) != uid {
            return Err(Error::InvalidArgument(
                "the batch has keyspaces of another database".into(),
            ));
        }
        if !self.trees.iter().any(|tree| tree.id == keyspace.id()) {
            self.trees.push(Arc::clone(keyspace.tree()));
        }
        Ok(())
    }

    /// The database of its keyspaces.
    pub(crate) fn database(&self) -> Option<u64> {
        self.database
    }

    /// Refuses when one of its keyspaces was dropped since.
    pub(crate) fn check_trees(&self) -> Result<()> {
        self.trees.iter().try_for_each(|tree| tree.check())
    }

    /// Number of keys written, range deletes aside.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn writes(&self) -> &WriteSet {
        &self.writes
    }
}

/// Refuses keys and values that no format can hold.
pub(crate) fn check_sizes(key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        let message = format!(
            "the key has {} bytes, the most is {KEY_BYTES_MAX}",
            key.len()
        );
        return Err(Error::InvalidArgument(message));
    }
    if value.len() > VALUE_BYTES_MAX {
        let message = format!(
            "the value has {} bytes, the most is {VALUE_BYTES_MAX}",
            value.len()
        );
        return Err(Error::InvalidArgument(message));
    }
    Ok(())
}

/// Refuses ranges that no format can hold or that hold no key.
pub(crate) fn check_range(start: &[u8], end: &[u8]) -> Result<()> {
    check_sizes(start, &[])?;
    check_sizes(end, &[])?;
    if start >= end {
        let message = "the range is empty: its end must lie behind its start";
        return Err(Error::InvalidArgument(message.into()));
    }
    Ok(())
}

/// One decoded operation of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op<'a> {
    pub kind: ValueKind,
    pub keyspace: KeyspaceId,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// Appends one operation to a payload.
pub(crate) fn encode_op(out: &mut Vec<u8>, op: &Op<'_>) {
    out.push(op.kind as u8);
    put_varint(out, u64::from(op.keyspace.0));
    put_bytes(out, op.key);
    if op.kind != ValueKind::Delete {
        put_bytes(out, op.value);
    }
}

/// The payload of a commit of these writes.
pub(crate) fn encode_payload(writes: &WriteSet) -> Vec<u8> {
    let mut out = Vec::with_capacity(writes.bytes() + 8 * writes.len());
    for (keyspace, (start, end)) in writes.deleted_ranges() {
        encode_op(
            &mut out,
            &Op {
                kind: ValueKind::RangeDelete,
                keyspace,
                key: start,
                value: end,
            },
        );
    }
    for WriteEntry {
        keyspace,
        key,
        kind,
        value,
    } in writes.iter()
    {
        encode_op(
            &mut out,
            &Op {
                kind,
                keyspace,
                key,
                value,
            },
        );
    }
    out
}

/// The operations of a payload. An `Err(())` item says that the payload is malformed from there on.
pub(crate) struct Ops<'a>(Decoder<'a>);

impl<'a> Ops<'a> {
    pub fn new(payload: &'a [u8]) -> Ops<'a> {
        Ops(Decoder::new(payload))
    }

    fn decode(&mut self) -> Option<Op<'a>> {
        let kind = ValueKind::from_u8(self.0.u8()?)?;
        let keyspace = KeyspaceId(self.0.varint32()?);
        let key = self.0.bytes().filter(|k| k.len() <= KEY_BYTES_MAX)?;
        let value = match kind {
            ValueKind::Delete => &[],
            ValueKind::Insert | ValueKind::Put => {
                self.0.bytes().filter(|v| v.len() <= VALUE_BYTES_MAX)?
            }
            ValueKind::RangeDelete => {
                let end = self.0.bytes().filter(|end| end.len() <= KEY_BYTES_MAX)?;
                (key < end).then_some(end)?
            }
            ValueKind::Upsert | ValueKind::Pointer | ValueKind::InsertPointer => return None,
        };
        Some(Op {
            kind,
            keyspace,
            key,
            value,
        })
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>, ()>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let op = self.decode().ok_or(());
        if op.is_err() {
            self.0 = Decoder::new(&[]);
        }
        Some(op)
    }
}

/// The rows that a payload writes, in key order where its writer was this build. What lies in the range of a range delete
/// is not among them.
pub(crate) fn written_rows(payload: &[u8]) -> impl Iterator<Item = (KeyspaceId, &[u8])> {
    let ops = Ops::new(payload).map_while(Result::ok);
    ops.filter(|op| op.kind != ValueKind::RangeDelete)
        .map(|op| (op.keyspace, op.key))
}

/// Whether a payload has two versions of a row, which no commit has.
pub(crate) fn writes_a_row_twice(payload: &[u8]) -> bool {
    if written_rows(payload).is_sorted_by(|a, b| a < b) {
        return false;
    }
    let mut rows: Vec<_> = written_rows(payload).collect();
    rows.sort_unstable();
    rows.windows(2).any(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz_decoder;

    #[test]
    fn a_payload_round_trips_and_a_cut_one_is_refused() {
        let ops = [
            Op {
                kind: ValueKind::Put,
                keyspace: KeyspaceId(1),
                key: b"a",
                value: b"1",
            },
            Op {
                kind: ValueKind::Delete,
                keyspace: KeyspaceId(300),
                key: b"",
                value: b"",
            },
            Op {
                kind: ValueKind::Insert,
                keyspace: KeyspaceId(7),
                key: &[7; 200],
                value: b"",
            },
        ];
        let mut payload = Vec::new();
        ops.iter().for_each(|op| encode_op(&mut payload, op));
        let decoded: Result<Vec<_>, ()> = Ops::new(&payload).collect();
        assert_eq!(decoded.as_deref(), Ok(&ops[..]));
        for cut in 1..payload.len() {
            let complete = [6, 10].contains(&cut);
            let decoded: Result<Vec<_>, ()> = Ops::new(&payload[..cut]).collect();
            assert_eq!(decoded.is_ok(), complete, "cut at {cut}");
        }
    }

    #[test]
    fn fuzz_operations_are_refused_or_round_trip() {
        let op = |kind, keyspace, key: &[u8], value: &[u8]| {
            let mut payload = Vec::new();
            let keyspace = KeyspaceId(keyspace);
            let op = Op {
                kind,
                keyspace,
                key,
                value,
            };
            encode_op(&mut payload, &op);
            payload
        };
        let samples = [
            op(ValueKind::Put, 1, b"a key", b"its value"),
            op(ValueKind::Delete, 300, b"another", b""),
            op(ValueKind::Insert, 7, &[7; 200], &[1; 300]),
            op(ValueKind::RangeDelete, 1, b"from", b"to"),
        ];
        let all = [samples.concat()];
        fuzz_decoder(
            "operations of a commit",
            &[&samples[..], &all].concat(),
            64,
            |payload| {
                let Ok(ops) = Ops::new(payload).collect::<Result<Vec<_>, ()>>() else {
                    assert!(written_rows(payload).count() <= payload.len());
                    return;
                };
                let mut again = Vec::new();
                ops.iter().for_each(|op| encode_op(&mut again, op));
                assert_eq!(Ops::new(&again).collect::<Result<Vec<_>, ()>>(), Ok(ops));
            },
        );
    }

    #[test]
    fn reserved_kinds_are_refused() {
        let mut payload = Vec::new();
        let op = Op {
            kind: ValueKind::Upsert,
            keyspace: KeyspaceId(1),
            key: b"a",
            value: b"1",
        };
        encode_op(&mut payload, &op);
        assert_eq!(Ops::new(&payload).next(), Some(Err(())));
    }
}
