//! RocksDB through the `rocksdb` crate: a pessimistic [`TransactionDB`] with one column family for each map.
//!
//! Pessimistic as MyRocks is: a row that a transaction reads for update is locked until its end. Reads outside
//! transactions take no snapshot. A scan is a new iterator: the crate ties an iterator to a borrow of the database,
//! so that a connection, which shares the database, cannot keep one; keeping one would also pin old tables.
//!
//! Limits of the crate: no untracked put, so that index entries lock their key too, which MyRocks avoids, and so does each
//! single put; no batched multi-get for `TransactionDB`, its simple one copies each key and value, so that a multi-get here
//! is a loop of pinned gets; properties of `TransactionDB` are those of the whole database and of the default column family
//! only.

mod options;
mod options_file;

use std::sync::Arc;
use std::time::Duration;

use rocksdb::{
    BoundColumnFamily, Cache, DBRawIteratorWithThreadMode, ErrorKind, MultiThreaded, ReadOptions,
    Transaction, TransactionDB, TransactionDBOptions, TransactionOptions,
    WriteBatchWithTransaction, WriteOptions, properties,
};
use rumbench_core::engine::{
    Counter, Durability, DurabilityFacts, Engine, EngineError, EngineFacts, OpenConfig, Result,
};
use rumbench_core::kv::{BulkRow, Direction, KvConnection, KvEngine, KvTxn, MapDef, MapId, Scan};

use crate::error::{failed, no_map, still_open};
use crate::facts::{ALL_ACKNOWLEDGED, PREFIX_ONE_SECOND, crate_version, survives};
use crate::kv_stores::kv_stores;
use crate::periodic::{Periodic, SYNC_INTERVAL};
use crate::registry::Adapter;
use options::Tuning;

/// An open RocksDB database. Clones share it.
#[derive(Clone)]
pub struct RocksDb(Arc<Shared>);

type Db = TransactionDB<MultiThreaded>;

struct Shared {
    /// Before `db`, because fields are dropped in this order and the handles must go first.
    maps: Vec<MapInfo>,
    durability: Durability,
    facts: EngineFacts,
    cache: Cache,
    syncer: Option<Periodic>,
    db: Arc<Db>,
}

struct MapInfo {
    family: Arc<BoundColumnFamily<'static>>,
    /// Scans that stay within one prefix of this length may ask the prefix filter.
    filtered_prefix: Option<usize>,
}

/// How the registry reaches this engine. Variants: see the registry.
pub(crate) const ADAPTER: Adapter = Adapter { check, open };

fn check(config: &OpenConfig) -> Result<()> {
    Tuning::of(config)?.check(&config.schema.maps())
}

fn open(config: &OpenConfig) -> Result<Box<dyn Engine>> {
    Ok(Box::new(RocksDb::open(config, &config.schema.maps())?))
}

impl RocksDb {
    /// Opens or creates the maps of `schema` in `config.dir`.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] for an unknown variant or setting.
    pub fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<RocksDb> {
        let tuning = Tuning::of(config)?;
        let cache = tuning.new_cache();
        let mut transactions = TransactionDBOptions::default();
        transactions.set_txn_lock_timeout(LOCK_TIMEOUT_MS);
        transactions.set_default_lock_timeout(LOCK_TIMEOUT_MS);
        let (options, families) = tuning.load(schema, &cache)?;
        let db = Db::open_cf_descriptors(&options, &transactions, &config.dir, families)
            .map_err(failed("rocksdb: open database"))?;
        let db = Arc::new(db);
        let mut maps = Vec::with_capacity(schema.len());
        for map in schema {
            maps.push(MapInfo {
                family: column_family(&db, map.name)?,
                filtered_prefix: map
                    .scan_prefix_bytes
                    .filter(|_| tuning.has_prefix_filters()),
            });
        }
        let syncer = match config.durability {
            Durability::Buffered => Some(start_syncer(db.clone())?),
            Durability::Sync | Durability::None => None,
        };
        let facts = EngineFacts {
            version: version(),
            configuration: tuning.describe(schema).to_map(),
            durability: durability_facts(config.durability),
        };
        Ok(RocksDb(Arc::new(Shared {
            maps,
            durability: config.durability,
            facts,
            cache,
            syncer,
            db,
        })))
    }
}

