//! Tables on an in-memory engine: damage found by the check of indexes, and refusal of another
//! run's database.

use std::sync::Arc;

use rumbench_core::engine::{Engine, EngineError};
use rumbench_core::kv::MapId;
use rumbench_core::model::ModelEngine;
use rumbench_core::tables::{
    Change, Column, ColumnType, Index, RowBatch, Table, TableConnection, TableId, TableSchema,
    TableStore, Value,
};

const ITEMS: TableId = TableId(0);
/// The catalog comes first, then the rows, then the index.
const ROWS: MapId = MapId(1);
const ENTRIES: MapId = MapId(2);

fn schema(index: &str) -> &'static TableSchema {
    TableSchema::new(vec![Table {
        name: "items".to_owned(),
        columns: vec![
            Column::new("id", ColumnType::U64),
            Column::new("price", ColumnType::U32),
            Column::new("text", ColumnType::Bytes),
        ],
        key_columns: 1,
        indexes: vec![Index {
            name: index.to_owned(),
            columns: vec![1],
        }],
        expect_hits: true,
    }])
    .unwrap()
}

/// Creates a table of ten rows with its index.
fn filled(engine: &ModelEngine) -> Arc<dyn TableStore> {
    let store = engine.table_store(schema("price")).unwrap();
    store.build_index(ITEMS, 0).unwrap();
    let mut rows = RowBatch::new(3);
    for id in 1..=10 {
        rows.push(Value::Unsigned(id));
        rows.push(Value::Unsigned(100 - id));
        rows.push(Value::Bytes(b"text"));
    }
    let mut connection = store.connect().unwrap();
    connection.insert(ITEMS, &rows).unwrap();
    assert_eq!(connection.check(ITEMS).unwrap(), 1);
    store
}

fn wrong_after(damage: impl FnOnce(&ModelEngine)) -> String {
    let engine = ModelEngine::new(0);
    let mut connection = filled(&engine).connect().unwrap();
    damage(&engine);
    let error = connection.check(ITEMS).unwrap_err();
    assert!(matches!(error, EngineError::Wrong(_)), "{error}");
    error.to_string()
}

#[test]
fn an_entry_without_its_row_and_a_row_without_its_entry_are_found() {
    let message = wrong_after(|engine| engine.tamper(ENTRIES, |map| drop(map.pop_first())));
    assert!(message.contains("has 9 entries for 10 rows"), "{message}");
    assert!(message.contains("00, 0a] has none"), "{message}");
    let message = wrong_after(|engine| engine.tamper(ROWS, |map| drop(map.pop_first())));
    assert!(message.contains("some entry has no row"), "{message}");
}

#[test]
fn an_entry_with_another_value_than_its_row_is_found() {
    let message = wrong_after(|engine| {
        engine.tamper(ENTRIES, |map| {
            let (mut key, value) = map.pop_last().unwrap();
            key[3] ^= 1;
            map.insert(key, value);
        });
    });
    assert!(message.contains("10 entries for 10 rows"), "{message}");
}

#[test]
fn a_damaged_row_is_a_wrong_answer() {
    let message = wrong_after(|engine| {
        engine.tamper(ROWS, |map| *map.values_mut().next().unwrap() = vec![0; 2]);
    });
    assert!(message.contains("ends early"), "{message}");
}

#[test]
fn a_database_with_tables_of_another_run_is_refused() {
    let engine = ModelEngine::new(0);
    filled(&engine);
    filled_again(&engine).unwrap();
    let error = engine.table_store(schema("cost")).err().unwrap();
    let error = error.to_string();
    assert!(error.contains("tables of another run"), "{error}");
    assert!(error.contains("price [1]") && error.contains("cost [1]"));
}

fn filled_again(engine: &ModelEngine) -> Result<(), EngineError> {
    let mut connection = engine.table_store(schema("price"))?.connect()?;
    assert_eq!(connection.check(ITEMS)?, 1, "the index is still kept");
    Ok(())
}

#[test]
fn conflicts_leave_rows_and_entries_as_they_were() {
    let engine = ModelEngine::new(3);
    let store = filled(&engine);
    let mut connection = store.connect().unwrap();
    let mut refused = 0;
    for round in 0..9 {
        let key = [Value::Unsigned(5 + round % 3)];
        let connection: &mut dyn TableConnection = &mut *connection;
        let done = match round % 2 {
            0 => connection.update(ITEMS, &key, 1, Change::Add(1)),
            _ => connection.delete_first(ITEMS, &[], 1).map(|rows| rows == 1),
        };
        match done {
            Ok(done) => assert!(done),
            Err(EngineError::Retry(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(connection.check(ITEMS).unwrap(), 1);
    }
    assert_eq!(refused, 3);
}

/// A transaction takes effect completely or not at all, if its commit is refused or if a statement
/// fails.
#[test]
fn transactions_of_several_statements_happen_as_a_whole() {
    let engine = ModelEngine::new(2);
    let mut connection = filled(&engine).connect().unwrap();
    let mut same = RowBatch::new(3);
    for value in [
        Value::Unsigned(5),
        Value::Unsigned(95),
        Value::Bytes(b"new"),
    ] {
        same.push(value);
    }
    let key = |id| [Value::Unsigned(id)];
    let mut refused = 0;
    for round in 0..8 {
        let before = (engine.rows(ROWS), engine.rows(ENTRIES));
        let fails = round % 4 == 3;
        let done = connection.write(&mut |writes| {
            assert!(writes.update(ITEMS, &key(1), 1, Change::Add(1))?);
            assert!(writes.delete(ITEMS, &key(5))?);
            assert!(!writes.delete(ITEMS, &key(5))?, "its own delete is seen");
            // The new index entry equals the deleted one.
            writes.insert(ITEMS, &same)?;
            assert!(writes.update(ITEMS, &key(5), 1, Change::Add(0))?);
            if fails {
                Err(EngineError::Unsupported("stop".to_owned()))
            } else {
                Ok(())
            }
        });
        let after = (engine.rows(ROWS), engine.rows(ENTRIES));
        let stopped = matches!(done, Err(EngineError::Unsupported(_)));
        assert_eq!(stopped, fails, "{done:?}");
        match done {
            Ok(()) => assert_ne!(before, after),
            Err(error) => {
                assert_eq!(before, after, "{error}");
                refused += u32::from(matches!(error, EngineError::Retry(_)));
            }
        }
        assert_eq!(connection.check(ITEMS).unwrap(), 1);
    }
    assert!(refused > 1, "{refused}");
}
