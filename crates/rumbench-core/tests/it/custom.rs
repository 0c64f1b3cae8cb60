//! Custom workloads: requests of their clients, and whole trials on an in-memory engine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use rumbench_core::custom::definition::{Action, PhaseKind};
use rumbench_core::custom::population::Population;
use rumbench_core::custom::rows::Rows;
use rumbench_core::custom::stream::Stream;
use rumbench_core::custom::{Config, Custom, PRESETS};
use rumbench_core::engine::{EngineError, Result};
use rumbench_core::kv::MapId;
use rumbench_core::model::ModelEngine;
use rumbench_core::random::mix;
use rumbench_core::tables::{RowBatch, Value};
use rumbench_core::trial::{Phase, PhaseClient, PhaseEnd, Step, Workload};

/// The catalog comes first, then the rows of the first table, then its index.
const ROWS: MapId = MapId(1);
const ENTRIES: MapId = MapId(2);

fn config(text: &str, pairs: &[(&str, &str)]) -> Config {
    let config = Config::read("my.toml", text).unwrap();
    config.with_settings(pairs.iter().copied()).unwrap()
}

/// Appends the first three operations as text, then a hash of the first thousand.
fn describe(found: &mut String, name: &str, mut next: impl FnMut(u64) -> String) {
    writeln!(found, "{name}").unwrap();
    let mut hash = 0;
    for place in 0..1000 {
        let operation = next(place);
        if place < 3 {
            writeln!(found, "  {operation}").unwrap();
        }
        let bytes = operation.bytes();
        hash = bytes.fold(hash, |hash, byte| mix(hash, u64::from(byte)));
    }
    writeln!(found, "  {hash:016x}").unwrap();
}

/// Returns a row as text; `-` stands for a value of bytes.
fn shown(row: impl Iterator<Item = Value<'static>>) -> String {
    let values = row.map(|value| match value {
        Value::Unsigned(number) => number.to_string(),
        Value::Signed(number) => number.to_string(),
        Value::Bytes(_) => "-".to_owned(),
    });
    values.collect::<Vec<_>>().join(" ")
}

/// A change of the golden file requires a new version of the workload.
#[test]
fn first_thousand_operations_of_each_preset_and_first_rows_are_golden() {
    let mut found = String::new();
    let with_all = [("every operation", EVERY_OPERATION)];
    let presets = PRESETS.iter().map(|preset| (preset.name, preset.text));
    for (name, text) in presets.chain(with_all) {
        let definition = config(text, &[("scale", "0.01")]).effective();
        let tables = definition.tables.iter();
        let populations: Vec<Population> = tables.map(|of| loaded(of.rows)).collect();
        let runs = definition
            .phases
            .iter()
            .filter_map(|phase| match &phase.kind {
                PhaseKind::Run(run) => Some((&phase.name, run)),
                _ => None,
            });
        for (phase, run) in runs {
            let mut stream = Stream::new((1, 2), run, (0, 1), &populations);
            describe(&mut found, &format!("{name}, {phase}"), |_| {
                let request = stream.advance(&populations).clone();
                let operation = stream.operation(request.operation);
                let population = &populations[operation.table];
                match operation.action {
                    // Changes the population as the client does.
                    Action::Insert => (0..request.count).for_each(|_| {
                        population.note_inserted(population.take());
                    }),
                    Action::Delete => {
                        assert!(population.claim(request.rows[0]));
                        population.note_deleted(request.rows[0]);
                    }
                    _ => {}
                }
                format!("{} {request}", operation.name)
            });
        }
        let rows = Rows::new(&definition, 1);
        for table in 0..definition.tables.len() {
            describe(
                &mut found,
                &format!("{name}, rows of table {table}"),
                |row| {
                    let mut batch = RowBatch::new(1 + rows.columns(table));
                    rows.push_row((table, row), |_| row as u32 % 2, &mut batch);
                    let row = batch.rows().next().unwrap();
                    let bytes = row.values().fold(0, |hash, value| match value {
                        Value::Bytes(of) => {
                            of.iter().fold(hash, |hash, b| mix(hash, u64::from(*b)))
                        }
                        _ => hash,
                    });
                    let numbers = row.values().map(|value| match value {
                        Value::Unsigned(number) => Value::Unsigned(number),
                        Value::Signed(number) => Value::Signed(number),
                        Value::Bytes(_) => Value::Bytes(b""),
                    });
                    format!("{} {bytes:016x}", shown(numbers))
                },
            );
        }
    }
    let path = Path::new("tests/golden/custom.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(path).unwrap_or_default());
}

fn loaded(rows: u64) -> Population {
    let population = Population::default();
    population.reserve(rows);
    (0..rows).for_each(|row| population.note_inserted(row));
    population
}

/// Definition with two tables, an index, and every operation in every form.
const EVERY_OPERATION: &str = include_str!("../every_operation.toml");

/// Creates a small trial of this definition.
fn trial(more: &[(&str, &str)]) -> Custom {
    let pairs: Vec<(&str, &str)> = [("scale", "0.01")].iter().chain(more).copied().collect();
    Custom::new(config(EVERY_OPERATION, &pairs), |_| {}).unwrap()
}

/// Performs a phase; its clients take turns. Returns rows and retries.
fn perform(mut phase: Phase) -> Result<(u64, u64)> {
    let (mut rows, mut retries) = (0, 0);
    let mut left = match phase.end {
        PhaseEnd::Operations(operations) => operations,
        _ => u64::MAX,
    };
    let mut active = true;
    while active {
        active = false;
        for client in &mut phase.clients {
            if left > 0 && client.prepare().is_some() {
                let done = client.execute()?;
                (rows, retries) = (rows + done.rows, retries + done.retries);
                left -= 1;
                active = true;
            }
        }
    }
    Ok((rows, retries))
}

/// Performs a phase with a thread for each client and an equal share of the operations. A phase
/// without a number of operations is left to [`perform`]. Otherwise both returned numbers are zero.
fn perform_in_threads(phase: Phase) -> Result<(u64, u64)> {
    let PhaseEnd::Operations(operations) = phase.end else {
        return perform(phase);
    };
    let share = operations / phase.clients.len() as u64;
    let work = |mut client: Box<dyn PhaseClient>| {
        for _ in 0..share {
            if client.prepare().is_some() {
                client.execute()?;
            }
        }
        Ok((0, 0))
    };
    std::thread::scope(|scope| {
        let clients = phase.clients.into_iter();
        let threads: Vec<_> = clients
            .map(|client| scope.spawn(move || work(client)))
            .collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap());
        ends.collect::<Result<Vec<_>>>().map(|_| (0, 0))
    })
}

