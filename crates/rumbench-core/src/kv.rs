//! What an ordered key-value engine offers, so that each workload is written once for all of them.
//!
//! Maps are ordered by memcmp. Rows and index keys are encoded the same way for all engines (big-endian,
//! memory-comparable), and every engine gives the same transactional meaning: see [`KvConnection::begin`].
//! Everything is monomorphised per engine: the client's cost must not distort the engine's.

use crate::engine::Result;

/// Index of an ordered map in the schema given at open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MapId(pub usize);

/// One ordered map of a workload's schema. The hints let an engine choose filters; they never change results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapDef {
    /// Name in the database.
    pub name: &'static str,
    /// Scans fix this many leading key bytes, so that a prefix filter can answer them. Only the final check scans
    /// across prefixes: a scan whose start and end differ in these bytes is answered in total order.
    pub scan_prefix_bytes: Option<usize>,
    /// Whether point reads occur, so that a whole-key filter can answer them.
    pub point_reads: bool,
    /// Whether point reads are expected to find their key nearly always.
    pub expect_hits: bool,
    /// Whether rows are deleted in the order in which they came, so that the front of the map fills with deletes.
    pub is_queue: bool,
}

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

/// A half-open range of keys, with its direction and most rows.
#[derive(Debug, Clone, Copy)]
pub struct Scan<'a> {
    /// First key of the range, inclusive.
    pub start: &'a [u8],
    /// End of the range, exclusive.
    pub end: &'a [u8],
    /// Which end comes first.
    pub direction: Direction,
    /// Stop after this many rows.
    pub limit: usize,
}

/// One write of a bulk load. Keys of a load are new: the engine may use its cheapest insert.
#[derive(Debug, Clone, Copy)]
pub struct BulkRow<'a> {
    /// Where to.
    pub map: MapId,
    /// New key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// An open ordered key-value engine.
pub trait KvEngine: Send + Sync + 'static {
    /// One client's connection.
    type Connection: KvConnection;

    /// A connection for one client thread.
    fn connect(&self) -> Result<Self::Connection>;
}

/// One client's connection: single reads outside transactions, scans, transactions, bulk load.
pub trait KvConnection: Send {
    /// A read-write transaction.
    type Txn<'a>: KvTxn
    where
        Self: 'a;

    /// Reads the newest committed value; `read` sees it in place, or `None`.
    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R>;

    /// Reads several keys; `read` sees each in place, or `None`, with its place among `keys`. Each key once or more, in
    /// any order. An engine without a call of its own for this answers with one `get` after the other.
    fn multi_get(
        &mut self,
        map: MapId,
        keys: &[&[u8]],
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (place, key) in keys.iter().enumerate() {
            self.get(map, key, |value| read(place, value))?;
        }
        Ok(())
    }

    /// Reads committed rows of one point in time in order. `visit` returns whether to go on.
    fn scan(
        &mut self,
        map: MapId,
        scan: Scan<'_>,
        visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;

    /// Writes a key that may exist, as a commit of its own. An engine with a call of its own for this uses it.
    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let mut txn = self.begin()?;
        txn.put(map, key, value)?;
        txn.commit()
    }

    /// Begins a transaction. What it read by [`KvTxn::get_for_update`] cannot change before it ends: either others
    /// wait for the row, or one of the two gets [`crate::engine::EngineError::Retry`] at the latest from commit.
    fn begin(&mut self) -> Result<Self::Txn<'_>>;

    /// Writes new rows of a load, all of them atomically and with the engine's durability class.
    fn bulk_insert(&mut self, rows: &[BulkRow<'_>]) -> Result<()>;

    /// Writes new rows of one map, given in ascending key order, straight into the engine's files, if it has a way to: all of
    /// them at once and durable when the call returns. `false`: it has none, and nothing was written. Nobody else writes
    /// the map meanwhile.
    fn ingest<'a>(
        &mut self,
        map: MapId,
        rows: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<bool> {
        let _ = (map, rows);
        Ok(false)
    }

    /// Removes keys that exist, that were written once since they last were absent and that nobody else writes meanwhile,
    /// all of them atomically and with the engine's durability class. An engine with a cheaper form than a transaction
    /// uses it.
    fn bulk_delete(&mut self, keys: &[(MapId, &[u8])]) -> Result<()> {
        let mut txn = self.begin()?;
        for (map, key) in keys {
            txn.delete(*map, key)?;
        }
        txn.commit()
    }
}

/// A read-write transaction. Dropping it without commit rolls it back.
pub trait KvTxn {
    /// Reads a row that this transaction may write, protected from lost updates; sees own writes.
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R>;

    /// Writes a key that the caller knows to be absent.
    fn insert(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes a key that may exist.
    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key.
    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()>;

    /// Makes all of it visible and durable as the engine's class says.
    fn commit(self) -> Result<()>;
}
