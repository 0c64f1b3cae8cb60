//! Transactions: row locks and the ordered set of a transaction's own writes.

pub mod lock_table;
pub mod write_set;

pub use lock_table::{
    Granted, LockCancel, LockFailure, LockHash, LockMode, LockTable, LockWait, OnWait, TxnId,
};
pub use write_set::{SavepointId, View, WriteEntry, WriteSet};
