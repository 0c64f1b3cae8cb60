//! Codec of log records that mark keyspace changes and ingests at their place in the commit order.
//!
//! Replay uses only the sequence numbers of markers, because the manifest decides which keyspaces
//! and tables exist. Markers are for readers of the log: a follower of a database's changes finds
//! in them the changes that are not commits.

use crate::base::KeyspaceId;
use crate::base::coding::{Decoder, put_bytes, put_varint};

/// Change made to a keyspace. The numbers are stored and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DdlAction {
    Create = 1,
    Drop = 2,
    SetOptions = 3,
}

/// Marker of a keyspace change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DdlMarker<'a> {
    pub action: DdlAction,
    pub keyspace: KeyspaceId,
    pub name: &'a str,
    /// Options of the keyspace after the change, in their stored form; `None` in a log of an older
    /// build.
    pub options: Option<&'a [u8]>,
}

/// Encodes the payload of a keyspace change record.
pub(crate) fn ddl_marker(
    action: DdlAction,
    keyspace: KeyspaceId,
    name: &str,
    options: &[u8],
) -> Vec<u8> {
    let mut out = vec![action as u8];
    put_varint(&mut out, u64::from(keyspace.0));
    put_bytes(&mut out, name.as_bytes());
    put_bytes(&mut out, options);
    out
}

impl<'a> DdlMarker<'a> {
    /// Decodes a payload. Returns `None` if it is malformed or holds a change unknown to this
    /// build.
    pub fn decode(payload: &'a [u8]) -> Option<DdlMarker<'a>> {
        let mut d = Decoder::new(payload);
        let action = match d.u8()? {
            1 => DdlAction::Create,
            2 => DdlAction::Drop,
            3 => DdlAction::SetOptions,
            _ => return None,
        };
        let keyspace = KeyspaceId(d.varint32()?);
        let name = std::str::from_utf8(d.bytes()?).ok()?;
        let options = if d.is_empty() { None } else { Some(d.bytes()?) };
        Some(DdlMarker {
            action,
            keyspace,
            name,
            options,
        })
    }
}

/// Rows and tables that an ingest added to one keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IngestedPart {
    pub keyspace: KeyspaceId,
    pub rows: u64,
    pub tables: u64,
}

/// Encodes the payload of an ingest record.
pub(crate) fn ingest_marker(parts: &[IngestedPart]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, parts.len() as u64);
    for part in parts {
        put_varint(&mut out, u64::from(part.keyspace.0));
        put_varint(&mut out, part.rows);
        put_varint(&mut out, part.tables);
    }
    out
}

/// Decodes the payload of an ingest record; `None` if it is malformed.
pub(crate) fn decode_ingest(payload: &[u8]) -> Option<Vec<IngestedPart>> {
    let mut d = Decoder::new(payload);
    let count = d.varint()?;
    // Terminates: each round consumes bytes of the payload.
    let parts = (0..count).map(|_| {
        Some(IngestedPart {
            keyspace: KeyspaceId(d.varint32()?),
            rows: d.varint()?,
            tables: d.varint()?,
        })
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz_decoder;

    #[test]
    fn changes_of_keyspaces_round_trip_and_older_ones_have_no_options() {
        let marker = ddl_marker(DdlAction::Drop, KeyspaceId(300), "users", &[1, 2]);
        let read = DdlMarker::decode(&marker).unwrap();
        let (action, keyspace) = (DdlAction::Drop, KeyspaceId(300));
        let expected = DdlMarker {
            action,
            keyspace,
            name: "users",
            options: Some(&[1, 2]),
        };
        assert_eq!(read, expected);
        let older = DdlMarker::decode(&marker[..marker.len() - 3]).unwrap();
        assert_eq!(older.options, None);
        assert_eq!(DdlMarker::decode(&marker[..marker.len() - 1]), None);
        assert_eq!(DdlMarker::decode(&[4, 0, 0]), None);
    }

    #[test]
    fn ingests_round_trip_and_cut_ones_are_refused() {
        let part = |id, rows, tables| IngestedPart {
            keyspace: KeyspaceId(id),
            rows,
            tables,
        };
        let parts = [part(1, 1000, 2), part(900, 1, 1)];
        let marker = ingest_marker(&parts);
        assert_eq!(decode_ingest(&marker).as_deref(), Some(&parts[..]));
        assert!((0..marker.len()).all(|cut| decode_ingest(&marker[..cut]).is_none()));
    }

    #[test]
    fn fuzz_changes_of_keyspaces_are_refused_or_round_trip() {
        let samples = [
            ddl_marker(DdlAction::Create, KeyspaceId(1), "users", &[1, 2, 3]),
            ddl_marker(DdlAction::Drop, KeyspaceId(300), "ü", &[]),
            ddl_marker(DdlAction::SetOptions, KeyspaceId(u32::MAX), "", &[7; 20]),
        ];
        fuzz_decoder("changes of keyspaces", &samples, 8, |payload| {
            let Some(read) = DdlMarker::decode(payload) else {
                return;
            };
            let options = read.options.unwrap_or_default();
            let again = ddl_marker(read.action, read.keyspace, read.name, options);
            let expected = DdlMarker {
                options: Some(options),
                ..read
            };
            assert_eq!(DdlMarker::decode(&again), Some(expected));
        });
    }

    #[test]
    fn fuzz_records_of_ingests_are_refused_or_round_trip() {
        let part = |id, rows, tables| IngestedPart {
            keyspace: KeyspaceId(id),
            rows,
            tables,
        };
        let parts: Vec<_> = (0..9u64).map(|i| part(1 << i, 1 << (7 * i), i)).collect();
        let samples = [ingest_marker(&parts), ingest_marker(&parts[..1])];
        fuzz_decoder("records of ingests", &samples, 64, |payload| {
            if let Some(read) = decode_ingest(payload) {
                assert_eq!(decode_ingest(&ingest_marker(&read)), Some(read));
            }
        });
    }
}
