//! Real servers in which a conflict does not end.

use rumbench_core::engine::{Durability, Engine, EngineError, OpenConfig, Schema};
use rumbench_core::oltp_range::{Config, OltpRange};
use rumbench_core::tables::{Change, TableId, TableWrites, Value};
use rumbench_core::trial::{Phase, Step, Workload};

use crate::servers::{servers, with_line};

/// The column that `update-one` sets, in the row with id 1.
const C: usize = 2;

fn next(workload: &mut dyn Workload, engine: &dyn Engine) -> Phase {
    match workload.next_step(engine).unwrap() {
        Some(Step::Phase(phase)) => phase,
        _ => panic!("no phase"),
    }
}

/// The error of the client of a phase, which is to do one event.
fn conflict(mut phase: Phase) -> EngineError {
    let client = &mut phase.clients[0];
    assert!(client.prepare().is_some());
    let done = client.execute();
    done.map_or_else(|error| error, |_| panic!("a locked row was changed"))
}

/// Somebody keeps the row that an event sets, longer than it waits and as often as it tries. MyRocks waits for a second at
/// least, which a thousand times is too long for a test.
#[test]
fn a_row_that_stays_locked_is_an_error_beyond_the_limit_of_retries_and_the_next_event_goes_on() {
    for entry in servers().filter(|entry| entry.name != "mariadb-rocksdb") {
        let line = match entry.name {
            "postgresql" => "lock_timeout = 1ms",
            _ => "[mariadbd]\ninnodb_lock_wait_timeout = 0",
        };
        let pairs = [
            ("rows", "10"),
            ("operations", "2"),
            ("steps", "load,index,update-one,update-one"),
        ];
        let mut workload = OltpRange::new(Config::from_pairs(pairs).unwrap(), |_| ()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let config = OpenConfig {
            schema: workload.schema(),
            ..with_line(dir.path(), Durability::Buffered, line)
        };
        let engine = entry.open(&config);
        let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        for _ in ["load", "index"] {
            for client in &mut next(&mut workload, &*engine).clients {
                while client.prepare().is_some() {
                    client.execute().unwrap();
                }
            }
        }
        let Schema::Tables(schema) = workload.schema() else {
            panic!("a workload without tables");
        };
        let rows = engine.table_store(schema).unwrap();
        let mut keeper = rows.connect().unwrap();
        let mut found = None;
        let kept = keeper.write(&mut |writes: &mut dyn TableWrites| {
            let text = Change::Set(Value::Bytes(&[b'0'; 119]));
            assert!(writes.update(TableId(0), &[Value::Unsigned(1)], C, text)?);
            found = Some(conflict(next(&mut workload, &*engine)));
            // The row stays as it was.
            Err(EngineError::Unsupported("rolled back".to_string()))
        });
        assert!(kept.unwrap_err().to_string().contains("rolled back"));
        let words = match found {
            Some(EngineError::Retry(words)) => words,
            other => panic!("{}: {other:?}", entry.name),
        };
        let counted = words.contains("the last of 1000 attempts");
        assert!(counted, "{}: {words}", entry.name);
        // What a mark of the laboratory says behind it.
        let tail = engine.log_tail().unwrap_or_default();
        assert!(!tail.is_empty(), "{}", entry.name);
        let client = &mut next(&mut workload, &*engine).clients[0];
        assert!(client.prepare().is_some());
        let done = client.execute();
        done.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        drop((keeper, rows));
        engine.close().unwrap();
    }
}
