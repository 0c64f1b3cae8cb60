//! Where merges write: table files cut at borders and sizes, complete and synced before anybody names them.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::{SeqNo, TableId, ValueKind};
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::keyspace::options::{Compression, KeyspaceOptions};
use crate::keyspace::tree::Tree;
use crate::table::{
    Codec, FilterOptions, PrefixFilter, Table, TableBuilder, TableOptions, TableSummary,
};
use crate::version::TableRecord;

/// A finished table that no version names yet.
pub(crate) struct NewTable {
    pub record: TableRecord,
    pub table: Arc<Table>,
}

/// Where to cut.
#[derive(Default)]
pub(crate) struct Cuts {
    /// A table never crosses one of these keys; ascending.
    pub borders: Vec<Vec<u8>>,
    /// A table is cut at the first key after it has reached this size.
    pub bytes_max: u64,
}

/// Writes the entries of one merge into as many tables as the cuts ask for.
pub(crate) struct Output<'a> {
    shared: &'a Shared,
    tree: &'a Tree,
    options: TableOptions,
    cuts: Cuts,
    /// Index of the next border not passed yet.
    next_border: usize,
    open: Option<Open>,
    finished: Vec<NewTable>,
    last_key: Vec<u8>,
}

struct Open {
    id: TableId,
    uid: u64,
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
    let whole_key = options.whole_key_filter && !(last_level && options.reads_hit);
    let prefix = options.prefix_filter_bytes.map(|bytes| PrefixFilter {
        bytes,
        bits: FILTER_BITS,
    });
    let filter = FilterOptions {
        whole_key_bits: if whole_key { FILTER_BITS } else { 0 },
        prefix,
    };
    TableOptions {
        block_bytes: options.block_bytes,
        codec,
        filter,
    }
}

impl<'a> Output<'a> {
    pub fn new(
        shared: &'a Shared,
        tree: &'a Tree,
        options: TableOptions,
        cuts: Cuts,
    ) -> Output<'a> {
        let (open, finished, last_key) = (None, Vec::new(), Vec::new());
        Output {
            shared,
            tree,
            options,
            cuts,
            next_border: 0,
            open,
            finished,
            last_key,
        }
    }

    /// Adds the next entry; keys ascend, sequence numbers of one key fall.
    pub fn add(&mut self, key: &[u8], seqno: SeqNo, kind: ValueKind, value: &[u8]) -> Result<()> {
        if self.open.is_some() && key != self.last_key && self.is_cut_before(key) {
            self.finish_table()?;
        }
        if self.open.is_none() {
            self.open = Some(self.create()?);
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        let open = self.open.as_mut().expect("a table is open");
        open.builder.add(key, seqno, kind, value)
    }

    /// Whether a table ends before `key`, which starts a new group of versions.
    fn is_cut_before(&mut self, key: &[u8]) -> bool {
        let mut crossed = false;
        while self
            .cuts
            .borders
            .get(self.next_border)
            .is_some_and(|b| b.as_slice() <= key)
        {
            // Borders at or before the open table's first key were not crossed by it.
            crossed |= self.cuts.borders[self.next_border] > self.last_key;
            self.next_border += 1;
        }
        let full = self
            .open
            .as_ref()
            .is_some_and(|o| o.builder.stored_bytes() >= self.cuts.bytes_max);
        crossed || full
    }

    fn create(&self) -> Result<Open> {
        let id = self.shared.next_table_id();
        let uid = crate::version::random_uid();
        let path = self.shared.path(id.to_string());
        let file = self
            .shared
            .vfs
            .create(&path)
            .map_err(|e| Error::io("create", &path, e))?;
        let builder = TableBuilder::new(file, uid, self.tree.id, &self.options);
        Ok(Open {
            id,
            uid,
            path,
            builder,
        })
    }

    fn finish_table(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let (id, uid, path) = (open.id, open.uid, open.path);
        let finished = open.builder.finish().and_then(|summary| {
            let file = self
                .shared
                .vfs
                .open_read(&path)
                .map_err(|e| Error::io("open", &path, e))?;
            let table = Table::open(file, id, uid, Arc::clone(&self.shared.cache))?;
            Ok(NewTable {
                record: record(id, summary),
                table,
            })
        });
        match finished {
            Ok(table) => {
                self.shared
                    .metrics
                    .table_bytes_written
                    .add(table.record.file_bytes);
                self.finished.push(table);
                Ok(())
            }
            Err(error) => {
                // Nobody names the file yet; at the next open it would be found unreferenced anyway.
                let _ = self.shared.vfs.remove(&path);
                Err(error)
            }
        }
    }

    /// Finishes the last table. The caller syncs the directory before it names any of them.
    pub fn finish(mut self) -> Result<Vec<NewTable>> {
        self.finish_table()?;
        Ok(std::mem::take(&mut self.finished))
    }
}

impl Drop for Output<'_> {
    /// A merge that failed leaves no files behind.
    fn drop(&mut self) {
        let open = self.open.take().map(|o| o.path);
        let finished = self
            .finished
            .drain(..)
            .map(|t| self.shared.path(t.record.id.to_string()));
        for path in finished.chain(open) {
            // Left-overs are moved aside at the next open; a second failure here changes nothing.
            let _ = self.shared.vfs.remove(&path);
        }
    }
}

fn record(id: TableId, summary: TableSummary) -> TableRecord {
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

/// Deletes the files of tables that were finished and then not installed.
pub(crate) fn discard(shared: &Shared, tables: &[NewTable]) {
    for table in tables {
        // As above: a left-over is moved aside at the next open.
        let _ = shared.vfs.remove(&shared.path(table.record.id.to_string()));
    }
}
