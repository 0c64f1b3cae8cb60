//! Dictionaries: what the blocks of a table have in common, trained once and kept in the table.
//!
//! zstd alone builds its tables of symbols again for each block and finds no match before it, so
//! small blocks take more bytes. A dictionary has both ready.

use crate::table::malformed::Malformed;
use zstd::zstd_safe::{DDict, get_dict_id_from_dict};

/// Longest dictionary that a reader accepts.
pub(super) const DICTIONARY_BYTES_MAX: usize = 64 << 10;

/// Dictionary of an open file, ready to decompress with.
pub(super) struct Dictionary(DDict<'static>);

impl Dictionary {
    /// Prepares a dictionary from its stored bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Dictionary, Malformed> {
        // Without its magic number zstd would take any bytes as content.
        let prepared = get_dict_id_from_dict(bytes).and_then(|_| DDict::try_create(bytes));
        let found = || format!("{} other bytes", bytes.len());
        let wrong = || Malformed::new("dictionary", "a dictionary of zstd", found());
        prepared.map(Dictionary).ok_or_else(wrong)
    }

    pub(super) fn prepared(&self) -> &DDict<'static> {
        &self.0
    }

    /// Returns the memory in bytes.
    pub(super) fn resident_bytes(&self) -> usize {
        self.0.sizeof()
    }
}
