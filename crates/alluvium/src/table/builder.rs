//! Table writer: collects ordered rows in the open block and writes full blocks in chunks of about
//! 1 MiB.
//!
//! An unfinished table is never read: the manifest names the file only after `finish` has synced
//! it.

use crate::base::{
    KEY_BYTES_MAX, KeyspaceId, SEQNO_MAX, SeqNo, VALUE_BYTES_MAX, ValueFileId, ValueKind,
};
use crate::range_deletes::RangeDeletes;
use crate::table::block::{ONE_ROW_BYTES, OpenBlock, ValueOrder, encode_one_row};
use crate::table::codec::{Codec, Packer};
use crate::table::fences::FenceBuilder;
use crate::table::filters::{FilterOptions, FilterWriter};
use crate::table::footer::{FOOTER_BYTES, Footer, Handle};
use crate::table::properties::{KeyspacePart, Properties};
use crate::table::ranges;
use crate::table::section::{Layout, Place, put_section};
use crate::table::training::{Sample, Trained};
use crate::vfs::{Lifetime, VfsFile};
use crate::{Error, Result};
use alluvium_mem::pages::Buffer;
use std::cmp::Ordering;
use std::mem;
use std::sync::Arc;

/// Options for writing a table. Readers need none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    /// Bytes of rows for each block before compression, 512 bytes to 256 KiB.
    pub block_bytes: usize,
    /// Codec for blocks.
    pub codec: Codec,
    /// Filters that the table gets.
    pub filter: FilterOptions,
    /// Expected lifetime of the table.
    pub lifetime: Lifetime,
    /// The file need not survive a crash: it is not synced.
    pub temporary: bool,
    /// With [`Codec::ZstdDictionary`]: raw bytes of the first blocks, from which a dictionary is
    /// trained. A table with fewer has none.
    pub sample_bytes: usize,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            block_bytes: 4 << 10,
            codec: Codec::Lz4,
            filter: FilterOptions {
                whole_key_bits: 10,
                prefix: None,
            },
            lifetime: Lifetime::Medium,
            temporary: false,
            sample_bytes: 512 << 10,
        }
    }
}

/// Summary of a finished table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSummary {
    /// The random number in footer and manifest that distinguishes this file from any other.
    pub uid: u64,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Number of entries: every version of every key.
    pub entries: u64,
    /// Number of entries that are deletes.
    pub tombstones: u64,
    /// Number of entries that are inserts; a delete may cancel an insert.
    pub inserts: u64,
    /// Sum of all key and value lengths in bytes.
    pub raw_bytes: u64,
    /// The smallest key.
    pub first_key: Vec<u8>,
    /// The largest key.
    pub last_key: Vec<u8>,
    /// The smallest seqno of an entry.
    pub min_seqno: SeqNo,
    /// The largest seqno of an entry.
    pub max_seqno: SeqNo,
}

impl TableSummary {
    pub(super) fn new(uid: u64, file_bytes: u64, properties: &Properties) -> Self {
        TableSummary {
            uid,
            file_bytes,
            entries: properties.entries,
            tombstones: properties.tombstones,
            inserts: properties.inserts,
            raw_bytes: properties.raw_key_bytes + properties.raw_value_bytes,
            first_key: properties.first_key.clone(),
            last_key: properties.last_key.clone(),
            min_seqno: properties.min_seqno,
            max_seqno: properties.max_seqno,
        }
    }
}

/// Bytes collected before a write.
const WRITE_BYTES: usize = 1 << 20;

/// Largest open block, in multiples of its target size, that keeps the versions of one key
/// together.
const STRETCH_MAX: usize = 4;

/// Blocks between two trials of both value orders; the smaller order is used until the next trial.
const VALUE_ORDER_TRIAL_BLOCKS: usize = 16;

