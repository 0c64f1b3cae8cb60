//! The manifest file: a log of edits, each durable before the next one starts, and the pointer `CURRENT` that names it.
//!
//! ```text
//! 000003.manifest:  | header 48 B | frame | frame | ... | zeros up to a multiple of 64 KiB |
//! ```
//!
//! Frames are those of the write-ahead log (`wal/frame.rs`), so an edit that was known durable and is invalid now is
//! damage, and only the last one can be torn. The first frame is an edit that gives the whole state. A manifest that has
//! doubled is written anew under the next number; so is every manifest at open, which is how a torn edit goes away.
//! The switch is the renaming of `CURRENT`; the predecessor is kept until the switch after that.
//! `docs/format/manifest.md` has the bytes.

mod edits;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::current::{
    CURRENT, file_name, newer, parse_name, read_pointer, read_start, switch_current, sync_dir,
};
use super::edit::{EditError, VersionEdit};
use super::state::ManifestState;
use crate::base::checksum::checksum;
use crate::base::coding::Decoder;
use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsFile};
use crate::wal::frame::{FRAME_HEADER_BYTES, Frame, FrameHeader, FrameReader, frame_bytes, seal};
use crate::wal::{PAYLOAD_BYTES_MAX, hard_io, open_settled};

pub use edits::edits;

/// The newest manifest format that this build reads, and the one it writes.
pub const FORMAT_VERSION: u32 = 1;

/// On disk; never changes.
const MAGIC: [u8; 8] = *b"alluvman";

/// Bytes before the first frame. On disk; never changes.
const HEADER_BYTES: u64 = 48;

/// The bytes that the header's checksum covers. On disk; never changes, also in later versions.
const COVERED_BYTES: usize = 40;

/// Frame kinds. On disk; they never change.
const KIND_EDIT: u8 = 1;
/// Nothing but the durable mark that every frame carries.
const KIND_MARK: u8 = 2;

/// The file is allocated ahead in this unit, so that a full device is noticed before an edit is half written. A length
/// that is no multiple of it means that the file has lost its end.
const ALLOCATION_UNIT_BYTES: u64 = 64 << 10;

/// A manifest below this length is not written anew.
const REWRITE_BYTES_MIN: u64 = 1 << 20;

/// A database uid that no other database has.
pub fn random_uid() -> u64 {
    crate::sync::random_u64()
}

/// The manifest of an open database.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use alluvium::base::TableId;
/// use alluvium::version::{Manifest, VersionEdit, random_uid};
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
    /// `None` where the database is only read.
    log: Option<EditLog>,
    state: ManifestState,
    /// The next number for a manifest file. A number that was tried once is not tried again.
    next_number: u64,
    /// The manifest is written anew before it grows beyond this length.
    rewrite_at: u64,
    /// The first failure; nothing is written afterwards.
    failure: Option<Error>,
}

/// The file being appended to.
#[derive(Debug)]
struct EditLog {
    number: u64,
    file: Arc<dyn VfsFile>,
    file_uid: u64,
    allocated_bytes: u64,
    end: u64,
    chain: u64,
    durable: u64,
}

/// What a manifest file says.
#[derive(Debug)]
struct Contents {
    number: u64,
    uid: u64,
    state: ManifestState,
}

