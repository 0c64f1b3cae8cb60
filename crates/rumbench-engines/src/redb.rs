//! redb: one copy-on-write B+ tree file in Rust, many readers, one writer.
//!
//! The single writer waits for its turn at begin and keeps it to the end. So a plain read inside a
//! write transaction is already protected from lost updates. Readers see the newest committed root
//! and never wait.
//!
//! A commit either syncs the file or stays in the process: redb has no log that the kernel could
//! hold. So `buffered` syncs each commit as `sync` does, which is more than the class requires.
//! `none` keeps commits in the process, and syncs one about each second. redb reuses pages freed by
//! commits only after such a sync.
//!
//! A table is opened for each call. The crate's tables borrow their transaction, so a transaction
//! of this adapter, which owns the crate's, cannot keep one. It costs a lookup in the small tree of
//! table names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{
    Builder, Database, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};
use rumbench_core::engine::{Durability, DurabilityFacts, EngineFacts, OpenConfig, Result};
use rumbench_core::kv::{Direction, KvConnection, KvTxn, MapDef, MapId, Scan};

use crate::embedded::{Backend, Embedded, Opened, map_of};
use crate::error::{failed, still_open};
use crate::facts::{ALL_ACKNOWLEDGED, Configuration, PREFIX_ONE_SECOND, crate_version, survives};
use crate::periodic::{Periodic, SYNC_INTERVAL};
use crate::settings::Settings;

/// The only file of a database.
const DATA_FILE: &str = "rumbench.redb";

type Map = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// redb as an engine. No variants.
pub type Redb = Embedded<RedbMaps>;

/// Open redb database with one table for each map.
pub struct RedbMaps {
    db: Arc<Database>,
    maps: Vec<Map>,
    commit: Commit,
    dir: PathBuf,
    /// Write transactions that committed. The single writer adds to it; the counters read it.
    commits: AtomicU64,
}

/// Commit mode of a write transaction.
#[derive(Clone, Copy)]
struct Commit {
    durability: redb::Durability,
    quick_repair: bool,
}

/// Settings for opening the database, except the cache size: redb has few.
struct Tuning {
    quick_repair: bool,
}

impl Tuning {
    fn of(config: &OpenConfig) -> Result<Tuning> {
        let mut settings = Settings::without_variants("redb", config)?;
        let tuning = Tuning {
            quick_repair: settings.take("quick_repair", false)?,
        };
        settings.finish()?;
        Ok(tuning)
    }

    fn describe(&self, config: &OpenConfig) -> Configuration {
        let mut configuration = Configuration::default();
        configuration.given("cache_bytes", config.cache_bytes);
        configuration.given("page_size", 4096);
        configuration.given("transactions", "single writer");
        configuration.given("multi_get", "a loop of gets in one read transaction");
        configuration.given("compression", "none (redb has none)");
        configuration.given("quick_repair", self.quick_repair);
        configuration.given(
            "commit",
            match config.durability {
                Durability::Buffered => {
                    "synced: redb cannot hand a commit to the kernel without a sync"
                }
                Durability::Sync => "synced",
                Durability::None => "kept in the process; one a second is synced",
            },
        );
        configuration
    }
}

impl Commit {
    fn is_synced(self) -> bool {
        matches!(self.durability, redb::Durability::Immediate)
    }

    /// Returns the same mode with a sync, regardless of the durability class.
    fn synced(self) -> Commit {
        Commit {
            durability: redb::Durability::Immediate,
            ..self
        }
    }
}

