//! The decoded layout of a block: what searches and cursors work on.

use crate::base::{SeqNo, ValueKind};
use crate::table::block::{head, ties};
use alluvium_mem::pages;
use std::cmp::Ordering;
use std::ops::Range;

/// One byte is charged for so many that a block asked for: holes that other blocks have left and this one did not fill.
/// Buffers are exchanged (`buffers.rs`), so it is little: memory beside what is charged, under saturating writers, is in
/// `docs/results/stalls.md`.
const ALLOCATOR_SHARE: usize = 16;

/// A block in memory, with cheap lookups.
///
/// Slots are numbered from 0 in the table's order. A slot's key is the block's prefix followed by the slot's suffix.
/// Decoding has checked that all spans lie inside `data`, so reading a slot below [`DecodedBlock::len`] cannot fail.
#[derive(Debug)]
pub struct DecodedBlock {
    /// The first 8 bytes of each suffix, for the search.
    pub(super) heads: Vec<u64>,
    /// The prefix, then for each slot its suffix and its value.
    pub(super) data: Vec<u8>,
    pub(super) shape: Shape,
    pub(super) kinds: Kinds,
    /// Empty where all seqnos are 0.
    pub(super) seqnos: Vec<SeqNo>,
}

/// Where prefix, suffixes and values stand in `data`.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) prefix_bytes: usize,
    pub(super) rows: Rows,
    pub(super) suffixes: Suffixes,
}

/// Where the rows start.
#[derive(Debug)]
pub(super) enum Rows {
    /// All rows have this length: saves a cache miss on the offsets.
    Stride(usize),
    /// Start of each row, and the end of the last.
    Offsets(Vec<u32>),
}

/// How much of each row is its suffix.
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
    /// The number of the commit that wrote it.
    pub seqno: SeqNo,
    /// What the entry says of its key.
    pub kind: ValueKind,
    /// The value; empty for a delete.
    pub value: &'a [u8],
}

impl DecodedBlock {
    /// A block without rows, to decode into.
    pub(in crate::table) fn empty() -> DecodedBlock {
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

    /// Frees it, to the system as far as it has whole pages.
    pub(in crate::table) fn free(self) {
        pages::free(self.data);
    }

    /// How many slots there are; at least 1 in a block that came from a table.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// The bytes of memory that the block takes, with what the allocator loses on it.
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

    /// The start of all keys.
    pub fn prefix(&self) -> &[u8] {
        &self.data[..self.shape.prefix_bytes]
    }

    /// The first slot whose key is at least `key`, which is the key's newest version if it is there;
    /// [`DecodedBlock::len`] if there is none.
    pub fn seek(&self, key: &[u8]) -> usize {
        let shared = self.shape.prefix_bytes.min(key.len());
        match key[..shared].cmp(&self.data[..shared]) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.len(),
            Ordering::Equal if shared < self.shape.prefix_bytes => return 0,
            Ordering::Equal => {}
        }
        let suffix = &key[shared..];
        let Range { mut start, mut end } = ties(&self.heads, head(suffix));
        while start < end {
            let middle = start + (end - start) / 2;
            match self.suffix(middle) < suffix {
                true => start = middle + 1,
                false => end = middle,
            }
        }
        start
    }

    /// Whether the slot has this key.
    pub fn key_is(&self, slot: usize, key: &[u8]) -> bool {
        match key.split_at_checked(self.shape.prefix_bytes) {
            Some((prefix, suffix)) => suffix == self.suffix(slot) && prefix == self.prefix(),
            None => false,
        }
    }

    /// Whether two slots have the same key.
    pub fn same_key(&self, a: usize, b: usize) -> bool {
        self.heads[a] == self.heads[b] && self.suffix(a) == self.suffix(b)
    }

    /// The entry in a slot.
    pub fn row(&self, slot: usize) -> Row<'_> {
        Row {
            prefix: self.prefix(),
            suffix: self.suffix(slot),
            seqno: self.seqno(slot),
            kind: self.kind(slot),
            value: &self.data[self.value_range(slot)],
        }
    }

    /// The slot's key after the prefix.
    pub fn suffix(&self, slot: usize) -> &[u8] {
        let start = self.shape.start(slot);
        &self.data[start..start + self.shape.suffix_bytes(slot)]
    }

    /// Where the slot's value stands, for [`DecodedBlock::bytes`].
    pub fn value_range(&self, slot: usize) -> Range<usize> {
        let start = self.shape.start(slot);
        start + self.shape.suffix_bytes(slot)..self.shape.start(slot + 1)
    }

    /// The bytes of a range from [`DecodedBlock::value_range`].
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.data[range]
    }

    /// The slot's seqno.
    pub fn seqno(&self, slot: usize) -> SeqNo {
        match self.seqnos.is_empty() {
            true => 0,
            false => self.seqnos[slot],
        }
    }

    /// The slot's kind.
    pub fn kind(&self, slot: usize) -> ValueKind {
        match &self.kinds {
            Kinds::All(kind) => *kind,
            Kinds::Each(kinds) => kinds[slot],
        }
    }
}

impl Shape {
    /// Where a slot's row starts; for the slot count, where the last row ends.
    pub(super) fn start(&self, slot: usize) -> usize {
        match &self.rows {
            Rows::Stride(stride) => self.prefix_bytes + slot * stride,
            Rows::Offsets(offsets) => offsets[slot] as usize,
        }
    }

    /// The length of a slot's suffix.
    pub(super) fn suffix_bytes(&self, slot: usize) -> usize {
        match &self.suffixes {
            Suffixes::Width(width) => *width,
            Suffixes::Lengths(lengths) => usize::from(lengths[slot]),
        }
    }
}
