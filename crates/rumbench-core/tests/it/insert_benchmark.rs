//! The Insert Benchmark: requests of its clients, and whole trials on an in-memory engine.

use rumbench_core::engine::{Engine, EngineError, Result};
use rumbench_core::insert_benchmark::rows::{COLUMNS, Rows, schema};
use rumbench_core::insert_benchmark::stream::{Queries, Statements};
use rumbench_core::insert_benchmark::{Config, InsertBenchmark};
use rumbench_core::kv::MapId;
use rumbench_core::model::ModelEngine;
use rumbench_core::tables::{RowBatch, TableId, Value};
use rumbench_core::trial::{PhaseEnd, Step, Workload};

use crate::turns::{self, Totals, assert_golden, describe, perform};

/// The catalog comes first, then the rows of the first table, then its indexes.
const ROWS: MapId = MapId(1);
const MARKET: MapId = MapId(2);

fn config(pairs: &[(&str, &str)]) -> Config {
    Config::from_pairs(pairs.iter().copied()).unwrap()
}

/// A change of the golden file requires a new version of the workload.
#[test]
fn first_thousand_operations_of_each_generator_and_first_rows_are_golden() {
    let mut found = String::new();
    for set in ["2016", "2023-post", "2023"] {
        let config = config(&[("index_set", set)]);
        let rows = Rows::new(&config);
        let tables = schema(&config).unwrap();
        describe(&mut found, &format!("rows, index_set={set}"), |place| {
            let mut batch = RowBatch::new(COLUMNS);
            rows.push(0, place + 1, &mut batch);
            let row = batch.rows().next().unwrap();
            let values = row.values().map(|value| match value {
                Value::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
                other => other.unsigned().unwrap().to_string(),
            });
            values.collect::<Vec<_>>().join(" ")
        });
        let table = tables.table(TableId(0));
        let first = (0..3).filter_map(|index| table.index_columns(index).next());
        let mut queries = Queries::new(&config, first.collect(), 5, 0);
        describe(&mut found, &format!("ranges, index_set={set}"), |_| {
            let (index, start) = queries.range(&rows);
            format!("{} from {start}", table.index_name(index))
        });
    }
    let mut queries = Queries::new(&config(&[]), vec![1], 6, 0);
    describe(&mut found, "points", |_| {
        queries.id((1001, 11_001)).to_string()
    });
    let mut statements = Statements::new(4980, 5);
    describe(&mut found, "statements", |_| {
        format!("{:?}", statements.next())
    });
    assert_golden("insert_benchmark.txt", &found);
}

#[test]
fn rows_have_the_lengths_and_the_random_share_of_the_reference() {
    let rows = Rows::new(&config(&[]));
    let mut batch = RowBatch::new(COLUMNS);
    (1..=5000).for_each(|id| rows.push(0, id, &mut batch));
    let mut lengths = [0; 21];
    for row in batch.rows() {
        let Value::Bytes(text) = row.value(6) else {
            panic!("not a text");
        };
        lengths[text.len()] += 1;
        // 37.5 % of the characters are random, rounded down; a random one may be an `a` too.
        let constant = text.len() - text.len() * 3 / 8;
        assert!(text[..constant].iter().all(|byte| *byte == b'a'));
    }
    assert_eq!(lengths[..10].iter().sum::<u32>(), 0);
    assert!(
        lengths[10..].iter().all(|count| *count > 350),
        "{lengths:?}"
    );
}

#[test]
fn invalid_settings_are_rejected_with_a_reason() {
    let refusal = |pairs: &[(&str, &str)]| {
        let refused = Config::from_pairs(pairs.iter().copied());
        refused.unwrap_err().to_string()
    };
    assert!(refusal(&[("rows", "0")]).contains("from 1 to"));
    assert!(refusal(&[("steps", "l.i1")]).contains("begin with l.i0"));
    assert!(refusal(&[("steps", "l.i0,qr100")]).contains("put l.x before it"));
    assert!(refusal(&[("steps", "l.i0,l.x,q100")]).contains("no step is named `q100`"));
    assert!(refusal(&[("indexes", "0")]).contains("needs an index"));
    assert!(refusal(&[("clients", "2"), ("tables", "3")]).contains("multiple"));
    assert!(refusal(&[("data_min", "30")]).contains("data_min"));
    assert!(refusal(&[("seconds", "1"), ("operations", "1")]).contains("not both"));
}

