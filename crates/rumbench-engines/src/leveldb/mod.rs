//! LevelDB: one log-structured merge tree in C++, atomic batches, no transactions.
//!
//! This adapter implements transactions. It locks rows that are read for update or written in a
//! table of its own ([`locks`]). It keeps writes until commit and passes them to LevelDB as one
//! batch; reads see the transaction's own writes first. So a reader sees all of a transaction or
//! nothing, and no update is lost. The measured results include the cost of these row locks. All
//! maps share the tree; a byte before each key names the map.
//!
//! LevelDB always has a log and hands each record to the kernel. Its interface syncs that log only
//! with a write, so the sync of each second is an empty batch. It never syncs a log after a full
//! memtable has replaced it: a power cut may lose older commits and keep newer ones.

mod library;
mod locks;
mod tables;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rumbench_core::engine::{
    Durability, DurabilityFacts, EngineError, EngineFacts, OpenConfig, Result,
};
use rumbench_core::kv::{BulkRow, Direction, KvConnection, KvTxn, MapDef, MapId, Scan};

use crate::embedded::{Backend, Embedded, Opened, wait_until_quiet};
use crate::error::no_map;
use crate::facts::{ALL_ACKNOWLEDGED, Configuration, survives};
use crate::periodic::Periodic;
use crate::settings::Settings;
use library::{Batch, Database, DatabaseOptions, Iter};
use locks::{Age, LockTable};
use tables::Tables;

const MIB: u64 = 1 << 20;
/// Prefix above the keys of all maps.
const BEHIND_ALL: u8 = u8::MAX;

/// LevelDB as an engine. Variants: none, `default`.
pub type LevelDb = Embedded<LevelMaps>;

/// Open LevelDB database.
pub struct LevelMaps {
    db: Arc<Database>,
    maps: usize,
    locks: LockTable,
    /// Age of the next transaction.
    next_age: AtomicU64,
    durability: Durability,
}

/// Settings and defaults for opening the database.
struct Tuning {
    tuned: bool,
    options: DatabaseOptions,
}

impl Tuning {
    fn of(config: &OpenConfig) -> Result<Tuning> {
        let tuned = match config.variant.as_deref() {
            None => true,
            Some("default") => false,
            Some(other) => {
                return Err(EngineError::Unsupported(format!(
                    "leveldb has no variant `{other}`; it has: default"
                )));
            }
        };
        let write_buffer = (config.cache_bytes / 16).clamp(4 * MIB, 64 * MIB) as usize;
        let mut settings = Settings::of("leveldb", config);
        let set_buffer = settings.take_optional("write_buffer_bytes", 64 << 10..=1 << 30)?;
        let options = DatabaseOptions {
            cache_bytes: config.cache_bytes as usize,
            write_buffer_bytes: set_buffer.or(tuned.then_some(write_buffer)),
            block_bytes: settings.take_optional("block_bytes", 1 << 10..=4 << 20)?,
            filter_bits_per_key: match settings.take_in(
                "filter_bits",
                if tuned { 10 } else { 0 },
                0..=64,
            )? {
                0 => None,
                bits => Some(bits),
            },
            max_open_files: settings.take_optional("max_open_files", 74..=50_000)?,
            snappy: settings.take("snappy", true)?,
            verify_checksums: settings.take("verify_checksums", tuned)?,
        };
        settings.finish()?;
        Ok(Tuning { tuned, options })
    }

    fn describe(&self) -> Configuration {
        let with = &self.options;
        let mut c = Configuration::default();
        let or_default = |value: Option<usize>| match value {
            Some(value) => value.to_string(),
            None => "the library's".to_string(),
        };
        c.given("cache_bytes", with.cache_bytes);
        c.given(
            "transactions",
            "the adapter's: row locks, one batch at commit",
        );
        c.given("multi_get", "a loop of gets, each copied");
        c.given("compression", if with.snappy { "snappy" } else { "none" });
        c.given("block_bytes", or_default(with.block_bytes));
        c.given("compaction", "leveled, one thread, tables of 2 MiB");
        let open_files = with.max_open_files.map(|files| files as usize);
        c.given("max_open_files", or_default(open_files));
        let buffer = or_default(with.write_buffer_bytes);
        if !self.tuned {
            c.given("write_buffer_bytes", buffer);
            c.given("filter_bits", with.filter_bits_per_key.unwrap_or(0));
            c.given("verify_checksums", with.verify_checksums);
            return c;
        }
        c.tuned(
            "write_buffer_bytes",
            buffer,
            "cache_bytes / 16 from the default of 4 MiB to 64 MiB, outside the cache",
        );
        let filters = match with.filter_bits_per_key {
            None => "none".to_string(),
            Some(bits) => format!("Bloom, {bits} bits a key"),
        };
        c.tuned(
            "filters",
            filters,
            "for single reads; LevelDB has no prefix filter",
        );
        c.tuned(
            "verify_checksums",
            with.verify_checksums,
            "as the other engines do by default",
        );
        c
    }
}

