//! Where merges write: table files cut at borders and sizes, complete and synced before anybody names them.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::{SeqNo, TableId, ValueFileId, ValueKind};
use crate::compaction::separate::{PointsTo, Separator, ValueInputs};
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::keyspace::expiry::{NEVER, expires_at};
use crate::keyspace::options::{Compression, KeyspaceOptions};
use crate::keyspace::tree::Tree;
use crate::memory::{Charge, Use};
use crate::range_deletes::RangeDeletes;
use crate::table::{
    Codec, FilterOptions, PrefixFilter, Table, TableBuilder, TableOptions, TableSummary,
};
use crate::version::TableRecord;
use crate::vfs::Lifetime;

/// A finished table that no version names yet.
pub(crate) struct NewTable {
    pub record: TableRecord,
    pub table: Arc<Table>,
    /// The border behind it: everything in the table lies below. The last key in the record does not tell, where it is
    /// the end of a range delete, which is exclusive.
    pub below: Option<Vec<u8>>,
    /// The value files written together with it.
    pub values: Vec<ValueFileId>,
}

/// Where to cut.
#[derive(Default)]
pub(crate) struct Cuts {
    /// A table never crosses one of these keys; ascending.
    pub borders: Vec<Vec<u8>>,
    /// A table is cut at the first key after it has reached this size.
    pub bytes_max: u64,
}

/// The range deletes that a merge hands on: those that some reader tells from newer ones. A merge into the last level
/// hands on none: it has written what they mean for each key that it kept.
pub(crate) type Carried = Arc<RangeDeletes>;

/// Writes the entries of one merge into as many tables as the cuts ask for.
///
/// Between two borders lies a *part* of the key range. Each part gets the carried range deletes that lie in it, in one
/// table with its entries: only what has no range deletes is cut by size.
///
/// A job borrows the database; an ingest, which lives as long as its caller likes, counts a reference.
pub(crate) struct Output<S, T>
where
    S: Deref<Target = Shared>,
    T: Deref<Target = Tree>,
{
    shared: S,
    tree: T,
    options: TableOptions,
    cuts: Cuts,
    carried: Carried,
    separator: Separator<S, T>,
    /// Index of the next border not passed yet: the end of the part that is being written.
    next_border: usize,
    open: Option<Open>,
    finished: Vec<Finished>,
    last_key: Vec<u8>,
    /// For the buffers of inputs and outputs.
    charge: Charge,
    /// The part of the charge for inputs.
    input_bytes: usize,
    /// Bytes added since the charge was looked at.
    uncharged: usize,
}

/// Bytes of rows after which a merge's buffers are charged anew, and the cache is trimmed for whoever needs its memory.
const CHARGE_EVERY_BYTES: usize = 128 << 10;
/// What a row counts for besides its bytes: its hashes in filters.
const CHARGE_ROW_BYTES: usize = 32;

/// A complete table, to be opened when the values that it points to are complete too.
struct Finished {
    id: TableId,
    path: PathBuf,
    summary: TableSummary,
    below: Option<Vec<u8>>,
}

struct Open {
    id: TableId,
    path: PathBuf,
    builder: TableBuilder,
}

/// Bits of Bloom filter per key: about 1% false positives.
const FILTER_BITS: u32 = 10;

/// How a keyspace's tables are written, in the last level or above.
pub(crate) fn table_options(options: &KeyspaceOptions, last_level: bool) -> TableOptions {
    let codec = match (options.compression, last_level) {
        (Compression::Adaptive, true) => Codec::Zstd,
        (Compression::Adaptive, false) | (Compression::Lz4, _) => Codec::Lz4,
        (Compression::None, _) => Codec::None,
    };
    // Reads that nearly always hit end in the last level anyway: a filter there would only say yes.
    let whole_key = options.whole_key_filter && !(last_level && options.expect_hits);
    let prefix = options.prefix_filter_bytes.map(|bytes| PrefixFilter {
        bytes,
        bits: FILTER_BITS,
    });
    let filter = FilterOptions {
        whole_key_bits: if whole_key { FILTER_BITS } else { 0 },
        prefix,
    };
    let lifetime = if last_level {
        Lifetime::Long
    } else {
        Lifetime::Medium
    };
    TableOptions {
        block_bytes: options.block_bytes,
        codec,
        filter,
        lifetime,
    }
}

