//! Checkpoints: a second database with the state of this one at one commit, made of links to its
//! tables.
//!
//! Everything is sealed and flushed first, so the copy needs no log. Tables are immutable from
//! their install to their removal and may be linked. The only file that is appended to, the
//! manifest, is written anew. Writers continue meanwhile. Generations flushed until the tables are
//! listed are in the copy too, always as a whole. Prepared transactions that are unresolved at that
//! point are stored in the manifest of the copy, until it is opened for writing and has its own
//! log.
//!
//! The new database has its own uid: no segment of either log is valid in the other, and either
//! refuses a batch made for the other. Tables keep their uid, the seed of their checksums. Both
//! databases may give a new table the same number; these tables never meet in one directory.
//!
//! Order: directory under a temporary name, links, sync of manifest and directory, `CURRENT`,
//! rename, sync of the parent. A crash leaves the complete copy, or a directory `NAME.tmp-...` that
//! may be deleted, or nothing.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{SegmentId, SeqNo, TableId};
use crate::db::shared::Shared;
use crate::db::store::Store;
use crate::error::{Error, Result};
use crate::recovery::{LOCK, absolute};
use crate::table::{Table, ValueFile};
use crate::version::{Manifest, ManifestState, VersionEdit, random_uid};
use crate::vfs::Vfs;

/// Result of [`crate::Database::checkpoint`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// The newest commit in the checkpoint. It has every commit up to this one and no later one.
    pub seqno: SeqNo,
    /// Number of table and value files that are hard links to the source's files and take no space.
    pub linked_tables: u64,
    /// Number of files that were copied, because the target is on another file system or on one
    /// without links.
    pub copied_tables: u64,
    /// Bytes of the copied files.
    pub copied_bytes: u64,
}

/// The database as of one commit, entirely in tables. Their files stay while this value exists.
pub(crate) struct Captured {
    /// Manifest state without a log and without keyspaces of later commits.
    pub state: ManifestState,
    /// Every table in the state.
    pub tables: Vec<Arc<Table>>,
    /// The captured commit.
    pub seqno: SeqNo,
}

impl Captured {
    /// Returns every value file that the tables point into.
    pub fn values(&self) -> Vec<Arc<ValueFile>> {
        let files = self.tables.iter().flat_map(|table| table.value_files());
        let files: BTreeMap<_, _> = files.map(|(id, file)| (id.to_string(), file)).collect();
        files.into_values().cloned().collect()
    }
}

impl Shared {
    /// Seals, flushes, and captures the tables.
    ///
    /// Every flushed generation ends at the same commit for all keyspaces, and this is the captured
    /// point. Only changes of keyspaces reach the manifest without a flush. A drop would be durable
    /// before the commits that it follows, so it waits until the capture is complete. A keyspace
    /// that was created after the point is left out.
    pub fn capture(&self) -> Result<Captured> {
        self.flushes.wait_after_failure()?;
        let _no_drop = self.drops.lock();
        let (sealed_to, sealed_prepared) = {
            let mut log = self.commits.log.lock();
            self.core.access.check_writable()?;
            log.seal(&self.commits.env)?;
            (log.last_seqno, log.unresolved.bodies())
        };
        self.flushes.wait()?;
        let store = self.store.lock();
        // A compaction may have failed since. The state may then name tables that do not exist.
        self.core.poison.check()?;
        let flushed_to = store.flushed_to();
        let mut captured = capture(&store, sealed_to.max(flushed_to))?;
        // Exactly those of the captured point: each decision is a commit of its own.
        let prepared = if flushed_to > sealed_to {
            store.flushed_prepared()
        } else {
            &sealed_prepared
        };
        check_prepared(prepared)?;
        captured.state.prepared = prepared.iter().map(|body| body.to_vec()).collect();
        if self.core.clock.in_use() {
            // Rows that have certainly expired here must have expired in the copy.
            let stored = &mut captured.state.read_clock_ms;
            *stored = self.core.clock.confirmed().max(*stored);
        }
        drop(store);
        // The flush may have synced a commit before its own leader publishes it.
        self.commits.wait_until_visible(captured.state.last_seqno)?;
        Ok(captured)
    }
}

