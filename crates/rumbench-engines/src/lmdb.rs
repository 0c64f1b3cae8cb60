//! LMDB through `heed`: one memory-mapped copy-on-write B+ tree file, many readers, one writer.
//!
//! Reads need no lock and copy nothing: the caller reads a row in the memory map itself. The single
//! writer holds a lock from begin to commit, so a plain read inside a write transaction is already
//! protected from lost updates. There is no cache setting: the file's pages live in the kernel's
//! page cache, regardless of `cache_bytes`.
//!
//! A read outside a write transaction begins and ends its own read transaction. `heed` has no reset
//! and renew; with thread-local reader slots the begin is a few loads and one small allocation. The
//! environment must then be read and written on the thread that uses the connection. The laboratory
//! uses connections this way.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RwTxn};
use rumbench_core::engine::{
    Counter, Durability, DurabilityFacts, Engine, EngineError, EngineFacts, OpenConfig, Result,
};
use rumbench_core::kv::{BulkRow, Direction, KvConnection, KvEngine, KvTxn, MapDef, MapId, Scan};

use crate::error::{failed, no_map, still_open};
use crate::facts::{ALL_ACKNOWLEDGED, Configuration, crate_version, survives};
use crate::kv_stores::kv_stores;
use crate::periodic::{Periodic, SYNC_INTERVAL};
use crate::registry::Adapter;
use crate::settings::Settings;

/// File of the environment that holds all pages.
const DATA_FILE: &str = "data.mdb";

type Map = Database<'static, Bytes, Bytes>;

/// Open LMDB environment with one named database for each map. Clones share it.
#[derive(Clone)]
pub struct Lmdb(Arc<Shared>);

struct Shared {
    env: Env,
    maps: Vec<Map>,
    facts: EngineFacts,
    syncer: Option<Periodic>,
}

/// Entry of this engine in the registry. Variants: none, `nosync`.
pub(crate) const ADAPTER: Adapter = Adapter { check, open };

fn check(config: &OpenConfig) -> Result<()> {
    Tuning::of(config).map(drop)
}

fn open(config: &OpenConfig) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Lmdb::open(config, &config.schema.maps())?))
}

impl Lmdb {
    /// Opens or creates the maps of `schema` in `config.dir`.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] for an unknown variant, setting or combination with a
    /// durability class.
    pub fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<Lmdb> {
        let Tuning {
            mode,
            map_size,
            readahead,
        } = Tuning::of(config)?;
        let map_size = match map_size {
            Some(map_size) => map_size,
            None => default_map_size(&config.dir)?,
        };
        let mut flags = mode.flags;
        flags.set(EnvFlags::NO_READ_AHEAD, !readahead);
        // A thread keeps its reader slot until it ends; the margin is for the laboratory's own
        // threads.
        let readers = config.clients as u32 + 64;
        let env = open_env(&config.dir, map_size, readers, schema.len(), flags)?;
        let mut maps = Vec::with_capacity(schema.len());
        for map in schema {
            maps.push(create_map(&env, map.name)?);
        }
        let syncer = match config.durability {
            Durability::Buffered => Some(start_syncer(env.clone())?),
            Durability::Sync | Durability::None => None,
        };

        let mut configuration = Configuration::default();
        configuration.given("map_size", map_size);
        configuration.given("page_size", env.unnamed_database_stat().page_size);
        configuration.given("writemap", false);
        configuration.given(
            "cache",
            "page cache of the kernel, not limited by cache_bytes",
        );
        configuration.given("flags", mode.flag_names);
        configuration.given("multi_get", "a loop of gets in one read transaction");
        configuration.tuned(
            "readahead",
            readahead,
            "off: single rows are read at random and the file may exceed memory",
        );
        let facts = EngineFacts {
            version: version(),
            configuration: configuration.to_map(),
            durability: mode.durability,
        };
        Ok(Lmdb(Arc::new(Shared {
            env,
            maps,
            facts,
            syncer,
        })))
    }
}

/// Settings for opening the environment.
struct Tuning {
    mode: Mode,
    /// Size of the memory map in bytes; `None` makes it as large as the disk allows.
    map_size: Option<u64>,
    readahead: bool,
}

impl Tuning {
    fn of(config: &OpenConfig) -> Result<Tuning> {
        let mode = Mode::of(config)?;
        let mut settings = Settings::of("lmdb", config);
        let tuning = Tuning {
            mode,
            map_size: settings.take_optional("map_size", 1 << 20..=1 << 46)?,
            readahead: settings.take("readahead", false)?,
        };
        settings.finish()?;
        Ok(tuning)
    }
}

/// Environment flags of a variant and durability class, and the commits that survive with them.
struct Mode {
    flags: EnvFlags,
    flag_names: &'static str,
    durability: DurabilityFacts,
}

