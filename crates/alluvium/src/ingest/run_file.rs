//! Sorted runs of a bulk load in temporary files.
//!
//! ```text
//! 000017.run:  | frame | frame | ...
//! frame:       | checksum 8 | stored length 4 | raw length 4 | stored bytes |
//! raw bytes:   rows: keyspace slot (varint), key and value (each varint length, bytes)
//! ```
//!
//! The checksum covers all bytes after it and is seeded by file and offset. Stored bytes shorter
//! than the raw ones are an LZ4 block. Only the load that wrote a run can use it, so the run is not
//! synced, and it is removed when dropped. The next open removes runs left by a crash.

use std::path::PathBuf;
use std::sync::Arc;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use crate::base::checksum::{checksum, place_seed};
use crate::base::coding::{Decoder, put_bytes, put_varint};
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::table::LZ4_RATIO_MAX;
use crate::vfs::{Lifetime, VfsFile};

/// Raw bytes at which a frame is closed. A run takes about twice as much memory while it is merged.
pub(super) const FRAME_BYTES: usize = 64 << 10;
/// Bytes of frames collected before a write.
const WRITE_BYTES: usize = 1 << 20;
/// Memory in bytes that writing a run takes in addition to its rows.
pub(super) const RUN_WRITER_BYTES: usize = 2 * WRITE_BYTES;
const HEADER_BYTES: usize = 16;

/// File with sorted rows. Dropping it removes the file.
pub(super) struct RunFile {
    shared: Arc<Shared>,
    path: PathBuf,
    file: Arc<dyn VfsFile>,
    uid: u64,
    bytes: u64,
}

impl Drop for RunFile {
    fn drop(&mut self) {
        // Another owner may have the directory after a close; the next open removes the file as
        // well.
        if self.shared.core.access.owns_directory() {
            let _ = self.shared.core.files.vfs.remove(&self.path);
        }
    }
}

/// Writer of a run; rows come in order.
pub(super) struct RunWriter {
    run: RunFile,
    raw: Vec<u8>,
    /// Closed frames not written yet; they start at `run.bytes`.
    frames: Vec<u8>,
    table: CompressTable,
}

impl RunWriter {
    pub fn create(shared: &Arc<Shared>) -> Result<RunWriter> {
        shared.core.access.check_open()?;
        // Run files take numbers of tables, so that no name is used twice.
        let name = crate::recovery::run_file_name(shared.core.files.next_table_id().0);
        let path = shared.core.files.path(name);
        let file = shared.core.files.vfs.create(&path);
        let file = file.map_err(|e| Error::io("create", &path, e))?;
        file.expect_lifetime(Lifetime::Short);
        let run = RunFile {
            shared: Arc::clone(shared),
            path,
            file,
            uid: crate::version::random_uid(),
            bytes: 0,
        };
        Ok(RunWriter {
            run,
            raw: Vec::with_capacity(FRAME_BYTES),
            frames: Vec::new(),
            table: CompressTable::large(),
        })
    }

    pub fn add(&mut self, slot: u32, key: &[u8], value: &[u8]) -> Result<()> {
        put_varint(&mut self.raw, u64::from(slot));
        put_bytes(&mut self.raw, key);
        put_bytes(&mut self.raw, value);
        if self.raw.len() < FRAME_BYTES {
            return Ok(());
        }
        self.close_frame();
        if self.frames.len() < WRITE_BYTES {
            Ok(())
        } else {
            self.write()
        }
    }

    pub fn finish(mut self) -> Result<RunFile> {
        if !self.raw.is_empty() {
            self.close_frame();
        }
        self.write()?;
        Ok(self.run)
    }

    fn close_frame(&mut self) {
        let start = self.frames.len();
        let body = start + HEADER_BYTES;
        self.frames
            .resize(body + get_maximum_output_size(self.raw.len()), 0);
        let packed = compress_into_with_table(&self.raw, &mut self.frames[body..], &mut self.table);
        match packed {
            Ok(bytes) if bytes < self.raw.len() => self.frames.truncate(body + bytes),
            _ => {
                self.frames.truncate(body);
                self.frames.extend_from_slice(&self.raw);
            }
        }
        // A row has at most 1 GiB and 64 KiB, so the lengths fit.
        let stored = (self.frames.len() - body) as u32;
        let raw = self.raw.len() as u32;
        self.frames[start + 8..start + 12].copy_from_slice(&stored.to_le_bytes());
        self.frames[start + 12..body].copy_from_slice(&raw.to_le_bytes());
        let seed = place_seed(self.run.uid, self.run.bytes + start as u64);
        let sum = checksum(&self.frames[start + 8..], seed);
        self.frames[start..start + 8].copy_from_slice(&sum.to_le_bytes());
        self.raw.clear();
    }

