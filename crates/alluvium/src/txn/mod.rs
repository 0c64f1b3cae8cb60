//! Transactions: row locks, the ordered set of a transaction's own writes, isolation, savepoints, commit.

pub(crate) mod lock_table;
mod transaction;
mod write_cursor;
pub(crate) mod write_set;

pub use lock_table::{LockCancel, LockMode};
pub(crate) use lock_table::{LockHash, LockTable, LockWait, TxnId};
pub use transaction::{Isolation, Savepoint, Transaction, TransactionOptions};
pub(crate) use transaction::lock_error;
pub(crate) use write_cursor::WriteCursor;
pub(crate) use write_set::{WriteEntry, WriteSet};
