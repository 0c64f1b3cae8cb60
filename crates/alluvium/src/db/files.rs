//! Files of an open database: their directory, their numbers, their descriptors and their removal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::TableId;
use crate::db::poison::Poison;
use crate::db::removals::Removals;
use crate::error::{Error, Result};
use crate::event::Events;
use crate::table::open_files::OpenFiles;
use crate::vfs::{Vfs, VfsFile};
use crate::wal::hard_io;

/// Directory and files of an open database.
pub(crate) struct Files {
    pub dir: PathBuf,
    pub vfs: Arc<dyn Vfs>,
    /// Descriptors of tables and value files.
    pub open_files: Arc<OpenFiles>,
    pub removals: Arc<Removals>,
    /// Next number of a table file. Relaxed: only uniqueness matters; the manifest records it with
    /// each table.
    next_table: AtomicU64,
}

impl Files {
    /// Creates the access to the files in `dir`; `next_table` is the first free number of a table.
    pub fn new(
        dir: PathBuf,
        vfs: Arc<dyn Vfs>,
        open_files: Arc<OpenFiles>,
        events: Arc<Events>,
        next_table: TableId,
    ) -> Files {
        Files {
            dir,
            removals: Removals::new(Arc::clone(&vfs), events),
            vfs,
            open_files,
            next_table: AtomicU64::new(next_table.0),
        }
    }

    /// Returns a new table number.
    pub fn next_table_id(&self) -> TableId {
        TableId(self.next_table.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the first table number not assigned yet, for the manifest.
    pub fn peek_next_table(&self) -> TableId {
        TableId(self.next_table.load(Ordering::Relaxed))
    }

    /// Returns the path of a file in the database directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// Creates a table or value file. If no descriptor is free, closes another file.
    pub fn create(&self, path: &Path) -> Result<Arc<dyn VfsFile>> {
        let created = self.open_files.with_descriptor(|| self.vfs.create(path));
        created.map_err(|e| Error::io("create", path, e))
    }

    /// Opens a newly written file. It may be closed later if other files need its descriptor.
    pub fn open(&self, path: &Path) -> Result<Arc<dyn VfsFile>> {
        let opened = self.open_files.with_descriptor(|| self.vfs.open_read(path));
        let file = opened.map_err(|e| Error::io("open", path, e))?;
        Ok(self.open_files.keep(file))
    }

    /// Makes the names in the directory durable. A failure poisons: the kernel may have dropped
    /// other names too, and a later sync would not report it.
    pub fn sync_directory(&self, poison: &Poison) -> Result<()> {
        let synced = self.vfs.sync_dir(&self.dir);
        synced.map_err(|error| poison.set(hard_io("sync", &self.dir, error)))
    }

    /// Returns the free bytes of the device; 0 if the system does not tell.
    pub fn free_bytes(&self) -> u64 {
        self.vfs.free_bytes(&self.dir).unwrap_or(0)
    }
}
