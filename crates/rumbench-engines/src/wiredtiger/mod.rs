//! WiredTiger, the storage engine of MongoDB, as a library: B-trees in its own cache, a log,
//! checkpoints.
//!
//! Transactions run on snapshots, and the first writer of a row wins: the second gets a conflict at
//! once and has to begin again. A row that is read for update is reserved, which counts as a write
//! of it. A missing row cannot be reserved. If two clients both find it missing, they conflict when
//! the second one inserts it.
//!
//! A load writes transactions: the library's bulk cursors require an empty table, sorted rows and
//! no other client.
//!
//! `cargo xtask wiredtiger` builds the library; `shim.c` turns its handles into functions, and
//! `library` makes them safe.

mod library;
mod options;

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

// Links the crates for the library, which calls them.
use libz_sys as _;
use zstd as _;

use rumbench_core::engine::{Durability, EngineFacts, OpenConfig, Result};
use rumbench_core::kv::{Direction, KvConnection, KvTxn, MapDef, MapId, Scan};

use crate::embedded::{Backend, Embedded, Opened};
use crate::error::{no_map, still_open};
use crate::periodic::{Periodic, SYNC_INTERVAL};
use library::{Connection, CursorIndex, Session};
use options::Tuning;

/// WiredTiger as an engine. Variants: none, `default`, `snappy`, `zlib`.
pub type WiredTiger = Embedded<WiredTigerMaps>;

/// Open WiredTiger database with one table for each map.
pub struct WiredTigerMaps {
    tables: Vec<String>,
    durability: Durability,
    /// For counters, settling and the last sync. Locked only while no other lock is held.
    session: Mutex<Session>,
    connection: Arc<Connection>,
}

impl WiredTigerMaps {
    fn session<R>(&self, call: impl FnOnce(&mut Session) -> Result<R>) -> Result<R> {
        // A panic inside a call leaves no half-done work that this session could show.
        call(&mut self.session.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn dirty_bytes(&self) -> Result<f64> {
        let counters = self.session(Session::counters)?;
        let dirty = counters
            .iter()
            .find(|(name, _)| *name == "cache_dirty_bytes");
        Ok(dirty.map_or(0.0, |(_, value)| *value))
    }
}

fn start_syncer(connection: &Arc<Connection>) -> Result<Periodic> {
    let mut session = Session::open(connection, &[])?;
    Periodic::start("wiredtiger-sync", SYNC_INTERVAL, move || session.sync_log())
}

impl Backend for WiredTigerMaps {
    const NAME: &str = "wiredtiger";

    type Connection = WiredTigerConnection;

    fn check(config: &OpenConfig) -> Result<()> {
        Tuning::of(config).map(drop)
    }

    fn open(config: &OpenConfig, schema: &[MapDef]) -> Result<Opened<WiredTigerMaps>> {
        let tuning = Tuning::of(config)?;
        let connection = Connection::open(&config.dir, &tuning.database())?;
        let tables: Vec<String> = schema
            .iter()
            .map(|map| format!("table:{}", map.name))
            .collect();
        let mut session = Session::open(&connection, &[])?;
        for (table, map) in tables.iter().zip(schema) {
            session.create(table, &tuning.table(map))?;
        }
        let syncer = match config.durability {
            Durability::Buffered => Some(start_syncer(&connection)?),
            Durability::Sync | Durability::None => None,
        };
        Ok(Opened {
            syncer,
            backend: Arc::new(WiredTigerMaps {
                tables,
                durability: config.durability,
                session: Mutex::new(session),
                connection,
            }),
            facts: EngineFacts {
                version: format!("WiredTiger {}", library::version()),
                configuration: tuning.describe().to_map(),
                durability: tuning.durability_facts(),
            },
        })
    }

    fn connect(self: &Arc<Self>) -> Result<WiredTigerConnection> {
        Ok(WiredTigerConnection {
            session: Session::open(&self.connection, &self.tables)?,
            maps: self.tables.len(),
            _engine: Arc::clone(self),
        })
    }

    /// Returns no counters if the statistics cannot be read: a counter must not fail a trial.
    fn counters(&self) -> Vec<(&'static str, f64)> {
        self.session(Session::counters).unwrap_or_default()
    }

    /// Checkpoints until one leaves no fewer dirty bytes than the one before. Those are pages of
    /// the library's own tables, which each checkpoint makes dirty again.
    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        const CHECKPOINTS_MAX: u32 = 20;
        let mut before = f64::INFINITY;
        for _ in 0..CHECKPOINTS_MAX {
            self.session(Session::checkpoint)?;
            let dirty = self.dirty_bytes()?;
            progress(&format!(
                "checkpoint done, {dirty} bytes in the cache dirty"
            ));
            if dirty >= before || dirty == 0.0 {
                break;
            }
            before = dirty;
        }
        match self.durability {
            Durability::None => Ok(()),
            _ => self.session(Session::sync_log),
        }
    }

    fn is_data_file(file_name: &str) -> bool {
        file_name.ends_with(".wt")
    }

    fn close(self) -> Result<()> {
        drop(self.session);
        let connection = Arc::into_inner(self.connection);
        connection.ok_or_else(|| still_open("wiredtiger"))?.close()
    }
}

/// Session of one client, with a cursor for each map.
pub struct WiredTigerConnection {
    session: Session,
    maps: usize,
    /// Makes the engine refuse to close under an open connection.
    _engine: Arc<WiredTigerMaps>,
}

impl WiredTigerConnection {
    fn cursor(&self, map: MapId) -> Result<CursorIndex> {
        if map.0 < self.maps {
            Ok(CursorIndex(map.0))
        } else {
            Err(no_map(map))
        }
    }
}

impl KvConnection for WiredTigerConnection {
    type Txn<'a> = WiredTigerTxn<'a>;

    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let cursor = self.cursor(map)?;
        let answer = read(self.session.search(cursor, key)?);
        self.session.reset(cursor)?;
        Ok(answer)
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
        let cursor = self.cursor(map)?;
        // Outside a transaction each step could see a newer state.
        self.session.begin()?;
        let visited = visit_rows(&mut self.session, cursor, scan, &mut visit);
        // Nothing was written; the rollback releases the snapshot and the page.
        visited.and(self.session.rollback())
    }

