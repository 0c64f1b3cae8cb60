//! A file system in memory that records every change made to it, in the order of the changes.
//!
//! A history runs once. From the first n changes, [`super::disk::Disk`] then computes the possible
//! contents of the device if the power fails there, without running the engine again. Notes between
//! the changes record the acknowledged calls.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use alluvium::vfs::{LockGuard, LockHolder, MemVfs, Vfs, VfsFile};

/// Identity of a file, whatever its names.
pub type FileId = usize;

/// One change, or a note of the driver.
#[derive(Debug, Clone)]
pub enum Event<N> {
    /// A change of names, not durable before `SyncDir`.
    Name(NameChange),
    Write {
        file: FileId,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Resize {
        file: FileId,
        len: u64,
    },
    Sync {
        file: FileId,
    },
    SyncDir {
        dir: PathBuf,
    },
    Note(Arc<N>),
}

/// One directory operation, which is atomic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameChange {
    Add {
        path: PathBuf,
        file: FileId,
    },
    Remove {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        file: FileId,
    },
    MakeDir {
        path: PathBuf,
    },
    RemoveDir {
        path: PathBuf,
    },
    RenameDir {
        from: PathBuf,
        to: PathBuf,
    },
}

/// The record so far.
#[derive(Debug)]
struct Record<N> {
    events: Vec<Event<N>>,
    names: BTreeMap<PathBuf, FileId>,
    files: usize,
}

/// File system that records its changes. Clones share the record.
pub struct TraceVfs<N> {
    inner: Arc<dyn Vfs>,
    /// Held from a change until it is recorded, so that the record has the order of the changes.
    record: Arc<Mutex<Record<N>>>,
}

impl<N> Clone for TraceVfs<N> {
    fn clone(&self) -> TraceVfs<N> {
        TraceVfs {
            inner: Arc::clone(&self.inner),
            record: Arc::clone(&self.record),
        }
    }
}

impl<N> fmt::Debug for TraceVfs<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

struct TraceFile<N> {
    inner: Arc<dyn VfsFile>,
    id: FileId,
    record: Arc<Mutex<Record<N>>>,
}

impl<N> fmt::Debug for TraceFile<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

fn lock<N>(record: &Mutex<Record<N>>) -> MutexGuard<'_, Record<N>> {
    record.lock().expect("no recording thread panics")
}

impl<N: Send + Sync + 'static> TraceVfs<N> {
    /// Records the changes of `inner`; its existing files have these numbers.
    pub fn new(inner: MemVfs, names: BTreeMap<PathBuf, FileId>) -> TraceVfs<N> {
        let files = names.values().max().map_or(0, |last| last + 1);
        let record = Record {
            events: Vec::new(),
            names,
            files,
        };
        TraceVfs {
            inner: Arc::new(inner),
            record: Arc::new(Mutex::new(record)),
        }
    }

    pub fn note(&self, note: N) {
        lock(&self.record).events.push(Event::Note(Arc::new(note)));
    }

    /// Returns the record and starts a new one.
    pub fn take(&self) -> Vec<Event<N>> {
        std::mem::take(&mut lock(&self.record).events)
    }

    fn wrap(&self, inner: Arc<dyn VfsFile>, id: FileId) -> Arc<dyn VfsFile> {
        let record = Arc::clone(&self.record);
        Arc::new(TraceFile { inner, id, record })
    }

    fn opened(
        &self,
        path: &Path,
        open: impl FnOnce() -> io::Result<Arc<dyn VfsFile>>,
    ) -> io::Result<Arc<dyn VfsFile>> {
        let record = lock(&self.record);
        let inner = open()?;
        let id = record.names[path];
        Ok(self.wrap(inner, id))
    }
}

impl<N> Record<N> {
    fn add(&mut self, path: &Path, file: FileId) {
        self.names.insert(path.to_path_buf(), file);
        let path = path.to_path_buf();
        self.name(NameChange::Add { path, file });
    }

    fn new_file(&mut self, path: &Path) -> FileId {
        let file = self.files;
        self.files += 1;
        self.add(path, file);
        file
    }

    fn name(&mut self, change: NameChange) {
        self.events.push(Event::Name(change));
    }
}