/// Writer of one table file. After an error the file is worthless and the caller drops the builder.
pub struct TableBuilder {
    file: Arc<dyn VfsFile>,
    uid: u64,
    keyspace: KeyspaceId,
    temporary: bool,
    block_bytes: usize,
    codec: Codec,
    packer: Packer,
    open: OpenBlock,
    /// The largest key so far and its last seqno.
    last: Option<(Vec<u8>, SeqNo)>,
    /// True if the last block has no fence yet: it waits for the next key.
    unfenced: bool,
    /// First blocks, while they wait for the choice of a dictionary. No block is written yet.
    sample: Option<Sample>,
    sample_bytes: usize,
    /// Offered before the choice, used or trained after it.
    dictionary: Option<Arc<Trained>>,
    value_order: ValueOrder,
    fences: FenceBuilder,
    filters: FilterWriter,
    properties: Properties,
    ranges: RangeDeletes,
    /// Raw bytes of the block being encoded, kept to reuse the memory.
    raw: Buffer<u8>,
    /// Bytes not written yet; they go to `chunk_offset`.
    chunk: Buffer<u8>,
    chunk_offset: u64,
}

impl TableBuilder {
    /// Starts an empty table at the start of `file`, for rows of `keyspace`. `uid` is random.
    pub fn new(
        file: Arc<dyn VfsFile>,
        uid: u64,
        keyspace: KeyspaceId,
        options: &TableOptions,
    ) -> TableBuilder {
        file.expect_lifetime(options.lifetime);
        TableBuilder {
            file,
            uid,
            keyspace,
            temporary: options.temporary,
            block_bytes: options.block_bytes.clamp(512, 256 << 10),
            codec: options.codec,
            packer: Packer::new(options.codec),
            open: OpenBlock::default(),
            last: None,
            unfenced: false,
            sample: (options.codec == Codec::ZstdDictionary).then(Sample::default),
            sample_bytes: options.sample_bytes,
            dictionary: None,
            value_order: ValueOrder::Rows,
            fences: FenceBuilder::default(),
            filters: FilterWriter::new(&options.filter),
            properties: Properties {
                min_seqno: SEQNO_MAX,
                ..Properties::default()
            },
            ranges: RangeDeletes::default(),
            raw: Buffer::default(),
            chunk: Buffer::default(),
            chunk_offset: 0,
        }
    }

    /// Appends an entry. Keys ascend, and the versions of a key come newest first.
    ///
    /// Errors: `Internal` for an entry out of order, beyond the limits of key, value or seqno, or a
    /// range delete, which is no entry: see [`TableBuilder::set_range_deletes`]; `Io` and `NoSpace`
    /// from the file.
    pub fn add(&mut self, key: &[u8], seqno: SeqNo, kind: ValueKind, value: &[u8]) -> Result<()> {
        self.check_entry(key, seqno, kind, value)?;
        let new_key = self.check_order(key, seqno)?;
        if new_key {
            self.filters.add(key);
        } else {
            self.properties.older_versions += 1;
        }
        let oversize = key.len() + value.len() > ONE_ROW_BYTES;
        let raw_bytes = self.open.raw_bytes();
        let full = raw_bytes >= self.block_bytes && new_key;
        if full || oversize || raw_bytes >= self.block_bytes * STRETCH_MAX {
            self.write_open_block()?;
        }
        self.fence(Some(key));
        if oversize {
            // A table of large rows gains too little to hold them back.
            self.release_sample()?;
            self.raw.clear();
            encode_one_row(key, seqno, kind, value, &mut self.raw);
            self.write_block(Layout::OneRow, 1)?;
        } else {
            self.open.push(key, seqno, kind, value);
        }
        self.count(key, seqno, kind, value);
        match &mut self.last {
            Some((last, last_seqno)) => {
                last.clear();
                last.extend_from_slice(key);
                *last_seqno = seqno;
            }
            none => *none = Some((key.to_vec(), seqno)),
        }
        Ok(())
    }

    /// Offers the dictionary of an earlier table of the keyspace. Called before the first entry.
    pub fn offer_dictionary(&mut self, offered: Option<Arc<Trained>>) {
        self.dictionary = offered.filter(|_| self.sample.is_some());
    }

