//! Primary and replica of MariaDB, with the table in one of its storage engines: asynchronous
//! replication, and semi-synchronous replication with either wait point.
//!
//! The binary log has rows and is synced at each commit; transactions have global ids. The rest are
//! the server's defaults: it syncs the relay log every 10,000 events, and a primary waits at most
//! ten seconds for a confirmation.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use rumbench_core::engine::{Durability, EngineError, OpenConfig, Result, Schema};

use super::options::Tuning;
use super::storage::Storage;
use super::wire::MariaSession;
use super::{Served, serve};
use crate::error::failed;
use crate::replication::{Client, Mode, Node, Product, Promise, Protection, Role, TABLE};
use crate::servers::endpoint::{Endpoint, Password};
use crate::servers::network::{free_port, password, wait_for, words, write_secret};
use crate::servers::process::ServerProcess;
use crate::servers::session::Session;

/// Cache of each server in bytes: the table stays small.
const CACHE_BYTES: u64 = 64 << 20;
/// Connections of a trial.
const CLIENTS: usize = 64;
const DATABASE: &str = "failover";
/// User of the laboratory's connections.
const ADMIN: &str = "laboratory";
/// User of the replica.
const REPLICA: &str = "replica";
/// File of a trial's folder with the passwords of both users, a line each.
const SECRETS: &str = "secrets";

const ASYNCHRONOUS: &str = "asynchronous";
const AFTER_COMMIT: &str = "after-commit";
const AFTER_SYNC: &str = "after-sync";

const MODES: [Mode; 3] = [
    Mode {
        name: ASYNCHRONOUS,
        promise: Promise::NOTHING,
    },
    Mode {
        name: AFTER_COMMIT,
        promise: Promise::ACKNOWLEDGED,
    },
    Mode {
        name: AFTER_SYNC,
        promise: Promise::ALL,
    },
];

/// MariaDB with the table in one storage engine.
pub(crate) struct Pair(Storage);

pub(crate) const INNODB: Pair = Pair(Storage::InnoDb);
pub(crate) const MYROCKS: Pair = Pair(Storage::MyRocks);
pub(crate) const ALLUVIUM: Pair = Pair(Storage::Alluvium);

impl Pair {
    fn tuning(&self, dir: &Path, variant: Option<&str>) -> Result<Tuning> {
        // Small logs: each trial copies the folder.
        let log = ("log_mib".to_string(), "16".to_string());
        let has_log = self.0 != Storage::Alluvium;
        let config = OpenConfig {
            dir: dir.to_path_buf(),
            schema: Schema::LinkBench,
            variant: variant.map(String::from),
            cache_bytes: CACHE_BYTES,
            durability: Durability::Sync,
            clients: CLIENTS,
            settings: has_log.then_some(log).into_iter().collect(),
        };
        Tuning::of(&config, self.0)
    }

    fn sql_name(&self) -> &'static str {
        match self.0 {
            Storage::InnoDb => "InnoDB",
            Storage::MyRocks => "ROCKSDB",
            Storage::Alluvium => "ALLUVIUM",
        }
    }
}

/// Passwords of the two users.
struct Secrets {
    admin: String,
    replica: String,
}

impl Secrets {
    fn read(dir: &Path) -> Result<Secrets> {
        let text = fs::read_to_string(dir.join(SECRETS)).map_err(failed("read the passwords"))?;
        match text.lines().collect::<Vec<_>>()[..] {
            [admin, replica] => Ok(Secrets {
                admin: admin.to_string(),
                replica: replica.to_string(),
            }),
            _ => Err(EngineError::Wrong(format!(
                "{} is no file of two passwords",
                dir.join(SECRETS).display()
            ))),
        }
    }

    fn write(&self, dir: &Path) -> Result<()> {
        let text = format!("{}\n{}\n", self.admin, self.replica);
        write_secret(&dir.join(SECRETS), &text)
    }
}

