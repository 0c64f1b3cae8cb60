//! Transactions of RocksDB, and the placeholder type of a database without them.

use std::convert::Infallible;

use rocksdb::{ReadOptions, Transaction};
use rumbench_core::engine::Result;
use rumbench_core::kv::{KvTxn, MapId};

use super::connection::RocksConnection;
use super::database::Transactional;
use super::{Shared, conflict_or};

/// Transaction that locks each key it reads for update or writes.
pub struct RocksTxn<'a> {
    txn: Transaction<'a, Transactional>,
    shared: &'a Shared<Transactional>,
    read: &'a ReadOptions,
}

impl<'a> RocksTxn<'a> {
    pub(super) fn new(connection: &'a RocksConnection<Transactional>) -> RocksTxn<'a> {
        let db = &connection.shared.db;
        RocksTxn {
            txn: db.transaction_opt(&connection.write, &connection.transaction),
            shared: &connection.shared,
            read: &connection.read,
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

    fn insert(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(map, key, value)
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

    fn insert(&mut self, _: MapId, _: &[u8], _: &[u8]) -> Result<()> {
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
