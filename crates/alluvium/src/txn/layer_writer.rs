//! Writer of a layer: one temporary table for each keyspace.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::{KeyspaceId, TableId, ValueKind};
use crate::compaction::table_options::table_options;
use crate::db::core::Core;
use crate::error::{Error, Result};
use crate::keyspace::Tree;
use crate::memory::{Charge, Use};
use crate::recovery::run_file_name;
use crate::table::{FilterOptions, Table, TableBuilder, TableOptions};
use crate::vfs::Lifetime;

/// Rows after which the memory of the open table is charged anew.
const CHARGE_EVERY_ROWS: u64 = 4096;
/// Bits of Bloom filter for each key: most lookups in a layer are for rows that it does not have.
const FILTER_BITS: u32 = 10;

/// Writer of the tables of a layer. Dropping it removes the table that is being written.
pub(super) struct LayerWriter<'a> {
    core: &'a Arc<Core>,
    /// Keyspaces of the rows.
    trees: &'a [Arc<Tree>],
    finished: Vec<(KeyspaceId, Arc<Table>)>,
    open: Option<OpenTable>,
    charge: Charge,
}

struct OpenTable {
    keyspace: KeyspaceId,
    id: TableId,
    uid: u64,
    path: PathBuf,
    builder: TableBuilder,
}

impl LayerWriter<'_> {
    pub fn new<'a>(core: &'a Arc<Core>, trees: &'a [Arc<Tree>]) -> LayerWriter<'a> {
        LayerWriter {
            core,
            trees,
            finished: Vec::new(),
            open: None,
            charge: Charge::new(&core.memory.budget, Use::Jobs),
        }
    }

    /// Adds a row; they come in the order of keyspace, then key.
    pub fn add(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        kind: ValueKind,
        value: &[u8],
    ) -> Result<()> {
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.keyspace != keyspace)
        {
            self.finish_table()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let open = self.create(keyspace)?;
                self.open.insert(open)
            }
        };
        open.builder.add(key, 0, kind, value)?;
        if open.builder.entries() % CHARGE_EVERY_ROWS == 0 {
            self.charge.set(open.builder.memory_bytes());
        }
        Ok(())
    }

    /// Finishes the last table. Returns all of them, ordered by keyspace.
    pub fn finish(mut self) -> Result<Vec<(KeyspaceId, Arc<Table>)>> {
        self.finish_table()?;
        Ok(std::mem::take(&mut self.finished))
    }

    fn create(&self, keyspace: KeyspaceId) -> Result<OpenTable> {
        let tree = self.trees.iter().find(|tree| tree.id == keyspace);
        let tree = tree.ok_or_else(|| {
            Error::Internal(format!(
                "{keyspace} of a write is unknown to its transaction"
            ))
        })?;
        let options = TableOptions {
            filter: FilterOptions {
                whole_key_bits: FILTER_BITS,
                prefix: None,
            },
            lifetime: Lifetime::Short,
            temporary: true,
            ..table_options(&tree.options(), false)
        };
        // Such a file takes a number of tables, so that the number names the table in the cache.
        let id = self.core.files.next_table_id();
        let uid = crate::version::random_uid();
        let path = self.core.files.path(run_file_name(id.0));
        let file = self.core.files.create(&path)?;
        let builder = TableBuilder::new(file, uid, keyspace, &options);
        Ok(OpenTable {
            keyspace,
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
        let OpenTable {
            keyspace,
            id,
            uid,
            path,
            builder,
        } = open;
        let opened = builder.finish().and_then(|_| {
            let file = self.core.files.open(&path)?;
            Table::open(file, id, uid, Arc::clone(&self.core.memory.cache))
        });
        let table = opened.inspect_err(|_| remove(self.core, &path))?;
        let leave = self.core.files.removals.leave(path, None);
        let core = Arc::clone(self.core);
        table.mark_obsolete(Box::new(move |file, memory| {
            // Another owner may have the directory after a close; the next open removes the file as
            // well.
            if core.access.owns_directory() {
                leave(file, memory);
            }
        }));
        self.finished.push((keyspace, table));
        self.charge.set(0);
        Ok(())
    }
}

impl Drop for LayerWriter<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            remove(self.core, &open.path);
        }
    }
}

fn remove(core: &Core, path: &std::path::Path) {
    if core.access.owns_directory() {
        // The next open removes it as well.
        let _ = core.files.vfs.remove(path);
    }
}
