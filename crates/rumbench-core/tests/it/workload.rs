//! Whole LinkBench trials on engines in memory: the load, the phases, the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rumbench_core::engine::{Counter, DurabilityFacts, Engine, EngineError, EngineFacts, Result};
use rumbench_core::kv::MapId;
use rumbench_core::linkbench::{
    Config, Count, Hooks, Link, LinkBench, LinkConnection, LinkKey, LinkRow, LinkStore, ListQuery,
    ListResult, Node, NodeRow, TableTotals, WriteOutcome, conformance,
};
use rumbench_core::model::ModelEngine;
use rumbench_core::tables::{TableSchema, TableStore};
use rumbench_core::trial::{Phase, PhaseEnd, Workload};

use crate::requests::now_ms;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const MAPS: [MapId; 4] = [MapId(0), MapId(1), MapId(2), MapId(3)];

fn linkbench(pairs: &[(&str, &str)]) -> LinkBench {
    let small = [
        ("nodes", "300"),
        ("nlinks_max", "500"),
        ("operations", "6000"),
    ];
    let config = Config::from_pairs(small.iter().chain(pairs).copied()).unwrap();
    LinkBench::new(
        config,
        Hooks {
            now_ms,
            backoff: |_| {},
        },
    )
}

/// Totals of a phase, performed by clients that take turns.
#[derive(Debug, Default, Clone, PartialEq)]
struct Performed {
    operations: BTreeSet<&'static str>,
    count: u64,
    rows: u64,
    retries: u64,
}

fn perform(mut phase: Phase) -> Result<Performed> {
    let mut performed = Performed::default();
    let limit = match phase.end {
        PhaseEnd::Operations(operations) => operations,
        _ => u64::MAX,
    };
    loop {
        let mut idle = true;
        for client in &mut phase.clients {
            let Some(operation) = client.prepare().filter(|_| performed.count < limit) else {
                continue;
            };
            let done = client.execute()?;
            idle = false;
            performed.operations.insert(phase.operations[operation]);
            performed.count += 1;
            performed.rows += done.rows;
            performed.retries += done.retries;
        }
        if idle {
            return Ok(performed);
        }
    }
}

fn run(bench: &mut LinkBench, engine: &dyn Engine) -> Result<Vec<(String, Performed)>> {
    let mut phases = Vec::new();
    while let Some(phase) = bench.next_phase(engine)? {
        let name = phase.name.clone();
        phases.push((name, perform(phase)?));
    }
    Ok(phases)
}

#[test]
fn a_trial_loads_warms_up_requests_in_steps_and_verifies() {
    let engine = ModelEngine::new(0);
    let mut bench = linkbench(&[
        ("steps", "2"),
        ("warmup_operations", "500"),
        ("clients", "3"),
    ]);
    let (rows, bytes) = bench.load_estimate();
    let phases = run(&mut bench, &engine).unwrap();
    let names: Vec<&String> = phases.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["load", "warmup", "request", "request#2"]);
    assert_eq!(
        bench.phase_names(),
        ["load", "warmup", "request", "request#2"]
    );
    assert_eq!(phases[0].1.rows, rows);
    assert_eq!(phases[0].1.operations.len(), 3);
    let stored: usize = MAPS
        .iter()
        .flat_map(|map| engine.rows(*map))
        .map(|(k, v)| k.len() + v.len())
        .sum();
    assert!(
        (0.5..2.0).contains(&(bytes as f64 / stored as f64)),
        "{bytes} for {stored}"
    );
    assert_eq!(
        (phases[2].1.count, phases[2].1.operations.len()),
        (6000, 10)
    );
    let verdict = bench.verify(&engine).unwrap();
    assert!(
        verdict.contains("every count equals its visible links"),
        "{verdict}"
    );
}

#[test]
fn every_mode_and_rule_verifies_even_with_conflicts() {
    let cases: [&[(&str, &str)]; 6] = [
        &[("mode", "fixed")],
        &[("rules", "classic")],
        &[("rules", "classic"), ("mode", "fixed"), ("numbers", "2011")],
        &[("mode", "stationary"), ("clients", "3"), ("steps", "3")],
        &[("id2gen_config", "1"), ("clients", "2")],
        &[("randomid2max", "1000")],
    ];
    for pairs in cases {
        let engine = ModelEngine::new(7);
        let mut bench = linkbench(pairs);
        let phases = run(&mut bench, &engine).unwrap();
        assert!(
            phases[1].1.retries > 50,
            "{pairs:?}: {} retries",
            phases[1].1.retries
        );
        bench.verify(&engine).unwrap();
    }
}

/// Performs a phase like [`perform`], but with a thread and the same number of operations for each
/// client.
fn perform_in_threads(phase: Phase, operations: u64) -> Result<()> {
    std::thread::scope(|scope| {
        let spawn = |mut client: Box<dyn rumbench_core::trial::PhaseClient>| {
            scope.spawn(move || -> Result<()> {
                for _ in 0..operations {
                    if client.prepare().is_none() {
                        return Ok(());
                    }
                    client.execute()?;
                }
                Ok(())
            })
        };
        let threads: Vec<_> = phase.clients.into_iter().map(spawn).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no panic"))
    })
}

