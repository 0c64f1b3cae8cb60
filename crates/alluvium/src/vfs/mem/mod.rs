//! Files in memory that can lose unsynced data, like a machine on power loss.
//!
//! The model, deliberately harsher than most file systems:
//!
//! - a file keeps any subset of its unsynced 512-byte sectors, and for a sector changed several
//!   times any of its states; its length is any of the lengths it had since its last sync;
//! - a directory keeps any subset of its unsynced operations (create, link, rename, remove, make or
//!   remove directory), each of them whole: a rename never leaves both names or none;
//! - a name may survive although the content of its file does not;
//! - locks are released.
//!
//! A renamed or removed directory stays the same directory to the files and anchored file systems
//! opened in it: they follow a rename, and find nothing after a removal.
//!
//! [`MemVfs::crash`] leaves the original untouched and returns the state found by a restarted
//! machine, so that a test can crash after every step of one history. The same seed gives the same
//! result.

mod content;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

pub use self::content::Keep;
use self::content::{Inode, Space};
use self::names::{InodeRef, NameChange, Tree, join, moved, parent};
use super::random::SplitMix;
use super::{LockGuard, LockHolder, Vfs, VfsFile};

/// Effect of a crash on unsynced file content and on unsynced directory operations.
#[derive(Debug, Clone, Copy)]
pub struct CrashOptions {
    /// Unsynced 512-byte sectors and lengths of files.
    pub content: Keep,
    /// Unsynced creations, links, renames and removals.
    pub names: Keep,
}

impl CrashOptions {
    /// Power loss: any subset survives.
    pub const POWER_LOSS: CrashOptions = CrashOptions {
        content: Keep::Random,
        names: Keep::Random,
    };
    /// The worst power loss: only synced data survives.
    pub const LOSE_UNSYNCED: CrashOptions = CrashOptions {
        content: Keep::Nothing,
        names: Keep::Nothing,
    };
    /// Death of the process, not of the machine: everything passed to the kernel survives.
    pub const PROCESS_KILLED: CrashOptions = CrashOptions {
        content: Keep::Everything,
        names: Keep::Everything,
    };
}

#[derive(Debug)]
struct State {
    current: Tree,
    durable: Tree,
    /// Operations in `current` and not in `durable`, oldest first.
    unsynced: Vec<NameChange>,
    /// Keyed by the directory of the lock file: a lock follows its directory in a rename, and stays
    /// if the file is replaced.
    locks: BTreeMap<PathBuf, Holders>,
    /// Directories held open, indexed by anchor number; `None` after a removal. They stay listed:
    /// tests open few.
    anchors: Vec<Option<PathBuf>>,
}

/// Holders of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holders {
    One,
    Together(usize),
}

/// In-memory file system. Clones share the files.
#[derive(Debug, Clone)]
pub struct MemVfs {
    /// Locked before any file.
    state: Arc<Mutex<State>>,
    space: Arc<Space>,
    anchor: Option<Anchor>,
}

/// Directory held open: the name used to open it, and its index in `State::anchors`.
#[derive(Debug, Clone)]
struct Anchor {
    dir: PathBuf,
    number: usize,
}

#[derive(Debug)]
struct MemFile {
    inode: InodeRef,
    path: PathBuf,
    writable: bool,
}

struct MemLock {
    state: Arc<Mutex<State>>,
    /// Anchor of the locked directory.
    anchor: usize,
}

impl MemVfs {
    /// Creates an empty file system with a root directory and room for 1 TiB.
    pub fn new() -> MemVfs {
        MemVfs::with_capacity(1 << 40)
    }

    /// Creates an empty file system that holds at most this many bytes, counted by file length.
    pub fn with_capacity(capacity_bytes: u64) -> MemVfs {
        let roots = || BTreeSet::from([PathBuf::new(), PathBuf::from("/")]);
        let tree = || Tree {
            files: BTreeMap::new(),
            dirs: roots(),
        };
        MemVfs {
            state: Arc::new(Mutex::new(State {
                current: tree(),
                durable: tree(),
                unsynced: Vec::new(),
                locks: BTreeMap::new(),
                anchors: Vec::new(),
            })),
            space: Space::new(capacity_bytes),
            anchor: None,
        }
    }

