//! Tests of servers only: their processes can die, and must leave nothing when they end.

use std::cell::Cell;
#[cfg(feature = "mariadb")]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rumbench_core::engine::{Durability, Engine, EngineError, OpenConfig, Schema};
use rumbench_core::linkbench::{Link, LinkKey, ListQuery, conformance};
use rumbench_engines::{EngineEntry, Variant, engines};
use rustix::process::{Pid, Signal};

use crate::setup::config;

/// Returns the servers of this build.
pub fn servers() -> impl Iterator<Item = &'static EngineEntry> {
    let built = |entry: &&EngineEntry| entry.is_server && entry.is_available();
    engines().iter().filter(built)
}

pub fn open(entry: &EngineEntry, dir: &Path) -> (Box<dyn Engine>, u32) {
    let engine = entry.open(&config(dir, Durability::Buffered));
    let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
    let pid = engine.server_process().expect("a process");
    (engine, pid)
}

/// Returns the run folder with a note that names this process.
pub fn run_folder(pid: u32) -> Option<PathBuf> {
    let folders = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let mut folders = folders.map(|entry| entry.path());
    folders.find(|folder| {
        let note = std::fs::read_to_string(folder.join("server")).unwrap_or_default();
        note.split(' ').next() == Some(pid.to_string().as_str())
    })
}

/// Returns the variants of the servers of this build.
fn variants() -> impl Iterator<Item = (&'static EngineEntry, &'static Variant)> {
    servers().flat_map(|entry| entry.variants.iter().map(move |variant| (entry, variant)))
}

fn variant_config(dir: &Path, variant: &Variant) -> OpenConfig {
    OpenConfig {
        variant: Some(variant.name.to_string()),
        ..config(dir, Durability::Buffered)
    }
}

pub fn is_running(pid: u32) -> bool {
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
            if is_closed {
                engine.close().unwrap()
            } else {
                drop(engine)
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
        // The other processes of PostgreSQL end after they notice.
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
        // The engine notices the server's end before or during the stop.
        let error = engine.close().unwrap_err();
        assert!(source_of(&error).contains("its log ends with"), "{error}");
    }
}

#[test]
fn a_configuration_that_a_server_refuses_is_an_error_with_its_words() {
    for entry in servers() {
        let dir = tempfile::tempdir().unwrap();
        let line = "no_such_variable_of_a_server = 1";
        let Err(error) = entry.open(&with_line(dir.path(), Durability::Buffered, line)) else {
            panic!("{} takes any variable", entry.name);
        };
        let words = source_of(&error).replace('-', "_");
        assert!(
            words.contains("no_such_variable_of_a_server"),
            "{error}: {words}"
        );
    }
}

/// Returns the configuration of a trial with `line` in the user's own options file.
pub fn with_line(dir: &Path, durability: Durability, line: &str) -> OpenConfig {
    let own = dir.join("own.conf");
    std::fs::write(&own, format!("{line}\n")).unwrap();
    let mut config = config(dir, durability);
    let own = own.to_str().unwrap().to_string();
    config.settings.insert("options_file".to_string(), own);
    config
}

#[test]
fn lines_of_ones_own_do_not_change_the_durability_class_under_its_label() {
    let lines = [
        ("postgresql", "synchronous_commit = off"),
        ("mariadb-alluvium", "alluvium_flush_log_at_trx_commit = 2"),
        ("mariadb-innodb", "innodb-flush-log-at-trx-commit = 2"),
        ("mariadb-rocksdb", "rocksdb_flush_log_at_trx_commit = 2"),
        ("mariadb-rocksdb", "rocksdb_write_disable_wal = 1"),
    ];
    let cases = servers().flat_map(|entry| {
        let own = lines.iter().filter(move |(name, _)| *name == entry.name);
        own.map(move |(_, line)| (entry, *line))
    });
    for (entry, line) in cases {
        let dir = tempfile::tempdir().unwrap();
        let Err(error) = entry.open(&with_line(dir.path(), Durability::Sync, line)) else {
            panic!("{} is called sync with {line}", entry.name);
        };
        let words = error.to_string();
        for expected in [
            "with its options_file",
            "choose the class",
            "or take the line",
        ] {
            assert!(words.contains(expected), "{words}");
        }
    }
}

