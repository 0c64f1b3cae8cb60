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
    Durability, DurabilityFacts, EngineError, EngineFacts, OpenConfig, Result,
};
use rumbench_core::kv::{Direction, KvConnection, KvTxn, MapDef, MapId, Scan};

use crate::embedded::{Backend, Embedded, Opened, map_of};
use crate::error::failed;
use crate::facts::{ALL_ACKNOWLEDGED, Configuration, crate_version, survives};
use crate::periodic::Periodic;
use crate::settings::Settings;

/// File of the environment that holds all pages.
const DATA_FILE: &str = "data.mdb";

type Map = Database<'static, Bytes, Bytes>;

/// LMDB as an engine. Variants: none, `nosync`.
pub type Lmdb = Embedded<LmdbMaps>;

/// Open LMDB environment with one named database for each map.
pub struct LmdbMaps {
    env: Env,
    maps: Vec<Map>,
    /// True if a commit is durable when it returns.
    syncs_commits: bool,
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

fn sync(env: &Env) -> Result<()> {
    env.force_sync().map_err(failed("lmdb: sync"))
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

impl Backend for LmdbMaps {
    const NAME: &str = "lmdb";

    type Connection = LmdbConnection;

    fn check(config: &OpenConfig) -> Result<()> {
        Tuning::of(config).map(drop)
    }

    fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<Opened<LmdbMaps>> {
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
        let synced = env.clone();
        let syncer = Periodic::syncer("lmdb-sync", config.durability, move || sync(&synced))?;

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
        Ok(Opened {
            syncer,
            backend: Arc::new(LmdbMaps {
                env,
                maps,
                syncs_commits: mode.flags.is_empty(),
            }),
            facts: EngineFacts {
                version: version(),
                configuration: configuration.to_map(),
                durability: mode.durability,
            },
        })
    }

    fn connect(self: &Arc<Self>) -> Result<LmdbConnection> {
        Ok(LmdbConnection(Arc::clone(self)))
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        let info = self.env.info();
        let page = f64::from(self.env.unnamed_database_stat().page_size);
        let mut pages = 0;
        if let Ok(txn) = self.env.read_txn() {
            for map in &self.maps {
                if let Ok(stat) = map.stat(&txn) {
                    pages += stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
                }
            }
        }
        vec![
            ("transactions", info.last_txn_id as f64),
            ("file_bytes", (info.last_page_number + 1) as f64 * page),
            ("tree_bytes", pages as f64 * page),
            ("reader_slots", f64::from(info.number_of_readers)),
        ]
    }

    /// Syncs the file. A copy-on-write tree has no other background work.
    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        progress("syncing the file");
        sync(&self.env)
    }

    fn is_data_file(file_name: &str) -> bool {
        file_name == DATA_FILE
    }

    fn close(self) -> Result<()> {
        if !self.syncs_commits {
            sync(&self.env)?;
        }
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

/// Connection of one client.
pub struct LmdbConnection(Arc<LmdbMaps>);

impl KvConnection for LmdbConnection {
    type Txn<'a> = LmdbTxn<'a>;

    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let map = map_of(&self.0.maps, map)?;
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
        let map = map_of(&self.0.maps, map)?;
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
        let map = map_of(&self.0.maps, map)?;
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

impl KvTxn for LmdbTxn<'_> {
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let value = map_of(self.maps, map)?
            .get(&self.txn, key)
            .map_err(failed("lmdb: get"))?;
        Ok(read(value))
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        map_of(self.maps, map)?
            .put(&mut self.txn, key, value)
            .map_err(failed("lmdb: put"))
    }

    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()> {
        map_of(self.maps, map)?
            .delete(&mut self.txn, key)
            .map(|_existed| ())
            .map_err(failed("lmdb: delete"))
    }

    fn commit(self) -> Result<()> {
        self.txn.commit().map_err(failed("lmdb: commit"))
    }
}
