//! Names of an in-memory file system, and the operations that change them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::content::Inode;

pub(super) type InodeRef = Arc<Mutex<Inode>>;

/// Tree of names and the files they point to.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub files: BTreeMap<PathBuf, InodeRef>,
    pub dirs: BTreeSet<PathBuf>,
}

/// One directory operation, applied whole or not at all.
#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Add {
        path: PathBuf,
        inode: InodeRef,
    },
    Remove {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        inode: InodeRef,
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

impl Tree {
    pub fn file(&self, path: &Path) -> io::Result<InodeRef> {
        let found = self.files.get(path).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub fn exists(&self, path: &Path) -> bool {
        self.files.contains_key(path) || self.dirs.contains(path)
    }

    pub fn apply(&mut self, change: NameChange) {
        match change {
            NameChange::Add { path, inode } => {
                self.files.insert(path, inode);
            }
            NameChange::Remove { path } => {
                self.files.remove(&path);
            }
            NameChange::Rename { from, to, inode } => {
                self.files.remove(&from);
                self.files.insert(to, inode);
            }
            NameChange::MakeDir { path } => {
                self.dirs.insert(path);
            }
            NameChange::RemoveDir { path } => {
                self.dirs.remove(&path);
            }
            NameChange::RenameDir { from, to } => self.move_dir(&from, &to),
        }
    }

    /// Moves a directory with all its contents.
    fn move_dir(&mut self, from: &Path, to: &Path) {
        let moved = |path: &Path| moved(path, from, to);
        self.dirs = self.dirs.iter().map(|dir| moved(dir)).collect();
        let files = std::mem::take(&mut self.files).into_iter();
        self.files = files.map(|(path, inode)| (moved(&path), inode)).collect();
    }

    /// Removes files and directories in a directory that does not exist.
    pub fn drop_orphans(&mut self) {
        let all = self.dirs.clone();
        let reachable = |path: &Path| path.ancestors().skip(1).all(|dir| all.contains(dir));
        self.dirs.retain(|dir| reachable(dir));
        self.files.retain(|path, _| reachable(path));
    }
}

impl NameChange {
    /// Returns the directory to sync to make the change durable.
    pub fn dir(&self) -> &Path {
        let path = match self {
            NameChange::Add { path, .. }
            | NameChange::Remove { path }
            | NameChange::MakeDir { path }
            | NameChange::RemoveDir { path }
            | NameChange::RenameDir { to: path, .. }
            | NameChange::Rename { to: path, .. } => path,
        };
        parent(path)
    }

    /// Updates the change after a directory that contains it was renamed.
    pub fn follow(&mut self, old: &Path, new: &Path) {
        match self {
            NameChange::Add { path, .. }
            | NameChange::Remove { path }
            | NameChange::MakeDir { path }
            | NameChange::RemoveDir { path } => {
                if path != old {
                    *path = moved(path, old, new);
                }
            }
            NameChange::Rename { from, to, .. } | NameChange::RenameDir { from, to } => {
                *from = moved(from, old, new);
                *to = moved(to, old, new);
            }
        }
    }
}

/// Returns the new path of `path` after the directory `from` was renamed to `to`.
pub(super) fn moved(path: &Path, from: &Path, to: &Path) -> PathBuf {
    match path.strip_prefix(from) {
        Ok(rest) => join(to, rest),
        Err(_) => path.to_path_buf(),
    }
}

/// Returns `dir` itself for an empty rest: `Path::join` would add a slash.
pub(super) fn join(dir: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        dir.to_path_buf()
    } else {
        dir.join(rest)
    }
}

pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}
