//! Store: the durable list of tables, made of the manifest, its state and the open tables, with the
//! only functions that change them.
//!
//! Every change takes the same steps. It builds an edit against the current state, then appends and
//! syncs it; the manifest refuses an edit that does not fit. Then it publishes the new versions and
//! releases everything that the edit no longer names. A failed append poisons the database. Files
//! of tables without a name in the manifest are deleted after their last reader: see `removals`.

use crate::sync::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{KeyspaceId, SeqNo, TableId};
use crate::compaction::output::{NewTable, discard};
use crate::compaction::{Compacted, Inputs};
use crate::db::poison::Poison;
use crate::db::shared::Shared;
use crate::db::split::plan_split;
use crate::error::Result;
use crate::keyspace::tree::Tree;
use crate::table::{Table, ValueFiles};
use crate::version::group::{Group, Upper, Version};
use crate::version::{GroupEdit, GroupState, Manifest, ManifestState, TableRecord, VersionEdit};

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

/// Total bytes of all tables, for threads that must not visit every group. Relaxed: a reader may
/// see one number from before an edit and the other from after it.
#[derive(Debug, Default)]
pub(crate) struct TableSizes {
    upper: AtomicU64,
    last: AtomicU64,
}

impl TableSizes {
    fn set(&self, upper: u64, last: u64) {
        self.upper.store(upper, Ordering::Relaxed);
        self.last.store(last, Ordering::Relaxed);
    }

    /// Bytes of tables above the last level.
    pub fn upper_bytes(&self) -> u64 {
        self.upper.load(Ordering::Relaxed)
    }

