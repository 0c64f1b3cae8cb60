//! Operations of one commit: how callers collect them and how the log stores them.
//!
//! The payload of a commit record is the operations in order of keyspace and key. Each is
//! `kind: u8, keyspace: varint, key: varint length + bytes, value: varint length + bytes`.
//! A delete has no value; a range delete's key is the start of its range and its value the end.
//! There is one operation per key, because a commit has one sequence number. A range delete hides
//! older commits only, so its position among the operations has no meaning. This build writes range
//! deletes first, and joins those that overlap or touch.

use std::sync::Arc;

use crate::base::coding::{Decoder, put_bytes, put_varint};
use crate::base::{KEY_BYTES_MAX, KeyspaceId, VALUE_BYTES_MAX, ValueKind};
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::keyspace::tree::Tree;
use crate::txn::write_set::{WriteEntry, WriteSet};

/// Set of writes to any keyspaces that become visible and durable together: see
/// [`crate::Database::write`].
///
/// Later writes of a key replace earlier ones of the same batch. The batch is in memory until it is
/// written. It may be written more than once, or cleared and filled again, which saves allocations.
///
/// # Errors
///
/// All methods that add writes leave the batch as it was if they fail. They return
/// `InvalidArgument` for a key or value that is too large and for a keyspace of another database
/// than the first one. They return `KeyspaceDropped` or `Closed` if the keyspace is dropped or its
/// database closed.
#[derive(Default)]
pub struct WriteBatch {
    writes: WriteSet,
    /// Database of the keyspaces; `None` before the first write.
    database: Option<u64>,
    /// Keyspaces written to, each once.
    trees: Vec<Arc<Tree>>,
}

impl WriteBatch {
    /// Creates an empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Writes `value` under `key`, whether or not the key exists.
    pub fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(keyspace, ValueKind::Put, key, value, None)
    }

    /// Writes `value` under `key`; the row expires at `until_ms`: see [`Keyspace::put_until`].
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        until_ms: u64,
    ) -> Result<()> {
        self.add(keyspace, ValueKind::Put, key, value, Some(until_ms))
    }

    /// Writes a key that the caller knows to be absent: see [`Keyspace::insert`]. Debug builds
    /// refuse this write of the batch if the key exists.
    pub fn insert(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(keyspace, ValueKind::Insert, key, value, None)
    }

    /// Removes `key`, whether or not it exists.
    pub fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.add(keyspace, ValueKind::Delete, key, &[], None)
    }

    /// Removes every key from `start` (inclusive) to `end` (exclusive): see
    /// [`Keyspace::delete_range`].
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

    /// Removes all writes and keeps the allocated memory for the next ones.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.trees.clear();
        self.database = None;
    }

    /// Adds the keyspace to the batch.
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

    /// Returns the database of the keyspaces; `None` before the first write.
    pub(crate) fn database(&self) -> Option<u64> {
        self.database
    }

    /// Fails if one of the keyspaces was dropped.
    pub(crate) fn check_trees(&self) -> Result<()> {
        self.trees.iter().try_for_each(|tree| tree.check())
    }

    /// Returns the number of keys written, without range deletes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns true if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn writes(&self) -> &WriteSet {
        &self.writes
    }
}

/// Refuses keys and values too large for the formats.
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

/// Refuses ranges that are too large for the formats or hold no key.
pub(crate) fn check_range(start: &[u8], end: &[u8]) -> Result<()> {
    check_sizes(start, &[])?;
    check_sizes(end, &[])?;
    if start >= end {
        let message = "the range is empty: its end must be after its start";
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

/// Encodes these writes as the payload of a commit.
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

/// Iterator over the operations of a payload. An `Err(())` item means that the payload is malformed
/// from there on.
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
            ValueKind::Pointer | ValueKind::InsertPointer => return None,
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

/// Returns the rows that a payload writes, without those in deleted ranges. They are in key order
/// if this build wrote the payload.
pub(crate) fn written_rows(payload: &[u8]) -> impl Iterator<Item = (KeyspaceId, &[u8])> {
    let ops = Ops::new(payload).map_while(Result::ok);
    ops.filter(|op| op.kind != ValueKind::RangeDelete)
        .map(|op| (op.keyspace, op.key))
}

/// Returns true if a payload writes a row twice. No valid commit does.
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
    fn reserved_and_unknown_kinds_are_refused() {
        let mut payload = Vec::new();
        let op = Op {
            kind: ValueKind::Put,
            keyspace: KeyspaceId(1),
            key: b"a",
            value: b"1",
        };
        encode_op(&mut payload, &op);
        assert!(matches!(Ops::new(&payload).next(), Some(Ok(_))));
        for kind in [0, 5, 8] {
            payload[0] = kind;
            assert_eq!(Ops::new(&payload).next(), Some(Err(())), "{kind}");
        }
    }
}
