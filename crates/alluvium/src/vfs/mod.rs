//! Files as the engine sees them.

use std::path::Path;

/// An open file with positioned reads and writes.
pub trait VfsFile: Send + Sync {
    /// Fills `buf` from `offset`; `UnexpectedEof` when the file is shorter.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()>;
    /// Writes all of `buf` at `offset`.
    fn write_at(&self, buf: &[u8], offset: u64) -> std::io::Result<()>;
    /// Makes everything written durable.
    fn sync(&self) -> std::io::Result<()>;
    /// The file's length in bytes.
    fn len(&self) -> std::io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> std::io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends the file to `len` bytes.
    fn truncate(&self, len: u64) -> std::io::Result<()>;
    /// The name it was opened with.
    fn path(&self) -> &Path;
}
