//! Settling of MariaDB's storage engines: pending background work, and the detection of its end.

use std::thread;
use std::time::{Duration, Instant};

use rumbench_core::engine::{EngineError, Result};

use super::server::MariaDb;
use super::storage::Storage;
use super::wire::MariaSession;
use crate::servers::server::Server;
use crate::servers::session::Session;
use crate::servers::sql::CATALOG_TABLE;

/// Interval between checks of a settling server.
const SETTLE_EVERY: Duration = Duration::from_millis(500);
/// Consecutive answers that must report no work left.
const SETTLED_ANSWERS: u32 = 3;
/// Limit for settling.
const SETTLE_MOST: Duration = Duration::from_secs(2 * 60 * 60);
/// Pages that InnoDB's own housekeeping may keep dirty.
const DIRTY_PAGES_LEFT: u64 = 16;

impl MariaDb {
    /// Makes the server finish its pending background work.
    pub(super) fn finish_work(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        let mut session = self.connect()?;
        for table in &self.running.tables {
            progress("analyzing tables");
            self.analyze(&mut session, table)?;
        }
        match self.storage {
            Storage::InnoDb if self.running.external.is_some() => {
                self.settle_given_innodb(&mut session, progress)
            }
            Storage::InnoDb => self.settle_innodb(&mut session, progress),
            Storage::MyRocks => self.settle_myrocks(&mut session, progress),
            Storage::Alluvium => {
                progress("flushing memtables and compacting");
                session
                    .query("SET GLOBAL alluvium_settle_now = 1")
                    .map(drop)
            }
        }
    }

    /// Polls until several consecutive answers report no work left; `ask` also describes the rest
    /// in words.
    fn wait_until_settled(
        &self,
        session: &mut MariaSession,
        progress: &mut dyn FnMut(&str),
        ask: fn(&mut MariaSession) -> Result<(bool, String)>,
    ) -> Result<()> {
        let mut settled = 0;
        let start = Instant::now();
        // The server finishes its backlog while no client writes.
        loop {
            let (done, left) = ask(session)?;
            settled = if done { settled + 1 } else { 0 };
            if settled >= SETTLED_ANSWERS {
                return Ok(());
            }
            if start.elapsed() > SETTLE_MOST {
                let words = format!("it has not settled for {SETTLE_MOST:?}, and says: {left}");
                return Err(EngineError::failed("mariadb", words));
            }
            progress(&left);
            thread::sleep(SETTLE_EVERY);
        }
    }

    /// Makes InnoDB write back the changed pages of the trial's tables, without a change of
    /// configuration.
    fn settle_given_innodb(
        &self,
        session: &mut MariaSession,
        progress: &mut dyn FnMut(&str),
    ) -> Result<()> {
        progress("writing the pages of the tables");
        // The catalog is in the server's default storage engine, which may not support export.
        let tables = self
            .running
            .tables
            .iter()
            .filter(|name| **name != CATALOG_TABLE);
        let names: Vec<String> = tables.map(|name| format!("`{name}`")).collect();
        let flush = format!("FLUSH TABLES {} FOR EXPORT", names.join(", "));
        session.query(&flush)?;
        session.query("UNLOCK TABLES").map(drop)
    }

    /// Makes InnoDB purge deleted rows and write back all changed pages.
    fn settle_innodb(
        &self,
        session: &mut MariaSession,
        progress: &mut dyn FnMut(&str),
    ) -> Result<()> {
        const LIMITS: [&str; 2] = [
            "innodb_max_dirty_pages_pct_lwm",
            "innodb_max_dirty_pages_pct",
        ];
        let mut old = Vec::new();
        for name in LIMITS {
            old.push(session.ask(&format!("SELECT @@GLOBAL.{name}"))?);
            session.query(&format!("SET GLOBAL {name} = 0"))?;
        }
        self.wait_until_settled(session, progress, |session| {
            let dirty = status(session, "Innodb_buffer_pool_pages_dirty")?;
            let history = status(session, "Innodb_history_list_length")?;
            let left = format!("{dirty} dirty pages, {history} transactions to purge");
            Ok((dirty <= DIRTY_PAGES_LEFT && history == 0, left))
        })?;
        // The upper limit first: the lower must not exceed it.
        for (name, old) in LIMITS.iter().zip(&old).rev() {
            session.query(&format!("SET GLOBAL {name} = {old}"))?;
        }
        Ok(())
    }

    /// Makes MyRocks flush its memtables and run due compactions.
    fn settle_myrocks(
        &self,
        session: &mut MariaSession,
        progress: &mut dyn FnMut(&str),
    ) -> Result<()> {
        progress("flushing memtables");
        session.query("SET GLOBAL rocksdb_force_flush_memtable_now = 1")?;
        self.wait_until_settled(session, progress, |session| {
            let pending = session.ask(
                "SELECT CAST(COALESCE(SUM(value), 0) AS UNSIGNED) FROM information_schema.rocksdb_cfstats \
                 WHERE stat_type IN ('COMPACTION_PENDING', 'MEM_TABLE_FLUSH_PENDING')",
            )?;
            let running = session.query("SELECT * FROM information_schema.rocksdb_active_compaction_stats");
            // Older servers lack this table.
            let running = running.map_or(0, |rows| rows.len());
            let left = format!("{pending} column families to compact, {running} compactions");
            Ok((pending == "0" && running == 0, left))
        })
    }
}

/// Returns one number of SHOW GLOBAL STATUS.
fn status(session: &mut MariaSession, name: &str) -> Result<u64> {
    let rows = session.query(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
    let value = rows.first().and_then(|row| row.get(1)?.parse().ok());
    value.ok_or_else(|| EngineError::Wrong(format!("mariadb has no status `{name}`")))
}
