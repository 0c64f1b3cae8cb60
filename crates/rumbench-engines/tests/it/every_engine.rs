//! Tests of every engine of this build, opened by name as the laboratory does.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rumbench_core::custom;
use rumbench_core::engine::{Durability, Engine, EngineError, OpenConfig, Result, Schema};
use rumbench_core::insert_benchmark;
use rumbench_core::kv_sequence;
use rumbench_core::large_values;
use rumbench_core::linkbench::conformance;
use rumbench_core::linkbench::{Count, Link, LinkKey, LinkStore, Node};
use rumbench_core::oltp_range;
use rumbench_core::trial::{Phase, PhaseClient, PhaseEnd, Step, Workload};
use rumbench_engines::{EngineEntry, engines};

use crate::setup::config;

const LINK_TYPE: u64 = 123_456_789;
const NODE_TYPE: u32 = 2048;

/// Returns the engines of this build that store data.
fn real_engines() -> impl Iterator<Item = &'static EngineEntry> {
    engines()
        .iter()
        .filter(|entry| entry.is_available() && entry.name != "null")
}

/// Returns the engines that store keys and values: servers refuse kv-sequence.
fn engines_of_keys_and_values() -> impl Iterator<Item = &'static EngineEntry> {
    real_engines().filter(|entry| !entry.is_server)
}

fn open(entry: &EngineEntry, config: &OpenConfig) -> Result<Box<dyn Engine>> {
    entry.open(config)
}

fn with_class(entry: &EngineEntry, dir: &Path, class: Durability) -> Box<dyn Engine> {
    open(entry, &config(dir, class)).unwrap_or_else(|error| panic!("{}: {error}", entry.name))
}

/// Loads a node, a link and a count for each of `sources`, then adds a second link by request.
fn fill(store: &Arc<dyn LinkStore>, sources: u64) {
    let mut connection = store.connect().unwrap();
    let link = |id1, id2| Link {
        key: LinkKey {
            id1,
            link_type: LINK_TYPE,
            id2,
        },
        visibility: 1,
        time: 1_000 + id2,
        version: 0,
        data: b"link",
    };
    for id in 1..=sources {
        let node = Node {
            id,
            node_type: NODE_TYPE,
            version: 1,
            time: 7,
            data: b"node",
        };
        let count = Count {
            id,
            link_type: LINK_TYPE,
            count: 1,
            time: 7,
            version: 0,
        };
        connection.load_nodes(&[node]).unwrap();
        connection.load_links(&[link(id, id)]).unwrap();
        connection.load_counts(&[count]).unwrap();
    }
    if store.separate_index() {
        store.build_index().unwrap();
    }
    for id in 1..=sources {
        connection.add_link(&link(id, id + 1)).unwrap();
    }
}

fn check_filled(store: &Arc<dyn LinkStore>, sources: u64) {
    let mut connection = store.connect().unwrap();
    let totals = connection.check().unwrap();
    let found = (
        totals.nodes,
        totals.links,
        totals.visible_links,
        totals.counts,
    );
    assert_eq!(found, (sources, 2 * sources, 2 * sources, sources));
    assert_eq!(connection.count_links(1, LINK_TYPE).unwrap(), 2);
    assert!(connection.get_node(sources, NODE_TYPE).unwrap());
}

#[test]
fn every_engine_keeps_the_rules_of_linkbench() {
    for entry in real_engines() {
        let root = tempfile::tempdir().unwrap();
        let databases = Cell::new(0);
        conformance::link_store(|| {
            let dir = root.path().join(databases.get().to_string());
            databases.set(databases.get() + 1);
            std::fs::create_dir(&dir).unwrap();
            let engine = with_class(entry, &dir, Durability::Buffered);
            let store = engine.link_store().unwrap();
            if store.separate_index() {
                store.build_index().unwrap();
            }
            store
        });
        assert!(databases.get() > 1, "{}", entry.name);
    }
}

#[test]
fn every_engine_keeps_the_rules_of_the_table_of_kv_sequence() {
    for entry in engines_of_keys_and_values() {
        let dir = tempfile::tempdir().unwrap();
        let engine = with_rows(entry, dir.path());
        let schema = rumbench_engines::conformance::key_value_schema();
        rumbench_engines::conformance::key_value_table(&*engine.table_store(schema).unwrap());
        engine.close().unwrap();
    }
}

#[test]
fn every_engine_keeps_the_rules_of_tables() {
    let schema = rumbench_engines::conformance::table_schema();
    for entry in real_engines() {
        let dir = tempfile::tempdir().unwrap();
        let config = OpenConfig {
            schema: Schema::Tables(schema),
            ..config(dir.path(), Durability::Buffered)
        };
        let engine = open(entry, &config).unwrap();
        rumbench_engines::conformance::table_store(&*engine.table_store(schema).unwrap());
        engine.close().unwrap();
    }
}

