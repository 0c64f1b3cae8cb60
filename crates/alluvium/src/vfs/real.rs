//! The operating system's files: positional I/O, `fdatasync`, `fallocate`, advice to the page
//! cache.
//!
//! An anchored file system holds its directory open and reaches every path below it through that
//! handle. `chdir`, and a renamed or replaced directory, change nothing for it. Without an anchor,
//! a relative path is resolved at the moment of the call.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_mem::process::Process;
use alluvium_mem::write_hint::{WriteHint, set_write_hint};
use rustix::fs::{Advice, AtFlags, Dir, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{Lifetime, LockGuard, LockHolder, Vfs, VfsFile};

/// Largest piece of one read-ahead hint. Linux silently cuts a hint at the larger of the device's
/// read-ahead and its largest request, 128 KiB by default. It would read the rest piece by piece,
/// with a wait for each.
const ADVICE_BYTES: u64 = 128 << 10;

/// Content of a held lock file: this prefix and the identity of the holder's process.
const HOLDER_PREFIX: &str = "alluvium lock of process ";

/// File system of the operating system.
#[derive(Debug, Clone, Default)]
pub struct RealVfs {
    anchor: Option<Arc<Anchor>>,
}

/// Directory that is held open.
#[derive(Debug)]
struct Anchor {
    dir: PathBuf,
    handle: File,
}

/// Path in the form of system call arguments.
struct At<'a> {
    dir: BorrowedFd<'a>,
    path: &'a Path,
}

