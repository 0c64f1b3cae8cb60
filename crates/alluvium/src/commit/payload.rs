//! Payload of a commit: its operations as the log stores them.
//!
//! The payload of a commit record is the operations in order of keyspace and key. Each is
//! `kind: u8, keyspace: varint, key: varint length + bytes, value: varint length + bytes`.
//! A delete has no value; a range delete's key is the start of its range and its value the end.
//! There is one operation per key, because a commit has one sequence number. A range delete hides
//! older commits only, so its position among the operations has no meaning. This build writes range
//! deletes first, and joins those that overlap or touch.

use crate::base::coding::{Decoder, put_bytes, put_varint};
use crate::base::{KEY_BYTES_MAX, KeyspaceId, VALUE_BYTES_MAX, ValueKind};
use crate::error::{Error, Result};
use crate::txn::write_set::{WriteEntry, WriteSet};

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

impl Op<'_> {
    /// Returns true if the operation is a range delete that covers this row.
    pub fn deletes_range_of(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
        let is_inside = self.key <= key && key < self.value;
        self.kind == ValueKind::RangeDelete && self.keyspace == keyspace && is_inside
    }
}

/// Most bytes of an operation besides key and value: its kind and three varints.
const OP_BYTES_MAX: usize = 16;

/// Encodes the payload of a commit of one operation.
pub(crate) fn encode_one(op: &Op<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(OP_BYTES_MAX + op.key.len() + op.value.len());
    encode_op(&mut out, op);
    out
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
    fn one_operation_alone_has_the_bytes_of_a_set_of_one() {
        let keyspace = KeyspaceId(300);
        let rows: [(&[u8], &[u8]); 3] = [(b"", b""), (b"key", b"value"), (&[7; 200], &[1; 300])];
        for (key, value) in rows {
            for kind in [ValueKind::Put, ValueKind::Insert, ValueKind::Delete] {
                let mut writes = WriteSet::new();
                writes.put(keyspace, key, kind, value);
                let op = Op {
                    kind,
                    keyspace,
                    key,
                    value,
                };
                assert_eq!(encode_one(&op), encode_payload(&writes), "{op:?}");
            }
        }
        let mut writes = WriteSet::new();
        writes.delete_range(keyspace, b"from", b"to");
        let op = Op {
            kind: ValueKind::RangeDelete,
            keyspace,
            key: b"from",
            value: b"to",
        };
        assert_eq!(encode_one(&op), encode_payload(&writes));
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