/// Runs every step of kv-sequence, with several clients in turns. The workload checks every read,
/// and the table at the end.
#[test]
fn every_engine_answers_every_step_of_kv_sequence() {
    let steps: Vec<&str> = kv_sequence::STEPS.iter().map(|step| step.name).collect();
    let after_load = steps
        .iter()
        .filter(|name| !["fillseq", "load"].contains(*name));
    let list: Vec<&str> = ["load"].iter().chain(after_load).copied().collect();
    let pairs = [
        ("keys", "700"),
        ("operations", "60"),
        ("load_rows", "50"),
        ("steps", &list.join(",")),
    ];
    for entry in engines_of_keys_and_values() {
        let config = kv_sequence::Config::from_pairs(pairs).unwrap();
        let mut workload = kv_sequence::KvSequence::new(config, |_| {});
        let dir = tempfile::tempdir().unwrap();
        let engine = with_rows(entry, dir.path());
        while let Some(step) = workload.next_step(&*engine).unwrap() {
            match step {
                Step::Settle => engine.settle(&mut |_| {}).unwrap(),
                Step::Reopen => panic!("nobody asked for it"),
                Step::Phase(phase) => perform(entry.name, phase),
            }
        }
        workload.verify(&*engine).unwrap();
        engine.close().unwrap();
        let engine = with_rows(entry, dir.path());
        workload.verify(&*engine).unwrap();
        engine.close().unwrap();
    }
}

/// Runs the clients in turns until none has more to do. If the background clients lead the phase,
/// it ends when they have no more to do.
pub fn perform(engine: &str, mut phase: Phase) {
    let most = match phase.end {
        PhaseEnd::Operations(operations) => operations,
        _ => u64::MAX,
    };
    let name = phase.name;
    let call = |client: &mut Box<dyn PhaseClient>| {
        let active = client.prepare().is_some();
        if active {
            let done = client.execute();
            done.unwrap_or_else(|error| panic!("{engine}, {name}: {error}"));
        }
        active
    };
    for _ in 0..most {
        let mut active = false;
        for client in &mut phase.clients {
            active |= call(client);
        }
        if let Some(background) = &mut phase.background {
            let mut beside = false;
            for client in &mut background.clients {
                beside |= call(client);
            }
            active = beside || (active && background.leads.is_none());
        }
        if !active {
            return;
        }
    }
}

/// Runs all steps of a workload on tables on every engine, with the clients in turns. Checks each
/// database afterwards, and again after reopening it. `at_rest` inspects the settled engine and its
/// directory.
fn answer_every_step(
    make: impl Fn() -> Box<dyn Workload>,
    at_rest: impl Fn(&str, &dyn Engine, &Path, &dyn Workload),
) {
    for entry in real_engines() {
        let mut workload = make();
        let dir = tempfile::tempdir().unwrap();
        let schema = workload.schema();
        let with_tables = || {
            let config = OpenConfig {
                schema,
                ..config(dir.path(), Durability::None)
            };
            open(entry, &config).unwrap_or_else(|error| panic!("{}: {error}", entry.name))
        };
        let engine = with_tables();
        while let Some(step) = workload.next_step(&*engine).unwrap() {
            match step {
                Step::Settle => engine.settle(&mut |_| {}).unwrap(),
                Step::Reopen => panic!("only kv-sequence opens a database again"),
                Step::Phase(phase) => perform(entry.name, phase),
            }
        }
        workload.verify(&*engine).unwrap();
        engine.settle(&mut |_| {}).unwrap();
        at_rest(entry.name, &*engine, dir.path(), &*workload);
        engine.close().unwrap();
        let engine = with_tables();
        workload.verify(&*engine).unwrap();
        engine.close().unwrap();
    }
}

/// Runs every step of the Insert Benchmark with one client. The workload checks every answer, the
/// tables and the indexes.
#[test]
fn every_engine_answers_every_step_of_the_insert_benchmark() {
    let pairs = [("rows", "2000"), ("seconds", "1"), ("resync", "10")];
    let make = || -> Box<dyn Workload> {
        let settings = insert_benchmark::Config::from_pairs(pairs).unwrap();
        Box::new(insert_benchmark::InsertBenchmark::new(settings, |_| {}).unwrap())
    };
    answer_every_step(make, |_, engine, _, workload| {
        let sentence = workload.verify(engine).unwrap();
        assert!(sentence.starts_with("2100 rows in 1 tables"), "{sentence}");
    });
}

