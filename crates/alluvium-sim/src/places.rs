//! Moves directories of open databases away and back, or removes them.
//!
//! Other programs do this: the disk injects no faults into these calls, and the database is not
//! notified.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium::vfs::{MemVfs, Vfs};
use alluvium::{Database, Keyspace, KeyspaceOptions};

use crate::disk::DIR;
use crate::records::Checked;
use crate::world::World;

/// Name of the database's directory while it is moved away.
const AWAY: &str = "/away";

/// Moves the directory of the database away, puts an empty one in its place, flushes, and moves it
/// back. Regardless of the other clients' calls meanwhile, the empty directory must stay empty.
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
    let back = if world.disk.is_dead() {
        // The next incarnation moves it back.
        Ok(())
    } else {
        put_back(&files)
    };
    world.moved.store(false, Ordering::Relaxed);
    flushed.and(back)
}

/// Moves the database's directory back if it is away, also after a crash.
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

/// Opens a copy of the database, replaces its directory by an empty one, and flushes. The flush
/// must fail, and the empty directory must stay empty.
pub(crate) fn remove_under(world: &World, what: &str, dir: &Path) -> Checked<()> {
    let Some((copy, marks)) = open_to_write(world, dir)? else {
        return Ok(());
    };
    if world.known(marks.put(b"removed", b"1"))?.is_none() || world.disk.is_dead() {
        return Ok(());
    }
    let files = world.disk.files_of_others();
    let remove_all = || {
        // Terminates: the engine creates few files before it finds the directory missing.
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
    // Either result is allowed; it depends on the outcome of the last writes.
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

/// Opens a copy for writing, and returns it with its keyspace of marks.
pub(crate) fn open_to_write(world: &World, dir: &Path) -> Checked<Option<(Database, Keyspace)>> {
    let disk = Arc::new(world.disk.clone());
    let (options, _) = world.records.watched(&world.options);
    let Some(copy) = world.known(Database::open_on(disk, dir, options))? else {
        return Ok(None);
    };
    let marks = world.known(copy.keyspace("marks", KeyspaceOptions::default()))?;
    Ok(marks.map(|marks| (copy, marks)))
}