/// Refuses more prepared transactions than one manifest edit can hold.
fn check_prepared(prepared: &[Arc<[u8]>]) -> Result<()> {
    const BYTES_MAX: usize = 1 << 30;
    let bytes: usize = prepared.iter().map(|body| body.len()).sum();
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "{bytes} bytes of prepared transactions are too many for a copy, which may have {BYTES_MAX}: \
         resolve some of them first"
    );
    Err(Error::InvalidArgument(message))
}

fn capture(store: &Store, seqno: SeqNo) -> Result<Captured> {
    let mut state = store.state().clone();
    let later = state
        .keyspaces
        .iter()
        .filter(|(_, k)| k.created_seqno > seqno);
    let edit = VersionEdit {
        dropped: later.map(|(&id, _)| (id, seqno)).collect(),
        ..VersionEdit::default()
    };
    state.apply(&edit).map_err(|error| {
        Error::Internal(format!(
            "the list of keyspaces has {}, not {}",
            error.found, error.expected
        ))
    })?;
    state.last_seqno = seqno;
    // No log yet: the first open for writing starts one.
    state.oldest_segment = SegmentId(0);
    let open = |id: TableId| {
        let missing = || Error::Internal(format!("table {id} of the newest version is not open"));
        store.table(id).ok_or_else(missing)
    };
    let tables = state.table_ids().map(open).collect::<Result<_>>()?;
    Ok(Captured {
        state,
        tables,
        seqno,
    })
}

/// Makes the checkpoint. See [`crate::Database::checkpoint`].
pub(super) fn checkpoint(shared: &Shared, target: &Path) -> Result<CheckpointInfo> {
    shared.core.access.check_writable()?;
    let vfs = &*shared.core.files.vfs;
    let target = &absolute(vfs, target)?;
    check_target(vfs, &shared.core.files.dir, target)?;
    let captured = shared.capture()?;
    let temporary = temporary_name(target)?;
    let made = make(shared, &captured, &temporary, target);
    if made.is_err() {
        remove_directory(vfs, &temporary);
    }
    made
}

/// Refuses a target that exists, lies inside the source, or has no parent directory.
pub(crate) fn check_target(vfs: &dyn Vfs, source: &Path, target: &Path) -> Result<()> {
    let refuse = |why: &str| {
        let message = format!("{} {why}", target.display());
        Err(Error::InvalidArgument(message))
    };
    let exists = |path: &Path| {
        vfs.exists(path)
            .map_err(|error| Error::io("look for", path, error))
    };
    if target.starts_with(source) {
        let why = format!(
            "is inside {}: choose a directory outside it",
            source.display()
        );
        return refuse(&why);
    }
    if exists(target)? {
        return refuse("exists already: choose a new name");
    }
    let parent = parent(target);
    if !parent.as_os_str().is_empty() && !exists(parent)? {
        return refuse("has no parent directory: create it first");
    }
    Ok(())
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Returns a temporary name for a directory under construction. It is random, so that the remains
/// of a crash do not collide with it.
pub(crate) fn temporary_name(target: &Path) -> Result<PathBuf> {
    let Some(name) = target.file_name() else {
        let message = format!("{} is not a name for a directory", target.display());
        return Err(Error::InvalidArgument(message));
    };
    let mut name = name.to_owned();
    name.push(format!(".tmp-{:016x}", random_uid()));
    Ok(parent(target).join(name))
}

fn make(
    shared: &Shared,
    captured: &Captured,
    temporary: &Path,
    target: &Path,
) -> Result<CheckpointInfo> {
    let vfs = &*shared.core.files.vfs;
    vfs.create_dir_all(temporary)
        .map_err(|error| Error::io("create directory", temporary, error))?;
    let mut info = CheckpointInfo {
        seqno: captured.seqno,
        ..CheckpointInfo::default()
    };
    for table in &captured.tables {
        link_or_copy(shared, table.id().to_string(), temporary, &mut info)?;
    }
    for values in captured.values() {
        link_or_copy(shared, values.id().to_string(), temporary, &mut info)?;
    }
    write_database(&shared.core.files.vfs, temporary, captured.state.clone())?;
    put_in_place(vfs, temporary, target)?;
    Ok(info)
}

fn link_or_copy(
    shared: &Shared,
    name: String,
    dir: &Path,
    info: &mut CheckpointInfo,
) -> Result<()> {
    let (from, to) = (shared.core.files.path(&name), dir.join(&name));
    // If one file had to be copied, the target is on another file system and links would fail for
    // the others too.
    if info.copied_tables == 0 {
        match shared.core.files.vfs.hard_link(&from, &to) {
            Ok(()) => {
                info.linked_tables += 1;
                return Ok(());
            }
            Err(error) if has_no_links(error.kind()) => {}
            Err(error) => return Err(Error::io("link", &to, error)),
        }
    }
    let copied = shared.core.files.vfs.copy(&from, &to);
    info.copied_bytes += copied.map_err(|error| Error::io("copy a table to", &to, error))?;
    info.copied_tables += 1;
    Ok(())
}

/// Returns true if a copy may succeed although a link was refused. Some systems without links, and
/// some that protect them, report a missing permission.
fn has_no_links(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::CrossesDevices
            | ErrorKind::Unsupported
            | ErrorKind::TooManyLinks
            | ErrorKind::PermissionDenied
    )
}

