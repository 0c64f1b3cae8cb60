//! Alluvium, this workspace's own engine: a keyspace for each map, row locks, group commit.
//!
//! Transactions run at read committed, as MyRocks and InnoDB do in published LinkBench runs. Single
//! reads access the value in place; scans use a cursor with the map's prefix filter if it has one.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use alluvium::{
    Compression, CursorOptions, Database, Error, Isolation, Keyspace, KeyspaceOptions, Options,
    Transaction, WriteBatch, WriteOptions,
};
use rumbench_core::engine::{
    Durability, DurabilityFacts, EngineError, EngineFacts, OpenConfig, Result,
};
use rumbench_core::kv::{BulkRow, Direction, KvConnection, KvTxn, MapDef, MapId, Scan};

use crate::embedded::{Backend, Embedded, Opened, map_of};
use crate::facts::{ALL_ACKNOWLEDGED, Configuration, SOME_PREFIX, crate_version, survives};
use crate::settings::Settings;

/// Alluvium as an engine. No variants.
pub type Alluvium = Embedded<AlluviumMaps>;

/// Open Alluvium database with one keyspace for each map.
pub struct AlluviumMaps {
    db: Database,
    maps: Vec<Keyspace>,
}

/// Value of the setting `compression`.
struct Codec(Compression);

impl FromStr for Codec {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Codec, &'static str> {
        match text {
            "adaptive" => Ok(Codec(Compression::Adaptive)),
            "lz4" => Ok(Codec(Compression::Lz4)),
            "none" => Ok(Codec(Compression::None)),
            _ => Err("must be adaptive, lz4 or none"),
        }
    }
}

/// Returns the options of the database, and those shared by all keyspaces.
fn options(config: &OpenConfig) -> Result<(Options, KeyspaceOptions)> {
    let mut settings = Settings::without_variants("alluvium", config)?;
    let defaults = Options::default();
    let memory = usize::try_from(config.cache_bytes).unwrap_or(usize::MAX);
    let options = Options {
        memory_bytes: settings.take("memory_bytes", memory)?,
        durability: match config.durability {
            Durability::Buffered => alluvium::Durability::Buffered,
            Durability::Sync => alluvium::Durability::Sync,
            Durability::None => alluvium::Durability::None,
        },
        upper_fraction: settings.take("upper_fraction", defaults.upper_fraction)?,
        table_bytes: settings.take("table_bytes", defaults.table_bytes)?,
        compaction_threads: settings.take("compaction_threads", defaults.compaction_threads)?,
        memtable_bytes: match settings.take("memtable_bytes", 0)? {
            0 => None,
            bytes => Some(bytes),
        },
        // An interval of more than a second would break the promise of `buffered`.
        sync_interval: Duration::from_millis(settings.take_in(
            "sync_interval_ms",
            defaults.sync_interval.as_millis() as u64,
            1..=1000,
        )?),
        ..defaults
    };
    let rows = KeyspaceOptions::default();
    let rows = KeyspaceOptions {
        block_bytes: settings.take_in("block_bytes", rows.block_bytes, 1 << 10..=64 << 10)?,
        compression: settings.take("compression", Codec(rows.compression))?.0,
        ..rows
    };
    settings.finish()?;
    match options.check() {
        Ok(()) => Ok((options, rows)),
        Err(error) => Err(EngineError::Unsupported(format!("alluvium: {error}"))),
    }
}

fn keyspace_options(map: &MapDef, rows: &KeyspaceOptions) -> KeyspaceOptions {
    KeyspaceOptions {
        whole_key_filter: map.point_reads,
        prefix_filter_bytes: map.scan_prefix_bytes,
        expect_hits: map.expect_hits,
        ..rows.clone()
    }
}

