//! Tables: immutable sorted files (`.sst`) of versioned rows, with their writer, lookup and scan.
//!
//! ```text
//! block 0 | block 1 | ... | dictionary | whole-key filter | prefix filter | range deletes
//!         | fences | copy of the dictionary | properties | footer
//! ```
//!
//! Everything but the footer is a *section*: content after a 24-byte header with a checksum over
//! both. The checksum is seeded by file uid and offset, so a misdirected read or a stale file fails
//! the check. The byte-by-byte description is `docs/format/table.md`. A reader keeps the fences
//! (one separator for each block) and the filters in memory. A lookup is a filter probe, a fence
//! search and one block; the cache holds decoded blocks in slots next to their fences.
//!
//! In reading order: `block` (the two layouts of rows), `section`, `codec` and `dictionary` (frame
//! and compression), `fences`, `filters`, `ranges`, `properties`, `footer`, then `builder`,
//! `training`, `reader`, `owned_file`, `open_files`, `cursor`, `scan`, `read_ahead`, `verify`,
//! and `frames` (the cached blocks).
//!
//! Not used yet: expiry columns, for which the format has room.

mod block;
mod builder;
mod codec;
mod cursor;
mod dictionary;
mod estimate;
mod fences;
mod filters;
mod footer;
mod frames;
mod held_block;
mod lookup;
mod malformed;
pub(crate) mod open_files;
mod owned_file;
mod pinned;
pub(crate) mod pool;
mod properties;
mod ranges;
mod read_ahead;
mod reader;
mod salvage;
mod scan;
mod section;
mod training;
mod values;
mod verify;

pub use builder::{TableBuilder, TableOptions, TableSummary};
pub use codec::Codec;
pub(crate) use codec::LZ4_RATIO_MAX;
pub use cursor::TableCursor;
pub use filters::{FilterOptions, PrefixFilter};
pub(crate) use lookup::{Access, BlockBytes, Prefetch, Read, Started};
pub(crate) use owned_file::Leave;
pub use pinned::{BlockValue, PinnedValue};
pub use properties::ValuesPart;
pub use reader::Table;
pub(crate) use salvage::{salvage, salvage_values, stored_uid};
pub use scan::{SCAN_BYTES, TableScan};
pub use training::Trained;
pub use values::ValueFile;
pub(crate) use values::{Pointer, ValueFiles, ValueWriter, resolve};

#[cfg(test)]
mod tests;