type Perform = fn(Phase) -> Result<(u64, u64)>;

fn run(workload: &mut Custom, engine: &ModelEngine, perform: Perform) -> Result<Vec<String>> {
    let mut done = Vec::new();
    while let Some(step) = workload.next_step(engine)? {
        match step {
            Step::Phase(phase) => {
                done.push(phase.name.clone());
                perform(phase)?;
            }
            Step::Settle => done.push("settle".to_owned()),
            Step::Reopen => panic!("only kv-sequence opens a database again"),
        }
    }
    Ok(done)
}

#[test]
fn every_operation_runs_and_every_answer_is_right() {
    for conflict_every in [0, 7] {
        let engine = ModelEngine::new(conflict_every);
        let mut workload = trial(&[("requests", "20000")]);
        let done = run(&mut workload, &engine, perform).unwrap();
        assert_eq!(done, ["load", "run", "settle", "again"]);
        assert_eq!(done, workload.phase_names());
        let sentence = workload.verify(&engine).unwrap();
        assert!(sentence.contains("rows in 2 tables"), "{sentence}");
        assert!(sentence.contains("entries of 1 indexes"), "{sentence}");
        assert_eq!(engine.rows(ROWS).len(), engine.rows(ENTRIES).len());
    }
}

#[test]
fn concurrent_clients_see_only_correct_rows() {
    let engine = ModelEngine::new(11);
    let mut workload = trial(&[("requests", "20000"), ("clients", "8")]);
    run(&mut workload, &engine, perform_in_threads).unwrap();
    workload.verify(&engine).unwrap();
}

#[test]
fn every_preset_runs_and_is_checked() {
    for preset in PRESETS {
        let engine = ModelEngine::new(0);
        let pairs = [("rows", "300"), ("requests", "2000"), ("clients", "2")];
        let mut workload = Custom::new(config(preset.text, &pairs), |_| {}).unwrap();
        let done = run(&mut workload, &engine, perform).unwrap();
        let expected = match preset.name {
            "beyond-cache" => {
                "load overwrite get_absent get scan_10 settle get_settled scan_10_settled scan_100_settled"
            }
            _ => "load settle run",
        };
        assert_eq!(done.join(" "), expected, "{}", preset.name);
        workload.verify(&engine).unwrap();
    }
}

