//! Store: the durable list of tables, made of the manifest, its state and the open tables, with the
//! only functions that change them.
//!
//! Every change takes the same steps. It builds an edit against the current state, then appends and
//! syncs it; the manifest refuses an edit that does not fit. Then it publishes the new versions and
//! releases everything that the edit no longer names. A failed append poisons the database. Files
//! of tables without a name in the manifest are deleted after their last reader: see `removals`.

use crate::sync::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::{KeyspaceId, SeqNo, TableId};
use crate::compaction::output::{NewTable, discard};
use crate::db::core::Core;
use crate::db::poison::Poison;
use crate::error::Result;
use crate::keyspace::tree::Tree;
use crate::table::{Table, ValueFiles};
use crate::version::group::{Group, Upper, Version};
use crate::version::{GroupState, Manifest, ManifestState, TableRecord, VersionEdit};

/// Manifest and open tables, see the module.
pub(crate) struct Store {
    manifest: Manifest,
    /// Every table that the manifest state names.
    tables: HashMap<TableId, Arc<Table>>,
    /// Newest run number assigned.
    last_run: u64,
    /// Newest commit that a flush since the open has put into tables; 0 before the first flush.
    flushed_to: SeqNo,
    /// Records of the prepared transactions that were unresolved after `flushed_to`.
    flushed_prepared: Vec<Arc<[u8]>>,
}

impl Store {
    pub fn new(manifest: Manifest, tables: HashMap<TableId, Arc<Table>>) -> Store {
        let runs = manifest
            .state()
            .keyspaces
            .values()
            .flat_map(|k| k.groups.values());
        let last_run = runs
            .flat_map(|g| &g.upper)
            .map(|(run, _)| *run)
            .max()
            .unwrap_or(0);
        Store {
            manifest,
            tables,
            last_run,
            flushed_to: 0,
            flushed_prepared: Vec::new(),
        }
    }

    pub fn database_uid(&self) -> u64 {
        self.manifest.database_uid()
    }

    pub fn state(&self) -> &ManifestState {
        self.manifest.state()
    }

    /// Returns the commit up to which all commits, and no later ones, are in tables; 0 before the
    /// first flush since the open.
    pub fn flushed_to(&self) -> SeqNo {
        self.flushed_to
    }

    /// Records that all commits up to `upto` are in tables, with the prepared transactions
    /// unresolved after it.
    pub fn note_flushed(&mut self, upto: SeqNo, prepared: &[Arc<[u8]>]) {
        self.flushed_to = upto;
        self.flushed_prepared = prepared.to_vec();
    }

    /// Returns the prepared transactions that were unresolved after [`Store::flushed_to`].
    pub fn flushed_prepared(&self) -> &[Arc<[u8]>] {
        &self.flushed_prepared
    }

    /// Returns a table that the state names. `None` only after a failed edit, see
    /// [`Store::append`].
    pub fn table(&self, id: TableId) -> Option<Arc<Table>> {
        self.tables.get(&id).map(Arc::clone)
    }

    /// Appends an edit durably.
    ///
    /// After an error that changed nothing, such as `NoSpace`, the state in memory is unchanged
    /// too. Any other error poisons the database. Then the state may include the edit, as the file
    /// may, and name tables that are not open.
    pub fn append(&mut self, poison: &Poison, edit: &VersionEdit) -> Result<()> {
        poison.check()?;
        poison.guard(self.manifest.append(edit))
    }

    /// Returns the confirmed time to record in an edit, if rows expire. Stored time never goes
    /// back, so only a confirmed time is stored.
    pub fn read_clock(core: &Core) -> Option<u64> {
        let clock = &core.clock;
        let confirmed = clock.in_use().then(|| clock.confirmed());
        confirmed.filter(|confirmed| *confirmed > 0)
    }

