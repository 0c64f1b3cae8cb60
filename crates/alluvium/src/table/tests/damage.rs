//! Tests of damaged files: every flipped bit is an error, and nothing panics.

use super::*;
use crate::Error;
use crate::base::checksum::{checksum, place_seed};
use crate::range_deletes::Fragmenter;
use crate::table::PrefixFilter;
use crate::table::footer::FOOTER_BYTES;

/// Returns rows and their table file of about 6 KiB with both filters, several blocks, versions,
/// range deletes and every column.
fn sample() -> (Vec<Entry>, Vec<u8>) {
    let mut random = Random::new(11);
    let mut entries = Vec::new();
    for i in 0..120u32 {
        let key = format!("row-{:05}", i * 7);
        for version in (0..=random.below(2)).rev() {
            let kind = [ValueKind::Put, ValueKind::Insert, ValueKind::Delete];
            let kind = kind[random.below(3) as usize];
            let length = random.below(30) as usize;
            entries.push(entry(key.as_bytes(), version, kind, &random.bytes(length)));
        }
    }
    let mut options = options(1024, Codec::Lz4);
    options.filter.prefix = Some(PrefixFilter { bytes: 7, bits: 10 });
    let bytes = build_with(&entries, ranges(), &options);
    assert!((4000..9000).contains(&bytes.len()), "{}", bytes.len());
    (entries, bytes)
}

fn ranges() -> RangeDeletes {
    let mut ranges = Fragmenter::default();
    ranges.add((b"row-00010", b"row-00300"), 3);
    ranges.add((b"row-00200", b"row-00900"), 9);
    ranges.finish(&[])
}

/// Returns the scanned entries, or the first error. Returns no entries if the range deletes or the
/// answer of a get are wrong.
fn answers(bytes: Vec<u8>) -> Result<Vec<Entry>> {
    let table = open(bytes)?;
    let entries = scan(&table, None, None)?;
    if table.range_deletes().map(|own| &**own) != Some(&ranges()) {
        return Ok(Vec::new());
    }
    for e in &entries {
        if get(&table, &e.key, e.seqno)?.as_ref() != Some(e) {
            return Ok(Vec::new());
        }
    }
    Ok(entries)
}

#[test]
fn every_flipped_bit_is_an_error_or_changes_no_answer() {
    let (entries, bytes) = sample();
    let mut unnoticed = 0;
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match answers(damaged) {
            Ok(found) => {
                assert_eq!(found, entries, "bit {bit}");
                unnoticed += 1;
            }
            Err(Error::Corruption { path, .. }) => assert_eq!(path, Path::new("000017.sst")),
            Err(Error::NewerFormat { .. }) => {}
            Err(other) => panic!("bit {bit}: {other}"),
        }
    }
    assert_eq!(unnoticed, 0, "every byte is under a checksum");
}

#[test]
fn a_file_cut_at_any_length_does_not_open() {
    let (_, bytes) = sample();
    for length in 0..bytes.len() {
        let cut = open(bytes[..length].to_vec()).map(|_| ());
        assert!(matches!(cut, Err(Error::Corruption { .. })), "{length}");
    }
}

#[test]
fn a_file_with_another_uid_does_not_open() {
    let (_, bytes) = sample();
    let cache = Cache::of_bytes(0);
    let opened = Table::open(MemFile::new(bytes), TableId(17), UID + 1, cache).map(|_| ());
    assert!(matches!(
        opened,
        Err(Error::Corruption {
            what: "file uid",
            ..
        })
    ));
}

#[test]
fn a_block_from_another_place_or_file_is_refused() {
    let rows = |value: u8| {
        let row = |i: u32| entry(&i.to_be_bytes(), 0, ValueKind::Put, &[value; 60]);
        let entries: Vec<Entry> = (0..200).map(row).collect();
        build(&entries, &options(1024, Codec::None))
    };
    let bytes = rows(1);
    let table = open(bytes.clone()).expect("opens");
    let (first, second) = (table.fences.block_range(1), table.fences.block_range(2));
    assert_eq!(first.end - first.start, second.end - second.start);
    let mut swapped = bytes.clone();
    let length = (first.end - first.start) as usize;
    swapped[first.start as usize..][..length]
        .copy_from_slice(&bytes[second.start as usize..][..length]);
    let damaged = open(swapped).expect("blocks are read later");
    assert!(
        matches!(scan(&damaged, None, None), Err(Error::Corruption { offset, .. }) if offset == first.start)
    );
}

/// Returns the sample with one footer field overwritten and the footer's checksum corrected.
fn with_footer_field(at: usize, field: &[u8]) -> Vec<u8> {
    let (_, mut bytes) = sample();
    let start = bytes.len() - FOOTER_BYTES;
    let footer = &mut bytes[start..];
    footer[at..at + field.len()].copy_from_slice(field);
    let sum = checksum(&footer[8..], place_seed(UID, start as u64));
    footer[..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn newer_versions_and_unknown_must_know_features_are_refused_as_newer() {
    for bytes in [
        with_footer_field(176, &2u32.to_le_bytes()),
        with_footer_field(24, &3u32.to_le_bytes()),
        with_footer_field(24, &(1u32 << 31).to_le_bytes()),
    ] {
        let opened = open(bytes).map(|_| ());
        assert!(matches!(
            opened,
            Err(Error::NewerFormat { supported: 1, .. })
        ));
    }
}

#[test]
fn a_section_of_range_deletes_and_its_feature_bit_come_together() {
    for bytes in [
        with_footer_field(24, &0u32.to_le_bytes()),
        with_footer_field(96, &[0; 16]),
    ] {
        let opened = open(bytes).map(|_| ());
        assert!(matches!(opened, Err(Error::Corruption { .. })));
    }
}

#[test]
fn unknown_may_ignore_features_are_ignored() {
    let (entries, _) = sample();
    let bytes = with_footer_field(28, &u32::MAX.to_le_bytes());
    assert_eq!(answers(bytes).expect("readable"), entries);
}

#[test]
fn handles_beyond_the_file_are_refused_without_reading_them() {
    for handle in 0..8 {
        for (offset, length) in [(u64::MAX, 8), (8, u64::MAX), (0, 1 << 40)] {
            let field = [u64::to_le_bytes(offset), length.to_le_bytes()].concat();
            let opened = open(with_footer_field(32 + handle * 16, &field)).map(|_| ());
            assert!(matches!(opened, Err(Error::Corruption { .. })));
        }
    }
}

#[test]
fn verify_finds_a_table_whose_properties_lie() {
    let (_, bytes) = sample();
    let mut table = open(bytes).expect("opens");
    let lying = Arc::get_mut(&mut table).expect("the only user");
    lying.properties.tombstones += 1;
    assert!(matches!(lying.verify(), Err(Error::Corruption { .. })));
}
