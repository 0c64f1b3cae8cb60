//! Transactions: row locks, the ordered set of a transaction's own writes and the set of its reads, isolation,
//! savepoints, commit in one step or in two.

mod finish;
pub(crate) mod lock_table;
mod prepared;
pub(crate) mod read_set;
mod transaction;
mod write;
pub(crate) mod write_cursor;
pub(crate) mod write_set;

pub use lock_table::{LockCancel, LockMode};
pub use prepared::PreparedTransaction;
pub use transaction::{Isolation, Savepoint, Transaction, TransactionOptions};
