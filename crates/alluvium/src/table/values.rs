//! Value files (`.val`): large values stored separately from their keys, so that compactions move
//! pointers instead of values.
//!
//! ```text
//! value section | value section | ... | footer (64 bytes)
//! ```
//!
//! Each value is a section like those of a table (`section.rs`, layout 3), with the same checks. A
//! flush or compaction writes a file once and completes it before a table that points into it is
//! named. Tables record in their properties the files into which they point, each with the number
//! of bytes. A file without pointers from any table is removed. In a file that is still needed,
//! values without a pointer are garbage; compactions collect it by moving the other values.

use crate::sync::collections::HashMap;
use crate::sync::plain::Mutex;
use alluvium_mem::pages::Buffer;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::base::checksum::{checksum, place_seed};
use crate::base::coding::{Decoder, put_varint};
use crate::base::{KeyspaceId, VALUE_BYTES_MAX, ValueFileId};
use crate::table::codec::{Codec, Packer, Scratch, ZSTD_RATIO_MAX};
use crate::table::malformed::Malformed;
use crate::table::open_files::OpenFiles;
use crate::table::owned_file::{Leave, OwnedFile};
use crate::table::pinned::PinnedValue;
use crate::table::properties::ValuesPart;
use crate::table::read_ahead::ReadAhead;
use crate::table::section::{HEADER_BYTES, Layout, Origin, Place, open_section_into, put_section};
use crate::vfs::{Lifetime, Vfs, VfsFile};
use crate::{Error, Result};

/// Format version of this build: the one it writes, and the newest it reads.
const FORMAT_VERSION: u32 = 1;
const FOOTER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"\x89ALVVAL\n";
/// Bytes collected before a write.
const WRITE_BYTES: usize = 1 << 20;

/// Most bytes of a value that a prefetch hint covers; they keep the device busy for a while.
const READ_HINT_BYTES: u64 = 1 << 20;

const PAGE_BYTES: usize = 4096;
/// Distance of a section's start above its copy, modulo a page.
const SOURCE_ABOVE_BYTES: usize = 128;

/// Returns the start in `buffer` for a section with a value that will be copied to `copy`. The
/// start is in the first page, at the copy's address plus [`SOURCE_ABOVE_BYTES`], modulo a page.
///
/// Values that do not compress are stored in runs of 128 KiB. On AMD's Zen 3 and 4, copying such a
/// run takes fifteen times as long if the copy lies up to 63 bytes above its source, modulo a page:
/// `memcpy` in older releases of glibc is a string instruction there, and that instruction is so
/// slow then (glibc bug 30994). The allocator places buffers for values of half a MiB like that.
fn place_of_source(buffer: &[u8], copy: &[u8]) -> usize {
    let wanted = copy.as_ptr().addr() + SOURCE_ABOVE_BYTES;
    wanted.wrapping_sub(buffer.as_ptr().addr()) % PAGE_BYTES
}

/// Place of a value in a value file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub file: ValueFileId,
    pub offset: u64,
    /// Length of the section in bytes, its header included.
    pub stored_bytes: u32,
    /// Length of the value in bytes.
    pub value_bytes: u32,
}

impl Pointer {
    /// Appends the pointer. The bytes after it belong to the row and not to the value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.file.0);
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.stored_bytes));
        put_varint(out, u64::from(self.value_bytes));
    }

    /// Returns the pointer at the start of a stored row, and the bytes after it.
    pub fn decode(stored: &[u8]) -> Option<(Pointer, &[u8])> {
        let mut d = Decoder::new(stored);
        let pointer = Pointer {
            file: ValueFileId(d.varint()?),
            offset: d.varint()?,
            stored_bytes: d.varint32()?,
            value_bytes: d.varint32()?,
        };
        Some((pointer, d.rest()))
    }
}

/// Value file, open for reading. Once marked obsolete, it is removed with its last user.
pub struct ValueFile {
    file: OwnedFile,
    id: ValueFileId,
    uid: u64,
    /// End of the values in the file.
    end: u64,
    /// Guards the read-ahead state that all readers share. Locked only with `try_lock`. A leaf in
    /// the lock order.
    ahead: Mutex<ReadAhead>,
}

/// Value files by number: the ones that a table points into or a compaction uses.
pub(crate) type ValueFiles = HashMap<ValueFileId, Arc<ValueFile>>;

