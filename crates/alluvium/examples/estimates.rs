//! Cost of an estimate of a range: nanoseconds of a call for a range of ten rows and for all rows
//! from a key on. Keys are numbers, as in an index of integers. The rows are in tables, or newer
//! versions of a tenth of them are in memory too.
//!
//! `cargo run --release -p alluvium --example estimates -- DIR`

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::hint::black_box;
use std::time::Instant;

use alluvium::{Database, Keyspace, KeyspaceOptions, Options};

const ROWS: u64 = 1_000_000;
/// Calls that are timed together. The shortest time is reported, because other load has not
/// disturbed it.
const CALLS: u64 = 2_000;
const ROUNDS: usize = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: estimates DIR")?;
    let options = Options {
        memory_bytes: 256 << 20,
        idle_after: None,
        ..Options::default()
    };
    let db = Database::open(&dir, options)?;
    let rows = db.keyspace("rows", KeyspaceOptions::default())?;
    println!("scenario,tables,ten_rows_ns,open_ended_ns");
    // In an order in which neighbors are far apart, so that tables overlap.
    for n in 0..ROWS {
        rows.put(&key(n * 7_919 % ROWS), &[7; 100])?;
    }
    db.flush()?;
    report("upper tables", &db, &rows)?;
    db.settle()?;
    report("last level", &db, &rows)?;
    for n in 0..ROWS / 10 {
        rows.put(&key(n * 7_919 % ROWS), &[7; 100])?;
    }
    report("and memory", &db, &rows)?;
    db.close()?;
    Ok(())
}

fn report(scenario: &str, db: &Database, rows: &Keyspace) -> alluvium::Result<()> {
    let stats = db.stats()?;
    let tables: u64 = stats
        .keyspaces
        .iter()
        .map(|k| k.upper_tables + k.last_tables)
        .sum();
    let narrow = cost(rows, Some(10))?;
    let open_ended = cost(rows, None)?;
    println!("{scenario},{tables},{narrow:.0},{open_ended:.0}");
    Ok(())
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Returns the nanoseconds of an estimate of `width` rows, or of all rows from a key on.
fn cost(rows: &Keyspace, width: Option<u64>) -> alluvium::Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for n in 0..CALLS {
            let from = n * 104_729 % ROWS;
            let end = width.map(|width| key(from + width));
            black_box(rows.estimate_range(&key(from), end.as_ref().map(|end| &end[..]))?);
        }
        best = best.min(begin.elapsed().as_nanos() as f64 / CALLS as f64);
    }
    Ok(best)
}
