//! Installing a compaction: its outputs replace its inputs, unless these have changed.

use std::sync::Arc;

use crate::base::{KeyspaceId, TableId};
use crate::compaction::env::CompactionEnv;
use crate::compaction::output::{NewTable, discard};
use crate::db::split::plan_split;
use crate::db::store::Store;
use crate::error::Result;
use crate::keyspace::tree::Tree;
use crate::version::{GroupEdit, VersionEdit};

/// Tables that a compaction replaces, as they were when it began. Newer upper tables stay as they
/// are.
pub(crate) struct Inputs {
    pub keyspace: KeyspaceId,
    pub low: Vec<u8>,
    /// Exclusive end of the group when the compaction began: an ingest may have split the group
    /// since.
    pub high: Option<Vec<u8>>,
    pub upper: Vec<TableId>,
    pub last: Vec<TableId>,
}

/// Output of a compaction, which replaces its inputs.
pub(crate) enum Compacted {
    /// New last level of the group, in key order.
    LastLevel(Vec<NewTable>),
    /// At most one upper table, which takes the place of the newest input with this run number.
    Upper { run: u64, table: Option<NewTable> },
}

impl Compacted {
    /// Returns the new tables of either kind.
    pub fn tables(&self) -> &[NewTable] {
        match self {
            Compacted::LastLevel(tables) => tables,
            Compacted::Upper { table, .. } => table.as_slice(),
        }
    }

    /// Returns the total size of the new files.
    pub fn bytes(&self) -> u64 {
        self.tables().iter().map(|t| t.record.file_bytes).sum()
    }
}

impl CompactionEnv {
    /// Installs a compaction. Discards its outputs if its inputs have changed.
    pub fn install(&self, tree: &Arc<Tree>, inputs: &Inputs, merged: Compacted) -> Result<()> {
        let core = &self.core;
        let mut store = self.store.lock();
        let outputs = merged.tables();
        let Some(edits) = compaction_edits(&store, inputs, &merged, core.options.table_bytes)
        else {
            discard(core, outputs);
            return Ok(());
        };
        let edit = VersionEdit {
            next_table: Some(core.files.peek_next_table()),
            groups: edits,
            read_clock_ms: Store::read_clock(core),
            ..VersionEdit::default()
        };
        store.append_naming(core, &edit, &[outputs])?;
        let bytes = merged.bytes();
        match merged {
            Compacted::LastLevel(_) => tree.counters.last_bytes.add(bytes),
            Compacted::Upper { .. } => tree.counters.tier_bytes.add(bytes),
        }
        store.add_tables(outputs);
        let version = store.next_version(tree);
        tree.change(|state| state.version = version);
        store.release_unnamed(core);
        drop(store);
        core.release_cursors(tree);
        Ok(())
    }
}

/// Returns the edits of a finished compaction; `None` if its inputs have changed.
fn compaction_edits(
    store: &Store,
    inputs: &Inputs,
    merged: &Compacted,
    table_bytes: u64,
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
                table_bytes,
            ));
        }
    }
    Some(edits)
}
