//! Numbered backups of databases in one directory, which share their common tables.
//!
//! A table never changes, so a backup copies only tables that no earlier backup has. The listing
//! names the files of a backup and is written last: a crash leaves the new backup whole, or
//! unlisted files that a later call removes. Earlier backups are never touched. Files of the store
//! are copies, not links: the store does not depend on the database and is best kept on another
//! device.
//!
//! ```text
//! 000007.backup          the listing: names, lengths, checksums
//! 000007.state           keyspaces and lists of tables
//! tables/UID.table       tables by their uid
//! LOCK
//! ```
//!
//! ```
//! use alluvium::{Database, KeyspaceOptions, Options, backup::BackupStore};
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Database::open(dir.path().join("db"), Options::default())?;
//! let words = db.keyspace("words", KeyspaceOptions::default())?;
//! words.put(b"backup", b"a second copy")?;
//! let store = BackupStore::open(dir.path().join("backups"))?;
//! let backup = store.create(&db)?;
//! assert!(store.verify(backup.id)?.is_empty());
//! store.restore(backup.id, dir.path().join("restored"))?;
//! let restored = Database::open(dir.path().join("restored"), Options::default())?;
//! assert!(restored.existing_keyspace("words")?.is_some());
//! # Ok::<(), alluvium::Error>(())
//! ```

mod contents;
mod files;
mod listing;
mod open;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use alluvium_mem::process::Process;

use crate::sync::plain::Mutex;

use self::files::{copy_checked, sync_dir};
use self::listing::{ListedFile, Listing, listing_name};
use crate::base::SeqNo;
use crate::cache::Cache;
use crate::db::Database;
use crate::db::checkpoint::{
    check_target, put_in_place, remove_directory, temporary_name, write_database,
};
use crate::error::{Error, Result};
use crate::memory::CACHE_BYTES_MIN;
use crate::recovery::absolute;
use crate::table::{Table, ValueFile, ValuesPart};
use crate::vfs::{LockGuard, Vfs};

/// Subdirectory of tables.
const TABLES: &str = "tables";

/// Directory of backups, locked while this exists; readers share the lock.
pub struct BackupStore {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    /// Guards no data. Serializes calls that make or delete a backup, so backup numbers rise with
    /// sequence numbers. Taken before all locks of a database.
    changing: Mutex<()>,
    /// Error for calls that would change a store opened only for reading; `None` in a writable one.
    refused: Option<Error>,
    /// `None` in a store that is opened only for reading and has no lock file.
    _lock: Option<LockGuard>,
    /// The process that opened the store.
    process: Process,
}

/// Properties of one backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number. Larger is newer; the number of the newest is used again after it is deleted.
    pub id: u64,
    /// The newest commit in it. The backup holds every commit up to this one, and no later one.
    pub seqno: SeqNo,
    /// Time of its creation, in seconds since 1970 by the system clock.
    pub created: u64,
    /// Number of its files of tables and of large values.
    pub tables: u64,
    /// Bytes of all its files, shared or not.
    pub bytes: u64,
    /// Bytes copied for it by [`BackupStore::create`]; 0 in a list.
    pub copied_bytes: u64,
}

/// Result of [`BackupStore::list`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct BackupList {
    /// Backups with a valid listing, oldest first.
    pub backups: Vec<BackupInfo>,
    /// Listings that cannot be read. While there is one, no table is removed: it may be needed.
    pub damaged: Vec<(u64, Error)>,
}

impl BackupStore {
    /// Fails with [`Error::Forked`] in a process forked from the one that opened the store.
    fn check_process(&self) -> Result<()> {
        if self.process.is_current() {
            Ok(())
        } else {
            Err(Error::Forked)
        }
    }

