//! Two ways to open RocksDB: with transactions, or as the plain database if a workload has none.
//!
//! A `TransactionDB` locks each key of a put or a batch for its duration. The crate has neither the
//! option that turns this off nor RocksDB's batched `MultiGet` for it. A user without transactions
//! would open the plain database to avoid this cost.

use std::path::Path;
use std::sync::Arc;

use rocksdb::{
    BoundColumnFamily, ColumnFamilyDescriptor, DBAccess, DBRawIteratorWithThreadMode, Error,
    IngestExternalFileOptions, Options, ReadOptions, TransactionDBOptions,
    WriteBatchWithTransaction, WriteOptions, properties::PropName,
};
use rumbench_core::engine::{EngineError, Result};
use rumbench_core::kv::KvTxn;

use super::maps::{Plain, RocksMaps, Transactional, conflict_or};
use super::transaction::{CallOptions, NoTxn, RocksTxn};
use crate::error::failed;

/// Lock timeout of MyRocks. Deadlocks are detected at once, so only a stuck client waits this long.
const LOCK_TIMEOUT_MS: i64 = 1_000;

/// One write of a batch: its map, its key and the value, or `None` for a delete.
pub(super) type Write<'a> = (
    &'a Arc<BoundColumnFamily<'static>>,
    &'a [u8],
    Option<&'a [u8]>,
);

/// Common interface of both forms.
pub trait Database: DBAccess + Sized + Send + Sync + 'static {
    /// Value of `transactions` in the result.
    const TRANSACTIONS: &str;
    /// Value of `multi_get` in the result.
    const MULTI_GET: &str;

    /// `true` if tables can be ingested. The crate cannot ingest into a `TransactionDB`.
    const INGESTS: bool;

    /// Transaction type, or an uninhabited type if there are no transactions.
    type Txn<'a>: KvTxn;

    /// Opens or creates the database.
    fn open(
        options: &Options,
        dir: &Path,
        families: Vec<ColumnFamilyDescriptor>,
    ) -> Result<Self, Error>;

    /// Returns the handle of a column family.
    fn family(&self, name: &str) -> Option<Arc<BoundColumnFamily<'_>>>;

    /// Hands the log to the kernel, and waits for the device with `sync`.
    fn flush_log(&self, sync: bool) -> Result<(), Error>;

    /// Flushes the memtables of a column family.
    fn flush_family(&self, family: &Arc<BoundColumnFamily<'static>>) -> Result<(), Error>;

    /// Returns a numeric property of the whole database, or `None` if RocksDB does not know it.
    fn property(&self, name: &PropName) -> Option<u64>;

    /// Returns an iterator over a column family.
    fn rows(
        &self,
        family: &Arc<BoundColumnFamily<'static>>,
        options: ReadOptions,
    ) -> DBRawIteratorWithThreadMode<'_, Self>;

    /// Reads several keys of a column family; see [`rumbench_core::kv::KvConnection::multi_get`].
    fn read_several(
        &self,
        family: &Arc<BoundColumnFamily<'static>>,
        keys: &[&[u8]],
        options: &ReadOptions,
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()>;

    /// Writes one row.
    fn put_row(
        &self,
        family: &Arc<BoundColumnFamily<'static>>,
        row: (&[u8], &[u8]),
        options: &WriteOptions,
    ) -> Result<(), Error>;

    /// Writes all rows in one batch. Each key that it deletes was written once and is deleted once.
    fn write_all<'a>(
        &self,
        writes: impl Iterator<Item = Result<Write<'a>>>,
        options: &WriteOptions,
    ) -> Result<()>;

    /// Adds a finished table to a column family by moving the file, not copying it.
    fn ingest_file(&self, family: &Arc<BoundColumnFamily<'static>>, path: &Path) -> Result<()>;

    /// Begins a transaction.
    fn begin<'a>(shared: &'a RocksMaps<Self>, options: &'a CallOptions) -> Result<Self::Txn<'a>>;
}

/// Calls that both types have under the same name, but not by a common trait.
macro_rules! common_calls {
    () => {
        fn family(&self, name: &str) -> Option<Arc<BoundColumnFamily<'_>>> {
            self.cf_handle(name)
        }

        fn flush_log(&self, sync: bool) -> Result<(), Error> {
            self.flush_wal(sync)
        }

        fn flush_family(&self, family: &Arc<BoundColumnFamily<'static>>) -> Result<(), Error> {
            self.flush_cf(family)
        }

        fn property(&self, name: &PropName) -> Option<u64> {
            self.property_int_value(name).ok().flatten()
        }

        fn rows(
            &self,
            family: &Arc<BoundColumnFamily<'static>>,
            options: ReadOptions,
        ) -> DBRawIteratorWithThreadMode<'_, Self> {
            self.raw_iterator_cf_opt(family, options)
        }

        fn put_row(
            &self,
            family: &Arc<BoundColumnFamily<'static>>,
            (key, value): (&[u8], &[u8]),
            options: &WriteOptions,
        ) -> Result<(), Error> {
            self.put_cf_opt(family, key, value, options)
        }
    };
}

