//! Open table: footer, fences and filters in memory, blocks read on demand and kept in the cache.

use crate::base::{SeqNo, TableId};
use crate::cache::Cache;
use crate::memory::Use;
use crate::range_deletes::RangeDeletes;
use crate::table::block::{BlockFrame, decode_block};
use crate::table::builder::TableSummary;
use crate::table::codec::{Scratch, Unpacker};
use crate::table::cursor::TableCursor;
use crate::table::dictionary::Dictionary;
use crate::table::fences::Fences;
use crate::table::filters::{Filters, TableFilter};
use crate::table::footer::{FOOTER_BYTES, Footer, Handle};
use crate::table::frames::Frames;
use crate::table::held_block::HeldBlock;
use crate::table::malformed::Malformed;
use crate::table::owned_file::{Leave, OwnedFile};
use crate::table::pinned::PinnedValue;
use crate::table::properties::{Properties, ValuesPart};
use crate::table::ranges;
use crate::table::read_ahead::ReadAhead;
use crate::table::scan::TableScan;
use crate::table::section::{Layout, Origin, Section, open_section};
use crate::table::training::Trained;
use crate::table::values::{ValueFile, ValueFiles, locate, resolve};
use crate::vfs::VfsFile;
use crate::{Error, Result};
use alluvium_mem::frames::Space;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An immutable table file, open for reading. Shared by `Arc`; every method may be called from any
/// thread.
pub struct Table {
    pub(super) file: OwnedFile,
    id: TableId,
    pub(super) footer: Footer,
    pub(super) properties: Properties,
    pub(super) fences: Fences,
    pub(super) filters: Filters,
    pub(super) ranges: Option<Arc<RangeDeletes>>,
    dictionary: Option<Arc<Dictionary>>,
    values: ValueFiles,
    /// `None` only during the drop.
    frames: Option<Frames>,
    /// See [`Table::raise_seqnos`]. Relaxed: set before the table is published, and publication
    /// orders it.
    seqno_floor: AtomicU64,
    /// Bytes charged to the memory budget for the resident parts.
    charged_bytes: usize,
}

/// Memory of an open table in addition to its parts: the structure, its file, its properties, and
/// its record in the manifest's state.
const TABLE_OVERHEAD_BYTES: usize = 1600;

impl Table {
    /// Opens a table like [`Table::open_with`]; `Corruption` if it points into a value file.
    pub fn open(
        file: Arc<dyn VfsFile>,
        id: TableId,
        expected_uid: u64,
        cache: Arc<Cache>,
    ) -> Result<Arc<Table>> {
        let path = file.path().to_path_buf();
        Table::open_with(file, id, expected_uid, cache, |part| {
            let found = part.file.to_string();
            Err(Malformed::new("value files", "none", found).at(&path, 0))
        })
    }

    /// Opens a table and checks footer, fences, properties and filters; blocks are checked when
    /// they are read. `open_values` opens a value file that the table points into.
    ///
    /// Errors: `Corruption` if a check fails or the file has another uid than in the manifest;
    /// `NewerFormat`; `Io`.
    pub fn open_with(
        file: Arc<dyn VfsFile>,
        id: TableId,
        expected_uid: u64,
        cache: Arc<Cache>,
        open_values: impl FnMut(&ValuesPart) -> Result<Arc<ValueFile>>,
    ) -> Result<Arc<Table>> {
        let footer = Footer::read(&*file, expected_uid)?;
        let filter = |handle: Handle| match handle.length {
            0 => Ok(None),
            _ => read_section(&*file, footer.uid, handle, TableFilter::decode).map(Some),
        };
        let filters = Filters {
            whole: filter(footer.whole_filter)?,
            prefix: filter(footer.prefix_filter)?,
        };
        let fences = read_section(&*file, footer.uid, footer.fences, |section| {
            expect_layout(section, Layout::Fences)?;
            Fences::decode(section, footer.file_bytes)
        })?;
        let properties = read_section(&*file, footer.uid, footer.properties, |section| {
            expect_layout(section, Layout::Properties)?;
            Properties::decode(section.raw)
        })?;
        let ranges = read_ranges(&*file, &footer)?;
        let dictionary = match footer.dictionary.length {
            0 => None,
            _ => Some(read_dictionary(&*file, footer.uid, footer.dictionary)?),
        };
        if footer.points == properties.values.is_empty() {
            let found = format!("{} value files", properties.values.len());
            let malformed = Malformed::new("feature bits", footer.points, found);
            return Err(malformed.at(file.path(), footer.properties.offset));
        }
        let values = properties.values.iter().map(open_values);
        let values: Result<Vec<_>> = values.collect();
        let values = values?.into_iter().map(|file| (file.id(), file)).collect();
        // Every byte of the file belongs to one section, and so to one checksum.
        let sections = footer.sections_bytes.saturating_add(FOOTER_BYTES as u64);
        let covered = fences.blocks_end().saturating_add(sections);
        if covered != footer.file_bytes {
            let malformed = Malformed::new("sum of all sections", footer.file_bytes, covered);
            return Err(malformed.at(file.path(), footer.fences.offset));
        }
        file.expect_random_reads();
        let frames = Frames::new(cache, fences.len());
        let mut table = Table {
            file: OwnedFile::new(file),
            id,
            footer,
            properties,
            fences,
            filters,
            ranges: ranges.map(Arc::new),
            dictionary,
            values,
            frames: Some(frames),
            seqno_floor: AtomicU64::new(0),
            charged_bytes: 0,
        };
        table.charged_bytes = table.resident_bytes();
        let budget = table.frames().cache().budget();
        budget.add(Use::Tables, table.charged_bytes);
        Ok(Arc::new(table))
    }