    /// Appends an edit that names these new tables, as [`Store::append`] does. Deletes their files
    /// if the edit is certainly not on the device. After a failed write or sync it may be, and then
    /// the next open needs them.
    pub fn append_naming(
        &mut self,
        core: &Core,
        edit: &VersionEdit,
        tables: &[&[NewTable]],
    ) -> Result<()> {
        let unwritten = core.poison.check().is_err();
        self.append(&core.poison, edit).inspect_err(|error| {
            if unwritten || error.may_be_retried() {
                tables.iter().for_each(|tables| discard(core, tables));
            }
        })
    }

    /// Returns a run number newer than all others.
    pub fn next_run(&mut self) -> u64 {
        self.last_run += 1;
        self.last_run
    }

    /// Returns the newest version of a keyspace's tables, with the scan costs of unchanged groups
    /// carried over from the current one.
    pub fn next_version(&self, tree: &Tree) -> Arc<Version> {
        Arc::new(self.version(tree.id).after(&tree.load().version))
    }

    /// Returns the newest version of a keyspace's tables.
    pub fn version(&self, keyspace: KeyspaceId) -> Version {
        let Some(state) = self.state().keyspaces.get(&keyspace) else {
            return Version::empty();
        };
        let groups = state
            .groups
            .iter()
            .map(|(low, group)| Arc::new(self.group(low, group)));
        Version::new(groups.collect())
    }

    fn group(&self, low: &[u8], state: &GroupState) -> Group {
        let open = |record: &TableRecord| Arc::clone(&self.tables[&record.id]);
        let upper = state.upper.iter().map(|(run, r)| Upper {
            run: *run,
            table: open(r),
            shared_by: 1,
        });
        Group {
            low: low.to_vec(),
            upper: upper.collect(),
            last: state.last.iter().map(open).collect(),
            scan_cost: Arc::default(),
        }
    }

    /// Releases tables that the state no longer names; their files are removed after their last
    /// reader.
    pub fn release_unnamed(&mut self, core: &Core) {
        let named: HashSet<TableId> = self.manifest.state().table_ids().collect();
        let mut released: ValueFiles = ValueFiles::default();
        self.tables.retain(|id, table| {
            let keep = named.contains(id);
            if !keep {
                let files = table.value_files().iter();
                released.extend(files.map(|(id, file)| (*id, Arc::clone(file))));
            }
            if !keep {
                let path = core.files.path(id.to_string());
                table.mark_obsolete(core.files.removals.leave(path, Some(*id)));
            }
            keep
        });
        self.release_values(core, released);
        self.note_sizes(core);
    }

    /// Releases the value files among these that no table points into any more.
    fn release_values(&self, core: &Core, mut released: ValueFiles) {
        if released.is_empty() {
            return;
        }
        for table in self.tables.values() {
            let named = table.value_files().keys();
            named.for_each(|id| drop(released.remove(id)));
        }
        for (id, file) in released {
            let path = core.files.path(id.to_string());
            file.mark_obsolete(core.files.removals.leave(path, None));
        }
    }

    /// Publishes the total table sizes to the rest of the engine. Those of prepared transactions
    /// are part of no tree, so they are no work for compactions.
    pub fn note_sizes(&self, core: &Core) {
        let prepared = self.state().prepared_tables.values().flatten();
        let prepared_bytes: u64 = prepared.map(|(_, record)| record.file_bytes).sum();
        let groups = self.state().keyspaces.values();
        let last = groups.flat_map(|k| k.groups.values()).flat_map(|g| &g.last);
        let last_bytes = last.map(|r| r.file_bytes).sum();
        let all: u64 = self.tables.values().map(|t| t.file_bytes()).sum();
        core.backlog
            .sizes
            .set(all.saturating_sub(prepared_bytes + last_bytes), last_bytes);
    }

    pub fn add_tables(&mut self, tables: &[NewTable]) {
        self.tables
            .extend(tables.iter().map(|t| (t.record.id, Arc::clone(&t.table))));
    }
}
