//! MariaDB as a private server, with a trial's tables in one of two storage engines: InnoDB
//! (B-trees) or MyRocks (RocksDB).
//!
//! - `cache_bytes` is the buffer pool of InnoDB or the block cache of MyRocks; both bypass the
//!   kernel's page cache for data.
//! - `buffered` hands each commit to the kernel and syncs the log once a second.
//! - Isolation is READ COMMITTED in both: at REPEATABLE READ MyRocks returns conflicts for which
//!   InnoDB waits.
//! - Binary log and performance schema are off, except in the variants of these names: the
//!   comparison is one of storage engines.
//! - The server checks no passwords: its socket is in a folder that no other user can enter.

mod binary;
mod launch;
mod login;
mod options;
mod read_back;
mod settle;
mod text;
mod tuned;
mod variants;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rumbench_core::engine::{
    Counter, Engine, EngineError, EngineFacts, External, OpenConfig, Result,
};
use rumbench_core::linkbench::LinkStore;
use rumbench_core::tables::{TableSchema, TableStore};
use rustix::process::Signal;

use super::endpoint::{Address, Endpoint};
use super::external::{self, Given, Made};
use super::links::ServerLinks;
use super::process::ServerProcess;
use super::program::{DeathSignal, Program};
use super::run_folder::RunFolder;
use super::session::Session;
use super::sql::Dialect;
use super::tables::ServerTables;
use super::{LOG_FILE, Places, Server, check_schema, counters, create_tables, packages};
use crate::adapter::Adapter;
use crate::error::still_open;
use launch::{CONFIGURATION, Launch};
use options::{Storage, Tuning};
use wire::{DATABASE, MariaSession, SERVER};

/// First version with descending indexes.
const OLDEST_VERSION: (u32, u32) = (10, 8);
/// Registry entry of InnoDB.
pub(crate) const INNODB: Adapter = Adapter {
    check: |config| check(config, Storage::InnoDb),
    open: |config| open(config, Storage::InnoDb),
};

/// Registry entry of MyRocks.
pub(crate) const ROCKSDB: Adapter = Adapter {
    check: |config| check(config, Storage::MyRocks),
    open: |config| open(config, Storage::MyRocks),
};

fn check(config: &OpenConfig, storage: Storage) -> Result<()> {
    check_schema(config)?;
    let tuning = Tuning::of(config, storage)?;
    if tuning.given.is_some() {
        return Ok(());
    }
    packages::mariadb(tuning.plugin(), tuning.root.as_deref()).map(drop)
}

fn open(config: &OpenConfig, storage: Storage) -> Result<Box<dyn Engine>> {
    check_schema(config)?;
    Ok(Box::new(MariaDb::open(config, storage)?))
}

/// Running MariaDB with the tables of one workload.
struct MariaDb {
    shared: Arc<Shared>,
    highest_node: Arc<Mutex<u64>>,
}

struct Shared {
    /// Tables on an external server. Set before they are created, so that half of them are removed
    /// too.
    made: Option<Made<MariaSession>>,
    /// Server that was started here.
    process: Option<ServerProcess>,
    /// Observable facts about an external server.
    external: Option<External>,
    endpoint: Endpoint,
    storage: Storage,
    dialect: Dialect,
    /// Names of the trial's tables.
    tables: Vec<&'static str>,
    facts: EngineFacts,
    /// The laboratory's own connection, for counters.
    own: Mutex<MariaSession>,
}

impl MariaDb {
    fn open(config: &OpenConfig, storage: Storage) -> Result<MariaDb> {
        let tuning = Tuning::of(config, storage)?;
        match &tuning.given {
            None => MariaDb::start(config, storage, &tuning),
            Some(given) => MariaDb::join(config, storage, &tuning, given),
        }
    }

