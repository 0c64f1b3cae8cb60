//! Output of compactions: table files cut at borders and sizes, complete and synced before any
//! version names them.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::{KeyspaceId, SeqNo, TableId, ValueFileId, ValueKind};
use crate::compaction::separate::{PointsTo, Separator, ValueInputs};
use crate::db::core::Core;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::keyspace::expiry::{NEVER, expires_at};
use crate::keyspace::tree::Tree;
use crate::memory::{Charge, Use};
use crate::range_deletes::RangeDeletes;
use crate::table::{Codec, Table, TableBuilder, TableOptions, TableSummary, Trained};
use crate::version::TableRecord;

/// A finished table that no version names yet.
pub(crate) struct NewTable {
    pub record: TableRecord,
    pub table: Arc<Table>,
    /// Exclusive upper border: all keys of the table are smaller. The last key in the record is no
    /// substitute: it may be the exclusive end of a range delete.
    pub below: Option<Vec<u8>>,
    /// Value files written together with this table.
    pub values: Vec<ValueFileId>,
}

/// Finished tables of one keyspace: in key order, without overlaps.
pub(crate) struct TreeTables {
    pub tree: Arc<Tree>,
    pub tables: Vec<NewTable>,
}

impl TreeTables {
    /// Returns all tables of `trees`, each with its keyspace.
    pub fn tables_of(trees: &[TreeTables]) -> impl Iterator<Item = (KeyspaceId, Arc<Table>)> + '_ {
        let parts = trees.iter().map(|part| (part.tree.id, &part.tables));
        parts.flat_map(|(id, tables)| tables.iter().map(move |new| (id, Arc::clone(&new.table))))
    }

    /// Removes the files of all tables of `trees`; no manifest names them.
    pub fn discard(core: &Core, trees: &[TreeTables]) {
        trees.iter().for_each(|part| discard(core, &part.tables));
    }
}

/// Borders and sizes at which the output is cut into tables.
#[derive(Default)]
pub(crate) struct Cuts {
    /// Ascending keys that no table crosses.
    pub borders: Vec<Vec<u8>>,
    /// Size from which a table is cut at the next key.
    pub bytes_max: u64,
}

/// Range deletes that a compaction passes on: those that some reader tells from newer ones. A
/// compaction into the last level passes on none: it has written their effect on each key that it
/// kept.
pub(crate) type Carried = Arc<RangeDeletes>;

/// Writer of one compaction's entries, into as many tables as the cuts ask for.
///
/// Between two borders lies a *part* of the key range. Each part gets the carried range deletes
/// that lie in it, in one table with its entries: only parts without range deletes are cut by size.
///
/// A job borrows the database; an ingest, which lives as long as its caller likes, counts a
/// reference.
pub(crate) struct Output<S, T>
where
    S: Deref<Target = Core>,
    T: Deref<Target = Tree>,
{
    core: S,
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
    /// Charge for the buffers of inputs and outputs.
    charge: Charge,
    /// Bytes of the charge that are for inputs.
    input_bytes: usize,
    /// Bytes added since the charge was last updated.
    uncharged: usize,
}

/// Bytes of rows after which the buffers are charged anew and the cache is trimmed to release
/// memory.
const CHARGE_EVERY_BYTES: usize = 128 << 10;
/// Bytes that a row counts for in addition to its own: its hashes in filters.
const CHARGE_ROW_BYTES: usize = 32;

/// A sample for a dictionary is at most the table size divided by this.
const TABLE_PER_SAMPLE: u64 = 8;

/// Least rows that are compressed with a dictionary, in multiples of the sample: an open dictionary
/// takes 32 KiB of memory.
const DICTIONARY_LEAST: u64 = 8;

/// A complete table. It is opened once the values that it points to are complete too.
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

