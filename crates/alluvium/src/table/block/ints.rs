//! Codec of integer columns (frame of reference): the smallest value, then each entry's difference
//! to it. All differences have the width of the largest.
//!
//! ```text
//! base varint | width u8 (0..=8) | `width` planes of one byte for each entry,
//!                                    least significant plane first
//! ```
//!
//! With a width of 0 all entries equal the base and take no bytes.

use crate::base::coding::{Decoder, put_varint};

/// Appends a column.
pub fn put_ints(out: &mut Vec<u8>, values: impl Iterator<Item = u64> + Clone) {
    let base = values.clone().min().unwrap_or(0);
    let spread = values.clone().max().unwrap_or(0) - base;
    let width = (u64::BITS - spread.leading_zeros()).div_ceil(8);
    put_varint(out, base);
    out.push(width as u8);
    for plane in 0..width {
        out.extend(values.clone().map(|v| ((v - base) >> (8 * plane)) as u8));
    }
}

/// View of a column in the uncompressed bytes of a block. Every value is at most the limit given to
/// [`Ints::read`].
#[derive(Debug, Clone, Copy)]
pub struct Ints<'a> {
    coding: IntCoding,
    count: usize,
    planes: &'a [u8],
}

/// Coding of a column, without its planes.
#[derive(Debug, Clone, Copy, Default)]
pub struct IntCoding {
    base: u64,
    /// Bytes of each difference, at most 8.
    width: u8,
}

impl<'a> Ints<'a> {
    /// Reads a column of `count` values. Returns `None` if it is cut short or a value is above
    /// `limit`.
    pub fn read(from: &mut Decoder<'a>, count: usize, limit: u64) -> Option<Ints<'a>> {
        let base = from.varint()?;
        let width = from.u8()?;
        if width > 8 || base > limit {
            return None;
        }
        let coding = IntCoding { base, width };
        let planes = from.take(usize::from(width).checked_mul(count)?)?;
        let headroom = limit - base;
        let widest = u64::MAX.checked_shr(64 - 8 * u32::from(width)).unwrap_or(0);
        let all_fit = widest <= headroom
            || (0..count).all(|i| coding.difference(planes, count, i) <= headroom);
        all_fit.then_some(Ints {
            coding,
            count,
            planes,
        })
    }

    /// Returns the common value of all entries, or `None` if the column stores differences.
    pub fn constant(&self) -> Option<u64> {
        (self.coding.width == 0).then_some(self.coding.base)
    }

    /// Returns the value of entry `i`, which is below the count.
    pub fn get(&self, i: usize) -> u64 {
        self.coding.get(self.planes, self.count, i)
    }

    /// Returns the coding, for [`IntCoding::get`] with the planes.
    pub fn coding(&self) -> IntCoding {
        self.coding
    }

    /// Returns the planes.
    pub fn planes(&self) -> &'a [u8] {
        self.planes
    }
}

impl IntCoding {
    /// Returns the coding with these parts.
    pub fn of(base: u64, width: u8) -> IntCoding {
        IntCoding { base, width }
    }

    /// Returns the smallest value, and the bytes of each difference.
    pub fn parts(self) -> (u64, u8) {
        (self.base, self.width)
    }

    /// Returns the value of entry `i` of a column of `count` entries with these planes.
    pub fn get(self, planes: &[u8], count: usize, i: usize) -> u64 {
        self.base + self.difference(planes, count, i)
    }

    fn difference(self, planes: &[u8], count: usize, i: usize) -> u64 {
        let plane = |p: usize| u64::from(planes[p * count + i]) << (8 * p);
        // Lengths have one or two planes; their decoding avoids the loop.
        match self.width {
            0 => 0,
            1 => plane(0),
            2 => plane(0) | plane(1),
            width => (0..usize::from(width)).fold(0, |sum, p| sum | plane(p)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(values: &[u64], limit: u64) -> Option<Vec<u64>> {
        let mut out = Vec::new();
        put_ints(&mut out, values.iter().copied());
        let mut d = Decoder::new(&out);
        let column = Ints::read(&mut d, values.len(), limit)?;
        assert!(d.is_empty());
        Some((0..values.len()).map(|i| column.get(i)).collect())
    }

    #[test]
    fn columns_of_every_width_round_trip() {
        for spread in [0, 1, 255, 256, 65_536, 1 << 40, u64::MAX - 9] {
            let values = [9, 9 + spread, 9 + spread / 2, 9];
            assert_eq!(round_trip(&values, u64::MAX).as_deref(), Some(&values[..]));
        }
    }

    #[test]
    fn equal_values_take_no_bytes_for_each_entry() {
        let mut out = Vec::new();
        put_ints(&mut out, [7; 1000].into_iter());
        assert_eq!(out, [7, 0]);
    }

    #[test]
    fn a_value_above_the_limit_is_refused() {
        assert_eq!(round_trip(&[1, 300], 299), None);
        assert_eq!(round_trip(&[1, 300], 300), Some(vec![1, 300]));
        assert_eq!(round_trip(&[300, 300], 299), None);
    }
}
