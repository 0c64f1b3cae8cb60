//! Handles that make written records durable while the writer continues.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use super::{hard_io, sync_dir};
use crate::error::{Error, Result};
use crate::sync::plain::Mutex;
use crate::vfs::{Vfs, VfsFile};

/// Held during a sync: the kernel reports a failed write to one of two syncs of a file at one time,
/// and the other one would take its records for durable. Guards no data; a leaf in the lock order.
pub(super) type Turn = Mutex<()>;

/// Syncs the log up to the end it had when this handle was taken.
#[derive(Debug, Clone)]
pub struct WalSync {
    /// Segments before the newest that were not known to be durable, oldest first.
    pub(super) older: Vec<Arc<dyn VfsFile>>,
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) names: Option<Names>,
    pub(super) failure: Arc<OnceLock<Error>>,
    pub(super) turn: Arc<Turn>,
}

impl WalSync {
    /// Makes everything written so far durable, older segments first. Costs one `fdatasync` for
    /// each of them, and one of the directory if a roll had to create a file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] is final, and repeated by every later call on this log: a second sync could
    /// report success although the kernel has dropped the pages that the first one could not write.
    pub fn sync(&self) -> Result<()> {
        let _turn = self.turn.lock();
        if let Some(error) = self.failure.get() {
            return Err(error.clone());
        }
        let mut files = self.older.iter().chain([&self.file]);
        files.try_for_each(|file| sync_file(&**file, &self.failure))?;
        sync_names(self.names.as_ref(), &self.failure)
    }
}

/// Directory to sync, because it holds segment names that are not durable yet.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub vfs: Arc<dyn Vfs>,
    pub dir: PathBuf,
}

/// Syncs the log like [`WalSync`], but keeps no file open: see [`super::WalWriter::late_syncer`].
#[derive(Debug, Clone)]
pub struct LateSync {
    /// Oldest first. A file that is gone was durable when the writer dropped it.
    pub(super) files: Vec<Weak<dyn VfsFile>>,
    pub(super) names: Option<Names>,
    pub(super) failure: Arc<OnceLock<Error>>,
    pub(super) turn: Arc<Turn>,
}

impl LateSync {
    /// Syncs like [`WalSync::sync`], with the same errors.
    pub fn sync(&self) -> Result<()> {
        let _turn = self.turn.lock();
        if let Some(error) = self.failure.get() {
            return Err(error.clone());
        }
        let mut files = self.files.iter().filter_map(Weak::upgrade);
        files.try_for_each(|file| sync_file(&*file, &self.failure))?;
        sync_names(self.names.as_ref(), &self.failure)
    }
}

fn sync_file(file: &dyn VfsFile, failure: &OnceLock<Error>) -> Result<()> {
    file.sync().map_err(|error| {
        let error = hard_io("sync", file.path(), error);
        failure.get_or_init(|| error).clone()
    })
}

fn sync_names(names: Option<&Names>, failure: &OnceLock<Error>) -> Result<()> {
    let synced = names.map_or(Ok(()), |names| sync_dir(&*names.vfs, &names.dir));
    synced.map_err(|error| failure.get_or_init(|| error).clone())
}
