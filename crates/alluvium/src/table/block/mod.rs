//! Blocks: the rows of a table in pieces of about 8 KiB, in two layouts.
//!
//! The **stored** layout is columnar, because that compresses best: the common key prefix once, key suffixes as byte
//! planes, and a column for kinds, seqnos and lengths only where they differ. The raw bytes of a block are
//!
//! ```text
//! prefix          varint length, bytes
//! suffix lengths  integer column (ints.rs)
//! suffixes        all of one length: one plane for each byte position; else the bytes one after another
//! kinds           u8: the kind of all entries, or 0 and one byte for each entry
//! seqnos          integer column
//! value lengths   integer column
//! value order     u8: 0 rows, 1 planes (only where all values have one length)
//! values          bytes
//! ```
//!
//! A row above [`ONE_ROW_BYTES`] has a block of its own: `kind u8 | seqno varint | key length varint | key | value`.
//!
//! The **decoded** layout ([`DecodedBlock`]) is what the cache holds: 8-byte heads for the search, then rows whose
//! suffix and value stand together. It never reaches a file.
//!
//! Entries are ordered by key ascending, then seqno descending, and no two agree in both.

mod decode;
mod decoded;
mod encode;
mod ints;
mod planes;
mod search;

pub use decoded::{DecodedBlock, Row};
pub(in crate::table) use encode::{OpenBlock, ValueOrder, encode_one_row};
pub(in crate::table) use ints::{Ints, put_ints};
pub(in crate::table) use search::{common_prefix, head, ties};

/// Rows with more key and value bytes than this get a block of their own.
pub(in crate::table) const ONE_ROW_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests;
