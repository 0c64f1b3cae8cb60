//! Round trips of keys and values of every shape; limits and order are enforced.

use super::*;
use crate::base::SEQNO_MAX;
use crate::table::block::DecodedBlock;
use ValueKind::{Delete, Insert, Put};
use alluvium_mem::frames::Space;

const CODECS: [Codec; 4] = [Codec::None, Codec::Lz4, Codec::Zstd, Codec::ZstdDictionary];

/// Builds, verifies and scans with every codec, and with blocks of about one row up to many.
fn round_trips(entries: &[Entry]) {
    for codec in CODECS {
        for block_bytes in [512, 8 << 10, 64 << 10] {
            let options = TableOptions {
                sample_bytes: 16 << 10,
                ..options(block_bytes, codec)
            };
            let table = open(build(entries, &options)).expect("a fresh table opens");
            table.verify().expect("a fresh table is right");
            assert_eq!(scan(&table, None, None).expect("readable"), entries);
            for e in entries {
                let found = get(&table, &e.key, e.seqno).expect("readable");
                assert_eq!(found.as_ref(), Some(e), "{codec:?}, {block_bytes}");
            }
        }
    }
}

#[test]
fn fixed_width_rows_round_trip() {
    let rows = (0..2000u64).map(|i| {
        let key = [(i / 7).to_be_bytes(), (i * i).to_be_bytes()].concat();
        (key, i)
    });
    let mut entries: Vec<Entry> = rows
        .map(|(key, i)| entry(&key, 0, Put, &(i % 100).to_le_bytes().repeat(3)))
        .collect();
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    round_trips(&entries);
}

#[test]
fn rows_of_any_width_and_kind_round_trip() {
    let mut random = Random::new(7);
    let mut keys: Vec<Vec<u8>> = (0..1500)
        .map(|_| {
            let length = random.below(40) as usize;
            let stem = [b"", &b"common/stem/"[..]][random.below(2) as usize];
            [stem, &random.bytes(length)].concat()
        })
        .collect();
    keys.push(Vec::new());
    keys.sort();
    keys.dedup();
    let entries: Vec<Entry> = keys
        .iter()
        .map(|key| {
            let kind = [Insert, Put, Delete][random.below(3) as usize];
            let length = random.below(200) as usize;
            entry(key, random.below(1 << 40), kind, &random.bytes(length))
        })
        .collect();
    round_trips(&entries);
}

#[test]
fn one_entry_with_an_empty_key_and_value_round_trips() {
    round_trips(&[entry(b"", 0, Put, b"")]);
    round_trips(&[entry(b"", SEQNO_MAX, Delete, b"")]);
}

#[test]
fn many_versions_of_one_key_span_blocks() {
    let mut entries = vec![entry(b"a", 5, Put, b"before")];
    entries.extend(
        (0..5000u64)
            .rev()
            .map(|s| entry(b"hot", s * 2, Put, &s.to_le_bytes())),
    );
    entries.push(entry(b"hot\0", 5, Put, b"after"));
    round_trips(&entries);
    let bytes = build(&entries, &options(512, Codec::Lz4));
    let table = open(bytes).expect("opens");
    assert!(table.blocks() > 10);
    let hash = key_hash(b"hot");
    assert_eq!(
        table.newest_seqno(b"hot", hash).expect("readable"),
        Some(9998)
    );
    let between = get(&table, b"hot", 7).expect("readable").map(|e| e.seqno);
    assert_eq!(between, Some(6));
}

#[test]
fn versions_of_a_key_stay_in_one_block_where_they_fit() {
    let mut entries = Vec::new();
    for key in 0..200u32 {
        let key = key.to_be_bytes();
        entries.extend((0..10).rev().map(|s| entry(&key, s, Put, &[7; 10])));
    }
    let table = open(build(&entries, &options(512, Codec::Lz4))).expect("opens");
    assert!(table.blocks() > 20);
    let block = |index| table.read_block(index, Space::alone).expect("readable");
    for index in 1..table.blocks() {
        let before = block(index - 1);
        let before = DecodedBlock(&before);
        let last = before.row(before.len() - 1);
        let key = [last.prefix, last.suffix].concat();
        assert!(!DecodedBlock(&block(index)).key_is(0, &key));
    }
}

