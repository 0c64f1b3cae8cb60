//! fjall 3: log-structured merge trees in Rust over one shared journal.
//!
//! fjall has two transactional modes; this module uses the single-writer one. It holds a lock from
//! begin to commit, which protects the reads of a transaction. The optimistic mode validates
//! instead. At every commit it walks the write sets of thousands of earlier commits under a lock.
//! This costs more than it saves with the few clients of a LinkBench trial; docs/guide/engines.md
//! has the measurement.
//!
//! Scans read a snapshot; single reads return the newest value, as the library's own `get` does.

use std::sync::Arc;

use fjall::config::{BlockSizePolicy, CompressionPolicy, FilterPolicy, HashRatioPolicy};
use fjall::{
    CompressionType, Guard, KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase,
    SingleWriterTxKeyspace, SingleWriterWriteTx,
};
use rumbench_core::engine::{Durability, DurabilityFacts, EngineFacts, OpenConfig, Result};
use rumbench_core::kv::{BulkRow, Direction, KvConnection, KvTxn, MapDef, MapId, Scan};

use crate::embedded::{Backend, Embedded, Opened, map_of, wait_until_quiet};
use crate::error::failed;
use crate::facts::{
    ALL_ACKNOWLEDGED, Configuration, PREFIX_ONE_SECOND, SOME_PREFIX, crate_version, survives,
};
use crate::periodic::Periodic;
use crate::settings::Settings;

const MIB: u64 = 1 << 20;

/// fjall as an engine. No variants.
pub type Fjall = Embedded<FjallMaps>;

/// Open fjall database with one keyspace for each map.
pub struct FjallMaps {
    db: SingleWriterTxDatabase,
    maps: Vec<SingleWriterTxKeyspace>,
    /// Persist mode of every commit; `None` leaves the commit in the process.
    commit: Option<PersistMode>,
}

/// Settings that affect performance.
struct Tuning {
    block_bytes: u32,
    memtable_bytes: u64,
    journal_bytes: u64,
    hash_ratio: f32,
    worker_threads: usize,
}

impl Tuning {
    fn of(config: &OpenConfig) -> Result<Tuning> {
        let mut settings = Settings::without_variants("fjall", config)?;
        let memtable_bytes = (config.cache_bytes / 16).clamp(4 * MIB, 64 * MIB);
        let tuning = Tuning {
            block_bytes: settings.take_in("block_bytes", 4096, 1024..=1 << 20)?,
            memtable_bytes: settings.take_in("memtable_bytes", memtable_bytes, MIB..=1 << 30)?,
            journal_bytes: settings.take_in("journal_bytes", 1024 * MIB, 64 * MIB..=1 << 40)?,
            hash_ratio: settings.take_in("hash_ratio", 0.0, 0.0..=8.0)?,
            worker_threads: settings.take_in("worker_threads", 2, 1..=64)?,
        };
        settings.finish()?;
        Ok(tuning)
    }

    fn keyspace_options(&self, map: &MapDef) -> KeyspaceCreateOptions {
        let options = KeyspaceCreateOptions::default()
            .max_memtable_size(self.memtable_bytes)
            .data_block_size_policy(BlockSizePolicy::all(self.block_bytes))
            .data_block_compression_policy(CompressionPolicy::new([
                CompressionType::None,
                CompressionType::None,
                CompressionType::Lz4,
            ]));
        if map.point_reads {
            options
                .expect_point_read_hits(map.expect_hits)
                .data_block_hash_ratio_policy(HashRatioPolicy::all(self.hash_ratio))
        } else {
            options.filter_policy(FilterPolicy::disabled())
        }
    }