impl Mode {
    fn of(config: &OpenConfig) -> Result<Mode> {
        let no_sync = |power_cut| Mode {
            flags: EnvFlags::NO_SYNC,
            flag_names: "MDB_NOSYNC",
            durability: survives(ALL_ACKNOWLEDGED, power_cut),
        };
        match (config.variant.as_deref(), config.durability) {
            (None, Durability::Sync) => Ok(Mode {
                flags: EnvFlags::empty(),
                flag_names: "none",
                durability: survives(ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
            }),
            // The weakest mode that keeps the file consistent: each commit still syncs the data
            // pages; only the root waits for the next commit or for the syncer.
            (None, Durability::Buffered) => Ok(Mode {
                flags: EnvFlags::NO_META_SYNC,
                flag_names: "MDB_NOMETASYNC",
                durability: survives(
                    ALL_ACKNOWLEDGED,
                    "all acknowledged commits but the last, which is no older than about 1 s",
                ),
            }),
            (None, Durability::None) | (Some("nosync"), Durability::None) => {
                Ok(no_sync("may corrupt"))
            }
            (Some("nosync"), Durability::Buffered) => Ok(no_sync(
                "may corrupt, though the file is synced each second",
            )),
            (Some("nosync"), Durability::Sync) => Err(EngineError::Unsupported(
                "lmdb:nosync cannot sync at commit; use lmdb".to_string(),
            )),
            (Some(other), _) => Err(EngineError::Unsupported(format!(
                "lmdb has no variant `{other}`; it has: nosync"
            ))),
        }
    }
}

/// Returns a map size that lets the file fill its file system. The map only reserves addresses;
/// pages are allocated when they are written.
fn default_map_size(dir: &Path) -> Result<u64> {
    const GIB: u64 = 1 << 30;
    let stat = rustix::fs::statvfs(dir).map_err(failed("lmdb: ask for free disk space"))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let used = std::fs::metadata(dir.join(DATA_FILE)).map_or(0, |file| file.len());
    Ok((free + used).next_multiple_of(GIB).clamp(GIB, 1 << 46))
}

fn open_env(dir: &Path, map_size: u64, readers: u32, maps: usize, flags: EnvFlags) -> Result<Env> {
    let mut options = EnvOpenOptions::new();
    options
        .map_size(map_size as usize)
        .max_readers(readers)
        .max_dbs(maps as u32);
    // SAFETY: these flags trade durability, not memory safety: MDB_NOLOCK and MDB_WRITEMAP are
    // never among them.
    unsafe { options.flags(flags) };
    // SAFETY: the data directory belongs to this trial alone. No other process changes or truncates
    // the file while it is mapped, and `heed` refuses to open a directory twice in one process.
    unsafe { options.open(dir) }.map_err(failed("lmdb: open environment"))
}

fn create_map(env: &Env, name: &str) -> Result<Map> {
    let txn = env
        .write_txn()
        .map_err(failed("lmdb: begin schema transaction"))?;
    let created = env
        .create_databases_and_commit(txn, |opener, txn| {
            opener
                .create_database::<Bytes, Bytes>(txn, Some(name))
                .map(CommitOrAbort::<_, ()>::Commit)
        })
        .map_err(failed::<heed::Error>("lmdb: create named database"))?;
    match created {
        CommitOrAbort::Commit(map) => Ok(map),
        CommitOrAbort::Abort(()) => Err(EngineError::Wrong(
            "lmdb aborted the creation of a database".to_string(),
        )),
    }
}

fn start_syncer(env: Env) -> Result<Periodic> {
    Periodic::start("lmdb-sync", SYNC_INTERVAL, move || {
        env.force_sync().map_err(failed("lmdb: sync"))
    })
}

fn version() -> String {
    let library = heed::lmdb_version();
    format!(
        "LMDB {}.{}.{} (crate heed {})",
        library.major,
        library.minor,
        library.patch,
        crate_version("heed")
    )
}

impl Engine for Lmdb {
    fn facts(&self) -> EngineFacts {
        self.0.facts.clone()
    }

    kv_stores!();

    fn counters(&self) -> Vec<Counter> {
        let info = self.0.env.info();
        let page = f64::from(self.0.env.unnamed_database_stat().page_size);
        let mut pages = 0;
        if let Ok(txn) = self.0.env.read_txn() {
            for map in &self.0.maps {
                if let Ok(stat) = map.stat(&txn) {
                    pages += stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
                }
            }
        }
        let counter = |name: &str, value: f64| Counter {
            name: name.to_string(),
            value,
        };
        vec![
            counter("transactions", info.last_txn_id as f64),
            counter("file_bytes", (info.last_page_number + 1) as f64 * page),
            counter("tree_bytes", pages as f64 * page),
            counter("reader_slots", f64::from(info.number_of_readers)),
        ]
    }

