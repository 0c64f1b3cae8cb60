//! Decoded layout of a block, used by searches and cursors.

use crate::base::{SeqNo, ValueKind};
use crate::table::block::{IntCoding, first_at_least};
use alluvium_mem::pages::Buffer;
use std::ops::Range;

/// Requested bytes for each extra byte charged to the cache. The charge covers holes left by other
/// blocks and not filled by this one. Buffers are exchanged (`buffers.rs`), so the holes are small.
/// `docs/results/stalls.md` has the uncharged memory under saturating writers.
const ALLOCATOR_SHARE: usize = 16;

/// Block in memory with cheap lookups.
///
/// Slots are numbered from 0 in the table's order. A slot's key is the block's prefix followed by
/// the slot's suffix. Decoding has checked that all columns lie inside `data`, so reading a slot
/// below [`DecodedBlock::len`] cannot fail.
#[derive(Debug, Default)]
pub struct DecodedBlock {
    /// The first 8 bytes of each suffix, for the search.
    pub(super) heads: Vec<u64>,
    /// The raw bytes of the block, but with suffixes and values in rows. Its whole pages return to
    /// the system when the block is dropped.
    pub(super) data: Buffer<u8>,
    pub(super) columns: Columns,
}

/// Places of the columns in `data`.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) prefix: Range<usize>,
    pub(super) suffixes: Pieces,
    pub(super) kinds: Kinds,
    pub(super) seqnos: IntCoding,
    /// Start of the planes of the seqnos.
    pub(super) seqnos_start: usize,
    pub(super) values: Pieces,
}

/// Places of suffixes or values, one for each slot.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Start of the first piece.
    pub(super) start: usize,
    /// Length of every piece, which saves a cache miss on the offsets. `None`: they differ.
    pub(super) width: Option<usize>,
    /// If lengths differ: start of each piece, and the end of the last.
    pub(super) offsets: Vec<u32>,
}

#[derive(Debug)]
pub(super) enum Kinds {
    /// All entries have this kind.
    All(ValueKind),
    /// Start of one byte for each slot, each of them a kind.
    Each(usize),
}

impl Default for Kinds {
    fn default() -> Kinds {
        Kinds::All(ValueKind::Put)
    }
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
        DecodedBlock::default()
    }

    /// Returns the number of slots; at least 1 in a block that came from a table.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns the memory of the block in bytes, including the estimated allocator overhead.
    pub fn resident_bytes(&self) -> usize {
        let Columns {
            suffixes, values, ..
        } = &self.columns;
        let offsets = suffixes.offsets.capacity() + values.offsets.capacity();
        let parts = self.data.capacity() + self.heads.capacity() * 8 + offsets * 4;
        size_of::<DecodedBlock>() + parts + parts / ALLOCATOR_SHARE
    }

    /// Returns the common start of all keys.
    pub fn prefix(&self) -> &[u8] {
        &self.data[self.columns.prefix.clone()]
    }

    /// Returns the first slot with a key of at least `key`, or [`DecodedBlock::len`] if there is
    /// none. If the block has `key`, the slot holds its newest version.
    pub fn seek(&self, key: &[u8]) -> usize {
        first_at_least(key, self.prefix(), &self.heads, |at| self.suffix(at))
    }

    /// Returns true if the slot has this key.
    pub fn key_is(&self, slot: usize, key: &[u8]) -> bool {
        match key.split_at_checked(self.columns.prefix.len()) {
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
        &self.data[self.columns.suffixes.range(slot)]
    }

    /// Returns the range of the slot's value, for [`DecodedBlock::bytes`].
    pub fn value_range(&self, slot: usize) -> Range<usize> {
        self.columns.values.range(slot)
    }

    /// Returns the bytes of a range from [`DecodedBlock::value_range`].
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.data[range]
    }

    /// Returns the slot's seqno.
    pub fn seqno(&self, slot: usize) -> SeqNo {
        let planes = &self.data[self.columns.seqnos_start..];
        self.columns.seqnos.get(planes, self.len(), slot)
    }

    /// Returns the slot's kind.
    pub fn kind(&self, slot: usize) -> ValueKind {
        match self.columns.kinds {
            Kinds::All(kind) => kind,
            Kinds::Each(start) => {
                let kind = ValueKind::from_u8(self.data[start + slot]);
                kind.expect("decoding has checked all kinds")
            }
        }
    }
}

impl Pieces {
    /// Returns the place of a slot's piece.
    pub(super) fn range(&self, slot: usize) -> Range<usize> {
        match self.width {
            Some(width) => {
                let start = self.start + slot * width;
                start..start + width
            }
            None => self.offsets[slot] as usize..self.offsets[slot + 1] as usize,
        }
    }
}