impl Database for Transactional {
    const TRANSACTIONS: &str = "pessimistic, row locks, deadlock detection, 1 s lock timeout";
    const MULTI_GET: &str = "a loop of pinned gets";
    const INGESTS: bool = false;

    type Txn<'a> = RocksTxn<'a>;

    common_calls!();

    fn open(
        options: &Options,
        dir: &Path,
        families: Vec<ColumnFamilyDescriptor>,
    ) -> Result<Self, Error> {
        let mut transactions = TransactionDBOptions::default();
        transactions.set_txn_lock_timeout(LOCK_TIMEOUT_MS);
        transactions.set_default_lock_timeout(LOCK_TIMEOUT_MS);
        Transactional::open_cf_descriptors(options, &transactions, dir, families)
    }

    fn read_several(
        &self,
        family: &Arc<BoundColumnFamily<'static>>,
        keys: &[&[u8]],
        options: &ReadOptions,
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (place, key) in keys.iter().enumerate() {
            let value = self.get_pinned_cf_opt(family, key, options);
            read(place, value.map_err(failed("rocksdb: get"))?.as_deref());
        }
        Ok(())
    }

    fn write_all<'a>(
        &self,
        writes: impl Iterator<Item = Result<Write<'a>>>,
        options: &WriteOptions,
    ) -> Result<()> {
        let batch = batch::<true>(writes, |batch, family, key| batch.delete_cf(family, key))?;
        self.write_opt(batch, options)
            .map_err(conflict_or("rocksdb: write batch"))
    }

    fn ingest_file(&self, _: &Arc<BoundColumnFamily<'static>>, _: &Path) -> Result<()> {
        Err(EngineError::Unsupported(
            "rocksdb ingests no tables in a database with transactions".to_owned(),
        ))
    }

    fn begin<'a>(shared: &'a RocksMaps<Self>, options: &'a CallOptions) -> Result<RocksTxn<'a>> {
        Ok(RocksTxn::begin(shared, options))
    }
}

impl Database for Plain {
    const TRANSACTIONS: &str = "none: the workload has none, so opened without";
    const MULTI_GET: &str = "one batched, pinned MultiGet";
    const INGESTS: bool = true;

    type Txn<'a> = NoTxn;

    common_calls!();

    fn open(
        options: &Options,
        dir: &Path,
        families: Vec<ColumnFamilyDescriptor>,
    ) -> Result<Self, Error> {
        Plain::open_cf_descriptors(options, dir, families)
    }

    fn read_several(
        &self,
        family: &Arc<BoundColumnFamily<'static>>,
        keys: &[&[u8]],
        options: &ReadOptions,
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        const SORTED: bool = false;
        let values = self.batched_multi_get_cf_opt(family, keys.iter(), SORTED, options);
        for (place, value) in values.into_iter().enumerate() {
            read(
                place,
                value.map_err(failed("rocksdb: multi-get"))?.as_deref(),
            );
        }
        Ok(())
    }

    fn write_all<'a>(
        &self,
        writes: impl Iterator<Item = Result<Write<'a>>>,
        options: &WriteOptions,
    ) -> Result<()> {
        // As MyRocks removes index entries: a compaction drops a SingleDelete together with the
        // write that it meets.
        let batch = batch::<false>(writes, |batch, family, key| {
            batch.single_delete_cf(family, key);
        })?;
        self.write_opt(batch, options)
            .map_err(conflict_or("rocksdb: write batch"))
    }

    fn ingest_file(&self, family: &Arc<BoundColumnFamily<'static>>, path: &Path) -> Result<()> {
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        self.ingest_external_file_cf_opts(family, &options, vec![path])
            .map_err(failed("rocksdb: ingest a table"))
    }

    fn begin(_: &RocksMaps<Self>, _: &CallOptions) -> Result<NoTxn> {
        Err(EngineError::Unsupported(
            "rocksdb was opened without transactions, because the schema of this workload says that it has none"
                .to_owned(),
        ))
    }
}

fn batch<'a, const TRANSACTION: bool>(
    writes: impl Iterator<Item = Result<Write<'a>>>,
    delete: impl Fn(
        &mut WriteBatchWithTransaction<TRANSACTION>,
        &Arc<BoundColumnFamily<'static>>,
        &[u8],
    ),
) -> Result<WriteBatchWithTransaction<TRANSACTION>> {
    let mut batch = WriteBatchWithTransaction::default();
    for write in writes {
        match write? {
            (family, key, Some(value)) => batch.put_cf(family, key, value),
            (family, key, None) => delete(&mut batch, family, key),
        }
    }
    Ok(batch)
}
