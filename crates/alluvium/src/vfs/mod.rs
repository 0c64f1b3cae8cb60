//! File systems: all file access of the engine goes through [`Vfs`] and [`VfsFile`].
//!
//! [`RealVfs`] is the operating system. [`MemVfs`] keeps files in memory and can crash: it forgets
//! any part of the unsynced data. [`FaultVfs`] wraps another one and fails chosen calls. The traits
//! hold only the calls that the engine needs: one database directory, at most one level of
//! directories below it, positional reads and writes. Whole directories are renamed only when a
//! copy of a database is put in place.
//!
//! Durability is explicit everywhere. The content and the length of a file are durable after
//! [`VfsFile::sync`]; its name is durable only after [`Vfs::sync_dir`] of its directory. Neither
//! implies the other.
//!
//! An open database reaches its files through [`Vfs::anchored`], so it keeps them if the process
//! changes its working directory or the directory is renamed. Every other path from a caller of the
//! engine goes through [`Vfs::absolute`] first.

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

/// Guard of an owned lock file. Dropping it unlocks, except in a forked child: the lock is the
/// parent's.
pub type LockGuard = Box<dyn Send + Sync>;

/// A file system.
pub trait Vfs: Send + Sync + fmt::Debug {
    /// Returns `path` made independent of the working directory. Fails if the path is relative and
    /// the working directory is gone.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf>;

    /// Returns this file system with the existing directory `dir` held open. It reaches paths that
    /// begin with `dir` through this handle, even after a rename, and other paths as before. After
    /// the directory was removed, calls below it fail with `NotFound`.
    fn anchored(&self, dir: &Path) -> io::Result<Arc<dyn Vfs>>;

    /// Creates a file, open for reading and writing. Fails if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>>;

    /// Opens an existing file for reading. Writing to it fails.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>>;

    /// Renames a file, atomically replacing the file with the new name. Durable after `sync_dir` of
    /// the new directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a directory, atomically. Fails if the new name is taken. Durable after `sync_dir` of
    /// the directory that holds both names. No file in it may be open for writing.
    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Its content lives on while the file is open or has another name.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Lists the names in a directory, of files and directories, in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Returns true if a file or directory has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Creates a directory and its missing parents. Succeeds if it exists.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes durable every creation, removal and renaming done so far in this directory.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Gives a file a second name. Fails if the new name is taken, with `CrossesDevices` if it is
    /// on another file system.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Copies a file to a new name and returns its length. The content is durable on return, the
    /// name is not. Fails if the new name is taken; any other failure may leave part of the copy.
    fn copy(&self, from: &Path, to: &Path) -> io::Result<u64> {
        let source = self.open_read(from)?;
        let len = source.len()?;
        let target = self.create(to)?;
        // First, to notice a full device before reading the bytes.
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

    /// Locks the lock file at `path`, creating it if it is missing, and its directory. The inner
    /// error names the holder that refuses the caller.
    fn lock(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>>;

    /// Locks the existing lock file at `path`, with its directory, together with other callers of
    /// this function. Meanwhile [`Vfs::lock`] is refused, and an exclusive holder refuses this
    /// call. Changes nothing; fails with `NotFound` if there is no such file.
    fn lock_shared(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>>;

    /// Returns how many more bytes the file system of `dir` can take.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// Expected lifetime of data, compared with other data of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until the next flushes: the log, temporary files.
    Short,
    /// Until the next compaction into the last level: upper tables.
    Medium,
    /// The last level, and values separated from their keys.
    Long,
}

/// Open file. Calls may come from several threads at once.
pub trait VfsFile: Send + Sync + fmt::Debug {
    /// Fills `buf` from `offset`, or fails with `UnexpectedEof` if the file is too short.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at `offset`, extending the file if needed.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Makes content and length durable, as `fdatasync` does. After an error it is unknown which
    /// bytes are durable.
    fn sync(&self) -> io::Result<()>;

    /// Extends the file to `len` bytes of zeros with space reserved on the device, so that writes
    /// there cannot run out of space. Never shrinks. Fails with `StorageFull` if there is no room,
    /// and leaves the length unchanged.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Returns true if the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Sets the length: truncates the file, or extends it with zeros that have no space on the
    /// device yet.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Returns the path under which the file was opened.
    fn path(&self) -> &Path;

    /// Hints to start writing the dirty pages of a newly written range, so that they never pile up
    /// for the next sync. Does not wait, promises nothing.
    fn start_writeback(&self, offset: u64, len: u64);

    /// Hints how long data written to this file will live, for devices that place data by lifetime.
    /// File systems without such a feature do nothing.
    fn expect_lifetime(&self, lifetime: Lifetime) {
        let _ = lifetime;
    }

    /// Hints that reads come in no order, so the kernel should read no more than each asks for. A
    /// caller that does read in order calls [`VfsFile::start_reading`].
    fn expect_random_reads(&self) {}

    /// Hints to start reading the range into the page cache. Does not wait for the device, promises
    /// nothing.
    fn start_reading(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Hints that the range will not be read soon. Clean pages leave the page cache.
    fn drop_cached(&self, offset: u64, len: u64);
}
