//! Opening a store for making backups, or only for reading them.
//!
//! A store opened only for reading is not changed at all, so it may be on a read-only mount.
//! Readers share its lock, if there is a lock file, and exclude writers.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_mem::process::Process;

use super::files::sync_dir;
use super::{BackupStore, TABLES};
use crate::db::checkpoint::parent;
use crate::error::{Error, Result};
use crate::recovery::{self, absolute, hold};
use crate::sync::plain::Mutex;
use crate::version::Manifest;
use crate::vfs::{LockGuard, RealVfs, Vfs};

impl BackupStore {
    /// Opens the store in a directory, creating it if it is missing. Its parent must exist.
    ///
    /// A store that cannot be written, as on a read-only mount, is opened as by
    /// [`BackupStore::open_read_only`]. Calls that make or delete a backup then fail with the error
    /// of the first attempt to open it.
    ///
    /// # Errors
    ///
    /// `Locked` while the store is open elsewhere, `InvalidArgument` for the directory of a
    /// database, `Io`.
    pub fn open(dir: impl AsRef<Path>) -> Result<BackupStore> {
        BackupStore::open_on(Arc::new(RealVfs::new()), dir)
    }

    /// Opens a store like [`BackupStore::open`], on the given file system.
    pub fn open_on(vfs: Arc<dyn Vfs>, dir: impl AsRef<Path>) -> Result<BackupStore> {
        let dir = absolute(&*vfs, dir.as_ref())?;
        refuse_database(&*vfs, &dir)?;
        match lock_to_write(&*vfs, &dir) {
            Ok((vfs, lock)) => Ok(new(vfs, dir, Some(lock), None)),
            Err(error) if cannot_be_written(&error) && is_there(&*vfs, &dir)? => {
                let (vfs, lock) = lock_to_read(&*vfs, &dir)?;
                Ok(new(vfs, dir, lock, Some(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Opens an existing store to list, verify and restore its backups; nothing in the directory
    /// changes. Any number of readers share a store. Calls that make or delete a backup fail with
    /// `ReadOnly`.
    ///
    /// # Errors
    ///
    /// `Locked` while the store is open for writing elsewhere, `InvalidArgument` for a directory
    /// that is no store, `Io`.
    pub fn open_read_only(dir: impl AsRef<Path>) -> Result<BackupStore> {
        BackupStore::open_read_only_on(Arc::new(RealVfs::new()), dir)
    }

    /// Opens a store like [`BackupStore::open_read_only`], on the given file system.
    pub fn open_read_only_on(vfs: Arc<dyn Vfs>, dir: impl AsRef<Path>) -> Result<BackupStore> {
        let dir = absolute(&*vfs, dir.as_ref())?;
        refuse_database(&*vfs, &dir)?;
        if !is_there(&*vfs, &dir)? {
            let message = format!("{} is no store of backups", dir.display());
            return Err(Error::InvalidArgument(message));
        }
        let (vfs, lock) = lock_to_read(&*vfs, &dir)?;
        Ok(new(vfs, dir, lock, Some(Error::ReadOnly)))
    }

    /// Refuses calls that change a store opened only for reading, and calls of a forked process.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.check_process()?;
        self.refused.clone().map_or(Ok(()), Err)
    }
}

fn new(
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    lock: Option<LockGuard>,
    refused: Option<Error>,
) -> BackupStore {
    BackupStore {
        vfs,
        dir,
        changing: Mutex::new(()),
        refused,
        _lock: lock,
        process: Process::current(),
    }
}

fn refuse_database(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    if !Manifest::exists(vfs, dir)? {
        return Ok(());
    }
    let message = format!("{} is a database: choose another directory", dir.display());
    Err(Error::InvalidArgument(message))
}

fn is_there(vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
    let tables = dir.join(TABLES);
    vfs.exists(&tables)
        .map_err(|e| Error::io("look for", &tables, e))
}

/// Returns true if this process cannot write to the file system here.
fn cannot_be_written(error: &Error) -> bool {
    let refusals = [ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied];
    matches!(error, Error::Io { source, .. } if refusals.contains(&source.kind()))
}

/// Makes the directories durable, and takes the exclusive lock. Returns it with a file system that
/// reaches the store through a handle of its directory.
fn lock_to_write(vfs: &dyn Vfs, dir: &Path) -> Result<(Arc<dyn Vfs>, LockGuard)> {
    let tables = dir.join(TABLES);
    vfs.create_dir_all(&tables)
        .map_err(|e| Error::io("create directory", &tables, e))?;
    // At every open: the first one may have stopped before the names were durable.
    for durable in [dir, parent(dir)] {
        sync_dir(vfs, durable)?;
    }
    let vfs = hold(vfs, dir)?;
    let lock = recovery::lock_to_write(&*vfs, dir)?;
    Ok((vfs, lock))
}

/// Takes a lock shared with other readers, like [`lock_to_write`]; no lock if the store was copied
/// without its lock file.
fn lock_to_read(vfs: &dyn Vfs, dir: &Path) -> Result<(Arc<dyn Vfs>, Option<LockGuard>)> {
    let vfs = hold(vfs, dir)?;
    let lock = recovery::lock_to_read(&*vfs, dir)?;
    Ok((vfs, lock))
}
