//! Primary and standby of PostgreSQL by streaming replication, at the levels of
//! `synchronous_commit`.
//!
//! The standby begins with a copy of the primary's data, taken while no server ran. All but what a
//! mode names is the server's default.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use rumbench_core::engine::{Durability, EngineError, OpenConfig, Result, Schema};

use super::tuning::Tuning;
use super::wire::PostgresSession;
use super::{Network, serve, write_for_server};
use crate::error::failed;
use crate::replication::{Client, Mode, Node, Product, Promise, Protection, Role, TABLE};
use crate::servers::endpoint::Endpoint;
use crate::servers::network::{free_port, password, wait_for, words, write_secret};
use crate::servers::packages::POSTGRESQL;
use crate::servers::places::DATA_FOLDER;
use crate::servers::process::ServerProcess;
use crate::servers::session::Session;

/// Cache of each server in bytes: the table stays small.
const CACHE_BYTES: u64 = 64 << 20;
/// Connections of a trial.
const CLIENTS: usize = 64;
/// User of the standby.
const REPLICA: &str = "replica";
/// File of a trial's folder with the password of that user.
const SECRET: &str = "secrets";
/// Access rules: any user that can enter the folder of the socket, and the standby by password.
const RULES: &str = "local all all trust\n\
    host replication replica 127.0.0.1/32 scram-sha-256\n";

const LOCAL: &str = "local";

const MODES: [Mode; 4] = [
    Mode {
        name: LOCAL,
        promise: Promise::NOTHING,
    },
    Mode {
        name: "remote-write",
        promise: Promise::ALL,
    },
    Mode {
        name: "on",
        promise: Promise::ALL,
    },
    Mode {
        name: "remote-apply",
        promise: Promise::ALL,
    },
];

/// PostgreSQL.
pub(crate) struct Pair;

pub(crate) const PAIR: Pair = Pair;

fn tuning(dir: &Path) -> Result<Tuning> {
    Tuning::of(&OpenConfig {
        dir: dir.to_path_buf(),
        schema: Schema::LinkBench,
        variant: None,
        cache_bytes: CACHE_BYTES,
        durability: Durability::Sync,
        clients: CLIENTS,
        settings: Default::default(),
    })
}

impl Product for Pair {
    fn name(&self) -> &'static str {
        POSTGRESQL
    }

    fn modes(&self) -> &'static [Mode] {
        &MODES
    }

    fn prepare(&self, template: &Path) -> Result<()> {
        let (mut process, endpoint) = serve(template, &tuning(template)?, None)?;
        let mut own = process.wait_until_ready(|| PostgresSession::connect(&endpoint))?;
        let secret = password()?;
        own.query(&format!(
            "CREATE TABLE {TABLE} (writer INT, number BIGINT, PRIMARY KEY (writer, number))"
        ))?;
        own.query(&format!(
            "CREATE USER {REPLICA} REPLICATION PASSWORD '{secret}'"
        ))?;
        drop(own);
        process.stop()?;
        write_for_server(&template.join(DATA_FOLDER), "pg_hba.conf", RULES)?;
        write_secret(&template.join(SECRET), &secret)
    }

    fn start(&self, dir: &Path, role: Role, mode: &Mode) -> Result<Box<dyn Node>> {
        let data = dir.join(DATA_FOLDER);
        let level = mode.name.replace('-', "_");
        let mut settings = vec![
            format!("synchronous_commit={level}"),
            // Shared memory in files of the data folder: a killed server cannot remove any other.
            "dynamic_shared_memory_type=mmap".to_string(),
        ];
        match role {
            Role::Primary => settings.push("synchronous_standby_names=*".to_string()),
            Role::Replica(primary) => {
                let secret =
                    fs::read_to_string(dir.join(SECRET)).map_err(failed("read the password"))?;
                // Not on the command line, which other users see.
                let line = format!(
                    "primary_conninfo = 'host=127.0.0.1 port={primary} user={REPLICA} password={secret}'\n"
                );
                write_for_server(&data, "postgresql.auto.conf", &line)?;
                write_for_server(&data, "standby.signal", "")?;
            }
        }
        let network = Network {
            port: free_port()?,
            settings,
        };
        let (mut process, endpoint) = serve(dir, &tuning(dir)?, Some(&network))?;
        let own = process.wait_until_ready(|| PostgresSession::connect(&endpoint))?;
        Ok(Box::new(Running {
            process,
            endpoint,
            data,
            port: network.port,
            waits: mode.name != LOCAL,
            has_lost_power: false,
            own: Mutex::new(own),
        }))
    }
}

/// Running server in replication.
struct Running {
    process: ServerProcess,
    endpoint: Endpoint,
    data: PathBuf,
    port: u16,
    /// Commits wait for the standby.
    waits: bool,
    has_lost_power: bool,
    /// The laboratory's own connection.
    own: Mutex<PostgresSession>,
}

impl Running {
    fn own(&self) -> MutexGuard<'_, PostgresSession> {
        self.own.lock().expect("no user of the connection panics")
    }

    /// Removes the shared memory that the ended server cannot remove itself; its id is in the file
    /// of the server's process.
    fn remove_shared_memory(&self) {
        let file = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        let numbers = file.lines().nth(6).unwrap_or_default();
        if let Some(id) = numbers.split_ascii_whitespace().nth(1) {
            // A few bytes: no failure of the trial.
            let mut command = Command::new("ipcrm");
            command.args(["--shmem-id", id]);
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

impl Node for Running {
    fn port(&self) -> u16 {
        self.port
    }

    fn version(&self) -> Result<String> {
        let version = self.own().ask("SHOW server_version")?;
        Ok(format!("PostgreSQL {version}"))
    }

    fn connect(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(PostgresSession::connect(&self.endpoint)?))
    }

    fn protection(&self) -> Result<Protection> {
        let rows = self
            .own()
            .query("SELECT state, sync_state FROM pg_stat_replication")?;
        let protects = |row: &Vec<String>| {
            row[0] == "streaming" && (!self.waits || ["sync", "quorum"].contains(&row[1].as_str()))
        };
        Ok(Protection {
            is_active: rows.iter().any(protects),
            words: match &rows[..] {
                [] => "no standby".to_string(),
                rows => words(rows),
            },
        })
    }

    /// A promotion replays what was received.
    fn drain(&self) -> Result<bool> {
        Ok(false)
    }

    fn promote(&self) -> Result<()> {
        let mut own = self.own();
        if own.ask("SELECT pg_promote(true, 60)")? != "t" {
            return Err(EngineError::Wrong(
                "the standby was not promoted within 60 s".to_string(),
            ));
        }
        wait_for("end of the recovery", || {
            Ok(own.ask("SELECT pg_is_in_recovery()")? == "f")
        })
    }

    fn lose_power(&mut self) {
        self.process.lose_power();
        self.has_lost_power = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_lost_power {
            self.remove_shared_memory();
        }
    }
}
