//! Alluvium: an embedded, transactional, write-optimised storage engine.
//!
//! A [`Database`] is a directory; a [`Keyspace`] is an ordered map in it from byte keys to byte values. Writes go
//! to a write-ahead log and to memory, are flushed as sorted tables and merged in the background. Reads see one
//! commit's state: the newest, a [`Snapshot`]'s or a [`Transaction`]'s.
//!
//! Reading order of the modules: `base`, `vfs`, `wal`, `table` with `cache`, `version`, `read_points`, `keyspace`,
//! `iter`, `commit`, `flush`, `compaction`, `recovery`, `txn`, `db`, `verify`, `backup`, `repair`.
#![forbid(unsafe_code)]

mod admission;
pub mod backup;
pub mod base;
#[doc(hidden)]
pub mod cache;
mod clock;
mod commit;
mod compaction;
mod db;
#[doc(hidden)]
pub mod dump;
mod error;
mod event;
mod flush;
mod ingest;
mod iter;
mod keyspace;
mod metrics;
#[doc(hidden)]
pub mod range_deletes;
mod read_points;
mod recovery;
mod repair;
mod snapshot;
#[doc(hidden)]
pub mod sync;
#[doc(hidden)]
pub mod table;
mod txn;
mod verify;
#[doc(hidden)]
pub mod version;
pub mod vfs;
#[doc(hidden)]
pub mod wal;

pub use base::{KEY_BYTES_MAX, KeyspaceId, SeqNo, VALUE_BYTES_MAX};
pub use clock::Clock;
pub use commit::WriteBatch;
pub use commit::prepared::XID_BYTES_MAX;
pub use compaction::{CompactionFilter, FilterDecision};
pub use db::{
    Amplification, CheckpointInfo, Compared, Database, Durability, Histogram,
    KeyspaceAmplification, KeyspaceStats, Options, Stats, WriteOptions,
};
pub use error::{Error, Result};
pub use event::{Event, EventListener};
pub use ingest::{BulkLoad, BulkLoadOptions, Duplicates, Ingest, Ingested};
pub use iter::{Cursor, CursorOptions};
pub use keyspace::{Compression, Expiry, Keyspace, KeyspaceOptions, RangeEstimate};
pub use repair::{LostRange, RepairReport, repair, repair_on};
pub use snapshot::Snapshot;
pub use table::PinnedValue as Value;
pub use txn::{
    Isolation, LockCancel, LockMode, PreparedTransaction, Savepoint, Transaction,
    TransactionOptions,
};
pub use verify::{VerifyReport, WrongInsert};