    /// Makes a backup of all committed data while commits go on. Durable when the call returns.
    ///
    /// Flushes, then copies the tables that no readable backup in the store has. Checks every row
    /// of a copy, so a damaged table does not get into a backup. Waits until no other call makes or
    /// deletes a backup.
    ///
    /// # Errors
    ///
    /// `ReadOnly`, `NoSpace`, `Io`, `Corruption` of a table of the database, or an error of the
    /// flush: there is no new backup, and the earlier ones are unchanged. If only the very last
    /// sync fails, the backup is listed, but a power loss may remove it.
    pub fn create(&self, db: &Database) -> Result<BackupInfo> {
        self.check_writable()?;
        let _changing = self.changing.lock();
        let captured = db.shared().capture()?;
        // Leftovers of an earlier call are not trusted; files that cannot be removed are
        // overwritten.
        let _ = self.remove_unlisted();
        let known = self.known_tables()?;
        let id = self.next_id()?;
        let made = (|| {
            let (mut tables, mut originals) = (Vec::new(), BTreeMap::new());
            let mut copied_bytes = 0;
            // First, because the check of a table includes the values that it points to.
            for values in captured.values() {
                let name = format!("{:016x}.table", values.uid());
                let file = match known.get(&name).filter(|file| self.is_there(file)) {
                    Some(file) => file.clone(),
                    None => {
                        let file = self.copy_values(db, &values, name)?;
                        copied_bytes += file.bytes;
                        let original = db.shared().core.files.path(values.id().to_string());
                        originals.insert(self.table_path(&file), original);
                        file
                    }
                };
                tables.push((values.id().to_string(), file));
            }
            for table in &captured.tables {
                let name = format!("{:016x}.table", table.uid());
                let file = match known.get(&name).filter(|file| self.is_there(file)) {
                    Some(file) => file.clone(),
                    None => {
                        let file = self.copy_table(db, table, name, &originals)?;
                        copied_bytes += file.bytes;
                        file
                    }
                };
                tables.push((table.id().to_string(), file));
            }
            sync_dir(&*self.vfs, &self.dir.join(TABLES))?;
            let state = self.write_state(id, &captured.state)?;
            let listing = Listing {
                seqno: captured.seqno,
                created: seconds_now(),
                state,
                tables,
            };
            self.write_listing(id, &listing)?;
            let info = info(id, &listing);
            Ok(BackupInfo {
                copied_bytes,
                ..info
            })
        })();
        if made.is_err() {
            // A later call removes leftovers: no listing names them.
            let _ = self.remove_unlisted();
        }
        made
    }

    /// Lists all backups.
    pub fn list(&self) -> Result<BackupList> {
        self.check_process()?;
        let mut list = BackupList::default();
        for id in self.ids()? {
            match self.read_listing(id) {
                Ok(listing) => list.backups.push(info(id, &listing)),
                Err(error) => list.damaged.push((id, error)),
            }
        }
        Ok(list)
    }

    /// Reads every file of a backup and returns the damage found, each an error that names its
    /// file. If the result is empty, the backup can be restored.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there is no backup with this number.
    pub fn verify(&self, id: u64) -> Result<Vec<Error>> {
        self.check_process()?;
        let listing = match self.find(id) {
            Err(error @ Error::InvalidArgument(_)) => return Err(error),
            Err(error) => return Ok(vec![error]),
            Ok(listing) => listing,
        };
        let mut damages = Vec::new();
        if let Err(error) = self.read_state(&listing) {
            damages.push(error);
        }
        for (_, file) in &listing.tables {
            let path = self.table_path(file);
            if let Err(error) = copy_checked(&*self.vfs, &path, file, None) {
                damages.push(error);
            }
        }
        Ok(damages)
    }

    /// Creates a database from a backup at `target`. The target must not exist and its parent must.
    /// The database has its own uid, so it and the original are two databases. Durable when the
    /// call returns.
    ///
    /// # Errors
    ///
    /// `Corruption` that names the damaged file of the store, `NoSpace`, `Io`: nothing is left at
    /// the target.
    /// `InvalidArgument` for an unknown number or an invalid target.
    pub fn restore(&self, id: u64, target: impl AsRef<Path>) -> Result<()> {
        self.check_process()?;
        let target = &absolute(&*self.vfs, target.as_ref())?;
        let listing = self.find(id)?;
        check_target(&*self.vfs, &self.dir, target)?;
        let temporary = temporary_name(target)?;
        let made = self.restore_to(&listing, &temporary);
        if made.is_err() {
            remove_directory(&*self.vfs, &temporary);
            return made;
        }
        put_in_place(&*self.vfs, &temporary, target).inspect_err(|_| {
            remove_directory(&*self.vfs, &temporary);
        })
    }

