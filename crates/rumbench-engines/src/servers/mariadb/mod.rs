//! MariaDB as a private server, with a trial's tables in one of three storage engines: InnoDB
//! (B-trees), MyRocks (RocksDB) or Alluvium (the plugin of this workspace).
//!
//! - `cache_bytes` is the buffer pool of InnoDB, the block cache of MyRocks or all memory of
//!   Alluvium; InnoDB and MyRocks bypass the kernel's page cache for data.
//! - `buffered` hands each commit to the kernel and syncs the log once a second.
//! - Isolation is READ COMMITTED in all: at REPEATABLE READ MyRocks and Alluvium return conflicts
//!   for which InnoDB waits.
//! - Binary log and performance schema are off, except in the variants of these names: the
//!   comparison is one of storage engines.
//! - The server checks no passwords: its socket is in a folder that no other user can enter.

mod binary;
mod launch;
mod login;
mod options;
mod read_back;
pub(crate) mod replication;
mod server;
mod settle;
mod storage;
mod text;
mod tuned;
mod variants;
mod wire;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rumbench_core::engine::{Counter, Engine, EngineError, EngineFacts, OpenConfig, Result};
use rustix::process::Signal;

use super::counters::counters;
use super::endpoint::{Address, Endpoint};
use super::engine::{Product, Running, ServerEngine};
use super::external::{self, Given, Made};
use super::packages::{self, Installation, MARIADB};
use super::places::Places;
use super::process::ServerProcess;
use super::program::{DeathSignal, Program};
use super::run_folder::RunFolder;
use super::schema::{check_schema, create_tables};
use super::server::Server;
use super::session::Session;
use super::sql::Dialect;
use crate::adapter::{Adapter, SERVER_LOG};
use launch::{CONFIGURATION, Launch};
use options::Tuning;
use server::MariaDb;
use storage::Storage;
use wire::{BEGIN_BULK_LOAD, DATABASE, MariaSession};

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

/// Registry entry of Alluvium.
pub(crate) const ALLUVIUM: Adapter = Adapter {
    check: |config| check(config, Storage::Alluvium),
    open: |config| open(config, Storage::Alluvium),
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
    Ok(Box::new(run(config, storage)?))
}

/// Starts a server or joins a given one.
fn run(config: &OpenConfig, storage: Storage) -> Result<ServerEngine<MariaDb>> {
    let tuning = Tuning::of(config, storage)?;
    let server = match &tuning.given {
        None => start(config, storage, &tuning),
        Some(given) => join(config, storage, &tuning, given),
    };
    Ok(ServerEngine::new(server?))
}

/// Server program that was started, and how to reach it.
struct Served {
    process: ServerProcess,
    endpoint: Endpoint,
    root: PathBuf,
}

/// Starts the server program in a trial's folder, and makes its data first if there is none.
/// `replication`: see [`Launch`].
fn serve(dir: &Path, tuning: &Tuning, replication: Option<&[String]>) -> Result<Served> {
    let Installation { root, plugin } = packages::mariadb(tuning.plugin(), tuning.root.as_deref())?;
    let (places, exists) = Places::prepare(dir)?;
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
        server: MARIADB,
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
        plugin: plugin.as_deref(),
        run: folder.path(),
        replication,
    };
    launch.configure()?;
    if !exists {
        launch.initialize()?;
    }
    let command = launch.command()?;
    let (log, trial) = (&places.log, &places.trial);
    let process = ServerProcess::start(&program, command, log, trial, Signal::TERM, folder)?;
    Ok(Served {
        process,
        endpoint,
        root,
    })
}

