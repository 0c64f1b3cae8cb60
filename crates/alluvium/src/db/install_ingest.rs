//! Installing an ingest: all its tables enter the tree at one position in the commit order, with
//! one manifest edit.
//!
//! Ingested rows have no sequence number of their own. The manifest gives each table the number of
//! the ingest, and readers and compactions use the larger of the two, so older snapshots do not see
//! the rows. Readers search memtables before tables, so at that moment the affected keyspaces must
//! have no rows in memtables. These are flushed first, and once more under the log's lock, where no
//! row can be added.
//!
//! Order: tables written, synced and their directory synced (by the caller), memtables flushed,
//! marker in the log, log synced up to it, edit synced, trees replaced, number published. A crash
//! before the edit is durable leaves files that nothing names; replay skips the marker.

use std::sync::Arc;

use crate::base::SeqNo;
use crate::commit::Log;
use crate::commit::marker::{IngestedPart, ingest_marker};
use crate::commit::prepared::PreparedState;
use crate::compaction::output::{NewTable, TreeTables};
use crate::db::ballast::Taker;
use crate::db::options::Durability;
use crate::db::shared::Shared;
use crate::db::split::{Placed, fits_last_level, plan_ingest};
use crate::db::store::Store;
use crate::error::Result;
use crate::version::VersionEdit;

/// Result of an installed ingest.
#[derive(Default)]
pub(crate) struct Installed {
    pub seqno: SeqNo,
    /// Bytes that went straight into the last level.
    pub last_level_bytes: u64,
}

impl Shared {
    /// Installs the tables of an ingest, or discards them. The caller has synced the directory.
    pub fn install_ingest(&self, trees: &[TreeTables]) -> Result<Installed> {
        // A checkpoint captures the tables as they are. They must not contain an ingest newer than
        // the checkpoint's commit.
        let _no_capture = self.drops.lock();
        let mut log = self.commits.log.lock();
        let seqno = self
            .make_place(&mut log, trees)
            .inspect_err(|_| TreeTables::discard(&self.core, trees))?;
        let named: Vec<&[NewTable]> = trees.iter().map(|t| &t.tables[..]).collect();
        let last_level_bytes = self.place(trees, seqno, |store, edit| {
            store.append_naming(&self.core, edit, &named)
        });
        // Published even if the edit found no space: the number is in the log, and nothing else has
        // it.
        self.commits.env.progress.publish(seqno);
        drop(log);
        self.announce(trees);
        Ok(Installed {
            seqno,
            last_level_bytes: last_level_bytes?,
        })
    }

    /// Installs the tables of a prepared transaction as its commit. Returns its number. After an
    /// error that poisons nothing it stays prepared. No keyspace of its tables was dropped since: a
    /// drop is refused while it is undecided.
    pub fn commit_tables(&self, state: &Arc<PreparedState>) -> Result<SeqNo> {
        let trees = state.trees();
        let _no_capture = self.drops.lock();
        let mut log = self.commits.log.lock();
        log.check_unresolved(state)?;
        let seqno = self.make_place(&mut log, trees)?;
        let placed = self.place(trees, seqno, |store, edit| {
            edit.resolved.push(state.xid.clone());
            let append = || store.append(&self.core.poison, edit);
            self.ballast.run(Taker::Log, append)
        });
        if placed.is_ok() {
            log.unresolved.remove(&state.xid);
        }
        self.commits.env.progress.publish(seqno);
        drop(log);
        self.announce(trees);
        placed.map(|_| seqno)
    }

    /// Lets readers and compactions know of installed tables.
    fn announce(&self, trees: &[TreeTables]) {
        let trees = trees.iter().map(|t| &t.tree);
        trees.for_each(|tree| self.core.release_cursors(tree));
        self.core.update_admission();
        self.jobs.wake();
    }

    /// Flushes the memtables that would hide the tables, and reserves an unpublished sequence
    /// number for them.
    fn make_place(&self, log: &mut Log, trees: &[TreeTables]) -> Result<SeqNo> {
        self.core.access.check_writable()?;
        trees.iter().try_for_each(|t| t.tree.check())?;
        // Without a log, the edit is durable at once and must not overtake earlier commits.
        let unlogged = self.core.options.durability == Durability::None;
        if unlogged || trees.iter().any(|t| t.tree.load().has_memtable_rows()) {
            self.flushes.wait_after_failure()?;
            log.seal(&self.commits.env)?;
            self.flushes.wait()?;
        }
        log.mark_ingest(&self.commits.env, &marker(trees))
    }

    /// Installs the tables at `seqno` with an edit, which `append` makes durable. Returns their
    /// bytes in the last level.
    fn place(
        &self,
        trees: &[TreeTables],
        seqno: SeqNo,
        append: impl FnOnce(&mut Store, &mut VersionEdit) -> Result<()>,
    ) -> Result<u64> {
        let mut store = self.store.lock();
        let mut edit = VersionEdit {
            next_table: Some(self.core.files.peek_next_table()),
            last_seqno: Some(seqno),
            read_clock_ms: Store::read_clock(&self.core),
            ..VersionEdit::default()
        };
        let mut last_level_bytes = 0;
        for ingested in trees {
            let placed = self.choose_levels(&mut store, ingested, seqno);
            let straight = placed.iter().filter(|(run, _)| run.is_none());
            last_level_bytes += straight.map(|(_, r)| r.file_bytes).sum::<u64>();
            let id = ingested.tree.id;
            let groups = &store.state().keyspaces[&id].groups;
            let table_bytes = self.core.options.table_bytes;
            edit.groups
                .extend(plan_ingest(id, groups, &placed, table_bytes));
        }
        append(&mut store, &mut edit)?;
        for ingested in trees {
            let tables = ingested.tables.iter();
            tables.for_each(|t| t.table.raise_seqnos(seqno));
            store.add_tables(&ingested.tables);
            let version = store.next_version(&ingested.tree);
            // Before the number is published: the ingest brings rows into dead intervals without a
            // put.
            ingested.tree.dead.clear(seqno);
            ingested.tree.change(|state| {
                debug_assert!(
                    !state.has_memtable_rows(),
                    "memtables would hide the tables"
                );
                state.version = version;
            });
        }
        store.note_sizes(&self.core);
        Ok(last_level_bytes)
    }

    /// Assigns the last level to tables without overlaps, and a new upper run to each of the
    /// others. Two of them may go into the same group, which lists a run only once.
    fn choose_levels(&self, store: &mut Store, of: &TreeTables, seqno: SeqNo) -> Vec<Placed> {
        let mut placed = Vec::with_capacity(of.tables.len());
        for table in &of.tables {
            let mut record = table.record.clone();
            record.global_seqno = Some(seqno);
            let groups = &store.state().keyspaces[&of.tree.id].groups;
            let is_busy = |low: &[u8]| self.jobs.is_busy(&of.tree, low);
            // A last level has no deletes: nothing is below it.
            let straight = record.tombstones == 0 && fits_last_level(groups, &record, is_busy);
            let run = (!straight).then(|| store.next_run());
            placed.push((run, record));
        }
        placed
    }
}

/// Returns the log marker with the rows and tables of each keyspace.
fn marker(trees: &[TreeTables]) -> Vec<u8> {
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
