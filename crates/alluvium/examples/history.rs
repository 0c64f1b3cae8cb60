//! A fixed set of operations for the history of the engine: `cargo xtask history` builds this
//! program with old commits too, so it uses only the oldest part of the interface.
//!
//! ```text
//! cargo run --release -p alluvium --example history -- SCENE OPERATIONS DIR
//! ```
//!
//! Prints one line: CPU of the process in microseconds per operation, KiB written to the device per
//! operation with the settle, and MiB of the directory. The preparation of a scene is not counted.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::path::Path;

use alluvium::{
    CursorOptions, Database, Isolation, Keyspace, KeyspaceOptions, Options, WriteBatch,
};

type Failure = Box<dyn Error>;

/// Rows that are there before the operations.
const ROWS: u64 = 50_000;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [scene, operations, dir] = &arguments[..] else {
        return Err("usage: history SCENE OPERATIONS DIR".into());
    };
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    let db = Database::open(Path::new(dir), options)?;
    let rows = db.keyspace("rows", KeyspaceOptions::default())?;
    load(&db, &rows)?;
    let table = Table::open(&db)?;
    if scene == "l.i1" {
        table.fill(&db)?;
    }
    let before = Used::now()?;
    run(scene, operations.parse()?, &db, &rows, &table)?;
    db.settle()?;
    let used = Used::now()?.since(&before);
    let operations: f64 = operations.parse()?;
    db.close()?;
    println!(
        "{:.4} {:.5} {:.3}",
        used.cpu_us / operations,
        used.written_bytes / 1024.0 / operations,
        directory_bytes(Path::new(dir))? / f64::from(1 << 20)
    );
    Ok(())
}

/// Numbers in an order that looks random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// Half of it is random.
fn value(n: u64) -> [u8; 120] {
    let mut numbers = Numbers(n);
    std::array::from_fn(|i| if i < 60 { numbers.next(256) as u8 } else { 7 })
}

fn load(db: &Database, rows: &Keyspace) -> Result<(), Failure> {
    for n in 0..ROWS {
        rows.put(&key(n), &value(n))?;
    }
    db.settle()?;
    Ok(())
}

fn run(
    scene: &str,
    operations: u64,
    db: &Database,
    rows: &Keyspace,
    table: &Table,
) -> Result<(), Failure> {
    let mut numbers = Numbers(1);
    match scene {
        "get" => {
            for _ in 0..operations {
                let found = rows.get(&key(numbers.next(ROWS)))?;
                assert!(found.is_some());
            }
        }
        "scan" => {
            for _ in 0..operations {
                let mut cursor = rows.cursor(CursorOptions::default())?;
                let mut there = cursor.seek(&key(numbers.next(ROWS)))?;
                for _ in 0..9 {
                    there = there && cursor.next()?;
                }
            }
        }
        "put" => {
            for n in 0..operations {
                rows.put(&key(numbers.next(ROWS)), &value(n))?;
            }
        }
        "linkbench" => linkbench(operations, db, rows)?,
        "l.i1" => table.run(operations, db)?,
        other => return Err(format!("there is no scene {other}").into()),
    }
    Ok(())
}

/// Mix like LinkBench's: half gets, a third scans of a list, the rest transactions that change a
/// row under its lock and add another.
fn linkbench(operations: u64, db: &Database, rows: &Keyspace) -> Result<(), Failure> {
    let links = db.keyspace("links", KeyspaceOptions::default())?;
    let mut numbers = Numbers(2);
    for n in 0..operations {
        let id = numbers.next(ROWS);
        match numbers.next(10) {
            0..5 => drop(rows.get(&key(id))?),
            5..8 => {
                let mut cursor = links.cursor(CursorOptions::prefix(&key(id % 1000)))?;
                let mut there = cursor.seek_first()?;
                for _ in 0..9 {
                    there = there && cursor.next()?;
                }
            }
            _ => {
                let transaction = db.begin(Isolation::Snapshot)?;
                drop(transaction.get_for_update(rows, &key(id))?);
                transaction.put(rows, &key(id), &value(n))?;
                let link = [key(id % 1000), n.to_be_bytes()].concat();
                transaction.put(&links, &link, &value(n)[..40])?;
                transaction.commit()?;
            }
        }
    }
    Ok(())
}

/// Table of the Insert Benchmark with three indexes. Step `l.i1` alternates transactions of 50
/// inserts of the newest rows and of 50 deletes of the oldest ones. An operation is a row inserted
/// and one deleted.
struct Table {
    table: Keyspace,
    indexes: Vec<Keyspace>,
}

impl Table {
    const ROWS: u64 = 20_000;
    const BATCH: u64 = 50;

    fn open(db: &Database) -> Result<Table, Failure> {
        let open = |name| db.keyspace(name, KeyspaceOptions::default());
        Ok(Table {
            table: open("table")?,
            indexes: ["i1", "i2", "i3"]
                .into_iter()
                .map(open)
                .collect::<Result<_, _>>()?,
        })
    }

    fn fill(&self, db: &Database) -> Result<(), Failure> {
        for n in (0..Table::ROWS).step_by(Table::BATCH as usize) {
            self.insert(db, n)?;
        }
        Ok(())
    }

    fn run(&self, operations: u64, db: &Database) -> Result<(), Failure> {
        for n in (0..operations).step_by(Table::BATCH as usize) {
            self.insert(db, Table::ROWS + n)?;
            self.delete(db, n)?;
        }
        Ok(())
    }

    fn entry(n: u64, index: usize) -> Vec<u8> {
        [key(n + index as u64), n.to_be_bytes()].concat()
    }

    fn insert(&self, db: &Database, first: u64) -> Result<(), Failure> {
        let mut batch = WriteBatch::new();
        for n in first..first + Table::BATCH {
            batch.put(&self.table, &n.to_be_bytes(), &value(n))?;
            for (i, index) in self.indexes.iter().enumerate() {
                batch.put(index, &Table::entry(n, i), b"")?;
            }
        }
        Ok(db.write(&batch)?)
    }

    fn delete(&self, db: &Database, first: u64) -> Result<(), Failure> {
        let mut batch = WriteBatch::new();
        for n in first..first + Table::BATCH {
            batch.delete(&self.table, &n.to_be_bytes())?;
            for (i, index) in self.indexes.iter().enumerate() {
                batch.delete(index, &Table::entry(n, i))?;
            }
        }
        Ok(db.write(&batch)?)
    }
}

/// Use of resources since the start of the process.
struct Used {
    cpu_us: f64,
    written_bytes: f64,
}

impl Used {
    fn now() -> Result<Used, Failure> {
        // Ticks of 10 ms in user and system mode are the 14th and 15th field; the second one, the
        // name, may have blanks.
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        let io = std::fs::read_to_string("/proc/self/io")?;
        let written = io
            .lines()
            .find_map(|line| line.strip_prefix("write_bytes: "));
        Ok(Used {
            cpu_us: ticks * 10_000.0,
            written_bytes: written.ok_or("no write_bytes")?.parse()?,
        })
    }

    fn since(&self, before: &Used) -> Used {
        Used {
            cpu_us: self.cpu_us - before.cpu_us,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

fn directory_bytes(dir: &Path) -> Result<f64, Failure> {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir)? {
        let metadata = entry?.metadata()?;
        if metadata.is_file() {
            sum += metadata.len();
        }
    }
    Ok(sum as f64)
}