    /// Changes the capacity. It may be less than the space in use; growing a file then fails with
    /// `StorageFull`.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.space.capacity.store(capacity_bytes, Ordering::Relaxed);
    }

    /// Returns the state that a restarted machine finds if this one crashes now.
    pub fn crash(&self, seed: u64, options: CrashOptions) -> MemVfs {
        let mut random = SplitMix::new(seed);
        let state = self.state.lock();
        let names = state.names_after_crash(options.names, &mut random);
        let after = MemVfs::with_capacity(self.space.capacity.load(Ordering::Relaxed));
        let mut renewed: BTreeMap<*const Mutex<Inode>, InodeRef> = BTreeMap::new();
        let mut files = BTreeMap::new();
        // In order of names, so that the result depends only on the seed.
        for (path, inode) in names.files {
            let inode = renewed.entry(Arc::as_ptr(&inode)).or_insert_with(|| {
                let content = inode.lock().after_crash(options.content, &mut random);
                Arc::new(Mutex::new(Inode::new(content, &after.space)))
            });
            files.insert(path, Arc::clone(inode));
        }
        {
            let mut fresh = after.state.lock();
            fresh.current.files = files.clone();
            fresh.current.dirs = names.dirs.clone();
            fresh.durable.files = files;
            fresh.durable.dirs = names.dirs;
        }
        after
    }

    fn held(&self, state: &mut State, path: &Path, holders: Holders) -> LockGuard {
        let dir = parent(path).to_path_buf();
        let anchor = state.anchor(&dir);
        state.locks.insert(dir, holders);
        Box::new(MemLock {
            state: Arc::clone(&self.state),
            anchor,
        })
    }

    /// Returns the current place of `path`.
    fn resolve(&self, state: &State, path: &Path) -> io::Result<PathBuf> {
        let below = |anchor: &Anchor| Some((anchor.number, path.strip_prefix(&anchor.dir).ok()?));
        match self.anchor.as_ref().and_then(below) {
            None => Ok(path.to_path_buf()),
            Some((number, rest)) => {
                let dir = state.anchors[number].as_ref();
                let dir = dir.ok_or(io::ErrorKind::NotFound)?;
                Ok(join(dir, rest))
            }
        }
    }

    fn open_as(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn VfsFile>> {
        let state = self.state.lock();
        let inode = state.current.file(&self.resolve(&state, path)?)?;
        Ok(Arc::new(MemFile {
            inode,
            path: path.to_path_buf(),
            writable,
        }))
    }
}

impl Default for MemVfs {
    fn default() -> MemVfs {
        MemVfs::new()
    }
}

impl State {
    /// Holds the directory open. Returns the number of the anchor.
    fn anchor(&mut self, dir: &Path) -> usize {
        self.anchors.push(Some(dir.to_path_buf()));
        self.anchors.len() - 1
    }

    fn change(&mut self, change: NameChange) {
        self.unsynced.push(change.clone());
        self.current.apply(change);
    }

