//! Directories of open databases that are moved away and back, or removed.
//!
//! These are deeds of other programs: they go past the faults of the disk, and the database is not told.

use std::path::Path;
use std::sync::atomic::Ordering;

use alluvium::vfs::{MemVfs, Vfs};

use crate::copies::open_to_write;
use crate::run::DIR;
use crate::world::{Checked, World};

/// The name of the database's directory while it is moved away.
const AWAY: &str = "/away";

/// Moves the directory of the database away, puts an empty one in its place, flushes, and moves it back. Whatever the
/// other clients do meanwhile, nothing may come into the empty one.
pub(crate) fn move_away_and_back(
    world: &World,
    flush: impl FnOnce() -> Checked<()>,
) -> Checked<()> {
    if world.moved.swap(true, Ordering::Relaxed) {
        // Another client has moved it.
        return Ok(());
    }
    world.records.count("moved directories", 1);
    let files = world.disk.files_of_others();
    let (dir, root) = (Path::new(DIR), Path::new("/"));
    let moved = || {
        files.rename_dir(dir, Path::new(AWAY))?;
        files.create_dir_all(dir)?;
        files.sync_dir(root)
    };
    moved().map_err(|e| format!("cannot move the directory away: {e}"))?;
    let flushed = flush();
    let back = match world.disk.is_dead() {
        // The next incarnation finds it where it is.
        true => Ok(()),
        false => put_back(&files),
    };
    world.moved.store(false, Ordering::Relaxed);
    flushed.and(back)
}

/// Moves a directory that is away back, also after a crash.
pub(crate) fn put_back(files: &MemVfs) -> Checked<()> {
    let (dir, away) = (Path::new(DIR), Path::new(AWAY));
    let told = |e: std::io::Error| format!("cannot move the directory back: {e}");
    if !files.exists(away).map_err(told)? {
        return Ok(());
    }
    if files.exists(dir).map_err(told)? {
        let names = files.list(dir).map_err(told)?;
        if !names.is_empty() {
            return Err(format!("{names:?} came into the place of a moved database"));
        }
        files.remove_dir(dir).map_err(told)?;
    }
    files.rename_dir(away, dir).map_err(told)?;
    files.sync_dir(Path::new("/")).map_err(told)
}

/// Opens a copy of the database, removes its directory with all files, puts an empty one in its place, and flushes:
/// that fails, and nothing comes into the empty one.
pub(crate) fn remove_under(world: &World, what: &str, dir: &Path) -> Checked<()> {
    let Some((copy, marks)) = open_to_write(world, dir)? else {
        return Ok(());
    };
    if world.known(marks.put(b"removed", b"1"))?.is_none() || world.disk.is_dead() {
        return Ok(());
    }
    let files = world.disk.files_of_others();
    let remove_all = || {
        // Ends: the engine has few files to create before it meets the missing directory.
        while files.remove_dir(dir).is_err() {
            for name in files.list(dir)? {
                let path = dir.join(name);
                files
                    .remove(&path)
                    .or_else(|_| remove_folder(&files, &path))?;
            }
        }
        files.create_dir_all(dir)
    };
    remove_all().map_err(|e| format!("cannot remove {}: {e}", dir.display()))?;
    world.records.count("removed directories", 1);
    let flushed = copy.flush();
    drop(marks);
    // Fails or not, as what was written last is told.
    let _ = copy.close();
    drop(copy);
    if world.disk.is_dead() {
        return Ok(());
    }
    let names = files.list(dir).map_err(|e| e.to_string())?;
    if flushed.is_ok() || !names.is_empty() {
        return Err(format!(
            "{what} was removed: a flush gave {flushed:?}, and {names:?} came into its place"
        ));
    }
    files.remove_dir(dir).map_err(|e| e.to_string())
}

fn remove_folder(files: &MemVfs, dir: &Path) -> std::io::Result<()> {
    for name in files.list(dir)? {
        files.remove(&dir.join(name))?;
    }
    files.remove_dir(dir)
}