impl Product for Pair {
    fn name(&self) -> &'static str {
        self.0.engine()
    }

    fn modes(&self) -> &'static [Mode] {
        &MODES
    }

    fn prepare(&self, template: &Path) -> Result<()> {
        let tuning = self.tuning(template, None)?;
        let Served {
            mut process,
            endpoint,
            ..
        } = serve(template, &tuning, None)?;
        let first = endpoint.with_database("mysql");
        let mut own = process.wait_until_ready(|| MariaSession::connect(&first))?;
        let secrets = Secrets {
            admin: password()?,
            replica: password()?,
        };
        own.query(&format!(
            "CREATE DATABASE {DATABASE};
             CREATE TABLE {DATABASE}.{TABLE} (writer INT NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (writer, number)) ENGINE={}",
            self.sql_name()
        ))?;
        // A server without users refuses to make one until it reads its tables of them.
        own.query(&format!(
            "FLUSH PRIVILEGES;
             CREATE USER {ADMIN}@localhost IDENTIFIED BY '{}';
             GRANT ALL ON *.* TO {ADMIN}@localhost;
             CREATE USER {REPLICA}@'127.0.0.1' IDENTIFIED BY '{}';
             GRANT REPLICATION SLAVE ON *.* TO {REPLICA}@'127.0.0.1'",
            secrets.admin, secrets.replica
        ))?;
        // The server's own scripts make users without a password, also for the network.
        own.query(&format!(
            "DELETE FROM mysql.global_priv WHERE User NOT IN ('{ADMIN}', '{REPLICA}', 'mariadb.sys')"
        ))?;
        drop(own);
        process.stop()?;
        secrets.write(template)
    }

    fn start(&self, dir: &Path, role: Role, mode: &Mode) -> Result<Box<dyn Node>> {
        let secrets = Secrets::read(dir)?;
        let port = free_port()?;
        let tuning = self.tuning(dir, Some("binlog"))?;
        let options = options(self, role, mode, port);
        let Served {
            mut process,
            endpoint,
            ..
        } = serve(dir, &tuning, Some(&options))?;
        let endpoint = Endpoint {
            user: ADMIN.to_string(),
            password: Some(Password::own(&secrets.admin)),
            database: DATABASE.to_string(),
            ..endpoint
        };
        let mut own = process.wait_until_ready(|| MariaSession::connect(&endpoint))?;
        if let Role::Replica(primary) = role {
            follow(&mut own, primary, &secrets.replica)?;
        }
        Ok(Box::new(Running {
            process,
            endpoint,
            port,
            storage: self.0,
            is_semi_synchronous: mode.name != ASYNCHRONOUS,
            own: Mutex::new(own),
        }))
    }
}

/// Returns the options of a server in replication, besides those of each private server.
fn options(pair: &Pair, role: Role, mode: &Mode, port: u16) -> Vec<String> {
    let mut options = vec![
        "--bind-address=127.0.0.1".to_string(),
        "--skip-name-resolve".to_string(),
        format!("--port={port}"),
        "--gtid-strict-mode=ON".to_string(),
        "--log-slave-updates=ON".to_string(),
        "--relay-log=relay".to_string(),
        format!("--gtid-pos-auto-engines={}", pair.sql_name()),
    ];
    let semi_synchronous = mode.name != ASYNCHRONOUS;
    let more: &[&str] = match role {
        Role::Primary if !semi_synchronous => &["--server-id=1"],
        Role::Primary => &["--server-id=1", "--rpl-semi-sync-master-enabled=ON"],
        Role::Replica(_) if !semi_synchronous => &["--server-id=2", "--read-only=ON"],
        Role::Replica(_) => &[
            "--server-id=2",
            "--read-only=ON",
            "--rpl-semi-sync-slave-enabled=ON",
        ],
    };
    options.extend(more.iter().map(|option| option.to_string()));
    let wait_point = match mode.name {
        AFTER_COMMIT => Some("AFTER_COMMIT"),
        AFTER_SYNC => Some("AFTER_SYNC"),
        _ => None,
    };
    options.extend(wait_point.map(|point| format!("--rpl-semi-sync-master-wait-point={point}")));
    options
}

