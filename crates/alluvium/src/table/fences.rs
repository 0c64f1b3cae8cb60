//! Fence index: one separator for each block, always in memory.
//!
//! A block's separator is at least its last key and below the first key of the next block. If the
//! versions of one key cross a block border, the separator is that key, and equals the next block's
//! first key. Blocks follow each other without gaps from offset 0, so only their lengths are
//! stored. The raw bytes of the section are
//!
//! ```text
//! prefix             varint length, bytes: common to all separators
//! suffix lengths     integer column
//! suffixes           one after another
//! block lengths      integer column, bytes with section header
//! ```

use crate::base::KEY_BYTES_MAX;
use crate::base::coding::{Decoder, put_bytes};
use crate::table::block::{Ints, common_prefix, first_at_least, head, put_ints};
use crate::table::malformed::Malformed;
use crate::table::section::{HEADER_BYTES, Section};
use std::ops::Range;

/// Fences of a table, in memory.
pub(super) struct Fences {
    prefix: Box<[u8]>,
    /// The first 8 bytes of each separator after the prefix.
    heads: Box<[u64]>,
    /// The separators after the prefix.
    suffixes: Box<[u8]>,
    /// Start of each suffix, and the end of the last.
    suffix_starts: Box<[u32]>,
    /// Start of each block in the file, and the end of the last.
    block_starts: Box<[u64]>,
}

impl Fences {
    /// Reads the index of a file of `file_bytes`. Checks that separators are in order and no block
    /// length is 0.
    pub(super) fn decode(section: &Section<'_>, file_bytes: u64) -> Result<Fences, Malformed> {
        let count = section.entries as usize;
        let cut = |what| move || Malformed::new(what, "within the index", "beyond it or its limit");
        // Limits the memory, because columns of equal values have no bytes for each entry.
        if count == 0 || (count * HEADER_BYTES) as u64 > file_bytes {
            return Err(Malformed::new("fence count", "one for each block", count));
        }
        let mut d = Decoder::new(section.raw);
        let prefix = d.bytes().ok_or_else(cut("fence prefix"))?;
        let key_max = KEY_BYTES_MAX as u64;
        let lengths = Ints::read(&mut d, count, key_max).ok_or_else(cut("fence lengths"))?;
        let suffix_starts = running_sum(&lengths, count)
            .map(|at| u32::try_from(at).ok())
            .collect::<Option<Box<[u32]>>>()
            .ok_or_else(cut("fence lengths"))?;
        let suffix_bytes = suffix_starts.last().map_or(0, |&end| end as usize);
        let suffixes = d.take(suffix_bytes).ok_or_else(cut("fence suffixes"))?;
        let section_max = u64::from(u32::MAX);
        let blocks = Ints::read(&mut d, count, section_max).ok_or_else(cut("block lengths"))?;
        if !d.is_empty() {
            return Err(cut("fence index end")());
        }
        let mut fences = Fences {
            prefix: prefix.into(),
            heads: Box::default(),
            suffixes: suffixes.into(),
            suffix_starts,
            block_starts: running_sum(&blocks, count).collect(),
        };
        fences.heads = (0..count).map(|i| head(fences.suffix(i))).collect();
        fences.check_order()?;
        Ok(fences)
    }

    fn check_order(&self) -> Result<(), Malformed> {
        let unordered = (1..self.len()).find(|&i| self.suffix(i - 1) > self.suffix(i));
        if let Some(i) = unordered {
            return Err(Malformed::new("fence order", "ascending", i));
        }
        match (0..self.len()).find(|&i| self.block_range(i).is_empty()) {
            Some(i) => Err(Malformed::new("block length", "more than 0", i)),
            None => Ok(()),
        }
    }

    /// Returns the number of blocks.
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns the first block with a separator of at least `key`, or the block count if there is
    /// none. Only this block can hold the first entry at or after `key`, unless that is the first
    /// entry of the next block.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        first_at_least(key, &self.prefix, &self.heads, |at| self.suffix(at))
    }

    /// Returns true if the separator of a block is `key`. If it is not, and this block ends with
    /// `key`, the next block does not begin with it.
    pub(super) fn separator_is(&self, block: usize, key: &[u8]) -> bool {
        match key.split_at_checked(self.prefix.len()) {
            Some((prefix, suffix)) => suffix == self.suffix(block) && *prefix == *self.prefix,
            None => false,
        }
    }

    /// Returns the prefix of all separators, and the rest of a block's separator.
    pub(super) fn parts(&self, block: usize) -> (&[u8], &[u8]) {
        (&self.prefix, self.suffix(block))
    }

    /// Returns a block's separator.
    pub(super) fn separator(&self, block: usize) -> Vec<u8> {
        [&self.prefix, self.suffix(block)].concat()
    }

    /// Returns the byte range of a block in the file.
    pub(super) fn block_range(&self, block: usize) -> Range<u64> {
        self.block_starts[block]..self.block_starts[block + 1]
    }

    /// Returns the end of the last block in the file.
    pub(super) fn blocks_end(&self) -> u64 {
        self.block_starts.last().copied().unwrap_or(0)
    }

    /// Returns the memory of the index in bytes.
    pub(super) fn resident_bytes(&self) -> usize {
        let words = self.heads.len() + self.block_starts.len();
        self.prefix.len() + self.suffixes.len() + self.suffix_starts.len() * 4 + words * 8
    }

    fn suffix(&self, block: usize) -> &[u8] {
        let (start, end) = (self.suffix_starts[block], self.suffix_starts[block + 1]);
        &self.suffixes[start as usize..end as usize]
    }
}

