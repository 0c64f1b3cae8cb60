//! SQLite with SQL of its own: a B-tree file, a write-ahead log, one writer at a time.
//!
//! - Every connection has its own page cache, so `cache_bytes` is divided evenly among the clients.
//!   Shared-cache mode would keep one copy, but locks whole tables. All of them share the kernel's
//!   page cache below.
//! - Writers of this process queue on a mutex before `BEGIN IMMEDIATE`: SQLite's own busy handler
//!   sleeps up to 100 ms between attempts. A careful application avoids this sleep the same way.
//! - `buffered` is `synchronous=NORMAL`, which syncs only at checkpoints, plus a sync of the log
//!   each second, so that the class means the same as for other engines.
//! - LinkBench's index is created after the load: sorted once instead of grown in random places.

mod connection;
mod errors;
mod shared;
mod sql;
mod table_sql;
mod tables;
mod tuning;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use rumbench_core::engine::{
    Counter, Durability, DurabilityFacts, Engine, EngineError, EngineFacts, OpenConfig, Result,
    Schema,
};
use rumbench_core::linkbench::{LinkConnection, LinkStore};
use rumbench_core::tables::{TableSchema, TableStore};
use rusqlite::{Connection, OptionalExtension};

use crate::adapter::Adapter;
use crate::error::{failed, still_open};
use crate::facts::{ALL_ACKNOWLEDGED, PREFIX_ONE_SECOND, crate_version, survives};
use crate::periodic::{Periodic, SYNC_INTERVAL};
use connection::SqliteConnection;
use errors::{convert, sqlite_error};
use shared::Shared;
use tables::SqliteTables;
use tuning::Tuning;

const DATA_FILE: &str = "rumbench.sqlite";
const WAL_FILE: &str = "rumbench.sqlite-wal";

/// Open SQLite database with the tables of one workload.
pub struct Sqlite(Arc<Shared>);

/// Entry of this engine in the registry. No variants.
pub(crate) const ADAPTER: Adapter = Adapter { check, open };

fn check(config: &OpenConfig) -> Result<()> {
    Tuning::of(config).map(drop)
}

fn open(config: &OpenConfig) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Sqlite::open(config)?))
}

impl Sqlite {
    /// Opens or creates the tables in `config.dir`.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] for a variant or an unknown setting.
    pub fn open(config: &OpenConfig) -> Result<Sqlite> {
        let tuning = Tuning::of(config)?;
        let path = config.dir.join(DATA_FILE);
        let own = tuning.connect(&path)?;
        let highest = create_tables(&own, config.schema)?;
        let syncer = match config.durability {
            Durability::Buffered => Some(start_syncer(&config.dir)?),
            Durability::Sync | Durability::None => None,
        };
        let facts = EngineFacts {
            version: format!(
                "SQLite {} (crate rusqlite {})",
                rusqlite::version(),
                crate_version("rusqlite")
            ),
            configuration: tuning.describe(config.schema).to_map(),
            durability: durability_facts(config.durability),
        };
        Ok(Sqlite(Arc::new(Shared {
            path,
            tuning,
            facts,
            writer: Mutex::new(()),
            own: Mutex::new(own),
            syncer: Mutex::new(syncer),
            next_node: AtomicU64::new(highest as u64 + 1),
        })))
    }
}

/// Creates the tables if they do not exist. Returns the highest id of a node, 0 if there are none.
fn create_tables(own: &Connection, schema: Schema) -> Result<i64> {
    let create = |tables: &str| {
        own.execute_batch(tables)
            .map_err(sqlite_error("sqlite: create tables"))
    };
    match schema {
        Schema::LinkBench => {
            create(sql::CREATE_TABLES)?;
            own.query_row(sql::HIGHEST_NODE, (), |row| row.get(0))
                .map_err(sqlite_error("sqlite: read highest node id"))
        }
        Schema::Tables(schema) => {
            if !schema.is_key_value() {
                create(table_sql::CREATE_CATALOG)?;
                check_catalog(own, schema)?;
            }
            create(&table_sql::create_tables(schema)).map(|()| 0)
        }
    }
}

