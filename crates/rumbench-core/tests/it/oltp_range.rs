//! OLTP ranges: events of each test, and whole trials on an in-memory engine.

use rumbench_core::engine::EngineError;
use rumbench_core::kv::MapId;
use rumbench_core::model::ModelEngine;
use rumbench_core::oltp_range::columns::COLUMNS;
use rumbench_core::oltp_range::events::{Event, Events};
use rumbench_core::oltp_range::rows::Rows;
use rumbench_core::oltp_range::tests::TESTS;
use rumbench_core::oltp_range::{Config, OltpRange};
use rumbench_core::tables::{RowBatch, Value};
use rumbench_core::trial::{Step, Workload};

use crate::turns::{self, Totals, assert_golden, describe, perform};

/// The catalog comes first, then the rows of the first table, then its index.
const ROWS: MapId = MapId(1);
const INDEX: MapId = MapId(2);

fn config(pairs: &[(&str, &str)]) -> Config {
    Config::from_pairs(pairs.iter().copied()).unwrap()
}

/// Creates a small trial; `more` overrides its settings.
fn trial(more: &[(&str, &str)]) -> OltpRange {
    let small = [("rows", "300"), ("operations", "40")];
    let pairs: Vec<(&str, &str)> = small.iter().chain(more).copied().collect();
    OltpRange::new(config(&pairs), |_| {}).unwrap()
}

fn run(workload: &mut OltpRange, engine: &ModelEngine) -> Vec<(String, Totals)> {
    turns::run(workload, engine, 0).unwrap()
}

/// A change of the golden file requires a new version of the workload.
#[test]
fn first_thousand_events_of_each_test_and_first_rows_are_golden() {
    let mut found = String::new();
    let config = config(&[("rows", "100000"), ("tables", "3")]);
    let rows = Rows::new(&config);
    describe(&mut found, "rows of sbtest2", |place| {
        let mut batch = RowBatch::new(COLUMNS);
        rows.push(1, place + 1, rows.loaded(1, place + 1), &mut batch);
        let row = batch.rows().next().unwrap();
        let values = row.values().map(|value| match value {
            Value::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
            other => other.unsigned().unwrap().to_string(),
        });
        values.collect::<Vec<_>>().join(" ")
    });
    for test in TESTS {
        // Short ranges, so that the first three events are readable.
        let range = test.range.min(5);
        let mut events = Events::new(&config, test.kind, range, 7, 1);
        let mut event = Event::default();
        describe(&mut found, test.name, |_| {
            events.next(&mut event);
            event.to_string()
        });
    }
    assert_golden("oltp_range.txt", &found);
}

#[test]
fn events_have_as_many_statements_as_the_reference_counts_without_begin_and_commit() {
    let config = config(&[]);
    for test in TESTS {
        let mut events = Events::new(&config, test.kind, test.range, 0, 0);
        let mut event = Event::default();
        events.next(&mut event);
        let statements = event.statements.len() as u64;
        // The reference counts begin and commit, and a replaced row as a delete and an insert.
        let replaces = matches!(test.name, "write-only" | "read-write");
        let expected = match test.queries {
            1 => 1,
            queries => queries - 2 - u64::from(replaces),
        };
        assert_eq!(statements, expected, "{}", test.name);
    }
}

#[test]
fn low_ids_are_updated_more_often_by_zipf() {
    let config = config(&[("rows", "1000")]);
    let zipf = TESTS.iter().find(|test| test.name == "update-zipf");
    let mut events = Events::new(&config, zipf.unwrap().kind, 0, 0, 0);
    let (mut event, mut low) = (Event::default(), 0);
    for _ in 0..10_000 {
        events.next(&mut event);
        let id = event.numbers(&event.statements[0])[0];
        assert!((1..=1000).contains(&id));
        low += u32::from(id <= 10);
    }
    // An exact Zipf distribution of exponent 0.8 gives 20 %.
    assert!((1500..2500).contains(&low), "{low}");
}

