//! Transactions: row locks, the ordered set of a transaction's own writes, isolation, savepoints, commit.

pub(crate) mod lock_table;
mod transaction;
pub(crate) mod write_cursor;
pub(crate) mod write_set;

pub use lock_table::{LockCancel, LockMode};
pub use transaction::{Isolation, Savepoint, Transaction, TransactionOptions};
