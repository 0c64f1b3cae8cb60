//! Prepared transactions that the manifest holds: those of a copy without a log, and those in
//! tables.

use std::path::Path;
use std::sync::Arc;

use crate::base::KeyspaceId;
use crate::commit::Log;
use crate::commit::prepared::PreparedState;
use crate::compaction::output::{NewTable, TreeTables};
use crate::db::options::Options;
use crate::db::store::Store;
use crate::error::{Error, Result};
use crate::keyspace::tree::Tree;
use crate::sync::collections::HashMap;
use crate::txn::layers::Spilled;
use crate::txn::lock_table::TxnId;
use crate::version::ManifestState;
use crate::wal::RecordKind;

/// Reads the prepared transactions of a copy that has no log yet. Called before replay: the log may
/// contain them already, if an earlier open stopped after writing them and before recording it.
pub(super) fn read_prepared(
    dir: &Path,
    options: &Options,
    state: &ManifestState,
    log: &mut Log,
) -> Result<()> {
    for body in &state.prepared {
        let (kind, durability) = (RecordKind::Prepare, options.durability);
        let read = log.replay_phase(None, kind, body, state.next_keyspace, durability);
        read.map_err(|found| {
            let (what, expected) = ("prepared transaction", "operations on known keyspaces");
            Error::corruption(&dir.join("CURRENT"), 0, what, expected, found)
        })?;
    }
    Ok(())
}

/// Reads the transactions that are prepared in tables.
pub(super) fn read_prepared_tables(
    options: &Options,
    store: &Store,
    trees: &HashMap<KeyspaceId, Arc<Tree>>,
    log: &mut Log,
) -> Result<()> {
    for (xid, tables) in &store.state().prepared_tables {
        let mut parts: Vec<TreeTables> = Vec::new();
        for (id, record) in tables {
            let missing = || Error::Internal(format!("table {} of {id} is not open", record.id));
            let tree = trees.get(id).ok_or_else(missing)?;
            let table = NewTable {
                record: record.clone(),
                table: store.table(record.id).ok_or_else(missing)?,
                below: None,
                values: Vec::new(),
            };
            match parts.last_mut().filter(|part| part.tree.id == *id) {
                Some(part) => part.tables.push(table),
                None => parts.push(TreeTables {
                    tree: Arc::clone(tree),
                    tables: vec![table],
                }),
            }
        }
        // `RowLocks::lock_prepared` gives it an owner and lists its rows.
        let spilled = Arc::new(Spilled::new(TxnId(0)));
        let state = PreparedState::in_tables(xid, parts, spilled, options.durability);
        log.unresolved.add_read(Arc::new(state), None);
    }
    Ok(())
}