    /// Fails unless `path` is free and its directory exists.
    fn check_new(&self, path: &Path) -> io::Result<()> {
        if !self.current.dirs.contains(parent(path)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.current.exists(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(())
    }

    fn create(&mut self, path: &Path, space: &Arc<Space>) -> io::Result<InodeRef> {
        self.check_new(path)?;
        let inode = Arc::new(Mutex::new(Inode::new(Default::default(), space)));
        self.change(NameChange::Add {
            path: path.to_path_buf(),
            inode: Arc::clone(&inode),
        });
        Ok(inode)
    }

    fn names_after_crash(&self, keep: Keep, random: &mut SplitMix) -> Tree {
        let mut tree = Tree {
            files: self.durable.files.clone(),
            dirs: self.durable.dirs.clone(),
        };
        let kept_percent = match keep {
            Keep::Nothing => 0,
            Keep::Everything => 100,
            Keep::Random => [5, 30, 60, 95][random.below(4) as usize],
        };
        for change in &self.unsynced {
            if random.chance(kept_percent) {
                tree.apply(change.clone());
            }
        }
        tree.drop_orphans();
        tree
    }
}

impl Vfs for MemVfs {
    /// There is no working directory: a relative path is below a directory without a name.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    fn anchored(&self, dir: &Path) -> io::Result<Arc<dyn Vfs>> {
        let mut state = self.state.lock();
        let found = self.resolve(&state, dir)?;
        if !state.current.dirs.contains(&found) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let number = state.anchor(&found);
        let dir = dir.to_path_buf();
        Ok(Arc::new(MemVfs {
            state: Arc::clone(&self.state),
            space: Arc::clone(&self.space),
            anchor: Some(Anchor { dir, number }),
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        let mut state = self.state.lock();
        let found = self.resolve(&state, path)?;
        let inode = state.create(&found, &self.space)?;
        Ok(Arc::new(MemFile {
            inode,
            path: path.to_path_buf(),
            writable: true,
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.open_as(path, true)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        self.open_as(path, false)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let (from, to) = (self.resolve(&state, from)?, self.resolve(&state, to)?);
        let inode = state.current.file(&from)?;
        if !state.current.dirs.contains(parent(&to)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.current.dirs.contains(&to) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if from != to {
            state.change(NameChange::Rename { from, to, inode });
        }
        Ok(())
    }

    fn rename_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let (from, to) = (self.resolve(&state, from)?, self.resolve(&state, to)?);
        if !state.current.dirs.contains(&from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.check_new(&to)?;
        if parent(&from) != parent(&to) {
            // Two directories would have to be synced; nothing needs that.
            return Err(io::ErrorKind::Unsupported.into());
        }
        for change in &mut state.unsynced {
            change.follow(&from, &to);
        }
        for dir in state.anchors.iter_mut().flatten() {
            *dir = moved(dir, &from, &to);
        }
        let locks = std::mem::take(&mut state.locks).into_iter();
        state.locks = locks
            .map(|(dir, holders)| (moved(&dir, &from, &to), holders))
            .collect();
        state.change(NameChange::RenameDir { from, to });
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let path = self.resolve(&state, dir)?;
        if !state.current.dirs.contains(&path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (files, dirs) = (state.current.files.keys(), state.current.dirs.iter());
        if files.chain(dirs).any(|below| below.parent() == Some(&path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        for anchor in &mut state.anchors {
            anchor.take_if(|dir| *dir == path);
        }
        state.locks.remove(&path);
        state.change(NameChange::RemoveDir { path });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let path = self.resolve(&state, path)?;
        state.current.file(&path)?;
        state.change(NameChange::Remove { path });
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let dir = self.resolve(&state, dir)?;
        if !state.current.dirs.contains(&dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let paths = state.current.files.keys().chain(&state.current.dirs);
        Ok(paths
            .filter(|path| path.parent() == Some(&dir))
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state.lock();
        let path = self.resolve(&state, path);
        Ok(path.is_ok_and(|path| state.current.exists(&path)))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let dir = self.resolve(&state, dir)?;
        let mut missing = Vec::new();
        for path in dir.ancestors() {
            if state.current.files.contains_key(path) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            if !state.current.dirs.contains(path) {
                missing.push(path.to_path_buf());
            }
        }
        for path in missing.into_iter().rev() {
            state.change(NameChange::MakeDir { path });
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let dir = self.resolve(&state, dir)?;
        if !state.current.dirs.contains(&dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let changes = std::mem::take(&mut state.unsynced);
        for change in changes {
            if change.dir() == dir {
                state.durable.apply(change);
            } else {
                state.unsynced.push(change);
            }
        }
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.current.file(&self.resolve(&state, from)?)?;
        let path = self.resolve(&state, to)?;
        state.check_new(&path)?;
        state.change(NameChange::Add { path, inode });
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        let mut state = self.state.lock();
        let path = self.resolve(&state, path)?;
        if state.current.file(&path).is_err() {
            state.create(&path, &self.space)?;
        }
        Ok(match state.locks.get(parent(&path)) {
            None => Ok(self.held(&mut state, &path, Holders::One)),
            Some(Holders::One) => Err(LockHolder::ThisProcess),
            Some(Holders::Together(_)) => Err(LockHolder::Readers),
        })
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Result<LockGuard, LockHolder>> {
        let mut state = self.state.lock();
        let path = self.resolve(&state, path)?;
        state.current.file(&path)?;
        let holders = match state.locks.get(parent(&path)) {
            None => 1,
            Some(Holders::Together(others)) => others + 1,
            Some(Holders::One) => return Ok(Err(LockHolder::ThisProcess)),
        };
        let holders = Holders::Together(holders);
        Ok(Ok(self.held(&mut state, &path, holders)))
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.space.free())
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        // A removed directory has no lock any more.
        let Some(dir) = state.anchors[self.anchor].take() else {
            return;
        };
        match state.locks.get_mut(&dir) {
            Some(Holders::Together(holders)) if *holders > 1 => *holders -= 1,
            _ => {
                state.locks.remove(&dir);
            }
        }
    }
}

impl MemFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.writable {
            return Ok(());
        }
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

impl VfsFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inode.lock().current().read(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        self.inode.lock().write(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.inode.lock().sync();
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut inode = self.inode.lock();
        let len = len.max(inode.current().len());
        inode.resize(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.lock().current().len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.inode.lock().resize(len)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn start_writeback(&self, _offset: u64, _len: u64) {}

    fn drop_cached(&self, _offset: u64, _len: u64) {}
}
