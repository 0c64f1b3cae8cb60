//! Simulated file system in memory. Every call is a point at which the simulation may switch
//! threads. It may fail as planned, and the machine may crash in it.
//!
//! After the crash every call fails: the engine of the crashed machine shuts down as on a broken
//! disk. The files that the machine leaves are kept for the next incarnation.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvium::simulation;
use alluvium::vfs::{CrashOptions, Keep, LockGuard, LockHolder, MemVfs, Vfs, VfsFile};
use alluvium_testkit::Rng;

use crate::plan::{Crash, Fault, FaultKind, Kept};

/// Directory of the database.
pub const DIR: &str = "/db";
/// Directory of the backups.
pub const STORE: &str = "/backups";
/// Prefix of the directories of repaired databases.
pub const REPAIRED: &str = "/repaired";

/// Error number on Linux: too many open files.
const EMFILE: i32 = 24;

/// Kinds of calls that faults distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    Write,
    Sync,
    /// Needs space.
    Grow,
    /// Needs space and a descriptor.
    Create,
    /// Needs a descriptor.
    Open,
    Other,
}

/// Outcome of a call.
enum Fate {
    Done,
    Failed(io::Error),
    /// Half of the bytes, then an error.
    Short,
    Flipped(u64),
}

struct State {
    memory: MemVfs,
    rng: Rng,
    calls: u64,
    faults: Vec<Fault>,
    crash: Option<Crash>,
    /// Files that the machine left; set by the crash, as is `died_with`.
    left: Option<MemVfs>,
    died_with: Option<Kept>,
    tripped: Vec<FaultKind>,
    /// Files with a wrong bit in some read.
    flipped: Vec<PathBuf>,
    lies: bool,
}

/// Simulated disk. Clones share its state.
#[derive(Clone)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    /// File system in memory, or the same anchored.
    files: Arc<dyn Vfs>,
}

struct File {
    disk: Disk,
    inner: Arc<dyn VfsFile>,
}

