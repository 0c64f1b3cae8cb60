//! A file system in memory with a hook. The file system calls the hook before each kind of call in
//! [`Call`], not before writes, truncations and syncs of directories.
//!
//! `FaultVfs` fails the n-th call; a hook decides by the file and by the state of the test.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use alluvium::vfs::{LockGuard, LockHolder, MemVfs, Vfs, VfsFile};

/// Kind of file-system call that is passed to the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Create,
    Sync,
    Allocate,
    Remove,
    /// `open`, which also allows writing.
    Open,
    Rename,
    Link,
    CreateDir,
    /// `lock`, which creates the file.
    Lock,
    /// The two hints about reads; the hook's result is ignored.
    ExpectRandomReads,
    StartReading,
}

type Hook = Arc<dyn Fn(Call, &Path) -> io::Result<()> + Send + Sync>;

/// File system in memory with a hook, which is called while `on` is set.
#[derive(Clone)]
pub struct HookVfs {
    pub files: Arc<MemVfs>,
    pub on: Arc<AtomicBool>,
    hook: Hook,
    /// File system that receives the calls: `files`, or an anchored view of it.
    inner: Arc<dyn Vfs>,
    /// Number of open files, and its maximum, like the descriptor limit of a process.
    pub open_files: Arc<AtomicUsize>,
    pub open_files_max: Arc<AtomicUsize>,
}

struct HookFile {
    file: Arc<dyn VfsFile>,
    vfs: HookVfs,
}

impl HookVfs {
    pub fn new(hook: impl Fn(Call, &Path) -> io::Result<()> + Send + Sync + 'static) -> HookVfs {
        let (files, on) = (Arc::new(MemVfs::new()), Arc::new(AtomicBool::new(false)));
        HookVfs {
            inner: files.clone(),
            files,
            on,
            hook: Arc::new(hook),
            open_files: Arc::default(),
            open_files_max: Arc::new(AtomicUsize::new(usize::MAX)),
        }
    }

    /// Returns a file system that fails `call` with `error` on files with this ending while the
    /// hook is on.
    pub fn failing(call: Call, ending: &'static str, error: io::ErrorKind) -> HookVfs {
        HookVfs::new(move |at, path| {
            if at == call && path.to_string_lossy().ends_with(ending) {
                Err(error.into())
            } else {
                Ok(())
            }
        })
    }

    pub fn set(&self, on: bool) {
        self.on.store(on, Ordering::SeqCst);
    }

    fn ask(&self, call: Call, path: &Path) -> io::Result<()> {
        if self.on.load(Ordering::SeqCst) {
            (self.hook)(call, path)
        } else {
            Ok(())
        }
    }

    /// Opens a file if a descriptor is free.
    fn wrap(
        &self,
        open: impl FnOnce(&dyn Vfs) -> io::Result<Arc<dyn VfsFile>>,
    ) -> io::Result<Arc<dyn VfsFile>> {
        const EMFILE: i32 = 24;
        let most = self.open_files_max.load(Ordering::SeqCst);
        if self.open_files.fetch_add(1, Ordering::SeqCst) >= most {
            self.open_files.fetch_sub(1, Ordering::SeqCst);
            return Err(io::Error::from_raw_os_error(EMFILE));
        }
        let opened = open(&*self.inner).inspect_err(|_| {
            self.open_files.fetch_sub(1, Ordering::SeqCst);
        });
        Ok(Arc::new(HookFile {
            file: opened?,
            vfs: self.clone(),
        }))
    }
}

impl fmt::Debug for HookVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookVfs")
    }
}

impl fmt::Debug for HookFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl Drop for HookFile {
    fn drop(&mut self) {
        self.vfs.open_files.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Vfs for HookVfs {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn anchored(&self, dir: &Path) -> io::Result<Arc<dyn Vfs>> {
        Ok(Arc::new(HookVfs {
            inner: self.inner.anchored(dir)?,
            ..self.clone()
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.ask(Call::Create, path)?;
        self.wrap(|files| files.create(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.ask(Call::Open, path)?;
        self.wrap(|files| files.open(path))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.wrap(|files| files.open_read(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask(Call::Rename, to)?;
        self.inner.rename(from, to)
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask(Call::Rename, to)?;
        self.inner.rename_dir(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.ask(Call::Remove, path)?;
        self.inner.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.ask(Call::Remove, dir)?;
        self.inner.remove_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.ask(Call::CreateDir, dir)?;
        self.inner.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask(Call::Link, to)?;
        self.inner.hard_link(from, to)
    }

    fn lock(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        self.ask(Call::Lock, path)?;
        self.inner.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        self.inner.lock_shared(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.inner.free_bytes(dir)
    }
}

impl VfsFile for HookFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.vfs.ask(Call::Sync, self.file.path())?;
        self.file.sync()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.vfs.ask(Call::Allocate, self.file.path())?;
        self.file.allocate(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.file.start_writeback(offset, len);
    }

    fn expect_random_reads(&self) {
        let _ = self.vfs.ask(Call::ExpectRandomReads, self.file.path());
        self.file.expect_random_reads();
    }

    fn start_reading(&self, offset: u64, len: u64) {
        let _ = self.vfs.ask(Call::StartReading, self.file.path());
        self.file.start_reading(offset, len);
    }

    fn drop_cached(&self, offset: u64, len: u64) {
        self.file.drop_cached(offset, len);
    }
}

/// Spins until `done` returns true. If it never does, the test hangs.
pub fn wait_until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

/// Tries again until `done` returns true. Panics if it does not for much longer than a test takes.
pub fn succeeds(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(100), "never {what}");
        std::thread::yield_now();
    }
}

/// Returns a file system and two flags. The file system stops in the `nth` creation of a table and
/// sets the first flag; it continues once the caller sets the second.
pub fn stopping_at_table(nth: usize) -> (HookVfs, Arc<AtomicBool>, Arc<AtomicBool>) {
    let (there, go) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (hook_there, hook_go) = (Arc::clone(&there), Arc::clone(&go));
    let tables = AtomicUsize::new(0);
    let hook = move |call: Call, path: &Path| -> io::Result<()> {
        let table = call == Call::Create && path.to_string_lossy().ends_with(".sst");
        if table && tables.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            hook_there.store(true, Ordering::SeqCst);
            wait_until(|| hook_go.load(Ordering::SeqCst));
        }
        Ok(())
    };
    (HookVfs::new(hook), there, go)
}