fn describe(options: &Options, rows: &KeyspaceOptions) -> Configuration {
    let mut configuration = Configuration::default();
    configuration.tuned(
        "memory_bytes",
        options.memory_bytes,
        "cache_bytes: memtables, fences and filters are inside this number",
    );
    configuration.given("upper_fraction", options.upper_fraction);
    configuration.given("table_bytes", options.table_bytes);
    configuration.given("compaction_threads", options.compaction_threads);
    configuration.given("sync_interval_ms", options.sync_interval.as_millis());
    configuration.given("multi_get", "a call of its own");
    let compression = match rows.compression {
        Compression::Adaptive => "LZ4, zstd level 1 in the last level",
        Compression::Lz4 => "LZ4",
        Compression::None => "none",
    };
    configuration.given("compression", compression);
    configuration.given("block_bytes", rows.block_bytes);
    configuration.given("isolation", "read committed, row locks");
    configuration.given(
        "filters",
        "Bloom, 10 bits: whole keys for maps with point reads, prefixes for maps scanned by prefix",
    );
    configuration
}

fn durability_facts(class: Durability) -> DurabilityFacts {
    match class {
        Durability::Sync => survives(ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
        // Synced every 100 ms by default and at least every second, which is within the promise of
        // the other engines.
        Durability::Buffered => survives(ALL_ACKNOWLEDGED, crate::facts::PREFIX_ONE_SECOND),
        Durability::None => survives(SOME_PREFIX, SOME_PREFIX),
    }
}

/// Maps conflicts and lock failures to errors that the client retries; any other error ends the
/// trial.
#[cold]
fn failed(error: Error) -> EngineError {
    match error {
        Error::Conflict { .. } | Error::Deadlock { .. } | Error::LockTimeout { .. } => {
            EngineError::Retry(error.to_string())
        }
        error => EngineError::failed("alluvium", error),
    }
}

impl Backend for AlluviumMaps {
    const NAME: &str = "alluvium";

    type Connection = AlluviumConnection;

    fn check(config: &OpenConfig) -> Result<()> {
        options(config).map(drop)
    }

    fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<Opened<AlluviumMaps>> {
        let (options, rows) = options(config)?;
        let db = Database::open(&config.dir, options.clone()).map_err(failed)?;
        let mut maps = Vec::with_capacity(schema.len());
        for map in schema {
            maps.push(
                db.keyspace(map.name, keyspace_options(map, &rows))
                    .map_err(failed)?,
            );
        }
        let facts = EngineFacts {
            version: format!("alluvium {}", crate_version("alluvium")),
            configuration: describe(&options, &rows).to_map(),
            durability: durability_facts(config.durability),
        };
        Ok(Opened {
            syncer: None,
            backend: Arc::new(AlluviumMaps { db, maps }),
            facts,
        })
    }

    fn connect(self: &Arc<Self>) -> Result<AlluviumConnection> {
        Ok(AlluviumConnection {
            shared: Arc::clone(self),
            batch: WriteBatch::new(),
        })
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        let Ok(stats) = self.db.stats() else {
            return Vec::new();
        };
        let sum = |of: fn(&alluvium::KeyspaceStats) -> u64| stats.keyspaces.iter().map(of).sum();
        let counters: [(&'static str, u64); 15] = [
            ("memtable_bytes", sum(|k| k.memtable_bytes)),
            ("sealed_bytes", stats.sealed_bytes),
            ("groups", sum(|k| k.groups)),
            ("upper_tables", sum(|k| k.upper_tables)),
            ("upper_bytes", sum(|k| k.upper_bytes)),
            ("last_bytes", sum(|k| k.last_bytes)),
            ("cache_bytes", stats.cache_used_bytes),
            ("cache_hits", stats.cache_hits),
            ("cache_misses", stats.cache_misses),
            ("flushes", stats.flushes),
            ("compactions", stats.compactions),
            ("table_write_bytes", stats.table_bytes_written),
            ("read_triggered_write_bytes", stats.read_triggered_bytes),
            ("delay_us", stats.delay_us),
            ("ceiling_waits", stats.ceiling_waits),
        ];
        counters.map(|(name, value)| (name, value as f64)).into()
    }

    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        progress("flushing memtables and compacting");
        self.db.settle().map_err(failed)?;
        self.db.sync().map_err(failed)
    }

    fn is_data_file(file_name: &str) -> bool {
        // Tables, and files of separated values.
        file_name.ends_with(".sst") || file_name.ends_with(".val")
    }

    fn close(self) -> Result<()> {
        self.db.close().map_err(failed)
    }
}

/// Connection of one client.
pub struct AlluviumConnection {
    shared: Arc<AlluviumMaps>,
    /// Refilled by each bulk write.
    batch: WriteBatch,
}

impl AlluviumConnection {
    /// Writes the batch without row locks, because no other client writes its keys.
    fn write_batch(&self) -> Result<()> {
        let options = WriteOptions {
            untracked: true,
            ..WriteOptions::default()
        };
        let written = self.shared.db.write_with(&self.batch, &options);
        written.map_err(failed)
    }
}

impl KvConnection for AlluviumConnection {
    type Txn<'a> = AlluviumTxn<'a>;

    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        map_of(&self.shared.maps, map)?
            .read(key, read)
            .map_err(failed)
    }

    fn scan(
        &mut self,
        map: MapId,
        scan: Scan<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let options = CursorOptions::range(scan.start, scan.end);
        let mut cursor = map_of(&self.shared.maps, map)?
            .cursor(options)
            .map_err(failed)?;
        let mut found = match scan.direction {
            Direction::Forward => cursor.seek_first(),
            Direction::Reverse => cursor.seek_last(),
        };
        let mut left = scan.limit;
        while left > 0 && found.map_err(failed)? && visit(cursor.key(), cursor.value()) {
            left -= 1;
            if left == 0 {
                break;
            }
            found = match scan.direction {
                Direction::Forward => cursor.next(),
                Direction::Reverse => cursor.prev(),
            };
        }
        Ok(())
    }

    fn multi_get(
        &mut self,
        map: MapId,
        keys: &[&[u8]],
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let values = map_of(&self.shared.maps, map)?
            .multi_get(keys)
            .map_err(failed)?;
        for (place, value) in values.iter().enumerate() {
            read(place, value.as_deref());
        }
        Ok(())
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        map_of(&self.shared.maps, map)?
            .put(key, value)
            .map_err(failed)
    }

    fn begin(&mut self) -> Result<AlluviumTxn<'_>> {
        let txn = self
            .shared
            .db
            .begin(Isolation::ReadCommitted)
            .map_err(failed)?;
        Ok(AlluviumTxn {
            txn,
            shared: &self.shared,
        })
    }

    fn bulk_insert(&mut self, rows: &[BulkRow<'_>]) -> Result<()> {
        self.batch.clear();
        for row in rows {
            let map = map_of(&self.shared.maps, row.map)?;
            let inserted = self.batch.insert(map, row.key, row.value);
            inserted.map_err(failed)?;
        }
        self.write_batch()
    }

    fn ingest<'a>(
        &mut self,
        map: MapId,
        rows: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<bool> {
        let map = map_of(&self.shared.maps, map)?;
        let mut ingest = self.shared.db.ingest().map_err(failed)?;
        for (key, value) in rows {
            ingest.put(map, key, value).map_err(failed)?;
        }
        ingest.finish().map_err(failed)?;
        Ok(true)
    }

    fn bulk_delete(&mut self, keys: &[(MapId, &[u8])]) -> Result<()> {
        self.batch.clear();
        for (map, key) in keys {
            let map = map_of(&self.shared.maps, *map)?;
            self.batch.delete(map, key).map_err(failed)?;
        }
        self.write_batch()
    }
}

/// Transaction at read committed.
pub struct AlluviumTxn<'a> {
    txn: Transaction,
    shared: &'a AlluviumMaps,
}

impl KvTxn for AlluviumTxn<'_> {
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let value = self
            .txn
            .get_for_update(map_of(&self.shared.maps, map)?, key)
            .map_err(failed)?;
        Ok(read(value.as_deref()))
    }

    fn insert(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let map = map_of(&self.shared.maps, map)?;
        self.txn.insert(map, key, value).map_err(failed)
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let map = map_of(&self.shared.maps, map)?;
        self.txn.put(map, key, value).map_err(failed)
    }

    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()> {
        let map = map_of(&self.shared.maps, map)?;
        self.txn.delete(map, key).map_err(failed)
    }

    fn commit(self) -> Result<()> {
        self.txn.commit().map_err(failed)
    }
}
