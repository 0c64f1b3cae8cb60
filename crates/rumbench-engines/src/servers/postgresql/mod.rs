//! PostgreSQL as a private or an external server: heap tables and B-trees, multi-version rows
//! cleaned up by vacuum, a write-ahead log.
//!
//! - `cache_bytes` is `shared_buffers`. There is no direct I/O: the kernel's page cache is a second
//!   cache.
//! - `buffered` is `synchronous_commit=off`. Such a commit waits in the server's memory for the log
//!   writer, so a killed server loses the same commits as a power cut; nothing is torn.
//! - Unsigned columns of 32 bits have the type `oid`, the only unsigned type. An index also holds
//!   the primary key; the other engines append it to an index implicitly.
//! - The server refuses to run as root, so a laboratory that runs as root starts it as the user
//!   `postgres` or `nobody`.

mod counters;
mod login;
pub(crate) mod replication;
mod tuning;
mod wire;

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use rumbench_core::engine::{
    Counter, Durability, DurabilityFacts, Engine, EngineError, EngineFacts, OpenConfig, Result,
};
use rustix::process::Signal;

use super::endpoint::{Address, Endpoint};
use super::engine::{Product, Running, ServerEngine};
use super::external::{self, Given, Made};
use super::packages::{self, POSTGRESQL};
use super::places::Places;
use super::process::ServerProcess;
use super::program::{DataFolder, DeathSignal, Program, User};
use super::run_folder::RunFolder;
use super::schema::{check_schema, create_tables};
use super::server::Server;
use super::session::Session;
use super::sql::Dialect;
use crate::adapter::{Adapter, SERVER_LOG};
use crate::error::failed;
use crate::facts::{ALL_ACKNOWLEDGED, MAY_CORRUPT, PREFIX_ONE_SECOND, SOME_PREFIX, survives};
use tuning::Tuning;
use wire::{PostgresSession, USER};

const OLDEST_VERSION: u32 = 15;
/// Database that every server has.
const MAINTENANCE: &str = "postgres";
/// Vacuum options that remove index entries of dead rows even if there are few; by default the
/// server may skip them.
const VACUUM_OPTIONS: &str = "(ANALYZE, INDEX_CLEANUP ON)";
/// Port of a server that listens on its socket only; it is in the socket's name.
const PORT: u16 = 5432;
/// Registry entry of this engine. No variants.
pub(crate) const ADAPTER: Adapter = Adapter { check, open };

fn check(config: &OpenConfig) -> Result<()> {
    check_schema(config)?;
    let tuning = Tuning::of(config)?;
    if tuning.given.is_some() {
        return Ok(());
    }
    packages::postgresql(OLDEST_VERSION, tuning.root.as_deref()).map(drop)
}

fn open(config: &OpenConfig) -> Result<Box<dyn Engine>> {
    check_schema(config)?;
    Ok(Box::new(run(config)?))
}

/// Returns the facts about commits that survive a killed server and a power cut. `repairs_pages` is
/// true if the log has full pages. `writer_delay_ms` is the sleep of the log writer; an
/// asynchronous commit is on the device after at most three such delays.
fn durability_facts(
    class: Durability,
    repairs_pages: bool,
    writer_delay_ms: u64,
) -> DurabilityFacts {
    let prefix = if writer_delay_ms.saturating_mul(3) <= 1000 {
        PREFIX_ONE_SECOND
    } else {
        SOME_PREFIX
    };
    let (process_kill, power_cut) = match class {
        Durability::Sync => (ALL_ACKNOWLEDGED, ALL_ACKNOWLEDGED),
        Durability::Buffered => (prefix, prefix),
        Durability::None => (prefix, MAY_CORRUPT),
    };
    if repairs_pages {
        survives(process_kill, power_cut)
    } else {
        // A page torn by a power cut is only repaired from a full page in the log.
        survives(process_kill, MAY_CORRUPT)
    }
}

/// Running PostgreSQL.
struct PostgreSql {
    running: Running<PostgresSession>,
}

/// Starts a server or joins a given one.
fn run(config: &OpenConfig) -> Result<ServerEngine<PostgreSql>> {
    let tuning = Tuning::of(config)?;
    let running = match &tuning.given {
        None => start(config, &tuning),
        Some(given) => join(config, &tuning, given),
    };
    Ok(ServerEngine::new(PostgreSql { running: running? }))
}

/// Network of a server that replicates.
struct Network {
    /// Port of the loopback address.
    port: u16,
    /// Settings, as `NAME=VALUE`.
    settings: Vec<String>,
}