    /// Bytes of last-level tables.
    pub fn last_bytes(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
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
    pub fn read_clock(shared: &Shared) -> Option<u64> {
        let clock = &shared.clock;
        let confirmed = clock.in_use().then(|| clock.confirmed());
        confirmed.filter(|confirmed| *confirmed > 0)
    }

    /// Appends an edit that names these new tables, as [`Store::append`] does. Deletes their files
    /// if the edit is certainly not on the device. After a failed write or sync it may be, and then
    /// the next open needs them.
    pub fn append_naming(
        &mut self,
        shared: &Shared,
        edit: &VersionEdit,
        tables: &[&[NewTable]],
    ) -> Result<()> {
        let unwritten = shared.poison.check().is_err();
        self.append(&shared.poison, edit).inspect_err(|error| {
            if unwritten || error.may_be_retried() {
                tables.iter().for_each(|tables| discard(shared, tables));
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
    pub fn release_unnamed(&mut self, shared: &Shared) {
        let named: HashSet<TableId> = self.manifest.state().table_ids().collect();
        let mut released: ValueFiles = ValueFiles::default();
        self.tables.retain(|id, table| {
            let keep = named.contains(id);
            if !keep {
                let files = table.value_files().iter();
                released.extend(files.map(|(id, file)| (*id, Arc::clone(file))));
            }
            if !keep {
                let path = shared.path(id.to_string());
                table.mark_obsolete(shared.removals.leave(path, Some(*id)));
            }
            keep
        });
        self.release_values(shared, released);
        self.note_sizes(shared);
    }

    /// Releases the value files among these that no table points into any more.
    fn release_values(&self, shared: &Shared, mut released: ValueFiles) {
        if released.is_empty() {
            return;
        }
        for table in self.tables.values() {
            let named = table.value_files().keys();
            named.for_each(|id| drop(released.remove(id)));
        }
        for (id, file) in released {
            let path = shared.path(id.to_string());
            file.mark_obsolete(shared.removals.leave(path, None));
        }
    }

    /// Publishes the total table sizes to the rest of the engine.
    pub fn note_sizes(&self, shared: &Shared) {
        let groups = self.state().keyspaces.values();
        let last = groups.flat_map(|k| k.groups.values()).flat_map(|g| &g.last);
        let last_bytes = last.map(|r| r.file_bytes).sum();
        let all: u64 = self.tables.values().map(|t| t.file_bytes()).sum();
        shared
            .table_sizes
            .set(all.saturating_sub(last_bytes), last_bytes);
    }

    pub fn add_tables(&mut self, tables: &[NewTable]) {
        self.tables
            .extend(tables.iter().map(|t| (t.record.id, Arc::clone(&t.table))));
    }
}

impl Shared {
    /// Installs a compaction. Discards its outputs if its inputs have changed.
    pub fn install_compaction(
        &self,
        tree: &Arc<Tree>,
        inputs: &Inputs,
        merged: Compacted,
    ) -> Result<()> {
        let mut store = self.store.lock();
        let outputs = match merged {
            Compacted::LastLevel(ref tables) => tables.as_slice(),
            Compacted::Upper { ref table, .. } => table.as_slice(),
        };
        let Some(edits) = compaction_edits(self, &store, inputs, &merged) else {
            discard(self, outputs);
            return Ok(());
        };
        let edit = VersionEdit {
            next_table: Some(self.peek_next_table()),
            groups: edits,
            read_clock_ms: Store::read_clock(self),
            ..VersionEdit::default()
        };
        store.append_naming(self, &edit, &[outputs])?;
        let bytes = outputs.iter().map(|t| t.record.file_bytes).sum();
        match merged {
            Compacted::LastLevel(_) => tree.counters.last_bytes.add(bytes),
            Compacted::Upper { .. } => tree.counters.tier_bytes.add(bytes),
        }
        store.add_tables(outputs);
        let version = store.next_version(tree);
        tree.change(|state| state.version = version);
        store.release_unnamed(self);
        drop(store);
        self.release_cursors(tree);
        Ok(())
    }

    /// Makes resting cursors release everything that the newest change of the tree has replaced.
    /// Called without locks, because it may remove files.
    pub fn release_cursors(&self, tree: &Tree) {
        self.metrics.cursors_released.add(tree.cursors.release());
    }
}

/// Returns the edits of a finished compaction; `None` if its inputs have changed.
fn compaction_edits(
    shared: &Shared,
    store: &Store,
    inputs: &Inputs,
    merged: &Compacted,
) -> Option<Vec<GroupEdit>> {
    let keyspace = inputs.keyspace;
    let groups = &store.state().keyspaces.get(&keyspace)?.groups;
    let group = groups.get(&inputs.low)?;
    if groups.high_of(&inputs.low) != inputs.high.as_deref() {
        return None;
    }
    let has_upper = |id: &TableId| group.upper.iter().any(|(_, r)| r.id == *id);
    let same_last = group
        .last
        .iter()
        .map(|r| r.id)
        .eq(inputs.last.iter().copied());
    let intact = inputs.upper.iter().all(has_upper);
    if !intact || (matches!(merged, Compacted::LastLevel(_)) && !same_last) {
        return None;
    }
    let low = || inputs.low.clone();
    let mut edits: Vec<GroupEdit> = inputs
        .upper
        .iter()
        .map(|&table| GroupEdit::RemoveUpper {
            keyspace,
            low: low(),
            table,
        })
        .collect();
    match merged {
        Compacted::Upper { run, table } => {
            edits.extend(table.iter().map(|t| GroupEdit::AddUpper {
                keyspace,
                low: low(),
                table: t.record.clone(),
                run: *run,
            }))
        }
        Compacted::LastLevel(tables) => {
            edits.extend(inputs.last.iter().map(|&table| GroupEdit::RemoveLast {
                keyspace,
                low: low(),
                table,
            }));
            let newer: Vec<_> = group
                .upper
                .iter()
                .filter(|(_, r)| !inputs.upper.contains(&r.id))
                .cloned()
                .collect();
            let records: Vec<_> = tables.iter().map(|t| t.record.clone()).collect();
            edits.extend(plan_split(
                keyspace,
                &inputs.low,
                &records,
                &newer,
                groups.last_bytes(),
                shared.options.table_bytes,
            ));
        }
    }
    Some(edits)
}
