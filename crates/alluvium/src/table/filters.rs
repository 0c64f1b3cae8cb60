//! Filters of a table: over whole keys, and over key prefixes of one length.
//!
//! Each filter is stored with its definition, and a probe by another definition returns "maybe":
//! options may change while tables written under the old ones live on. The raw bytes of a filter
//! section are
//!
//! ```text
//!  0  u8   hash: 1 = XXH3-64
//!  1  u64  seed of the hash
//!  9  u8   rule: 0 whole keys; 1 the first `prefix bytes` of each key, shorter keys whole
//! 10  u32  prefix bytes; 0 for whole keys
//! 14  u32  bits per key that the filter was built with
//! 18  ...  the filter
//! ```

use crate::base::checksum::key_hash;
use crate::base::coding::Decoder;
use crate::table::malformed::Malformed;
use crate::table::section::{Layout, Section};
use alluvium_mem::filter::{FilterBuilder, FilterReader};

/// Filters that a table gets. A filter takes its bits for each key, in the file and in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterOptions {
    /// Bits for each key of the whole-key filter; 0 for no filter.
    pub whole_key_bits: u32,
    /// Prefix filter; `None` for no filter.
    pub prefix: Option<PrefixFilter>,
}

/// Filter over the first bytes of keys, for scans of one prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixFilter {
    /// Length of the prefix in bytes. Shorter keys count in full.
    pub bytes: usize,
    /// Bits for each distinct prefix.
    pub bits: u32,
}

/// Hash function of [`key_hash`]; its seed follows.
const HASH_XXH3: u8 = 1;
const HASH_SEED: u64 = 0;

const RULE_WHOLE_KEYS: u8 = 0;
const RULE_PREFIX: u8 = 1;

/// Collects the keys of a table, in order, into its filters.
pub(super) struct FilterWriter {
    whole_bits: u32,
    whole: Option<FilterBuilder>,
    prefix: Option<(PrefixFilter, FilterBuilder)>,
}

impl FilterWriter {
    pub(super) fn new(options: &FilterOptions) -> FilterWriter {
        let bits = options.whole_key_bits;
        let prefix = options.prefix.filter(|p| p.bits > 0);
        FilterWriter {
            whole_bits: bits,
            whole: (bits > 0).then(|| FilterBuilder::new(bits)),
            prefix: prefix.map(|p| (p, FilterBuilder::new(p.bits))),
        }
    }

    /// Adds a key that differs from the previous one.
    pub(super) fn add(&mut self, key: &[u8]) {
        if let Some(whole) = &mut self.whole {
            whole.add_hash(key_hash(key));
        }
        if let Some((definition, filter)) = &mut self.prefix {
            let prefix = &key[..key.len().min(definition.bytes)];
            // Equal prefixes follow each other, and the builder counts a repeated hash once.
            filter.add_hash(key_hash(prefix));
        }
    }

    /// Returns the memory of the collected hashes in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.builders().map(FilterBuilder::memory_bytes).sum()
    }

    /// Returns the additional memory of `finish` in bytes: a filter while it is built, encoded, and
    /// in the chunk to write.
    pub(super) fn finish_bytes(&self) -> usize {
        3 * self
            .builders()
            .map(FilterBuilder::encoded_bytes)
            .sum::<usize>()
    }

    fn builders(&self) -> impl Iterator<Item = &FilterBuilder> {
        let prefix = self.prefix.as_ref().map(|(_, filter)| filter);
        self.whole.iter().chain(prefix)
    }

    /// Returns the raw bytes of the whole-key filter's section and of the prefix filter's.
    pub(super) fn finish(self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let whole = self.whole.map(|filter| {
            let mut raw = definition(RULE_WHOLE_KEYS, 0, self.whole_bits);
            raw.extend_from_slice(&filter.finish());
            raw
        });
        let prefix = self.prefix.map(|(p, filter)| {
            let mut raw = definition(RULE_PREFIX, p.bytes as u32, p.bits);
            raw.extend_from_slice(&filter.finish());
            raw
        });
        (whole, prefix)
    }
}