    /// Removes a backup, and the tables that are in no other one.
    ///
    /// # Errors
    ///
    /// `ReadOnly`; `InvalidArgument` if there is no such backup; `Io`, after which it may or may
    /// not exist. Other backups stay whole in any case.
    pub fn delete(&self, id: u64) -> Result<()> {
        self.check_writable()?;
        let _changing = self.changing.lock();
        if !self.ids()?.contains(&id) {
            return Err(unknown(id));
        }
        let path = self.dir.join(listing_name(id));
        self.vfs
            .remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
        self.remove_unlisted()
    }

    fn restore_to(&self, listing: &Listing, dir: &Path) -> Result<()> {
        let state = self.read_state(listing)?;
        let vfs = &*self.vfs;
        vfs.create_dir_all(dir)
            .map_err(|e| Error::io("create directory", dir, e))?;
        let mut named: BTreeSet<String> = state.table_ids().map(|id| id.to_string()).collect();
        for (name, file) in &listing.tables {
            copy_checked(vfs, &self.table_path(file), file, Some(&dir.join(name)))?;
            named.remove(name);
        }
        if let Some(missing) = named.first() {
            let path = self.dir.join(&listing.state.name);
            let what = "tables of a backup";
            return Err(Error::corruption(
                &path,
                0,
                what,
                missing,
                "a listing without it",
            ));
        }
        write_database(&self.vfs, dir, state)
    }

    /// Copies a table into the store, reads it back and checks it, and gives it its name.
    /// `originals` maps the value files copied by this backup from their path in the store to their
    /// source.
    fn copy_table(
        &self,
        db: &Database,
        table: &Table,
        name: String,
        originals: &BTreeMap<PathBuf, PathBuf>,
    ) -> Result<ListedFile> {
        let source = db.shared().core.files.path(table.id().to_string());
        let tables = self.dir.join(TABLES);
        let temporary = tables.join(format!("{name}.tmp"));
        let file = files::copy_between(
            &*db.shared().core.files.vfs,
            &source,
            &*self.vfs,
            &temporary,
            name,
        )?;
        let copy = self.vfs.open_read(&temporary);
        let copy = copy.map_err(|e| Error::io("open", &temporary, e))?;
        let cache = Cache::of_bytes(CACHE_BYTES_MIN as u64);
        let open_values = |part: &ValuesPart| {
            let name = format!("{:016x}.table", part.uid);
            let path = self.dir.join(TABLES).join(name);
            let file = self.vfs.open_read(&path);
            let file = file.map_err(|e| Error::io("open", &path, e))?;
            ValueFile::open(file, part.file, part.uid)
        };
        let checked = Table::open_with(copy, table.id(), table.uid(), cache, open_values)
            .and_then(|table| table.verify());
        // Damage in a copy is damage in its original. A value file that was in the store already is
        // damaged itself.
        let damaged = |path: PathBuf| {
            if path == temporary {
                source
            } else {
                originals.get(&path).cloned().unwrap_or(path)
            }
        };
        checked.map_err(|error| error.of_file(damaged))?;
        self.name_table(&temporary, file)
    }

    fn name_table(&self, temporary: &Path, file: ListedFile) -> Result<ListedFile> {
        let path = self.table_path(&file);
        self.vfs
            .rename(temporary, &path)
            .map_err(|e| Error::io("rename to", &path, e))?;
        Ok(file)
    }

    /// Copies a file of large values into the store. Its values are checked with the tables that
    /// point to them.
    fn copy_values(&self, db: &Database, values: &ValueFile, name: String) -> Result<ListedFile> {
        let source = db.shared().core.files.path(values.id().to_string());
        let temporary = self.dir.join(TABLES).join(format!("{name}.tmp"));
        let file = files::copy_between(
            &*db.shared().core.files.vfs,
            &source,
            &*self.vfs,
            &temporary,
            name,
        )?;
        self.name_table(&temporary, file)
    }
}

fn info(id: u64, listing: &Listing) -> BackupInfo {
    let tables = listing.tables.iter().map(|(_, file)| file.bytes);
    BackupInfo {
        id,
        seqno: listing.seqno,
        created: listing.created,
        tables: listing.tables.len() as u64,
        bytes: tables.sum::<u64>() + listing.state.bytes,
        copied_bytes: 0,
    }
}

fn unknown(id: u64) -> Error {
    Error::InvalidArgument(format!("there is no backup {id}"))
}

fn seconds_now() -> u64 {
    // A clock before 1970 is not an error.
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
