//! Manifest file: a log of edits, each durable before the next one starts, with the pointer
//! `CURRENT` that names it.
//!
//! ```text
//! 000003.manifest:  | header 48 B | frame | frame | ... | zeros up to a multiple of 64 KiB |
//! ```
//!
//! Frames are those of the write-ahead log (`wal/frame.rs`), so an edit that was known durable and
//! is invalid now is damage, and only the last edit can be torn. The first frame is an edit with
//! the whole state. A manifest that has doubled in size is rewritten under the next number. So is
//! every manifest at open, which also discards a torn edit. The switch is the rename of `CURRENT`;
//! the previous manifest is kept until the switch after that. `docs/format/manifest.md` specifies
//! the bytes.

mod edits;
mod file;
mod read;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::file::{EditLog, KIND_EDIT, KIND_MARK, checked_len};
use self::read::read_current;
pub(super) use self::read::salvage_file;
use super::current::{CURRENT, parse_name, read_pointer};
use super::edit::VersionEdit;
use super::remains::check_no_remains;
use super::state::ManifestState;
use crate::error::{Error, Result};
use crate::vfs::Vfs;
use crate::wal::frame::frame_bytes;

pub use edits::edits;

/// Length in bytes below which a manifest is not rewritten.
const REWRITE_BYTES_MIN: u64 = 1 << 20;

/// Returns a random uid for a database, distinct from that of any other database.
pub fn random_uid() -> u64 {
    crate::sync::random_u64()
}

/// Manifest of an open database.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use alluvium::base::TableId;
/// use alluvium::internal::{Manifest, VersionEdit, random_uid};
/// use alluvium::vfs::MemVfs;
///
/// let (vfs, dir) = (Arc::new(MemVfs::new()), Path::new("/"));
/// let mut manifest = Manifest::create(vfs.clone(), dir, random_uid())?;
/// manifest.append(&VersionEdit { next_table: Some(TableId(5)), ..VersionEdit::default() })?;
/// drop(manifest);
/// let (_manifest, state) = Manifest::open(vfs, dir)?;
/// assert_eq!(state.next_table, TableId(5));
/// # Ok::<(), alluvium::Error>(())
/// ```
#[derive(Debug)]
pub struct Manifest {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    uid: u64,
    /// `None` if the database is read-only.
    log: Option<EditLog>,
    state: ManifestState,
    /// Next number for a manifest file. A number that was tried once is not tried again.
    next_number: u64,
    /// Length in bytes above which the manifest is rewritten before it grows further.
    rewrite_at: u64,
    /// First failure; nothing is written afterwards.
    failure: Option<Error>,
}