/// Random values do not compress. An engine that counts fewer bytes than its rows have misses a
/// kind of file.
#[test]
fn every_engine_answers_large_values_and_counts_the_files_that_hold_them() {
    let pairs = [
        ("rows", "100"),
        ("value_min", "10000"),
        ("value_max", "100000"),
        ("random_percent", "100"),
        ("insert_rate", "20"),
        ("operations", "60"),
    ];
    let make = || -> Box<dyn Workload> {
        let settings = large_values::Config::from_pairs(pairs).unwrap();
        Box::new(large_values::LargeValues::new(settings, |_| {}).unwrap())
    };
    answer_every_step(make, |name, engine, dir, workload| {
        let data = data_bytes(engine, dir);
        let rows = workload.stored_bytes().unwrap();
        assert!(data >= rows, "{name}: {data} bytes of data, {rows} of rows");
    });
}

/// Runs every test of OLTP ranges, with two clients in turns. The workload checks every row, the
/// tables and the indexes.
#[test]
fn every_engine_answers_every_test_of_oltp_range() {
    let pairs = [("rows", "300"), ("operations", "30"), ("clients", "2")];
    let make = || -> Box<dyn Workload> {
        let settings = oltp_range::Config::from_pairs(pairs).unwrap();
        Box::new(oltp_range::OltpRange::new(settings, |_| {}).unwrap())
    };
    answer_every_step(make, |_, engine, _, workload| {
        let sentence = workload.verify(engine).unwrap();
        assert!(sentence.contains("1 indexes a table"), "{sentence}");
    });
}

/// Returns the total length of the data files in all folders.
fn data_bytes(engine: &dyn Engine, dir: &Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            bytes += data_bytes(engine, &entry.path());
        } else if engine.is_data_file(&entry.file_name().to_string_lossy()) {
            bytes += metadata.len();
        }
    }
    bytes
}

/// Runs every operation of custom workloads, with the clients in turns. The workload checks every
/// answer, the tables and the indexes.
#[test]
fn every_engine_answers_every_operation_of_own_workloads() {
    let text = include_str!("../../../rumbench-core/tests/every_operation.toml");
    let pairs = [("scale", "0.02"), ("requests", "1000")];
    let make = || -> Box<dyn Workload> {
        let settings = custom::Config::read("every_operation.toml", text).unwrap();
        let settings = settings.with_settings(pairs).unwrap();
        Box::new(custom::Custom::new(settings, |_| {}).unwrap())
    };
    answer_every_step(make, |_, engine, _, workload| {
        let sentence = workload.verify(engine).unwrap();
        assert!(sentence.contains("rows in 2 tables"), "{sentence}");
    });
}

fn with_rows(entry: &EngineEntry, dir: &Path) -> Box<dyn Engine> {
    let config = OpenConfig {
        schema: Schema::Tables(rumbench_engines::conformance::key_value_schema()),
        ..config(dir, Durability::Buffered)
    };
    open(entry, &config).unwrap_or_else(|error| panic!("{}: {error}", entry.name))
}

#[test]
fn rows_of_every_durability_class_survive_close_and_reopen() {
    for entry in real_engines() {
        for class in [Durability::Buffered, Durability::Sync, Durability::None] {
            let dir = tempfile::tempdir().unwrap();
            let engine = with_class(entry, dir.path(), class);
            fill(&engine.link_store().unwrap(), 20);
            // Without a log, only settled rows are durable.
            engine.settle(&mut |_| {}).unwrap();
            engine.close().unwrap();
            let engine = with_class(entry, dir.path(), class);
            check_filled(&engine.link_store().unwrap(), 20);
            engine.close().unwrap();
        }
    }
}

/// Checks that a load without a log keeps all rows if the database is closed, and reopened in
/// another class.
#[test]
fn rows_of_a_load_without_a_log_survive_close_and_reopen() {
    let pairs = [
        ("keys", "3000"),
        ("operations", "60"),
        ("load_rows", "50"),
        ("steps", "load,get"),
        ("load_log", "no"),
    ];
    for entry in engines_of_keys_and_values() {
        let settings = kv_sequence::Config::from_pairs(pairs).unwrap();
        let mut workload = kv_sequence::KvSequence::new(settings, |_| {});
        let dir = tempfile::tempdir().unwrap();
        let opened = |workload: &kv_sequence::KvSequence| {
            let class = workload.durability().unwrap_or(Durability::Buffered);
            let mut config = config(dir.path(), class);
            config.schema = workload.schema();
            open(entry, &config).unwrap()
        };
        let mut engine = opened(&workload);
        let mut openings = 1;
        while let Some(step) = workload.next_step(&*engine).unwrap() {
            match step {
                Step::Settle => engine.settle(&mut |_| {}).unwrap(),
                Step::Reopen => {
                    engine.close().unwrap();
                    engine = opened(&workload);
                    openings += 1;
                }
                Step::Phase(phase) => perform(entry.name, phase),
            }
        }
        assert_eq!(openings, 2, "{}", entry.name);
        workload.verify(&*engine).unwrap();
        engine.close().unwrap();
    }
}

