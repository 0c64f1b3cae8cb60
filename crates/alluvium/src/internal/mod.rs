//! Parts of the engine for the command line `alluvium`, the simulator and examples, hidden from the
//! documentation: they may change in any version.

pub mod dump;

use crate::error::Result;
use crate::txn::{PreparedTransaction, Transaction};

pub use crate::cache::Cache;
pub use crate::sync::{THREAD_SHARDS, thread_shard};
pub use crate::table::{
    Codec, FilterOptions, Table, TableBuilder, TableOptions, ValueFile, ValuesPart,
};
pub use crate::version::manifest;
pub use crate::version::{
    GroupEdit, GroupState, Manifest, ManifestState, TableRecord, VersionEdit, check_no_remains,
    random_uid,
};
pub use crate::wal::{RecordKind, WalWriter, parse_segment_name, replay};

/// Moves the writes of a transaction to files, as if it had outgrown its memory. Returns true if it
/// has writes in files then. Errors as for [`Transaction::put`].
pub fn spill(transaction: &Transaction) -> Result<bool> {
    transaction.spill_from(0)?;
    Ok(has_spilled(transaction))
}

/// Returns true if a transaction has writes in files, so that its commit is an ingest.
pub fn has_spilled(transaction: &Transaction) -> bool {
    transaction.has_layers()
}

/// Returns true if a transaction is prepared in tables, so that its commit is an ingest.
pub fn is_in_tables(prepared: &PreparedTransaction) -> bool {
    prepared.is_in_tables()
}
