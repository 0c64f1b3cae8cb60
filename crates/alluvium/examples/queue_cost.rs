//! Cost of reading the head of a queue while deleted rows wait for a compaction: `first()` and a
//! scan of 10 rows. Runs with 0 to 1,000,000 pending deletes, in memory, flushed, and with the
//! default options.
//!
//! `cargo run --release -p alluvium --example queue_cost -- DIR`

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::time::Instant;

use alluvium::{
    CursorOptions, Database, Durability, Keyspace, KeyspaceOptions, Options, WriteBatch,
};

const ROWS: u64 = 1_200_000;
const PENDING: [u64; 5] = [0, 1_000, 10_000, 100_000, 1_000_000];
/// Rounds of each measurement, over which the median is taken.
const ROUNDS: usize = 15;
const LOOKS: u32 = 2_000;

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"job-----00000000";
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: queue_cost DIR")?;
    println!("scenario,pending_deletes,first_us,scan10_us,first_deepest_us");
    // `memory` flushes nothing, `flushed` has no compaction due, `defaults` is the default options.
    let memory = Options {
        memory_bytes: 4 << 30,
        memtable_bytes: Some(1 << 30),
        ..Options::default()
    };
    let flushed = Options {
        memory_bytes: 1 << 30,
        upper_fraction: 1.0,
        ..Options::default()
    };
    let defaults = Options::default();
    for (name, options) in [
        ("memory", memory),
        ("flushed", flushed),
        ("defaults", defaults),
    ] {
        run(name, &format!("{dir}/{name}"), options)?;
    }
    Ok(())
}

fn run(name: &str, dir: &str, options: Options) -> alluvium::Result<()> {
    let options = Options {
        durability: Durability::Buffered,
        idle_after: None,
        ..options
    };
    let db = Database::open(dir, options)?;
    let queue = db.keyspace("queue", KeyspaceOptions::default())?;
    write(&db, 0..ROWS, |batch, n| {
        batch.put(&queue, &key(n), &[7; 100])
    })?;
    if name != "memory" {
        db.settle()?;
    }
    let mut deleted = 0;
    for pending in PENDING {
        write(&db, deleted..pending, |batch, n| {
            batch.delete(&queue, &key(n))
        })?;
        deleted = pending;
        if name == "flushed" {
            db.flush()?;
        }
        // The first read steps over all pending deletes; later reads do not.
        let began = Instant::now();
        look(&queue, 1)?;
        let deepest = began.elapsed();
        let first = median(|| look(&queue, 1))?;
        let scan = median(|| look(&queue, 10))?;
        println!(
            "{name},{pending},{first:.2},{scan:.2},{:.1}",
            deepest.as_secs_f64() * 1e6
        );
    }
    db.close()
}

fn write(
    db: &Database,
    rows: std::ops::Range<u64>,
    add: impl Fn(&mut WriteBatch, u64) -> alluvium::Result<()>,
) -> alluvium::Result<()> {
    let mut at = rows.start;
    while at < rows.end {
        let mut batch = WriteBatch::new();
        for n in at..rows.end.min(at + 100) {
            add(&mut batch, n)?;
        }
        db.write(&batch)?;
        at += 100;
    }
    Ok(())
}

/// Reads the first rows of the queue.
fn look(queue: &Keyspace, rows: usize) -> alluvium::Result<()> {
    let mut cursor = queue.cursor(CursorOptions::default())?;
    let mut found = cursor.seek_first()?;
    for _ in 1..rows {
        assert!(found, "the queue is not empty");
        found = cursor.next()?;
    }
    assert!(found, "the queue is not empty");
    Ok(())
}

/// Returns the microseconds of one read, as the median of the rounds.
fn median(look: impl Fn() -> alluvium::Result<()>) -> alluvium::Result<f64> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..LOOKS {
            look()?;
        }
        rounds.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(LOOKS));
    }
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[ROUNDS / 2])
}
