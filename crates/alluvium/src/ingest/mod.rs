//! Bulk work: rows in key order written directly into tables, without the log and the memtables.
//!
//! An [`Ingest`] writes the rows of each keyspace as complete tables, cut at the borders of the
//! tree's groups and at the size of a last-level table. It installs them all in one step
//! (`db/install_ingest.rs`). Until then no manifest names the files: dropping the builder removes
//! them, and after a crash the next open moves them aside.

mod bulk_load;
mod merge_runs;
mod run_file;

pub use bulk_load::{BulkLoad, BulkLoadOptions, Duplicates};

use std::borrow::Cow;
use std::sync::Arc;

use alluvium_mem::process::Owned;

use crate::base::{SeqNo, ValueKind};
use crate::commit::payload::check_sizes;
use crate::compaction::output::{Carried, Cuts, NewTable, Output, TreeTables};
use crate::compaction::separate::ValueInputs;
use crate::compaction::table_options::table_options;
use crate::db::Database;
use crate::db::core::Core;
use crate::error::{Error, Result};
use crate::keyspace::{Keyspace, Tree};

/// Rows of one or more keyspaces, to be written to tables: see [`Database::ingest`].
///
/// The rows of each keyspace come in ascending key order, without duplicates; rows of different
/// keyspaces may alternate. [`Ingest::finish`] makes all of them visible at once, as one commit: a
/// row replaces the previous row of its key. Dropping the ingest instead leaves no trace.
///
/// Rows are written to disk once, compressed as in the last level, and neither logged nor kept in
/// memory. If no other row, delete or compaction shares the range of a table, it goes straight into
/// the last level and is not rewritten. Otherwise it is compacted later like flushed tables, and
/// may slow writers as those do.
///
/// An ingest takes no row locks, and admission control does not delay it. If a transaction wrote a
/// row or read it for update before the ingest and commits after it, it overwrites the ingested
/// row. A transaction with a snapshot that writes such a row later gets `Conflict`.
///
/// ```
/// use alluvium::{Database, KeyspaceOptions, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path(), Options::default())?;
/// let numbers = db.keyspace("numbers", KeyspaceOptions::default())?;
/// let mut ingest = db.ingest()?;
/// for n in 0..10_000_u32 {
///     ingest.put(&numbers, &n.to_be_bytes(), b"a value")?;
/// }
/// let ingested = ingest.finish()?;
/// assert_eq!(ingested.rows, 10_000);
/// assert_eq!(numbers.get(&7_u32.to_be_bytes())?.as_deref(), Some(&b"a value"[..]));
/// # Ok::<(), alluvium::Error>(())
/// ```
pub struct Ingest {
    db: Database,
    parts: Owned<Vec<Part>>,
    /// Index of the previous row's part: rows of one keyspace often come together.
    recent: usize,
    /// The first error; nothing is installed after one.
    failed: Option<Error>,
}

/// Result of [`Ingest::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ingested {
    /// Place of the ingest in the commit order; that of the newest commit if there were no rows.
    pub seqno: SeqNo,
    /// Number of rows.
    pub rows: u64,
    /// Number of table files.
    pub tables: u64,
    /// Bytes of these files.
    pub table_bytes: u64,
    /// Bytes of these files that went straight into the last level.
    pub last_level_bytes: u64,
}

/// Rows of one keyspace.
struct Part {
    tree: Arc<Tree>,
    output: Output<Arc<Core>, Arc<Tree>>,
    last_key: Vec<u8>,
}

/// Seqno stored with every row: rows have none of their own, and the manifest gives one to their
/// table.
const STORED_SEQNO: SeqNo = 0;

impl Ingest {
    pub(crate) fn new(db: Database) -> Ingest {
        Ingest {
            db,
            parts: Owned::new(Vec::new()),
            recent: 0,
            failed: None,
        }
    }