fn definition(rule: u8, prefix_bytes: u32, bits: u32) -> Vec<u8> {
    let mut raw = vec![HASH_XXH3];
    raw.extend_from_slice(&HASH_SEED.to_le_bytes());
    raw.push(rule);
    raw.extend_from_slice(&prefix_bytes.to_le_bytes());
    raw.extend_from_slice(&bits.to_le_bytes());
    raw
}

/// Filters of an open table.
pub(super) struct Filters {
    /// Over whole keys; `None` if the table has no such filter.
    pub whole: Option<TableFilter>,
    /// Over key prefixes; `None` if the table has no such filter.
    pub prefix: Option<TableFilter>,
}

impl Filters {
    /// Returns true if the table may contain a key with this hash.
    pub(super) fn may_contain_key(&self, hash: u64) -> bool {
        let filter = self.whole.as_ref();
        filter.is_none_or(|filter| filter.may_contain_key(hash))
    }

    /// Returns true if the table may contain a key with the prefix of this length and hash.
    pub(super) fn may_contain_prefix(&self, bytes: usize, hash: u64) -> bool {
        let filter = self.prefix.as_ref();
        filter.is_none_or(|filter| filter.may_contain_prefix(bytes, hash))
    }

    /// Returns true if both filters pass `key`, as they must for every key of the table.
    pub(super) fn admit(&self, key: &[u8]) -> bool {
        self.all().all(|filter| filter.admits(key))
    }

    /// Returns the memory of both filters in bytes.
    pub(super) fn resident_bytes(&self) -> usize {
        self.all().map(TableFilter::resident_bytes).sum()
    }

    fn all(&self) -> impl Iterator<Item = &TableFilter> {
        self.whole.iter().chain(&self.prefix)
    }
}

/// Filter in memory, with its definition.
pub(super) struct TableFilter {
    /// `None` if hash, seed or rule are unknown to this version: such a filter returns "maybe" for
    /// every key.
    rule: Option<Rule>,
    filter: FilterReader,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    WholeKeys,
    Prefix(usize),
}

impl TableFilter {
    pub(super) fn decode(section: &Section<'_>) -> Result<TableFilter, Malformed> {
        let cut = || Malformed::new("filter definition", "18 bytes", section.raw.len());
        if section.layout != Layout::Filter {
            let found = section.layout as u8;
            return Err(Malformed::new("section layout", "a filter", found));
        }
        let mut d = Decoder::new(section.raw);
        let hash = (
            d.u8().ok_or_else(cut)?,
            d.u64().ok_or_else(cut)?,
            d.u8().ok_or_else(cut)?,
        );
        let prefix_bytes = d.u32().ok_or_else(cut)? as usize;
        let _bits = d.u32().ok_or_else(cut)?;
        let rule = match hash {
            (HASH_XXH3, HASH_SEED, RULE_WHOLE_KEYS) => Some(Rule::WholeKeys),
            (HASH_XXH3, HASH_SEED, RULE_PREFIX) => Some(Rule::Prefix(prefix_bytes)),
            _ => None,
        };
        let filter = FilterReader::new(d.rest())
            .ok_or_else(|| Malformed::new("filter", "a filter's bytes", d.rest().len()))?;
        Ok(TableFilter { rule, filter })
    }

    fn may_contain_key(&self, hash: u64) -> bool {
        self.rule != Some(Rule::WholeKeys) || self.filter.may_contain_hash(hash)
    }

    fn may_contain_prefix(&self, bytes: usize, hash: u64) -> bool {
        self.rule != Some(Rule::Prefix(bytes)) || self.filter.may_contain_hash(hash)
    }

    pub(super) fn admits(&self, key: &[u8]) -> bool {
        match self.rule {
            None => true,
            Some(Rule::WholeKeys) => self.filter.may_contain_hash(key_hash(key)),
            Some(Rule::Prefix(bytes)) => {
                let prefix = &key[..key.len().min(bytes)];
                self.filter.may_contain_hash(key_hash(prefix))
            }
        }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.filter.memory_bytes()
    }
}
