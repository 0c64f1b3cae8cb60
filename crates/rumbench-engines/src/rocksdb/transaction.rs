//! Transactions of RocksDB, and the placeholder type of a database without them.

use std::convert::Infallible;

use rocksdb::{ReadOptions, Transaction, TransactionOptions, WriteOptions};
use rumbench_core::engine::{Durability, Result};
use rumbench_core::kv::{KvTxn, MapId};

use super::maps::{RocksMaps, Transactional, conflict_or};

/// Options of all calls of a client, prepared once.
pub struct CallOptions {
    pub(super) read: ReadOptions,
    pub(super) write: WriteOptions,
    transaction: TransactionOptions,
}

impl CallOptions {
    pub(super) fn of(durability: Durability) -> CallOptions {
        let mut write = WriteOptions::default();
        match durability {
            Durability::Sync => write.set_sync(true),
            Durability::Buffered => write.set_sync(false),
            Durability::None => write.disable_wal(true),
        }
        let mut transaction = TransactionOptions::default();
        transaction.set_deadlock_detect(true);
        CallOptions {
            read: ReadOptions::default(),
            write,
            transaction,
        }
    }
}

/// Transaction that locks each key it reads for update or writes.
pub struct RocksTxn<'a> {
    txn: Transaction<'a, Transactional>,
    shared: &'a RocksMaps<Transactional>,
    read: &'a ReadOptions,
}

impl<'a> RocksTxn<'a> {
    pub(super) fn begin(
        shared: &'a RocksMaps<Transactional>,
        options: &'a CallOptions,
    ) -> RocksTxn<'a> {
        let txn = shared
            .db
            .transaction_opt(&options.write, &options.transaction);
        RocksTxn {
            txn,
            shared,
            read: &options.read,
        }
    }
}

impl KvTxn for RocksTxn<'_> {
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        const EXCLUSIVE: bool = true;
        let family = &self.shared.map(map)?.family;
        let value = self
            .txn
            .get_pinned_for_update_cf_opt(family, key, EXCLUSIVE, self.read)
            .map_err(conflict_or("rocksdb: get for update"))?;
        Ok(read(value.as_deref()))
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let family = &self.shared.map(map)?.family;
        self.txn
            .put_cf(family, key, value)
            .map_err(conflict_or("rocksdb: put"))
    }

    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()> {
        let family = &self.shared.map(map)?.family;
        self.txn
            .delete_cf(family, key)
            .map_err(conflict_or("rocksdb: delete"))
    }

    fn commit(self) -> Result<()> {
        self.txn.commit().map_err(conflict_or("rocksdb: commit"))
    }
}

/// Transaction type of a database without transactions: no value of it exists.
pub struct NoTxn(Infallible);

impl KvTxn for NoTxn {
    fn get_for_update<R>(
        &mut self,
        _: MapId,
        _: &[u8],
        _: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        match self.0 {}
    }

    fn put(&mut self, _: MapId, _: &[u8], _: &[u8]) -> Result<()> {
        match self.0 {}
    }

    fn delete(&mut self, _: MapId, _: &[u8]) -> Result<()> {
        match self.0 {}
    }

    fn commit(self) -> Result<()> {
        match self.0 {}
    }
}
