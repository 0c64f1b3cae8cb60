//! Options of the tables of a keyspace.

use crate::keyspace::options::{Compression, KeyspaceOptions};
use crate::table::{Codec, FilterOptions, PrefixFilter, TableOptions};
use crate::vfs::Lifetime;

/// Bits of Bloom filter per key: about 1% false positives.
const FILTER_BITS: u32 = 10;

/// Returns the options for the tables of a keyspace, in the last level or above.
pub(crate) fn table_options(options: &KeyspaceOptions, last_level: bool) -> TableOptions {
    let codec = match (options.compression, last_level) {
        (Compression::Adaptive, true) => Codec::ZstdDictionary,
        (Compression::Adaptive, false) | (Compression::Lz4, _) => Codec::Lz4,
        (Compression::None, _) => Codec::None,
    };
    // Reads that nearly always hit end in the last level anyway: a filter there would only say yes.
    let whole_key = options.whole_key_filter && !(last_level && options.expect_hits);
    let prefix = options.prefix_filter_bytes.map(|bytes| PrefixFilter {
        bytes,
        bits: FILTER_BITS,
    });
    let filter = FilterOptions {
        whole_key_bits: if whole_key { FILTER_BITS } else { 0 },
        prefix,
    };
    let lifetime = if last_level {
        Lifetime::Long
    } else {
        Lifetime::Medium
    };
    TableOptions {
        block_bytes: options.block_bytes,
        codec,
        filter,
        lifetime,
        ..TableOptions::default()
    }
}