    fn describe(&self, config: &OpenConfig) -> Configuration {
        let mut configuration = Configuration::default();
        configuration.given("cache_bytes", config.cache_bytes);
        configuration.given("transactions", "single writer");
        configuration.given("multi_get", "a loop of gets");
        configuration.given("block_bytes", self.block_bytes);
        configuration.given("data_block_hash_ratio", self.hash_ratio);
        configuration.given(
            "compression",
            "none in levels 0 and 1, LZ4 below (no zstd in fjall)",
        );
        configuration.given("compaction", "leveled, 64 MiB tables");
        configuration.given("worker_threads", self.worker_threads);
        configuration.tuned(
            "memtable_bytes",
            self.memtable_bytes,
            "cache_bytes / 16, at most the default of 64 MiB: memtables are outside the cache",
        );
        configuration.tuned(
            "journal_bytes",
            self.journal_bytes,
            "as RocksDB's max_total_wal_size, so that small maps are not flushed early",
        );
        configuration.tuned(
            "filters",
            "Bloom, 10 bits a key",
            "only for maps with point reads, not in the last level where reads nearly always hit: fjall has no prefix filter",
        );
        configuration
    }
}

fn commit_mode(class: Durability) -> (Option<PersistMode>, DurabilityFacts) {
    match class {
        Durability::Sync => (
            Some(PersistMode::SyncData),
            survives(ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
        ),
        Durability::Buffered => (
            Some(PersistMode::Buffer),
            survives(ALL_ACKNOWLEDGED, PREFIX_ONE_SECOND),
        ),
        Durability::None => (None, survives(SOME_PREFIX, SOME_PREFIX)),
    }
}

impl Backend for FjallMaps {
    const NAME: &str = "fjall";

    type Connection = FjallConnection;

    fn check(config: &OpenConfig) -> Result<()> {
        Tuning::of(config).map(drop)
    }

    fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<Opened<FjallMaps>> {
        let tuning = Tuning::of(config)?;
        let db = SingleWriterTxDatabase::builder(&config.dir)
            .cache_size(config.cache_bytes)
            .max_journaling_size(tuning.journal_bytes)
            .manual_journal_persist(config.durability == Durability::None)
            .worker_threads(tuning.worker_threads)
            .open()
            .map_err(failed("fjall: open database"))?;
        let mut maps = Vec::with_capacity(schema.len());
        for map in schema {
            let keyspace = db
                .keyspace(map.name, || tuning.keyspace_options(map))
                .map_err(failed("fjall: open keyspace"))?;
            maps.push(keyspace);
        }
        let (commit, durability) = commit_mode(config.durability);
        let synced = db.clone();
        let syncer = Periodic::syncer("fjall-sync", config.durability, move || sync(&synced))?;
        Ok(Opened {
            syncer,
            backend: Arc::new(FjallMaps { db, maps, commit }),
            facts: EngineFacts {
                version: format!("fjall {}", crate_version("fjall")),
                configuration: tuning.describe(config).to_map(),
                durability,
            },
        })
    }

    fn connect(self: &Arc<Self>) -> Result<FjallConnection> {
        Ok(FjallConnection(Arc::clone(self)))
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        let db = self.db.inner();
        let tables: usize = self.maps.iter().map(|map| map.inner().table_count()).sum();
        let l0: usize = self
            .maps
            .iter()
            .map(|map| map.inner().l0_table_count())
            .sum();
        vec![
            ("memtable_bytes", db.write_buffer_size() as f64),
            ("sealed_memtables", db.outstanding_flushes() as f64),
            ("tables", tables as f64),
            ("l0_tables", l0 as f64),
            ("journals", db.journal_count() as f64),
            ("compactions", db.compactions_completed() as f64),
            ("compaction_seconds", db.time_compacting().as_secs_f64()),
            ("cache_bytes", db.cache_size() as f64),
        ]
    }

    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        for map in &self.maps {
            progress("flushing memtables");
            map.inner()
                .rotate_memtable_and_wait()
                .map_err(failed("fjall: flush"))?;
        }
        // Workers execute the requests of the last flushes. fjall requests compactions only after a
        // flush, so a backlog left by these requests stays.
        let db = self.db.inner();
        let mut completed = db.compactions_completed();
        wait_until_quiet(progress, || {
            let before = std::mem::replace(&mut completed, db.compactions_completed());
            let is_running = db.active_compactions() > 0 || db.outstanding_flushes() > 0;
            let work = format!("compacting, {completed} compactions so far");
            (is_running || completed != before, work)
        });
        self.db
            .persist(PersistMode::SyncAll)
            .map_err(failed("fjall: sync journal"))
    }

    /// Tables and value files are named by their number alone; journals end in `.jnl`.
    fn is_data_file(file_name: &str) -> bool {
        let name = file_name.rsplit('/').next().unwrap_or(file_name);
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
    }

    fn close(self) -> Result<()> {
        sync(&self.db)
    }
}

