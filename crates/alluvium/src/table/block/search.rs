//! Search over 8-byte heads: the first bytes of each key as one big-endian integer, in byte order.
//!
//! Keys shorter than 8 bytes are padded with zeros, so equal heads decide nothing: the caller
//! compares such keys in full.

use std::cmp::Ordering;
use std::ops::Range;

/// Returns the head of a key or suffix.
pub fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(padded)
        }
    }
}

/// Returns the position of the first key that is at least `key`, or their number. The sorted keys
/// begin with `prefix`, and `heads` are the heads of their suffixes.
pub fn first_at_least<'k>(
    key: &[u8],
    prefix: &[u8],
    heads: &[u64],
    suffix_of: impl Fn(usize) -> &'k [u8],
) -> usize {
    let shared = prefix.len().min(key.len());
    match key[..shared].cmp(&prefix[..shared]) {
        Ordering::Less => return 0,
        Ordering::Greater => return heads.len(),
        Ordering::Equal if shared < prefix.len() => return 0,
        Ordering::Equal => {}
    }
    let suffix = &key[shared..];
    let Range { mut start, mut end } = ties(heads, head(suffix));
    while start < end {
        let middle = start + (end - start) / 2;
        if suffix_of(middle) < suffix {
            start = middle + 1
        } else {
            end = middle
        }
    }
    start
}

/// Returns the positions with the head `wanted`, or the empty range at its insertion point.
fn ties(heads: &[u64], wanted: u64) -> Range<usize> {
    let start = lower_bound(heads, wanted);
    let same = heads[start..].iter().take(4);
    let few = same.take_while(|&&h| h == wanted).count();
    if few < 4 {
        return start..start + few;
    }
    // Many ties: keys that differ only after their eighth byte.
    let end = match wanted.checked_add(1) {
        Some(above) => lower_bound(heads, above),
        None => heads.len(),
    };
    start..end
}

/// Returns the first position with a head of at least `wanted`.
///
/// The halving has a fixed number of steps, and its choice compiles to a conditional move: a
/// mispredicted branch would take longer than the step.
fn lower_bound(heads: &[u64], wanted: u64) -> usize {
    let mut base = 0;
    let mut size = heads.len();
    if size == 0 {
        return 0;
    }
    while size > 1 {
        let half = size / 2;
        base += if heads[base + half - 1] < wanted {
            half
        } else {
            0
        };
        size -= half;
    }
    base + usize::from(heads[base] < wanted)
}

/// Returns the number of leading bytes that two keys share.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_agree_with_partition_point_for_every_needle() {
        let mut heads: Vec<u64> = (0..40u64).map(|i| i / 7 * 2 + 1).collect();
        heads.extend([u64::MAX; 6]);
        for n in 0..=heads.len() {
            let heads = &heads[..n];
            for wanted in (0..16).chain([u64::MAX]) {
                let start = heads.partition_point(|&h| h < wanted);
                let end = heads.partition_point(|&h| h <= wanted);
                assert_eq!(ties(heads, wanted), start..end, "{wanted} in {heads:?}");
            }
        }
    }

    #[test]
    fn heads_sort_as_their_bytes_do() {
        assert!(head(b"a") < head(b"ab"));
        assert!(head(b"ab") < head(b"b"));
        assert_eq!(head(b"12345678"), head(b"123456789"));
    }
}