/// Returns 0, then the sum of the first one, two, ... `count` values.
fn running_sum(values: &Ints<'_>, count: usize) -> impl Iterator<Item = u64> {
    let sums = (0..count).scan(0u64, |sum, i| {
        *sum += values.get(i);
        Some(*sum)
    });
    std::iter::once(0).chain(sums)
}

/// Collector of the fences of a table that is being written.
#[derive(Default)]
pub(super) struct FenceBuilder {
    separators: Vec<u8>,
    ends: Vec<usize>,
    block_lengths: Vec<u32>,
}

impl FenceBuilder {
    /// Adds a block that ends with the key `last`; `next` is the next block's first key, if there
    /// is a next block.
    pub(super) fn push(&mut self, last: &[u8], next: Option<&[u8]>) {
        let separator = next.map_or(last, |next| shortest_separator(last, next));
        self.separators.extend_from_slice(separator);
        self.ends.push(self.separators.len());
    }

    /// Adds the length of the next block without one. Blocks may get their lengths before or after
    /// their fences.
    pub(super) fn push_length(&mut self, block_length: u32) {
        self.block_lengths.push(block_length);
    }

    /// Returns the number of blocks.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Estimates the length of the section in bytes.
    pub(super) fn raw_bytes(&self) -> usize {
        self.separators.len() + self.len() * 4
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let lengths = self.block_lengths.capacity() * size_of::<u32>();
        self.separators.capacity() + self.ends.capacity() * size_of::<usize>() + lengths
    }

    /// Appends the raw bytes. There is at least one block, and all have their lengths.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let prefix = common_prefix(self.separator(0), self.separator(self.len() - 1));
        put_bytes(out, &self.separator(0)[..prefix]);
        let suffixes = (0..self.len()).map(|i| &self.separator(i)[prefix..]);
        put_ints(out, suffixes.clone().map(|s| s.len() as u64));
        suffixes.for_each(|suffix| out.extend_from_slice(suffix));
        put_ints(out, self.block_lengths.iter().map(|&n| u64::from(n)));
    }

    fn separator(&self, i: usize) -> &[u8] {
        let start = match i {
            0 => 0,
            _ => self.ends[i - 1],
        };
        &self.separators[start..self.ends[i]]
    }
}

/// Returns the shortest key that is at least `last` and below `next`, among `last` and the prefixes
/// of `next`. Returns `last` if both are the same key.
fn shortest_separator<'a>(last: &'a [u8], next: &'a [u8]) -> &'a [u8] {
    let cut = common_prefix(last, next) + 1;
    // A prefix of `next` longer than their common prefix is above `last`; it is below `next` if it
    // is shorter.
    if cut < next.len() && cut < last.len() {
        &next[..cut]
    } else {
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::section::Layout;

    fn fences(separators: &[&str]) -> Fences {
        let mut builder = FenceBuilder::default();
        for separator in separators {
            builder.push(separator.as_bytes(), None);
            builder.push_length(100);
        }
        let mut raw = Vec::new();
        builder.encode(&mut raw);
        let section = Section {
            layout: Layout::Fences,
            entries: separators.len() as u32,
            raw: &raw,
        };
        Fences::decode(&section, 1000).expect("a fresh index is readable")
    }

    #[test]
    fn separators_lie_between_the_blocks_and_are_short() {
        for (last, next, expected) in [
            ("apple", "banana", "b"),
            ("app", "apple", "app"),
            ("abcde", "abd", "abcde"),
            ("abcdefgh", "abcxyz", "abcx"),
            ("same", "same", "same"),
            ("", "a", ""),
        ] {
            let separator = shortest_separator(last.as_bytes(), next.as_bytes());
            assert_eq!(separator, expected.as_bytes());
            assert!(last.as_bytes() <= separator);
            assert!(separator < next.as_bytes() || last == next);
        }
    }

    #[test]
    fn find_gives_the_first_block_whose_separator_is_not_below_the_key() {
        let separators = ["key1", "key2", "key2", "key55555555a", "key55555555b"];
        let fences = fences(&separators);
        for key in [
            "",
            "a",
            "ke",
            "key1",
            "key11",
            "key2",
            "key3",
            "key55555555ab",
            "key6",
            "z",
        ] {
            let expected = separators.iter().position(|s| *s >= key);
            assert_eq!(fences.find(key.as_bytes()), expected.unwrap_or(5), "{key}");
        }
        assert_eq!(fences.block_range(4), 400..500);
        assert!(fences.separator_is(2, b"key2") && !fences.separator_is(2, b"key"));
    }
}