    /// Returns true if the table may contain a key with this hash, or has no whole-key filter.
    pub fn may_contain(&self, key_hash: u64) -> bool {
        self.filters.may_contain_key(key_hash)
    }

    /// Returns true if the table may contain a key with this prefix, or has no filter over prefixes
    /// of exactly `prefix_bytes` bytes. `prefix_hash` is the `key_hash` of the prefix.
    pub fn may_contain_prefix(&self, prefix_bytes: usize, prefix_hash: u64) -> bool {
        self.filters.may_contain_prefix(prefix_bytes, prefix_hash)
    }

    /// Returns the seqno of the newest range delete over `key` that is visible at `read_point`; 0
    /// if there is none. Callers call this before they check the filters, because a range delete
    /// also covers keys that the table does not contain.
    pub fn deleted_at(&self, key: &[u8], read_point: SeqNo) -> SeqNo {
        let ranges = self.ranges.as_ref();
        ranges.map_or(0, |ranges| ranges.deleted_at(key, read_point))
    }

    /// Returns the range deletes, if there are any.
    pub fn range_deletes(&self) -> Option<&Arc<RangeDeletes>> {
        self.ranges.as_ref()
    }

    /// Returns the value for the stored bytes of a row of a pointer kind.
    ///
    /// Errors: `Corruption`, `Io`. Cost: one read of the value file.
    pub fn value(&self, stored: &[u8]) -> Result<PinnedValue> {
        resolve(&self.values, stored, self.file.path())
    }

    /// Starts a device read of the value that [`Table::value`] would return, without waiting for
    /// it. Ignores a malformed row; [`Table::value`] reports it.
    pub(crate) fn start_reading_value(&self, stored: &[u8]) {
        if let Ok((file, pointer, _)) = locate(&self.values, stored, self.file.path()) {
            file.start_reading(&pointer);
        }
    }

    /// Returns the value files that rows of this table point into.
    pub(crate) fn value_files(&self) -> &ValueFiles {
        &self.values
    }

    /// Returns an unpositioned cursor over the newest version of each key at or below `read_point`,
    /// in both directions.
    pub fn cursor(self: &Arc<Self>, read_point: SeqNo) -> TableCursor {
        TableCursor::new(Arc::clone(self), read_point)
    }

    /// Returns a forward scan of all versions of all keys from `from` (inclusive) to `to`
    /// (exclusive). It reads ahead in large pieces and does not use the cache.
    pub fn scan_all(self: &Arc<Self>, from: Option<&[u8]>, to: Option<&[u8]>) -> TableScan {
        TableScan::new(Arc::clone(self), from, to)
    }

    /// Returns the id that the table was opened with.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Returns the random number that distinguishes this file from any other.
    pub fn uid(&self) -> u64 {
        self.footer.uid
    }

    /// Returns the stored properties: counts, key range, seqno range and the owner's own
    /// properties.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the same summary as the builder's `finish`.
    pub fn summary(&self) -> TableSummary {
        TableSummary::new(self.footer.uid, self.footer.file_bytes, &self.properties)
    }