impl ValueFile {
    /// Opens a value file and checks its footer; values are checked when they are read.
    ///
    /// Errors: `Corruption`, `NewerFormat`, `Io`.
    pub fn open(
        file: Arc<dyn VfsFile>,
        id: ValueFileId,
        expected_uid: u64,
    ) -> Result<Arc<ValueFile>> {
        let path = file.path();
        let failed = |e| Error::io("read the footer of", path, e);
        let length = file.len().map_err(failed)?;
        let Some(end) = length.checked_sub(FOOTER_BYTES as u64) else {
            return Err(Malformed::new("file length", FOOTER_BYTES, length).at(path, length));
        };
        let mut footer = [0; FOOTER_BYTES];
        file.read_at(&mut footer, end).map_err(failed)?;
        let version = check_footer(&footer, expected_uid, length).map_err(|m| m.at(path, end))?;
        if version > FORMAT_VERSION {
            return Err(Error::NewerFormat {
                path: path.to_path_buf(),
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        file.expect_random_reads();
        Ok(Arc::new(ValueFile {
            file: OwnedFile::new(file),
            id,
            uid: expected_uid,
            end,
            ahead: Mutex::default(),
        }))
    }

    /// Works like [`ValueFile::open`], for a file that a table in `dir` points into.
    pub(crate) fn open_in(vfs: &dyn Vfs, dir: &Path, part: &ValuesPart) -> Result<Arc<ValueFile>> {
        let path = dir.join(part.file.to_string());
        let file = vfs.open_read(&path);
        let file = file.map_err(|e| Error::io("open", &path, e))?;
        ValueFile::open(file, part.file, part.uid)
    }

    /// Returns the number that names the file.
    pub fn id(&self) -> ValueFileId {
        self.id
    }

    /// Returns the random number that distinguishes this file from any other.
    pub fn uid(&self) -> u64 {
        self.uid
    }

    /// Returns the stored bytes of all values, each with its header.
    pub fn stored_bytes(&self) -> u64 {
        self.end
    }

    /// Returns the length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.end + FOOTER_BYTES as u64
    }

    /// Reads a value and appends `rest` to it.
    ///
    /// Errors: `Corruption`, `Io`. Cost: one read of the device or the page cache; the block cache
    /// is not used.
    pub(crate) fn read(&self, pointer: &Pointer, rest: &[u8]) -> Result<PinnedValue> {
        let path = self.file.path();
        let wrong = |m: Malformed| m.at(path, pointer.offset);
        let end = pointer.offset.checked_add(u64::from(pointer.stored_bytes));
        let Some(end) = end.filter(|&end| end <= self.end) else {
            let expected = format!("an end up to {}", self.end);
            return Err(wrong(Malformed::new(
                "value pointer",
                expected,
                pointer.offset,
            )));
        };
        if let Some(mut ahead) = self.ahead.try_lock() {
            ahead.note(&*self.file, pointer.offset..end, 0..self.end);
        }
        // Creating a decompressor for each value would take as long as reading the value.
        let value = Scratch::with(|scratch| self.read_section(pointer, rest.len(), scratch));
        let mut value = value?;
        value.extend_from_slice(rest);
        Ok(PinnedValue::from(value))
    }

    /// Reads and checks the value alone, into memory with room for `room` more bytes.
    fn read_section(
        &self,
        pointer: &Pointer,
        room: usize,
        Scratch { stored, unpacker }: &mut Scratch,
    ) -> Result<Vec<u8>> {
        let path = self.file.path();
        let wrong = |m: Malformed| m.at(path, pointer.offset);
        let stored_bytes = pointer.stored_bytes as usize;
        let value_bytes = pointer.value_bytes as usize;
        if value_bytes > VALUE_BYTES_MAX {
            let most = format!("at most {VALUE_BYTES_MAX} bytes");
            return Err(wrong(Malformed::new("value pointer", most, value_bytes)));
        }
        // The code below refuses a length beyond the codec's largest ratio.
        let reached = value_bytes.min(stored_bytes.saturating_mul(ZSTD_RATIO_MAX));
        let mut value = Vec::with_capacity(reached + room);
        // Shrinking keeps the buffer. The read overwrites all bytes used below, or fails.
        let needed = stored_bytes + PAGE_BYTES;
        if stored.capacity() < needed {
            stored.clear();
            stored.reserve_exact(needed);
        }
        stored.resize(needed, 0);
        let start = place_of_source(stored, &value);
        let stored = &mut stored[start..start + stored_bytes];
        let read = self.file.read_at(stored, pointer.offset);
        read.map_err(|e| Error::io("read a value of", path, e))?;
        let origin = Origin {
            uid: self.uid,
            offset: pointer.offset,
            dictionary: None,
        };
        let opened = open_section_into(stored, unpacker, origin, &mut value);
        let layout = opened.map_err(wrong)?;
        if layout != Layout::Value || value.len() != value_bytes {
            let expected = format!("a value of {value_bytes} bytes");
            let found = format!("layout {} of {}", layout as u8, value.len());
            return Err(wrong(Malformed::new("value section", expected, found)));
        }
        Ok(value)
    }

    /// Starts a device read of a value without waiting for it.
    pub(crate) fn start_reading(&self, pointer: &Pointer) {
        // The read that follows reports a wrong pointer.
        let bytes = u64::from(pointer.stored_bytes).min(READ_HINT_BYTES);
        let end = pointer.offset.checked_add(bytes);
        if end.is_some_and(|end| end <= self.end) {
            self.file.start_reading(pointer.offset, bytes);
        }
    }

    /// Marks that no table points here any more: `leave` gets the file when its last user drops it.
    pub(crate) fn mark_obsolete(&self, leave: Leave) {
        self.file.mark_obsolete(leave);
    }
}

impl fmt::Debug for ValueFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

/// Reads the value that a stored row points to, and appends the bytes after the pointer.
pub(crate) fn resolve(files: &ValueFiles, stored: &[u8], named_by: &Path) -> Result<PinnedValue> {
    let (file, pointer, rest) = locate(files, stored, named_by)?;
    file.read(&pointer, rest)
}

/// Returns the file that a stored row points into, the pointer, and the bytes after it.
pub(super) fn locate<'a>(
    files: &'a ValueFiles,
    stored: &'a [u8],
    named_by: &Path,
) -> Result<(&'a ValueFile, Pointer, &'a [u8])> {
    let wrong = |found: &str| {
        Malformed::new("pointer to a value", "one into a file of the table", found).at(named_by, 0)
    };
    let (pointer, rest) = Pointer::decode(stored).ok_or_else(|| wrong("a cut one"))?;
    let file = files.get(&pointer.file);
    let file = file.ok_or_else(|| wrong(&pointer.file.to_string()))?;
    Ok((file, pointer, rest))
}

/// Writer of one value file. After an error the file is worthless.
pub(crate) struct ValueWriter {
    file: Arc<dyn VfsFile>,
    id: ValueFileId,
    uid: u64,
    keyspace: KeyspaceId,
    packer: Packer,
    chunk: Buffer<u8>,
    chunk_offset: u64,
    values: u64,
    value_bytes: u64,
}

impl ValueWriter {
    /// Starts at offset 0 of an empty `file`. `uid` is random.
    pub fn new(
        file: Arc<dyn VfsFile>,
        id: ValueFileId,
        uid: u64,
        keyspace: KeyspaceId,
        codec: Codec,
    ) -> ValueWriter {
        file.expect_lifetime(Lifetime::Long);
        ValueWriter {
            file,
            id,
            uid,
            keyspace,
            packer: Packer::new(codec),
            chunk: Buffer::default(),
            chunk_offset: 0,
            values: 0,
            value_bytes: 0,
        }
    }