#[test]
fn lines_of_ones_own_do_not_move_a_server_and_are_the_reason_of_what_they_set() {
    for entry in servers() {
        let dir = tempfile::tempdir().unwrap();
        let (lines, (name, value)) = match entry.name {
            "postgresql" => (
                "data_directory = '/no/such'\nhba_file = '/no/such/hba'\nident_file = '/no/such/ident'\n\
                 external_pid_file = '/no/such/pid'\nunix_socket_directories = '/no/such'\n\
                 listen_addresses = '*'\nport = 1\nwork_mem = 8MB",
                ("work_mem", "8MB"),
            ),
            _ => (
                "[mysql]\nno_such_variable = 1\n[mysqld]\ndatadir = /no/such\nsocket = /no/such/socket\ntmpdir = /no/such\n\
                 pid-file = /no/such/pid\ninnodb_data_home_dir = /no/such\ninnodb-log-group-home-dir = /no/such\n\
                 innodb_undo_directory = /no/such\naria_log_dir_path = /no/such\nloose-rocksdb_datadir = /no/such\n\
                 loose-rocksdb_wal_dir = /no/such\nloose-alluvium_datadir = /no/such\nskip-networking = 0\ninnodb_io_capacity = 300",
                ("innodb_io_capacity", "300"),
            ),
        };
        let config = with_line(dir.path(), Durability::Buffered, lines);
        let engine = entry.open(&config).unwrap();
        let facts = engine.facts().configuration;
        assert_eq!(facts[name], format!("{value} (the options file)"));
        for moved in ["data_directory", "datadir", "port", "socket"] {
            assert!(!facts.contains_key(moved), "{}: {moved}", entry.name);
        }
        engine.close().unwrap();
    }
}

#[test]
fn a_server_that_does_not_repair_torn_pages_says_what_a_power_cut_does() {
    for entry in servers() {
        let line = match entry.name {
            "postgresql" => "full_page_writes = off",
            "mariadb-innodb" => "innodb-doublewrite = 0",
            // MyRocks and Alluvium write each table once, so they have no torn pages.
            _ => continue,
        };
        let dir = tempfile::tempdir().unwrap();
        let config = with_line(dir.path(), Durability::Sync, line);
        let engine = entry.open(&config).unwrap();
        let facts = engine.facts().durability;
        assert_eq!(facts.power_cut, "may corrupt", "{}", entry.name);
        engine.close().unwrap();
    }
}

const LINK_TYPE: u64 = 123_456_789;
/// Number of links in the long list.
const LIST: u64 = 3000;

/// Loads three lists. The middle one is long, with two links for each time.
fn load_lists(engine: &dyn Engine) {
    load_links(engine);
    engine.link_store().unwrap().build_index().unwrap();
}

fn load_links(engine: &dyn Engine) {
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
}

/// Returns the number of entries that all index scans have read, and the number of sorted rows.
fn rows_visited(engine: &dyn Engine) -> (f64, f64) {
    let sum = |prefix: &str| {
        let counters = engine.counters().into_iter();
        let named = counters.filter(|counter| counter.name.starts_with(prefix));
        named.map(|counter| counter.value).sum()
    };
    (sum("index_rows_read"), sum("rows_sorted"))
}

/// Sorting a list for its newest links would read all of it, and a list may have millions of links.
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
        // A server may change the plan when a statement runs again.
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
        // PostgreSQL reports a connection's reads when the connection ends, or later.
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

/// Returns the number of pages, blocks and buffers that all statements have requested.
#[cfg(feature = "mariadb")]
fn blocks_asked_for(engine: &dyn Engine) -> f64 {
    let counters = engine.counters().into_iter();
    let asked = counters.filter(|counter| {
        ["page_requests", "block_cache_hits", "block_cache_misses"].contains(&counter.name.as_str())
    });
    asked.map(|counter| counter.value).sum()
}

/// MariaDB looks up the row of each entry after a change of the table, unless the client requests
/// the list as text.
#[cfg(feature = "mariadb")]
#[test]
fn lists_are_read_from_their_index_alone_also_after_a_change() {
    for entry in servers().filter(|entry| entry.name.starts_with("mariadb")) {
        let dir = tempfile::tempdir().unwrap();
        let (engine, _) = open(entry, dir.path());
        load_lists(&*engine);
        // Settling moves rows of MyRocks and Alluvium from memtables to blocks.
        engine.settle(&mut |_| ()).unwrap();
        let store = engine.link_store().unwrap();
        let mut connection = store.connect().unwrap();
        let list = ListQuery {
            id1: 2,
            link_type: LINK_TYPE,
            time_min: 0,
            time_max: i64::MAX as u64,
            offset: 0,
            limit: LIST as usize,
        };
        for version in 1..3 {
            let link = Link {
                key: LinkKey {
                    id1: 1,
                    link_type: LINK_TYPE,
                    id2: 1,
                },
                visibility: 1,
                time: 1_000,
                version,
                data: b"another",
            };
            connection.update_link(&link).unwrap();
            let before = blocks_asked_for(&*engine);
            assert_eq!(connection.list_links(&list).unwrap().rows, LIST);
            let asked = blocks_asked_for(&*engine) - before;
            let most = (LIST / 4) as f64;
            assert!(asked <= most, "{}: {asked} blocks", entry.name);
        }
        drop((connection, store));
        engine.close().unwrap();
    }
}

