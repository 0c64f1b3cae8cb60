//! Dictionaries: what the blocks of a table have in common, trained once and kept in the table.
//!
//! zstd alone builds its tables of symbols again for each block and finds no match before it, so
//! small blocks take more bytes. A dictionary has both ready.

use crate::table::malformed::Malformed;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use zstd::zstd_safe::{DDict, get_dict_id_from_dict};

/// Longest dictionary that a reader accepts.
pub(super) const DICTIONARY_BYTES_MAX: usize = 64 << 10;

/// Dictionary of open files, ready to decompress with.
pub(super) struct Dictionary {
    /// As stored.
    bytes: Box<[u8]>,
    prepared: DDict<'static>,
}

/// Dictionaries of the open files of the process. The mutex is a leaf in the lock order, held while
/// one is prepared. The list is not part of a simulation: no result depends on what is shared.
static OPEN: Mutex<Vec<Weak<Dictionary>>> = Mutex::new(Vec::new());

impl Dictionary {
    /// Prepares a dictionary from its stored bytes, or returns that of another open file with the
    /// same bytes.
    ///
    /// Most tables of a keyspace have the same dictionary, and it has to be the same object: zstd
    /// takes a dictionary other than that of the block before for one that is not in the
    /// processor's cache, and decompresses more slowly.
    pub(super) fn decode(bytes: &[u8]) -> Result<Arc<Dictionary>, Malformed> {
        let mut open = OPEN.lock();
        open.retain(|dictionary| dictionary.strong_count() > 0);
        let mut shared = open.iter().filter_map(Weak::upgrade);
        if let Some(same) = shared.find(|dictionary| *dictionary.bytes == *bytes) {
            return Ok(same);
        }
        // Without its magic number zstd would take any bytes as content.
        let prepared = get_dict_id_from_dict(bytes).and_then(|_| DDict::try_create(bytes));
        let Some(prepared) = prepared else {
            let found = format!("{} other bytes", bytes.len());
            return Err(Malformed::new("dictionary", "a dictionary of zstd", found));
        };
        let bytes = bytes.into();
        let dictionary = Arc::new(Dictionary { bytes, prepared });
        open.push(Arc::downgrade(&dictionary));
        Ok(dictionary)
    }

    /// Returns the dictionary as stored.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn prepared(&self) -> &DDict<'static> {
        &self.prepared
    }

    /// Returns the memory in bytes. Each of the files that share a dictionary counts all of it.
    pub(super) fn resident_bytes(&self) -> usize {
        self.bytes.len() + self.prepared.sizeof()
    }
}