#[test]
fn the_published_order_runs_with_conflicts_and_loses_nothing() {
    let engine = ModelEngine::new(7);
    let mut workload = trial(&[("clients", "3"), ("tables", "2")]);
    let done = run(&mut workload, &engine);
    let names: Vec<&str> = done.iter().map(|(name, _)| name.as_str()).collect();
    // The runner numbers repeated settles.
    let expected: Vec<String> = workload.phase_names();
    let expected = expected.iter().map(|name| match name.as_str() {
        "settle#2" => "settle",
        name => name,
    });
    assert_eq!(names, expected.collect::<Vec<_>>());
    assert!(!names.contains(&"read-only:10000"), "longer than a table");
    assert!(names.contains(&"point-query#2"));
    let of = |wanted: &str| {
        let found = done.iter().find(|(name, _)| name == wanted);
        found.unwrap_or_else(|| panic!("no {wanted}")).1
    };
    assert_eq!((of("load").rows, of("index").rows), (600, 600));
    assert_eq!(of("point-query").rows, 40);
    assert_eq!(of("random-points:10").rows, 400);
    assert_eq!(of("hot-points").rows, 4000);
    assert_eq!(of("scan").rows, 40 * 300);
    assert_eq!(of("insert").rows, 40);
    assert!(of("delete").rows < 40, "ids come twice");
    // A row has 190 bytes; an update of c writes c and a key. A write-only event makes both updates
    // and replaces a row: the key of the delete and the row.
    let written = ["load", "update-nonindex", "write-only", "scan"];
    let bytes = written.map(|name| of(name).written_bytes);
    assert_eq!(bytes, [600 * 190, 40 * 127, 40 * (12 + 127 + 198), 0]);
    for test in ["update-index", "write-only", "read-write:10"] {
        assert!(of(test).retries > 0, "{test}");
    }
    let sentence = workload.verify(&engine).unwrap();
    let left = 600 - of("delete").rows + 40;
    assert!(
        sentence.starts_with(&format!("{left} rows in 2 tables")),
        "{sentence}"
    );
    assert!(sentence.contains("1 indexes"), "{sentence}");
}

#[test]
fn reads_and_writes_go_on_in_a_table_with_deleted_rows() {
    let engine = ModelEngine::new(3);
    let steps = "load,index,delete,point-query,random-points:50,range-covered-pk,range-notcovered-si,\
                 read-write:20,update-inlist,update-index,read-only:20,scan,insert,scan,delete";
    let mut workload = trial(&[("steps", steps), ("operations", "200"), ("clients", "2")]);
    let done = run(&mut workload, &engine);
    let rows = |name: &str| done.iter().find(|(found, _)| found == name).unwrap().1.rows;
    assert!(rows("point-query") < 200, "some are gone");
    assert!(rows("scan") < 200 * 300);
    workload.verify(&engine).unwrap();
}

/// A phase may end between prepare and execute: no check expects the event.
#[test]
fn events_that_were_prepared_and_never_executed_leave_no_trace() {
    let engine = ModelEngine::new(0);
    let steps = "load,index,insert,delete,write-only,insert,scan";
    let mut workload = trial(&[("steps", steps), ("clients", "3")]);
    while let Some(Step::Phase(mut phase)) = workload.next_step(&engine).unwrap() {
        if !["load", "index"].contains(&phase.name.as_str()) {
            for client in &mut phase.clients {
                assert!(client.prepare().is_some());
                client.execute().unwrap();
                assert!(client.prepare().is_some());
            }
            phase.clients.truncate(1);
        }
        perform(phase, 0).unwrap();
    }
    workload.verify(&engine).unwrap();
}