/// As MyRocks' default; deadlocks are detected at once, so only a stuck client waits so long.
const LOCK_TIMEOUT_MS: i64 = 1_000;

fn durability_facts(class: Durability) -> DurabilityFacts {
    match class {
        Durability::Sync => survives(ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
        Durability::Buffered => survives(ALL_ACKNOWLEDGED, PREFIX_ONE_SECOND),
        Durability::None => {
            let flushed = "what was flushed to tables; column families may differ in age";
            survives(flushed, flushed)
        }
    }
}

/// The handle of a column family, kept so that no call has to look it up by name under the crate's lock.
fn column_family(db: &Arc<Db>, name: &str) -> Result<Arc<BoundColumnFamily<'static>>> {
    let family = db.cf_handle(name).ok_or_else(|| {
        EngineError::Wrong(format!("rocksdb did not create column family {name}"))
    })?;
    // SAFETY: only the lifetime changes. The handle is a pointer into the database, and every copy of it lives in
    // `Shared::maps`, which is dropped before `Shared::db`; nothing takes a handle out of `Shared`.
    Ok(unsafe {
        std::mem::transmute::<Arc<BoundColumnFamily<'_>>, Arc<BoundColumnFamily<'static>>>(family)
    })
}

fn start_syncer(db: Arc<Db>) -> Result<Periodic> {
    Periodic::start("rocksdb-sync", SYNC_INTERVAL, move || {
        db.flush_wal(true).map_err(failed("rocksdb: sync log"))
    })
}

fn version() -> String {
    let bundled = crate_version("librocksdb-sys");
    let library = bundled
        .split_once('+')
        .map_or(bundled, |(_, rocksdb)| rocksdb);
    format!(
        "RocksDB {library} (crate rocksdb {})",
        crate_version("rocksdb")
    )
}

#[cold]
fn rocks_error(context: &'static str, error: rocksdb::Error) -> EngineError {
    match error.kind() {
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain | ErrorKind::Expired => {
            EngineError::Retry(error.into_string())
        }
        _ => EngineError::failed(context, error),
    }
}

/// As [`failed`], where a conflict becomes [`EngineError::Retry`].
fn conflict_or(context: &'static str) -> impl FnOnce(rocksdb::Error) -> EngineError {
    move |error| rocks_error(context, error)
}

impl Engine for RocksDb {
    fn facts(&self) -> EngineFacts {
        self.0.facts.clone()
    }

    kv_stores!();

    fn counters(&self) -> Vec<Counter> {
        let cache = &self.0.cache;
        let counter = |name: &str, value: u64| Counter {
            name: name.to_string(),
            value: value as f64,
        };
        vec![
            counter(
                "running_flushes",
                self.property(properties::NUM_RUNNING_FLUSHES),
            ),
            counter(
                "running_compactions",
                self.property(properties::NUM_RUNNING_COMPACTIONS),
            ),
            counter(
                "delayed_write_bytes_per_s",
                self.property(properties::ACTUAL_DELAYED_WRITE_RATE),
            ),
            counter(
                "writes_stopped",
                self.property(properties::IS_WRITE_STOPPED),
            ),
            counter(
                "background_errors",
                self.property(properties::BACKGROUND_ERRORS),
            ),
            counter("block_cache_bytes", cache.get_usage() as u64),
            counter("block_cache_pinned_bytes", cache.get_pinned_usage() as u64),
        ]
    }

    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        for map in &self.0.maps {
            progress("flushing memtables");
            self.0
                .db
                .flush_cf(&map.family)
                .map_err(failed("rocksdb: flush"))?;
        }
        self.wait_for_compactions(progress);
        match self.0.durability {
            Durability::None => Ok(()),
            _ => self
                .0
                .db
                .flush_wal(true)
                .map_err(failed("rocksdb: sync log")),
        }
    }

    fn is_data_file(&self, file_name: &str) -> bool {
        file_name.ends_with(".sst") || file_name.ends_with(".blob")
    }

    fn close(self: Box<Self>) -> Result<()> {
        let shared = Arc::into_inner(self.0).ok_or_else(|| still_open("rocksdb"))?;
        if let Some(syncer) = shared.syncer {
            syncer.stop()?;
        }
        if shared.durability != Durability::None {
            let synced = shared.db.flush_wal(true);
            synced.map_err(failed("rocksdb: sync log"))?;
        }
        // The syncer held the only other reference to the database: dropping `shared` closes it.
        Ok(())
    }
}