/// Checks that the database holds these tables, or records them in an empty one.
fn check_catalog(own: &Connection, schema: &TableSchema) -> Result<()> {
    let ours = schema.describe();
    let found: Option<String> = own
        .query_row(table_sql::READ_CATALOG, (), |row| row.get(0))
        .optional()
        .map_err(sqlite_error("sqlite: read catalog"))?;
    match found {
        Some(found) => schema.compare(&found),
        None => own
            .execute(table_sql::WRITE_CATALOG, [ours])
            .map(|_rows| ())
            .map_err(sqlite_error("sqlite: write catalog")),
    }
}

fn durability_facts(class: Durability) -> DurabilityFacts {
    match class {
        Durability::Sync => survives(ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
        Durability::Buffered => survives(ALL_ACKNOWLEDGED, PREFIX_ONE_SECOND),
        Durability::None => survives(ALL_ACKNOWLEDGED, "may corrupt"),
    }
}

/// Syncs the log each second. SQLite does not lock the log file, so a second descriptor of it is
/// harmless. Checksums chain its frames, so any part of it that survives is a prefix of the
/// commits.
fn start_syncer(dir: &Path) -> Result<Periodic> {
    let wal = File::open(dir.join(WAL_FILE)).map_err(failed("sqlite: open log to sync it"))?;
    Periodic::start("sqlite-sync", SYNC_INTERVAL, move || {
        wal.sync_data().map_err(failed("sqlite: sync log"))
    })
}

impl Engine for Sqlite {
    fn facts(&self) -> EngineFacts {
        self.0.facts.clone()
    }

    fn link_store(&self) -> Result<Arc<dyn LinkStore>> {
        Ok(Arc::new(SqliteStore(self.0.clone())))
    }

    fn table_store(&self, schema: &'static TableSchema) -> Result<Arc<dyn TableStore>> {
        let shared = Arc::clone(&self.0);
        Ok(Arc::new(SqliteTables { shared, schema }))
    }

    fn counters(&self) -> Vec<Counter> {
        let own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        let pragma = |name| {
            own.pragma_query_value(None, name, |row| row.get::<_, i64>(0))
                .unwrap_or(0)
        };
        let wal = self.0.path.with_file_name(WAL_FILE);
        let wal_bytes = std::fs::metadata(wal).map_or(0, |file| file.len());
        let counter = |name: &str, value: f64| Counter {
            name: name.to_string(),
            value,
        };
        vec![
            counter("pages", pragma("page_count") as f64),
            counter("free_pages", pragma("freelist_count") as f64),
            counter("wal_file_bytes", wal_bytes as f64),
        ]
    }

    /// Moves the whole log into the database file and empties it.
    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        progress("checkpointing the log");
        let _writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        let busy: i64 = own
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0))
            .map_err(sqlite_error("sqlite: checkpoint"))?;
        if busy != 0 {
            return Err(EngineError::Retry(
                "sqlite could not checkpoint: a reader is in the way".to_string(),
            ));
        }
        // With synchronous=OFF the checkpoint itself syncs nothing.
        File::open(&self.0.path)
            .and_then(|file| file.sync_all())
            .map_err(failed("sqlite: sync database file"))
    }

    fn is_data_file(&self, file_name: &str) -> bool {
        file_name == DATA_FILE
    }

    fn close(self: Box<Self>) -> Result<()> {
        let shared = Arc::into_inner(self.0).ok_or_else(|| still_open("sqlite"))?;
        let syncer = shared
            .syncer
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(syncer) = syncer {
            syncer.stop()?;
        }
        let own = shared
            .own
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        own.close()
            .map_err(|(_, error)| convert("sqlite: close", error))
    }
}

/// LinkBench store on SQLite.
struct SqliteStore(Arc<Shared>);

impl LinkStore for SqliteStore {
    fn connect(&self) -> Result<Box<dyn LinkConnection>> {
        let connection = self.0.tuning.connect(&self.0.path)?;
        Ok(Box::new(SqliteConnection::new(self.0.clone(), connection)))
    }

    fn separate_index(&self) -> bool {
        true
    }

    fn build_index(&self) -> Result<()> {
        let _writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.execute_batch(sql::CREATE_INDEX)
            .map_err(sqlite_error("sqlite: create index"))
    }
}