impl<N: Send + Sync + 'static> Vfs for TraceVfs<N> {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    /// Records the paths of the calls, because no history moves an open database.
    fn anchored(&self, dir: &Path) -> io::Result<Arc<dyn Vfs>> {
        Ok(Arc::new(TraceVfs {
            inner: self.inner.anchored(dir)?,
            record: Arc::clone(&self.record),
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        let mut record = lock(&self.record);
        let inner = self.inner.create(path)?;
        let id = record.new_file(path);
        Ok(self.wrap(inner, id))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.opened(path, || self.inner.open(path))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.opened(path, || self.inner.open_read(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut record = lock(&self.record);
        self.inner.rename(from, to)?;
        if let Some(file) = record.names.remove(from) {
            record.names.insert(to.to_path_buf(), file);
            let (from, to) = (from.to_path_buf(), to.to_path_buf());
            record.name(NameChange::Rename { from, to, file });
        }
        Ok(())
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut record = lock(&self.record);
        self.inner.rename_dir(from, to)?;
        let names = std::mem::take(&mut record.names).into_iter();
        record.names = names
            .map(|(path, id)| (moved(&path, from, to), id))
            .collect();
        let (from, to) = (from.to_path_buf(), to.to_path_buf());
        record.name(NameChange::RenameDir { from, to });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut record = lock(&self.record);
        self.inner.remove(path)?;
        record.names.remove(path);
        let path = path.to_path_buf();
        record.name(NameChange::Remove { path });
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut record = lock(&self.record);
        self.inner.remove_dir(dir)?;
        let path = dir.to_path_buf();
        record.name(NameChange::RemoveDir { path });
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut record = lock(&self.record);
        let mut missing = Vec::new();
        for path in dir.ancestors() {
            if !self.inner.exists(path)? {
                missing.push(path.to_path_buf());
            }
        }
        self.inner.create_dir_all(dir)?;
        for path in missing.into_iter().rev() {
            record.name(NameChange::MakeDir { path });
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut record = lock(&self.record);
        self.inner.sync_dir(dir)?;
        let dir = dir.to_path_buf();
        record.events.push(Event::SyncDir { dir });
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut record = lock(&self.record);
        self.inner.hard_link(from, to)?;
        let id = record.names[from];
        record.add(to, id);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        let mut record = lock(&self.record);
        let guard = self.inner.lock(path)?;
        if !record.names.contains_key(path) {
            record.new_file(path);
        }
        Ok(guard)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        self.inner.lock_shared(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.inner.free_bytes(dir)
    }
}

impl<N: Send + Sync> TraceFile<N> {
    /// Runs a call that may change the length, and records the change.
    fn resized(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut record = lock(&self.record);
        let before = self.inner.len()?;
        call()?;
        let (file, len) = (self.id, self.inner.len()?);
        if len != before {
            record.events.push(Event::Resize { file, len });
        }
        Ok(())
    }
}

impl<N: Send + Sync> VfsFile for TraceFile<N> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut record = lock(&self.record);
        self.inner.write_at(buf, offset)?;
        let (file, bytes) = (self.id, Arc::from(buf));
        record.events.push(Event::Write {
            file,
            offset,
            bytes,
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut record = lock(&self.record);
        self.inner.sync()?;
        record.events.push(Event::Sync { file: self.id });
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.resized(|| self.inner.allocate(len))
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.resized(|| self.inner.truncate(len))
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn expect_random_reads(&self) {
        self.inner.expect_random_reads();
    }

    fn start_reading(&self, offset: u64, len: u64) {
        self.inner.start_reading(offset, len);
    }

    fn drop_cached(&self, offset: u64, len: u64) {
        self.inner.drop_cached(offset, len);
    }
}

/// Returns the new path of `path` after the directory `from` was renamed to `to`.
pub fn moved(path: &Path, from: &Path, to: &Path) -> PathBuf {
    match path.strip_prefix(from) {
        Ok(rest) if rest.as_os_str().is_empty() => to.to_path_buf(),
        Ok(rest) => to.join(rest),
        Err(_) => path.to_path_buf(),
    }
}
