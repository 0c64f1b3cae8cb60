//! Recovery: the steps from opening a directory to a ready database.
//!
//! Order: take the directory's lock, read the manifest, move unnamed files aside, open every table,
//! replay the commits that are not in tables, start a new log segment. If a flush of replayed
//! memtables could remove the segments of unresolved prepared transactions, these are written into
//! the new segment.
//!
//! Invariants: nothing is ever appended to a replayed segment, and no table is deleted that an
//! earlier manifest might still need. Unnamed tables wait in a subdirectory until the next
//! successful open.
//!
//! A read-only open takes the same steps without those that write: its lock is shared, its manifest
//! is not written anew, no file is moved, and replayed memtables stay in memory.

mod numbers;
mod prepared;

use crate::sync::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::numbers::LogOrder;
use self::prepared::{read_prepared, read_prepared_tables};
use crate::base::{KeyspaceId, SegmentId, SeqNo, TableId, ValueFileId};
use crate::cache::Cache;
use crate::commit::packed::unpack;
use crate::commit::{Log, SealedGeneration, SealedLog};
use crate::db::ballast;
use crate::db::memory::{Memory, MemoryPlan};
use crate::db::options::{Durability, Options};
use crate::db::poison::Poison;
use crate::db::shared::{FilesParts, Parts};
use crate::db::store::Store;
use crate::error::{Error, LockHolder, Result};
use crate::keyspace::options::KeyspaceOptions;
use crate::keyspace::tree::Tree;
use crate::memory::MemoryBudget;
use crate::read_points::ReadPoints;
use crate::table::open_files::{self, OpenFiles};
use crate::table::{Table, ValueFile, ValueFiles, ValuesPart};
use crate::version::{
    GroupState, Manifest, ManifestState, TableRecord, UNREFERENCED, VersionEdit, check_no_remains,
    random_uid,
};
use crate::vfs::{LockGuard, Vfs, VfsFile};
use crate::wal::{RecordKind, ReplayEnd, WalWriter};

/// Name of the lock file.
pub(crate) const LOCK: &str = "LOCK";

/// A recovered database, ready for its threads.
pub(crate) struct Recovered {
    pub parts: Parts,
    /// Memtables that replay filled, oldest first.
    pub sealed: Vec<SealedGeneration>,
}

/// Opens or creates the database in `dir`.
pub(crate) fn recover(vfs: Arc<dyn Vfs>, dir: &Path, options: Options) -> Result<Recovered> {
    options.check()?;
    let dir = &absolute(&*vfs, dir)?;
    let vfs = &hold_directory(&*vfs, dir, &options)?;
    let lock = take_directory(&**vfs, dir, &options)?;
    let manifest = open_manifest(vfs, dir, &options)?;
    let state = manifest.state();
    numbers::check_manifest(dir, state)?;
    let listed = list(&**vfs, dir)?;
    let memory = Memory::new(&options);
    let open_files = OpenFiles::new(Arc::clone(vfs), open_files_max(&options, lock.is_some()));
    let tables = open_tables(&open_files, &**vfs, dir, state, &memory.cache)?;
    let aside = dir.join(UNREFERENCED);
    let old = if exists(&**vfs, &aside)? {
        list(&**vfs, &aside)?
    } else {
        Vec::new()
    };
    if !options.read_only {
        move_unreferenced(&**vfs, dir, &listed, &tables)?;
        remove_runs(&**vfs, dir, &listed)?;
    }
    let next_table = first_free_table(state, listed.iter().chain(&old));
    let mut store = Store::new(manifest, tables);
    let trees = open_trees(&store, dir, &options, &memory.budget)?;
    // Starts at 0: a generation sealed by replay must end at the last replayed commit, even if the
    // manifest records a newer one.
    let mut log = Log::new(None, 0, trees.clone());
    read_prepared(dir, &options, store.state(), &mut log)?;
    let (end, mut sealed) = replay(&**vfs, dir, &options, &store, &mut log)?;
    // After replay: the log may hold a decided transaction that had the same id before.
    read_prepared_tables(&options, &store, &trees, &mut log)?;
    log.last_seqno = log.last_seqno.max(numbers::newest_commit(store.state()));
    if !options.read_only {
        remember_numbers(&mut store, next_table)?;
        if options.durability != Durability::None {
            let prepared = !log.unresolved.is_empty();
            let wal = start_log(vfs, dir, &options, &mut store, &end, prepared)?;
            log.wal = Some(wal);
            let newest = end.end.map_or(SegmentId(0), |end| end.segment);
            let oldest = log.unresolved.oldest_needed(newest);
            log.carry_recovered(&mut store, &mut sealed, oldest)?;
        } else if !log.unresolved.is_empty() {
            let message = "the database has prepared transactions, which need its log: \
                           open it with another durability and resolve them";
            return Err(Error::InvalidArgument(message.into()));
        }
        delete_aside(&**vfs, dir, &old)?;
    }
    let catalog = trees.into_values().map(|t| (t.name.clone(), t)).collect();
    let read_points = ReadPoints::new(log.last_seqno);
    let files = FilesParts {
        dir: dir.to_path_buf(),
        vfs: Arc::clone(vfs),
        open_files,
        next_table,
        lock,
    };
    let parts = Parts {
        files,
        options,
        memory,
        log,
        store,
        catalog,
        read_points,
    };
    Ok(Recovered { parts, sealed })
}

