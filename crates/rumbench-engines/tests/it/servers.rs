//! What only servers need: processes that can die, and nothing that is left of them.

use std::path::{Path, PathBuf};

use rumbench_core::engine::{Durability, Engine, EngineError, Schema};
use rumbench_core::linkbench::{Link, LinkKey, ListQuery};
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

const LINK_TYPE: u64 = 123_456_789;
/// Links of the list that is asked for its newest.
const LIST: u64 = 3000;

/// Three lists of which the one in the middle is long, with two links for each time.
fn load_lists(engine: &dyn Engine) {
    let store = engine.link_store().unwrap();
    let link = |id1, id2| Link {
        key: LinkKey {
            id1,
            link_type: LINK_TYPE,
            id2,
        },
        visibility: 1,
        time: 1_000 + id2 / 2,
        version: 0,
        data: b"payload",
    };
    let mut links = vec![link(1, 1)];
    links.extend((0..LIST).map(|id2| link(2, id2)));
    links.push(link(3, 1));
    store.connect().unwrap().load_links(&links).unwrap();
    store.build_index().unwrap();
}

/// Entries that all index scans have visited, and rows that were sorted.
fn rows_visited(engine: &dyn Engine) -> (f64, f64) {
    let sum = |prefix: &str| {
        let counters = engine.counters().into_iter();
        let named = counters.filter(|counter| counter.name.starts_with(prefix));
        named.map(|counter| counter.value).sum()
    };
    (sum("index_rows_read"), sum("rows_sorted"))
}

/// Sorting a list for its newest links would read all of it, and lists may have millions.
#[test]
fn the_newest_links_of_a_long_list_are_read_without_the_others() {
    const QUERIES: u64 = 10;
    const ROWS: u64 = 10;
    for entry in servers() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, _) = open(entry, dir.path());
        load_lists(&*engine);
        let (before, sorted_before) = rows_visited(&*engine);
        let store = engine.link_store().unwrap();
        let mut connection = store.connect().unwrap();
        // Plans may change when a statement is run again.
        for query in 0..QUERIES {
            let list = ListQuery {
                id1: 2,
                link_type: LINK_TYPE,
                time_min: 0,
                time_max: if query % 2 == 0 {
                    i64::MAX as u64
                } else {
                    2_000
                },
                offset: (query % 2) as usize,
                limit: ROWS as usize,
            };
            assert_eq!(connection.list_links(&list).unwrap().rows, ROWS);
        }
        // PostgreSQL tells what a connection has read when it ends, or later.
        drop((connection, store));
        let visited = loop {
            let (visited, sorted) = rows_visited(&*engine);
            if visited - before >= (QUERIES * (ROWS - 1)) as f64 {
                assert_eq!(sorted, sorted_before, "{}", entry.name);
                break visited - before;
            }
        };
        let most = (QUERIES * (ROWS + 2)) as f64;
        assert!(visited <= most, "{}: {visited} entries", entry.name);
        engine.close().unwrap();
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