impl<S, T> Output<S, T>
where
    S: Deref<Target = Shared> + Clone,
    T: Deref<Target = Tree> + Clone,
{
    pub fn new(
        shared: S,
        tree: T,
        options: TableOptions,
        cuts: Cuts,
        carried: Carried,
        values: ValueInputs,
    ) -> Output<S, T> {
        debug_assert!(carried.is_empty() || cuts.bytes_max == u64::MAX);
        let (open, finished, last_key) = (None, Vec::new(), Vec::new());
        let charge = Charge::new(&shared.cache, Use::Jobs);
        Output {
            charge,
            input_bytes: 0,
            uncharged: 0,
            separator: Separator::new(shared.clone(), tree.clone(), values),
            shared,
            tree,
            options,
            cuts,
            carried,
            next_border: 0,
            open,
            finished,
            last_key,
        }
    }

    /// Charges what is read for this output as well: this many bytes, to its end.
    pub fn charge_inputs(&mut self, bytes: usize) {
        self.input_bytes = bytes;
        self.charge_buffers();
    }

    fn charge_buffers(&mut self) {
        let open = self.open.as_ref().map_or(0, |o| o.builder.memory_bytes());
        let buffers = self.input_bytes + open + self.separator.memory_bytes();
        self.charge.set(buffers);
        self.uncharged = 0;
        self.shared.cache.trim();
    }

    /// Adds the next entry; keys ascend, sequence numbers of one key fall.
    pub fn add(&mut self, key: &[u8], seqno: SeqNo, kind: ValueKind, value: &[u8]) -> Result<()> {
        while self.border().is_some_and(|border| border <= key) {
            self.finish_part()?;
        }
        if self.open.is_some() && self.open_bytes() >= self.cuts.bytes_max && key != self.last_key {
            self.cut()?;
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.append(key, seqno, kind, value)?;
        self.uncharged += key.len() + value.len() + CHARGE_ROW_BYTES;
        if self.uncharged >= CHARGE_EVERY_BYTES {
            self.charge_buffers();
        }
        Ok(())
    }

    fn append(&mut self, key: &[u8], seqno: SeqNo, kind: ValueKind, value: &[u8]) -> Result<()> {
        let replaced = self.separator.replace(kind, value)?;
        let (kind, value) = match &replaced {
            Some((kind, stored)) => (*kind, &stored[..]),
            None => (kind, value),
        };
        let open = match self.open.take() {
            Some(open) => open,
            None => self.create()?,
        };
        let open = self.open.insert(open);
        open.builder.add(key, seqno, kind, value)?;
        if kind.is_pointer() {
            let PointsTo {
                file,
                uid,
                stored_bytes,
            } = self.separator.points_to(value)?;
            open.builder.note_pointer(file, uid, stored_bytes);
        }
        let has_time = self.tree.stores_expiry && !kind.is_tombstone();
        if has_time && let Some(until) = expires_at(value).filter(|&until| until != NEVER) {
            open.builder.note_expiry(until);
        }
        Ok(())
    }

    /// Bytes stored of the table that is being written.
    pub fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |o| o.builder.stored_bytes())
    }

    /// The next entry, which must be another key's, begins a new table.
    pub fn cut(&mut self) -> Result<()> {
        debug_assert!(self.carried.is_empty(), "range deletes are not cut");
        self.finish_table(RangeDeletes::default())
    }

    /// Whether any entry was added.
    pub fn is_begun(&self) -> bool {
        self.open.is_some() || !self.finished.is_empty()
    }

    /// The end of the part that is being written.
    fn border(&self) -> Option<&[u8]> {
        let border = self.cuts.borders.get(self.next_border);
        border.map(Vec::as_slice)
    }

    /// Finishes the table of this part, and goes on to the next one.
    fn finish_part(&mut self) -> Result<()> {
        let low = match self.next_border.checked_sub(1) {
            Some(before) => &self.cuts.borders[before][..],
            None => &[],
        };
        let ranges = self.carried.clipped(low, self.border());
        if self.open.is_none()
            && let Some(first) = ranges.first()
        {
            // A table has at least one entry. This one says of one key what the range delete says of it too.
            self.append(first.start, first.newest(), ValueKind::Delete, &[])?;
        }
        self.finish_table(ranges)?;
        self.next_border += 1;
        Ok(())
    }

    fn create(&self) -> Result<Open> {
        let id = self.shared.next_table_id();
        let uid = crate::version::random_uid();
        let path = self.shared.path(id.to_string());
        let file = self.shared.create_file(&path)?;
        let builder = TableBuilder::new(file, uid, self.tree.id, &self.options);
        Ok(Open { id, path, builder })
    }

    fn finish_table(&mut self, ranges: RangeDeletes) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        open.builder.set_range_deletes(ranges);
        let (id, path) = (open.id, open.path);
        let below = self.border().map(<[u8]>::to_vec);
        match open.builder.finish() {
            Ok(summary) => {
                let written = &self.shared.metrics.table_bytes_written;
                written.add(summary.file_bytes);
                self.shared.events.tell(|| Event::TableCreated {
                    table: id.0,
                    keyspace: self.tree.name.clone(),
                    bytes: summary.file_bytes,
                });
                self.finished.push(Finished {
                    id,
                    path,
                    summary,
                    below,
                });
                Ok(())
            }
            Err(error) => {
                // Nobody names the file yet; at the next open it would be found unreferenced anyway.
                let _ = self.shared.vfs.remove(&path);
                Err(error)
            }
        }
    }

    /// Finishes the last table, and the parts that hold range deletes only. The caller syncs the directory before it names any of them.
    pub fn finish(mut self) -> Result<Vec<NewTable>> {
        while self.next_border <= self.cuts.borders.len() {
            self.finish_part()?;
        }
        let values = self.separator.written().to_vec();
        let files = self.separator.finish()?;
        let open = |finished: &Finished| {
            let file = self.shared.open_file(&finished.path)?;
            let (id, uid) = (finished.id, finished.summary.uid);
            let cache = Arc::clone(&self.shared.cache);
            let table = Table::open_with(file, id, uid, cache, |part| {
                let named = files.get(&part.file).filter(|f| f.uid() == part.uid);
                named.cloned().ok_or_else(|| {
                    let message = format!("a new table names the unknown {}", part.file);
                    Error::Internal(message)
                })
            })?;
            Ok(NewTable {
                record: record(id, finished.summary.clone()),
                table,
                below: finished.below.clone(),
                values: values.clone(),
            })
        };
        let tables = self.finished.iter().map(open);
        let tables = tables.collect::<Result<Vec<NewTable>>>()?;
        // From here on the files are the caller's.
        self.finished.clear();
        self.separator.keep();
        Ok(tables)
    }
}

