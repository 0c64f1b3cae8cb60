//! Settings of SQLite, and a connection with them.

use std::path::Path;
use std::time::Duration;

use rumbench_core::engine::{Durability, EngineError, OpenConfig, Result, Schema};
use rusqlite::Connection;

use super::errors::sqlite_error;
use crate::facts::Configuration;
use crate::settings::Settings;

/// Settings that affect performance.
pub(super) struct Tuning {
    synchronous: &'static str,
    clients: u64,
    cache_bytes_each: u64,
    page_bytes: u32,
    checkpoint_pages: u32,
}

impl Tuning {
    pub(super) fn of(config: &OpenConfig) -> Result<Tuning> {
        const WAL_BYTES: u32 = 64 << 20;
        let mut settings = Settings::without_variants("sqlite", config)?;
        let page_bytes: u32 = settings.take_in("page_bytes", 4096, 512..=65536)?;
        if !page_bytes.is_power_of_two() {
            // SQLite would silently keep its default.
            return Err(EngineError::Unsupported(format!(
                "sqlite.page_bytes={page_bytes}: must be a power of two"
            )));
        }
        let pages = WAL_BYTES / page_bytes;
        let checkpoint_pages = settings.take_in("checkpoint_pages", pages, 1..=1 << 24)?;
        settings.finish()?;
        let clients = config.clients.max(1) as u64;
        Ok(Tuning {
            synchronous: match config.durability {
                Durability::Sync => "FULL",
                Durability::Buffered => "NORMAL",
                Durability::None => "OFF",
            },
            clients,
            cache_bytes_each: config.cache_bytes / clients,
            page_bytes,
            checkpoint_pages,
        })
    }

    /// Opens a connection with all settings, and creates the file if it does not exist.
    pub(super) fn connect(&self, path: &Path) -> Result<Connection> {
        // More than the statements of this module, so that none is prepared twice.
        const STATEMENTS: usize = 64;
        let connection = Connection::open(path).map_err(sqlite_error("sqlite: open database"))?;
        let cache_kib = (self.cache_bytes_each / 1024).max(64);
        let pragmas = format!(
            "PRAGMA page_size = {page};
             PRAGMA journal_mode = WAL;
             PRAGMA synchronous = {synchronous};
             PRAGMA cache_size = -{cache_kib};
             PRAGMA mmap_size = 0;
             PRAGMA wal_autocheckpoint = {checkpoint};
             PRAGMA foreign_keys = OFF;",
            page = self.page_bytes,
            synchronous = self.synchronous,
            checkpoint = self.checkpoint_pages,
        );
        connection
            .execute_batch(&pragmas)
            .map_err(sqlite_error("sqlite: configure connection"))?;
        connection
            .busy_timeout(Duration::from_secs(10))
            .map_err(sqlite_error("sqlite: configure connection"))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(connection)
    }

    pub(super) fn describe(&self, schema: Schema) -> Configuration {
        let mut c = Configuration::default();
        c.given("journal_mode", "WAL");
        c.given("synchronous", self.synchronous);
        c.given("mmap_size", 0);
        c.tuned(
            "cache_size",
            format!("{} bytes a connection", self.cache_bytes_each),
            &format!(
                "cache_bytes / {}: each client's connection has its own cache",
                self.clients
            ),
        );
        c.tuned(
            "page_size",
            self.page_bytes,
            "rows are small and each changed page goes to the log whole",
        );
        c.tuned(
            "wal_autocheckpoint",
            format!("{} pages", self.checkpoint_pages),
            "64 MiB: a page that changes often is written back once, not each 4 MiB of log",
        );
        c.tuned(
            "writers",
            "queue on a mutex of the process",
            "SQLite's busy handler sleeps up to 100 ms",
        );
        c.tuned(
            "tables",
            "WITHOUT ROWID",
            "rows are found by primary key only",
        );
        match schema {
            Schema::LinkBench => c.tuned(
                "index",
                "created after the load",
                "one sort instead of random inserts",
            ),
            Schema::Tables(_) => c.given("multi_get", "a loop of gets"),
        }
        c
    }
}