impl Disk {
    /// Creates a disk for one incarnation, with the files left by the previous one. If `lies`,
    /// syncs of files do nothing.
    pub fn new(memory: MemVfs, seed: u64, crash: Option<Crash>, lies: bool) -> Disk {
        let files = Arc::new(memory.clone());
        let state = Arc::new(Mutex::new(State {
            memory,
            rng: Rng::new(seed),
            calls: 0,
            faults: Vec::new(),
            crash,
            left: None,
            died_with: None,
            tripped: Vec::new(),
            flipped: Vec::new(),
            lies,
        }));
        Disk { state, files }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the machine has crashed.
    pub fn is_dead(&self) -> bool {
        self.state().left.is_some()
    }

    /// Returns which data survived the crash; `None` before a crash.
    pub fn died_with(&self) -> Option<Kept> {
        self.state().died_with
    }

    /// Crashes the machine now.
    pub fn crash_now(&self, kept: Kept) {
        let mut state = self.state();
        if state.left.is_none() {
            state.stop(kept);
        }
    }

    /// Returns whether the machine has crashed, or a fault other than a flipped bit has occurred.
    pub fn has_failed(&self) -> bool {
        let state = self.state();
        let failed = |kind: &FaultKind| *kind != FaultKind::FlippedBit;
        state.left.is_some() || state.tripped.iter().any(failed)
    }

    /// Returns whether a failed call may have poisoned the database. A lack of descriptors must not
    /// poison it.
    pub fn may_have_poisoned(&self) -> bool {
        let state = self.state();
        let stops =
            |kind: &FaultKind| !matches!(kind, FaultKind::FlippedBit | FaultKind::NoDescriptors(_));
        state.left.is_some() || state.tripped.iter().any(stops)
    }

    /// Returns the files as other programs of the machine access them: no call fails, and the
    /// scheduler switches no thread in them.
    pub fn files_of_others(&self) -> MemVfs {
        self.state().memory.clone()
    }

    /// Returns the number of calls that failed or had a wrong bit.
    pub fn failures(&self) -> u64 {
        self.state().tripped.len() as u64
    }

    /// Returns whether any read had a wrong bit.
    pub fn has_flipped(&self) -> bool {
        self.state().tripped.contains(&FaultKind::FlippedBit)
    }

    /// Returns whether a wrong bit in a read may explain an error about this file. Besides reads of
    /// the file itself, these count:
    ///
    /// - Any read of the store of backups. A copy is read back there, and the error names the
    ///   source file.
    /// - Any read of a repaired database, which gets its final name at the end.
    /// - If `path` is in a repaired database, any read at all: the repair may have copied the wrong
    ///   bit from its source.
    /// - If `path` is a log segment, any read of the log: a wrong bit in one segment may be
    ///   reported for its neighbor.
    pub fn has_flipped_in(&self, path: &Path) -> bool {
        let state = self.state();
        let is_copy = |flipped: &Path| {
            flipped.starts_with(STORE) || flipped.to_string_lossy().starts_with(REPAIRED)
        };
        let is_log = |path: &Path| path.extension().is_some_and(|ending| ending == "wal");
        let is_repaired = path.to_string_lossy().starts_with(REPAIRED);
        let mut flipped = state.flipped.iter();
        flipped.any(|flipped| {
            flipped == path || is_copy(flipped) || is_repaired || is_log(flipped) && is_log(path)
        })
    }

    /// Takes the files that survive: those left by the crash, or those that a crash now would
    /// leave. Called once, at the end of an incarnation.
    pub fn leave(&self, kept: Kept) -> MemVfs {
        let mut state = self.state();
        match state.left.take() {
            Some(left) => left,
            None => state.crashed(kept),
        }
    }

    /// Sets the faults and the crash, and restarts the count of calls at zero.
    pub fn arm(&self, faults: Vec<Fault>, crash: Option<Crash>) {
        let mut state = self.state();
        state.calls = 0;
        state.faults = faults;
        state.crash = crash;
    }

    /// Cancels all faults and the crash.
    pub fn mend(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.crash = None;
    }

    fn call(&self, call: Call, path: &Path) -> Fate {
        simulation::step();
        let mut state = self.state();
        let fate = state.decide(call, path);
        let calls = state.calls;
        drop(state);
        simulation::note(calls);
        fate
    }

    fn check(&self, call: Call, path: &Path) -> io::Result<&dyn Vfs> {
        match self.call(call, path) {
            Fate::Failed(error) => Err(error),
            Fate::Done | Fate::Short | Fate::Flipped(_) => Ok(&*self.files),
        }
    }

    fn wrap(&self, inner: Arc<dyn VfsFile>) -> Arc<dyn VfsFile> {
        Arc::new(File {
            disk: self.clone(),
            inner,
        })
    }
}

impl State {
    fn crashed(&mut self, kept: Kept) -> MemVfs {
        let keep = match kept {
            Kept::Some => Keep::Random,
            Kept::Synced => Keep::Nothing,
            Kept::All => Keep::Everything,
        };
        let options = CrashOptions {
            content: keep,
            names: keep,
        };
        self.memory.crash(self.rng.next_u64(), options)
    }

    fn stop(&mut self, kept: Kept) {
        self.left = Some(self.crashed(kept));
        self.died_with = Some(kept);
    }