impl<S, T> Drop for Output<S, T>
where
    S: Deref<Target = Shared>,
    T: Deref<Target = Tree>,
{
    /// A merge that failed leaves no files behind. Of a database that was closed they are left to the next open: the
    /// directory may be another's by now.
    fn drop(&mut self) {
        if !self.shared.owns_directory() {
            return;
        }
        let open = self.open.take().map(|o| o.path);
        let finished = self.finished.drain(..).map(|t| t.path);
        for path in finished.chain(open).chain(self.separator.paths()) {
            // Left-overs are moved aside at the next open; a second failure here changes nothing.
            let _ = self.shared.vfs.remove(&path);
        }
    }
}

/// What the manifest says of a finished table.
pub(crate) fn record(id: TableId, summary: TableSummary) -> TableRecord {
    TableRecord {
        id,
        uid: summary.uid,
        file_bytes: summary.file_bytes,
        entries: summary.entries,
        tombstones: summary.tombstones,
        raw_bytes: summary.raw_bytes,
        first_key: summary.first_key,
        last_key: summary.last_key,
        min_seqno: summary.min_seqno,
        max_seqno: summary.max_seqno,
        global_seqno: None,
    }
}

/// Deletes the files of tables that were finished and then not installed, with the values written for them.
pub(crate) fn discard(shared: &Shared, tables: &[NewTable]) {
    // Of a closed database they are left to the next open: its directory, and their numbers, may be another's by now.
    if !shared.owns_directory() {
        return;
    }
    for table in tables {
        // As above: a left-over is moved aside at the next open.
        let _ = shared.vfs.remove(&shared.path(table.record.id.to_string()));
        for values in &table.values {
            let _ = shared.vfs.remove(&shared.path(values.to_string()));
        }
    }
}
