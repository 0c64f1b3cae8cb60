//! The section of a table's range deletes.
//!
//! ```text
//! fragments     varint
//! for each:     start (varint length, bytes), end (varint length, bytes), count of seqnos (varint),
//!               the newest seqno (varint), then for each older one how far it is below the one before (varint)
//! ```
//!
//! Fragments are in key order and do not overlap; seqnos fall. The section has no content of its own to compress
//! well, but goes through the table's codec as every section does.

use crate::base::coding::{Decoder, put_bytes, put_varint};
use crate::base::{KEY_BYTES_MAX, SEQNO_MAX};
use crate::range_deletes::{Fragment, RangeDeletes};
use crate::table::malformed::Malformed;

/// Appends the raw bytes.
pub(in crate::table) fn encode(ranges: &RangeDeletes, out: &mut Vec<u8>) {
    put_varint(out, ranges.fragments().len() as u64);
    for fragment in ranges.fragments() {
        put_bytes(out, &fragment.start);
        put_bytes(out, &fragment.end);
        put_varint(out, fragment.seqnos.len() as u64);
        put_varint(out, fragment.newest());
        for pair in fragment.seqnos.windows(2) {
            put_varint(out, pair[0] - pair[1]);
        }
    }
}

/// Reads the raw bytes.
pub(in crate::table) fn decode(raw: &[u8]) -> Result<RangeDeletes, Malformed> {
    let malformed = |found: &str| Malformed::new("range deletes", "fragments in order", found);
    let mut d = Decoder::new(raw);
    let count = d.varint().ok_or_else(|| malformed("no count"))?;
    let mut fragments = Vec::new();
    for _ in 0..count {
        // Ends early on a count that the bytes do not account for: each fragment takes some.
        fragments.push(fragment(&mut d).ok_or_else(|| malformed("a cut or malformed one"))?);
    }
    match RangeDeletes::from_fragments(fragments) {
        Some(ranges) if d.is_empty() && !ranges.is_empty() => Ok(ranges),
        Some(_) => Err(malformed("none, or bytes behind the last")),
        None => Err(malformed("others")),
    }
}

fn fragment(d: &mut Decoder<'_>) -> Option<Fragment> {
    let start = d.bytes().filter(|key| key.len() <= KEY_BYTES_MAX)?.into();
    let end = d.bytes().filter(|key| key.len() <= KEY_BYTES_MAX)?.into();
    let count = d.varint()?;
    let mut seqno = d.varint().filter(|&seqno| seqno <= SEQNO_MAX)?;
    let mut seqnos = vec![seqno];
    for _ in 1..count {
        seqno = seqno.checked_sub(d.varint()?)?;
        seqnos.push(seqno);
    }
    (count > 0).then(|| Fragment {
        start,
        end,
        seqnos: seqnos.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz_decoder;

    fn sample() -> RangeDeletes {
        let mut ranges = RangeDeletes::default();
        for (start, end, seqno) in [("b", "f", 5), ("c", "d", 900), ("c", "z", 70_000)] {
            ranges.add(start.as_bytes(), end.as_bytes(), seqno);
        }
        ranges
    }

    #[test]
    fn range_deletes_round_trip_and_cut_ones_are_refused() {
        let mut raw = Vec::new();
        encode(&sample(), &mut raw);
        assert_eq!(decode(&raw).ok(), Some(sample()));
        for n in 0..raw.len() {
            assert!(decode(&raw[..n]).is_err(), "cut at {n}");
        }
        raw.push(0);
        assert!(decode(&raw).is_err());
    }

    #[test]
    fn fuzz_range_deletes_are_refused_or_round_trip() {
        let mut raw = Vec::new();
        encode(&sample(), &mut raw);
        fuzz_decoder("range deletes of tables", &[raw], 64, |raw| {
            if let Ok(ranges) = decode(raw) {
                let mut again = Vec::new();
                encode(&ranges, &mut again);
                assert_eq!(decode(&again).ok(), Some(ranges));
            }
        });
    }
}