#[test]
fn write_rows_are_four_fifths_and_a_fifth_of_the_load() {
    let settings = config(&[("rows", "7")]).settings();
    let value = |key: &str| settings.iter().find(|(k, _)| k == key).unwrap().1.clone();
    assert_eq!(
        (value("rows_l_i1"), value("rows_l_i2")),
        ("6".into(), "1".into())
    );
    assert_eq!(value("tables"), "1");
}

/// Creates a small trial; `more` overrides its settings.
fn trial(more: &[(&str, &str)]) -> InsertBenchmark {
    let small = [("rows", "400"), ("seconds", "1"), ("resync", "10")];
    let pairs: Vec<(&str, &str)> = small.iter().chain(more).copied().collect();
    InsertBenchmark::new(config(&pairs), |_| {}).unwrap()
}

/// Turns of a step that ends by time. No step of the Insert Benchmark does: its inserts lead.
const NO_TURNS: u64 = 0;

fn run(workload: &mut InsertBenchmark, engine: &ModelEngine) -> Result<Vec<(String, Totals)>> {
    turns::run(workload, engine, NO_TURNS)
}

#[test]
fn the_ten_steps_run_in_their_order_and_deletes_are_equal_to_inserts() {
    let engine = ModelEngine::new(5);
    let mut workload = trial(&[("clients", "2")]);
    let done = run(&mut workload, &engine).unwrap();
    let names: Vec<&str> = done.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.join(","), workload.phase_names().join(","));
    assert_eq!(
        names.join(","),
        "l.i0,l.x,l.i1,l.i2,settle,qr100,qp100,qr500,qp500,qr1000,qp1000"
    );
    let rows: Vec<u64> = done.iter().map(|(_, of)| of.rows).collect();
    assert_eq!(rows[..4], [800, 1000, 640, 160], "two tables");
    assert!(rows[5] > 0 && rows[6] > 0);
    let background: Vec<u64> = done.iter().map(|(_, of)| of.background).collect();
    assert_eq!(background[5..], [200, 200, 1000, 1000, 2000, 2000]);
    assert!(done[2].1.retries > 0, "conflicts were retried");
    let sentence = workload.verify(&engine).unwrap();
    // A client inserts 320 + 80 + 3200 rows after the 500 that stay.
    assert!(sentence.starts_with("1000 rows in 2 tables"), "{sentence}");
    assert!(sentence.contains("after 7200 deletes"), "{sentence}");
    assert!(sentence.contains("3 indexes"), "{sentence}");
}

#[test]
fn several_clients_share_a_table_and_the_rows_are_the_same() {
    let steps = ("steps", "l.i0,l.x,l.i1,qr100,qp100");
    let rows_of = |pairs: &[(&str, &str)]| {
        let engine = ModelEngine::new(0);
        let mut workload = trial(pairs);
        run(&mut workload, &engine).unwrap();
        workload.verify(&engine).unwrap();
        engine.rows(ROWS)
    };
    let load = ("steps", "l.i0");
    let shared = [("clients", "4"), ("tables", "1"), load];
    assert_eq!(rows_of(&shared), rows_of(&[load]));
    assert_eq!(
        rows_of(&[("clients", "4"), ("tables", "1"), steps]).len(),
        500
    );
}

#[test]
fn the_form_of_2016_inserts_into_a_table_that_has_its_indexes() {
    let engine = ModelEngine::new(0);
    let mut workload = trial(&[("form", "2016")]);
    let done = run(&mut workload, &engine).unwrap();
    assert_eq!(done.len(), 1);
    assert_eq!(engine.rows(MARKET).len(), 400);
    let sentence = workload.verify(&engine).unwrap();
    assert!(sentence.contains("3 indexes"), "{sentence}");
}

