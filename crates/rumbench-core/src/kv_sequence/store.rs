//! Table of kv-sequence and its operations on an engine.
//!
//! Engines with SQL implement [`RowStore`] themselves; ordered key-value engines get it from
//! [`crate::kv_sequence::kv_store`].

use crate::error::Result;
use crate::kv::Scan;

/// A row to write.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Key of the row.
    pub key: &'a [u8],
    /// Value of the row.
    pub value: &'a [u8],
}

/// The table of one open engine.
pub trait RowStore: Send + Sync {
    /// Opens a connection for one client thread.
    fn connect(&self) -> Result<Box<dyn RowConnection>>;

    /// Returns true if written rows can be read. Only an engine that measures the client's own cost
    /// returns false; its answers are then not checked.
    fn keeps_rows(&self) -> bool {
        true
    }
}

/// One client's connection. A write is one transaction; the caller runs it again after a conflict,
/// reported as [`crate::error::EngineError::Retry`].
pub trait RowConnection: Send {
    /// Loads new rows with ascending keys in one commit.
    fn load(&mut self, rows: &[Row<'_>]) -> Result<()>;

    /// Writes a row that may exist in one commit.
    fn put(&mut self, row: Row<'_>) -> Result<()>;

    /// Reads one key; `read` sees its value in place, or `None`.
    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;

    /// Reads several keys by the engine's multi-get, or else one by one; `read` gets each value
    /// with the key's index.
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        read: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()>;

    /// Reads rows of one point in time in key order; `visit` returns false to stop.
    fn scan(&mut self, scan: Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;
}
