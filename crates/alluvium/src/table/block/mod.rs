//! Blocks: the rows of a table in pieces of about 4 KiB, in two layouts.
//!
//! The **stored** layout is columnar, because that compresses best. It has the common key prefix
//! once, key suffixes as byte planes, and a column for kinds, seqnos and lengths only where they
//! differ. The raw bytes of a block are
//!
//! ```text
//! prefix          varint length, bytes
//! suffix lengths  integer column (ints.rs)
//! suffixes        all of one length: one plane for each byte position; else the bytes in sequence
//! kinds           u8: the kind of all entries, or 0 and one byte for each entry
//! seqnos          integer column
//! value lengths   integer column
//! value order     u8: 0 rows, 1 planes (only where all values have one length)
//! values          bytes
//! ```
//!
//! A row above [`ONE_ROW_BYTES`] has its own block: `kind u8 | seqno varint | key length varint |
//! key | value`.
//!
//! The **decoded** layout ([`DecodedBlock`]) is the one in the cache: the columns with suffixes and
//! values in rows, and next to them 8-byte heads for the search and offsets, all in one frame. It
//! never reaches a file.
//!
//! Entries are ordered by key ascending, then seqno descending, and no two agree in both.

mod decode;
mod decoded;
mod encode;
mod ints;
mod planes;
mod search;

#[cfg(all(test, loom))]
pub(super) use decode::one_row_block;
pub(super) use decode::{ReusedBlock, decode_block};
pub use decoded::{BlockFrame, DecodedBlock, Row, Shape};
pub(super) use encode::{OpenBlock, ValueOrder, encode_one_row};
use ints::IntCoding;
pub(super) use ints::{Ints, put_ints};
pub(super) use search::{common_prefix, first_at_least, head};

/// Key and value bytes above which a row gets its own block.
pub(super) const ONE_ROW_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests;
