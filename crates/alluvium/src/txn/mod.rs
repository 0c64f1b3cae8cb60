//! Transactions: row locks, own writes, read sets, isolation, savepoints, and commit in one or two
//! phases.

mod batch;
mod finish;
pub(crate) mod lock_table;
mod prepared;
pub(crate) mod read_set;
mod transaction;
mod write;
pub(crate) mod write_cursor;
pub(crate) mod write_set;

pub use batch::WriteBatch;
pub use lock_table::{LockCancel, LockMode};
pub use prepared::PreparedTransaction;
pub use transaction::{Isolation, Savepoint, Transaction, TransactionOptions};