#[test]
fn every_variant_opens_and_describes_itself() {
    for entry in real_engines() {
        for variant in entry.variants {
            let dir = tempfile::tempdir().unwrap();
            let mut config = config(dir.path(), Durability::Buffered);
            config.variant = Some(variant.name.to_string());
            let engine = open(entry, &config).unwrap();
            let facts = engine.facts();
            assert!(!facts.configuration.is_empty(), "{}", entry.name);
            engine.close().unwrap();
        }
    }
}

#[test]
fn unknown_variants_and_settings_are_refused() {
    for entry in engines().iter().filter(|entry| entry.is_available()) {
        let dir = tempfile::tempdir().unwrap();
        let mut wrong = config(dir.path(), Durability::Buffered);
        wrong.variant = Some("no-such-variant".to_string());
        assert!(
            matches!(open(entry, &wrong), Err(EngineError::Unsupported(_))),
            "{} accepts any variant",
            entry.name
        );
        let mut wrong = config(dir.path(), Durability::Buffered);
        wrong
            .settings
            .insert("no_such_setting".to_string(), "1".to_string());
        assert!(
            matches!(open(entry, &wrong), Err(EngineError::Unsupported(_))),
            "{} accepts any setting",
            entry.name
        );
    }
}

#[test]
fn facts_name_a_version_and_what_each_class_keeps() {
    for entry in real_engines() {
        let facts = |class| {
            let dir = tempfile::tempdir().unwrap();
            let engine = with_class(entry, dir.path(), class);
            let facts = engine.facts();
            engine.close().unwrap();
            facts
        };
        let synced = facts(Durability::Sync);
        assert!(
            synced.version.bytes().any(|byte| byte.is_ascii_digit())
                && !synced.version.contains("unknown"),
            "{}",
            synced.version
        );
        assert_eq!(synced.durability.power_cut, "all acknowledged commits");
        let buffered = facts(Durability::Buffered);
        // PostgreSQL keeps commits that do not wait for the device in the server's memory.
        if entry.name != "postgresql" {
            assert_eq!(buffered.durability.process_kill, "all acknowledged commits");
        }
        // redb has no mode between a synced commit and one that stays in the process.
        let weaker = buffered.durability != synced.durability;
        assert_eq!(weaker, entry.name != "redb", "{}", entry.name);
        // Alluvium's plugin hands each commit to the kernel in both classes.
        let same = facts(Durability::None).durability == buffered.durability;
        assert_eq!(same, entry.name == "mariadb-alluvium", "{}", entry.name);
    }
}

#[test]
fn counters_are_numbers_with_names_of_their_own() {
    for entry in real_engines() {
        let dir = tempfile::tempdir().unwrap();
        let engine = with_class(entry, dir.path(), Durability::Buffered);
        fill(&engine.link_store().unwrap(), 5);
        let counters = engine.counters();
        assert!(!counters.is_empty(), "{}", entry.name);
        let names: BTreeSet<_> = counters.iter().map(|counter| &counter.name).collect();
        assert_eq!(names.len(), counters.len(), "{}", entry.name);
        assert!(counters.iter().all(|counter| counter.value.is_finite()));
        engine.close().unwrap();
    }
}

#[test]
fn data_files_hold_the_rows_and_logs_do_not() {
    for entry in real_engines() {
        let dir = tempfile::tempdir().unwrap();
        let engine = with_class(entry, dir.path(), Durability::Buffered);
        fill(&engine.link_store().unwrap(), 200);
        engine.settle(&mut |_| {}).unwrap();
        let is_data = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            engine.is_data_file(&name)
        };
        let (data, other): (Vec<_>, Vec<_>) = files(dir.path()).into_iter().partition(is_data);
        let bytes: u64 = data
            .iter()
            .map(|path| path.metadata().map_or(0, |file| file.len()))
            .sum();
        assert!(bytes > 1_000, "{}: {data:?} beside {other:?}", entry.name);
        let log = |path: &&PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            [".log", ".jnl", "-wal", "LOCK", "lock"]
                .iter()
                .any(|end| name.ends_with(end))
        };
        assert!(data.iter().find(log).is_none(), "{}: {data:?}", entry.name);
        engine.close().unwrap();
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn closing_under_a_living_store_is_refused() {
    for entry in real_engines() {
        let dir = tempfile::tempdir().unwrap();
        let engine = with_class(entry, dir.path(), Durability::Buffered);
        let store = engine.link_store().unwrap();
        let error = engine.close().unwrap_err().to_string();
        assert!(error.contains("cannot be closed"), "{error}");
        drop(store);
        // The last owner has closed the database, so the directory can be opened again.
        with_class(entry, dir.path(), Durability::Buffered)
            .close()
            .unwrap();
    }
}