impl RocksDb {
    /// A property of the whole database; 0 where this version does not know it.
    fn property(&self, name: &properties::PropName) -> u64 {
        self.0
            .db
            .property_int_value(name)
            .ok()
            .flatten()
            .unwrap_or(0)
    }

    /// Waits until no flush or compaction has run for a second. RocksDB hands a pending compaction to an idle
    /// background thread at once, so a quiet second means that nothing is pending in any column family.
    fn wait_for_compactions(&self, progress: &mut dyn FnMut(&str)) {
        const POLL: Duration = Duration::from_millis(50);
        const POLLS_PER_SECOND: u32 = 20;
        let (mut quiet, mut polls) = (0, 0_u32);
        // Ends because the debt is finite and nobody writes.
        while quiet < POLLS_PER_SECOND {
            std::thread::sleep(POLL);
            let compactions = self.property(properties::NUM_RUNNING_COMPACTIONS);
            let flushes = self.property(properties::NUM_RUNNING_FLUSHES);
            quiet = if compactions + flushes == 0 {
                quiet + 1
            } else {
                0
            };
            polls += 1;
            if polls % POLLS_PER_SECOND == 0 {
                progress(&format!(
                    "{compactions} compactions and {flushes} flushes running"
                ));
            }
        }
    }
}

impl Shared {
    fn map(&self, map: MapId) -> Result<&MapInfo> {
        self.maps.get(map.0).ok_or_else(|| no_map(map))
    }
}

impl KvEngine for RocksDb {
    type Connection = RocksConnection;

    fn connect(&self) -> Result<RocksConnection> {
        let mut write = WriteOptions::default();
        match self.0.durability {
            Durability::Sync => write.set_sync(true),
            Durability::Buffered => write.set_sync(false),
            Durability::None => write.disable_wal(true),
        }
        let mut transaction = TransactionOptions::default();
        transaction.set_deadlock_detect(true);
        Ok(RocksConnection {
            shared: self.0.clone(),
            read: ReadOptions::default(),
            write,
            transaction,
        })
    }
}

/// One client's connection with its prepared options.
pub struct RocksConnection {
    shared: Arc<Shared>,
    read: ReadOptions,
    write: WriteOptions,
    transaction: TransactionOptions,
}

impl KvConnection for RocksConnection {
    type Txn<'a> = RocksTxn<'a>;

    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let family = &self.shared.map(map)?.family;
        let value = self
            .shared
            .db
            .get_pinned_cf_opt(family, key, &self.read)
            .map_err(failed("rocksdb: get"))?;
        Ok(read(value.as_deref()))
    }

    fn scan(
        &mut self,
        map: MapId,
        scan: Scan<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        if scan.start >= scan.end || scan.limit == 0 {
            return Ok(());
        }
        let info = self.shared.map(map)?;
        let mut options = ReadOptions::default();
        let one_prefix = info
            .filtered_prefix
            .is_some_and(|bytes| within_one_prefix(scan.start, scan.end, bytes));
        match scan.direction {
            // The filter is asked for the prefix of the key that is sought, which is the range's only when the
            // range starts there.
            Direction::Forward if one_prefix => options.set_prefix_same_as_start(true),
            _ => options.set_total_order_seek(true),
        }
        match scan.direction {
            Direction::Forward => options.set_iterate_upper_bound(scan.end),
            Direction::Reverse => options.set_iterate_lower_bound(scan.start),
        }
        let rows = self.shared.db.raw_iterator_cf_opt(&info.family, options);
        visit_rows(rows, scan, &mut visit)
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let family = &self.shared.map(map)?.family;
        self.shared
            .db
            .put_cf_opt(family, key, value, &self.write)
            .map_err(conflict_or("rocksdb: put"))
    }

    fn begin(&mut self) -> Result<RocksTxn<'_>> {
        Ok(RocksTxn {
            txn: self
                .shared
                .db
                .transaction_opt(&self.write, &self.transaction),
            shared: &self.shared,
            read: &self.read,
        })
    }

    fn bulk_insert(&mut self, rows: &[BulkRow<'_>]) -> Result<()> {
        let mut batch = WriteBatchWithTransaction::<true>::default();
        for row in rows {
            let family = &self.shared.map(row.map)?.family;
            batch.put_cf(family, row.key, row.value);
        }
        self.shared
            .db
            .write_opt(batch, &self.write)
            .map_err(conflict_or("rocksdb: write batch"))
    }

    fn bulk_delete(&mut self, keys: &[(MapId, &[u8])]) -> Result<()> {
        let mut batch = WriteBatchWithTransaction::<true>::default();
        for (map, key) in keys {
            batch.delete_cf(&self.shared.map(*map)?.family, key);
        }
        self.shared
            .db
            .write_opt(batch, &self.write)
            .map_err(conflict_or("rocksdb: write batch"))
    }
}