    /// Appends a value.
    pub fn add(&mut self, value: &[u8]) -> Result<Pointer> {
        let offset = self.stored_bytes();
        let place = Place {
            uid: self.uid,
            offset,
            path: self.file.path(),
        };
        let (chunk, packer) = (&mut self.chunk, &mut self.packer);
        let stored_bytes = put_section(chunk, place, Layout::Value, 1, value, packer)?;
        self.values += 1;
        self.value_bytes += value.len() as u64;
        if self.chunk.len() >= WRITE_BYTES {
            self.write_chunk()?;
        }
        Ok(Pointer {
            file: self.id,
            offset,
            stored_bytes,
            value_bytes: value.len() as u32,
        })
    }

    /// Returns the memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.packer.memory_bytes() + self.chunk.capacity()
    }

    /// Returns the length of the file so far in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.chunk_offset + self.chunk.len() as u64
    }

    /// Writes the rest of the file and syncs it. The caller syncs the directory.
    pub fn finish(mut self, files: &Arc<OpenFiles>) -> Result<Arc<ValueFile>> {
        let end = self.stored_bytes();
        let mut footer = vec![0; 8];
        footer.extend_from_slice(&self.uid.to_le_bytes());
        footer.extend_from_slice(&(end + FOOTER_BYTES as u64).to_le_bytes());
        footer.extend_from_slice(&self.values.to_le_bytes());
        footer.extend_from_slice(&self.value_bytes.to_le_bytes());
        footer.extend_from_slice(&self.keyspace.0.to_le_bytes());
        footer.extend_from_slice(&0u32.to_le_bytes());
        footer.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        footer.extend_from_slice(&(FOOTER_BYTES as u32).to_le_bytes());
        footer.extend_from_slice(&MAGIC);
        let sum = checksum(&footer[8..], place_seed(self.uid, end));
        footer[..8].copy_from_slice(&sum.to_le_bytes());
        self.chunk.extend_from_slice(&footer);
        self.write_chunk()?;
        let path = self.file.path();
        self.file.sync().map_err(|e| Error::io("sync", path, e))?;
        ValueFile::open(files.keep(self.file), self.id, self.uid)
    }

    fn write_chunk(&mut self) -> Result<()> {
        let written = self.file.write_at(&self.chunk, self.chunk_offset);
        written.map_err(|e| Error::io("write", self.file.path(), e))?;
        self.chunk_offset += self.chunk.len() as u64;
        self.chunk.clear();
        self.chunk.shrink_to(2 * WRITE_BYTES);
        Ok(())
    }
}

