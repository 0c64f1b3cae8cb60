//! Preparing and rolling back of transactions with writes in tables. Their commit installs the
//! tables: `db/install_ingest.rs`.
//!
//! Order of a prepare: tables written, synced and their directory synced (by the caller), log
//! synced, edit with the id and the tables synced. So the transaction is prepared after every
//! earlier commit, as by a record in the log. A crash before the edit is durable leaves files that
//! nothing names.

use std::sync::Arc;

use crate::commit::prepared::{Phase, PreparedState};
use crate::compaction::output::{NewTable, TreeTables};
use crate::db::ballast::Taker;
use crate::db::shared::Shared;
use crate::error::Result;
use crate::version::{PreparedTables, VersionEdit};

impl Shared {
    /// Records a transaction as prepared, or discards its tables.
    pub fn prepare_tables(&self, state: PreparedState) -> Result<Arc<PreparedState>> {
        let state = Arc::new(state);
        let trees = state.trees();
        // A checkpoint must not have a transaction that was prepared after its commit.
        let _no_capture = self.drops.lock();
        let mut log = self.commits.log.lock();
        let env = &self.commits.env;
        self.core
            .access
            .check_writable()
            .and_then(|()| log.admit_phase(env, Phase::Prepare, &state, &[]))
            .and_then(|()| log.sync(env))
            .inspect_err(|_| TreeTables::discard(&self.core, trees))?;
        let tables = trees.iter().flat_map(|part| {
            let tables = part.tables.iter();
            tables.map(|new| (part.tree.id, new.record.clone()))
        });
        let prepared = PreparedTables {
            xid: state.xid.clone(),
            tables: tables.collect(),
        };
        let edit = VersionEdit {
            next_table: Some(self.core.files.peek_next_table()),
            prepared_tables: vec![prepared],
            ..VersionEdit::default()
        };
        let named: Vec<&[NewTable]> = trees.iter().map(|part| &part.tables[..]).collect();
        let mut store = self.store.lock();
        store.append_naming(&self.core, &edit, &named)?;
        named.iter().for_each(|tables| store.add_tables(tables));
        store.note_sizes(&self.core);
        drop(store);
        log.unresolved.add(Arc::clone(&state), true);
        Ok(state)
    }

    /// Rolls a transaction back that is prepared in tables, and removes them.
    pub fn roll_back_tables(&self, state: &Arc<PreparedState>) -> Result<()> {
        let _no_capture = self.drops.lock();
        let mut log = self.commits.log.lock();
        self.core.access.check_writable()?;
        log.check_unresolved(state)?;
        let edit = VersionEdit {
            resolved: vec![state.xid.clone()],
            ..VersionEdit::default()
        };
        let mut store = self.store.lock();
        self.ballast
            .run(Taker::Log, || store.append(&self.core.poison, &edit))?;
        store.release_unnamed(&self.core);
        log.unresolved.remove(&state.xid);
        Ok(())
    }
}
