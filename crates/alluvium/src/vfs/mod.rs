//! Everything the engine does to files goes through [`Vfs`] and [`VfsFile`].
//!
//! [`RealVfs`] is the operating system. [`MemVfs`] keeps files in memory and can crash: it forgets any part of what was
//! not synced. [`FaultVfs`] wraps another one and fails chosen calls. The traits hold only what the engine needs: one
//! database directory, at most one level of directories below it, positional reads and writes. Whole directories are renamed
//! only where a copy of a database is put in place.
//!
//! Durability is explicit everywhere. The content and the length of a file are durable after [`VfsFile::sync`]; its name
//! is durable only after [`Vfs::sync_dir`] of its directory. Neither implies the other.
//!
//! An open database reaches its files through [`Vfs::anchored`], so that it keeps them when the process
//! changes its working directory or the directory gets another name. Every other path that a caller of the
//! engine gives goes through [`Vfs::absolute`] first.

mod fault;
mod mem;
mod random;
mod real;
#[cfg(test)]
mod tests;

pub use fault::{Fault, FaultEffect, FaultVfs, IoCall};
pub use mem::{CrashOptions, Keep, MemVfs};
#[cfg(test)]
pub(crate) use random::SplitMix;
pub use real::RealVfs;

pub use crate::error::LockHolder;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that [`Vfs::copy`] reads at a time.
const COPY_BYTES: u64 = 1 << 20;

/// Held while the caller owns a lock file. Dropping it unlocks, except in a forked child: the lock is the
/// parent's.
pub type LockGuard = Box<dyn Send + Sync>;

/// A file system.
pub trait Vfs: Send + Sync + fmt::Debug {
    /// Returns `path` as one that does not depend on the working directory. Fails where a relative path is
    /// given and the working directory is gone.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf>;

    /// Returns this file system with the existing directory `dir` held open. Paths that begin with `dir` are
    /// reached through that handle from now on, whatever becomes of the name; other paths as before.
    /// After the directory was removed, calls below it fail with `NotFound`.
    fn anchored(&self, dir: &Path) -> io::Result<Arc<dyn Vfs>>;

    /// Creates a file, open for reading and writing. Fails if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>>;

    /// Opens an existing file for reading. Writing to it fails.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>>;

    /// Gives a file a new name, atomically replacing what has that name. Durable after `sync_dir` of the new directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a directory a new name, atomically. Fails if the new name is taken. Durable after `sync_dir` of the
    /// directory that both names are in. No file in it may be open for writing.
    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Its content lives on while the file is open or has another name.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a directory, of files and directories, in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Whether something has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Creates a directory and its missing parents. Succeeds if it exists.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes durable every creation, removal and renaming done so far in this directory.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Gives a file a second name. Fails if the new name is taken, with `CrossesDevices` if it is on another file system.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Copies a file to a new name and returns its length. The content is durable on return, the name is not. Fails if
    /// the new name is taken; after any other failure a part of the copy may be left.
    fn copy(&self, from: &Path, to: &Path) -> io::Result<u64> {
        let source = self.open_read(from)?;
        let len = source.len()?;
        let target = self.create(to)?;
        // First, so that a full device is noticed before the bytes have been read.
        target.allocate(len)?;
        let mut buffer = vec![0; len.min(COPY_BYTES) as usize];
        let mut offset = 0;
        while offset < len {
            let piece = &mut buffer[..(len - offset).min(COPY_BYTES) as usize];
            source.read_at(piece, offset)?;
            target.write_at(piece, offset)?;
            target.start_writeback(offset, piece.len() as u64);
            offset += piece.len() as u64;
        }
        target.sync()?;
        Ok(len)
    }

    /// Takes the lock file at `path`, creating it if it is missing, and the directory that it lies in. The
    /// inner error names the holder that the caller is refused for.
    fn lock(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>>;

    /// Takes the existing lock file at `path`, with its directory, together with other callers of this. A
    /// caller of [`Vfs::lock`] is refused meanwhile, and refuses this call in turn. Changes nothing; fails
    /// with `NotFound` where there is no such file.
    fn lock_shared(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>>;

    /// How many more bytes the file system of `dir` can take.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// How long data is expected to live, compared with other data of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until the next flushes: the log, temporary files.
    Short,
    /// Until the next merge into the last level: upper tables.
    Medium,
    /// The last level, and values apart from their keys.
    Long,
}

/// An open file. Calls may come from several threads at once.
pub trait VfsFile: Send + Sync + fmt::Debug {
    /// Fills `buf` from `offset`, or fails with `UnexpectedEof` where the file is too short.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at `offset`, extending the file if needed.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Makes content and length durable, as `fdatasync` does. After an error nothing is known about what is durable.
    fn sync(&self) -> io::Result<()>;

    /// Extends the file to `len` bytes of zeros that have their place on the device, so that writing there cannot run
    /// out of space. Never shrinks. Fails with `StorageFull` where there is no room: then the length is what it was.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Sets the length: cuts the file, or extends it with zeros that have no place on the device yet.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// The path under which the file was opened.
    fn path(&self) -> &Path;

    /// A hint to start writing the dirty pages of a freshly written range, so that they never pile up for the next sync.
    /// Does not wait, promises nothing.
    fn start_writeback(&self, offset: u64, len: u64);

    /// A hint how long the data that will be written here lives, for devices that put like data together. File systems
    /// without such a thing do nothing.
    fn expect_lifetime(&self, lifetime: Lifetime) {
        let _ = lifetime;
    }

    /// A hint that reads will come in no order, so that nothing but what they ask for should be read from the device.
    /// Who reads in order all the same says so by [`VfsFile::start_reading`].
    fn expect_random_reads(&self) {}

    /// A hint to start reading the range into the page cache. Does not wait for the device, promises nothing.
    fn start_reading(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// A hint that the range will not be read soon. Clean pages leave the page cache.
    fn drop_cached(&self, offset: u64, len: u64);
}
