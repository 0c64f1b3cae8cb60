//! Alluvium: an embedded, transactional, write-optimized storage engine.
//!
//! A [`Database`] is a directory; a [`Keyspace`] is an ordered map in it from byte keys to byte
//! values. Writes go to a write-ahead log and to memory, are flushed as sorted tables and compacted
//! in the background. Reads see one commit's state: the newest, a [`Snapshot`]'s or a
//! [`Transaction`]'s.
//!
//! ```
//! use alluvium::{CursorOptions, Database, Error, Isolation, KeyspaceOptions, Options, WriteBatch};
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path();
//! let db = Database::open(path, Options::default())?;
//! let users = db.keyspace("users", KeyspaceOptions::default())?;
//! let by_city = db.keyspace("users by city", KeyspaceOptions::default())?;
//!
//! // A commit of one write, and one of several over two keyspaces.
//! users.put(b"ann", b"Oslo")?;
//! let mut batch = WriteBatch::new();
//! batch.put(&users, b"bob", b"Bern")?;
//! batch.put(&by_city, b"Bern/bob", b"")?;
//! db.write(&batch)?;
//!
//! // What depends on a read is a transaction, run again after a conflict.
//! let moved = loop {
//!     let txn = db.begin(Isolation::Snapshot)?;
//!     let result = (|| {
//!         let city = txn.get_for_update(&users, b"ann")?;
//!         txn.put(&users, b"ann", b"Bern")?;
//!         txn.put(&by_city, b"Bern/ann", b"")?;
//!         Ok(city)
//!     })();
//!     match result.and_then(|city| txn.commit().map(|()| city)) {
//!         Err(Error::Conflict { .. } | Error::Deadlock { .. }) => continue,
//!         other => break other?,
//!     }
//! };
//! assert_eq!(moved.as_deref(), Some(&b"Oslo"[..]));
//!
//! // A snapshot stays as it is; a cursor goes both ways.
//! let snapshot = db.snapshot()?;
//! by_city.delete_prefix(b"Bern/")?;
//! let mut cursor = snapshot.cursor(&by_city, CursorOptions::prefix(b"Bern/"))?;
//! assert!(cursor.seek_last()?);
//! assert_eq!(cursor.key(), b"Bern/bob");
//! assert!(cursor.prev()?);
//! assert_eq!(cursor.key(), b"Bern/ann");
//! assert!(by_city.get(b"Bern/ann")?.is_none());
//! db.close()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! [`Durability`] documents the guarantee of a returned commit, [`Error`] the reaction to each
//! failure, [`Options`] and [`KeyspaceOptions`] the settings. The guide, `docs/guide` of the
//! sources, has a page for each subject.
//!
//! Reading order of the modules: `base`, `vfs`, `wal`, `table` with `cache`, `version`,
//! `read_points`, `keyspace`, `iter`, `commit`, `flush`, `compaction`, `recovery`, `txn`, `db`,
//! `changes`, `verify`, `backup`, `repair`.
#![forbid(unsafe_code)]

mod admission;
pub mod backup;
pub mod base;
mod cache;
mod changes;
mod clock;
mod commit;
mod compaction;
mod db;
mod error;
mod event;
mod flush;
#[cfg(test)]
mod fuzz;
#[cfg(doctest)]
mod guide;
mod ingest;
#[doc(hidden)]
pub mod internal;
mod iter;
mod keyspace;
mod memory;
mod metrics;
mod range_deletes;
mod read_points;
mod recovery;
mod repair;
#[cfg(feature = "simulation")]
pub mod simulation;
mod snapshot;
mod sync;
mod table;
mod txn;
mod verify;
mod version;
pub mod vfs;
mod wal;

pub use base::{
    KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, KeyspaceId, SeqNo, VALUE_BYTES_MAX, XID_BYTES_MAX,
};
pub use changes::{Change, ChangeKind, ChangedKeyspace, Changes, ChangesOptions, Operation};
pub use clock::Clock;
pub use compaction::{CompactionFilter, FilterDecision};
pub use db::{
    Amplification, CheckpointInfo, Compared, Database, Durability, Histogram,
    KeyspaceAmplification, KeyspaceStats, MemoryUse, Options, Stats, WriteOptions, set_stored_time,
    set_stored_time_on,
};
pub use error::{Error, LockHolder, Result};
pub use event::{Event, EventListener};
pub use ingest::{BulkLoad, BulkLoadOptions, Duplicates, Ingest, Ingested};
pub use iter::{Cursor, CursorOptions};
pub use keyspace::{Compression, Expiry, Keyspace, KeyspaceOptions, RangeEstimate};
pub use repair::{LostRange, RepairReport, repair, repair_on};
pub use snapshot::Snapshot;
pub use table::PinnedValue as Value;
pub use txn::{
    Isolation, LockCancel, LockMode, LockOwner, LockWaitInfo, LockWaitListener,
    PreparedTransaction, Savepoint, Transaction, TransactionOptions, WriteBatch,
};
pub use verify::{VerifyReport, WrongInsert};