    /// Returns the smallest key, or the start of a range delete before it.
    pub fn first_key(&self) -> &[u8] {
        &self.properties.first_key
    }

    /// Returns the largest key, or the end of a range delete after it.
    pub fn last_key(&self) -> &[u8] {
        &self.properties.last_key
    }

    /// Returns the number of entries; all versions and tombstones count.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// Returns the number of entries that are tombstones.
    pub fn tombstones(&self) -> u64 {
        self.properties.tombstones
    }

    /// Returns the number of entries that are inserts: their writers promised that the keys were
    /// new.
    pub fn inserts(&self) -> u64 {
        self.properties.inserts
    }

    /// Returns the bytes of keys and values before encoding.
    pub fn raw_bytes(&self) -> u64 {
        self.properties.raw_key_bytes + self.properties.raw_value_bytes
    }

    /// Returns the oldest seqno of an entry or range delete.
    pub fn min_seqno(&self) -> SeqNo {
        self.properties.min_seqno.max(self.seqno_floor())
    }

    /// Returns the newest seqno of an entry or range delete.
    pub fn max_seqno(&self) -> SeqNo {
        self.properties.max_seqno.max(self.seqno_floor())
    }

    /// Sets the place of an ingested table in the commit order: entries with a smaller seqno count
    /// as having this one, for every reader and every compaction. The ingest that installs the
    /// table, and recovery, call this before they publish it.
    pub fn raise_seqnos(&self, floor: SeqNo) {
        self.seqno_floor.store(floor, Ordering::Relaxed);
    }

    /// Returns the lower bound of all seqnos in this table; 0 if the table was not ingested.
    pub(super) fn seqno_floor(&self) -> SeqNo {
        self.seqno_floor.load(Ordering::Relaxed)
    }

    /// Returns the length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.footer.file_bytes
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.fences.len()
    }

    /// Returns the dictionary of the blocks, if they have one, for other tables.
    pub fn dictionary_to_offer(&self) -> Option<Arc<Trained>> {
        let bytes = self.dictionary.as_ref()?.bytes();
        Some(Arc::new(Trained::of_table(bytes)))
    }

    /// Returns the memory in bytes of fences, filters, range deletes, the dictionary, cache slots
    /// and table state, held as long as the table is open.
    pub fn resident_bytes(&self) -> usize {
        let parts = self.fences.resident_bytes()
            + self.filters.resident_bytes()
            + self.frames().resident_bytes();
        // The first and last key are in memory three times: in the properties, in the manifest's
        // record, and in that record's copy.
        let keys = 3 * (self.properties.first_key.len() + self.properties.last_key.len());
        let ranges = self.ranges.as_ref().map_or(0, |r| r.memory_bytes());
        let dictionary = self.dictionary.as_ref().map_or(0, |d| d.resident_bytes());
        TABLE_OVERHEAD_BYTES + parts + keys + ranges + dictionary
    }

    /// Marks the table obsolete, because no version names it any more: `leave` gets the file and
    /// the cached blocks when the last user drops the table.
    pub fn mark_obsolete(&self, leave: Leave) {
        self.file.mark_obsolete(leave);
    }

    fn frames(&self) -> &Frames {
        self.frames.as_ref().expect("taken by the drop alone")
    }

    /// Returns the block from the cache or the file. A read of the file is recorded in `ahead`,
    /// which may start reading the blocks that follow.
    pub(super) fn block(&self, index: usize, ahead: &mut ReadAhead) -> Result<BlockFrame> {
        match self.frames().hold(index) {
            Some(held) => Ok(held.keep()),
            None => {
                let blocks = 0..self.fences.blocks_end();
                ahead.note(&*self.file, self.fences.block_range(index), blocks);
                self.miss(index)
            }
        }
    }

    /// Starts a device read of the block without waiting for it.
    pub(super) fn start_reading_block(&self, index: usize) {
        let range = self.fences.block_range(index);
        self.file
            .start_reading(range.start, range.end - range.start);
    }

    /// Returns the block for a lookup. If it is cached, its reference count does not change.
    pub(super) fn hold_block(&self, index: usize) -> Result<HeldBlock<'_>> {
        match self.frames().hold(index) {
            Some(held) => Ok(HeldBlock::Cached(held)),
            None => Ok(HeldBlock::Read(self.miss(index)?)),
        }
    }

    /// As [`Table::hold_block`], if the block is cached; otherwise counts no miss.
    pub(super) fn hold_cached_block(&self, index: usize) -> Option<HeldBlock<'_>> {
        if !self.frames().has(index) {
            return None;
        }
        self.frames().hold(index).map(HeldBlock::Cached)
    }

    /// Reads and decodes a block without holding a lock, then installs it in the cache. Returns the
    /// installed block, which may be that of another thread.
    #[cold]
    fn miss(&self, index: usize) -> Result<BlockFrame> {
        let read = self.read_block(index, |bytes| self.frames().space(index, bytes))?;
        Ok(self.frames().install(index, read))
    }

    /// Reads a block from the file into memory that `space` returns, and bypasses the cache.
    pub(super) fn read_block(
        &self,
        index: usize,
        space: impl FnOnce(usize) -> Space,
    ) -> Result<BlockFrame> {
        let range = self.fences.block_range(index);
        let length = range.end - range.start;
        read_block(&*self.file, self.origin(range.start), length, space)
    }

    /// Returns what decoding needs to know of a block at `offset`.
    pub(super) fn origin(&self, offset: u64) -> Origin<'_> {
        Origin {
            uid: self.footer.uid,
            offset,
            dictionary: self.dictionary.as_deref(),
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if let Some(frames) = self.frames.take() {
            let budget = frames.cache().budget();
            budget.subtract(Use::Tables, self.charged_bytes);
            self.file.hand_over(Box::new(frames));
        }
    }
}