    fn decide(&mut self, call: Call, path: &Path) -> Fate {
        self.calls += 1;
        if let Some(crash) = self.crash
            && self.left.is_none()
            && self.calls >= crash.at
        {
            self.stop(crash.kept);
        }
        if self.left.is_some() {
            return Fate::Failed(io::Error::other("the simulated machine has crashed"));
        }
        let calls = self.calls;
        let due = self
            .faults
            .iter()
            .position(|fault| fault.at <= calls && applies(fault.kind, call, path));
        let Some(due) = due else {
            return Fate::Done;
        };
        let fault = self.faults[due];
        let over = match fault.kind {
            FaultKind::Full(calls) | FaultKind::NoDescriptors(calls) => {
                self.calls >= fault.at + calls
            }
            _ => true,
        };
        if over {
            self.faults.remove(due);
        }
        self.tripped.push(fault.kind);
        match fault.kind {
            FaultKind::Error | FaultKind::SyncError => {
                Fate::Failed(io::Error::other("a simulated error"))
            }
            FaultKind::ShortWrite => Fate::Short,
            FaultKind::Full(_) => Fate::Failed(io::ErrorKind::StorageFull.into()),
            FaultKind::NoDescriptors(_) => Fate::Failed(io::Error::from_raw_os_error(EMFILE)),
            FaultKind::FlippedBit => {
                self.flipped.push(path.to_path_buf());
                Fate::Flipped(self.rng.next_u64())
            }
        }
    }
}

/// Returns whether a fault applies to a call. Bits flip only where a wrong bit cannot be mistaken
/// for anything else: in tables and value files, in the store of backups, and in the log of the
/// database while it is open. When a database is opened, a wrong record at the very end of its log
/// or manifest is indistinguishable from a torn tail.
fn applies(kind: FaultKind, call: Call, path: &Path) -> bool {
    match kind {
        FaultKind::Error => true,
        FaultKind::ShortWrite => call == Call::Write,
        FaultKind::SyncError => call == Call::Sync,
        FaultKind::Full(_) => matches!(call, Call::Grow | Call::Create),
        FaultKind::NoDescriptors(_) => matches!(call, Call::Open | Call::Create),
        FaultKind::FlippedBit => {
            let ending = path.extension().and_then(|name| name.to_str());
            let is_data = match ending {
                Some("sst" | "val" | "table" | "state" | "backup") => true,
                Some("wal") => path.starts_with(DIR),
                _ => false,
            };
            call == Call::Read && is_data
        }
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Vfs for Disk {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.files.absolute(path)
    }

    fn anchored(&self, dir: &Path) -> io::Result<Arc<dyn Vfs>> {
        let files = self.check(Call::Other, dir)?.anchored(dir)?;
        let state = Arc::clone(&self.state);
        Ok(Arc::new(Disk { state, files }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        let files = self.check(Call::Create, path)?;
        Ok(self.wrap(files.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        let files = self.check(Call::Open, path)?;
        Ok(self.wrap(files.open(path)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        let files = self.check(Call::Open, path)?;
        Ok(self.wrap(files.open_read(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Call::Other, from)?.rename(from, to)
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Call::Other, from)?.rename_dir(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(Call::Other, path)?.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.check(Call::Other, dir)?.remove_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.check(Call::Other, dir)?.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.check(Call::Other, path)?.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.check(Call::Other, dir)?.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check(Call::Sync, dir)?.sync_dir(dir)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Call::Other, from)?.hard_link(from, to)
    }

    fn lock(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        self.check(Call::Other, path)?.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        self.check(Call::Other, path)?.lock_shared(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.check(Call::Other, dir)?.free_bytes(dir)
    }
}

impl VfsFile for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self.disk.call(Call::Read, self.path()) {
            Fate::Failed(error) => return Err(error),
            Fate::Flipped(random) => {
                self.inner.read_at(buf, offset)?;
                let bit = random % (8 * buf.len().max(1) as u64);
                if let Some(byte) = buf.get_mut((bit / 8) as usize) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Fate::Done | Fate::Short => self.inner.read_at(buf, offset)?,
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        match self.disk.call(Call::Write, self.path()) {
            Fate::Failed(error) => Err(error),
            Fate::Short => {
                self.inner.write_at(&buf[..buf.len() / 2], offset)?;
                Err(io::Error::other("a simulated short write"))
            }
            Fate::Done | Fate::Flipped(_) => self.inner.write_at(buf, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.check(Call::Sync, self.path())?;
        if !self.disk.state().lies {
            self.inner.sync()?;
        }
        // Another thread may run between the completion of the sync and the return to its caller.
        simulation::step();
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.disk.check(Call::Grow, self.path())?;
        self.inner.allocate(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.check(Call::Other, self.path())?;
        self.inner.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.disk.check(Call::Other, self.path())?;
        self.inner.truncate(len)
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn start_writeback(&self, _offset: u64, _len: u64) {}

    fn drop_cached(&self, _offset: u64, _len: u64) {}
}