    /// Starts a private server.
    fn start(config: &OpenConfig, storage: Storage, tuning: &Tuning) -> Result<MariaDb> {
        let root = packages::mariadb(tuning.plugin(), tuning.root.as_deref())?;
        let (places, exists) = Places::prepare(&config.dir)?;
        let folder = RunFolder::create()?;
        let endpoint = Endpoint {
            address: Address::Socket(folder.path().join("socket")),
            user: "root".to_string(),
            password: None,
            database: DATABASE.to_string(),
            log: Some(places.log.clone()),
        };
        let binary = root.join("usr/sbin/mariadbd");
        let program = Program {
            server: SERVER,
            path: &binary,
            libraries: packages::libraries(&root),
            user: None,
            death_signal: DeathSignal::Kill,
        };
        let launch = Launch {
            program: &program,
            tuning,
            places: &places,
            root: &root,
            run: folder.path(),
        };
        launch.configure()?;
        if !exists {
            launch.initialize()?;
        }
        let command = launch.command()?;
        let mut process = ServerProcess::start(
            &program,
            command,
            &places.log,
            &places.trial,
            Signal::TERM,
            folder,
        )?;
        let first = endpoint.with_database("mysql");
        let mut first = process.wait_until_ready(|| MariaSession::connect(&first))?;
        check_version(&root.display(), &first.ask("SELECT version()")?)?;
        tuning.check_class(&mut first)?;
        first.query(&format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"))?;
        let mut own = MariaSession::connect(&endpoint)?;
        let dialect = Dialect::Maria(tuning.variation.form);
        create_tables(&mut own, dialect, config.schema)?;
        Ok(MariaDb {
            shared: Arc::new(Shared {
                made: None,
                process: Some(process),
                external: None,
                endpoint,
                storage,
                dialect,
                tables: external::table_names(config.schema),
                facts: facts(tuning, storage, &mut own)?,
                own: Mutex::new(own),
            }),
            highest_node: Arc::default(),
        })
    }

    /// Uses an external server.
    fn join(
        config: &OpenConfig,
        storage: Storage,
        tuning: &Tuning,
        given: &Given,
    ) -> Result<MariaDb> {
        let endpoint = given.endpoint.clone();
        let mut first = MariaSession::connect(&endpoint.with_database("information_schema"))?;
        check_version(&endpoint.address, &first.ask("SELECT version()")?)?;
        storage.version(&mut first)?;
        if tuning.variation.has_both {
            Storage::MyRocks.version(&mut first)?;
        }
        tuning.check_class(&mut first)?;
        first.query(&format!(
            "CREATE DATABASE IF NOT EXISTS `{}`",
            endpoint.database
        ))?;
        let mut own = MariaSession::connect(&endpoint)?;
        let dialect = Dialect::Maria(tuning.variation.form);
        given.clear(storage.engine(), &mut own, dialect, config.schema)?;
        let external = external::processes(&endpoint.address, own.listener());
        let mut facts = facts(tuning, storage, &mut own)?;
        facts
            .configuration
            .insert("address".to_string(), endpoint.address.to_string());
        let shared = Arc::new(Shared {
            made: Some(Made {
                endpoint: endpoint.clone(),
                connect: MariaSession::connect,
                dialect,
                schema: config.schema,
            }),
            process: None,
            external: Some(external),
            endpoint,
            storage,
            dialect,
            tables: external::table_names(config.schema),
            facts,
            own: Mutex::new(own),
        });
        create_tables(&mut shared.connect()?, dialect, config.schema)?;
        tuning.check_form(&mut shared.connect()?)?;
        Ok(MariaDb {
            shared,
            highest_node: Arc::default(),
        })
    }
}

/// Refuses servers other than MariaDB, and releases that ignore the direction of a descending
/// index: they would sort a LinkBench list on each read.
fn check_version(place: &dyn std::fmt::Display, version: &str) -> Result<()> {
    let mut numbers = version.split(['.', '-']).map(|number| number.parse().ok());
    let found: Option<(u32, u32)> = numbers.next().flatten().zip(numbers.next().flatten());
    if version.contains("MariaDB") && found.is_some_and(|found| found >= OLDEST_VERSION) {
        return Ok(());
    }
    let (major, minor) = OLDEST_VERSION;
    Err(EngineError::Unsupported(format!(
        "the server at {place} calls itself {version}, and MariaDB {major}.{minor} or newer is needed"
    )))
}

fn facts(tuning: &Tuning, storage: Storage, own: &mut MariaSession) -> Result<EngineFacts> {
    Ok(EngineFacts {
        version: format!(
            "MariaDB {}{}",
            own.ask("SELECT version()")?,
            storage.version(own)?
        ),
        configuration: tuning.effective(own)?.to_map(),
        durability: tuning.durability_facts(own)?,
    })
}

impl Server for Shared {
    type Session = MariaSession;

    fn connect(&self) -> Result<MariaSession> {
        let mut session = MariaSession::connect(&self.endpoint)?;
        if self.external.is_some() {
            // Set for this connection only; a private server is configured so.
            session.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
        }
        Ok(session)
    }

    fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn analyze(&self, session: &mut MariaSession, table: &str) -> Result<()> {
        // A failure is reported in a row: table, operation, kind of message, message.
        let answer = session.query(&format!("ANALYZE TABLE `{table}`"))?;
        let failure = answer.iter().find(|row| {
            let kind = row.get(2).map(String::as_str);
            matches!(kind, Some("Error" | "error"))
        });
        match failure {
            None => Ok(()),
            Some(row) => Err(EngineError::Wrong(format!(
                "mariadb cannot analyze {}",
                row.join(" ")
            ))),
        }
    }
}

/// Queries for MyRocks' compactions since the server started, over all levels, and for the pending
/// work of each column family. The laboratory adds them up itself: rows that the server sorts for a
/// sum would count in its `sort_rows`.
const MYROCKS_COUNTERS: [&str; 2] = [
    "SELECT CONCAT('sum_', type), value FROM information_schema.rocksdb_compaction_stats WHERE level = 'Sum'",
    "SELECT CONCAT('cf_', stat_type), value FROM information_schema.rocksdb_cfstats",
];

/// Returns the numbers of [`MYROCKS_COUNTERS`], summed by name.
fn myrocks_counters(own: &mut MariaSession) -> Vec<Vec<String>> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for query in MYROCKS_COUNTERS {
        for row in own.query(query).unwrap_or_default() {
            if let [name, value] = &row[..] {
                *sums.entry(name.clone()).or_default() += value.parse().unwrap_or(0.0);
            }
        }
    }
    let rows = sums.into_iter();
    rows.map(|(name, sum)| vec![name, sum.to_string()])
        .collect()
}

impl Engine for MariaDb {
    fn facts(&self) -> EngineFacts {
        self.shared.facts.clone()
    }

    fn link_store(&self) -> Result<Arc<dyn LinkStore>> {
        Ok(Arc::new(ServerLinks {
            server: Arc::clone(&self.shared),
            highest_node: Arc::clone(&self.highest_node),
        }))
    }

    fn table_store(&self, schema: &'static TableSchema) -> Result<Arc<dyn TableStore>> {
        let server = Arc::clone(&self.shared);
        Ok(Arc::new(ServerTables { server, schema }))
    }

    fn counters(&self) -> Vec<Counter> {
        let own = self.shared.own.lock();
        let mut own = own.unwrap_or_else(PoisonError::into_inner);
        // A server that is gone has no counters; the clients report it.
        let mut rows = own.query("SHOW GLOBAL STATUS").unwrap_or_default();
        if self.shared.storage == Storage::MyRocks {
            rows.extend(myrocks_counters(&mut own));
        }
        counters(&rows, &self.shared.storage.counters())
    }

    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        self.shared.settle(progress)
    }

    fn is_data_file(&self, file_name: &str) -> bool {
        // Excludes logs of InnoDB, Aria, MyRocks, and the server, files recreated at each start,
        // and the laboratory's files.
        let is_log = file_name.starts_with("ib_logfile")
            || file_name.starts_with("binlog.")
            || file_name.starts_with("aria_log")
            || file_name.ends_with(".log")
            || file_name.starts_with("LOG");
        !is_log && !["LOCK", "ibtmp1", CONFIGURATION, LOG_FILE].contains(&file_name)
    }

    /// InnoDB releases the locks of a commit and makes it visible before its log is written.
    fn shows_commits_early(&self) -> bool {
        self.shared.storage == Storage::InnoDb
    }

    fn server_process(&self) -> Option<u32> {
        match &self.shared.external {
            Some(external) => external.process,
            None => self.shared.process.as_ref().map(ServerProcess::pid),
        }
    }

    fn end_server(&self) -> bool {
        let process = self.shared.process.as_ref();
        process.map(ServerProcess::kill).is_some()
    }

    fn log_tail(&self) -> Option<String> {
        let process = self.shared.process.as_ref();
        process.map(ServerProcess::log_tail)
    }

    fn external(&self) -> Option<External> {
        self.shared.external.clone()
    }

    fn stored_bytes(&self) -> Option<u64> {
        self.shared.external.as_ref()?;
        let own = self.shared.own.lock();
        let mut own = own.unwrap_or_else(PoisonError::into_inner);
        let queries = self.shared.storage.stored_bytes(&self.shared.tables);
        let mut answers = queries
            .iter()
            .map(|query| own.ask(query).ok()?.parse().ok());
        answers.find_map(|bytes: Option<u64>| bytes)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let shared = Arc::into_inner(self.shared).ok_or_else(|| still_open(SERVER))?;
        if let Some(made) = &shared.made {
            made.remove()?;
        }
        drop(shared.own);
        shared.process.map_or(Ok(()), ServerProcess::stop)
    }
}