    /// Returns what later tables of the keyspace may be offered. `None` before the choice of a
    /// dictionary, and in a table that is too small for one.
    pub fn dictionary(&self) -> Option<&Arc<Trained>> {
        match self.sample {
            Some(_) => None,
            None => self.dictionary.as_ref(),
        }
    }

    /// Stores a property that only the caller interprets; `Table::properties` returns it.
    pub fn set_user_property(&mut self, name: &[u8], value: &[u8]) {
        self.properties.user.push((name.to_vec(), value.to_vec()));
    }

    /// Counts the last added entry as expiring at `until_ms` (milliseconds since 1970).
    pub fn note_expiry(&mut self, until_ms: u64) {
        self.properties.note_expiry(until_ms);
    }

    /// Records that the last added entry points to `stored_bytes` of `file`.
    pub(crate) fn note_pointer(&mut self, file: ValueFileId, uid: u64, stored_bytes: u64) {
        self.properties.note_pointer(file, uid, stored_bytes);
    }

    /// Sets the range deletes of the table. They extend its key range and seqno range but are not
    /// entries.
    pub fn set_range_deletes(&mut self, ranges: RangeDeletes) {
        self.ranges = ranges;
    }

    /// Estimates the length of the file in bytes if it were finished now, without filters.
    pub fn stored_bytes(&self) -> u64 {
        let written = self.chunk_offset + self.chunk.len() as u64;
        let written_rows = self.properties.raw_key_bytes + self.properties.raw_value_bytes;
        let held = self.sample.as_ref().map_or(0, Sample::raw_bytes);
        let open = (self.open.raw_bytes() + held) as u64;
        let closed = written_rows.saturating_sub(open).max(1);
        // Assume that the open blocks compress like those before them.
        let open_stored = match written {
            0 => open,
            _ => (u128::from(open) * u128::from(written) / u128::from(closed)) as u64,
        };
        written + open_stored.min(open) + self.fences.raw_bytes() as u64 + FOOTER_BYTES as u64
    }

    /// Returns the memory in bytes: unused capacity and the most that `finish` will add are
    /// included.
    pub fn memory_bytes(&self) -> usize {
        self.packer.memory_bytes()
            + self.open.memory_bytes()
            + self.raw.capacity()
            + self.chunk.capacity()
            + self.sample.as_ref().map_or(0, Sample::memory_bytes)
            + 2 * self.fences.memory_bytes()
            + self.filters.memory_bytes()
            + self.filters.finish_bytes()
    }

    /// Returns the number of entries added.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// Writes the rest of the table and syncs the file, unless it is temporary. The caller syncs
    /// the directory.
    ///
    /// Errors: `Internal` for a table without entries; `Io` and `NoSpace` from the file.
    pub fn finish(mut self) -> Result<TableSummary> {
        if self.properties.entries == 0 {
            return Err(Error::Internal(
                "a table needs at least one entry".to_owned(),
            ));
        }
        self.write_open_block()?;
        self.release_sample()?;
        self.fence(None);
        self.properties.last_key = self.last.take().map_or_else(Vec::new, |(key, _)| key);
        self.properties.take_in(&self.ranges);
        self.properties.keyspaces = vec![KeyspacePart {
            keyspace: self.keyspace,
            first_block: 0,
            blocks: self.fences.len() as u32,
        }];
        let footer = self.write_sections()?;
        self.chunk.extend_from_slice(&footer.encode());
        self.write_chunk()?;
        if !self.temporary {
            let path = self.file.path();
            self.file.sync().map_err(|e| Error::io("sync", path, e))?;
        }
        Ok(TableSummary::new(
            self.uid,
            footer.file_bytes,
            &self.properties,
        ))
    }