#[test]
fn stationary_trials_add_no_link_row() {
    let engine = ModelEngine::new(5);
    let mut bench = linkbench(&[("mode", "stationary"), ("clients", "4"), ("steps", "2")]);
    while let Some(phase) = bench.next_phase(&engine).unwrap() {
        let operations = if phase.name == "load" {
            u64::MAX
        } else {
            5_000
        };
        perform_in_threads(phase, operations).unwrap();
    }
    assert_eq!(
        engine.rows(MapId(1)).len() as u64,
        bench.graph().totals().links
    );
    assert!(
        bench
            .verify(&engine)
            .unwrap()
            .contains("loaded links hidden")
    );
}

fn loaded_rows(pairs: &[(&str, &str)]) -> [Rows; 4] {
    let engine = ModelEngine::new(0);
    let mut bench = linkbench(pairs);
    perform(bench.next_phase(&engine).unwrap().unwrap()).unwrap();
    MAPS.map(|map| engine.rows(map))
}

#[test]
fn loaded_rows_do_not_depend_on_loaders_batches_or_pieces() {
    let alone = loaded_rows(&[]);
    let shared = [
        ("loaders", "5"),
        ("loader_split_links", "20"),
        ("loader_chunk_size", "7"),
        ("bulk_insert_count", "33"),
        ("bulk_insert_kb", "2"),
    ];
    assert!(alone == loaded_rows(&shared));
    assert!(
        alone != loaded_rows(&[("seed", "2")]),
        "the seed decides the rows"
    );
}

#[test]
fn a_wrong_loaded_row_is_found_before_the_requests() {
    for map in [MapId(0), MapId(1), MapId(3)] {
        let engine = ModelEngine::new(0);
        let mut bench = linkbench(&[]);
        perform(bench.next_phase(&engine).unwrap().unwrap()).unwrap();
        // The last byte of every value: payload, or version of a count.
        engine.tamper(map, |rows| {
            rows.values_mut()
                .filter_map(|value| value.last_mut())
                .for_each(|byte| *byte ^= 1);
        });
        let error = bench.next_phase(&engine).err().expect("a wrong row");
        assert!(
            matches!(&error, EngineError::Wrong(text) if text.contains("after the load")),
            "{error}"
        );
    }
}

/// Runs a trial, damages a map by `tamper`, and returns the error of the verification.
fn verdict_after(map: MapId, tamper: impl FnOnce(&mut Rows)) -> String {
    let engine = ModelEngine::new(0);
    let mut bench = linkbench(&[]);
    run(&mut bench, &engine).unwrap();
    engine.tamper(map, tamper);
    bench.verify(&engine).unwrap_err().to_string()
}

#[test]
fn verification_finds_what_is_lost_or_changed_in_any_map() {
    let first = |rows: &mut Rows| {
        rows.pop_first();
    };
    assert!(verdict_after(MapId(0), first).contains("nodes"));
    assert!(verdict_after(MapId(1), first).contains("index entries"));
    assert!(verdict_after(MapId(2), first).contains("index entries"));
    assert!(verdict_after(MapId(3), first).contains("visible links"));
    let flip = |rows: &mut Rows| {
        let value = rows.values_mut().next().unwrap();
        *value.last_mut().unwrap() ^= 1;
    };
    assert!(verdict_after(MapId(2), flip).contains("index entries"));
    let orphan = |rows: &mut Rows| {
        rows.insert(vec![0xee; 33], vec![0; 4]);
    };
    assert!(verdict_after(MapId(2), orphan).contains("index entries"));
}

#[test]
fn a_link_lost_with_its_entry_and_count_is_noticed() {
    let engine = ModelEngine::new(0);
    let mut bench = linkbench(&[]);
    run(&mut bench, &engine).unwrap();
    let connection = &mut *engine.link_store().unwrap().connect().unwrap();
    let lost = (1..300).any(|id1| {
        let key = LinkKey {
            id1,
            link_type: 123_456_789,
            id2: id1,
        };
        connection.delete_link(key, 1, true).unwrap() == WriteOutcome::Changed
    });
    assert!(lost);
    let error = bench.verify(&engine).unwrap_err();
    assert!(
        error.to_string().contains("the answers to all writes"),
        "{error}"
    );
}

#[test]
fn the_next_phase_is_refused_while_clients_of_the_previous_phase_exist() {
    let engine = ModelEngine::new(0);
    let mut bench = linkbench(&[("steps", "2")]);
    perform(bench.next_phase(&engine).unwrap().unwrap()).unwrap();
    let held = bench.next_phase(&engine).unwrap();
    assert!(bench.next_phase(&engine).is_err());
    drop(held);
}

#[test]
fn the_model_conforms_with_and_without_conflicts() {
    for conflict_every in [0, 3] {
        conformance::link_store(|| ModelEngine::new(conflict_every).link_store().unwrap());
    }
}

