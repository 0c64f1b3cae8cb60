//! Makes chosen calls of another file system fail, and counts all of them.
//!
//! A test arms a [`Fault`]: the kinds of call to count, the number of the call to fail, the effect,
//! and a flag to fail all later calls too. Running a scenario with the fault at call 1, 2, 3 and so
//! on until it no longer trips visits every place where the system can refuse.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::sync::thread::{self, ThreadId};

use super::{Lifetime, LockGuard, LockHolder, Vfs, VfsFile};

/// Kind of call that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoCall {
    /// `Vfs::create`.
    Create,
    /// `Vfs::open`, `Vfs::open_read` and `Vfs::anchored`.
    Open,
    /// `VfsFile::read_at`.
    Read,
    /// `VfsFile::write_at`.
    Write,
    /// `VfsFile::sync`.
    Sync,
    /// `VfsFile::allocate`.
    Allocate,
    /// `VfsFile::len` and `VfsFile::truncate`.
    Length,
    /// `Vfs::rename` and `Vfs::rename_dir`.
    Rename,
    /// `Vfs::remove` and `Vfs::remove_dir`.
    Remove,
    /// `Vfs::list` and `Vfs::exists`.
    List,
    /// `Vfs::sync_dir`.
    SyncDir,
    /// `Vfs::hard_link`.
    Link,
    /// `Vfs::create_dir_all`, `Vfs::lock`, `Vfs::lock_shared` and `Vfs::free_bytes`. `Vfs::copy` is
    /// made of other calls.
    Other,
}

impl IoCall {
    /// Number of kinds.
    const COUNT: usize = IoCall::Other as usize + 1;
}

/// Effect of a failing call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultEffect {
    /// An error and no other effect.
    Error,
    /// An error of a full device.
    NoSpace,
    /// The operating system's error with this number.
    Os(i32),
    /// An error of a link that would cross to another file system.
    CrossesDevices,
    /// A write stores the first half of its bytes, then reports an error. Other calls just fail.
    ShortWrite,
    /// A read returns one wrong bit, in the middle, and reports success. Other calls just fail.
    FlippedBit,
}

/// Plan of the calls that fail, and of the effect.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The kinds that count. Empty: all kinds.
    pub calls: Vec<IoCall>,
    /// The first call to fail, counted from 1 among those kinds since the fault was armed.
    pub nth: u64,
    /// If true, every later call of those kinds fails too.
    pub sticky: bool,
    /// Effect of the failing calls.
    pub effect: FaultEffect,
}

#[derive(Debug, Default)]
struct Plan {
    fault: Option<Fault>,
    /// The only thread with calls that count, if the fault was armed for one.
    thread: Option<ThreadId>,
    /// Calls that counted since the fault was armed.
    matched: u64,
    /// The first call that has failed since then, and its path.
    tripped: Option<(IoCall, PathBuf)>,
    calls: [u64; IoCall::COUNT],
}

/// Wrapper of another file system that fails calls on demand. Clones share the plan.
#[derive(Debug, Clone)]
pub struct FaultVfs {
    inner: Arc<dyn Vfs>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug)]
struct FaultFile {
    inner: Arc<dyn VfsFile>,
    plan: Arc<Mutex<Plan>>,
}

impl FaultVfs {
    /// Wraps a file system; nothing fails until a fault is armed.
    pub fn new(inner: Arc<dyn Vfs>) -> FaultVfs {
        FaultVfs {
            inner,
            plan: Arc::default(),
        }
    }

    /// Replaces the armed fault and starts counting its calls from zero.
    pub fn arm(&self, fault: Fault) {
        self.arm_for(None, fault);
    }

    /// Arms a fault like [`arm`](FaultVfs::arm), for calls of the calling thread only. Calls of
    /// background threads come at unpredictable times; they are not counted and do not fail.
    pub fn arm_for_this_thread(&self, fault: Fault) {
        self.arm_for(Some(thread::current().id()), fault);
    }

    fn arm_for(&self, thread: Option<ThreadId>, fault: Fault) {
        let mut plan = self.plan.lock();
        plan.fault = Some(fault);
        plan.thread = thread;
        plan.matched = 0;
        plan.tripped = None;
    }

    /// Removes the fault: every call succeeds again.
    pub fn disarm(&self) {
        self.plan.lock().fault = None;
    }

    /// Returns true if a call has failed since the fault was armed.
    pub fn tripped(&self) -> bool {
        self.plan.lock().tripped.is_some()
    }

    /// Returns the first call that has failed since the fault was armed, and its path.
    pub fn first_failure(&self) -> Option<(IoCall, PathBuf)> {
        self.plan.lock().tripped.clone()
    }