/// Starts the server program in a trial's folder, and makes its data first if there is none.
/// Without `network` it listens on its socket only.
fn serve(
    dir: &Path,
    tuning: &Tuning,
    network: Option<&Network>,
) -> Result<(ServerProcess, Endpoint)> {
    let (bin, root) = packages::postgresql(OLDEST_VERSION, tuning.root.as_deref())?;
    let user = User::instead_of_root(&["postgres", "nobody"])?;
    if let Some(user) = &user {
        check_reachable(&bin, user)?;
    }
    let (places, exists) = Places::prepare(dir)?;
    let data = DataFolder::new(&places.data, user.as_ref())?;
    let initdb = bin.join("initdb");
    let program = |path| Program {
        server: POSTGRESQL,
        path,
        libraries: packages::libraries(&root),
        user: user.as_ref(),
        death_signal: DeathSignal::Quit,
    };
    if !exists {
        initialize(&program(&initdb), &data, &places.log)?;
    }
    let folder = RunFolder::create()?;
    if let Some(user) = &user {
        std::os::unix::fs::chown(folder.path(), Some(user.uid), Some(user.gid))
            .map_err(failed("postgresql: give away the folder of the socket"))?;
    }
    write_for_server(&places.data, "postgresql.conf", &tuning.file())?;
    let port = network.map_or(PORT, |network| network.port);
    let endpoint = Endpoint {
        address: Address::Socket(folder.path().join(format!(".s.PGSQL.{port}"))),
        user: USER.to_string(),
        password: None,
        database: MAINTENANCE.to_string(),
        log: Some(places.log.clone()),
    };
    let postgres = bin.join("postgres");
    let program = program(&postgres);
    let mut command = program.command(&places.log)?;
    command.arg("-D").arg(&data.name);
    command.args(Tuning::arguments(&data.name, folder.path()));
    if let Some(network) = network {
        // Later settings win.
        let listen = [
            "listen_addresses=127.0.0.1".to_string(),
            format!("port={port}"),
        ];
        for setting in listen.iter().chain(&network.settings) {
            command.arg("-c").arg(setting);
        }
    }
    let (log, trial) = (&places.log, &places.trial);
    let process = ServerProcess::start(&program, command, log, trial, Signal::INT, folder)?;
    Ok((process, endpoint))
}

/// Starts a private server.
fn start(config: &OpenConfig, tuning: &Tuning) -> Result<Running<PostgresSession>> {
    let (mut process, endpoint) = serve(&config.dir, tuning, None)?;
    let mut own = process.wait_until_ready(|| PostgresSession::connect(&endpoint))?;
    tuning.check_class(&mut own)?;
    create_tables(&mut own, Dialect::Postgres, config.schema)?;
    Ok(Running {
        made: None,
        process: Some(process),
        external: None,
        endpoint,
        tables: external::table_names(config.schema),
        facts: facts(tuning, &mut own)?,
        own: Mutex::new(own),
    })
}

/// Connects to an external server and creates the trial's tables in its database.
fn join(config: &OpenConfig, tuning: &Tuning, given: &Given) -> Result<Running<PostgresSession>> {
    let endpoint = given.endpoint.clone();
    let mut first = PostgresSession::connect(&endpoint.with_database(MAINTENANCE))?;
    let version = first.ask("SHOW server_version_num")?;
    if version.parse::<u32>().unwrap_or(0) < OLDEST_VERSION * 10_000 {
        return Err(EngineError::Unsupported(format!(
            "the PostgreSQL at {} has version number {version}; {OLDEST_VERSION} or newer is needed",
            endpoint.address
        )));
    }
    tuning.check_class(&mut first)?;
    let database = &endpoint.database;
    let there = format!("SELECT 1 FROM pg_database WHERE datname = '{database}'");
    if first.query(&there)?.is_empty() {
        first.query(&format!("CREATE DATABASE \"{database}\""))?;
    }
    let mut own = PostgresSession::connect(&endpoint)?;
    given.clear(POSTGRESQL, &mut own, Dialect::Postgres, config.schema)?;
    let external = external::processes(&endpoint.address, own.listener());
    let mut facts = facts(tuning, &mut own)?;
    let address = endpoint.address.to_string();
    facts.configuration.insert("address".to_string(), address);
    let running = Running {
        made: Some(Made {
            endpoint: endpoint.clone(),
            connect: PostgresSession::connect,
            dialect: Dialect::Postgres,
            schema: config.schema,
        }),
        process: None,
        external: Some(external),
        endpoint,
        tables: external::table_names(config.schema),
        facts,
        own: Mutex::new(own),
    };
    let mut session = connect(&running)?;
    create_tables(&mut session, Dialect::Postgres, config.schema)?;
    Ok(running)
}

fn connect(running: &Running<PostgresSession>) -> Result<PostgresSession> {
    let mut session = PostgresSession::connect(&running.endpoint)?;
    if running.external.is_some() {
        // Set for this connection only; a private server has it by default.
        session.query("SET default_transaction_isolation = 'read committed'")?;
    }
    Ok(session)
}

fn facts(tuning: &Tuning, own: &mut PostgresSession) -> Result<EngineFacts> {
    let repairs_pages = own.ask("SHOW full_page_writes")? == "on";
    let delay = own.ask("SELECT setting FROM pg_settings WHERE name = 'wal_writer_delay'")?;
    let delay_ms = delay.parse().unwrap_or(u64::MAX);
    Ok(EngineFacts {
        version: format!("PostgreSQL {}", own.ask("SHOW server_version")?),
        configuration: tuning.effective(own)?.to_map(),
        durability: durability_facts(tuning.class, repairs_pages, delay_ms),
    })
}