#[test]
fn a_table_with_rows_of_another_run_is_refused() {
    let engine = ModelEngine::new(0);
    run(&mut trial(&[("steps", "load")]), &engine);
    let error = trial(&[("steps", "load")])
        .next_step(&engine)
        .err()
        .unwrap();
    assert!(matches!(error, EngineError::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("rows of another run"), "{error}");
}

/// Damages the data before the last of these steps, or after it, and returns the error that ends
/// the trial.
fn wrong_after(steps: &str, after: bool, damage: impl Fn(&ModelEngine)) -> String {
    let engine = ModelEngine::new(0);
    let mut workload = trial(&[("steps", steps)]);
    let mut outcome = Ok(());
    for place in 1..=steps.split(',').count() {
        let Some(Step::Phase(phase)) = workload.next_step(&engine).unwrap() else {
            continue;
        };
        let last = place == steps.split(',').count();
        if last && !after {
            damage(&engine);
        }
        outcome = perform(phase, 0).map(drop);
    }
    if after {
        damage(&engine);
    }
    let outcome = outcome
        .and_then(|()| workload.next_step(&engine).map(drop))
        .and_then(|()| workload.verify(&engine).map(drop));
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

fn drop_half(engine: &ModelEngine) {
    engine.tamper(ROWS, |rows| rows.retain(|key, _| key[7] % 2 == 0));
}

#[test]
fn changed_and_missing_rows_are_found_by_every_kind_of_read() {
    for test in [
        "point-query",
        "random-points:5",
        "range-covered-pk",
        "points-notcovered-si",
        "range-notcovered-si",
        "read-only:10",
        "read-only-order",
        "read-write:10",
        "scan",
    ] {
        let steps = format!("load,index,{test}");
        let changed = wrong_after(&steps, false, flip);
        assert!(
            changed.contains("never written") || changed.contains("all good: false"),
            "{test}: {changed}"
        );
        let missing = wrong_after(&steps, false, drop_half);
        assert!(
            missing.contains("is missing")
                || missing.contains("where")
                || missing.contains("found"),
            "{test}: {missing}"
        );
    }
}

#[test]
fn entries_of_no_row_and_missing_rows_are_found_by_writes() {
    let strange = wrong_after("load,index,range-covered-si", false, |engine| {
        engine.tamper(INDEX, |entries| {
            let old = std::mem::take(entries);
            *entries = old
                .into_iter()
                .map(|(mut key, value)| {
                    key[4] ^= 1;
                    (key, value)
                })
                .collect();
        });
    });
    assert!(strange.contains("of no row"), "{strange}");
    for test in [
        "update-index",
        "update-nonindex",
        "update-inlist",
        "write-only",
        "delete",
    ] {
        let gone = wrong_after(&format!("load,index,{test}"), false, drop_half);
        assert!(gone.contains("was there: true, but"), "{test}: {gone}");
    }
}

#[test]
fn damage_is_found_after_the_load_and_at_the_end() {
    let missing = wrong_after("load", true, |engine| {
        engine.tamper(ROWS, |rows| drop(rows.pop_last()));
    });
    assert!(missing.contains("holds 299 rows"), "{missing}");
    assert!(wrong_after("load", true, flip).contains("never written"));
    let steps = "load,index,update-index";
    let missing = wrong_after(steps, true, |engine| {
        engine.tamper(ROWS, |rows| drop(rows.pop_last()));
    });
    assert!(missing.contains("299 rows; 300 must be there"), "{missing}");
    let lost = wrong_after(steps, true, |engine| {
        // Lowers k of every row by one, as if an update was lost.
        engine.tamper(ROWS, |rows| {
            for value in rows.values_mut() {
                value[3] = value[3].wrapping_sub(1);
            }
        });
    });
    assert!(
        lost.contains("raised by") || lost.contains("never written"),
        "{lost}"
    );
    let entry = wrong_after(steps, true, |engine| {
        engine.tamper(INDEX, |entries| drop(entries.pop_last()));
    });
    assert!(entry.contains("sbtest1_k"), "{entry}");
}

/// The sum over all rows reveals an update that was acknowledged but did not happen.
#[test]
fn a_lost_update_is_found() {
    let engine = ModelEngine::new(0);
    let mut workload = trial(&[("steps", "load,update-index")]);
    let Some(Step::Phase(load)) = workload.next_step(&engine).unwrap() else {
        panic!("no load");
    };
    perform(load, 0).unwrap();
    let Some(Step::Phase(updates)) = workload.next_step(&engine).unwrap() else {
        panic!("no updates");
    };
    let before = engine.rows(ROWS);
    perform(updates, 0).unwrap();
    let after = engine.rows(ROWS);
    let changed = before.iter().find(|(key, value)| after[*key] != **value);
    let (key, value) = changed.unwrap();
    engine.tamper(ROWS, |rows| drop(rows.insert(key.clone(), value.clone())));
    let error = workload.verify(&engine).unwrap_err().to_string();
    assert!(error.contains("40 updates were acknowledged"), "{error}");
}