#[test]
fn oversize_rows_round_trip_between_small_ones() {
    let long_key = vec![b'k'; 65_535];
    let entries = [
        entry(b"a", 1, Put, b"small"),
        entry(b"b", 9, Put, &vec![b'x'; 3 << 20]),
        entry(b"b", 8, Put, b"older and small"),
        entry(b"c", 1, Put, b"small"),
        entry(&long_key, 1, Put, &Random::new(1).bytes(70_000)),
        entry(&[&long_key[..65_534], b"l"].concat(), 0, Delete, b""),
        entry(b"z", 1, Put, b"small"),
    ];
    round_trips(&entries);
}

#[test]
fn summary_counts_what_was_added_and_comes_back_on_open() {
    let entries = [
        entry(b"a", 9, Insert, b"1"),
        entry(b"b", 8, Delete, b""),
        entry(b"b", 3, Put, b"22"),
        entry(b"cc", 4, Put, b"333"),
    ];
    let file = MemFile::new(Vec::new());
    let shared: Arc<dyn VfsFile> = file.clone();
    let mut builder = TableBuilder::new(shared, UID, KeyspaceId(5), &TableOptions::default());
    for e in &entries {
        builder
            .add(&e.key, e.seqno, e.kind, &e.value)
            .expect("in order");
    }
    builder.set_user_property(b"owner", b"test");
    let summary = builder.finish().expect("memory files do not fail");
    assert_eq!(
        (summary.entries, summary.tombstones, summary.inserts),
        (4, 1, 1)
    );
    assert_eq!((summary.min_seqno, summary.max_seqno), (3, 9));
    assert_eq!(
        (&summary.first_key[..], &summary.last_key[..]),
        (&b"a"[..], &b"cc"[..])
    );
    assert_eq!(summary.raw_bytes, 11);
    let table = open(file.0.lock().clone()).expect("opens");
    assert_eq!(table.summary(), summary);
    assert_eq!(table.properties().keyspaces[0].keyspace, KeyspaceId(5));
    assert_eq!(
        table.properties().user,
        [(b"owner".to_vec(), b"test".to_vec())]
    );
}

#[test]
fn entries_out_of_order_or_beyond_the_limits_are_refused() {
    let file: Arc<dyn VfsFile> = MemFile::new(Vec::new());
    let mut builder = TableBuilder::new(file, UID, KeyspaceId(1), &TableOptions::default());
    builder.add(b"m", 5, Put, b"").expect("the first entry");
    for (key, seqno) in [(&b"m"[..], 5), (b"m", 6), (b"l", 1), (b"", 1)] {
        let refused = builder.add(key, seqno, Put, b"");
        assert!(matches!(refused, Err(crate::Error::Internal(_))), "{seqno}");
    }
    assert!(builder.add(&[b'z'; 65_536], 1, Put, b"").is_err());
    assert!(builder.add(b"z", SEQNO_MAX + 1, Put, b"").is_err());
    assert!(builder.add(b"z", 1, ValueKind::RangeDelete, b"zz").is_err());
    builder.add(b"m", 4, Put, b"").expect("an older version");
    builder.add(b"n", 9, Put, b"").expect("a larger key");
    assert_eq!(builder.entries(), 3);
}

#[test]
fn a_table_without_entries_is_refused() {
    let file: Arc<dyn VfsFile> = MemFile::new(Vec::new());
    let builder = TableBuilder::new(file, UID, KeyspaceId(1), &TableOptions::default());
    assert!(matches!(builder.finish(), Err(crate::Error::Internal(_))));
}

#[test]
fn stored_bytes_estimates_the_file_within_a_quarter() {
    let file: Arc<dyn VfsFile> = MemFile::new(Vec::new());
    let options = options(8 << 10, Codec::Lz4);
    let mut builder = TableBuilder::new(file, UID, KeyspaceId(1), &options);
    let mut random = Random::new(3);
    for i in 0..100_000u64 {
        builder
            .add(
                &i.to_be_bytes(),
                0,
                Put,
                &[&random.bytes(20)[..], &[0; 20]].concat(),
            )
            .expect("in order");
    }
    let estimate = builder.stored_bytes();
    let filter = 100_000 * 10 / 8;
    let actual = builder
        .finish()
        .expect("memory files do not fail")
        .file_bytes
        - filter;
    assert!(
        estimate.abs_diff(actual) < actual / 4,
        "{estimate} for {actual}"
    );
}