fn visit_rows(
    mut rows: DBRawIteratorWithThreadMode<'_, Db>,
    scan: Scan<'_>,
    visit: &mut impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    match scan.direction {
        Direction::Forward => rows.seek(scan.start),
        Direction::Reverse => {
            rows.seek_for_prev(scan.end);
            // The end is exclusive, and the seek may have found it.
            if rows.key() == Some(scan.end) {
                rows.prev();
            }
        }
    }
    for _ in 0..scan.limit {
        let Some((key, value)) = rows.item() else {
            break;
        };
        if !visit(key, value) {
            return Ok(());
        }
        match scan.direction {
            Direction::Forward => rows.next(),
            Direction::Reverse => rows.prev(),
        }
    }
    rows.status().map_err(failed("rocksdb: scan"))
}

/// Whether every key of `start..end` begins with the first `bytes` bytes of `start`: true for all keys of a prefix
/// up to its successor, which is how a scan of one prefix is written.
fn within_one_prefix(start: &[u8], end: &[u8], bytes: usize) -> bool {
    let Some(prefix) = start.get(..bytes) else {
        return false;
    };
    // The shortest successor of the prefix ends at its last byte that can still grow.
    let Some(last) = prefix.iter().rposition(|byte| *byte != 0xFF) else {
        return true;
    };
    let stem = &prefix[..last];
    let successor_byte = prefix[last] + 1;
    match end.get(..last) {
        None => end <= stem,
        Some(end_stem) if end_stem != stem => end_stem < stem,
        Some(_) => match end.get(last) {
            None => true,
            Some(byte) if *byte == successor_byte => end.len() == last + 1,
            Some(byte) => *byte < successor_byte,
        },
    }
}

/// A transaction that locks what it reads for update or writes.
pub struct RocksTxn<'a> {
    txn: Transaction<'a, Db>,
    shared: &'a Shared,
    read: &'a ReadOptions,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_up_to_the_successor_of_a_prefix_lies_within_it() {
        assert!(within_one_prefix(b"ab", b"ac", 2));
        assert!(within_one_prefix(b"abx", b"aby", 2));
        assert!(within_one_prefix(b"ab\x00", b"ab\xFF\xFF", 2));
        assert!(within_one_prefix(b"a\xFFz", b"b", 2));
        assert!(within_one_prefix(b"\xFF\xFF1", b"\xFF\xFF\xFF\xFF", 2));
    }

    #[test]
    fn a_range_that_leaves_its_prefix_does_not() {
        assert!(!within_one_prefix(b"ab", b"ac\x00", 2));
        assert!(!within_one_prefix(b"ab", b"b", 2));
        assert!(!within_one_prefix(b"a", b"b", 2), "shorter than the prefix");
        assert!(!within_one_prefix(b"a\xFFz", b"b\x00", 2));
        assert!(!within_one_prefix(b"\x00\x00", b"\xFF", 2));
    }
}
