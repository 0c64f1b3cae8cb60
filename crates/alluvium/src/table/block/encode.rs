//! Encoder from rows to a block's raw bytes in stored layout.

use crate::base::coding::{put_bytes, put_varint};
use crate::base::{SeqNo, ValueKind};
use crate::table::block::planes::transpose;
use crate::table::block::{common_prefix, put_ints};

/// Order of the values in a block. The numbers are stored and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ValueOrder {
    /// One value after another.
    Rows = 0,
    /// One plane for each byte position; for values of one length only.
    Planes = 1,
}

/// Largest common length of values that may be transposed. Longer values are text or blobs, which
/// planes make larger.
const PLANE_VALUE_BYTES_MAX: usize = 64;

/// Bytes that a row adds to [`OpenBlock::raw_bytes`] in addition to its key and value.
const ROW_OVERHEAD_BYTES: usize = 4;

/// Rows of the block that is still being filled.
#[derive(Default)]
pub struct OpenBlock {
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    values: Vec<u8>,
    value_ends: Vec<u32>,
    kinds: Vec<u8>,
    seqnos: Vec<SeqNo>,
}

impl OpenBlock {
    /// Appends a row. The builder has checked the order, and that the row is not oversize.
    pub fn push(&mut self, key: &[u8], seqno: SeqNo, kind: ValueKind, value: &[u8]) {
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len() as u32);
        self.values.extend_from_slice(value);
        self.value_ends.push(self.values.len() as u32);
        self.kinds.push(kind as u8);
        self.seqnos.push(seqno);
    }

    /// Removes the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.key_ends.clear();
        self.values.clear();
        self.value_ends.clear();
        self.kinds.clear();
        self.seqnos.clear();
    }

    /// Returns the memory of the rows in bytes.
    pub fn memory_bytes(&self) -> usize {
        let ends = self.key_ends.capacity() + self.value_ends.capacity();
        let bytes = self.keys.capacity() + self.values.capacity() + self.kinds.capacity();
        bytes + ends * size_of::<u32>() + self.seqnos.capacity() * size_of::<SeqNo>()
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Estimates the bytes of the rows before compression.
    pub fn raw_bytes(&self) -> usize {
        self.keys.len() + self.values.len() + self.len() * ROW_OVERHEAD_BYTES
    }

    /// Returns true if [`ValueOrder::Planes`] is possible.
    pub fn values_have_planes(&self) -> bool {
        let mut lengths = lengths(&self.value_ends);
        let first = lengths.next().unwrap_or(0);
        (1..=PLANE_VALUE_BYTES_MAX as u64).contains(&first) && lengths.all(|n| n == first)
    }

    /// Appends the raw bytes to `out`. The block has at least one row.
    pub fn encode(&self, order: ValueOrder, out: &mut Vec<u8>) {
        let prefix = common_prefix(self.key(0), self.key(self.len() - 1));
        put_bytes(out, &self.key(0)[..prefix]);
        self.encode_suffixes(prefix, out);
        if self.kinds.iter().all(|&kind| kind == self.kinds[0]) {
            out.push(self.kinds[0]);
        } else {
            out.push(0);
            out.extend_from_slice(&self.kinds);
        }
        put_ints(out, self.seqnos.iter().copied());
        put_ints(out, lengths(&self.value_ends));
        let order = if self.values_have_planes() {
            order
        } else {
            ValueOrder::Rows
        };
        out.push(order as u8);
        match order {
            ValueOrder::Rows => out.extend_from_slice(&self.values),
            ValueOrder::Planes => {
                let width = self.values.len() / self.len();
                put_planes(out, &self.values, |r| r * width, (self.len(), width));
            }
        }
    }

    fn encode_suffixes(&self, prefix: usize, out: &mut Vec<u8>) {
        let suffix_lengths = lengths(&self.key_ends).map(|n| n - prefix as u64);
        put_ints(out, suffix_lengths.clone());
        let width = self.key(0).len() - prefix;
        if suffix_lengths.clone().all(|n| n == width as u64) {
            let stride = prefix + width;
            let shape = (self.len(), width);
            put_planes(out, &self.keys, |r| r * stride + prefix, shape);
        } else {
            for i in 0..self.len() {
                out.extend_from_slice(&self.key(i)[prefix..]);
            }
        }
    }

    fn key(&self, i: usize) -> &[u8] {
        let start = match i {
            0 => 0,
            _ => self.key_ends[i - 1] as usize,
        };
        &self.keys[start..self.key_ends[i] as usize]
    }
}

/// Returns the lengths of pieces that end at `ends`.
fn lengths(ends: &[u32]) -> impl Iterator<Item = u64> + Clone + '_ {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    ends.iter()
        .zip(starts)
        .map(|(&end, start)| u64::from(end - start))
}

/// Appends the planes of rows of `input` that start at `from(r)`.
fn put_planes(
    out: &mut Vec<u8>,
    input: &[u8],
    from: impl Fn(usize) -> usize,
    (rows, width): (usize, usize),
) {
    let start = out.len();
    out.resize(start + rows * width, 0);
    transpose(input, from, (rows, width), &mut out[start..], |c| c * rows);
}

/// Appends the raw bytes of an oversize row.
pub fn encode_one_row(key: &[u8], seqno: SeqNo, kind: ValueKind, value: &[u8], out: &mut Vec<u8>) {
    out.push(kind as u8);
    put_varint(out, seqno);
    put_bytes(out, key);
    out.extend_from_slice(value);
}