fn durability_facts(class: Durability) -> DurabilityFacts {
    match class {
        Durability::Buffered | Durability::Sync => survives(ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
        Durability::None => survives(PREFIX_ONE_SECOND, PREFIX_ONE_SECOND),
    }
}

/// Begins a write transaction after waiting for the writer's turn.
fn begin(db: &Database, commit: Commit) -> Result<WriteTransaction> {
    let mut txn = db.begin_write().map_err(failed("redb: begin write"))?;
    txn.set_durability(commit.durability)
        .map_err(failed("redb: set durability"))?;
    txn.set_quick_repair(commit.quick_repair);
    Ok(txn)
}

/// Commits an empty transaction that makes all earlier ones durable.
fn sync(db: &Database, commit: Commit) -> Result<()> {
    begin(db, commit.synced())?
        .commit()
        .map_err(failed("redb: sync"))
}

impl Backend for RedbMaps {
    const NAME: &str = "redb";

    type Connection = RedbConnection;

    fn check(config: &OpenConfig) -> Result<()> {
        Tuning::of(config).map(drop)
    }

    fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<Opened<RedbMaps>> {
        let tuning = Tuning::of(config)?;
        let db = Builder::new()
            .set_cache_size(config.cache_bytes as usize)
            .create(config.dir.join(DATA_FILE))
            .map_err(failed("redb: open database"))?;
        let maps: Vec<Map> = schema
            .iter()
            .map(|map| TableDefinition::new(map.name))
            .collect();
        let commit = Commit {
            durability: match config.durability {
                Durability::Buffered | Durability::Sync => redb::Durability::Immediate,
                Durability::None => redb::Durability::None,
            },
            quick_repair: tuning.quick_repair,
        };
        // Readers cannot open a table before a commit has created it.
        let txn = begin(&db, commit.synced())?;
        for map in &maps {
            txn.open_table(*map)
                .map(drop)
                .map_err(failed("redb: create table"))?;
        }
        txn.commit().map_err(failed("redb: create tables"))?;
        let db = Arc::new(db);
        let syncer = if commit.is_synced() {
            None
        } else {
            let db = Arc::clone(&db);
            let sync = move || sync(&db, commit);
            Some(Periodic::start("redb-sync", SYNC_INTERVAL, sync)?)
        };
        Ok(Opened {
            syncer,
            backend: Arc::new(RedbMaps {
                db,
                maps,
                commit,
                dir: config.dir.clone(),
                commits: AtomicU64::new(0),
            }),
            facts: EngineFacts {
                version: format!("redb {}", crate_version("redb")),
                configuration: tuning.describe(config).to_map(),
                durability: durability_facts(config.durability),
            },
        })
    }

    fn connect(self: &Arc<Self>) -> Result<RedbConnection> {
        Ok(RedbConnection(Arc::clone(self)))
    }

    /// Returns commits and file size only. redb counts cache hits only in a build that enables it,
    /// and walks the trees for all other statistics.
    fn counters(&self) -> Vec<(&'static str, f64)> {
        let file_bytes = file_bytes(&self.dir.join(DATA_FILE));
        let commits = self.commits.load(Ordering::Relaxed);
        vec![
            ("commits", commits as f64),
            ("file_bytes", file_bytes as f64),
        ]
    }

    /// Syncs the file. A copy-on-write tree has no other background work. Settling does not compact
    /// the file, because redb offers that only with exclusive access to the database.
    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        progress("syncing the file");
        sync(&self.db, self.commit)
    }

    fn is_data_file(file_name: &str) -> bool {
        file_name == DATA_FILE
    }

    fn close(self) -> Result<()> {
        if !self.commit.is_synced() {
            sync(&self.db, self.commit)?;
        }
        let db = Arc::into_inner(self.db).ok_or_else(|| still_open("redb"))?;
        db.close().map_err(failed("redb: close"))
    }
}

/// Returns the file's length, or 0 if it is not available: a counter must not fail a trial.
fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// Connection of one client.
pub struct RedbConnection(Arc<RedbMaps>);

impl RedbConnection {
    /// Opens a map in its current state. The table keeps its read transaction alive.
    fn read(&self, map: MapId) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>> {
        let map = map_of(&self.0.maps, map)?;
        let txn = self.0.db.begin_read().map_err(failed("redb: begin read"))?;
        txn.open_table(*map).map_err(failed("redb: open table"))
    }
}

impl KvConnection for RedbConnection {
    type Txn<'a> = RedbTxn<'a>;

    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let table = self.read(map)?;
        let value = ReadableTable::get(&table, key).map_err(failed("redb: get"))?;
        Ok(read(value.as_ref().map(|value| value.value())))
    }

    fn multi_get(
        &mut self,
        map: MapId,
        keys: &[&[u8]],
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let table = self.read(map)?;
        for (place, key) in keys.iter().enumerate() {
            let value = ReadableTable::get(&table, *key).map_err(failed("redb: get"))?;
            read(place, value.as_ref().map(|value| value.value()));
        }
        Ok(())
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
        let table = self.read(map)?;
        let mut rows = ReadableTable::range::<&[u8]>(&table, scan.start..scan.end)
            .map_err(failed("redb: scan"))?;
        for _ in 0..scan.limit {
            let row = match scan.direction {
                Direction::Forward => rows.next(),
                Direction::Reverse => rows.next_back(),
            };
            let Some(row) = row else {
                break;
            };
            let (key, value) = row.map_err(failed("redb: scan"))?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<RedbTxn<'_>> {
        Ok(RedbTxn {
            txn: begin(&self.0.db, self.0.commit)?,
            shared: &self.0,
        })
    }
}

/// Write transaction: the only one of the database while it is open. Dropping the crate's
/// transaction rolls it back.
pub struct RedbTxn<'a> {
    txn: WriteTransaction,
    shared: &'a RedbMaps,
}

impl KvTxn for RedbTxn<'_> {
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let table = self.txn.open_table(*map_of(&self.shared.maps, map)?);
        let table = table.map_err(failed("redb: open table"))?;
        let value = table.get(key).map_err(failed("redb: get"))?;
        Ok(read(value.as_ref().map(|value| value.value())))
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let table = self.txn.open_table(*map_of(&self.shared.maps, map)?);
        let mut table = table.map_err(failed("redb: open table"))?;
        table
            .insert(key, value)
            .map(drop)
            .map_err(failed("redb: put"))
    }

    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()> {
        let table = self.txn.open_table(*map_of(&self.shared.maps, map)?);
        let mut table = table.map_err(failed("redb: open table"))?;
        table.remove(key).map(drop).map_err(failed("redb: delete"))
    }

    fn commit(self) -> Result<()> {
        self.txn.commit().map_err(failed("redb: commit"))?;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