/// Starts a private server.
fn start(config: &OpenConfig, storage: Storage, tuning: &Tuning) -> Result<MariaDb> {
    let Served {
        mut process,
        endpoint,
        root,
    } = serve(&config.dir, tuning, None)?;
    let first = endpoint.with_database("mysql");
    let mut first = process.wait_until_ready(|| MariaSession::connect(&first))?;
    check_version(&root.display(), &first.ask("SELECT version()")?)?;
    tuning.check_class(&mut first)?;
    first.query(&format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"))?;
    let mut own = MariaSession::connect(&endpoint)?;
    let dialect = Dialect::Maria(tuning.variation.form);
    create_tables(&mut own, dialect, config.schema)?;
    Ok(MariaDb {
        running: Running {
            made: None,
            process: Some(process),
            external: None,
            endpoint,
            tables: external::table_names(config.schema),
            facts: facts(tuning, storage, &mut own)?,
            own: Mutex::new(own),
        },
        storage,
        dialect,
        bulk_load: tuning.bulk_load,
    })
}

/// Uses an external server.
fn join(config: &OpenConfig, storage: Storage, tuning: &Tuning, given: &Given) -> Result<MariaDb> {
    let endpoint = given.endpoint.clone();
    let mut first = MariaSession::connect(&endpoint.with_database("information_schema"))?;
    check_version(&endpoint.address, &first.ask("SELECT version()")?)?;
    storage.version(&mut first)?;
    if tuning.variation.has_both {
        storage.companion().version(&mut first)?;
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
    let server = MariaDb {
        running: Running {
            made: Some(Made {
                endpoint: endpoint.clone(),
                connect: MariaSession::connect,
                dialect,
                schema: config.schema,
            }),
            process: None,
            external: Some(external),
            endpoint,
            tables: external::table_names(config.schema),
            facts,
            own: Mutex::new(own),
        },
        storage,
        dialect,
        bulk_load: tuning.bulk_load,
    };
    create_tables(&mut server.connect()?, dialect, config.schema)?;
    tuning.check_form(&mut server.connect()?)?;
    Ok(server)
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
    let mut configuration = tuning.effective(own)?.to_map();
    if tuning.bulk_load {
        let told = format!("{BEGIN_BULK_LOAD} (as asked)");
        configuration.insert("clients".to_string(), told);
    }
    Ok(EngineFacts {
        version: format!(
            "MariaDB {}{}",
            own.ask("SELECT version()")?,
            storage.version(own)?
        ),
        configuration,
        durability: tuning.durability_facts(own)?,
    })
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

impl Product for MariaDb {
    const NAME: &str = MARIADB;

    fn running(&self) -> &Running<MariaSession> {
        &self.running
    }

    fn into_running(self) -> Running<MariaSession> {
        self.running
    }

    fn counters(&self, own: &mut MariaSession) -> Vec<Counter> {
        let mut rows = own.query("SHOW GLOBAL STATUS").unwrap_or_default();
        if self.storage == Storage::MyRocks {
            rows.extend(myrocks_counters(own));
        }
        counters(&rows, &self.storage.counters())
    }

    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        self.finish_work(progress)
    }

    fn is_data_file(file_name: &str) -> bool {
        // Excludes logs of InnoDB, Aria, MyRocks, Alluvium, and the server, files recreated at each
        // start, space that Alluvium reserves, and the laboratory's files.
        let is_log = file_name.starts_with("ib_logfile")
            || file_name.starts_with("binlog.")
            || file_name.starts_with("aria_log")
            || file_name.ends_with(".log")
            || file_name.ends_with(".wal")
            || file_name.starts_with("LOG");
        !is_log && !["LOCK", "ballast", "ibtmp1", CONFIGURATION, SERVER_LOG].contains(&file_name)
    }

    /// InnoDB releases the locks of a commit and makes it visible before its log is written.
    fn shows_commits_early(&self) -> bool {
        self.storage == Storage::InnoDb
    }

    fn stored_bytes(&self, own: &mut MariaSession) -> Option<u64> {
        let queries = self.storage.stored_bytes(&self.running.tables);
        let mut answers = queries
            .iter()
            .map(|query| own.ask(query).ok()?.parse().ok());
        answers.find_map(|bytes: Option<u64>| bytes)
    }
}
