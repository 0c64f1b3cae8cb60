//! Large values: requests of its clients, and whole trials on an in-memory engine.

use rumbench_core::engine::EngineError;
use rumbench_core::kv::MapId;
use rumbench_core::large_values::Queries;
use rumbench_core::large_values::rows::Rows;
use rumbench_core::large_values::{Config, LargeValues};
use rumbench_core::model::ModelEngine;
use rumbench_core::random::mix;
use rumbench_core::trial::{PhaseEnd, Step, Workload};

use crate::turns::{self, assert_golden, describe, perform};

/// Map of the rows; the catalog comes first.
const ROWS: MapId = MapId(1);

fn config(pairs: &[(&str, &str)]) -> Config {
    Config::from_pairs(pairs.iter().copied()).unwrap()
}

/// Creates a small trial; `more` overrides its settings.
fn trial(more: &[(&str, &str)]) -> LargeValues {
    let small = [("rows", "203"), ("insert_rate", "50"), ("seconds", "2")];
    let pairs: Vec<(&str, &str)> = small.iter().chain(more).copied().collect();
    LargeValues::new(config(&pairs), |_| {}).unwrap()
}

/// A change of the golden file requires a new version of the workload.
#[test]
fn first_thousand_rows_and_queries_are_golden() {
    let mut found = String::new();
    for (min, max, percent) in [("100", "1000", "45"), ("10000", "20000", "20")] {
        let pairs = [
            ("value_min", min),
            ("value_max", max),
            ("random_percent", percent),
        ];
        let rows = Rows::new(&config(&pairs));
        let name = format!("rows of {min} to {max} bytes, {percent} % random");
        describe(&mut found, &name, |place| {
            let mut value = Vec::new();
            rows.append_value(place + 1, &mut value);
            let hash = value
                .iter()
                .fold(0, |hash, byte| mix(hash, u64::from(*byte)));
            let tail = &value[value.len() - 4..];
            format!("{} bytes ending in {tail:02x?}, {hash:016x}", value.len())
        });
    }
    let mut queries = Queries::new(1, 3);
    describe(&mut found, "queries of client 3", |place| {
        queries.id(1000 + place).to_string()
    });
    assert_golden("large_values.txt", &found);
}

#[test]
fn a_trial_loads_settles_and_queries_beside_as_many_inserts_as_the_rate_says() {
    let engine = ModelEngine::new(0);
    let mut workload = trial(&[]);
    let done = turns::run(&mut workload, &engine, 0).unwrap();
    let stored = workload.stored_bytes().unwrap();
    let names: Vec<&str> = done.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["load", "settle", "query"]);
    assert_eq!(names.join(","), workload.phase_names().join(","));
    let (load, query) = (done[0].1, done[2].1);
    assert_eq!((load.operations, load.rows), (21, 203), "ten rows a time");
    assert_eq!((query.background, query.rows), (100, query.operations));
    assert!(query.operations > 0);
    assert_eq!(load.written_bytes + query.written_bytes, stored);
    let kept: usize = engine
        .rows(ROWS)
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    assert_eq!(stored, kept as u64);
    let sentence = workload.verify(&engine).unwrap();
    assert!(sentence.starts_with("303 rows in order"), "{sentence}");
}

#[test]
fn the_number_of_clients_changes_no_row() {
    let rows_of = |clients| {
        let engine = ModelEngine::new(0);
        let mut workload = trial(&[("clients", clients)]);
        turns::run(&mut workload, &engine, 0).unwrap();
        workload.verify(&engine).unwrap();
        engine.rows(ROWS)
    };
    assert_eq!(rows_of("1"), rows_of("3"));
}

#[test]
fn queries_end_by_count_and_without_inserts_by_time_too() {
    let pairs = [("rows", "203"), ("operations", "30")];
    let mut counted = LargeValues::new(config(&pairs), |_| {}).unwrap();
    let engine = ModelEngine::new(0);
    let done = turns::run(&mut counted, &engine, 0).unwrap();
    assert_eq!(done[2].1.operations, 30);
    assert!(done[2].1.background > 0);
    counted.verify(&engine).unwrap();
    let engine = ModelEngine::new(0);
    let mut alone = trial(&[("insert_rate", "0")]);
    let done = turns::run(&mut alone, &engine, 40).unwrap();
    assert_eq!((done[2].1.operations, done[2].1.background), (40, 0));
    alone.verify(&engine).unwrap();
}