#[test]
fn every_variant_keeps_the_rules_of_linkbench() {
    for (entry, variant) in variants() {
        let root = tempfile::tempdir().unwrap();
        let databases = Cell::new(0);
        conformance::link_store_in_short(|| {
            let dir = root.path().join(databases.get().to_string());
            databases.set(databases.get() + 1);
            std::fs::create_dir(&dir).unwrap();
            let engine = entry.open(&variant_config(&dir, variant));
            let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", variant.name));
            engine.link_store().unwrap()
        });
    }
}

#[test]
fn every_variant_keeps_the_rules_of_tables() {
    let schema = rumbench_engines::conformance::table_schema();
    for (entry, variant) in variants() {
        let dir = tempfile::tempdir().unwrap();
        let config = OpenConfig {
            schema: Schema::Tables(schema),
            ..variant_config(dir.path(), variant)
        };
        let engine = entry.open(&config).unwrap();
        rumbench_engines::conformance::table_store(&*engine.table_store(schema).unwrap());
        engine.close().unwrap();
    }
}

/// Returns the allocated bytes of all files below a folder with names that end in `end`.
#[cfg(feature = "mariadb")]
fn allocated(dir: &Path, end: &str) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    let bytes = entries.map(|entry| match entry.metadata().unwrap() {
        found if found.is_dir() => allocated(&entry.path(), end),
        found if entry.file_name().to_string_lossy().ends_with(end) => found.blocks() * 512,
        _ => 0,
    });
    bytes.sum()
}

/// Loads the lists into a server. Returns its effective configuration, and the bytes of its link
/// table and binary log.
#[cfg(feature = "mariadb")]
fn loaded(name: &str, variant: Option<&str>, settings: &[(&str, &str)]) -> Loaded {
    let dir = tempfile::tempdir().unwrap();
    let pairs = settings.iter();
    let pairs = pairs.map(|(key, value)| (key.to_string(), value.to_string()));
    let config = OpenConfig {
        variant: variant.map(str::to_string),
        settings: pairs.collect(),
        ..config(dir.path(), Durability::Buffered)
    };
    let entry = engines().iter().find(|entry| entry.name == name).unwrap();
    let engine = entry.open(&config).unwrap();
    load_lists(&*engine);
    engine.settle(&mut |_| {}).unwrap();
    let found = Loaded {
        configuration: engine.facts().configuration,
        link_bytes: allocated(dir.path(), "linktable.ibd"),
        binlog_bytes: allocated(dir.path(), "binlog.000001"),
    };
    engine.close().unwrap();
    found
}

#[cfg(feature = "mariadb")]
struct Loaded {
    configuration: std::collections::BTreeMap<String, String>,
    link_bytes: u64,
    binlog_bytes: u64,
}

#[cfg(feature = "mariadb")]
#[test]
fn compressed_tables_take_less_room_and_say_how_they_are_stored() {
    let plain = loaded("mariadb-innodb", None, &[]);
    assert!(plain.link_bytes > 0 && !plain.configuration.contains_key("tables"));
    for (variant, setting, tables) in [
        (
            "compressed",
            ("key_block_kib", "4"),
            "row_format compressed, key_block_size=4 (the variant)",
        ),
        (
            "page-compressed",
            ("page_compression_level", "9"),
            "page_compressed=1, page_compression_level=9 (the variant)",
        ),
    ] {
        let found = loaded("mariadb-innodb", Some(variant), &[setting]);
        assert_eq!(found.configuration["tables"], tables);
        assert!(
            found.link_bytes * 4 < plain.link_bytes * 3,
            "{variant}: {} bytes against {}",
            found.link_bytes,
            plain.link_bytes
        );
    }
}