    fn write_sections(&mut self) -> Result<Footer> {
        let filters = FilterWriter::new(&FilterOptions {
            whole_key_bits: 0,
            prefix: None,
        });
        let (whole, prefix) = mem::replace(&mut self.filters, filters).finish();
        let mut footer = Footer {
            uid: self.uid,
            points: !self.properties.values.is_empty(),
            ..Footer::default()
        };
        let dictionary = self.dictionary.take().filter(|d| !d.bytes().is_empty());
        let dictionary = dictionary.as_ref().map(|d| d.bytes());
        if dictionary.is_some() {
            // Only blocks are compressed with it.
            self.packer = Packer::new(self.codec);
        }
        footer.dictionary = self.write_dictionary(dictionary)?;
        footer.whole_filter = self.write_filter(whole)?;
        footer.prefix_filter = self.write_filter(prefix)?;
        if !self.ranges.is_empty() {
            self.raw.clear();
            ranges::encode(&self.ranges, &mut self.raw);
            let count = u32::try_from(self.ranges.len()).unwrap_or(u32::MAX);
            footer.range_deletes = self.write_section(Layout::RangeDeletes, count)?;
        }
        self.raw.clear();
        self.fences.encode(&mut self.raw);
        footer.fences = self.write_section(Layout::Fences, self.fences.len() as u32)?;
        // Apart from the first one, so that one bad sector does not hit both.
        footer.dictionary_copy = self.write_dictionary(dictionary)?;
        self.raw.clear();
        self.properties.encode(&mut self.raw);
        footer.properties = self.write_section(Layout::Properties, 1)?;
        footer.file_bytes = self.offset() + FOOTER_BYTES as u64;
        Ok(footer)
    }

    fn write_dictionary(&mut self, dictionary: Option<&[u8]>) -> Result<Handle> {
        let Some(dictionary) = dictionary else {
            return Ok(Handle::default());
        };
        self.raw.clear();
        self.raw.extend_from_slice(dictionary);
        self.write_section(Layout::Dictionary, 1)
    }

    /// Writes a filter uncompressed. Half of its bits are set, so no codec shrinks it, and an
    /// attempt would take as much memory again.
    fn write_filter(&mut self, raw: Option<Vec<u8>>) -> Result<Handle> {
        let Some(raw) = raw else {
            return Ok(Handle::default());
        };
        self.raw = raw.into();
        let packer = mem::replace(&mut self.packer, Packer::new(Codec::None));
        let written = self.write_section(Layout::Filter, 1);
        self.packer = packer;
        self.raw = Buffer::default();
        written
    }

    fn check_entry(&self, key: &[u8], seqno: SeqNo, kind: ValueKind, value: &[u8]) -> Result<()> {
        let refused = match () {
            () if key.len() > KEY_BYTES_MAX => "a key is longer than 65,535 bytes",
            () if value.len() > VALUE_BYTES_MAX => "a value is longer than 1 GiB",
            () if seqno > SEQNO_MAX => "a seqno is above 2^56 - 1",
            () if kind == ValueKind::RangeDelete => "a range delete is no entry of a table",
            () => return Ok(()),
        };
        Err(Error::Internal(refused.to_owned()))
    }

    /// Returns true if the key differs from the last one.
    fn check_order(&self, key: &[u8], seqno: SeqNo) -> Result<bool> {
        let Some((last, last_seqno)) = &self.last else {
            return Ok(true);
        };
        match key.cmp(last) {
            Ordering::Greater => Ok(true),
            Ordering::Equal if seqno < *last_seqno => Ok(false),
            Ordering::Equal | Ordering::Less => Err(Error::Internal(format!(
                "entries of a table must be in order: {} at {seqno} came after {} at {last_seqno}",
                key.escape_ascii(),
                last.escape_ascii(),
            ))),
        }
    }

    fn count(&mut self, key: &[u8], seqno: SeqNo, kind: ValueKind, value: &[u8]) {
        let properties = &mut self.properties;
        if properties.entries == 0 {
            properties.first_key = key.to_vec();
        }
        properties.entries += 1;
        properties.tombstones += u64::from(kind.is_tombstone());
        properties.inserts += u64::from(kind.is_insert());
        properties.raw_key_bytes += key.len() as u64;
        properties.raw_value_bytes += value.len() as u64;
        properties.min_seqno = properties.min_seqno.min(seqno);
        properties.max_seqno = properties.max_seqno.max(seqno);
    }