/// Checks a footer and returns its version.
fn check_footer(footer: &[u8; FOOTER_BYTES], uid: u64, length: u64) -> Result<u32, Malformed> {
    let short = || Malformed::new("footer", FOOTER_BYTES, "fewer bytes");
    if footer[FOOTER_BYTES - MAGIC.len()..] != MAGIC {
        let found = footer[FOOTER_BYTES - MAGIC.len()..].escape_ascii();
        return Err(Malformed::new(
            "magic of a value file",
            MAGIC.escape_ascii(),
            found,
        ));
    }
    let mut d = Decoder::new(footer);
    let expected = d.u64().ok_or_else(short)?;
    let found = checksum(d.rest(), place_seed(uid, length - FOOTER_BYTES as u64));
    let own_uid = d.u64().ok_or_else(short)?;
    if own_uid != uid {
        let (expected, found) = (format!("{uid:#018x}"), format!("{own_uid:#018x}"));
        return Err(Malformed::new("file uid", expected, found));
    }
    if expected != found {
        let (expected, found) = (format!("{expected:#018x}"), format!("{found:#018x}"));
        return Err(Malformed::new("footer checksum", expected, found));
    }
    let own_length = d.u64().ok_or_else(short)?;
    if own_length != length {
        return Err(Malformed::new("file length", own_length, length));
    }
    d.take(24).ok_or_else(short)?;
    d.u32().ok_or_else(short)
}

// A section's length with its header fits the pointer's field: values have at most 1 GiB.
const _: () = assert!((1 << 30) + HEADER_BYTES < u32::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz_decoder;

    #[test]
    fn a_source_is_placed_a_little_above_its_copy() {
        let (buffer, copies) = (vec![0; 3 * PAGE_BYTES], vec![0; 2 * PAGE_BYTES]);
        for at in [0, 1, 63, 64, 100, 2048, PAGE_BYTES - 1, PAGE_BYTES] {
            let copy = &copies[at..];
            let start = place_of_source(&buffer, copy);
            assert!(start < PAGE_BYTES, "{at}");
            let source = buffer[start..].as_ptr().addr();
            let above = source.wrapping_sub(copy.as_ptr().addr());
            assert_eq!(above % PAGE_BYTES, SOURCE_ABOVE_BYTES, "{at}");
        }
    }

    #[test]
    fn fuzz_pointers_are_refused_or_round_trip() {
        let pointer = |offset, stored_bytes| {
            let mut row = Vec::new();
            Pointer {
                file: ValueFileId(17),
                offset,
                stored_bytes,
                value_bytes: u32::MAX,
            }
            .encode(&mut row);
            row.extend(b"expiry");
            row
        };
        let samples = [pointer(0, 64), pointer(u64::MAX, u32::MAX)];
        fuzz_decoder("pointers to values", &samples, 8, |row| {
            if let Some((read, rest)) = Pointer::decode(row) {
                let mut again = Vec::new();
                read.encode(&mut again);
                again.extend(rest);
                assert_eq!(Pointer::decode(&again), Some((read, rest)));
            }
        });
    }
}