    fn write(&mut self) -> Result<()> {
        let (run, frames) = (&mut self.run, &mut self.frames);
        let written = run.file.write_at(frames, run.bytes);
        written.map_err(|e| Error::io("write", &run.path, e))?;
        run.bytes += frames.len() as u64;
        frames.clear();
        Ok(())
    }
}

/// Reader of a run from its start; it owns the run until it has been read.
pub(super) struct RunReader {
    run: RunFile,
    /// Offset of the next frame.
    offset: u64,
    stored: Vec<u8>,
    raw: Vec<u8>,
    /// Start of the next row in `raw`.
    at: usize,
    slot: u32,
    key: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
}

impl RunReader {
    pub fn new(run: RunFile) -> RunReader {
        RunReader {
            run,
            offset: 0,
            stored: Vec::new(),
            raw: Vec::new(),
            at: 0,
            slot: 0,
            key: 0..0,
            value: 0..0,
        }
    }

    /// Goes to the next row, at first to the first one; returns false at the end.
    pub fn next(&mut self) -> Result<bool> {
        if self.at == self.raw.len() {
            if self.offset == self.run.bytes {
                return Ok(false);
            }
            self.read_frame()?;
        }
        self.read_row()
            .ok_or_else(|| self.damage("rows", "another one"))?;
        Ok(true)
    }

    /// Returns the sort key of the current row.
    pub fn order(&self) -> (u32, &[u8]) {
        (self.slot, &self.raw[self.key.clone()])
    }

    pub fn value(&self) -> &[u8] {
        &self.raw[self.value.clone()]
    }

    fn read_row(&mut self) -> Option<()> {
        let mut d = Decoder::new(&self.raw[self.at..]);
        self.slot = d.varint32()?;
        let end = |d: &Decoder<'_>| self.raw.len() - d.rest().len();
        let key = d.bytes()?;
        self.key = end(&d) - key.len()..end(&d);
        let value = d.bytes()?;
        self.value = end(&d) - value.len()..end(&d);
        self.at = end(&d);
        Some(())
    }

    fn read_frame(&mut self) -> Result<()> {
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header, self.offset)?;
        let mut d = Decoder::new(&header);
        let numbers = (|| Some((d.u64()?, d.u32()?, d.u32()?)))();
        let (sum, stored, raw) = numbers.ok_or_else(|| self.damage("frame header", "less"))?;
        // Check the lengths before they size an allocation.
        let end = self.offset + HEADER_BYTES as u64 + u64::from(stored);
        if end > self.run.bytes
            || u64::from(raw) > u64::from(stored).saturating_mul(LZ4_RATIO_MAX as u64)
        {
            return Err(self.damage("frame within the file", "lengths that do not fit"));
        }
        let mut bytes = std::mem::take(&mut self.stored);
        bytes.clear();
        bytes.extend_from_slice(&header[8..]);
        bytes.resize(8 + stored as usize, 0);
        self.read(&mut bytes[8..], self.offset + HEADER_BYTES as u64)?;
        if checksum(&bytes, place_seed(self.run.uid, self.offset)) != sum {
            return Err(self.damage("frame with its checksum", "other bytes"));
        }
        self.raw.resize(raw as usize, 0);
        if stored == raw {
            self.raw.copy_from_slice(&bytes[8..]);
        } else {
            let unpacked = lz4_flex::block::decompress_into(&bytes[8..], &mut self.raw);
            if !unpacked.is_ok_and(|n| n == raw as usize) {
                return Err(self.damage("compressed frame", "other bytes"));
            }
        }
        self.stored = bytes;
        (self.at, self.offset) = (0, end);
        Ok(())
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let read = self.run.file.read_at(buf, offset);
        read.map_err(|e| Error::io("read", &self.run.path, e))
    }

    fn damage(&self, expected: &str, found: &str) -> Error {
        let what = "run of a bulk load";
        Error::corruption(&self.run.path, self.offset, what, expected, found)
    }
}