impl Manifest {
    /// Returns true if the directory holds a database.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn exists(vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
        let path = dir.join(CURRENT);
        vfs.exists(&path)
            .map_err(|error| Error::io("look for", &path, error))
    }

    /// Creates an empty database, durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if there is one already; [`Error::Corruption`] if there is none
    /// but its files are there; [`Error::NoSpace`]; [`Error::Io`].
    pub fn create(vfs: Arc<dyn Vfs>, dir: &Path, uid: u64) -> Result<Manifest> {
        if Manifest::exists(&*vfs, dir)? {
            let message = format!("{} already holds a database", dir.display());
            return Err(Error::InvalidArgument(message));
        }
        check_no_remains(&*vfs, dir)?;
        let names = list(&*vfs, dir)?;
        Manifest::start(vfs, dir, uid, ManifestState::default(), &names)
    }

    /// Creates a database with this state in a directory that holds its tables and nothing else,
    /// durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`]; [`Error::Io`].
    pub fn create_with(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        uid: u64,
        state: ManifestState,
    ) -> Result<Manifest> {
        Manifest::start(vfs, dir, uid, state, &[])
    }

    /// Reads the state of an existing database and starts a new manifest file for it.
    ///
    /// # Errors
    ///
    /// [`Error::Corruption`] if durable edits are damaged or contradict each other;
    /// [`Error::NewerFormat`]; [`Error::NoSpace`]; [`Error::Io`].
    pub fn open(vfs: Arc<dyn Vfs>, dir: &Path) -> Result<(Manifest, ManifestState)> {
        Manifest::open_changed(vfs, dir, |_| {})
    }

    /// Opens like [`Manifest::open`], but the new manifest file begins with the state as `change`
    /// leaves it, durable on return.
    ///
    /// # Errors
    ///
    /// As for [`Manifest::open`].
    pub fn open_changed(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        change: impl FnOnce(&mut ManifestState),
    ) -> Result<(Manifest, ManifestState)> {
        let mut contents = read_current(&*vfs, dir)?;
        change(&mut contents.state);
        let names = list(&*vfs, dir)?;
        let state = contents.state.clone();
        let manifest = Manifest::start(vfs, dir, contents.uid, contents.state, &names)?;
        manifest.remove_older_than(contents.number, &names);
        Ok((manifest, state))
    }

    /// Opens an existing database for reading only: nothing in the directory changes, and every
    /// edit is refused with [`Error::ReadOnly`]. Errors as for [`Manifest::open`].
    pub fn open_read_only(vfs: Arc<dyn Vfs>, dir: &Path) -> Result<Manifest> {
        let contents = read_current(&*vfs, dir)?;
        Ok(Manifest {
            vfs,
            dir: dir.to_path_buf(),
            uid: contents.uid,
            rewrite_at: u64::MAX,
            log: None,
            state: contents.state,
            next_number: contents.number + 1,
            failure: Some(Error::ReadOnly),
        })
    }

    /// Returns the uid and the state as of the last readable edit, for a repair. If the manifest in
    /// force is not readable from its beginning, an older one is used. Passes each unreadable part
    /// to `report`.
    ///
    /// # Errors
    ///
    /// The last one, if no manifest in the directory begins with a whole edit.
    pub fn salvage(
        vfs: &dyn Vfs,
        dir: &Path,
        report: &mut dyn FnMut(Error),
    ) -> Result<(u64, ManifestState)> {
        let mut numbers: Vec<u64> = list(vfs, dir)?
            .iter()
            .filter_map(|n| parse_name(n))
            .collect();
        numbers.sort_unstable();
        let none = |what| Error::corruption(&dir.join(CURRENT), 0, what, "a file", "none");
        if Manifest::exists(vfs, dir)? {
            match read_pointer(vfs, dir) {
                // Tried first. A younger manifest was never in force.
                Ok(current) => numbers.retain(|&number| number <= current),
                Err(error) => report(error),
            }
        } else {
            report(none("pointer to the manifest"));
        }
        let mut last = none("manifest");
        for number in numbers.into_iter().rev() {
            match salvage_file(vfs, dir, number, report) {
                Ok(found) => return Ok(found),
                Err(error) => {
                    report(error.clone());
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Reads the uid and the state of an existing database, and changes nothing. Errors as for
    /// [`Manifest::open`].
    pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<(u64, ManifestState)> {
        let contents = read_current(vfs, dir)?;
        Ok((contents.uid, contents.state))
    }

    /// Returns the uid of the database.
    pub fn database_uid(&self) -> u64 {
        self.uid
    }

    /// Returns the state after all edits so far.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Appends an edit, durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if the device has no room for it: nothing happened, and the caller may
    /// retry. Anything else is final, and later calls repeat it: [`Error::Io`];
    /// [`Error::Corruption`] if the edit contradicts the state, in which case it was not written.
    pub fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        match self.try_append(edit) {
            Err(error) if !error.may_be_retried() => {
                self.failure = Some(error.clone());
                Err(error)
            }
            result => result,
        }
    }

    fn try_append(&mut self, edit: &VersionEdit) -> Result<()> {
        let payload = edit.encode();
        let frame = frame_bytes(checked_len(&payload, &self.dir)?) as u64;
        if self.end()? + frame > self.rewrite_at {
            self.rewrite()?;
        }
        let log = self.log.as_mut().ok_or(Error::ReadOnly)?;
        log.reserve(frame)?;
        // Applied before it is written: an edit that does not fit must not reach the file.
        if let Err(error) = self.state.apply(edit) {
            let path = log.file.path();
            let (expected, found) = (error.expected, error.found);
            return Err(Error::corruption(path, log.end, "edit", expected, found));
        }
        log.append(KIND_EDIT, &payload)?;
        log.sync()?;
        // Marks the edit as durable, so that later rot in it is not mistaken for a torn write.
        // Needs no sync, and its failure does not undo the edit, but nothing may follow it.
        self.failure = log.append(KIND_MARK, &[]).err();
        Ok(())
    }

    /// Returns the offset of the next edit.
    fn end(&self) -> Result<u64> {
        self.log.as_ref().map(|log| log.end).ok_or(Error::ReadOnly)
    }

    /// Moves to a new file. If none can be created, the old file continues to grow.
    fn rewrite(&mut self) -> Result<()> {
        let number = self.next_number;
        self.next_number += 1;
        let predecessor = self.log.as_ref().map_or(0, |log| log.number);
        match EditLog::create(&*self.vfs, &self.dir, self.uid, number, &self.state) {
            Ok(log) => {
                self.rewrite_at = rewrite_at(&log);
                self.log = Some(log);
                // Files that cannot be listed now are removed after the next switch.
                let names = list(&*self.vfs, &self.dir).unwrap_or_default();
                self.remove_older_than(predecessor, &names);
            }
            Err(error) if error.may_be_retried() => self.rewrite_at += REWRITE_BYTES_MIN,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Starts a manifest file with this state, numbered above all in `names`.
    fn start(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        uid: u64,
        state: ManifestState,
        names: &[String],
    ) -> Result<Manifest> {
        let highest = names.iter().filter_map(|name| parse_name(name)).max();
        let number = highest.unwrap_or(0) + 1;
        let log = EditLog::create(&*vfs, dir, uid, number, &state)?;
        Ok(Manifest {
            vfs,
            dir: dir.to_path_buf(),
            uid,
            rewrite_at: rewrite_at(&log),
            log: Some(log),
            state,
            next_number: number + 1,
            failure: None,
        })
    }

    /// Removes the manifests that neither `CURRENT` nor its predecessor needs. A leftover does no
    /// harm.
    fn remove_older_than(&self, number: u64, names: &[String]) {
        for name in names {
            if parse_name(name).is_some_and(|older| older < number) {
                let _ = self.vfs.remove(&self.dir.join(name));
            }
        }
    }
}

fn rewrite_at(log: &EditLog) -> u64 {
    (2 * log.end).max(REWRITE_BYTES_MIN)
}

fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>> {
    vfs.list(dir).map_err(|error| Error::io("list", dir, error))
}

#[cfg(test)]
mod tests;