/// Completes a directory of tables to a database of this state, durable except for the directory's
/// own name.
pub(crate) fn write_database(vfs: &Arc<dyn Vfs>, dir: &Path, state: ManifestState) -> Result<()> {
    let lock = dir.join(LOCK);
    // Readers of the copy create no files, so the lock file must exist.
    vfs.create(&lock)
        .map_err(|error| Error::io("create", &lock, error))?;
    // Syncs the directory before and after it writes `CURRENT`.
    Manifest::create_with(Arc::clone(vfs), dir, random_uid(), state).map(drop)
}

/// Renames a finished directory to its final name, durable on return.
///
/// If only the last sync fails, the directory keeps its new name. After a power loss the rename and
/// some removals of files might both persist, so removing it now could leave a partial database.
pub(crate) fn put_in_place(vfs: &dyn Vfs, temporary: &Path, target: &Path) -> Result<()> {
    vfs.rename_dir(temporary, target)
        .map_err(|error| Error::io("rename to", target, error))?;
    let parent = parent(target);
    vfs.sync_dir(parent)
        .map_err(|error| Error::io("sync directory", parent, error))
}

/// Removes a directory of files as far as possible. Its temporary name marks the remains.
pub(crate) fn remove_directory(vfs: &dyn Vfs, dir: &Path) {
    for name in vfs.list(dir).unwrap_or_default() {
        let _ = vfs.remove(&dir.join(name));
    }
    let _ = vfs.remove_dir(dir);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Database, Options};
    use crate::keyspace::KeyspaceOptions;
    use crate::vfs::{MemVfs, SplitMix};

    /// Copies are made by name, so it is not enough that a reader can continue with an open file.
    #[test]
    fn value_files_of_a_capture_keep_their_names_as_long_as_it_exists() {
        let vfs = Arc::new(MemVfs::new());
        let options = Options {
            // Every flush makes a compaction due.
            memtable_bytes: Some(1),
            upper_fraction: 0.02,
            ..Options::default()
        };
        let db = Database::open_on(vfs.clone(), Path::new("db"), options).unwrap();
        let separating = KeyspaceOptions {
            value_separation_bytes: Some(256),
            ..KeyspaceOptions::default()
        };
        let keyspace = db.keyspace("k", separating).unwrap();
        let write_all = |round: u8| {
            for key in 0..20 {
                // Random bytes, which do not compress.
                let mut random = SplitMix::new(u64::from(round) << 8 | u64::from(key));
                let value: Vec<u8> = (0..900).map(|_| random.below(256) as u8).collect();
                keyspace.put(&[key], &value).unwrap();
            }
            db.settle().unwrap();
        };
        write_all(1);
        let captured = db.shared().capture().unwrap();
        let values = captured.values();
        let path = |values: &Arc<ValueFile>| db.shared().core.files.path(values.id().to_string());
        let paths: Vec<PathBuf> = values.iter().map(path).collect();
        drop(values);
        assert!(!paths.is_empty());
        (2..5).for_each(write_all);
        assert!(paths.iter().all(|path| vfs.exists(path).unwrap()));
        drop(captured);
        db.shared().core.files.removals.wait();
        assert!(!paths.iter().any(|path| vfs.exists(path).unwrap()));
    }
}
