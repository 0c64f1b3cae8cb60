//! RocksDB through the `rocksdb` crate, with one column family for each map.
//!
//! If a workload has transactions, they are pessimistic as in MyRocks: a row that a transaction
//! reads for update is locked until its end. If it has none, the plain database is opened (see
//! [`database`]). Reads outside transactions take no snapshot. A scan creates a new iterator. The
//! crate ties an iterator to a borrow of the database, and a connection shares the database, so it
//! cannot keep one. Keeping one would also pin old tables.
//!
//! Limits of the crate with transactions: no untracked put, so index entries lock their key too,
//! which MyRocks avoids; so does each single put and each row of a batch. There is no batched
//! multi-get. Properties are only those of the whole database and of the default column family.

mod compression;
mod connection;
mod database;
mod options;
mod options_file;
mod transaction;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rocksdb::{BoundColumnFamily, Cache, ErrorKind, Options, properties};
use rumbench_core::engine::{
    Counter, Durability, DurabilityFacts, Engine, EngineError, EngineFacts, OpenConfig, Result,
};
use rumbench_core::kv::{KvEngine, MapDef, MapId};

use crate::error::{failed, no_map, still_open};
use crate::facts::{ALL_ACKNOWLEDGED, PREFIX_ONE_SECOND, crate_version, survives};
use crate::kv_stores::kv_stores;
use crate::periodic::{Periodic, SYNC_INTERVAL};
use crate::registry::Adapter;
use connection::RocksConnection;
pub use database::{Database, Plain, Transactional};
use options::Tuning;

/// Open RocksDB database in one of its forms. Clones share it.
pub struct RocksDb<D: Database>(Arc<Shared<D>>);

impl<D: Database> Clone for RocksDb<D> {
    fn clone(&self) -> RocksDb<D> {
        RocksDb(self.0.clone())
    }
}

struct Shared<D> {
    /// Declared before `db`, because fields are dropped in this order and the handles must be
    /// dropped first.
    maps: Vec<MapInfo>,
    dir: PathBuf,
    durability: Durability,
    facts: EngineFacts,
    cache: Cache,
    syncer: Option<Periodic>,
    db: Arc<D>,
}

struct MapInfo {
    family: Arc<BoundColumnFamily<'static>>,
    /// Prefix length of the map's filter: scans within one such prefix may use it.
    filtered_prefix: Option<usize>,
    /// Options for writing tables of this map; `None` if it cannot ingest any.
    file_options: Option<Options>,
}

/// Entry of this engine in the registry, which lists its variants.
pub(crate) const ADAPTER: Adapter = Adapter { check, open };

fn check(config: &OpenConfig) -> Result<()> {
    Tuning::of(config)?.check(&config.schema.maps())
}

fn open(config: &OpenConfig) -> Result<Box<dyn Engine>> {
    let maps = config.schema.maps();
    Ok(if config.schema.has_transactions() {
        Box::new(RocksDb::<Transactional>::open(config, &maps)?)
    } else {
        Box::new(RocksDb::<Plain>::open(config, &maps)?)
    })
}

impl<D: Database> RocksDb<D> {
    /// Opens or creates the maps of `schema` in `config.dir`.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] for an unknown variant or setting.
    pub fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<RocksDb<D>> {
        let tuning = Tuning::of(config)?;
        let cache = tuning.new_cache();
        let (options, families) = tuning.load(schema, &cache)?;
        let db =
            D::open(&options, &config.dir, families).map_err(failed("rocksdb: open database"))?;
        let db = Arc::new(db);
        let mut maps = Vec::with_capacity(schema.len());
        for map in schema {
            maps.push(MapInfo {
                family: column_family(&db, map.name)?,
                filtered_prefix: map
                    .scan_prefix_bytes
                    .filter(|_| tuning.has_prefix_filters()),
                file_options: D::INGESTS
                    .then(|| tuning.file_options(map, &cache))
                    .flatten(),
            });
        }
        let syncer = match config.durability {
            Durability::Buffered => Some(start_syncer(db.clone())?),
            Durability::Sync | Durability::None => None,
        };
        let mut configuration = tuning.describe(schema);
        configuration.given("transactions", D::TRANSACTIONS);
        configuration.given("multi_get", D::MULTI_GET);
        let facts = EngineFacts {
            version: version(),
            configuration: configuration.to_map(),
            durability: durability_facts(config.durability),
        };
        Ok(RocksDb(Arc::new(Shared {
            maps,
            dir: config.dir.clone(),
            durability: config.durability,
            facts,
            cache,
            syncer,
            db,
        })))
    }
}

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

/// Returns the handle of a column family. Keeping it saves every call a look-up by name under the
/// crate's lock.
fn column_family<D: Database>(db: &Arc<D>, name: &str) -> Result<Arc<BoundColumnFamily<'static>>> {
    let family = db.family(name).ok_or_else(|| {
        EngineError::Wrong(format!("rocksdb did not create column family {name}"))
    })?;
    // SAFETY: only the lifetime changes. The handle is a pointer into the database. Every copy of
    // it lives in `Shared::maps`, which is dropped before `Shared::db`; no code takes a handle out
    // of `Shared`.
    Ok(unsafe {
        std::mem::transmute::<Arc<BoundColumnFamily<'_>>, Arc<BoundColumnFamily<'static>>>(family)
    })
}

fn start_syncer<D: Database>(db: Arc<D>) -> Result<Periodic> {
    Periodic::start("rocksdb-sync", SYNC_INTERVAL, move || {
        db.flush_log(true).map_err(failed("rocksdb: sync log"))
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

/// Like [`failed`], but maps a conflict to [`EngineError::Retry`].
fn conflict_or(context: &'static str) -> impl FnOnce(rocksdb::Error) -> EngineError {
    move |error| rocks_error(context, error)
}

impl<D: Database> Engine for RocksDb<D> {
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
                .flush_family(&map.family)
                .map_err(failed("rocksdb: flush"))?;
        }
        self.wait_for_compactions(progress);
        match self.0.durability {
            Durability::None => Ok(()),
            _ => self
                .0
                .db
                .flush_log(true)
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
            let synced = shared.db.flush_log(true);
            synced.map_err(failed("rocksdb: sync log"))?;
        }
        // The syncer held the only other reference to the database: dropping `shared` closes it.
        Ok(())
    }
}

impl<D: Database> RocksDb<D> {
    /// Returns a property of the whole database, or 0 if this version does not know it.
    fn property(&self, name: &properties::PropName) -> u64 {
        self.0.db.property(name).unwrap_or(0)
    }

    /// Waits until no flush or compaction has run for a second. RocksDB hands a pending compaction
    /// to an idle background thread at once. So after a quiet second no column family has pending
    /// work.
    fn wait_for_compactions(&self, progress: &mut dyn FnMut(&str)) {
        const POLL: Duration = Duration::from_millis(50);
        const POLLS_PER_SECOND: u32 = 20;
        let (mut quiet, mut polls) = (0, 0_u32);
        // Terminates because the compaction backlog is finite and there are no writers.
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

impl<D> Shared<D> {
    fn map(&self, map: MapId) -> Result<&MapInfo> {
        self.maps.get(map.0).ok_or_else(|| no_map(map))
    }
}

impl<D: Database> KvEngine for RocksDb<D> {
    type Connection = RocksConnection<D>;

    fn connect(&self) -> Result<RocksConnection<D>> {
        Ok(RocksConnection::new(self.0.clone()))
    }
}
