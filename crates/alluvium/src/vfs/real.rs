//! The operating system's files: positional I/O, `fdatasync`, `fallocate`, advice to the page cache.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_mem::write_hint::{WriteHint, set_write_hint};
use rustix::fs::{Advice, FallocateFlags, RenameFlags};
use rustix::io::Errno;

use super::{Lifetime, LockGuard, Vfs, VfsFile};

/// Linux cuts one hint to read ahead at the larger of the device's read-ahead and its largest request, 128 KiB unless
/// somebody sets them, and says nothing; what is cut off would be read piece by piece, waiting for each.
const ADVICE_BYTES: u64 = 128 << 10;

/// The files of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealVfs;

#[derive(Debug)]
struct RealFile {
    file: File,
    path: PathBuf,
}

impl RealFile {
    /// Tells the kernel about a range.
    fn advise(&self, offset: u64, len: u64, advice: Advice) {
        // Advice may be refused without harm. A length of zero would mean "to the end".
        if let Some(len) = NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), advice);
        }
    }
}

fn open_with(options: &OpenOptions, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
    Ok(Arc::new(RealFile {
        file: options.open(path)?,
        path: path.to_path_buf(),
    }))
}

impl Vfs for RealVfs {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        open_with(
            OpenOptions::new().read(true).write(true).create_new(true),
            path,
        )
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        open_with(OpenOptions::new().read(true).write(true), path)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        open_with(OpenOptions::new().read(true), path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (here, flags) = (rustix::fs::CWD, RenameFlags::NOREPLACE);
        match rustix::fs::renameat_with(here, from, here, to, flags) {
            // Not every file system can refuse by itself. Between the look and the renaming only an empty directory of
            // somebody else's could be replaced.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match to.try_exists()? {
                true => Err(io::ErrorKind::AlreadyExists.into()),
                false => std::fs::rename(from, to),
            },
            other => Ok(other?),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            // A name that is not UTF-8 is not one of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // The parent of a relative one-part path is written as an empty path.
        let dir = if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        };
        File::open(dir)?.sync_all()
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<LockGuard>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<LockGuard>> {
        let file = File::open(path)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl VfsFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let old = self.len()?;
        if old >= len {
            return Ok(());
        }
        // The length only once there is room for all of it: some file systems leave a part where there is not.
        let reserved = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, len)
        });
        match reserved {
            // Some file systems cannot reserve: the length is set all the same, only the promise of room is lost.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.file.set_len(len),
            Err(error) => {
                // Gives the part back.
                let _ = self.file.set_len(old);
                Err(error.into())
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        // Linux starts asynchronous write-back of the dirty pages in the range before it drops the clean ones. There is
        // no safe binding of `sync_file_range`, and in a range written a moment ago all pages are dirty: they stay.
        self.drop_cached(offset, len);
    }

    fn expect_lifetime(&self, lifetime: Lifetime) {
        let hint = match lifetime {
            Lifetime::Short => WriteHint::Short,
            Lifetime::Medium => WriteHint::Medium,
            Lifetime::Long => WriteHint::Extreme,
        };
        // Without the hint the device mixes what it writes, as it does for everybody else.
        let _ = set_write_hint(&self.file, hint);
    }

    fn expect_random_reads(&self) {
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Random);
    }

    fn start_reading(&self, offset: u64, len: u64) {
        for start in (0..len).step_by(ADVICE_BYTES as usize) {
            let piece = ADVICE_BYTES.min(len - start);
            self.advise(offset + start, piece, Advice::WillNeed);
        }
    }

    fn drop_cached(&self, offset: u64, len: u64) {
        self.advise(offset, len, Advice::DontNeed);
    }
}