    /// Writes in a transaction of the library, which the library repeats after a conflict.
    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let cursor = self.cursor(map)?;
        self.session.put(cursor, key, value)
    }

    fn begin(&mut self) -> Result<WiredTigerTxn<'_>> {
        self.session.begin()?;
        Ok(WiredTigerTxn {
            connection: self,
            ended: false,
        })
    }
}

fn visit_rows(
    session: &mut Session,
    cursor: CursorIndex,
    scan: Scan<'_>,
    visit: &mut impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    let forward = scan.direction == Direction::Forward;
    let from = if forward { scan.start } else { scan.end };
    let Some(found) = session.search_near(cursor, from)? else {
        return Ok(());
    };
    // The seek may have ended on the far side of the bound; the end of a range is exclusive.
    let outside = match scan.direction {
        Direction::Forward => found == Ordering::Less,
        Direction::Reverse => found != Ordering::Less,
    };
    if outside && !session.step(cursor, forward)? {
        return Ok(());
    }
    for visited in 1..=scan.limit {
        let (key, value) = session.row(cursor)?;
        let inside = if forward {
            key < scan.end
        } else {
            key >= scan.start
        };
        if !inside || !visit(key, value) || visited == scan.limit {
            break;
        }
        if !session.step(cursor, forward)? {
            break;
        }
    }
    Ok(())
}

/// Transaction on a snapshot taken at its begin.
pub struct WiredTigerTxn<'a> {
    connection: &'a mut WiredTigerConnection,
    ended: bool,
}

impl KvTxn for WiredTigerTxn<'_> {
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let cursor = self.connection.cursor(map)?;
        let session = &mut self.connection.session;
        if !session.reserve(cursor, key)? {
            return Ok(read(None));
        }
        Ok(read(session.search(cursor, key)?))
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let cursor = self.connection.cursor(map)?;
        self.connection.session.put(cursor, key, value)
    }

    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()> {
        let cursor = self.connection.cursor(map)?;
        self.connection.session.remove(cursor, key).map(drop)
    }

    fn commit(mut self) -> Result<()> {
        self.ended = true;
        self.connection.session.commit()
    }
}

impl Drop for WiredTigerTxn<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // If the rollback fails, the session's transaction stays open, and its next begin
            // reports it.
            let _ = self.connection.session.rollback();
        }
    }
}