/// A phase may end between prepare and execute: those rows were never inserted, and no check
/// expects them.
#[test]
fn a_batch_that_was_prepared_and_never_executed_leaves_no_gap() {
    let engine = ModelEngine::new(0);
    let pairs = [("rows", "203"), ("operations", "30")];
    let mut workload = LargeValues::new(config(&pairs), |_| {}).unwrap();
    while let Some(step) = workload.next_step(&engine).unwrap() {
        let Step::Phase(mut phase) = step else {
            continue;
        };
        if phase.end == PhaseEnd::Work {
            perform(phase, 0).unwrap();
            continue;
        }
        let mut background = phase.background.take().unwrap();
        background.clients[0].prepare().unwrap();
        background.clients[0].execute().unwrap();
        background.clients[0].prepare().unwrap();
        drop(background);
        perform(phase, 0).unwrap();
    }
    let sentence = workload.verify(&engine).unwrap();
    assert!(sentence.starts_with("213 rows in order"), "{sentence}");
}

#[test]
fn a_table_with_rows_of_another_run_is_refused() {
    let engine = ModelEngine::new(0);
    turns::run(&mut trial(&[]), &engine, 0).unwrap();
    let error = trial(&[]).next_step(&engine).err().unwrap();
    assert!(matches!(error, EngineError::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("rows of another run"), "{error}");
}

/// Damages the data just before the step with this number runs, and returns the error that ends the
/// trial.
fn wrong_after(steps: usize, damage: impl Fn(&ModelEngine)) -> String {
    let engine = ModelEngine::new(0);
    let mut workload = trial(&[]);
    let mut outcome = Ok(());
    for step in 0..4 {
        let next = workload.next_step(&engine);
        if step == steps {
            damage(&engine);
        }
        outcome = match next {
            Ok(Some(Step::Phase(phase))) => perform(phase, 0).map(drop),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            break;
        }
    }
    let outcome = outcome.and_then(|()| workload.verify(&engine).map(drop));
    let error = outcome.expect_err("damage is found");
    assert!(matches!(error, EngineError::Wrong(_)), "{error}");
    error.to_string()
}

fn flip(engine: &ModelEngine) {
    engine.tamper(ROWS, |rows| {
        for value in rows.values_mut() {
            *value.last_mut().unwrap() ^= 1;
        }
    });
}

#[test]
fn damage_is_found_by_queries_and_at_the_end() {
    let changed = wrong_after(2, flip);
    assert!(changed.contains("never written for it"), "{changed}");
    let missing = wrong_after(2, |engine| engine.tamper(ROWS, |rows| rows.clear()));
    assert!(missing.contains("is missing"), "{missing}");
    let at_the_end = wrong_after(3, flip);
    assert!(
        at_the_end.contains("row 1 of large must be"),
        "{at_the_end}"
    );
    let gone = wrong_after(3, |engine| {
        engine.tamper(ROWS, |rows| drop(rows.pop_last()))
    });
    assert!(gone.contains("302 rows; 303 were inserted"), "{gone}");
    let moved = wrong_after(3, |engine| {
        engine.tamper(ROWS, |rows| drop(rows.pop_first()));
    });
    assert!(moved.contains("row 1 of large must be is row 2"), "{moved}");
}

#[test]
fn damage_is_found_after_the_load() {
    let engine = ModelEngine::new(0);
    let mut workload = trial(&[]);
    let Some(Step::Phase(load)) = workload.next_step(&engine).unwrap() else {
        panic!("no load");
    };
    perform(load, 0).unwrap();
    engine.tamper(ROWS, |rows| drop(rows.pop_last()));
    let error = workload.next_step(&engine).err().unwrap().to_string();
    assert!(error.contains("202 rows; 203 were inserted"), "{error}");
}