#[test]
fn an_operation_that_is_prepared_and_never_performed_loses_nothing() {
    const INSERTS_AND_DELETES: &str = r#"
        [[table]]
        name = "t"
        rows = 100
        keys = "ordered"
        column = [{ name = "c", type = "bytes", bytes = 8 }]
        [[phase]]
        kind = "load"
        [[phase]]
        kind = "run"
        requests = 10
        clients = 2
        operation = [
          { do = "insert", percent = 40, rows = 2 },
          { do = "delete", percent = 30 },
          { do = "update", percent = 30 },
        ]
    "#;
    let engine = ModelEngine::new(0);
    let phases = INSERTS_AND_DELETES.to_owned();
    let second = &INSERTS_AND_DELETES[INSERTS_AND_DELETES.rfind("[[phase]]").unwrap()..];
    let text = phases + &second.repeat(20);
    let mut workload = Custom::new(config(&text, &[]), |_| {}).unwrap();
    let (mut inserted, mut gone) = (0, 0);
    while let Some(Step::Phase(mut phase)) = workload.next_step(&engine).unwrap() {
        if phase.name == "load" {
            perform(phase).unwrap();
            continue;
        }
        // Both clients prepare, one performs; then the phase ends.
        for _ in 0..3 {
            phase.clients[0].prepare().unwrap();
            let operation = phase.clients[1].prepare().unwrap();
            let done = phase.clients[1].execute().unwrap();
            match phase.operations[operation] {
                "INSERT" => inserted += done.rows,
                "DELETE" => gone += done.rows,
                _ => {}
            }
        }
    }
    assert!(inserted > 20 && gone > 5, "{inserted} {gone}");
    workload.verify(&engine).unwrap();
    let rows: BTreeMap<Vec<u8>, Vec<u8>> = engine.rows(ROWS);
    assert_eq!(rows.len() as u64, 100 + inserted - gone);
    let highest = rows
        .keys()
        .map(|key| u64::from_be_bytes(key[..8].try_into().unwrap()) / 2)
        .max();
    assert!(
        highest.unwrap() < 100 + inserted + 2,
        "numbers were taken again"
    );
}

/// Damages the data before the step with index `place`, or after the last step, and returns the
/// error that ends the trial.
fn wrong_after(text: &str, place: usize, damage: impl FnOnce(&ModelEngine)) -> String {
    let engine = ModelEngine::new(0);
    let mut workload = Custom::new(config(text, &[("max_rows", "200")]), |_| {}).unwrap();
    let mut damage = Some(damage);
    let mut outcome = || -> Result<()> {
        for phase in 0.. {
            // After a load, `next_step` first checks the loaded rows.
            if let Some(damage) = damage.take_if(|_| phase == place) {
                damage(&engine);
            }
            match workload.next_step(&engine)? {
                None => break,
                Some(Step::Phase(phase)) => drop(perform(phase)?),
                Some(Step::Settle | Step::Reopen) => {}
            }
        }
        workload.verify(&engine).map(drop)
    };
    let error = outcome().expect_err("damage is found");
    assert!(matches!(error, EngineError::Wrong(_)), "{error}");
    error.to_string()
}

fn ordered(operation: &str) -> String {
    format!(
        r#"
        [[table]]
        name = "t"
        rows = 200
        keys = "ordered"
        column = [{{ name = "n", type = "u32", distinct = 5 }}, {{ name = "c", type = "bytes", bytes = 30 }}]
        index = [{{ name = "n", columns = ["n"] }}]
        [[phase]]
        kind = "load"
        [[phase]]
        kind = "settle"
        [[phase]]
        kind = "run"
        requests = 2000
        operation = [{{ percent = 100, {operation} }}]
        "#
    )
}

fn flip_last(engine: &ModelEngine) {
    engine.tamper(ROWS, |rows| {
        rows.values_mut()
            .for_each(|value| *value.last_mut().unwrap() ^= 1);
    });
}

fn drop_fifth(engine: &ModelEngine) {
    engine.tamper(ROWS, |rows| {
        let key = rows.keys().nth(5).cloned().unwrap();
        rows.remove(&key);
    });
}

#[test]
fn damage_is_found_after_the_load() {
    let read = ordered("do = \"read\"");
    let gone = wrong_after(&read, 1, drop_fifth);
    assert!(
        gone.contains("holds 199 rows after the load of 200"),
        "{gone}"
    );
    let changed = wrong_after(&read, 1, flip_last);
    assert!(
        changed.contains("a value that was never written there"),
        "{changed}"
    );
}

#[test]
fn every_operation_on_a_damaged_row_finds_the_damage() {
    for operation in [
        "do = \"read\"",
        "do = \"scan\", rows = 10",
        "do = \"read_modify_write\", columns = [\"n\"]",
    ] {
        let changed = wrong_after(&ordered(operation), 2, flip_last);
        assert!(
            changed.contains("column c, has a value that was never written there"),
            "{operation}: {changed}"
        );
        let gone = wrong_after(&ordered(operation), 2, drop_fifth);
        assert!(
            gone.contains("row 5 of t is missing"),
            "{operation}: {gone}"
        );
    }
    for operation in [
        "do = \"update\"",
        "do = \"update\", write = \"row\"",
        "do = \"delete\"",
    ] {
        let gone = wrong_after(&ordered(operation), 2, drop_fifth);
        assert!(
            gone.contains("row 5 of t is missing"),
            "{operation}: {gone}"
        );
    }
    let entry = wrong_after(
        &ordered("do = \"scan\", rows = 10, index = \"n\""),
        2,
        |engine| {
            engine.tamper(ENTRIES, |entries| {
                let changed = std::mem::take(entries).into_iter().map(|(mut key, value)| {
                    key[3] ^= 1;
                    (key, value)
                });
                *entries = changed.collect();
            });
        },
    );
    assert!(
        entry.contains("column n, has a value that was never written"),
        "{entry}"
    );
    let found = wrong_after(&ordered("do = \"read_missing\""), 2, |engine| {
        engine.tamper(ROWS, |rows| {
            let more = rows.iter().map(|(key, value)| {
                let mut key = key.clone();
                key[7] |= 1;
                (key, value.clone())
            });
            let more: Vec<_> = more.collect();
            rows.extend(more);
        });
    });
    assert!(found.contains("which no row has"), "{found}");
}