/// Returns an absolute path, so that a later change of the working directory does not matter.
pub(crate) fn absolute(vfs: &dyn Vfs, path: &Path) -> Result<PathBuf> {
    vfs.absolute(path)
        .map_err(|e| Error::io("find the working directory for", path, e))
}

/// Opens the directory, and creates it first if the options ask for it. All files of the database
/// are accessed through this directory handle.
fn hold_directory(vfs: &dyn Vfs, dir: &Path, options: &Options) -> Result<Arc<dyn Vfs>> {
    if options.create && !options.read_only {
        create_directory(vfs, dir)?;
    }
    hold(vfs, dir).map_err(|e| match e {
        Error::Io { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            no_database(dir, options)
        }
        other => other,
    })
}

/// Returns a file system that accesses `dir` through a handle of the directory.
pub(crate) fn hold(vfs: &dyn Vfs, dir: &Path) -> Result<Arc<dyn Vfs>> {
    vfs.anchored(dir)
        .map_err(|e| Error::io("open directory", dir, e))
}

/// Takes the exclusive lock of a directory, and creates a lock file if there is none.
pub(crate) fn lock_to_write(vfs: &dyn Vfs, dir: &Path) -> Result<LockGuard> {
    let path = dir.join(LOCK);
    let lock = vfs.lock(&path).map_err(|e| Error::io("lock", &path, e))?;
    lock.map_err(|holder| locked(dir, holder))
}

/// Takes the shared lock of a directory. `None` if there is no lock file, for example in a copy
/// without it: readers create no files.
pub(crate) fn lock_to_read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<LockGuard>> {
    let path = dir.join(LOCK);
    match vfs.lock_shared(&path) {
        Ok(lock) => lock.map(Some).map_err(|holder| locked(dir, holder)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("lock", &path, error)),
    }
}

fn locked(dir: &Path, holder: LockHolder) -> Error {
    let path = dir.to_path_buf();
    Error::Locked { path, holder }
}

fn no_database(dir: &Path, options: &Options) -> Error {
    let advice = if options.read_only {
        "a database that is only read must exist"
    } else {
        "set `create` to make one"
    };
    Error::InvalidArgument(format!(
        "there is no database in {}: {advice}",
        dir.display()
    ))
}

fn take_directory(vfs: &dyn Vfs, dir: &Path, options: &Options) -> Result<Option<LockGuard>> {
    if options.read_only {
        // A read-only open may continue without a lock: it then holds all its files and its log,
        // and a writer cannot take anything from it.
        lock_to_read(vfs, dir)
    } else {
        lock_to_write(vfs, dir).map(Some)
    }
}

/// Creates the directory and makes its name durable: if a power loss removed the directory, commits
/// in it would be lost.
fn create_directory(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let mut missing = Vec::new();
    for ancestor in dir.ancestors().filter(|a| !a.as_os_str().is_empty()) {
        // A directory without a manifest may be left from a creation that stopped before its name
        // was durable.
        let made = ancestor != dir || Manifest::exists(vfs, dir)?;
        if made && exists(vfs, ancestor)? {
            break;
        }
        missing.push(ancestor);
    }
    vfs.create_dir_all(dir)
        .map_err(|e| Error::io("create directory", dir, e))?;
    for parent in missing.iter().filter_map(|path| path.parent()) {
        vfs.sync_dir(parent)
            .map_err(|e| Error::io("sync", parent, e))?;
    }
    Ok(())
}

fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>> {
    vfs.list(dir).map_err(|e| Error::io("list", dir, e))
}

fn exists(vfs: &dyn Vfs, path: &Path) -> Result<bool> {
    vfs.exists(path).map_err(|e| Error::io("look for", path, e))
}

fn open_manifest(vfs: &Arc<dyn Vfs>, dir: &Path, options: &Options) -> Result<Manifest> {
    let is_there = Manifest::exists(&**vfs, dir)?;
    if !is_there {
        // Checked before anything is changed.
        check_no_remains(&**vfs, dir)?;
    }
    if !options.read_only {
        // The open may need all the space left on the device.
        ballast::give_up(&**vfs, dir);
    }
    if options.read_only && is_there {
        return Manifest::open_read_only(Arc::clone(vfs), dir);
    }
    if is_there {
        let (manifest, _) = Manifest::open(Arc::clone(vfs), dir)?;
        return Ok(manifest);
    }
    if options.read_only || !options.create {
        return Err(no_database(dir, options));
    }
    Manifest::create(Arc::clone(vfs), dir, random_uid())
}

/// Returns the number in the name of a table or value file.
fn file_number(name: &str) -> Option<u64> {
    let number = name
        .strip_suffix(".sst")
        .or_else(|| name.strip_suffix(".val"));
    number?.parse().ok()
}

/// Moves table and value files aside if neither the manifest nor one of its tables names them.
fn move_unreferenced(
    vfs: &dyn Vfs,
    dir: &Path,
    listed: &[String],
    tables: &HashMap<TableId, Arc<Table>>,
) -> Result<()> {
    let aside = dir.join(UNREFERENCED);
    let mut named: HashSet<String> = tables.keys().map(TableId::to_string).collect();
    for table in tables.values() {
        named.extend(table.value_files().keys().map(ValueFileId::to_string));
    }
    let stray = |name: &&String| file_number(name).is_some() && !named.contains(*name);
    let strays: Vec<&String> = listed.iter().filter(stray).collect();
    if strays.is_empty() {
        return Ok(());
    }
    vfs.create_dir_all(&aside)
        .map_err(|e| Error::io("create directory", &aside, e))?;
    for name in strays {
        let (from, to) = (dir.join(name), aside.join(name));
        vfs.rename(&from, &to)
            .map_err(|e| Error::io("move aside", &from, e))?;
    }
    Ok(())
}

/// Returns the name of a bulk load's temporary file.
pub(crate) fn run_file_name(number: u64) -> String {
    format!("{number:06}.run")
}

/// Removes the temporary files of interrupted bulk loads. No manifest ever names them.
fn remove_runs(vfs: &dyn Vfs, dir: &Path, listed: &[String]) -> Result<()> {
    let number = |name: &String| name.strip_suffix(".run")?.parse().ok();
    let is_run = |name: &&String| number(name).is_some_and(|n| run_file_name(n) == **name);
    for name in listed.iter().filter(is_run) {
        let path = dir.join(name);
        vfs.remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
    }
    Ok(())
}

/// Deletes files that an earlier open moved aside: this open has read everything it needs.
fn delete_aside(vfs: &dyn Vfs, dir: &Path, names: &[String]) -> Result<()> {
    for name in names {
        let path = dir.join(UNREFERENCED).join(name);
        vfs.remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
    }
    Ok(())
}

/// Returns every table of these groups; a table that several groups list is returned several times.
pub(crate) fn records<'a>(
    groups: impl Iterator<Item = &'a GroupState>,
) -> impl Iterator<Item = &'a TableRecord> {
    groups.flat_map(|g| g.upper.iter().map(|(_, r)| r).chain(&g.last))
}

