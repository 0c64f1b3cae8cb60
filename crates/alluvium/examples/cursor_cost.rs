//! Cost of a row of a scan: nanoseconds of a `next` that reads key and value, and of opening a
//! cursor and finding its first row. The rows are in memory, in tables of one level, or in both.
//!
//! `cargo run --release -p alluvium --example cursor_cost -- DIR`

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::hint::black_box;
use std::time::Instant;

use alluvium::{CursorOptions, Database, Durability, Keyspace, KeyspaceOptions, Options};

const ROWS: u64 = 50_000;
const ROUNDS: usize = 40;
/// Steps that are timed together. The shortest time is reported, because other load has not
/// disturbed it.
const STEPS: u64 = 500;
const OPENS: u64 = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: cursor_cost DIR")?;
    println!("scenario,value_bytes,next_ns,prev_ns,open_and_seek_ns");
    for value_bytes in [20, 1000] {
        for scenario in ["memory", "tables", "both"] {
            run(
                scenario,
                value_bytes,
                &format!("{dir}/{scenario}{value_bytes}"),
            )?;
        }
    }
    Ok(())
}

fn run(scenario: &str, value_bytes: usize, dir: &str) -> alluvium::Result<()> {
    let options = Options {
        memory_bytes: 4 << 30,
        memtable_bytes: Some(1 << 30),
        durability: Durability::Buffered,
        idle_after: None,
        ..Options::default()
    };
    let db = Database::open(dir, options)?;
    let rows = db.keyspace("rows", KeyspaceOptions::default())?;
    let value = vec![7; value_bytes];
    for n in 0..ROWS {
        rows.put(&key(n), &value)?;
    }
    if scenario != "memory" {
        db.flush()?;
        rows.compact_range(&[], None)?;
    }
    if scenario == "both" {
        // One row in four has a newer version in memory.
        for n in (0..ROWS).step_by(4) {
            rows.put(&key(n), &value)?;
        }
    }
    let (mut next, mut prev, mut open) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        next = next.min(scan(&rows, false)?);
        prev = prev.min(scan(&rows, true)?);
        open = open.min(opens(&rows)?);
    }
    println!("{scenario},{value_bytes},{next:.1},{prev:.1},{open:.0}");
    db.close()
}

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"row-----00000000";
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Returns the nanoseconds per step of a scan of all rows.
fn scan(rows: &Keyspace, backward: bool) -> alluvium::Result<f64> {
    let mut cursor = rows.cursor(CursorOptions::default())?;
    let mut found = if backward {
        cursor.seek_last()?
    } else {
        cursor.seek_first()?
    };
    let mut shortest = f64::INFINITY;
    for _ in 0..ROWS / STEPS - 1 {
        let began = Instant::now();
        let mut sum = 0;
        for _ in 0..STEPS {
            assert!(found, "there are more rows");
            sum += u64::from(cursor.key()[15]) + u64::from(cursor.value()[0]);
            found = if backward {
                cursor.prev()?
            } else {
                cursor.next()?
            };
        }
        black_box(sum);
        shortest = began.elapsed().as_secs_f64().min(shortest);
    }
    Ok(shortest * 1e9 / STEPS as f64)
}

/// Returns the nanoseconds to open a cursor and find a row.
fn opens(rows: &Keyspace) -> alluvium::Result<f64> {
    let mut shortest = f64::INFINITY;
    for round in 0..ROWS / STEPS {
        let began = Instant::now();
        for n in 0..OPENS {
            let mut cursor = rows.cursor(CursorOptions::default())?;
            assert!(cursor.seek(&key((round + n) * 7919 % ROWS))?, "it is there");
            black_box(cursor.value()[0]);
        }
        shortest = began.elapsed().as_secs_f64().min(shortest);
    }
    Ok(shortest * 1e9 / OPENS as f64)
}
