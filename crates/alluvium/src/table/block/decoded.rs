//! Decoded layout of a block, used by searches and cursors.

use crate::base::{SeqNo, ValueKind};
use crate::table::block::first_at_least;
use alluvium_mem::pages;
use std::ops::Range;

/// Requested bytes for each extra byte charged to the cache. The charge covers holes left by other
/// blocks and not filled by this one. Buffers are exchanged (`buffers.rs`), so the holes are small.
/// `docs/results/stalls.md` has the uncharged memory under saturating writers.
const ALLOCATOR_SHARE: usize = 16;

/// Block in memory with cheap lookups.
///
/// Slots are numbered from 0 in the table's order. A slot's key is the block's prefix followed by
/// the slot's suffix. Decoding has checked that all spans lie inside `data`, so reading a slot
/// below [`DecodedBlock::len`] cannot fail.
#[derive(Debug)]
pub struct DecodedBlock {
    /// The first 8 bytes of each suffix, for the search.
    pub(super) heads: Vec<u64>,
    /// The prefix, then for each slot its suffix and its value.
    pub(super) data: Vec<u8>,
    pub(super) shape: Shape,
    pub(super) kinds: Kinds,
    /// Empty if all seqnos are 0.
    pub(super) seqnos: Vec<SeqNo>,
}

/// Layout of prefix, suffixes and values in `data`.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) prefix_bytes: usize,
    pub(super) rows: Rows,
    pub(super) suffixes: Suffixes,
}

/// Start offsets of the rows.
#[derive(Debug)]
pub(super) enum Rows {
    /// All rows have this length, which saves a cache miss on the offsets.
    Stride(usize),
    /// Start of each row, and the end of the last.
    Offsets(Vec<u32>),
}

/// Length of each row's suffix.
#[derive(Debug)]
pub(super) enum Suffixes {
    Width(usize),
    Lengths(Vec<u16>),
}

#[derive(Debug)]
pub(super) enum Kinds {
    All(ValueKind),
    Each(Vec<ValueKind>),
}

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

impl DecodedBlock {
    /// Returns a block without rows, to decode into.
    pub fn empty() -> DecodedBlock {
        DecodedBlock {
            heads: Vec::new(),
            data: Vec::new(),
            shape: Shape {
                prefix_bytes: 0,
                rows: Rows::Stride(0),
                suffixes: Suffixes::Width(0),
            },
            kinds: Kinds::All(ValueKind::Put),
            seqnos: Vec::new(),
        }
    }

    /// Frees the block and returns its whole pages to the system.
    pub fn free(self) {
        pages::free(self.data);
    }

    /// Returns the number of slots; at least 1 in a block that came from a table.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns the memory of the block in bytes, including the estimated allocator overhead.
    pub fn resident_bytes(&self) -> usize {
        let offsets = match &self.shape.rows {
            Rows::Stride(_) => 0,
            Rows::Offsets(offsets) => offsets.capacity() * 4,
        };
        let lengths = match &self.shape.suffixes {
            Suffixes::Width(_) => 0,
            Suffixes::Lengths(lengths) => lengths.capacity() * 2,
        };
        let kinds = match &self.kinds {
            Kinds::All(_) => 0,
            Kinds::Each(kinds) => kinds.capacity(),
        };
        let words = self.heads.capacity() + self.seqnos.capacity();
        let parts = self.data.capacity() + words * 8 + offsets + lengths + kinds;
        size_of::<DecodedBlock>() + parts + parts / ALLOCATOR_SHARE
    }

    /// Returns the common start of all keys.
    pub fn prefix(&self) -> &[u8] {
        &self.data[..self.shape.prefix_bytes]
    }

    /// Returns the first slot with a key of at least `key`, or [`DecodedBlock::len`] if there is
    /// none. If the block has `key`, the slot holds its newest version.
    pub fn seek(&self, key: &[u8]) -> usize {
        first_at_least(key, self.prefix(), &self.heads, |at| self.suffix(at))
    }

    /// Returns true if the slot has this key.
    pub fn key_is(&self, slot: usize, key: &[u8]) -> bool {
        match key.split_at_checked(self.shape.prefix_bytes) {
            Some((prefix, suffix)) => suffix == self.suffix(slot) && prefix == self.prefix(),
            None => false,
        }
    }

    /// Returns true if two slots have the same key.
    pub fn same_key(&self, a: usize, b: usize) -> bool {
        self.heads[a] == self.heads[b] && self.suffix(a) == self.suffix(b)
    }

    /// Returns the entry in a slot.
    pub fn row(&self, slot: usize) -> Row<'_> {
        Row {
            prefix: self.prefix(),
            suffix: self.suffix(slot),
            seqno: self.seqno(slot),
            kind: self.kind(slot),
            value: &self.data[self.value_range(slot)],
        }
    }

    /// Returns the slot's key after the prefix.
    pub fn suffix(&self, slot: usize) -> &[u8] {
        let start = self.shape.start(slot);
        &self.data[start..start + self.shape.suffix_bytes(slot)]
    }

    /// Returns the range of the slot's value, for [`DecodedBlock::bytes`].
    pub fn value_range(&self, slot: usize) -> Range<usize> {
        let start = self.shape.start(slot);
        start + self.shape.suffix_bytes(slot)..self.shape.start(slot + 1)
    }

    /// Returns the bytes of a range from [`DecodedBlock::value_range`].
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.data[range]
    }

    /// Returns the slot's seqno.
    pub fn seqno(&self, slot: usize) -> SeqNo {
        if self.seqnos.is_empty() {
            0
        } else {
            self.seqnos[slot]
        }
    }

    /// Returns the slot's kind.
    pub fn kind(&self, slot: usize) -> ValueKind {
        match &self.kinds {
            Kinds::All(kind) => *kind,
            Kinds::Each(kinds) => kinds[slot],
        }
    }
}

impl Shape {
    /// Returns the start of a slot's row; for the slot count, the end of the last row.
    pub(super) fn start(&self, slot: usize) -> usize {
        match &self.rows {
            Rows::Stride(stride) => self.prefix_bytes + slot * stride,
            Rows::Offsets(offsets) => offsets[slot] as usize,
        }
    }

    /// Returns the length of a slot's suffix in bytes.
    pub(super) fn suffix_bytes(&self, slot: usize) -> usize {
        match &self.suffixes {
            Suffixes::Width(width) => *width,
            Suffixes::Lengths(lengths) => usize::from(lengths[slot]),
        }
    }
}
