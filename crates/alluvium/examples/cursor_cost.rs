//! What a row of a scan costs: nanoseconds of a `next` with a look at key and value, and of opening a cursor and finding
//! its first row, over rows in memory, in tables of one level, and in both.
//!
//! `cargo run --release -p alluvium --example cursor_cost -- DIR`

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::time::Instant;

use alluvium::{CursorOptions, Database, Durability, Keyspace, KeyspaceOptions, Options};

const ROWS: u64 = 100_000;
/// Rounds of each measurement; the shortest is shown, which others on the machine have disturbed least.
const ROUNDS: usize = 40;
const OPENS: u64 = 5_000;

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
        // One row of four is newer.
        for n in (0..ROWS).step_by(4) {
            rows.put(&key(n), &value)?;
        }
    }
    let next = shortest(ROWS, || scan(&rows, false))?;
    let prev = shortest(ROWS, || scan(&rows, true))?;
    let open = shortest(OPENS, || open(&rows))?;
    println!("{scenario},{value_bytes},{next:.1},{prev:.1},{open:.0}");
    db.close()
}

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"row-----00000000";
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Reads all rows; the sum keeps the look at them from being optimised away.
fn scan(rows: &Keyspace, backward: bool) -> alluvium::Result<u64> {
    let mut cursor = rows.cursor(CursorOptions::default())?;
    let mut found = if backward {
        cursor.seek_last()?
    } else {
        cursor.seek_first()?
    };
    let mut sum = 0;
    while found {
        sum += u64::from(cursor.key()[15]) + u64::from(cursor.value()[0]);
        found = if backward {
            cursor.prev()?
        } else {
            cursor.next()?
        };
    }
    Ok(sum)
}

fn open(rows: &Keyspace) -> alluvium::Result<u64> {
    let mut sum = 0;
    for n in 0..OPENS {
        let mut cursor = rows.cursor(CursorOptions::default())?;
        assert!(cursor.seek(&key(n * 7919 % ROWS))?, "the row is there");
        sum += u64::from(cursor.value()[0]);
    }
    Ok(sum)
}

/// Nanoseconds of one of `steps`, in the shortest round.
fn shortest(steps: u64, run: impl Fn() -> alluvium::Result<u64>) -> alluvium::Result<f64> {
    let (mut shortest, mut sum) = (f64::INFINITY, 0);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        sum += run()?;
        shortest = began.elapsed().as_secs_f64().min(shortest);
    }
    assert_ne!(sum, 0, "rows were read");
    Ok(shortest * 1e9 / steps as f64)
}