#[test]
fn background_inserts_come_evenly_or_at_the_start_of_a_second() {
    for (spread, expected) in [("even", false), ("burst", true)] {
        let engine = ModelEngine::new(0);
        let mut workload = trial(&[("steps", "l.i0,qp100"), ("background", spread)]);
        let mut bursts = Vec::new();
        while let Some(step) = workload.next_step(&engine).unwrap() {
            if let Step::Phase(mut phase) = step {
                bursts.extend(phase.background.as_ref().map(|beside| beside.burst));
                // The queries of the second step need the rows of the first.
                for client in &mut phase.clients {
                    while phase.background.is_none() && client.prepare().is_some() {
                        client.execute().unwrap();
                    }
                }
            }
        }
        assert_eq!(bursts, [expected], "{spread}");
    }
}

#[test]
fn builds_of_indexes_that_would_build_nothing_are_refused() {
    let refused = |pairs: &[(&str, &str)]| Config::from_pairs(pairs.to_vec()).unwrap_err();
    for (pairs, why) in [
        (&[("steps", "l.i0,l.x,l.x")][..], "steps hold l.x twice"),
        (
            &[("steps", "l.i0,l.x"), ("indexes", "0")],
            "indexes=0 has none",
        ),
        (
            &[("steps", "l.i0,l.x"), ("form", "2016")],
            "form=2016 has from the start",
        ),
    ] {
        let error = refused(pairs).to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn queries_end_after_their_operations_where_that_is_asked_for() {
    let engine = ModelEngine::new(0);
    let small = [
        ("rows", "400"),
        ("operations", "30"),
        ("steps", "l.i0,l.x,qp100,qp100"),
    ];
    let mut workload = InsertBenchmark::new(config(&small), |_| {}).unwrap();
    let done = run(&mut workload, &engine).unwrap();
    assert_eq!(done[3].0, "qp100#2");
    assert_eq!(done[2].1.rows, 300);
    workload.verify(&engine).unwrap();
}

#[test]
fn an_insert_that_a_phase_ends_before_leaves_no_gap() {
    let engine = ModelEngine::new(0);
    let mut workload = trial(&[("steps", "l.i0,l.x,qp100,qp100"), ("clients", "2")]);
    while let Some(step) = workload.next_step(&engine).unwrap() {
        let Step::Phase(mut phase) = step else {
            continue;
        };
        if let Some(background) = &mut phase.background {
            // The first client of each pair inserts.
            for client in background.clients.iter_mut().step_by(2) {
                assert!(client.prepare().is_some());
                client.execute().unwrap();
                assert!(client.prepare().is_some());
            }
            background.clients.clear();
            phase.end = PhaseEnd::Operations(200);
        }
        perform(phase, NO_TURNS).unwrap();
    }
    workload.verify(&engine).unwrap();
}

#[test]
fn a_table_with_rows_of_another_run_is_refused() {
    let engine = ModelEngine::new(0);
    run(&mut trial(&[("steps", "l.i0")]), &engine).unwrap();
    let error = trial(&[("steps", "l.i0")])
        .next_step(&engine)
        .err()
        .unwrap();
    assert!(matches!(error, EngineError::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("rows of another run"), "{error}");
}

/// Damages the data before step number `step`, or after the last step, and returns the error of
/// that step or of the next check.
fn wrong_after(steps: &str, step: usize, damage: impl FnOnce(&ModelEngine)) -> String {
    let engine = ModelEngine::new(0);
    let mut workload = trial(&[("steps", steps)]);
    for _ in 0..step {
        if let Some(Step::Phase(phase)) = workload.next_step(&engine).unwrap() {
            perform(phase, NO_TURNS).unwrap();
        }
    }
    let phase = if step == steps.split(',').count() {
        None
    } else {
        workload.next_step(&engine).unwrap()
    };
    damage(&engine);
    let outcome = match phase {
        Some(Step::Phase(phase)) => perform(phase, NO_TURNS).map(|_| ()),
        _ => workload.next_step(&engine).map(|_| ()),
    };
    let outcome = outcome.and_then(|()| workload.verify(&engine).map(|_| ()));
    let error = outcome.expect_err("damage is found");
    assert!(matches!(error, EngineError::Wrong(_)), "{error}");
    error.to_string()
}

fn flip_texts(engine: &ModelEngine) {
    engine.tamper(ROWS, |rows| {
        for value in rows.values_mut() {
            *value.last_mut().unwrap() ^= 1;
        }
    });
}

#[test]
fn damage_is_found_after_a_load_by_queries_and_at_the_end() {
    let missing = wrong_after("l.i0", 1, |engine| {
        engine.tamper(ROWS, |rows| drop(rows.pop_last()));
    });
    assert!(
        missing.contains("holds 399 rows; 400 were inserted"),
        "{missing}"
    );
    let changed = wrong_after("l.i0", 1, flip_texts);
    assert!(
        changed.contains("values that were never written"),
        "{changed}"
    );
    let points = wrong_after("l.i0,l.x,qp100", 2, flip_texts);
    assert!(
        points.contains("values that were never written"),
        "{points}"
    );
    let gone = wrong_after("l.i0,l.x,qp100", 2, |engine| {
        engine.tamper(ROWS, |rows| rows.retain(|key, _| key[7] % 2 == 0));
    });
    assert!(
        gone.contains("is missing") || gone.contains("lowest key"),
        "{gone}"
    );
    let order = wrong_after("l.i0,l.x,qr1000", 2, |engine| {
        engine.tamper(MARKET, |entries| {
            let changed = std::mem::take(entries).into_iter().map(|(mut key, value)| {
                key[5] ^= 1;
                (key, value)
            });
            *entries = changed.collect();
        });
    });
    assert!(order.contains("out of order or of no row"), "{order}");
    let deleted = wrong_after("l.i0,l.i1", 1, |engine| {
        engine.tamper(ROWS, |rows| drop(rows.pop_first()));
    });
    assert!(deleted.contains("lowest key"), "{deleted}");
}

#[test]
fn an_entry_without_a_row_is_found_at_the_end() {
    let message = wrong_after("l.i0,l.x", 2, |engine| {
        engine.tamper(MARKET, |entries| {
            let (mut key, value) = entries.pop_last().unwrap();
            key[19] ^= 0x40;
            entries.insert(key, value);
        });
    });
    assert!(message.contains("pi1_marketsegment"), "{message}");
}

#[test]
fn schemas_of_all_index_sets_are_accepted_by_an_engine() {
    for set in ["2016", "2023-post", "2023"] {
        let schema = schema(&config(&[("index_set", set), ("clients", "3")])).unwrap();
        assert_eq!(schema.maps().len(), 13);
        ModelEngine::new(0).table_store(schema).unwrap();
    }
}

#[test]
fn a_settle_before_other_steps_lasts_as_long_as_the_reference_waits() {
    let asked = |settle: &str, rows: &str| config(&[("settle", settle), ("rows", rows)]);
    let seconds = |config: Config| config.settle_at_least().as_secs();
    assert_eq!(seconds(asked("backlog", "10000000")), 0);
    assert_eq!(seconds(asked("reference", "10000000")), 70);
    assert_eq!(seconds(asked("reference", "9000000000")), 1200);
    let engine = ModelEngine::new(0);
    let mut workload = trial(&[("settle", "reference"), ("steps", "l.i0,settle,l.x,settle")]);
    let mut waits = Vec::new();
    while let Some(step) = workload.next_step(&engine).unwrap() {
        match step {
            Step::Phase(phase) => drop(perform(phase, NO_TURNS).unwrap()),
            Step::Settle => waits.push(workload.settle_at_least().as_secs()),
            Step::Reopen => panic!("only kv-sequence opens a database again"),
        }
    }
    assert_eq!(waits, [60, 0], "not at the end");
}
