//! Section of a table's range deletes.
//!
//! ```text
//! fragments     varint
//! for each:     start (varint length, bytes), end (varint length, bytes),
//!               count of seqnos (varint), the newest seqno (varint),
//!               then for each older one its distance below the previous one (varint)
//! ```
//!
//! Fragments are in key order and do not overlap; seqnos descend. The content does not compress
//! well, but the section uses the table's codec like every other section.

use crate::base::coding::{Decoder, put_bytes, put_varint};
use crate::base::{KEY_BYTES_MAX, SEQNO_MAX, SeqNo};
use crate::range_deletes::{KeyRange, RangeDeletes};
use crate::table::malformed::Malformed;

/// Appends the raw bytes.
pub(super) fn encode(ranges: &RangeDeletes, out: &mut Vec<u8>) {
    put_varint(out, ranges.len() as u64);
    for fragment in ranges.iter() {
        put_bytes(out, fragment.start);
        put_bytes(out, fragment.end);
        put_varint(out, fragment.seqnos.len() as u64);
        put_varint(out, fragment.newest());
        for pair in fragment.seqnos.windows(2) {
            put_varint(out, pair[0] - pair[1]);
        }
    }
}

/// Reads the raw bytes.
pub(super) fn decode(raw: &[u8]) -> Result<RangeDeletes, Malformed> {
    let malformed = |found: &str| Malformed::new("range deletes", "fragments in order", found);
    let mut d = Decoder::new(raw);
    let count = d.varint().ok_or_else(|| malformed("no count"))?;
    let (mut ranges, mut seqnos) = (RangeDeletes::default(), Vec::new());
    for _ in 0..count {
        // A count that is too large ends in an error, because each fragment takes at least one
        // byte.
        let range = fragment(&mut d, &mut seqnos);
        let (start, end) = range.ok_or_else(|| malformed("a cut or malformed one"))?;
        if !ranges.push(start, end, &seqnos) {
            return Err(malformed("others"));
        }
    }
    if ranges.is_empty() || !d.is_empty() {
        return Err(malformed("none, or bytes after the last"));
    }
    ranges.shrink();
    Ok(ranges)
}

/// Reads one fragment: returns its range, and puts its seqnos into `seqnos`.
fn fragment<'a>(d: &mut Decoder<'a>, seqnos: &mut Vec<SeqNo>) -> Option<KeyRange<'a>> {
    let start = d.bytes().filter(|key| key.len() <= KEY_BYTES_MAX)?;
    let end = d.bytes().filter(|key| key.len() <= KEY_BYTES_MAX)?;
    let count = d.varint().filter(|&count| count > 0)?;
    let mut seqno = d.varint().filter(|&seqno| seqno <= SEQNO_MAX)?;
    seqnos.clear();
    seqnos.push(seqno);
    for _ in 1..count {
        seqno = seqno.checked_sub(d.varint()?)?;
        seqnos.push(seqno);
    }
    Some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz_decoder;
    use crate::range_deletes::Fragmenter;

    fn sample() -> RangeDeletes {
        let mut ranges = Fragmenter::default();
        for (start, end, seqno) in [("b", "f", 5), ("c", "d", 900), ("c", "z", 70_000)] {
            ranges.add((start.as_bytes(), end.as_bytes()), seqno);
        }
        ranges.finish(&[])
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