/// Refuses binaries that another user cannot start.
fn check_reachable(bin: &Path, user: &User) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let closed = bin.ancestors().find(|folder| {
        // Skips folders that the laboratory itself cannot access.
        fs::metadata(folder).is_ok_and(|found| found.uid() != user.uid && found.mode() & 0o001 == 0)
    });
    match closed {
        None => Ok(()),
        Some(folder) => Err(EngineError::Unsupported(format!(
            "PostgreSQL refuses to run as root, and the user {} cannot reach {} because of {}: make it open to \
             all, or run the laboratory as an ordinary user",
            user.name,
            bin.display(),
            folder.display()
        ))),
    }
}

/// Creates an empty database cluster.
fn initialize(program: &Program<'_>, data: &DataFolder, log: &Path) -> Result<()> {
    let mut command = program.command(log)?;
    command.arg("-D").arg(&data.name).args([
        "--username=rumbench",
        "--auth=trust",
        "--locale=C",
        "--encoding=UTF8",
        "--data-checksums",
        "--no-sync",
        "--no-instructions",
    ]);
    program.run(command, "", log)
}

/// Replaces a file in the data folder, which the server's user must be able to read.
fn write_for_server(data: &Path, name: &str, text: &str) -> Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let path = data.join(name);
    let owner = fs::metadata(data).map_err(failed("postgresql: look at the data folder"))?;
    let written = fs::write(&path, text)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))
        .and_then(|()| std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())));
    written.map_err(|error| {
        EngineError::failed(
            format!("postgresql: cannot write {}", path.display()),
            error,
        )
    })
}

impl Server for PostgreSql {
    type Session = PostgresSession;

    fn connect(&self) -> Result<PostgresSession> {
        connect(&self.running)
    }

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn analyze(&self, session: &mut PostgresSession, table: &str) -> Result<()> {
        session.query(&format!("ANALYZE \"{table}\"")).map(drop)
    }

    /// Vacuums the table: a list query is answered from its index alone only on pages that a vacuum
    /// has marked as visible to all transactions.
    fn tidy(&self, session: &mut PostgresSession, table: &str) -> Result<()> {
        let vacuum = format!("VACUUM {VACUUM_OPTIONS} \"{table}\"");
        session.query(&vacuum).map(drop)
    }
}

impl Product for PostgreSql {
    const NAME: &str = POSTGRESQL;

    fn running(&self) -> &Running<PostgresSession> {
        &self.running
    }

    fn into_running(self) -> Running<PostgresSession> {
        self.running
    }

    fn counters(&self, own: &mut PostgresSession) -> Vec<Counter> {
        counters::read(own)
    }

    /// Cleans up dead rows and writes all changed pages back. Both are complete on return.
    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        let mut session = self.connect()?;
        progress("vacuuming all tables");
        if self.running.external.is_none() {
            session.query(&format!("VACUUM {VACUUM_OPTIONS}"))?;
        } else {
            for table in &self.running.tables {
                self.tidy(&mut session, table)?;
            }
        }
        progress("writing a checkpoint");
        session.query("CHECKPOINT").map(drop)
    }

    fn is_data_file(file_name: &str) -> bool {
        // Segments of the log have 24 digits.
        let is_log =
            file_name.len() == 24 && file_name.bytes().all(|byte| byte.is_ascii_hexdigit());
        !is_log && file_name != SERVER_LOG
    }

    /// Counts large values too.
    fn stored_bytes(&self, own: &mut PostgresSession) -> Option<u64> {
        let query = format!(
            "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class \
             WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname IN ({})",
            external::quoted(&self.running.tables)
        );
        own.ask(&query).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use rumbench_core::engine::Schema;
    use rumbench_core::tables::TableSchema;

    use super::*;
    use crate::servers::tests::config;

    #[test]
    fn a_log_writer_that_sleeps_long_leaves_a_prefix_of_unknown_age() {
        let cut = |delay_ms| durability_facts(Durability::Buffered, true, delay_ms).power_cut;
        assert_eq!([cut(200), cut(10_000)], [PREFIX_ONE_SECOND, SOME_PREFIX]);
    }

    #[test]
    fn unknown_settings_and_workloads_of_keys_and_values_are_refused() {
        let mut asked = config(Path::new(""), Durability::Buffered);
        asked
            .settings
            .insert("max_wal_mb".to_string(), "1".to_string());
        let error = check(&asked).unwrap_err().to_string();
        assert!(error.contains("did you mean `max_wal_mib`"), "{error}");
        let asked = OpenConfig {
            schema: Schema::Tables(TableSchema::key_value("rows")),
            ..config(Path::new(""), Durability::Buffered)
        };
        assert!(
            check(&asked)
                .unwrap_err()
                .to_string()
                .contains("kv-sequence")
        );
    }
}
