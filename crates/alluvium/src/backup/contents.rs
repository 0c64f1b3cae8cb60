//! Files of a backup store, by name: listings, states and tables. Reads, writes and removes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::files::{self, read_checked, remove_if_there, sync_dir, write_file};
use super::listing::{ListedFile, Listing, listing_name};
use super::{BackupStore, TABLES, unknown};
use crate::base::checksum::checksum;
use crate::error::{Error, Result};
use crate::version::{ManifestState, VersionEdit};

impl BackupStore {
    pub(super) fn write_state(&self, id: u64, state: &ManifestState) -> Result<ListedFile> {
        let bytes = state.to_edit().encode();
        let name = state_name(id);
        write_file(&*self.vfs, &self.dir.join(&name), &bytes)?;
        Ok(ListedFile {
            name,
            bytes: bytes.len() as u64,
            checksum: checksum(&bytes, 0),
        })
    }

    pub(super) fn read_state(&self, listing: &Listing) -> Result<ManifestState> {
        let path = self.dir.join(&listing.state.name);
        let bytes = read_checked(&*self.vfs, &path, &listing.state)?;
        let malformed = |found: String| {
            let expected = "one edit that holds the whole state";
            Error::corruption(&path, 0, "state of a backup", expected, found)
        };
        let edit = VersionEdit::decode(&bytes).map_err(|error| malformed(error.to_string()))?;
        let mut state = ManifestState::default();
        let applied = state.apply(&edit);
        applied.map_err(|error| malformed(error.to_string()))?;
        Ok(state)
    }

    pub(super) fn write_listing(&self, id: u64, listing: &Listing) -> Result<()> {
        let path = self.dir.join(listing_name(id));
        let temporary = self.dir.join(format!("{}.tmp", listing_name(id)));
        remove_if_there(&*self.vfs, &temporary)?;
        write_file(&*self.vfs, &temporary, listing.encode().as_bytes())?;
        // Syncs the directory entry of the state file before a listing refers to it.
        sync_dir(&*self.vfs, &self.dir)?;
        self.vfs
            .rename(&temporary, &path)
            .map_err(|e| Error::io("rename to", &path, e))?;
        // If this fails, the listing and its files stay: they must not be removed while the listing
        // may survive a power loss.
        sync_dir(&*self.vfs, &self.dir)
    }

    pub(super) fn find(&self, id: u64) -> Result<Listing> {
        if self.ids()?.contains(&id) {
            self.read_listing(id)
        } else {
            Err(unknown(id))
        }
    }

    pub(super) fn read_listing(&self, id: u64) -> Result<Listing> {
        let path = self.dir.join(listing_name(id));
        Listing::decode(&files::read_all(&*self.vfs, &path)?, &path)
    }

    /// Returns the numbers of all backups, readable or not, in order.
    pub(super) fn ids(&self) -> Result<BTreeSet<u64>> {
        Ok(numbers(&self.names()?, ".backup"))
    }

    pub(super) fn next_id(&self) -> Result<u64> {
        let names = self.names()?;
        // A state without a listing is left over from a backup that stopped.
        let used = [".backup", ".state", ".backup.tmp"];
        let highest = used
            .iter()
            .filter_map(|end| numbers(&names, end).pop_last());
        Ok(highest.max().unwrap_or(0) + 1)
    }

    /// Returns the files of tables and of large values that readable backups list, by name.
    pub(super) fn known_tables(&self) -> Result<BTreeMap<String, ListedFile>> {
        let mut known = BTreeMap::new();
        for id in self.ids()? {
            let tables = self.read_listing(id).map(|listing| listing.tables);
            let files = tables.into_iter().flatten().map(|(_, file)| file);
            known.extend(files.map(|file| (file.name.clone(), file)));
        }
        Ok(known)
    }

    /// Returns true if a listed table is there in its full length. Otherwise it is copied again,
    /// which also repairs older backups.
    pub(super) fn is_there(&self, file: &ListedFile) -> bool {
        let opened = self.vfs.open_read(&self.table_path(file));
        opened.and_then(|open| open.len()).ok() == Some(file.bytes)
    }

    /// Removes files that no listing names. Does nothing if a listing cannot be read, because the
    /// files it needs are unknown.
    pub(super) fn remove_unlisted(&self) -> Result<()> {
        // A listing that was removed must not come back after a power loss and lack its files: the
        // sync of an earlier delete may have failed.
        sync_dir(&*self.vfs, &self.dir)?;
        let mut needed = BTreeSet::new();
        for id in self.ids()? {
            let Ok(listing) = self.read_listing(id) else {
                return Ok(());
            };
            needed.insert(listing.state.name);
            needed.extend(listing.tables.into_iter().map(|(_, file)| file.name));
        }
        let tables = self.dir.join(TABLES);
        let listed = self.vfs.list(&tables);
        let listed = listed.map_err(|e| Error::io("list", &tables, e))?;
        let in_tables = listed.iter().filter(|name| name.contains(".table"));
        let stray = in_tables.filter(|name| !needed.contains(*name));
        let mut paths: Vec<PathBuf> = stray.map(|name| tables.join(name)).collect();
        let names = self.names()?;
        let own = |name: &&String| name.ends_with(".state") || name.ends_with(".backup.tmp");
        let stray = names
            .iter()
            .filter(own)
            .filter(|name| !needed.contains(*name));
        paths.extend(stray.map(|name| self.dir.join(name)));
        for path in &paths {
            remove_if_there(&*self.vfs, path)?;
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>> {
        let names = self.vfs.list(&self.dir);
        names.map_err(|e| Error::io("list", &self.dir, e))
    }

    pub(super) fn table_path(&self, file: &ListedFile) -> PathBuf {
        self.dir.join(TABLES).join(&file.name)
    }
}

pub(super) fn state_name(id: u64) -> String {
    format!("{id:06}.state")
}

/// Returns the numbers of the names with this ending.
fn numbers(names: &[String], ending: &str) -> BTreeSet<u64> {
    let numbers = names.iter().filter_map(|name| name.strip_suffix(ending));
    numbers.filter_map(|number| number.parse().ok()).collect()
}