/// An engine that stores nothing and builds the link index separately.
#[derive(Default, Clone)]
struct Nothing {
    indexes: Arc<AtomicU64>,
    conflicts: bool,
}

impl Engine for Nothing {
    fn facts(&self) -> EngineFacts {
        let nothing = || "nothing".to_owned();
        EngineFacts {
            version: nothing(),
            configuration: Default::default(),
            durability: DurabilityFacts {
                process_kill: nothing(),
                power_cut: nothing(),
            },
        }
    }
    fn link_store(&self) -> Result<Arc<dyn LinkStore>> {
        Ok(Arc::new(self.clone()))
    }
    fn table_store(&self, _: &'static TableSchema) -> Result<Arc<dyn TableStore>> {
        Err(EngineError::Unsupported("only LinkBench".to_owned()))
    }

    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }
    fn settle(&self, _: &mut dyn FnMut(&str)) -> Result<()> {
        Ok(())
    }
    fn is_data_file(&self, _: &str) -> bool {
        false
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl LinkStore for Nothing {
    fn connect(&self) -> Result<Box<dyn LinkConnection>> {
        Ok(Box::new(self.clone()))
    }
    fn keeps_rows(&self) -> bool {
        false
    }
    fn separate_index(&self) -> bool {
        true
    }
    fn build_index(&self) -> Result<()> {
        self.indexes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl LinkConnection for Nothing {
    fn load_nodes(&mut self, _: &[Node<'_>]) -> Result<()> {
        Ok(())
    }
    fn load_links(&mut self, _: &[Link<'_>]) -> Result<()> {
        Ok(())
    }
    fn load_counts(&mut self, _: &[Count]) -> Result<()> {
        Ok(())
    }
    fn add_link(&mut self, _: &Link<'_>) -> Result<WriteOutcome> {
        if self.conflicts {
            Err(EngineError::Retry("always".to_owned()))
        } else {
            Ok(WriteOutcome::Nothing)
        }
    }
    fn update_link(&mut self, _: &Link<'_>) -> Result<WriteOutcome> {
        Ok(WriteOutcome::Nothing)
    }
    fn delete_link(&mut self, _: LinkKey, _: u64, _: bool) -> Result<WriteOutcome> {
        Ok(WriteOutcome::Nothing)
    }
    fn count_links(&mut self, _: u64, _: u64) -> Result<u64> {
        Ok(0)
    }
    fn multiget_links(&mut self, _: u64, _: u64, _: &[u64]) -> Result<u64> {
        Ok(0)
    }
    fn list_links(&mut self, _: &ListQuery) -> Result<ListResult> {
        Ok(ListResult::default())
    }
    fn add_node(&mut self, _: &Node<'_>) -> Result<u64> {
        Ok(1)
    }
    fn update_node(&mut self, _: &Node<'_>) -> Result<bool> {
        Ok(true)
    }
    fn delete_node(&mut self, _: u64, _: u32) -> Result<bool> {
        Ok(true)
    }
    fn get_node(&mut self, _: u64, _: u32) -> Result<bool> {
        Ok(true)
    }
    fn read_link(&mut self, _: LinkKey) -> Result<Option<LinkRow>> {
        Ok(None)
    }
    fn read_node(&mut self, _: u64) -> Result<Option<NodeRow>> {
        Ok(None)
    }
    fn read_count(&mut self, _: u64, _: u64) -> Result<Option<Count>> {
        Ok(None)
    }
    fn check(&mut self) -> Result<TableTotals> {
        Ok(TableTotals::default())
    }
}

#[test]
fn answers_of_an_engine_that_keeps_nothing_are_not_judged() {
    for mode in ["faithful", "stationary"] {
        let engine = Nothing::default();
        let mut bench = linkbench(&[("mode", mode)]);
        let phases = run(&mut bench, &engine).unwrap();
        assert_eq!(phases[1].0, "index");
        assert_eq!(phases[1].1.rows, bench.graph().totals().links);
        assert_eq!(engine.indexes.load(Ordering::Relaxed), 1);
        assert!(bench.verify(&engine).unwrap().starts_with("not checked"));
    }
}

#[test]
fn a_transaction_that_conflicts_forever_is_given_up_after_a_thousand_attempts() {
    static BACKOFFS: AtomicU64 = AtomicU64::new(0);
    let pairs = [
        ("nodes", "300"),
        ("nlinks_max", "500"),
        ("operations", "6000"),
    ];
    let hooks = Hooks {
        now_ms,
        backoff: |attempt| {
            BACKOFFS.fetch_add(1, Ordering::Relaxed);
            assert!((2..=1000).contains(&attempt));
        },
    };
    let mut bench = LinkBench::new(Config::from_pairs(pairs).unwrap(), hooks);
    let engine = Nothing {
        conflicts: true,
        ..Nothing::default()
    };
    let error = run(&mut bench, &engine).unwrap_err();
    assert!(matches!(error, EngineError::Retry(_)), "{error}");
    assert_eq!(BACKOFFS.load(Ordering::Relaxed), 999);
}