fn open_tables(
    files: &Arc<OpenFiles>,
    vfs: &dyn Vfs,
    dir: &Path,
    state: &ManifestState,
    cache: &Arc<Cache>,
) -> Result<HashMap<TableId, Arc<Table>>> {
    let mut tables = HashMap::default();
    let mut values = ValueFiles::default();
    let groups = state.keyspaces.values().flat_map(|k| k.groups.values());
    let prepared = state.prepared_tables.values().flatten();
    for record in records(groups).chain(prepared.map(|(_, record)| record)) {
        if tables.contains_key(&record.id) {
            continue;
        }
        let path = dir.join(record.id.to_string());
        let file = open_named(files, vfs, &path)?;
        let open_values = |part: &ValuesPart| open_values(files, vfs, dir, part, &mut values);
        let cache = Arc::clone(cache);
        let table = Table::open_with(file, record.id, record.uid, cache, open_values)?;
        check_record(&path, record, &table)?;
        table.raise_seqnos(record.global_seqno.unwrap_or(0));
        tables.insert(record.id, table);
    }
    Ok(tables)
}

/// Returns the maximum number of open table and value files. Without a lock, a writer may remove
/// the files of a read-only database at any time, so no file is ever closed.
fn open_files_max(options: &Options, is_locked: bool) -> usize {
    if is_locked {
        options.open_files.unwrap_or_else(open_files::default_limit)
    } else {
        usize::MAX
    }
}

/// Opens a file that is named by the manifest or by one of its tables.
fn open_named(files: &Arc<OpenFiles>, vfs: &dyn Vfs, path: &Path) -> Result<Arc<dyn VfsFile>> {
    let opened = files.with_descriptor(|| vfs.open_read(path));
    let file = opened.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            let expected = "a file that the manifest or a table names";
            Error::corruption(path, 0, "file", expected, "none")
        }
        _ => Error::io("open", path, e),
    })?;
    Ok(files.keep(file))
}

/// Opens a value file, once for all tables that point into it.
fn open_values(
    files: &Arc<OpenFiles>,
    vfs: &dyn Vfs,
    dir: &Path,
    part: &ValuesPart,
    open: &mut ValueFiles,
) -> Result<Arc<ValueFile>> {
    if let Some(file) = open.get(&part.file) {
        return Ok(Arc::clone(file));
    }
    let path = dir.join(part.file.to_string());
    let file = ValueFile::open(open_named(files, vfs, &path)?, part.file, part.uid)?;
    open.insert(part.file, Arc::clone(&file));
    Ok(file)
}

/// Checks that the manifest and the table agree: a swapped file is damage, even if its own
/// checksums are right.
pub(crate) fn check_record(path: &Path, record: &TableRecord, table: &Table) -> Result<()> {
    let expected = (record.entries, record.min_seqno, record.max_seqno);
    let stored = table.properties();
    let found = (stored.entries, stored.min_seqno, stored.max_seqno);
    if expected != found
        || record.first_key != table.first_key()
        || record.last_key != table.last_key()
    {
        let shown = |(entries, min, max): (u64, SeqNo, SeqNo)| {
            format!("{entries} entries, seqnos {min} to {max}")
        };
        return Err(Error::corruption(
            path,
            0,
            "table properties",
            shown(expected),
            shown(found),
        ));
    }
    Ok(())
}

fn open_trees(
    store: &Store,
    dir: &Path,
    options: &Options,
    budget: &Arc<MemoryBudget>,
) -> Result<HashMap<KeyspaceId, Arc<Tree>>> {
    let memtable_bytes = MemoryPlan::new(options).active_bytes;
    let mut trees = HashMap::default();
    for (&id, keyspace) in &store.state().keyspaces {
        let decoded = KeyspaceOptions::decode(&keyspace.options).ok_or_else(|| {
            let what = "keyspace options";
            Error::corruption(
                &dir.join("CURRENT"),
                0,
                what,
                "options of this version",
                "unknown or malformed ones",
            )
        })?;
        let version = store.version(id);
        let tree = Tree::new(id, &keyspace.name, decoded, version, memtable_bytes, budget);
        trees.insert(id, Arc::new(tree));
    }
    Ok(trees)
}

