//! Tests of engines that connect to a running server by its address. A first engine starts a
//! private server; a second one, under test, connects to it.

use std::cell::Cell;
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use rumbench_core::engine::{Durability, Engine, EngineError, OpenConfig, Result};
use rumbench_core::linkbench::{LinkStore, conformance};
use rumbench_engines::EngineEntry;

use crate::servers::{is_running, open, run_folder, servers};
use crate::setup::config;

/// Private server and the engine that started it. For the engine under test it is an external
/// server.
struct Running {
    entry: &'static EngineEntry,
    engine: Box<dyn Engine>,
    pid: u32,
    socket: String,
    _dir: tempfile::TempDir,
}

impl Running {
    fn start(entry: &'static EngineEntry) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let (engine, pid) = open(entry, dir.path());
        let name = match entry.name {
            "postgresql" => ".s.PGSQL.5432",
            _ => "socket",
        };
        let socket = run_folder(pid).unwrap().join(name);
        Running {
            entry,
            engine,
            pid,
            socket: socket.to_str().unwrap().to_string(),
            _dir: dir,
        }
    }

    fn config(&self, settings: &[(&str, &str)]) -> OpenConfig {
        let user = match self.entry.name {
            "postgresql" => "rumbench",
            _ => "root",
        };
        let own = [
            ("address", self.socket.as_str()),
            ("user", user),
            ("database", "given"),
        ];
        let pairs = own.iter().chain(settings);
        OpenConfig {
            settings: pairs
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            // The engine must not write to its data directory.
            ..config(Path::new("/no/such/folder"), Durability::Buffered)
        }
    }

    fn join(&self, settings: &[(&str, &str)]) -> Result<Box<dyn Engine>> {
        self.entry.open(&self.config(settings))
    }
}

fn refused(result: Result<Box<dyn Engine>>) -> String {
    match result {
        Err(EngineError::Unsupported(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn a_running_server_keeps_the_rules_of_linkbench_and_is_left_as_it_was() {
    for entry in servers() {
        let running = Running::start(entry);
        let stores = Cell::new(0);
        conformance::link_store(|| {
            stores.set(stores.get() + 1);
            // Opening succeeds only if the tables of the previous store are gone.
            let engine = running.join(&[]).unwrap();
            engine.link_store().unwrap()
        });
        assert!(
            stores.get() > 1 && is_running(running.pid),
            "{}",
            entry.name
        );
        running.engine.close().unwrap();
    }
}

#[test]
fn rows_of_others_are_refused_and_dropped_only_when_told() {
    for entry in servers() {
        let running = Running::start(entry);
        let first = running.join(&[]).unwrap();
        let why = refused(running.join(&[]));
        let name = entry.name;
        assert!(
            why.contains("the database given at")
                && why.contains(&format!("{name}.overwrite=true")),
            "{why}"
        );
        running
            .join(&[("database", "another")])
            .unwrap()
            .close()
            .unwrap();
        running
            .join(&[("overwrite", "true")])
            .unwrap()
            .close()
            .unwrap();
        // The overwritten tables are gone, which is no error.
        first.close().unwrap();
        running.join(&[]).unwrap().close().unwrap();
        running.engine.close().unwrap();
    }
}

#[test]
fn what_is_known_of_a_running_server_is_told_and_nothing_else_is_promised() {
    for entry in servers() {
        let running = Running::start(entry);
        let engine = running.join(&[]).unwrap();
        assert_eq!(engine.server_process(), Some(running.pid));
        let external = engine.external().unwrap();
        assert_eq!(external.unseen, None);
        assert!(external.data.is_some(), "{}", entry.name);
        assert_eq!(engine.facts().configuration["address"], running.socket);
        fill(&engine.link_store().unwrap());
        engine.settle(&mut |_| {}).unwrap();
        let bytes = engine.stored_bytes().unwrap();
        assert!(bytes > 1000, "{}: {bytes}", entry.name);
        assert!(running.engine.external().is_none() && running.engine.stored_bytes().is_none());
        engine.close().unwrap();
        running.engine.close().unwrap();
    }
}

fn fill(store: &std::sync::Arc<dyn LinkStore>) {
    use rumbench_core::linkbench::Node;
    let data = [7; 500];
    let nodes: Vec<Node<'_>> = (1..=100)
        .map(|id| Node {
            id,
            node_type: 2048,
            version: 1,
            time: 1,
            data: &data,
        })
        .collect();
    store.connect().unwrap().load_nodes(&nodes).unwrap();
}

/// Relays network connections to a socket; its threads end with the test's process.
fn relay(socket: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let socket = socket.to_string();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = UnixStream::connect(&socket).unwrap();
            let (mut to, mut from) = (server.try_clone().unwrap(), server);
            let (mut sent, mut answer) = (client.try_clone().unwrap(), client);
            thread::spawn(move || {
                let _ = std::io::copy(&mut sent, &mut to);
                to.shutdown(Shutdown::Both)
            });
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut answer);
                answer.shutdown(Shutdown::Both)
            });
        }
    });
    address
}

#[test]
fn a_network_server_reports_that_its_processes_are_invisible() {
    for entry in servers() {
        let mut running = Running::start(entry);
        running.socket = relay(&running.socket);
        let engine = running.join(&[]).unwrap();
        let external = engine.external().unwrap();
        let why = Some("it is reached over the network".to_string());
        assert_eq!(
            (engine.server_process(), external.process, external.data),
            (None, None, None)
        );
        assert_eq!(external.unseen, why);
        fill(&engine.link_store().unwrap());
        engine.settle(&mut |_| {}).unwrap();
        assert!(engine.stored_bytes().unwrap() > 0);
        engine.close().unwrap();
        running.engine.close().unwrap();
    }
}

#[test]
fn nothing_is_configured_at_a_running_server() {
    for entry in servers() {
        let running = Running::start(entry);
        let sync = OpenConfig {
            durability: Durability::Sync,
            ..running.config(&[])
        };
        let why = refused(entry.open(&sync));
        assert!(
            why.contains("choose the class that it runs at by --durability"),
            "{why}"
        );
        let own = refused(running.join(&[("options_file", "/dev/null")]));
        assert!(own.contains("options file"), "{own}");
        if let Some(variant) = entry
            .variants
            .iter()
            .find(|variant| variant.name == "binlog")
        {
            let asked = OpenConfig {
                variant: Some(variant.name.to_string()),
                ..running.config(&[])
            };
            let why = refused(entry.open(&asked));
            assert!(why.contains("runs with"), "{why}");
        }
        running.engine.close().unwrap();
    }
}

#[test]
fn addresses_that_lead_nowhere_are_errors_and_settings_without_one_are_unknown() {
    for entry in servers() {
        let with = |settings: &[(&str, &str)]| OpenConfig {
            settings: settings
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            ..config(Path::new("/no/such/folder"), Durability::Buffered)
        };
        let failed = entry.open(&with(&[("address", "/no/such/socket")]));
        let error = failed.err().unwrap().to_string();
        assert!(
            error.contains("cannot connect to /no/such/socket"),
            "{error}"
        );
        for wrong in [
            with(&[("address", "localhost")]),
            with(&[("overwrite", "true")]),
            with(&[("address", "/x"), ("database", "a b")]),
        ] {
            assert!(
                matches!(entry.check(&wrong), Err(EngineError::Unsupported(_))),
                "{wrong:?}"
            );
        }
    }
}