fn durability_facts(class: Durability) -> DurabilityFacts {
    let power_cut = match class {
        Durability::Sync => ALL_ACKNOWLEDGED,
        Durability::Buffered => {
            "commits older than about 1 s, but for those of a full memtable that is no table yet"
        }
        Durability::None => "what was flushed to tables, perhaps more; order may break",
    };
    survives(ALL_ACKNOWLEDGED, power_cut)
}

/// Syncs the log by writing an empty batch, because only a write syncs it.
fn sync(db: &Database) -> Result<()> {
    db.write(&Batch::new(), true)
}

impl Backend for LevelMaps {
    const NAME: &str = "leveldb";

    type Connection = LevelConnection;

    fn check(config: &OpenConfig) -> Result<()> {
        Tuning::of(config).map(drop)
    }

    fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<Opened<LevelMaps>> {
        let tuning = Tuning::of(config)?;
        assert!(schema.len() < usize::from(BEHIND_ALL), "a byte names a map");
        let db = Arc::new(Database::open(&config.dir, &tuning.options)?);
        let synced = Arc::clone(&db);
        let syncer = Periodic::syncer("leveldb-sync", config.durability, move || sync(&synced))?;
        Ok(Opened {
            syncer,
            backend: Arc::new(LevelMaps {
                db,
                maps: schema.len(),
                locks: LockTable::new(),
                next_age: AtomicU64::new(0),
                durability: config.durability,
            }),
            facts: EngineFacts {
                version: format!("LevelDB {}", library::version()),
                configuration: tuning.describe().to_map(),
                durability: durability_facts(config.durability),
            },
        })
    }

    fn connect(self: &Arc<Self>) -> Result<LevelConnection> {
        Ok(LevelConnection {
            shared: Arc::clone(self),
            age: None,
        })
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        let tables = Tables::of(&self.db);
        let memory = self.db.property(c"leveldb.approximate-memory-usage");
        let memory = memory.and_then(|text| text.trim().parse().ok());
        vec![
            ("tables", tables.count() as f64),
            ("l0_tables", tables.l0_count() as f64),
            ("table_bytes", tables.bytes() as f64),
            ("memory_bytes", memory.unwrap_or(0.0)),
        ]
    }

    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        progress("flushing the memtable");
        // A range without rows: LevelDB flushes the memtable, and starts no compaction that is not
        // due.
        self.db
            .compact_range(&[BEHIND_ALL], &[BEHIND_ALL, BEHIND_ALL]);
        // A level is due above the size at which LevelDB compacts it.
        let mut tables = Tables::of(&self.db);
        wait_until_quiet(progress, || {
            let before = std::mem::replace(&mut tables, Tables::of(&self.db));
            let work = format!("{} tables, compacting", tables.count());
            (tables.are_due() || tables != before, work)
        });
        self.sync_class()
    }

    fn is_data_file(file_name: &str) -> bool {
        file_name.ends_with(".ldb") || file_name.ends_with(".sst")
    }

    fn close(self) -> Result<()> {
        // The syncer held the only other reference: dropping the database closes it.
        self.sync_class()
    }
}

/// Connection of one client.
pub struct LevelConnection {
    shared: Arc<LevelMaps>,
    /// Age of a transaction that met a conflict; its retry takes it.
    age: Option<Age>,
}

impl LevelConnection {
    fn take_age(&mut self) -> Age {
        let next = || self.shared.next_age.fetch_add(1, Ordering::Relaxed);
        self.age.take().unwrap_or_else(next)
    }
}