    /// Adds a row. Its key is larger than those of all earlier rows of this keyspace.
    ///
    /// # Errors
    ///
    /// `OutOfOrder` if it is not; `InvalidArgument` for a key or value that is too large; `NoSpace`
    /// and `Io` from the table files. After an error nothing is installed, and later calls return
    /// the same error.
    pub fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        let stored = keyspace.stored(ValueKind::Put, value, None);
        self.put_stored(keyspace, key, stored)
    }

    /// Adds a row that expires at `until_ms`: see [`Keyspace::put_until`]. Otherwise works like
    /// [`Ingest::put`].
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        until_ms: u64,
    ) -> Result<()> {
        let stored = keyspace.stored(ValueKind::Put, value, Some(until_ms));
        self.put_stored(keyspace, key, stored)
    }

    /// Adds a row with its value in stored form.
    pub(super) fn put_stored(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        stored: Result<Cow<'_, [u8]>>,
    ) -> Result<()> {
        // A forked child must not free the parts below.
        self.db.shared().core.access.check_open()?;
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let added = stored.and_then(|value| {
            keyspace.check_within(&self.db)?;
            check_sizes(key, &value)?;
            self.add(keyspace.tree(), key, ValueKind::Put, &value)
        });
        added.inspect_err(|error| {
            self.failed = Some(error.clone());
            self.parts.clear();
        })
    }

    /// Adds a put with its value in stored form, or a delete. After an error the ingest must be
    /// dropped.
    pub(crate) fn add(
        &mut self,
        tree: &Arc<Tree>,
        key: &[u8],
        kind: ValueKind,
        value: &[u8],
    ) -> Result<()> {
        let same = |part: &Part| Arc::ptr_eq(&part.tree, tree);
        if !self.parts.get(self.recent).is_some_and(same) {
            let known = self.parts.iter().position(same);
            self.recent = known.unwrap_or(self.parts.len());
            if known.is_none() {
                let shared = Arc::clone(self.db.shared());
                self.parts
                    .push(Part::new(Arc::clone(&shared.core), Arc::clone(tree)));
            }
        }
        self.parts[self.recent].add(key, kind, value)
    }

    /// Installs all rows as one commit, durable when the call returns, at every durability level.
    ///
    /// Memtable rows of the same keyspaces are flushed first. Commits continue meanwhile, and wait
    /// only for the last step: a flush of rows that arrived since, if any, a sync of the log and
    /// one edit of the manifest.
    ///
    /// # Errors
    ///
    /// The first error of a `put`; `KeyspaceDropped`; `NoSpace`; `Poisoned`; `Closed`. None of the
    /// ingest is visible after an error. After `Io` or `Poisoned` the next open may find all of it
    /// or nothing.
    pub fn finish(mut self) -> Result<Ingested> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let shared = Arc::clone(self.db.shared());
        shared.core.access.check_open()?;
        if self.parts.is_empty() {
            let seqno = shared.core.read_points.visible();
            return Ok(Ingested {
                seqno,
                ..Ingested::default()
            });
        }
        let trees = self.complete(&shared.core)?;
        let discarded = |_: &Error| TreeTables::discard(&shared.core, &trees);
        // Flush as much as possible without the log's lock.
        if trees.iter().any(|t| t.tree.load().has_memtable_rows()) {
            self.db.flush().inspect_err(discarded)?;
        }
        let sum = |f: fn(&NewTable) -> u64| trees.iter().flat_map(|t| &t.tables).map(f).sum();
        let mut ingested = Ingested {
            rows: sum(|t| t.record.entries),
            tables: sum(|_| 1),
            table_bytes: sum(|t| t.record.file_bytes),
            ..Ingested::default()
        };
        let installed = shared.install_ingest(&trees)?;
        shared.core.metrics.ingested_bytes.add(ingested.table_bytes);
        ingested.seqno = installed.seqno;
        ingested.last_level_bytes = installed.last_level_bytes;
        Ok(ingested)
    }

    /// Finishes the tables of all keyspaces and makes them and their names durable. Removes all of
    /// them after an error.
    pub(crate) fn complete(&mut self, core: &Core) -> Result<Vec<TreeTables>> {
        let mut trees: Vec<TreeTables> = Vec::new();
        let completed = self.parts.drain(..).try_for_each(|part| {
            trees.push(TreeTables {
                tables: part.output.finish()?,
                tree: part.tree,
            });
            Ok(())
        });
        completed
            .and_then(|()| core.sync_directory())
            .inspect_err(|_| TreeTables::discard(core, &trees))?;
        Ok(trees)
    }
}

impl Part {
    fn new(core: Arc<Core>, tree: Arc<Tree>) -> Part {
        let state = tree.load_full();
        let groups = state.version.groups();
        let borders = groups[1..].iter().map(|g| g.low.clone()).collect();
        let cuts = Cuts {
            borders,
            bytes_max: core.options.table_bytes,
        };
        let alone = !state.has_memtable_rows()
            && groups
                .iter()
                .all(|g| g.upper.is_empty() && g.last.is_empty());
        let mut options = table_options(&tree.options(), true);
        if !alone {
            // With other rows present, some tables may become upper tables, and lookups probe those
            // for absent keys.
            options.filter = table_options(&tree.options(), false).filter;
        }
        Part {
            output: Output::new(
                core,
                Arc::clone(&tree),
                options,
                cuts,
                Carried::default(),
                ValueInputs::default(),
            ),
            tree,
            last_key: Vec::new(),
        }
    }

    fn add(&mut self, key: &[u8], kind: ValueKind, value: &[u8]) -> Result<()> {
        if self.output.is_begun() && key <= &self.last_key[..] {
            return Err(Error::OutOfOrder {
                keyspace: self.tree.name.clone(),
                previous: self.last_key.clone(),
                key: key.to_vec(),
            });
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.output.add(key, STORED_SEQNO, kind, value)
    }
}