impl<S, T> Output<S, T>
where
    S: Deref<Target = Core> + Clone,
    T: Deref<Target = Tree> + Clone,
{
    pub fn new(
        core: S,
        tree: T,
        mut options: TableOptions,
        cuts: Cuts,
        carried: Carried,
        values: ValueInputs,
    ) -> Output<S, T> {
        let sample_max = (core.options.table_bytes / TABLE_PER_SAMPLE) as usize;
        options.sample_bytes = options.sample_bytes.min(sample_max);
        debug_assert!(carried.is_empty() || cuts.bytes_max == u64::MAX);
        let (open, finished, last_key) = (None, Vec::new(), Vec::new());
        let charge = Charge::new(&core.memory.budget, Use::Jobs);
        Output {
            charge,
            input_bytes: 0,
            uncharged: 0,
            separator: Separator::new(core.clone(), tree.clone(), values),
            core,
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

    /// Tells how many bytes of rows the entries have at most. A dictionary takes too much memory
    /// and space for few.
    pub fn expect_bytes(&mut self, bytes: u64) {
        if bytes < DICTIONARY_LEAST * self.options.sample_bytes as u64 {
            self.options.codec = self.options.codec.without_dictionary();
        }
    }

    /// Charges the inputs of this output as well: this many bytes, to its end.
    pub fn charge_inputs(&mut self, bytes: usize) {
        self.input_bytes = bytes;
        self.charge_buffers();
    }

    fn charge_buffers(&mut self) {
        let open = self.open.as_ref().map_or(0, |o| o.builder.memory_bytes());
        let buffers = self.input_bytes + open + self.separator.memory_bytes();
        self.charge.set(buffers);
        self.uncharged = 0;
        self.core.memory.cache.trim();
    }

    /// Adds the next entry. Keys ascend; the sequence numbers of one key descend.
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

    /// Returns the bytes stored so far in the table that is being written.
    pub fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |o| o.builder.stored_bytes())
    }

    /// Begins a new table with the next entry, which must have another key.
    pub fn cut(&mut self) -> Result<()> {
        debug_assert!(self.carried.is_empty(), "range deletes are not cut");
        self.finish_table(RangeDeletes::default())
    }

    /// Returns true if any entry was added.
    pub fn is_begun(&self) -> bool {
        self.open.is_some() || !self.finished.is_empty()
    }

    /// Returns the end of the part that is being written.
    fn border(&self) -> Option<&[u8]> {
        let border = self.cuts.borders.get(self.next_border);
        border.map(Vec::as_slice)
    }

    /// Finishes the table of this part and moves on to the next part.
    fn finish_part(&mut self) -> Result<()> {
        let low = match self.next_border.checked_sub(1) {
            Some(before) => &self.cuts.borders[before][..],
            None => &[],
        };
        let ranges = self.carried.clipped(low, self.border());
        if self.open.is_none()
            && let Some(first) = ranges.first()
        {
            // A table has at least one entry. This delete has the same effect on one key as the
            // range delete.
            self.append(first.start, first.newest(), ValueKind::Delete, &[])?;
        }
        self.finish_table(ranges)?;
        self.next_border += 1;
        Ok(())
    }

    fn create(&self) -> Result<Open> {
        let id = self.core.files.next_table_id();
        let uid = crate::version::random_uid();
        let path = self.core.files.path(id.to_string());
        let file = self.core.files.create(&path)?;
        let mut builder = TableBuilder::new(file, uid, self.tree.id, &self.options);
        if self.options.codec == Codec::ZstdDictionary {
            let offered = self.core.dictionaries.offer(self.tree.id);
            builder.offer_dictionary(offered.or_else(|| self.dictionary_of_a_table()));
        }
        Ok(Open { id, path, builder })
    }

    /// Returns the dictionary of any table of the last level: after an open none is in memory.
    fn dictionary_of_a_table(&self) -> Option<Arc<Trained>> {
        let version = Arc::clone(&self.tree.load().version);
        let mut last = version.groups().iter().flat_map(|group| &group.last);
        last.find_map(|table| table.dictionary_to_offer())
    }

    fn finish_table(&mut self, ranges: RangeDeletes) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        open.builder.set_range_deletes(ranges);
        let dictionary = open.builder.dictionary().cloned();
        let (id, path) = (open.id, open.path);
        let below = self.border().map(<[u8]>::to_vec);
        match open.builder.finish() {
            Ok(summary) => {
                if let Some(dictionary) = dictionary {
                    self.core.dictionaries.keep(self.tree.id, dictionary);
                }
                let written = &self.core.metrics.table_bytes_written;
                written.add(summary.file_bytes);
                self.core.events.tell(|| Event::TableCreated {
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
                // No version names the file yet; the next open would find it unreferenced anyway.
                let _ = self.core.files.vfs.remove(&path);
                Err(error)
            }
        }
    }

    /// Finishes the last table and the parts that hold only range deletes. The caller syncs the
    /// directory before a version names any of the tables.
    pub fn finish(mut self) -> Result<Vec<NewTable>> {
        while self.next_border <= self.cuts.borders.len() {
            self.finish_part()?;
        }
        let values = self.separator.written().to_vec();
        let files = self.separator.finish()?;
        let open = |finished: &Finished| {
            let file = self.core.files.open(&finished.path)?;
            let (id, uid) = (finished.id, finished.summary.uid);
            let cache = Arc::clone(&self.core.memory.cache);
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
        // From here the files belong to the caller.
        self.finished.clear();
        self.separator.keep();
        Ok(tables)
    }
}

impl<S, T> Drop for Output<S, T>
where
    S: Deref<Target = Core>,
    T: Deref<Target = Tree>,
{
    /// Removes the files of a failed compaction. If the database was closed, they are left to the
    /// next open: another instance may own the directory by now.
    fn drop(&mut self) {
        if !self.core.access.owns_directory() {
            return;
        }
        let open = self.open.take().map(|o| o.path);
        let finished = self.finished.drain(..).map(|t| t.path);
        for path in finished.chain(open).chain(self.separator.paths()) {
            // The next open moves left-overs aside; a second failure here changes nothing.
            let _ = self.core.files.vfs.remove(&path);
        }
    }
}

/// Returns the manifest record of a finished table.
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

/// Deletes the files of finished tables that were not installed, and of the values written for
/// them.
pub(crate) fn discard(core: &Core, tables: &[NewTable]) {
    // If the database was closed, they are left to the next open: another instance may own the
    // directory and have reused the file numbers by now.
    if !core.access.owns_directory() {
        return;
    }
    for table in tables {
        // As above: the next open moves a left-over aside.
        let _ = core
            .files
            .vfs
            .remove(&core.files.path(table.record.id.to_string()));
        for values in &table.values {
            let _ = core.files.vfs.remove(&core.files.path(values.to_string()));
        }
    }
}
