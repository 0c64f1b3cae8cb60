//! Markers in the log: changes of keyspaces and ingests, at their place in the commit order.
//!
//! Replay needs nothing of them but their number, because the manifest decides what there is. They are there for readers
//! of the log: whoever follows the changes of a database learns from them what came past the commits.

use crate::base::KeyspaceId;
use crate::base::coding::{Decoder, put_bytes, put_varint};

/// What was done to a keyspace. The numbers are stored and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DdlAction {
    Create = 1,
    Drop = 2,
    SetOptions = 3,
}

/// A change of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DdlMarker<'a> {
    pub action: DdlAction,
    pub keyspace: KeyspaceId,
    pub name: &'a str,
    /// Its options in their stored form, after the change; `None` in a log of an older build.
    pub options: Option<&'a [u8]>,
}

/// Payload of a record of a change of a keyspace.
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
    /// `None`: malformed, or a change that this build does not know.
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
        let options = match d.is_empty() {
            true => None,
            false => Some(d.bytes()?),
        };
        Some(DdlMarker {
            action,
            keyspace,
            name,
            options,
        })
    }
}

/// What an ingest brought for one keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IngestedPart {
    pub keyspace: KeyspaceId,
    pub rows: u64,
    pub tables: u64,
}

/// Payload of a record of an ingest.
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

/// What the record of an ingest says; `None`: malformed.
pub(crate) fn decode_ingest(payload: &[u8]) -> Option<Vec<IngestedPart>> {
    let mut d = Decoder::new(payload);
    let count = d.varint()?;
    // Ends: each round takes bytes of the payload.
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