/// Applies every logged commit above its keyspace's flushed sequence number.
fn replay(
    vfs: &dyn Vfs,
    dir: &Path,
    options: &Options,
    store: &Store,
    log: &mut Log,
) -> Result<(ReplayEnd, Vec<SealedGeneration>)> {
    let state = store.state();
    let mut sealed = Vec::new();
    let active_bytes = MemoryPlan::new(options).active_bytes;
    let flushed = |id: KeyspaceId| {
        state
            .keyspaces
            .get(&id)
            .map_or(SeqNo::MAX, |k| k.flushed_seqno)
    };
    let mut order = LogOrder::new(dir);
    // Newest segment with more than prepares that older segments or the manifest also hold.
    let mut newest = SegmentId(0);
    let mut visit = |segment: SegmentId, seqno: SeqNo, kind: RecordKind, payload: &[u8]| {
        order.check(segment, kind, seqno)?;
        if kind != RecordKind::Prepare || !log.unresolved.knows(payload) {
            newest = segment;
        }
        log.last_seqno = log.last_seqno.max(seqno);
        let replayed = match kind {
            RecordKind::Commit => log.replay(seqno, payload, state.next_keyspace, &flushed),
            RecordKind::PackedCommit => unpack(payload)
                .ok_or_else(|| "a malformed packing".to_owned())
                .and_then(|raw| log.replay(seqno, &raw, state.next_keyspace, &flushed)),
            RecordKind::Prepare | RecordKind::CommitPrepared | RecordKind::Rollback => log
                .replay_phase(
                    Some(segment),
                    kind,
                    payload,
                    state.next_keyspace,
                    options.durability,
                )
                .and_then(|ops| log.replay(seqno, ops, state.next_keyspace, &flushed)),
            _ => return Ok(()),
        };
        replayed.map_err(|found| {
            let path = dir.join(segment.to_string());
            let what = "payload of a commit record";
            Error::corruption(
                &path,
                0,
                what,
                "operations on known keyspaces",
                format!("{found} in commit {seqno}"),
            )
        })?;
        if log.active_bytes() >= active_bytes {
            // Only records before this segment are complete in the generation.
            let log_left = SealedLog {
                oldest_needed: segment,
                syncer: None,
            };
            sealed.push(log.sealed_generation(Some(log_left)));
        }
        Ok(())
    };
    // 0: no segment is recorded yet, so the log must reach back to its beginning.
    let oldest = state.oldest_segment;
    let mut end = crate::wal::replay(vfs, dir, store.database_uid(), oldest, &mut visit)?;
    end.cut_behind(newest.max(oldest));
    Ok((end, sealed))
}

/// Returns the first number above all table and value files that exist or are known to have
/// existed.
fn first_free_table<'a>(state: &ManifestState, files: impl Iterator<Item = &'a String>) -> TableId {
    let highest = files.filter_map(|name| file_number(name)).max();
    let behind = TableId(highest.map_or(0, |highest| highest.saturating_add(1)));
    state.next_table.max(behind)
}

/// Records the numbers of unnamed files before these files are removed. Otherwise a later open
/// could assign the numbers again while the removal or rename is not yet durable.
fn remember_numbers(store: &mut Store, next_table: TableId) -> Result<()> {
    if next_table <= store.state().next_table {
        return Ok(());
    }
    let edit = VersionEdit {
        next_table: Some(next_table),
        ..VersionEdit::default()
    };
    store.append(&Poison::default(), &edit)
}

/// Starts the first segment of this session and records it before any commit can be acknowledged.
fn start_log(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    options: &Options,
    store: &mut Store,
    end: &ReplayEnd,
    prepared: bool,
) -> Result<WalWriter> {
    let first = SegmentId(end.next_segment.max(store.state().next_segment).0.max(1));
    let segment_bytes = MemoryPlan::new(options).segment_bytes();
    let uid = store.database_uid();
    if !end.cut.is_empty() && first > store.state().next_segment {
        // Once the segments are removed, nothing else records their numbers.
        let edit = VersionEdit {
            next_segment: Some(first),
            ..VersionEdit::default()
        };
        store.append(&Poison::default(), &edit)?;
    }
    end.remove_cut(&**vfs, dir)?;
    let shared = Arc::clone(vfs);
    let wal = WalWriter::create(shared, dir, uid, first, end.end, prepared, segment_bytes)?;
    let edit = VersionEdit {
        next_segment: Some(SegmentId(first.0 + 1)),
        oldest_segment: (store.state().oldest_segment.0 == 0).then_some(first),
        ..VersionEdit::default()
    };
    store.append(&Poison::default(), &edit)?;
    Ok(wal)
}