impl At<'_> {
    fn open(&self, flags: OFlags) -> io::Result<File> {
        let mode = Mode::from_raw_mode(0o666);
        let open = || rustix::fs::openat(self.dir, self.path, flags | OFlags::CLOEXEC, mode);
        Ok(File::from(retry_on_intr(open)?))
    }

    fn open_dir(&self) -> io::Result<File> {
        self.open(OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn exists(&self) -> io::Result<bool> {
        match rustix::fs::statat(self.dir, self.path, AtFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl RealVfs {
    /// Creates the file system without an anchor.
    pub fn new() -> RealVfs {
        RealVfs::default()
    }

    fn at<'a>(&'a self, path: &'a Path) -> At<'a> {
        let below = |anchor: &'a Arc<Anchor>| {
            let path = path.strip_prefix(&anchor.dir).ok()?;
            Some(At {
                dir: anchor.handle.as_fd(),
                path: or_current(path),
            })
        };
        let anchored = self.anchor.as_ref().and_then(below);
        anchored.unwrap_or(At {
            dir: rustix::fs::CWD,
            path: or_current(path),
        })
    }

    fn open_file(&self, path: &Path, flags: OFlags) -> io::Result<Arc<dyn VfsFile>> {
        Ok(Arc::new(RealFile {
            file: self.at(path).open(flags)?,
            path: path.to_path_buf(),
        }))
    }

    /// Locks the lock file at `path` and its directory.
    fn take_lock(
        &self,
        path: &Path,
        flags: OFlags,
        operation: FlockOperation,
    ) -> io::Result<Result<LockGuard, LockHolder>> {
        let file = self.at(path).open(flags)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        let mut guard = RealLock {
            process: Process::current(),
            dir: self.at(parent).open_dir()?,
            file,
            signed: false,
        };
        if !(lock(&guard.file, operation)? && lock_dir(&guard.dir, operation)?) {
            // Dropping the guard unlocks only the locks that it holds.
            return guard.holder().map(Err);
        }
        if flags.contains(OFlags::RDWR) {
            guard.sign();
        }
        Ok(Ok(Box::new(guard)))
    }
}

/// Returns `.` for an empty path, which means the directory itself, here and as the parent of a
/// plain name.
fn or_current(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

/// Takes an advisory lock. Returns false if another open file has it.
fn lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Locks a directory like [`lock`], so that a second writer finds it locked even if the lock file
/// was replaced. Network file systems cannot lock a directory: there the lock file must do.
fn lock_dir(dir: &File, operation: FlockOperation) -> io::Result<bool> {
    match lock(dir, operation) {
        Err(error) if cannot_lock(&error) => Ok(true),
        other => other,
    }
}

fn cannot_lock(error: &io::Error) -> bool {
    let refusals = [
        Errno::BADF,
        Errno::INVAL,
        Errno::ISDIR,
        Errno::NOLCK,
        Errno::NOSYS,
        Errno::OPNOTSUPP,
    ];
    Errno::from_io_error(error).is_some_and(|errno| refusals.contains(&errno))
}

/// Held lock. It must be unlocked explicitly, not only closed, because a lock ends with the last
/// copy of its file. A process started meanwhile by another thread may have inherited the open
/// files until it calls `exec`.
struct RealLock {
    /// The process that took it. A forked child does not release its parent's lock.
    process: Process,
    file: File,
    dir: File,
    /// True if the file holds the signature of this lock.
    signed: bool,
}

impl RealLock {
    fn signature(&self) -> String {
        format!("{HOLDER_PREFIX}{:016x}\n", self.process.id())
    }

    /// Writes the identity of the process to the lock file, for [`RealLock::holder`] in other
    /// openings. If that fails, they cannot identify the holder.
    fn sign(&mut self) {
        let signature = self.signature();
        self.signed = self.file.write_all_at(signature.as_bytes(), 0).is_ok();
    }

    /// Returns the holder that refuses this lock: readers, or the writer with its signature in the
    /// file.
    fn holder(&self) -> io::Result<LockHolder> {
        if lock(&self.file, FlockOperation::NonBlockingLockShared)?
            && lock_dir(&self.dir, FlockOperation::NonBlockingLockShared)?
        {
            return Ok(LockHolder::Readers);
        }
        let own = self.signature();
        let mut found = vec![0; own.len()];
        Ok(match self.file.read_exact_at(&mut found, 0) {
            Ok(()) if found == own.as_bytes() => LockHolder::ThisProcess,
            _ => LockHolder::AnotherProcess,
        })
    }
}

impl Drop for RealLock {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        if self.signed {
            // A later holder may be unable to sign; a leftover signature would pass for its own.
            let _ = self.file.set_len(0);
        }
        for file in [&self.file, &self.dir] {
            // Closing the file unlocks too, unless another process has a copy.
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}

impl Vfs for RealVfs {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        std::path::absolute(path)
    }

    fn anchored(&self, dir: &Path) -> io::Result<Arc<dyn Vfs>> {
        let handle = self.at(dir).open_dir()?;
        let dir = dir.to_path_buf();
        let anchor = Some(Arc::new(Anchor { dir, handle }));
        Ok(Arc::new(RealVfs { anchor }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.open_file(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.open_file(path, OFlags::RDWR)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.open_file(path, OFlags::RDONLY)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.at(from), self.at(to));
        Ok(rustix::fs::renameat(from.dir, from.path, to.dir, to.path)?)
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.at(from), self.at(to));
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(from.dir, from.path, to.dir, to.path, flags) {
            // Not every file system can refuse by itself. Between the check and the rename only an
            // empty directory of another program could be replaced.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                if to.exists()? {
                    Err(io::ErrorKind::AlreadyExists.into())
                } else {
                    Ok(rustix::fs::renameat(from.dir, from.path, to.dir, to.path)?)
                }
            }
            other => Ok(other?),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let at = self.at(path);
        Ok(rustix::fs::unlinkat(at.dir, at.path, AtFlags::empty())?)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let at = self.at(dir);
        Ok(rustix::fs::unlinkat(at.dir, at.path, AtFlags::REMOVEDIR)?)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::new(OwnedFd::from(self.at(dir).open_dir()?))? {
            // A name that is not UTF-8 does not belong to the engine.
            if let Ok(name) = entry?.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.at(path).exists()
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let at = self.at(dir);
        let mut path = PathBuf::new();
        for part in at.path.components() {
            path.push(part);
            match rustix::fs::mkdirat(at.dir, &path, Mode::from_raw_mode(0o777)) {
                Ok(()) => {}
                // `mkdir` may fail with another error for a directory that exists, if the caller
                // must not create one there. So return its error only if nothing exists.
                Err(error) => {
                    let stat = rustix::fs::statat(at.dir, &path, AtFlags::empty());
                    let mode = stat.map_err(|_| error)?.st_mode;
                    if !rustix::fs::FileType::from_raw_mode(mode).is_dir() {
                        return Err(io::ErrorKind::NotADirectory.into());
                    }
                }
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match &self.anchor {
            // The directory that is synced most needs no new descriptor.
            Some(anchor) if anchor.dir == dir => anchor.handle.sync_all(),
            _ => self.at(dir).open_dir()?.sync_all(),
        }
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.at(from), self.at(to));
        let flags = AtFlags::empty();
        Ok(rustix::fs::linkat(
            from.dir, from.path, to.dir, to.path, flags,
        )?)
    }

    fn lock(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        self.take_lock(path, flags, FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        let operation = FlockOperation::NonBlockingLockShared;
        self.take_lock(path, OFlags::RDONLY, operation)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = match &self.anchor {
            Some(anchor) if anchor.dir == dir => rustix::fs::fstatvfs(&anchor.handle)?,
            _ => rustix::fs::fstatvfs(self.at(dir).open_dir()?)?,
        };
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    path: PathBuf,
}

impl RealFile {
    /// Gives the kernel advice about a range.
    fn advise(&self, offset: u64, len: u64, advice: Advice) {
        // Advice may be refused without harm. A length of zero would mean "to the end".
        if let Some(len) = NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), advice);
        }
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
        // Sets the length only once there is room for all of it: some file systems leave a part of
        // a failed allocation.
        let reserved =
            retry_on_intr(|| rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, len));
        match reserved {
            // Some file systems cannot allocate: the length is set anyway, without the promise of
            // space.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.file.set_len(len),
            Err(error) => {
                // Frees the allocated part.
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
        // Linux starts asynchronous write-back of the dirty pages in the range before it drops the
        // clean ones. There is no safe binding of `sync_file_range`. In a newly written range all
        // pages are dirty, so they stay cached.
        self.drop_cached(offset, len);
    }

    fn expect_lifetime(&self, lifetime: Lifetime) {
        let hint = match lifetime {
            Lifetime::Short => WriteHint::Short,
            Lifetime::Medium => WriteHint::Medium,
            Lifetime::Long => WriteHint::Extreme,
        };
        // Without the hint the device mixes data of different lifetimes, as it does for other
        // programs.
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