    /// Adds the fence of the previous block, now that the next key is known.
    fn fence(&mut self, next: Option<&[u8]>) {
        if let (true, Some((last, _))) = (mem::take(&mut self.unfenced), &self.last) {
            self.fences.push(last, next);
        }
    }

    fn write_open_block(&mut self) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        self.choose_value_order()?;
        self.raw.clear();
        self.open.encode(self.value_order, &mut self.raw);
        let entries = self.open.len() as u32;
        self.open.clear();
        let Some(sample) = &mut self.sample else {
            return self.write_block(Layout::Columns, entries);
        };
        sample.push(&self.raw, entries);
        self.unfenced = true;
        if sample.raw_bytes() >= self.sample_bytes {
            self.release_sample()?;
        }
        Ok(())
    }

    /// Chooses the dictionary if the sample is complete, and writes the blocks of the sample.
    fn release_sample(&mut self) -> Result<()> {
        let Some(sample) = self.sample.take() else {
            return Ok(());
        };
        if sample.raw_bytes() >= self.sample_bytes {
            let path = self.file.path();
            let chosen = sample.choose(self.dictionary.take(), path)?;
            if !chosen.bytes().is_empty() {
                self.packer = Packer::with_dictionary(chosen.bytes(), path)?;
            }
            self.dictionary = Some(chosen);
        } else {
            self.dictionary = None;
        }
        for (raw, entries) in sample.blocks() {
            self.raw.clear();
            self.raw.extend_from_slice(raw);
            self.write_block(Layout::Columns, entries)?;
        }
        Ok(())
    }

    /// Tries both value orders now and then: planes shrink counters, but not text.
    fn choose_value_order(&mut self) -> Result<()> {
        let trial = self.fences.len().is_multiple_of(VALUE_ORDER_TRIAL_BLOCKS);
        if !trial || !self.open.values_have_planes() {
            return Ok(());
        }
        let mut stored = |order| {
            self.raw.clear();
            self.open.encode(order, &mut self.raw);
            let packed = self.packer.pack(&self.raw, self.file.path());
            packed.map(|(_, bytes)| bytes.len())
        };
        self.value_order = if stored(ValueOrder::Planes)? < stored(ValueOrder::Rows)? {
            ValueOrder::Planes
        } else {
            ValueOrder::Rows
        };
        Ok(())
    }

    fn write_block(&mut self, layout: Layout, entries: u32) -> Result<()> {
        let handle = self.write_section(layout, entries)?;
        self.fences.push_length(handle.length as u32);
        self.unfenced = true;
        if self.chunk.len() >= WRITE_BYTES {
            self.write_chunk()?;
        }
        Ok(())
    }

    /// Appends the section with the raw bytes in `self.raw`.
    fn write_section(&mut self, layout: Layout, entries: u32) -> Result<Handle> {
        let offset = self.offset();
        let place = Place {
            uid: self.uid,
            offset,
            path: self.file.path(),
        };
        let (chunk, packer) = (&mut self.chunk, &mut self.packer);
        let length = put_section(chunk, place, layout, entries, &self.raw, packer)?;
        Ok(Handle {
            offset,
            length: u64::from(length),
        })
    }

    fn offset(&self) -> u64 {
        self.chunk_offset + self.chunk.len() as u64
    }

    fn write_chunk(&mut self) -> Result<()> {
        let path = self.file.path();
        let written = self.file.write_at(&self.chunk, self.chunk_offset);
        written.map_err(|e| Error::io("write", path, e))?;
        self.chunk_offset += self.chunk.len() as u64;
        self.chunk.clear();
        // Shrink after a large value or filter.
        self.chunk.shrink_to(2 * WRITE_BYTES);
        Ok(())
    }
}
