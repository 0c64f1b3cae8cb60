//! Transactions: row locks, own writes, read sets, isolation, savepoints, and commit in one or two
//! phases.

mod batch;
mod finish;
mod layer_writer;
pub(crate) mod layers;
pub(crate) mod lock_table;
pub(crate) mod lock_waits;
mod prepared;
pub(crate) mod read_set;
mod spill;
mod statement;
mod transaction;
mod write;
pub(crate) mod write_cursor;
pub(crate) mod write_set;

pub use batch::WriteBatch;
pub use lock_table::{LockCancel, LockMode};
pub use lock_waits::{LockOwner, LockWaitInfo, LockWaitListener};
pub use prepared::PreparedTransaction;
pub use transaction::{Isolation, Savepoint, Transaction, TransactionOptions};