    /// Syncs the file. A copy-on-write tree has no other background work.
    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        progress("syncing the file");
        self.0.env.force_sync().map_err(failed("lmdb: sync"))
    }

    fn is_data_file(&self, file_name: &str) -> bool {
        file_name == DATA_FILE
    }

    fn close(self: Box<Self>) -> Result<()> {
        let shared = Arc::into_inner(self.0).ok_or_else(|| still_open("lmdb"))?;
        if let Some(syncer) = shared.syncer {
            syncer.stop()?;
        }
        if shared.facts.configuration["flags"] != "none" {
            shared.env.force_sync().map_err(failed("lmdb: sync"))?;
        }
        shared.env.prepare_for_closing().wait();
        Ok(())
    }
}

impl KvEngine for Lmdb {
    type Connection = LmdbConnection;

    fn connect(&self) -> Result<LmdbConnection> {
        Ok(LmdbConnection(self.0.clone()))
    }
}

/// Connection of one client.
pub struct LmdbConnection(Arc<Shared>);

impl LmdbConnection {
    fn map(&self, map: MapId) -> Result<&Map> {
        self.0.maps.get(map.0).ok_or_else(|| no_map(map))
    }
}

impl KvConnection for LmdbConnection {
    type Txn<'a> = LmdbTxn<'a>;

    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let map = self.map(map)?;
        let txn = self.0.env.read_txn().map_err(failed("lmdb: begin read"))?;
        let value = map.get(&txn, key).map_err(failed("lmdb: get"))?;
        Ok(read(value))
    }

    fn scan(
        &mut self,
        map: MapId,
        scan: Scan<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        // An inverted range is empty, and LMDB would walk it.
        if scan.start >= scan.end || scan.limit == 0 {
            return Ok(());
        }
        let map = self.map(map)?;
        let range = (Bound::Included(scan.start), Bound::Excluded(scan.end));
        let txn = self.0.env.read_txn().map_err(failed("lmdb: begin read"))?;
        match scan.direction {
            Direction::Forward => {
                let rows = map.range(&txn, &range).map_err(failed("lmdb: scan"))?;
                visit_rows(rows, scan.limit, &mut visit)
            }
            Direction::Reverse => {
                let rows = map.rev_range(&txn, &range).map_err(failed("lmdb: scan"))?;
                visit_rows(rows, scan.limit, &mut visit)
            }
        }
    }

    fn multi_get(
        &mut self,
        map: MapId,
        keys: &[&[u8]],
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let map = self.map(map)?;
        let txn = self.0.env.read_txn().map_err(failed("lmdb: begin read"))?;
        for (place, key) in keys.iter().enumerate() {
            read(place, map.get(&txn, key).map_err(failed("lmdb: get"))?);
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<LmdbTxn<'_>> {
        let txn = self
            .0
            .env
            .write_txn()
            .map_err(failed("lmdb: begin write"))?;
        Ok(LmdbTxn {
            txn,
            maps: &self.0.maps,
        })
    }

    fn bulk_insert(&mut self, rows: &[BulkRow<'_>]) -> Result<()> {
        let mut txn = self.begin()?;
        for row in rows {
            txn.put(row.map, row.key, row.value)?;
        }
        txn.commit()
    }
}

fn visit_rows<'a>(
    rows: impl Iterator<Item = heed::Result<(&'a [u8], &'a [u8])>>,
    limit: usize,
    visit: &mut impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    for row in rows.take(limit) {
        let (key, value) = row.map_err(failed("lmdb: scan"))?;
        if !visit(key, value) {
            break;
        }
    }
    Ok(())
}

/// Write transaction: the only one of the environment while it is open.
pub struct LmdbTxn<'a> {
    txn: RwTxn<'a>,
    maps: &'a [Map],
}

impl LmdbTxn<'_> {
    fn map(&self, map: MapId) -> Result<Map> {
        self.maps.get(map.0).copied().ok_or_else(|| no_map(map))
    }
}

impl KvTxn for LmdbTxn<'_> {
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let value = self
            .map(map)?
            .get(&self.txn, key)
            .map_err(failed("lmdb: get"))?;
        Ok(read(value))
    }

    fn insert(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(map, key, value)
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        self.map(map)?
            .put(&mut self.txn, key, value)
            .map_err(failed("lmdb: put"))
    }

    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()> {
        self.map(map)?
            .delete(&mut self.txn, key)
            .map(|_existed| ())
            .map_err(failed("lmdb: delete"))
    }

    fn commit(self) -> Result<()> {
        self.txn.commit().map_err(failed("lmdb: commit"))
    }
}