impl Manifest {
    /// Whether the directory holds a database.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn exists(vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
        let path = dir.join(CURRENT);
        vfs.exists(&path)
            .map_err(|error| Error::io("look for", &path, error))
    }

    /// Starts an empty database, durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if there is one already; [`Error::Corruption`] if there is none but its files are there;
    /// [`Error::NoSpace`]; [`Error::Io`].
    pub fn create(vfs: Arc<dyn Vfs>, dir: &Path, uid: u64) -> Result<Manifest> {
        if Manifest::exists(&*vfs, dir)? {
            let message = format!("{} already holds a database", dir.display());
            return Err(Error::InvalidArgument(message));
        }
        let names = list(&*vfs, dir)?;
        // Logs and tables are written after CURRENT is durable. A creation that stopped leaves manifests only.
        let data = |name: &&String| name.ends_with(".wal") || name.ends_with(".sst");
        if let Some(name) = names.iter().find(data) {
            let path = dir.join(CURRENT);
            let what = "pointer to the manifest";
            let expected = format!("a file, since {name} exists");
            return Err(Error::corruption(&path, 0, what, expected, "none"));
        }
        Manifest::start(vfs, dir, uid, ManifestState::default(), &names)
    }

    /// Starts a database with this state in a directory that holds its tables and nothing else, durable on return.
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
    /// [`Error::Corruption`] where durable edits are damaged or contradict each other; [`Error::NewerFormat`];
    /// [`Error::NoSpace`]; [`Error::Io`].
    pub fn open(vfs: Arc<dyn Vfs>, dir: &Path) -> Result<(Manifest, ManifestState)> {
        let contents = read_current(&*vfs, dir)?;
        let names = list(&*vfs, dir)?;
        let state = contents.state.clone();
        let manifest = Manifest::start(vfs, dir, contents.uid, contents.state, &names)?;
        manifest.remove_older_than(contents.number, &names);
        Ok((manifest, state))
    }

    /// Reads the state of an existing database for good: nothing in the directory changes, and every edit is refused with
    /// [`Error::ReadOnly`]. Errors as [`Manifest::open`].
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

    /// The uid and the state as of the last edit that can be read, for a repair. If the manifest in force cannot be read
    /// from its beginning, an older one is taken. Tells `report` what was not readable.
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
        match read_pointer(vfs, dir) {
            // Tried first. A younger one was never in force.
            Ok(current) => numbers.retain(|&number| number <= current),
            Err(error) => report(error),
        }
        let mut last = Error::corruption(&dir.join(CURRENT), 0, "manifest", "a file", "none");
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

    /// Reads the uid and the state of an existing database, and changes nothing. Errors as [`Manifest::open`].
    pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<(u64, ManifestState)> {
        let contents = read_current(vfs, dir)?;
        Ok((contents.uid, contents.state))
    }

    /// The uid of the database.
    pub fn database_uid(&self) -> u64 {
        self.uid
    }

    /// The sum of all edits so far.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Adds an edit, durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if the device has no room for it: nothing happened, and it may be tried again. Anything else
    /// is final, and later calls repeat it: [`Error::Io`]; [`Error::Corruption`] if the edit contradicts the state, in
    /// which case it was not written.
    pub fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        match self.try_append(edit) {
            Err(error) if !matches!(error, Error::NoSpace { .. }) => {
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
        // Says that the edit is durable, so that it cannot be taken for a torn one should it rot. Needs no sync, and
        // its failure does not undo the edit, but nothing may follow it.
        self.failure = log.append(KIND_MARK, &[]).err();
        Ok(())
    }

    /// Where the next edit goes.
    fn end(&self) -> Result<u64> {
        self.log.as_ref().map(|log| log.end).ok_or(Error::ReadOnly)
    }

    /// Moves to a new file. Without room for one, the old one goes on growing.
    fn rewrite(&mut self) -> Result<()> {
        let number = self.next_number;
        self.next_number += 1;
        let predecessor = self.log.as_ref().map_or(0, |log| log.number);
        match EditLog::create(&*self.vfs, &self.dir, self.uid, number, &self.state) {
            Ok(log) => {
                self.rewrite_at = rewrite_at(&log);
                self.log = Some(log);
            }
            Err(Error::NoSpace { .. }) => {
                self.rewrite_at += REWRITE_BYTES_MIN;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let names = list(&*self.vfs, &self.dir)?;
        self.remove_older_than(predecessor, &names);
        Ok(())
    }

    /// Starts a manifest file with this state, above all numbers in `names`.
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

    /// Removes the manifests that neither `CURRENT` nor its predecessor needs. A leftover does no harm.
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

fn checked_len(payload: &[u8], path: &Path) -> Result<usize> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        let message = format!("an edit of {} is too large", path.display());
        return Err(Error::InvalidArgument(message));
    }
    Ok(payload.len())
}

fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>> {
    vfs.list(dir).map_err(|error| Error::io("list", dir, error))
}

/// What seeds the checksums of a manifest's frames, together with their offset.
fn file_uid(uid: u64, number: u64) -> u64 {
    checksum(&number.to_le_bytes(), uid)
}

impl EditLog {
    /// Creates a manifest that holds `state`, and switches `CURRENT` to it. Durable on return.
    fn create(
        vfs: &dyn Vfs,
        dir: &Path,
        uid: u64,
        number: u64,
        state: &ManifestState,
    ) -> Result<EditLog> {
        let path = dir.join(file_name(number));
        let result = EditLog::prepare(vfs, dir, uid, number, state).and_then(|log| {
            switch_current(vfs, dir, number)?;
            Ok(log)
        });
        if let Err(Error::NoSpace { .. }) = result {
            // Not named by CURRENT yet. A leftover does no harm.
            let _ = vfs.remove(&path);
        }
        result
    }

    /// Creates a manifest that holds `state`, durable on return but not yet in force.
    fn prepare(
        vfs: &dyn Vfs,
        dir: &Path,
        uid: u64,
        number: u64,
        state: &ManifestState,
    ) -> Result<EditLog> {
        let path = dir.join(file_name(number));
        let payload = state.to_edit().encode();
        let frame = frame_bytes(checked_len(&payload, &path)?) as u64;
        let file = vfs
            .create(&path)
            .map_err(|error| Error::io("create", &path, error))?;
        let mut log = EditLog {
            number,
            file,
            file_uid: file_uid(uid, number),
            allocated_bytes: 0,
            end: HEADER_BYTES,
            chain: 0,
            durable: 0,
        };
        log.reserve(frame)?;
        let (header, sum) = encode_header(uid, number);
        log.chain = sum;
        log.file
            .write_at(&header, 0)
            .map_err(|error| hard_io("write the header of", &path, error))?;
        log.append(KIND_EDIT, &payload)?;
        log.sync()?;
        sync_dir(vfs, dir)?;
        Ok(log)
    }

    /// Makes sure that a frame of this length, and the mark behind it, find room.
    fn reserve(&mut self, frame_len: u64) -> Result<()> {
        let needed =
            (self.end + frame_len + frame_bytes(0) as u64).next_multiple_of(ALLOCATION_UNIT_BYTES);
        if needed > self.allocated_bytes {
            self.file
                .allocate(needed)
                .map_err(|error| Error::io("allocate", self.file.path(), error))?;
            self.allocated_bytes = needed;
        }
        Ok(())
    }

    fn append(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        let mut frame = vec![0; frame_bytes(payload.len())];
        frame[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + payload.len()].copy_from_slice(payload);
        let header = FrameHeader {
            payload_bytes: payload.len() as u32,
            kind,
            seqno: 0,
            chain: self.chain,
            durable: self.durable,
        };
        let sum = seal(&mut frame, header, self.file_uid, self.end);
        self.file
            .write_at(&frame, self.end)
            .map_err(|error| hard_io("write an edit to", self.file.path(), error))?;
        self.chain = sum;
        self.end += frame.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file
            .sync()
            .map_err(|error| hard_io("sync", self.file.path(), error))?;
        self.durable = self.end;
        Ok(())
    }
}

/// The header's bytes and its checksum, with which the chain of the file's frames starts.
fn encode_header(uid: u64, number: u64) -> (Vec<u8>, u64) {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    // Features that a reader must know, features that it may ignore, and room.
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(&uid.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    debug_assert_eq!(out.len(), COVERED_BYTES);
    let sum = checksum(&out, number);
    out.extend_from_slice(&sum.to_le_bytes());
    (out, sum)
}

/// The uid in a header, and the header's checksum.
fn decode_header(bytes: &[u8], number: u64, path: &Path) -> Result<(u64, u64)> {
    let mut d = Decoder::new(bytes);
    let fields = (|| {
        let magic = d.take(8)?;
        let (version, must_know) = (d.u32()?, d.u32()?);
        let _may_ignore_and_room = d.u64()?;
        let (uid, stored_number, sum) = (d.u64()?, d.u64()?, d.u64()?);
        let valid = magic == MAGIC && stored_number == number;
        let intact = checksum(bytes.get(..COVERED_BYTES)?, number) == sum;
        (valid && intact).then_some((version, must_know, uid, sum))
    })();
    let Some((version, must_know, uid, sum)) = fields else {
        let what = "header of the manifest";
        return Err(Error::corruption(
            path,
            0,
            what,
            "a valid header",
            "other bytes",
        ));
    };
    if version > FORMAT_VERSION || must_know != 0 {
        return Err(newer(path, version.max(FORMAT_VERSION + 1)));
    }
    Ok((uid, sum))
}

fn read_current(vfs: &dyn Vfs, dir: &Path) -> Result<Contents> {
    let number = read_pointer(vfs, dir)?;
    let path = dir.join(file_name(number));
    let (file, len) = open_settled(vfs, &path)?;
    if len == 0 || !len.is_multiple_of(ALLOCATION_UNIT_BYTES) {
        let what = "length of the manifest";
        let expected = format!("a multiple of {ALLOCATION_UNIT_BYTES}");
        return Err(Error::corruption(&path, len, what, expected, len));
    }
    let (uid, sum) = decode_header(&read_start(&*file, len, HEADER_BYTES)?, number, &path)?;
    let mut frames = FrameReader::new(&*file, file_uid(uid, number), HEADER_BYTES, sum)?;
    let mut state = ManifestState::default();
    while let Some(frame) = frames.next()? {
        apply_frame(&frame, &path, &mut state)?;
    }
    if frames.offset() == HEADER_BYTES {
        // The whole state was durable before CURRENT named the file.
        let what = "first edit of the manifest";
        return Err(Error::corruption(
            &path,
            HEADER_BYTES,
            what,
            "a valid edit",
            "none",
        ));
    }
    // Whatever is left may be an edit that a crash cut off, which nobody was told of.
    frames.finish()?;
    Ok(Contents { number, uid, state })
}

/// The state up to the first edit that is not valid or does not fit.
fn salvage_file(
    vfs: &dyn Vfs,
    dir: &Path,
    number: u64,
    report: &mut dyn FnMut(Error),
) -> Result<(u64, ManifestState)> {
    let path = dir.join(file_name(number));
    let (file, len) = open_settled(vfs, &path)?;
    let (uid, sum) = decode_header(&read_start(&*file, len, HEADER_BYTES)?, number, &path)?;
    let mut frames = FrameReader::new(&*file, file_uid(uid, number), HEADER_BYTES, sum)?;
    let mut state = None;
    while let Some(frame) = frames.next()? {
        let mut next = state.clone().unwrap_or_default();
        if let Err(error) = apply_frame(&frame, &path, &mut next) {
            report(error);
            break;
        }
        state = Some(next);
    }
    let Some(state) = state else {
        let what = "first edit of the manifest";
        return Err(Error::corruption(
            &path,
            HEADER_BYTES,
            what,
            "a valid edit",
            "none",
        ));
    };
    if let Err(error) = frames.finish() {
        report(error);
    }
    Ok((uid, state))
}

fn apply_frame(frame: &Frame<'_>, path: &Path, state: &mut ManifestState) -> Result<()> {
    let damage = |expected: &str, found: String| {
        Error::corruption(path, frame.offset, "edit", expected, found)
    };
    match frame.header.kind {
        KIND_MARK => Ok(()),
        KIND_EDIT => {
            let edit = VersionEdit::decode(frame.payload).map_err(|error| match error {
                EditError::UnknownField(_) => newer(path, FORMAT_VERSION + 1),
                EditError::Malformed(what) => damage("well-formed fields", what.to_owned()),
            })?;
            state
                .apply(&edit)
                .map_err(|error| damage(error.expected, error.found))
        }
        other => Err(damage("an edit or a mark", format!("kind {other}"))),
    }
}

#[cfg(test)]
mod tests;