fn sync(db: &SingleWriterTxDatabase) -> Result<()> {
    db.persist(PersistMode::SyncData)
        .map_err(failed("fjall: sync journal"))
}

/// Connection of one client.
pub struct FjallConnection(Arc<FjallMaps>);

impl KvConnection for FjallConnection {
    type Txn<'a> = FjallTxn<'a>;

    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let value = map_of(&self.0.maps, map)?
            .get(key)
            .map_err(failed("fjall: get"))?;
        Ok(read(value.as_deref()))
    }

    fn scan(
        &mut self,
        map: MapId,
        scan: Scan<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        // An inverted range is empty, and the library's range may panic on it.
        if scan.start >= scan.end || scan.limit == 0 {
            return Ok(());
        }
        let map = map_of(&self.0.maps, map)?;
        let snapshot = self.0.db.read_tx();
        let rows = snapshot.range(map, scan.start..scan.end);
        match scan.direction {
            Direction::Forward => visit_rows(rows, scan.limit, &mut visit),
            Direction::Reverse => visit_rows(rows.rev(), scan.limit, &mut visit),
        }
    }

    fn begin(&mut self) -> Result<FjallTxn<'_>> {
        let txn = self.0.db.write_tx().durability(self.0.commit);
        Ok(FjallTxn {
            txn,
            maps: &self.0.maps,
        })
    }

    fn bulk_insert(&mut self, rows: &[BulkRow<'_>]) -> Result<()> {
        // New keys cause no conflicts: a write batch skips the transaction's private memtable.
        let mut batch = self.0.db.inner().batch().durability(self.0.commit);
        for row in rows {
            batch.insert(map_of(&self.0.maps, row.map)?.inner(), row.key, row.value);
        }
        batch.commit().map_err(failed("fjall: commit batch"))
    }

    fn ingest<'a>(
        &mut self,
        map: MapId,
        rows: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<bool> {
        let map = map_of(&self.0.maps, map)?.inner();
        let mut ingestion = map
            .start_ingestion()
            .map_err(failed("fjall: begin an ingestion"))?;
        for (key, value) in rows {
            let written = ingestion.write(key, value);
            written.map_err(failed("fjall: ingest a row"))?;
        }
        let finished = ingestion.finish();
        finished.map_err(failed("fjall: finish an ingestion"))?;
        Ok(true)
    }

    fn bulk_delete(&mut self, keys: &[(MapId, &[u8])]) -> Result<()> {
        let mut batch = self.0.db.inner().batch().durability(self.0.commit);
        for (map, key) in keys {
            batch.remove(map_of(&self.0.maps, *map)?.inner(), *key);
        }
        batch.commit().map_err(failed("fjall: commit batch"))
    }
}

fn visit_rows(
    rows: impl Iterator<Item = Guard>,
    limit: usize,
    visit: &mut impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    for row in rows.take(limit) {
        let (key, value) = row.into_inner().map_err(failed("fjall: scan"))?;
        if !visit(&key, &value) {
            break;
        }
    }
    Ok(())
}

/// Write transaction: the only one of the database while it is open.
pub struct FjallTxn<'a> {
    txn: SingleWriterWriteTx<'a>,
    maps: &'a [SingleWriterTxKeyspace],
}

impl KvTxn for FjallTxn<'_> {
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let map = map_of(self.maps, map)?;
        let value = self.txn.get(map, key).map_err(failed("fjall: get"))?;
        Ok(read(value.as_deref()))
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let map = map_of(self.maps, map)?;
        self.txn.insert(map, key, value);
        Ok(())
    }

    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()> {
        let map = map_of(self.maps, map)?;
        self.txn.remove(map, key);
        Ok(())
    }

    fn commit(self) -> Result<()> {
        self.txn.commit().map_err(failed("fjall: commit"))
    }
}
