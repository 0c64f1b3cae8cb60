//! Tests of blocks: the two layouts against each other, and decoders against garbage.

use super::*;
use crate::base::checksum::{checksum, place_seed};
use crate::base::coding::Decoder;
use crate::base::{SeqNo, ValueKind};
use crate::fuzz::fuzz_decoder;
use crate::table::block::decode::lay_out;
use crate::table::codec::{Codec, Packer, Unpacker};
use crate::table::fences::Fences;
use crate::table::filters::TableFilter;
use crate::table::malformed::Malformed;
use crate::table::properties::Properties;
use crate::table::section::{Layout, Origin, Place, Section, open_section, put_section};
use alluvium_mem::frames::Space;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

type Rows = BTreeMap<(Vec<u8>, std::cmp::Reverse<SeqNo>), (u8, Vec<u8>)>;

fn rows(
    key: impl Strategy<Value = Vec<u8>>,
    seqno: impl Strategy<Value = SeqNo>,
    value: impl Strategy<Value = Vec<u8>>,
) -> impl Strategy<Value = Rows> {
    let seqno = seqno.prop_map(std::cmp::Reverse);
    proptest::collection::btree_map((key, seqno), (1u8..=3, value), 1..80)
}

fn any_rows() -> impl Strategy<Value = Rows> {
    use proptest::collection::vec;
    prop_oneof![
        // Fixed widths, like index keys.
        (1usize..40, 0usize..70).prop_flat_map(|(key, value)| rows(
            vec(0u8..3, key),
            Just(0),
            vec(any::<u8>(), value)
        )),
        // Fixed keys, any values, and any seqno.
        rows(
            vec(0u8..2, 12),
            any::<u64>().prop_map(|s| s >> 8),
            vec(any::<u8>(), 0..20)
        ),
        // Anything, with many versions of few keys.
        rows(vec(0u8..2, 0..5), 0u64..9, vec(any::<u8>(), 0..90)),
        rows(vec(any::<u8>(), 0..300), 0u64..3, vec(any::<u8>(), 8)),
    ]
}

fn encode(rows: &Rows, order: ValueOrder) -> Vec<u8> {
    let mut open = OpenBlock::default();
    for ((key, seqno), (kind, value)) in rows {
        let kind = ValueKind::from_u8(*kind).unwrap_or(ValueKind::Put);
        open.push(key, seqno.0, kind, value);
    }
    let mut raw = Vec::new();
    open.encode(order, &mut raw);
    raw
}

fn decode(layout: Layout, entries: u32, raw: &[u8]) -> Result<BlockFrame, Malformed> {
    lay_out(&section(layout, entries, raw), Space::alone)
}

fn origin(uid: u64, offset: u64) -> Origin<'static> {
    Origin {
        uid,
        offset,
        dictionary: None,
    }
}

fn section(layout: Layout, entries: u32, raw: &[u8]) -> Section<'_> {
    Section {
        layout,
        entries,
        raw,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn decoded_rows_are_the_encoded_ones_in_either_value_order(rows in any_rows()) {
        for order in [ValueOrder::Rows, ValueOrder::Planes] {
            let raw = encode(&rows, order);
            let frame = decode(Layout::Columns, rows.len() as u32, &raw).expect("decodes");
            let block = DecodedBlock(&frame);
            prop_assert_eq!(block.len(), rows.len());
            for (slot, ((key, seqno), (kind, value))) in rows.iter().enumerate() {
                let row = block.row(slot);
                prop_assert_eq!(&[row.prefix, row.suffix].concat(), key);
                prop_assert!(block.key_is(slot, key));
                prop_assert_eq!((row.seqno, row.kind as u8, row.value), (seqno.0, *kind, &value[..]));
            }
        }
    }

    #[test]
    fn seek_finds_the_first_slot_at_or_after_any_key(
        rows in any_rows(),
        needles in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..20), 30),
    ) {
        let raw = encode(&rows, ValueOrder::Rows);
        let frame = decode(Layout::Columns, rows.len() as u32, &raw).expect("decodes");
        let block = DecodedBlock(&frame);
        let keys: Vec<&Vec<u8>> = rows.keys().map(|(key, _)| key).collect();
        let own = keys.iter().map(|key| (*key).clone());
        for needle in needles.into_iter().chain(own) {
            let expected = keys.partition_point(|key| **key < needle);
            prop_assert_eq!(block.seek(&needle), expected);
        }
    }
}

/// A valid section of each kind, to be damaged.
fn samples() -> Vec<(Layout, u32, Vec<u8>)> {
    let mut rows = Rows::new();
    for i in 0..40u8 {
        let key = vec![b'k', i / 2, i, 7];
        let value = vec![i; 3 + usize::from(i % 5)];
        rows.insert((key, std::cmp::Reverse(u64::from(i))), (1 + i % 3, value));
    }
    let mut one_row = Vec::new();
    encode_one_row(b"key", 9, ValueKind::Put, &[7; 60], &mut one_row);
    vec![
        (Layout::Columns, 40, encode(&rows, ValueOrder::Rows)),
        (Layout::OneRow, 1, one_row),
    ]
}