#[cfg(feature = "mariadb")]
#[test]
fn variants_of_the_server_are_on_in_their_own_rows_only() {
    let starts = |found: &Loaded, name: &str, value: &str| {
        let value_found = found.configuration.get(name);
        assert!(
            value_found.is_some_and(|found| found.starts_with(value)),
            "{name}: {value_found:?}"
        );
    };
    const INNODB: [&str; 2] = ["innodb_flush_log_at_trx_commit", "innodb_buffer_pool_size"];
    const MYROCKS: [&str; 2] = [
        "rocksdb_flush_log_at_trx_commit",
        "rocksdb_block_cache_size",
    ];
    const ALLUVIUM: [&str; 2] = ["alluvium_flush_log_at_trx_commit", "alluvium_memory_bytes"];
    for (name, of_both) in [
        ("mariadb-alluvium", [INNODB, ALLUVIUM]),
        ("mariadb-innodb", [INNODB, MYROCKS]),
        ("mariadb-rocksdb", [INNODB, MYROCKS]),
    ] {
        let plain = loaded(name, None, &[]);
        starts(&plain, "log_bin", "OFF");
        starts(&plain, "performance_schema", "OFF");
        assert_eq!(plain.binlog_bytes, 0);
        let binlog = loaded(name, Some("binlog"), &[]);
        for (setting, value) in [
            ("log_bin", "ON"),
            ("sync_binlog", "1 "),
            ("binlog_format", "ROW"),
        ] {
            starts(&binlog, setting, value);
        }
        // The binary log holds all links and their payload.
        assert!(binlog.binlog_bytes > LIST * 40, "{}", binlog.binlog_bytes);
        let watched = loaded(name, Some("performance-schema"), &[]);
        starts(&watched, "performance_schema", "ON");
        starts(&watched, "log_bin", "OFF");
        let both = loaded(name, Some("both"), &[]);
        for [at_commit, _] in of_both {
            starts(&both, at_commit, "2");
        }
        let size = |[_, cache]: [&str; 2]| both.configuration[cache].split(' ').next();
        let [one, other] = of_both.map(size);
        assert_eq!(one, other);
    }
}

#[cfg(feature = "mariadb")]
#[test]
fn rows_of_a_bulk_load_are_there_after_their_client() {
    let dir = tempfile::tempdir().unwrap();
    let config = OpenConfig {
        settings: [("bulk_load".to_string(), "1".to_string())].into(),
        ..config(dir.path(), Durability::Buffered)
    };
    let mut entries = engines().iter();
    let entry = entries.find(|entry| entry.name == "mariadb-rocksdb");
    let engine = entry.unwrap().open(&config).unwrap();
    let store = engine.link_store().unwrap();
    // First, so that nothing but the client's end makes the rows visible.
    store.build_index().unwrap();
    load_links(&*engine);
    let list = ListQuery {
        id1: 2,
        link_type: LINK_TYPE,
        time_min: 0,
        time_max: i64::MAX as u64,
        offset: 0,
        limit: 2 * LIST as usize,
    };
    let found = store.connect().unwrap().list_links(&list).unwrap();
    assert_eq!(found.rows, LIST);
    let told = engine.facts().configuration["clients"].clone();
    assert!(told.contains("rocksdb_bulk_load = 1"), "{told}");
    drop(store);
    engine.close().unwrap();
}

#[cfg(feature = "mariadb")]
#[test]
fn settings_of_a_variant_are_for_it_alone() {
    let refused = |variant: Option<&str>, key: &str, value: &str| {
        let mut config = config(Path::new("/"), Durability::Buffered);
        config.variant = variant.map(str::to_string);
        config.settings.insert(key.to_string(), value.to_string());
        let entry = engines()
            .iter()
            .find(|entry| entry.name == "mariadb-innodb");
        entry.unwrap().check(&config).unwrap_err().to_string()
    };
    let error = refused(None, "key_block_kib", "8");
    assert!(error.contains("no setting `key_block_kib`"), "{error}");
    let error = refused(Some("compressed"), "key_block_kib", "6");
    assert!(error.contains("must be 1, 2, 4, 8 or 16"), "{error}");
    let error = refused(Some("page-compressed"), "page_compression_level", "10");
    assert!(error.contains("must lie between 1 and 9"), "{error}");
}

#[test]
fn keys_and_values_are_refused_before_anything_is_made() {
    for entry in servers() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path(), Durability::Buffered);
        config.schema = Schema::Tables(rumbench_engines::conformance::key_value_schema());
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
