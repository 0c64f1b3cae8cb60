//! Interface of an ordered key-value engine, so that each workload is written once for all of them.
//!
//! Maps are ordered by memcmp. Rows and index keys are encoded the same way for all engines
//! (big-endian, memory-comparable). Every engine gives the same transactional meaning: see
//! [`KvConnection::begin`]. All calls are monomorphized per engine: the client's cost must not
//! distort the engine's.

use crate::error::Result;

/// Index of an ordered map in the schema given at open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MapId(pub usize);

/// One ordered map of a workload's schema. The hints let an engine choose filters; they never
/// change results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapDef {
    /// Name in the database.
    pub name: &'static str,
    /// Number of leading key bytes that scans fix, so that a prefix filter can answer them. Only
    /// the final check scans across prefixes: a scan with a start and end that differ in these
    /// bytes is answered in total order.
    pub scan_prefix_bytes: Option<usize>,
    /// True if point reads occur, so that a whole-key filter can answer them.
    pub point_reads: bool,
    /// True if point reads are expected to find their key nearly always.
    pub expect_hits: bool,
    /// True if rows are deleted in the order of their insertion, so that tombstones accumulate at
    /// the front of the map.
    pub is_queue: bool,
}

/// Direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

/// A half-open range of keys, with a direction and a row limit.
#[derive(Debug, Clone, Copy)]
pub struct Scan<'a> {
    /// First key of the range, inclusive.
    pub start: &'a [u8],
    /// End of the range, exclusive.
    pub end: &'a [u8],
    /// Direction of the scan.
    pub direction: Direction,
    /// Stop after this many rows.
    pub limit: usize,
}

/// One write of a bulk load. Keys of a load are new: the engine may use its cheapest insert.
#[derive(Debug, Clone, Copy)]
pub struct BulkRow<'a> {
    /// Map to insert into.
    pub map: MapId,
    /// New key.
    pub key: &'a [u8],
    /// Value of the key.
    pub value: &'a [u8],
}

/// An open ordered key-value engine.
pub trait KvEngine: Send + Sync + 'static {
    /// One client's connection.
    type Connection: KvConnection;

    /// Opens a connection for one client thread.
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

    /// Reads several keys; `read` sees each value in place, or `None`, with the key's index in
    /// `keys`. Keys may repeat and come in any order. An engine without a multi-get of its own
    /// calls `get` for each key.
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

    /// Reads committed rows of one point in time in key order. `visit` returns false to stop.
    fn scan(
        &mut self,
        map: MapId,
        scan: Scan<'_>,
        visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;

    /// Writes a key that may exist, as a commit of its own. An engine with a native call for this
    /// uses it.
    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let mut txn = self.begin()?;
        txn.put(map, key, value)?;
        txn.commit()
    }

    /// Begins a transaction. A row that it read by [`KvTxn::get_for_update`] cannot change before
    /// it ends: either other transactions wait for the row, or one of the two gets
    /// [`crate::error::EngineError::Retry`], at the latest from commit.
    fn begin(&mut self) -> Result<Self::Txn<'_>>;

    /// Inserts new rows of a load, atomically and with the engine's durability class. An engine
    /// with a cheaper form than a transaction uses it.
    fn bulk_insert(&mut self, rows: &[BulkRow<'_>]) -> Result<()> {
        let mut txn = self.begin()?;
        for row in rows {
            txn.insert(row.map, row.key, row.value)?;
        }
        txn.commit()
    }

    /// Writes new rows of one map, given in ascending key order, directly into the engine's files.
    /// All rows become visible at once and are durable when the call returns. Returns `false` if
    /// the engine has no such call; then nothing was written. No other client writes the map
    /// meanwhile.
    fn ingest<'a>(
        &mut self,
        map: MapId,
        rows: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<bool> {
        let _ = (map, rows);
        Ok(false)
    }

    /// Removes keys atomically and with the engine's durability class. Each key exists, was written
    /// once since it was last absent, and is not written by any other client meanwhile. An engine
    /// with a cheaper form than a transaction uses it.
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
    /// Reads a row that this transaction may write, protected from lost updates; sees its own
    /// writes.
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R>;

    /// Writes a key that the caller knows to be absent.
    fn insert(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(map, key, value)
    }

    /// Writes a key that may exist.
    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key.
    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()>;

    /// Makes all writes visible, and durable as the engine's class requires.
    fn commit(self) -> Result<()>;
}