#[test]
fn an_update_that_was_lost_is_found() {
    let update = ordered("do = \"update\", columns = [\"c\"]");
    let text = update.clone()
        + &update[update.rfind("[[phase]]").unwrap()..]
            .replace("update", "read")
            .replace(", columns = [\"c\"]", "");
    for place in [3, 4] {
        let old = std::cell::RefCell::new(BTreeMap::new());
        // Before the step with index `place`, restores the rows as the load wrote them: all updates
        // are lost.
        let engine = ModelEngine::new(0);
        let mut workload = Custom::new(config(&text, &[]), |_| {}).unwrap();
        let mut outcome = || -> Result<()> {
            for phase in 0.. {
                match phase {
                    2 => *old.borrow_mut() = engine.rows(ROWS),
                    _ if phase == place => engine.tamper(ROWS, |rows| *rows = old.borrow().clone()),
                    _ => {}
                }
                match workload.next_step(&engine)? {
                    None => break,
                    Some(Step::Phase(phase)) => drop(perform(phase)?),
                    Some(Step::Settle | Step::Reopen) => {}
                }
            }
            workload.verify(&engine).map(drop)
        };
        let error = outcome().expect_err("old values are found").to_string();
        assert!(error.contains("column c, has version 0; only"), "{error}");
    }
}

#[test]
fn an_extra_row_and_a_row_without_its_index_entry_are_found_at_the_end() {
    let read = ordered("do = \"read\"");
    let more = wrong_after(&read, 3, |engine| {
        engine.tamper(ROWS, |rows| {
            let (mut key, value) = rows
                .last_key_value()
                .map(|(k, v)| (k.clone(), v.clone()))
                .unwrap();
            key[6] += 8;
            rows.insert(key, value);
        });
    });
    assert!(more.contains("not to be there"), "{more}");
    let entry = wrong_after(&read, 3, |engine| {
        engine.tamper(ENTRIES, |entries| drop(entries.pop_first()));
    });
    assert!(entry.contains("t_n"), "{entry}");
}

#[test]
fn a_table_with_rows_of_another_run_is_refused() {
    let engine = ModelEngine::new(0);
    run(&mut trial(&[]), &engine, perform).unwrap();
    let error = trial(&[]).next_step(&engine).err().unwrap();
    assert!(matches!(error, EngineError::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("rows of another run"), "{error}");
}

#[test]
fn a_phase_has_its_own_rate_unless_rates_are_turned_off() {
    let workload = trial(&[]);
    assert_eq!(
        workload.pace("again").map(|pace| pace.per_second),
        Some(1000.0)
    );
    assert_eq!(workload.pace("run"), None);
    assert_eq!(workload.connections(), Some(4));
    assert_eq!(trial(&[("rates", "no")]).pace("again"), None);
}

#[test]
fn operations_of_one_name_get_numbers_that_no_other_name_has() {
    let text = |names: &str| {
        let operations: String = names
            .split(' ')
            .map(|name| {
                format!("[[phase.operation]]\ndo = \"read\"\npercent = 25\nname = \"{name}\"\n")
            })
            .collect();
        format!(
            "[[table]]\nname = \"t\"\nrows = 10\n[[table.column]]\nname = \"n\"\ntype = \"u32\"\ndistinct = 2\n\
             [[phase]]\nkind = \"load\"\n[[phase]]\nkind = \"run\"\nseconds = 1\n{operations}"
        )
    };
    for (given, expected) in [
        ("a b c d", "a b c d"),
        ("a a b a", "a a_2 b a_3"),
        ("a a_2 a b", "a a_2 a_3 b"),
        ("a a a_2 a_2", "a a_3 a_2 a_2_2"),
    ] {
        let definition = config(&text(given), &[]).effective();
        let found: Vec<String> = definition
            .operations()
            .map(|operation| operation.name.clone())
            .collect();
        assert_eq!(found.join(" "), expected, "{given}");
    }
}
