//! kv-sequence: requests of its clients, and whole trials on an in-memory engine.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use rumbench_core::engine::{Durability, EngineError, Result};
use rumbench_core::kv::MapId;
use rumbench_core::kv_sequence::stream::{Stream, WRITER};
use rumbench_core::kv_sequence::value::Values;
use rumbench_core::kv_sequence::{Config, KvSequence, STEPS};
use rumbench_core::model::ModelEngine;
use rumbench_core::random::mix;
use rumbench_core::trial::{Phase, PhaseClient, PhaseEnd, Step, Workload};

const ROWS: MapId = MapId(0);

fn hash_of(hash: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
}

/// Appends the first three operations as text, then a hash of the first thousand.
fn describe(found: &mut String, name: &str, mut stream: Stream) {
    const SHOWN: usize = 3;
    writeln!(found, "{name}").unwrap();
    let mut hash = 0;
    for place in 0..1000 {
        if !stream.advance() {
            writeln!(found, "  ends after {place}").unwrap();
            break;
        }
        let request = stream.request().to_string();
        if place < SHOWN {
            writeln!(found, "  {request}").unwrap();
        }
        hash = hash_of(hash, request.as_bytes());
    }
    writeln!(found, "  {hash:016x}").unwrap();
}

/// A change of the golden file requires a new version of the workload.
#[test]
fn first_thousand_operations_of_each_step_and_first_rows_are_golden() {
    let config = Config::from_pairs([("keys", "100000"), ("seed", "1")]).unwrap();
    let mut found = String::new();
    for step in STEPS {
        describe(&mut found, step.name, Stream::new(&config, step, 1, 0));
        if step.writer {
            let writer = Stream::new(&config, step, 1, WRITER);
            describe(&mut found, &format!("{} writer", step.name), writer);
        }
    }
    let values = Values::new(1, 20, 400, 0.5);
    for (number, draw) in [(0, 0), (1, 2), (99_999, u64::MAX)] {
        let mut row = Vec::new();
        values.append_key(number, &mut row);
        values.append_value(number, draw, &mut row);
        let text = String::from_utf8_lossy(&row[36..60]);
        writeln!(found, "row {number} {:016x} {text}", hash_of(0, &row)).unwrap();
    }
    let path = Path::new("tests/golden/kv_sequence.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(path).unwrap());
}

#[test]
fn clients_and_repeated_steps_ask_for_different_rows() {
    let config = Config::default();
    let step = STEPS.iter().find(|step| step.name == "get").unwrap();
    let mut seen = BTreeSet::new();
    for (occurrence, client) in [(1, 0), (1, 1), (2, 0)] {
        let mut stream = Stream::new(&config, step, occurrence, client);
        stream.advance();
        assert!(seen.insert(stream.request().to_string()));
    }
}

/// Creates a small trial; `more` overrides its settings.
fn sequence(more: &[(&str, &str)]) -> KvSequence {
    let small = [("keys", "500"), ("operations", "200"), ("clients", "2")];
    let config = Config::from_pairs(small.iter().chain(more).copied()).unwrap();
    KvSequence::new(config, |_| {})
}

/// Rows, written bytes and retries.
type Totals = (u64, u64, u64);

/// Performs a phase: its clients take turns, and its background writer writes once after each of
/// their operations.
fn perform(mut phase: Phase) -> Result<Totals> {
    let mut total = (0, 0, 0);
    let mut left = match phase.end {
        PhaseEnd::Operations(operations) => operations,
        _ => u64::MAX,
    };
    let mut call = |client: &mut dyn PhaseClient| -> Result<bool> {
        if client.prepare().is_none() {
            return Ok(false);
        }
        let done = client.execute()?;
        total.0 += done.rows;
        total.1 += done.written_bytes;
        total.2 += done.retries;
        Ok(true)
    };
    loop {
        let mut idle = true;
        for client in &mut phase.clients {
            if left == 0 || !call(client.as_mut())? {
                continue;
            }
            (idle, left) = (false, left - 1);
            if let Some(background) = &mut phase.background {
                call(background.clients[0].as_mut())?;
            }
        }
        if idle {
            return Ok(total);
        }
    }
}

/// Performs all steps and returns their names with the totals of the phases.
fn run(workload: &mut KvSequence, engine: &ModelEngine) -> Result<Vec<(String, Totals)>> {
    let mut done = Vec::new();
    while let Some(step) = workload.next_step(engine)? {
        match step {
            Step::Phase(phase) => done.push((phase.name.clone(), perform(phase)?)),
            Step::Settle => done.push(("settle".to_owned(), (0, 0, 0))),
            Step::Reopen => done.push(("reopen".to_owned(), (0, 0, 0))),
        }
    }
    Ok(done)
}

#[test]
fn the_steps_of_2023_run_in_their_order_and_every_row_is_checked() {
    let engine = ModelEngine::new(7);
    let mut workload = sequence(&[]);
    let done = run(&mut workload, &engine).unwrap();
    let rows: Vec<(&str, u64)> = done
        .iter()
        .map(|(name, of)| (name.as_str(), of.0))
        .collect();
    assert_eq!(rows[0], ("fillseq", 500));
    assert_eq!(rows[2], ("readrandom", 200));
    assert_eq!(rows[4], ("multireadrandom", 2000));
    assert_eq!(rows[5], ("overwritesome", 50));
    assert_eq!(rows[6], ("settle", 0));
    assert_eq!(
        rows[9],
        ("readwhilewriting", 400),
        "a read and a write each"
    );
    assert_eq!(rows[10], ("overwriteandwait", 200));
    assert_eq!(rows[11], ("settle", 0), "the drain of the step before");
    assert_eq!(rows.len(), 12);
    assert_eq!(done[0].1.1, 500 * 420, "bytes written by the load");
    assert!(done[10].1.2 > 0, "conflicts were retried");
    let sentence = workload.verify(&engine).unwrap();
    assert!(sentence.starts_with("500 rows in order"), "{sentence}");
}

#[test]
fn a_list_of_steps_may_repeat_them_and_settle_between() {
    let mut workload = sequence(&[
        ("steps", "load,get,put,get,settle,get"),
        ("load_rows", "33"),
    ]);
    let names = ["load", "get", "put", "get#2", "settle", "get#3"];
    assert_eq!(workload.phase_names(), names);
    let done = run(&mut workload, &ModelEngine::new(0)).unwrap();
    assert_eq!(done[0].1.0, 500);
}

/// Returns the names of the steps with these settings, in order.
fn names(pairs: &[(&str, &str)]) -> Vec<String> {
    let done = run(&mut sequence(pairs), &ModelEngine::new(0)).unwrap();
    done.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn the_database_is_opened_again_before_each_step_but_not_before_a_settle() {
    let steps = ("steps", "fillseq,get,overwriteandwait,get");
    assert_eq!(
        names(&[steps, ("reopen", "yes")]).join(" "),
        "fillseq reopen get reopen overwriteandwait settle reopen get#2"
    );
    assert_eq!(
        names(&[steps]).join(" "),
        "fillseq get overwriteandwait settle get#2"
    );
}

#[test]
fn only_a_load_without_a_log_has_another_class_than_the_trial() {
    let mut workload = sequence(&[("steps", "fillseq,settle,put"), ("load_log", "no")]);
    let engine = ModelEngine::new(0);
    assert_eq!(workload.durability(), Some(Durability::None));
    let Some(Step::Phase(load)) = workload.next_step(&engine).unwrap() else {
        panic!("the first step is a load");
    };
    perform(load).unwrap();
    assert!(matches!(
        workload.next_step(&engine).unwrap(),
        Some(Step::Reopen)
    ));
    assert_eq!(workload.durability(), None);
    let done = run(&mut workload, &engine).unwrap();
    assert_eq!((done[0].0.as_str(), done[1].0.as_str()), ("settle", "put"));
    assert_eq!(sequence(&[]).durability(), None, "with a log");
}

#[test]
fn scans_at_both_ends_of_the_table_are_short_and_right() {
    let mut workload = sequence(&[
        ("keys", "3"),
        ("steps", "fillseq,fwdrange,revrange,seekrandom"),
    ]);
    let done = run(&mut workload, &ModelEngine::new(0)).unwrap();
    assert!((200..=600).contains(&done[1].1.0), "{done:?}");
    assert!((200..=600).contains(&done[2].1.0), "{done:?}");
    assert_eq!(done[3].1.0, 200);
}

/// Damages the data after the load and returns the error of the next step or of the final check.
fn wrong_after(steps: &str, damage: impl FnOnce(&ModelEngine)) -> String {
    let engine = ModelEngine::new(0);
    let mut workload = sequence(&[("steps", steps)]);
    let Some(Step::Phase(load)) = workload.next_step(&engine).unwrap() else {
        panic!("the first step is a load");
    };
    perform(load).unwrap();
    damage(&engine);
    let error = match workload.next_step(&engine) {
        Err(error) => error,
        Ok(Some(Step::Phase(phase))) => match perform(phase) {
            Err(error) => error,
            Ok(_) => workload.verify(&engine).expect_err("damage is found"),
        },
        Ok(_) => workload.verify(&engine).expect_err("damage is found"),
    };
    assert!(matches!(error, EngineError::Wrong(_)), "{error}");
    error.to_string()
}

#[test]
fn a_missing_row_is_found_after_the_load() {
    let message = wrong_after("load,get", |engine| {
        engine.tamper(ROWS, |rows| drop(rows.pop_last()));
    });
    assert_eq!(message, "wrong answer: row 499 is missing");
}

#[test]
fn an_exchanged_value_is_found_after_the_load() {
    let message = wrong_after("load,get", |engine| {
        engine.tamper(ROWS, |rows| {
            let first = rows.values().next().cloned().unwrap();
            rows.entry(rows.keys().last().cloned().unwrap())
                .and_modify(|value| *value = first);
        });
    });
    assert!(
        message.contains("row 499 has a value that was never written"),
        "{message}"
    );
}

/// The scan at the end finds rows that no read of the steps requests.
#[test]
fn a_row_too_many_is_found_at_the_end() {
    let message = wrong_after("load", |engine| {
        engine.tamper(ROWS, |rows| {
            rows.insert(b"\0\0more".to_vec(), Vec::new());
        });
    });
    assert!(message.contains("is another key"), "{message}");
}

#[test]
fn damage_between_steps_is_found_by_the_reads() {
    for step in ["get", "scan10", "multireadrandom", "revrangewhilewriting"] {
        let engine = ModelEngine::new(0);
        let mut workload = sequence(&[("steps", &format!("load,{step}")), ("operations", "2000")]);
        let Some(Step::Phase(load)) = workload.next_step(&engine).unwrap() else {
            panic!("the first step is a load");
        };
        perform(load).unwrap();
        let Some(Step::Phase(phase)) = workload.next_step(&engine).unwrap() else {
            panic!("the second step has clients");
        };
        engine.tamper(ROWS, |rows| {
            for value in rows.values_mut() {
                value[50] ^= 1;
            }
        });
        let error = perform(phase).expect_err(step);
        assert!(matches!(error, EngineError::Wrong(_)), "{step}: {error}");
    }
}
