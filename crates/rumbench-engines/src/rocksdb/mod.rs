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
mod maps;
mod options;
mod options_file;
mod transaction;

use std::sync::Arc;

use rocksdb::{BoundColumnFamily, properties};
use rumbench_core::engine::{
    Durability, DurabilityFacts, EngineError, EngineFacts, OpenConfig, Result,
};
use rumbench_core::kv::MapDef;

use crate::adapter::Adapter;
use crate::embedded::{Backend, Embedded, Opened, wait_until_quiet};
use crate::error::failed;
use crate::facts::{ALL_ACKNOWLEDGED, PREFIX_ONE_SECOND, crate_version, survives};
use crate::periodic::Periodic;
use connection::RocksConnection;
use database::Database;
use maps::{MapInfo, RocksMaps};
pub use maps::{Plain, Transactional};
use options::Tuning;
use transaction::CallOptions;

/// RocksDB as an engine: `D` is [`Plain`] or, for workloads with transactions, [`Transactional`].
pub type RocksDb<D> = Embedded<RocksMaps<D>>;

/// Entry of RocksDB in the registry: opens the form of the database that the schema needs.
pub(crate) const ADAPTER: Adapter = Adapter {
    check: RocksMaps::<Plain>::check,
    open: |config| {
        let open = if config.schema.has_transactions() {
            RocksDb::<Transactional>::ADAPTER.open
        } else {
            RocksDb::<Plain>::ADAPTER.open
        };
        open(config)
    },
};

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
    // it lives in `RocksMaps::maps`, which is dropped before `RocksMaps::db`; no code takes a
    // handle out of `RocksMaps`.
    Ok(unsafe {
        std::mem::transmute::<Arc<BoundColumnFamily<'_>>, Arc<BoundColumnFamily<'static>>>(family)
    })
}

fn sync_log<D: Database>(db: &D) -> Result<()> {
    db.flush_log(true).map_err(failed("rocksdb: sync log"))
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

impl<D: Database> Backend for RocksMaps<D> {
    const NAME: &str = "rocksdb";

    type Connection = RocksConnection<D>;

    fn check(config: &OpenConfig) -> Result<()> {
        Tuning::of(config)?.check(&config.schema.maps())
    }

    fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<Opened<RocksMaps<D>>> {
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
        let synced = Arc::clone(&db);
        let sync = move || sync_log(&*synced);
        let syncer = Periodic::syncer("rocksdb-sync", config.durability, sync)?;
        let mut configuration = tuning.describe(schema);
        configuration.given("transactions", D::TRANSACTIONS);
        configuration.given("multi_get", D::MULTI_GET);
        Ok(Opened {
            syncer,
            backend: Arc::new(RocksMaps {
                maps,
                dir: config.dir.clone(),
                durability: config.durability,
                cache,
                db,
            }),
            facts: EngineFacts {
                version: version(),
                configuration: configuration.to_map(),
                durability: durability_facts(config.durability),
            },
        })
    }

    fn connect(self: &Arc<Self>) -> Result<RocksConnection<D>> {
        Ok(RocksConnection {
            shared: Arc::clone(self),
            options: CallOptions::of(self.durability),
        })
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        let of_database = [
            ("running_flushes", properties::NUM_RUNNING_FLUSHES),
            ("running_compactions", properties::NUM_RUNNING_COMPACTIONS),
            (
                "delayed_write_bytes_per_s",
                properties::ACTUAL_DELAYED_WRITE_RATE,
            ),
            ("writes_stopped", properties::IS_WRITE_STOPPED),
            ("background_errors", properties::BACKGROUND_ERRORS),
        ];
        let of_database = of_database.map(|(name, property)| (name, self.property(property)));
        let of_cache = [
            ("block_cache_bytes", self.cache.get_usage() as u64),
            (
                "block_cache_pinned_bytes",
                self.cache.get_pinned_usage() as u64,
            ),
        ];
        let all = of_database.into_iter().chain(of_cache);
        all.map(|(name, value)| (name, value as f64)).collect()
    }

    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        for map in &self.maps {
            progress("flushing memtables");
            self.db
                .flush_family(&map.family)
                .map_err(failed("rocksdb: flush"))?;
        }
        // RocksDB hands a pending compaction to an idle background thread at once. So after a quiet
        // second no column family has pending work.
        wait_until_quiet(progress, || {
            let compactions = self.property(properties::NUM_RUNNING_COMPACTIONS);
            let flushes = self.property(properties::NUM_RUNNING_FLUSHES);
            let work = format!("{compactions} compactions and {flushes} flushes running");
            (compactions + flushes > 0, work)
        });
        self.sync_class()
    }

    fn is_data_file(file_name: &str) -> bool {
        file_name.ends_with(".sst") || file_name.ends_with(".blob")
    }

    fn close(self) -> Result<()> {
        // The syncer held the only other reference to the database: dropping `self` closes it.
        self.sync_class()
    }
}

impl<D: Database> RocksMaps<D> {
    /// Syncs the log, unless the class has none.
    fn sync_class(&self) -> Result<()> {
        match self.durability {
            Durability::None => Ok(()),
            Durability::Buffered | Durability::Sync => sync_log(&*self.db),
        }
    }

    /// Returns a property of the whole database, or 0 if this version does not know it.
    fn property(&self, name: &properties::PropName) -> u64 {
        self.db.property(name).unwrap_or(0)
    }
}