/// Makes a server replicate from this port.
fn follow(own: &mut MariaSession, primary: u16, password: &str) -> Result<()> {
    own.query(&format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary}, MASTER_USER='{REPLICA}', \
         MASTER_PASSWORD='{password}', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1"
    ))?;
    own.query("START SLAVE")?;
    wait_for("connection of the replica", || {
        let status = own.record("SHOW SLAVE STATUS")?;
        match status.get("Last_IO_Error").map_or("", String::as_str) {
            "" => Ok(status.get("Slave_IO_Running").is_some_and(|is| is == "Yes")),
            error => Err(EngineError::failed("the replica cannot connect", error)),
        }
    })
}

/// Running server in replication.
struct Running {
    process: ServerProcess,
    endpoint: Endpoint,
    port: u16,
    storage: Storage,
    is_semi_synchronous: bool,
    /// The laboratory's own connection.
    own: Mutex<MariaSession>,
}

impl Running {
    fn own(&self) -> MutexGuard<'_, MariaSession> {
        self.own.lock().expect("no user of the connection panics")
    }
}

impl Node for Running {
    fn port(&self) -> u16 {
        self.port
    }

    fn version(&self) -> Result<String> {
        let mut own = self.own();
        let server = own.ask("SELECT version()")?;
        Ok(format!(
            "MariaDB {server}{}",
            self.storage.version(&mut own)?
        ))
    }

    fn connect(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(MariaSession::connect(&self.endpoint)?))
    }

    fn protection(&self) -> Result<Protection> {
        if !self.is_semi_synchronous {
            let replicas = self.own().ask(
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND = 'Binlog Dump'",
            )?;
            return Ok(Protection {
                is_active: replicas != "0",
                words: format!("{replicas} replicas"),
            });
        }
        let rows = self.own().query(
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', 'Rpl_semi_sync_master_clients', \
             'Rpl_semi_sync_master_no_tx', 'Rpl_semi_sync_master_no_times')",
        )?;
        let value = |name: &str| {
            let row = rows.iter().find(|row| row[0].ends_with(name));
            row.map_or("", |row| row[1].as_str())
        };
        Ok(Protection {
            is_active: value("_status") == "ON"
                && !matches!(value("_clients"), "" | "0")
                && value("_no_tx") == "0"
                && value("_no_times") == "0",
            words: words(&rows),
        })
    }

    fn drain(&self) -> Result<bool> {
        let mut own = self.own();
        own.query("STOP SLAVE IO_THREAD")?;
        let status = own.record("SHOW SLAVE STATUS")?;
        let received = status.get("Gtid_IO_Pos").map_or("", String::as_str);
        if received.is_empty() {
            return Ok(true);
        }
        match own
            .ask(&format!("SELECT MASTER_GTID_WAIT('{received}', 60)"))?
            .as_str()
        {
            "0" => Ok(true),
            _ => Err(EngineError::Wrong(format!(
                "the replica has not applied {received} within 60 s"
            ))),
        }
    }

    fn promote(&self) -> Result<()> {
        let steps = "STOP ALL SLAVES; RESET SLAVE ALL; SET GLOBAL read_only = OFF";
        self.own().query(steps).map(drop)
    }

    fn lose_power(&mut self) {
        self.process.lose_power();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::endpoint::Address;

    #[test]
    fn only_the_replica_with_its_password_enters_from_the_network() {
        let dir = tempfile::tempdir().unwrap();
        INNODB.prepare(dir.path()).unwrap();
        let node = INNODB.start(dir.path(), Role::Primary, &MODES[0]).unwrap();
        assert!(node.version().unwrap().starts_with("MariaDB 10."));
        let enter = |user: &str, password: Option<&str>| {
            MariaSession::connect(&Endpoint {
                address: Address::Network(format!("127.0.0.1:{}", node.port())),
                user: user.to_string(),
                password: password.map(Password::own),
                database: "information_schema".to_string(),
                log: None,
            })
        };
        for user in ["root", "", ADMIN, REPLICA] {
            let error = enter(user, None).err().expect("refused").to_string();
            assert!(error.contains("1045"), "{user}: {error}");
        }
        let secrets = Secrets::read(dir.path()).unwrap();
        enter(REPLICA, Some(&secrets.replica)).unwrap();
        assert!(enter(ADMIN, Some(&secrets.admin)).is_err());
    }
}
