//! Tests of whole tables over files in memory.

mod damage;
mod dictionary;
mod frames;
mod model;
mod round_trip;

use crate::Result;
use crate::base::checksum::key_hash;
use crate::base::{KeyspaceId, SeqNo, TableId, ValueKind};
use crate::cache::Cache;
use crate::range_deletes::RangeDeletes;
use crate::table::{Codec, FilterOptions, Table, TableBuilder, TableOptions};
use crate::vfs::VfsFile;
use parking_lot::Mutex;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;

pub(super) const UID: u64 = 0x1234_5678_9ABC_DEF0;

/// File in memory with bytes that a test can change.
#[derive(Debug)]
pub(super) struct MemFile(pub(super) Mutex<Vec<u8>>);

impl MemFile {
    pub(super) fn new(bytes: Vec<u8>) -> Arc<MemFile> {
        Arc::new(MemFile(Mutex::new(bytes)))
    }
}

impl VfsFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        let bytes = self.0.lock();
        let start = (offset as usize).min(bytes.len());
        let source = bytes[start..].get(..buf.len());
        buf.copy_from_slice(source.ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> std::io::Result<()> {
        let mut bytes = self.0.lock();
        let end = offset as usize + buf.len();
        let length = bytes.len().max(end);
        bytes.resize(length, 0);
        bytes[offset as usize..end].copy_from_slice(buf);
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn truncate(&self, len: u64) -> std::io::Result<()> {
        self.0.lock().resize(len as usize, 0);
        Ok(())
    }

    fn allocate(&self, len: u64) -> std::io::Result<()> {
        self.truncate(len)
    }

    fn path(&self) -> &Path {
        Path::new("000017.sst")
    }

    fn start_writeback(&self, _: u64, _: u64) {}

    fn drop_cached(&self, _: u64, _: u64) {}
}

/// Entry of a test table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) seqno: SeqNo,
    pub(super) kind: ValueKind,
    pub(super) value: Vec<u8>,
}

pub(super) fn entry(key: &[u8], seqno: SeqNo, kind: ValueKind, value: &[u8]) -> Entry {
    Entry {
        key: key.to_vec(),
        seqno,
        kind,
        value: value.to_vec(),
    }
}

pub(super) fn options(block_bytes: usize, codec: Codec) -> TableOptions {
    TableOptions {
        block_bytes,
        codec,
        filter: FilterOptions {
            whole_key_bits: 10,
            prefix: None,
        },
        ..TableOptions::default()
    }
}

/// Returns the bytes of a table of `entries`.
pub(super) fn build(entries: &[Entry], options: &TableOptions) -> Vec<u8> {
    build_with(entries, RangeDeletes::default(), options)
}

/// Returns the bytes of a table of `entries` and range deletes.
pub(super) fn build_with(
    entries: &[Entry],
    ranges: RangeDeletes,
    options: &TableOptions,
) -> Vec<u8> {
    let file = MemFile::new(Vec::new());
    let shared: Arc<dyn VfsFile> = file.clone();
    let mut builder = TableBuilder::new(shared, UID, KeyspaceId(1), options);
    for e in entries {
        builder
            .add(&e.key, e.seqno, e.kind, &e.value)
            .expect("entries are in order");
    }
    builder.set_range_deletes(ranges);
    builder.finish().expect("memory files do not fail");
    file.0.lock().clone()
}

pub(super) fn open_with(bytes: Vec<u8>, cache: &Arc<Cache>) -> Result<Arc<Table>> {
    Table::open(MemFile::new(bytes), TableId(17), UID, Arc::clone(cache))
}

pub(super) fn open(bytes: Vec<u8>) -> Result<Arc<Table>> {
    open_with(bytes, &Cache::of_bytes(1 << 30))
}

/// Returns all entries that a scan shows.
pub(super) fn scan(
    table: &Arc<Table>,
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<Vec<Entry>> {
    let mut scan = table.scan_all(from, to);
    let mut entries = Vec::new();
    while scan.next()? {
        entries.push(entry(scan.key(), scan.seqno(), scan.kind(), scan.value()));
    }
    Ok(entries)
}

/// Returns the result of `get` as an entry.
pub(super) fn get(table: &Table, key: &[u8], read_point: SeqNo) -> Result<Option<Entry>> {
    let found = table.get(key, key_hash(key), read_point)?;
    Ok(found.map(|f| entry(key, f.seqno, f.kind, &f.value)))
}

/// Small random number generator, determined by its seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}
