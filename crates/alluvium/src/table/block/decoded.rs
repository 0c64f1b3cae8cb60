//! Decoded layout of a block, used by searches and cursors.

use crate::base::{SeqNo, ValueKind};
use crate::table::block::{IntCoding, first_at_least};
use alluvium_mem::frames::Frame;
use std::ops::Range;

/// Frame with a decoded block. The words are the first 8 bytes of each suffix, for the search. The
/// bytes are the columns that [`Shape`] names.
pub type BlockFrame = Frame<Shape>;

/// Places of the columns in the bytes of a [`BlockFrame`].
///
/// ```text
/// prefix | suffixes | kinds | seqnos | values | offsets of suffixes | offsets of values
/// ```
///
/// Suffixes and values are in rows. Kinds are absent if all are equal, and offsets if all lengths
/// are. With the header of its frame it fills a cache line.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Coding of the seqnos.
    pub(super) seqno_base: u64,
    pub(super) seqno_width: u8,
    /// Kind of all entries; 0 if each has a byte.
    pub(super) kind: u8,
    /// Length of the prefix, after which the suffixes start.
    pub(super) prefix: u16,
    /// Length of every suffix, or [`VARIED`].
    pub(super) suffix_width: u32,
    /// Length of every value, or [`VARIED`].
    pub(super) value_width: u32,
    /// Starts of columns.
    pub(super) kinds: u32,
    pub(super) seqnos: u32,
    pub(super) values: u32,
    pub(super) offsets: u32,
    /// Offsets have 4 bytes instead of 2.
    pub(super) is_wide: bool,
}

/// Width of pieces that differ in length.
pub(super) const VARIED: u32 = u32::MAX;

/// Block in memory with cheap lookups.
///
/// Slots are numbered from 0 in the table's order. A slot's key is the block's prefix followed by
/// the slot's suffix. Decoding has checked that all columns lie inside of the bytes, so reading a
/// slot below [`DecodedBlock::len`] cannot fail.
#[derive(Debug, Clone, Copy)]
pub struct DecodedBlock<'f>(pub &'f BlockFrame);

/// One entry of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// The start of the key, common to all rows of the block.
    pub prefix: &'a [u8],
    /// The rest of the key.
    pub suffix: &'a [u8],
    /// Seqno of the commit that wrote the entry.
    pub seqno: SeqNo,
    /// Kind of the entry: a put, an insert or one of the deletes.
    pub kind: ValueKind,
    /// The value; empty for a delete.
    pub value: &'a [u8],
}

impl<'f> DecodedBlock<'f> {
    /// Returns the number of slots, which is at least 1.
    pub fn len(self) -> usize {
        self.0.words().len()
    }

    fn shape(self) -> &'f Shape {
        self.0.shape()
    }

    /// Returns the common start of all keys.
    pub fn prefix(self) -> &'f [u8] {
        &self.0.bytes()[..usize::from(self.shape().prefix)]
    }

    /// Returns the first slot with a key of at least `key`, or [`DecodedBlock::len`] if there is
    /// none. If the block has `key`, the slot holds its newest version.
    pub fn seek(self, key: &[u8]) -> usize {
        let heads = self.0.words();
        first_at_least(key, self.prefix(), heads, |at| self.suffix(at))
    }

    /// Returns true if the slot has this key.
    pub fn key_is(self, slot: usize, key: &[u8]) -> bool {
        match key.split_at_checked(usize::from(self.shape().prefix)) {
            Some((prefix, suffix)) => suffix == self.suffix(slot) && prefix == self.prefix(),
            None => false,
        }
    }

    /// Returns true if two slots have the same key.
    pub fn same_key(self, a: usize, b: usize) -> bool {
        let heads = self.0.words();
        heads[a] == heads[b] && self.suffix(a) == self.suffix(b)
    }

    /// Returns the entry in a slot.
    pub fn row(self, slot: usize) -> Row<'f> {
        Row {
            prefix: self.prefix(),
            suffix: self.suffix(slot),
            seqno: self.seqno(slot),
            kind: self.kind(slot),
            value: self.bytes(self.value_range(slot)),
        }
    }

    /// Returns the slot's key after the prefix.
    pub fn suffix(self, slot: usize) -> &'f [u8] {
        let shape = self.shape();
        let start = usize::from(shape.prefix);
        let range = self.piece(start, shape.suffix_width, 0, slot);
        &self.0.bytes()[range]
    }

    /// Returns the range of the slot's value, for [`DecodedBlock::bytes`].
    pub fn value_range(self, slot: usize) -> Range<usize> {
        let shape = self.shape();
        let list = usize::from(shape.suffix_width == VARIED);
        self.piece(shape.values as usize, shape.value_width, list, slot)
    }

    /// Returns the bytes of a range from [`DecodedBlock::value_range`].
    pub fn bytes(self, range: Range<usize>) -> &'f [u8] {
        &self.0.bytes()[range]
    }

    /// Returns the slot's seqno.
    pub fn seqno(self, slot: usize) -> SeqNo {
        let shape = self.shape();
        let coding = IntCoding::of(shape.seqno_base, shape.seqno_width);
        let planes = &self.0.bytes()[shape.seqnos as usize..];
        coding.get(planes, self.len(), slot)
    }

    /// Returns the slot's kind.
    pub fn kind(self, slot: usize) -> ValueKind {
        let shape = self.shape();
        let kind = match shape.kind {
            0 => self.0.bytes()[shape.kinds as usize + slot],
            all => all,
        };
        ValueKind::from_u8(kind).expect("decoding has checked all kinds")
    }

    /// Returns the place of a slot's piece in a column that starts at `start`, with offsets in a
    /// list of this number.
    fn piece(self, start: usize, width: u32, list: usize, slot: usize) -> Range<usize> {
        if width != VARIED {
            // A common length saves a cache miss on the offsets.
            let start = start + slot * width as usize;
            return start..start + width as usize;
        }
        let first = list * (self.len() + 1) + slot;
        self.offset(first)..self.offset(first + 1)
    }

    fn offset(self, at: usize) -> usize {
        let shape = self.shape();
        let offsets = &self.0.bytes()[shape.offsets as usize..];
        if shape.is_wide {
            let (offsets, _) = offsets.as_chunks::<4>();
            u32::from_le_bytes(offsets[at]) as usize
        } else {
            let (offsets, _) = offsets.as_chunks::<2>();
            usize::from(u16::from_le_bytes(offsets[at]))
        }
    }
}