/// Decodes the bytes as every kind of section, because a damaged layout byte is not to be trusted.
fn decode_all(layout: Layout, entries: u32, raw: &[u8]) {
    let section = section(layout, entries, raw);
    let mut asked = 0;
    let decoded = lay_out(&section, |bytes| {
        asked = bytes;
        Space::alone(bytes)
    });
    assert!(asked <= 1024 + 17 * raw.len(), "{asked} for {}", raw.len());
    if let Ok(frame) = decoded {
        let block = DecodedBlock(&frame);
        for slot in 0..block.len() {
            let row = block.row(slot);
            block.seek(&[row.prefix, row.suffix].concat());
        }
    }
    if let Ok(fences) = Fences::decode(&section, raw.len() as u64) {
        assert!(fences.resident_bytes() <= 1024 + 32 * raw.len());
        fences.find(raw);
    }
    if let Ok(filter) = TableFilter::decode(&section) {
        assert!(filter.resident_bytes() <= 128 + 2 * raw.len());
        filter.admits(raw);
    }
    let _ = Properties::decode(raw).map(|p| p.entries);
}

#[test]
fn fuzz_sections_are_refused_or_readable_and_never_take_much_memory() {
    let layouts = [
        Layout::Columns,
        Layout::OneRow,
        Layout::Fences,
        Layout::Filter,
        Layout::Properties,
    ];
    // Layout and count precede the bytes, so that they are damaged as well.
    let input = |(layout, entries, raw): &(Layout, u32, Vec<u8>)| {
        let mut input = vec![*layout as u8];
        input.extend(entries.to_le_bytes());
        input.extend(raw);
        input
    };
    let samples: Vec<_> = samples().iter().map(input).collect();
    fuzz_decoder("sections of tables", &samples, 128, |input| {
        let mut d = Decoder::new(input);
        let (Some(layout), Some(entries)) = (d.u8(), d.u32()) else {
            return;
        };
        let known = layouts.iter().find(|known| **known as u8 == layout);
        let layout = *known.unwrap_or(&layouts[usize::from(layout) % layouts.len()]);
        decode_all(layout, entries, d.rest());
    });
}

#[test]
fn fuzz_stored_sections_are_refused_or_unpacked() {
    let path = Path::new("x.sst");
    let stored = |codec, (layout, entries, raw): &(Layout, u32, Vec<u8>)| {
        let mut out = Vec::new();
        let place = Place {
            uid: 1,
            offset: 77,
            path,
        };
        put_section(
            &mut out,
            place,
            *layout,
            *entries,
            raw,
            &mut Packer::new(codec),
        )
        .unwrap();
        out.split_off(8)
    };
    let codecs = [Codec::None, Codec::Lz4, Codec::Zstd];
    let all = codecs.map(|codec| {
        samples()
            .iter()
            .map(|s| stored(codec, s))
            .collect::<Vec<_>>()
    });
    // The largest expansion of a byte by zstd.
    fuzz_decoder("stored sections", &all.concat(), 1 << 15, |input| {
        let mut bytes = checksum(input, place_seed(1, 77)).to_le_bytes().to_vec();
        bytes.extend(input);
        let mut unpacker = Unpacker::default();
        let _ = open_section(&bytes, &mut unpacker, origin(1, 77));
    });
}

#[test]
fn sections_with_any_changed_byte_are_refused() {
    let path = Path::new("x.sst");
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        for (layout, entries, raw) in samples() {
            let place = Place {
                uid: 1,
                offset: 77,
                path,
            };
            let mut out = Vec::new();
            let mut packer = Packer::new(codec);
            let put = put_section(&mut out, place, layout, entries, &raw, &mut packer);
            assert_eq!(put.ok(), Some(out.len() as u32));
            let mut unpacker = Unpacker::default();
            let opened = open_section(&out, &mut unpacker, origin(1, 77));
            assert_eq!(opened.map(|s| s.raw.to_vec()).ok().as_ref(), Some(&raw));
            assert!(open_section(&out, &mut unpacker, origin(1, 78)).is_err());
            assert!(open_section(&out, &mut unpacker, origin(2, 77)).is_err());
            for at in 0..out.len() {
                let mut damaged = out.clone();
                damaged[at] ^= 0x10;
                assert!(open_section(&damaged, &mut unpacker, origin(1, 77)).is_err());
                assert!(open_section(&out[..at], &mut unpacker, origin(1, 77)).is_err());
            }
        }
    }
}