impl LevelMaps {
    /// Syncs the log, unless the class promises nothing.
    fn sync_class(&self) -> Result<()> {
        match self.durability {
            Durability::None => Ok(()),
            Durability::Buffered | Durability::Sync => sync(&self.db),
        }
    }

    /// Returns the key of a row in the tree that all maps share.
    fn key(&self, map: MapId, key: &[u8]) -> Result<Vec<u8>> {
        if map.0 >= self.maps {
            return Err(no_map(map));
        }
        let mut whole = Vec::with_capacity(1 + key.len());
        whole.push(map.0 as u8);
        whole.extend_from_slice(key);
        Ok(whole)
    }
}

impl KvConnection for LevelConnection {
    type Txn<'a> = LevelTxn<'a>;

    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let value = self.shared.db.get(&self.shared.key(map, key)?)?;
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
        let start = self.shared.key(map, scan.start)?;
        let end = self.shared.key(map, scan.end)?;
        let mut rows = self.shared.db.iter();
        match scan.direction {
            Direction::Forward => rows.seek(&start),
            Direction::Reverse => rows.seek_before(&end),
        }
        visit_rows(&mut rows, &start..&end, scan, &mut visit);
        rows.status()
    }

    fn begin(&mut self) -> Result<LevelTxn<'_>> {
        Ok(LevelTxn {
            age: self.take_age(),
            connection: self,
            locked: Vec::new(),
            writes: HashMap::new(),
        })
    }

    /// Writes one batch. It needs no locks because no other client writes new keys.
    fn bulk_insert(&mut self, rows: &[BulkRow<'_>]) -> Result<()> {
        let mut batch = Batch::new();
        for row in rows {
            batch.put(&self.shared.key(row.map, row.key)?, row.value);
        }
        let sync = self.shared.durability == Durability::Sync;
        self.shared.db.write(&batch, sync)
    }
}

fn visit_rows(
    rows: &mut Iter<'_>,
    range: std::ops::Range<&Vec<u8>>,
    scan: Scan<'_>,
    visit: &mut impl FnMut(&[u8], &[u8]) -> bool,
) {
    for visited in 1..=scan.limit {
        let Some((key, value)) = rows.row() else {
            return;
        };
        let inside = match scan.direction {
            Direction::Forward => key < range.end.as_slice(),
            Direction::Reverse => key >= range.start.as_slice(),
        };
        if !inside || !visit(&key[1..], value) || visited == scan.limit {
            return;
        }
        match scan.direction {
            Direction::Forward => rows.next(),
            Direction::Reverse => rows.prev(),
        }
    }
}

/// Transaction of this adapter.
pub struct LevelTxn<'a> {
    connection: &'a mut LevelConnection,
    age: Age,
    /// Keys of the rows that the transaction owns.
    locked: Vec<Vec<u8>>,
    /// Value written by commit for each key, `None` for a delete.
    writes: HashMap<Vec<u8>, Option<Vec<u8>>>,
}

impl LevelTxn<'_> {
    /// Locks a row until the end of the transaction and returns its key in the shared tree.
    fn lock(&mut self, map: MapId, key: &[u8]) -> Result<Vec<u8>> {
        let key = self.connection.shared.key(map, key)?;
        match self.connection.shared.locks.lock(&key, self.age) {
            Ok(true) => self.locked.push(key.clone()),
            Ok(false) => {}
            Err(error) => {
                self.connection.age = Some(self.age);
                return Err(error);
            }
        }
        Ok(key)
    }
}

impl KvTxn for LevelTxn<'_> {
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let key = self.lock(map, key)?;
        if let Some(own) = self.writes.get(&key) {
            return Ok(read(own.as_deref()));
        }
        let value = self.connection.shared.db.get(&key)?;
        Ok(read(value.as_deref()))
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let key = self.lock(map, key)?;
        self.writes.insert(key, Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()> {
        let key = self.lock(map, key)?;
        self.writes.insert(key, None);
        Ok(())
    }

    /// Writes one batch; dropping the transaction then releases its rows.
    fn commit(self) -> Result<()> {
        if self.writes.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        for (key, value) in &self.writes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        let shared = &self.connection.shared;
        shared
            .db
            .write(&batch, shared.durability == Durability::Sync)
    }
}

impl Drop for LevelTxn<'_> {
    fn drop(&mut self) {
        for key in &self.locked {
            self.connection.shared.locks.unlock(key);
        }
    }
}
