//! How ingested tables come into the tree: all at one place in the commit order, in one edit of the manifest.
//!
//! Their rows carry no sequence number of their own. The manifest gives each table the number of the ingest, and
//! readers and merges take the larger of the two, so a snapshot that is older does not see them. Readers ask memtables
//! before tables, so at that moment the keyspaces in question must have none with rows in it: what they had is
//! flushed before, and once more under the log's lock, where nothing can be added any more.
//!
//! Order: tables written, synced and their directory synced (by the caller), memtables flushed, marker in the log, log
//! synced up to it, edit synced, trees replaced, number published. A crash before the edit is durable leaves files that
//! nothing names; replay skips the marker.

use std::sync::Arc;

use crate::base::SeqNo;
use crate::commit::Log;
use crate::commit::marker::{IngestedPart, ingest_marker};
use crate::compaction::output::{NewTable, discard};
use crate::compaction::update_admission;
use crate::db::options::Durability;
use crate::db::shared::Shared;
use crate::db::split::{Placed, fits_last_level, plan_ingest};
use crate::db::store::Store;
use crate::error::Result;
use crate::keyspace::tree::Tree;
use crate::version::VersionEdit;

/// What an ingest brings for one keyspace: complete tables in key order, without overlaps.
pub(crate) struct IngestedTree {
    pub tree: Arc<Tree>,
    pub tables: Vec<NewTable>,
}

/// Where an ingest ended up.
#[derive(Default)]
pub(crate) struct Installed {
    pub seqno: SeqNo,
    /// Bytes that went straight into the last level.
    pub last_level_bytes: u64,
}

impl Shared {
    /// Installs the tables of an ingest, or discards them. The caller has synced the directory.
    pub fn install_ingest(&self, trees: &[IngestedTree]) -> Result<Installed> {
        // A checkpoint takes the tables as they are: they must not hold an ingest behind the commit that it stands for.
        let _no_capture = self.drops.lock();
        let mut log = self.log.lock();
        let seqno = self.make_place(&mut log, trees).inspect_err(|_| {
            trees.iter().for_each(|t| discard(self, &t.tables));
        })?;
        let last_level_bytes = self.place(trees, seqno);
        // Also where the edit found no space: the number is in the log, and nothing has it.
        self.publish(seqno);
        drop(log);
        let trees = trees.iter().map(|t| &t.tree);
        trees.for_each(|tree| self.release_cursors(tree));
        update_admission(self);
        self.jobs.wake();
        Ok(Installed {
            seqno,
            last_level_bytes: last_level_bytes?,
        })
    }

    /// Empties the memtables that would hide the tables and takes a number for them, which nobody sees yet.
    fn make_place(&self, log: &mut Log, trees: &[IngestedTree]) -> Result<SeqNo> {
        self.check_writable()?;
        trees.iter().try_for_each(|t| t.tree.check())?;
        // Without a log the edit, which is durable at once, must not overtake commits before it.
        let unlogged = self.options.durability == Durability::None;
        if unlogged || trees.iter().any(|t| t.tree.load().has_memtable_rows()) {
            self.wait_for_flushes_after_failure()?;
            log.seal(self)?;
            self.wait_for_flushes()?;
        }
        log.mark_ingest(self, &marker(trees))
    }

    /// Installs the tables at `seqno`. Returns how many of their bytes are in the last level.
    fn place(&self, trees: &[IngestedTree], seqno: SeqNo) -> Result<u64> {
        let mut store = self.store.lock();
        let mut edit = VersionEdit {
            next_table: Some(self.peek_next_table()),
            last_seqno: Some(seqno),
            read_clock_ms: Store::read_clock(self),
            ..VersionEdit::default()
        };
        let mut last_level_bytes = 0;
        for ingested in trees {
            let placed = self.choose_levels(&mut store, ingested, seqno);
            let straight = placed.iter().filter(|(run, _)| run.is_none());
            last_level_bytes += straight.map(|(_, r)| r.file_bytes).sum::<u64>();
            let id = ingested.tree.id;
            let groups = &store.state().keyspaces[&id].groups;
            let table_bytes = self.options.table_bytes;
            edit.groups
                .extend(plan_ingest(id, groups, &placed, table_bytes));
        }
        let named: Vec<&[NewTable]> = trees.iter().map(|t| &t.tables[..]).collect();
        store.append_naming(self, &edit, &named)?;
        for ingested in trees {
            let tables = ingested.tables.iter();
            tables.for_each(|t| t.table.raise_seqnos(seqno));
            store.add_tables(&ingested.tables);
            let version = store.next_version(&ingested.tree);
            // Before its number is published: rows come to life that no put announces.
            ingested.tree.dead.clear(seqno);
            ingested.tree.change(|state| {
                debug_assert!(
                    !state.has_memtable_rows(),
                    "memtables would hide the tables"
                );
                state.version = version;
            });
        }
        store.note_sizes(self);
        Ok(last_level_bytes)
    }

    /// The last level for tables that have their range to themselves, a new upper run each for the others: two of
    /// them may come into one group, which lists a run once.
    fn choose_levels(&self, store: &mut Store, of: &IngestedTree, seqno: SeqNo) -> Vec<Placed> {
        let mut placed = Vec::with_capacity(of.tables.len());
        for table in &of.tables {
            let mut record = table.record.clone();
            record.global_seqno = Some(seqno);
            let groups = &store.state().keyspaces[&of.tree.id].groups;
            let is_busy = |low: &[u8]| self.jobs.is_busy(&of.tree, low);
            let straight = fits_last_level(groups, &record, is_busy);
            let run = (!straight).then(|| store.next_run());
            placed.push((run, record));
        }
        placed
    }
}

/// What came for each keyspace.
fn marker(trees: &[IngestedTree]) -> Vec<u8> {
    let parts: Vec<IngestedPart> = trees
        .iter()
        .map(|ingested| IngestedPart {
            keyspace: ingested.tree.id,
            rows: ingested.tables.iter().map(|t| t.record.entries).sum(),
            tables: ingested.tables.len() as u64,
        })
        .collect();
    ingest_marker(&parts)
}