fn read_ranges(file: &dyn VfsFile, footer: &Footer) -> Result<Option<RangeDeletes>> {
    let handle = footer.range_deletes;
    if handle.length == 0 {
        return Ok(None);
    }
    let decode = |section: &Section<'_>| {
        expect_layout(section, Layout::RangeDeletes)?;
        ranges::decode(section.raw)
    };
    read_section(file, footer.uid, handle, decode).map(Some)
}

/// Reads the section at `handle`, checks it and decodes it.
pub(super) fn read_section<T>(
    file: &dyn VfsFile,
    uid: u64,
    handle: Handle,
    decode: impl FnOnce(&Section<'_>) -> Result<T, Malformed>,
) -> Result<T> {
    read_stored(file, handle, |stored, unpacker| {
        let origin = Origin {
            uid,
            offset: handle.offset,
            dictionary: None,
        };
        let section = open_section(stored, unpacker, origin)?;
        decode(&section)
    })
}

/// Reads the dictionary at `handle`.
pub(super) fn read_dictionary(
    file: &dyn VfsFile,
    uid: u64,
    handle: Handle,
) -> Result<Arc<Dictionary>> {
    read_section(file, uid, handle, |section| {
        expect_layout(section, Layout::Dictionary)?;
        Dictionary::decode(section.raw)
    })
}

/// Reads the block of `length` bytes at `origin`, checks it and decodes it into memory that `space`
/// returns.
pub(super) fn read_block(
    file: &dyn VfsFile,
    origin: Origin<'_>,
    length: u64,
    space: impl FnOnce(usize) -> Space,
) -> Result<BlockFrame> {
    let offset = origin.offset;
    read_stored(file, Handle { offset, length }, |stored, unpacker| {
        decode_block(stored, unpacker, origin, space)
    })
}

/// Reads the bytes at `handle` into a scratch and opens them.
fn read_stored<T>(
    file: &dyn VfsFile,
    handle: Handle,
    open: impl FnOnce(&[u8], &mut Unpacker) -> Result<T, Malformed>,
) -> Result<T> {
    let path = file.path();
    Scratch::with(|scratch| {
        let Scratch { stored, unpacker } = scratch;
        // The handle lies inside the file, so this never allocates more than the file's length.
        stored.resize(handle.length as usize, 0);
        file.read_at(stored, handle.offset)
            .map_err(|e| Error::io("read a block of", path, e))?;
        open(stored, unpacker).map_err(|malformed| malformed.at(path, handle.offset))
    })
}

pub(super) fn expect_layout(section: &Section<'_>, layout: Layout) -> Result<(), Malformed> {
    if section.layout == layout {
        Ok(())
    } else {
        let found = section.layout as u8;
        Err(Malformed::new("section layout", layout as u8, found))
    }
}