    /// Returns how many calls of this kind were made so far, failed ones included.
    pub fn calls(&self, kind: IoCall) -> u64 {
        self.plan.lock().calls[kind as usize]
    }

    fn wrap(&self, inner: Arc<dyn VfsFile>) -> Arc<dyn VfsFile> {
        Arc::new(FaultFile {
            inner,
            plan: Arc::clone(&self.plan),
        })
    }

    fn check(&self, kind: IoCall, path: &Path) -> io::Result<()> {
        check(&self.plan, kind, path)
    }
}

/// Counts the call and returns its effect if it fails.
fn trip(plan: &Mutex<Plan>, kind: IoCall, path: &Path) -> Option<FaultEffect> {
    let mut plan = plan.lock();
    plan.calls[kind as usize] += 1;
    let fault = plan.fault.clone()?;
    let counts = fault.calls.is_empty() || fault.calls.contains(&kind);
    let here = plan.thread.is_none_or(|id| id == thread::current().id());
    if !(counts && here) {
        return None;
    }
    plan.matched += 1;
    let fails = plan.matched == fault.nth || (fault.sticky && plan.matched > fault.nth);
    if fails {
        plan.tripped
            .get_or_insert_with(|| (kind, path.to_path_buf()));
    }
    fails.then_some(fault.effect)
}

fn check(plan: &Mutex<Plan>, kind: IoCall, path: &Path) -> io::Result<()> {
    trip(plan, kind, path).map_or(Ok(()), |effect| Err(error_of(effect)))
}

fn error_of(effect: FaultEffect) -> io::Error {
    match effect {
        FaultEffect::NoSpace => io::ErrorKind::StorageFull.into(),
        FaultEffect::Os(number) => io::Error::from_raw_os_error(number),
        FaultEffect::CrossesDevices => io::ErrorKind::CrossesDevices.into(),
        FaultEffect::Error | FaultEffect::ShortWrite | FaultEffect::FlippedBit => {
            io::Error::other("injected fault")
        }
    }
}

impl Vfs for FaultVfs {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn anchored(&self, dir: &Path) -> io::Result<Arc<dyn Vfs>> {
        self.check(IoCall::Open, dir)?;
        Ok(Arc::new(FaultVfs {
            inner: self.inner.anchored(dir)?,
            plan: Arc::clone(&self.plan),
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.check(IoCall::Create, path)?;
        Ok(self.wrap(self.inner.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.check(IoCall::Open, path)?;
        Ok(self.wrap(self.inner.open(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.check(IoCall::Open, path)?;
        Ok(self.wrap(self.inner.open_read(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(IoCall::Rename, from)?;
        self.inner.rename(from, to)
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(IoCall::Rename, from)?;
        self.inner.rename_dir(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(IoCall::Remove, path)?;
        self.inner.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.check(IoCall::Remove, dir)?;
        self.inner.remove_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.check(IoCall::List, dir)?;
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.check(IoCall::List, path)?;
        self.inner.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.check(IoCall::Other, dir)?;
        self.inner.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check(IoCall::SyncDir, dir)?;
        self.inner.sync_dir(dir)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(IoCall::Link, from)?;
        self.inner.hard_link(from, to)
    }

    fn lock(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        self.check(IoCall::Other, path)?;
        self.inner.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        self.check(IoCall::Other, path)?;
        self.inner.lock_shared(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.check(IoCall::Other, dir)?;
        self.inner.free_bytes(dir)
    }
}

impl VfsFile for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match trip(&self.plan, IoCall::Read, self.path()) {
            None => self.inner.read_at(buf, offset),
            Some(FaultEffect::FlippedBit) => {
                self.inner.read_at(buf, offset)?;
                let middle = buf.len() / 2;
                buf[middle..].iter_mut().take(1).for_each(|byte| *byte ^= 4);
                Ok(())
            }
            Some(effect) => Err(error_of(effect)),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        match trip(&self.plan, IoCall::Write, self.path()) {
            None => self.inner.write_at(buf, offset),
            Some(effect) => {
                if effect == FaultEffect::ShortWrite {
                    self.inner.write_at(&buf[..buf.len() / 2], offset)?;
                }
                Err(error_of(effect))
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        check(&self.plan, IoCall::Sync, self.path())?;
        self.inner.sync()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        check(&self.plan, IoCall::Allocate, self.path())?;
        self.inner.allocate(len)
    }

    fn len(&self) -> io::Result<u64> {
        check(&self.plan, IoCall::Length, self.path())?;
        self.inner.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        check(&self.plan, IoCall::Length, self.path())?;
        self.inner.truncate(len)
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn expect_lifetime(&self, lifetime: Lifetime) {
        self.inner.expect_lifetime(lifetime);
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
