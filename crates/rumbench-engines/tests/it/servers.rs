//! What only servers need: processes that can die, and nothing that is left of them.

use std::path::{Path, PathBuf};

use rumbench_core::engine::{Durability, Engine, EngineError, Schema};
use rumbench_engines::{EngineEntry, engines};
use rustix::process::{Pid, Signal};

use crate::setup::config;

/// The servers of this build.
fn servers() -> impl Iterator<Item = &'static EngineEntry> {
    let built = |entry: &&EngineEntry| entry.is_server && entry.is_available();
    engines().iter().filter(built)
}

fn open(entry: &EngineEntry, dir: &Path) -> (Box<dyn Engine>, u32) {
    let engine = entry.open(&config(dir, Durability::Buffered));
    let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
    let pid = engine.server_process().expect("a process");
    (engine, pid)
}

/// The run folder whose note names this process.
fn run_folder(pid: u32) -> Option<PathBuf> {
    let folders = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let mut folders = folders.map(|entry| entry.path());
    folders.find(|folder| {
        let note = std::fs::read_to_string(folder.join("server")).unwrap_or_default();
        note.split(' ').next() == Some(pid.to_string().as_str())
    })
}

fn is_running(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn source_of(error: &EngineError) -> String {
    match error {
        EngineError::Failed { source, .. } => source.to_string(),
        other => panic!("another error: {other}"),
    }
}

#[test]
fn a_closed_server_and_a_dropped_one_leave_no_process_and_no_folder() {
    for entry in servers() {
        for is_closed in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let (engine, pid) = open(entry, dir.path());
            let folder = run_folder(pid).expect("a noted run folder");
            assert!(is_running(pid), "{}", entry.name);
            match is_closed {
                true => engine.close().unwrap(),
                false => drop(engine),
            }
            assert!(!is_running(pid) && !folder.exists(), "{}", entry.name);
        }
    }
}

#[test]
fn a_server_that_dies_is_an_error_that_ends_with_its_log() {
    for entry in servers() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, pid) = open(entry, dir.path());
        let store = engine.link_store().unwrap();
        let mut connection = store.connect().unwrap();
        connection.count_links(1, 2).unwrap();
        let raw = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(raw, Signal::KILL).unwrap();
        // The other processes of PostgreSQL end when they notice.
        let error = loop {
            if let Err(error) = connection.count_links(1, 2) {
                break error;
            }
        };
        assert!(
            error.to_string().contains("broke"),
            "{}: {error}",
            entry.name
        );
        assert!(source_of(&error).contains("its log ends with"), "{error}");
        drop((connection, store));
        // Its end is noticed before or while it is asked to stop.
        let error = engine.close().unwrap_err();
        assert!(source_of(&error).contains("its log ends with"), "{error}");
    }
}

#[test]
fn a_configuration_that_a_server_refuses_is_an_error_with_its_words() {
    for entry in servers() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own.conf");
        std::fs::write(&own, "no_such_variable_of_a_server = 1\n").unwrap();
        let mut config = config(dir.path(), Durability::Buffered);
        let own = own.to_str().unwrap().to_string();
        config.settings.insert("options_file".to_string(), own);
        let Err(error) = entry.open(&config) else {
            panic!("{} takes any variable", entry.name);
        };
        let words = source_of(&error).replace('-', "_");
        assert!(
            words.contains("no_such_variable_of_a_server"),
            "{error}: {words}"
        );
    }
}

#[test]
fn keys_and_values_are_refused_before_anything_is_made() {
    for entry in servers() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path(), Durability::Buffered);
        config.schema = Schema::KvSequence;
        for refused in [entry.check(&config), entry.open(&config).map(drop)] {
            assert!(
                matches!(refused, Err(EngineError::Unsupported(_))),
                "{}",
                entry.name
            );
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
