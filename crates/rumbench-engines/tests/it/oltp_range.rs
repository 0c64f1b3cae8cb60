//! Tests of oltp-range on real servers: a conflict without end, and an insert that is not
//! prepared.

use rumbench_core::engine::{Durability, Engine, EngineError, OpenConfig, Schema};
use rumbench_core::oltp_range::{Config, OltpRange};
use rumbench_core::tables::{Change, TableId, TableWrites, Value};
use rumbench_core::trial::{Done, Phase, Step, Workload};
use rumbench_engines::EngineEntry;

use crate::every_engine::perform;
use crate::servers::{servers, with_line};

/// Column that `update-one` sets in the row with id 1.
const C: usize = 2;

/// Server with an extra line in its configuration and ten loaded rows.
struct Loaded {
    workload: OltpRange,
    engine: Box<dyn Engine>,
    // Declared last, so that it is removed after the server has ended.
    _dir: tempfile::TempDir,
}

impl Loaded {
    /// Checks each row, and ends the server.
    fn verified(self) {
        self.workload.verify(&*self.engine).unwrap();
        self.engine.close().unwrap();
    }
}

/// Starts and loads such a server, and returns it with the phase of `test`.
fn loaded(entry: &EngineEntry, line: &str, test: &str) -> (Loaded, Phase) {
    let steps = format!("load,index,{test}");
    let pairs = [("rows", "10"), ("operations", "20"), ("steps", &steps)];
    let mut workload = OltpRange::new(Config::from_pairs(pairs).unwrap(), |_| ()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = OpenConfig {
        schema: workload.schema(),
        ..with_line(dir.path(), Durability::Buffered, line)
    };
    let engine = entry.open(&config);
    let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
    for _ in ["load", "index"] {
        perform(entry.name, next(&mut workload, &*engine));
    }
    let phase = next(&mut workload, &*engine);
    let loaded = Loaded {
        workload,
        engine,
        _dir: dir,
    };
    (loaded, phase)
}

fn next(workload: &mut dyn Workload, engine: &dyn Engine) -> Phase {
    match workload.next_step(engine).unwrap() {
        Some(Step::Phase(phase)) => phase,
        _ => panic!("no phase"),
    }
}

/// Executes the next event of the phase's client.
fn event(phase: &mut Phase) -> Result<Done, EngineError> {
    let client = &mut phase.clients[0];
    assert!(client.prepare().is_some());
    client.execute()
}

/// Another client keeps the row of an event locked, longer than the event waits and for all its
/// retries. MyRocks waits for at least a second, and a thousand such waits are too long for a test.
#[test]
fn a_row_that_stays_locked_is_an_error_beyond_the_limit_of_retries_and_the_client_goes_on() {
    for entry in servers().filter(|entry| entry.name != "mariadb-rocksdb") {
        let line = match entry.name {
            "postgresql" => "lock_timeout = 1ms",
            "mariadb-alluvium" => "[mariadbd]\nalluvium_lock_wait_timeout = 0",
            _ => "[mariadbd]\ninnodb_lock_wait_timeout = 0",
        };
        let (loaded, mut phase) = loaded(entry, line, "update-one");
        let Schema::Tables(schema) = loaded.workload.schema() else {
            panic!("a workload without tables");
        };
        let rows = loaded.engine.table_store(schema).unwrap();
        let mut keeper = rows.connect().unwrap();
        let mut found = Ok(Done::default());
        let kept = keeper.write(&mut |writes: &mut dyn TableWrites| {
            let text = Change::Set(Value::Bytes(&[b'0'; 119]));
            assert!(writes.update(TableId(0), &[Value::Unsigned(1)], C, text)?);
            found = event(&mut phase);
            // The error leaves the row unchanged.
            Err(EngineError::Unsupported("rolled back".to_string()))
        });
        assert!(kept.unwrap_err().to_string().contains("rolled back"));
        let words = match found {
            Err(EngineError::Retry(words)) => words,
            other => panic!("{}: {other:?}", entry.name),
        };
        let counted = words.contains("the last of 1000 attempts");
        assert!(counted, "{}: {words}", entry.name);
        // The laboratory adds this text to the mark of such an error.
        let tail = loaded.engine.log_tail().unwrap_or_default();
        assert!(tail.contains("its log ends with"), "{}: {tail}", entry.name);
        let done = event(&mut phase);
        done.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        drop((keeper, rows, phase));
        loaded.verified();
    }
}

#[cfg(feature = "mariadb")]
#[test]
fn an_insert_is_not_prepared_and_an_update_is() {
    let executions = |engine: &dyn Engine| {
        let mut counters = engine.counters().into_iter();
        let counter = counters.find(|counter| counter.name == "prepared_executions");
        counter.expect("a counter of MariaDB").value
    };
    for entry in servers().filter(|entry| entry.name.starts_with("mariadb")) {
        for (test, expected) in [("insert", 0.0), ("update-nonindex", 20.0)] {
            let (loaded, mut phase) = loaded(entry, "[mariadbd]", test);
            let before = executions(&*loaded.engine);
            for _ in 0..20 {
                event(&mut phase).unwrap();
            }
            let grown = executions(&*loaded.engine) - before;
            assert_eq!(grown, expected, "{}: {test}", entry.name);
            drop(phase);
            loaded.verified();
        }
    }
}
