//! The table of kv-sequence and what an engine does with it.
//!
//! Engines with SQL implement [`RowStore`] themselves; ordered key-value engines get it from
//! [`crate::kv_sequence::kv_store`].

use crate::engine::Result;
use crate::kv::Scan;

/// A row to write.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// The table of one open engine.
pub trait RowStore: Send + Sync {
    /// A connection for one client thread.
    fn connect(&self) -> Result<Box<dyn RowConnection>>;

    /// Whether rows written can be read. Only an engine that measures the client's own cost answers no; its answers
    /// are then not judged.
    fn keeps_rows(&self) -> bool {
        true
    }
}

/// One client's connection. A write is one transaction, run again on conflict by the caller of the trait
/// ([`crate::engine::EngineError::Retry`] says so).
pub trait RowConnection: Send {
    /// Loads new rows with ascending keys, one commit.
    fn load(&mut self, rows: &[Row<'_>]) -> Result<()>;

    /// Writes a row that may exist, one commit.
    fn put(&mut self, row: Row<'_>) -> Result<()>;

    /// Reads one key; `read` sees its value in place, or `None`.
    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;

    /// Reads several keys by the engine's own call for that, else one after the other; `read` gets each with its place.
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        read: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()>;

    /// Reads rows of one point in time in order; `visit` returns whether to go on.
    fn scan(&mut self, scan: Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;
}
