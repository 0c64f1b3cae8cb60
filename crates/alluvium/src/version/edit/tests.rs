//! Tests of the edit codec: round trips, unknown fields, damage, garbage.

use super::*;
use crate::fuzz::fuzz_decoder;

fn table(id: u64) -> TableRecord {
    TableRecord {
        id: TableId(id),
        uid: id.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        file_bytes: 1 << 20,
        entries: 1000,
        tombstones: 3,
        raw_bytes: 1 << 21,
        first_key: b"apple".to_vec(),
        last_key: b"pear".to_vec(),
        min_seqno: 5,
        max_seqno: SEQNO_MAX,
        global_seqno: Some(SEQNO_MAX),
    }
}

fn full_edit() -> VersionEdit {
    let keyspace = KeyspaceId(3);
    let low = b"a".to_vec();
    VersionEdit {
        next_table: Some(TableId(300)),
        next_segment: Some(SegmentId(0)),
        next_keyspace: Some(KeyspaceId(u32::MAX)),
        last_seqno: Some(99),
        oldest_segment: Some(SegmentId(u64::MAX)),
        read_clock_ms: Some(1_700_000_000_000),
        prepared_logged: true,
        prepared: vec![vec![1; 300], Vec::new()],
        prepared_tables: vec![PreparedTables {
            xid: b"an id".to_vec(),
            tables: vec![(keyspace, table(19)), (KeyspaceId(4), table(20))],
        }],
        resolved: vec![b"another id".to_vec()],
        flushed_seqno: vec![(keyspace, 98), (KeyspaceId(4), 0)],
        created: vec![KeyspaceRecord {
            id: keyspace,
            name: "links".to_owned(),
            options: vec![1, 2, 3],
            created_seqno: 7,
        }],
        dropped: vec![(KeyspaceId(1), 6)],
        renamed: vec![(KeyspaceId(4), "nœuds".to_owned())],
        options_changed: vec![(KeyspaceId(4), vec![9; 200])],
        groups: vec![
            GroupEdit::Split {
                keyspace,
                low: Vec::new(),
                at: low.clone(),
            },
            GroupEdit::AddUpper {
                keyspace,
                low: low.clone(),
                table: table(17),
                run: 12,
            },
            GroupEdit::RemoveUpper {
                keyspace,
                low: low.clone(),
                table: TableId(16),
            },
            GroupEdit::AddLast {
                keyspace,
                low: low.clone(),
                table: table(18),
            },
            GroupEdit::RemoveLast {
                keyspace,
                low: low.clone(),
                table: TableId(15),
            },
            GroupEdit::Join { keyspace, low },
        ],
    }
}

#[test]
fn an_edit_survives_its_encoding() {
    for edit in [full_edit(), VersionEdit::default()] {
        assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit));
    }
}

#[test]
fn an_unknown_field_is_skipped_only_if_it_says_so() {
    let mut bytes = full_edit().encode();
    bytes.extend_from_slice(&[0x80 | 90, 3, 1, 2, 3]);
    assert_eq!(VersionEdit::decode(&bytes), Ok(full_edit()));
    bytes.extend_from_slice(&[90, 0]);
    assert_eq!(
        VersionEdit::decode(&bytes),
        Err(EditError::UnknownField(90))
    );
}

#[test]
fn a_cut_edit_is_refused_except_between_fields() {
    let edit = full_edit();
    let bytes = edit.encode();
    let whole = (0..bytes.len())
        .filter(|&len| VersionEdit::decode(&bytes[..len]).is_ok())
        .count();
    // One cut before each of the 24 fields.
    assert_eq!(whole, 24);
}

#[test]
fn contradictory_or_overlong_fields_are_refused() {
    let twice = [1, 1, 5, 1, 1, 5];
    let too_long = [1, 2, 5, 5];
    let seqno_too_large = {
        let mut bytes = vec![4];
        let mut body = Vec::new();
        put_varint(&mut body, SEQNO_MAX + 1);
        put_bytes(&mut bytes, &body);
        bytes
    };
    let mut upside_down = table(1);
    upside_down.last_key = b"a".to_vec();
    let upside_down = VersionEdit {
        groups: vec![GroupEdit::AddLast {
            keyspace: KeyspaceId(1),
            low: Vec::new(),
            table: upside_down,
        }],
        ..VersionEdit::default()
    };
    for bytes in [
        &twice[..],
        &too_long,
        &seqno_too_large,
        &upside_down.encode(),
    ] {
        let result = VersionEdit::decode(bytes);
        assert!(matches!(result, Err(EditError::Malformed(_))), "{result:?}");
    }
}

#[test]
fn fuzz_edits_are_refused_or_mean_what_their_own_encoding_means() {
    let good = full_edit();
    let empty = VersionEdit::default().encode();
    fuzz_decoder(
        "edits of the manifest",
        &[good.encode(), empty],
        64,
        |bytes| {
            if let Ok(edit) = VersionEdit::decode(bytes) {
                assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit));
            }
        },
    );
}

#[test]
fn tables_with_a_global_seqno_keep_out_readers_that_do_not_know_it() {
    let added = |global_seqno| {
        let table = TableRecord {
            global_seqno,
            ..table(1)
        };
        let (keyspace, low) = (KeyspaceId(1), Vec::new());
        VersionEdit {
            groups: vec![GroupEdit::AddLast {
                keyspace,
                low,
                table,
            }],
            ..VersionEdit::default()
        }
    };
    assert_eq!(added(None).encode()[0], tag::ADD_LAST);
    let bytes = added(Some(7)).encode();
    assert_eq!(bytes[..2], [tag::GLOBAL_SEQNOS, 0]);
    assert_eq!(tag::GLOBAL_SEQNOS & tag::MAY_IGNORE, 0);
    assert_eq!(VersionEdit::decode(&bytes), Ok(added(Some(7))));
}
