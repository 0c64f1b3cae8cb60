//! Cost of the always-on counters, as a share of the calls that update them.
//!
//! The counters cannot be switched off. Their updates are therefore timed alone, in a loop over the
//! same structure (a padded array of counters in the thread's own shard, relaxed additions). The
//! same round times whole calls of the engine: cached point reads, cached steps of a cursor, and
//! buffered puts. In a loop each update waits for the previous one, but not within a call, so the
//! share is an upper bound. Rounds of all of them alternate; the medians are reported.
//!
//! `cargo run --release -p alluvium --example metrics_cost -- DIR`

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::array;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use alluvium::internal::{THREAD_SHARDS, thread_shard};
use alluvium::{CursorOptions, Database, Keyspace, KeyspaceOptions, Options};

const ROWS: u64 = 100_000;
/// Calls in one measurement.
const CALLS: u64 = 100_000;
const ROUNDS: usize = 15;

/// Updates in a cached point read from a table: sources searched, cache hit.
const UPDATES_PER_GET: f64 = 2.0;
/// A step within a block updates no counter; at least 16 rows here share the cache hit of their
/// block.
const UPDATES_PER_STEP: f64 = 1.0 / 16.0;
/// Updates in a commit: log bytes, user bytes, and the counter that selects the commits to time.
const UPDATES_PER_PUT: f64 = 3.0;
/// One buffered commit in 16 is timed, with a clock read at its beginning and at its end.
const CLOCKS_PER_PUT: f64 = 2.0 / 16.0;

/// Counters of one shard, padded to cache lines as in the engine.
#[repr(align(128))]
struct Shard([AtomicU64; 48]);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: metrics_cost DIR")?;
    let db = Database::open(&dir, Options::default())?;
    let rows = db.keyspace("rows", KeyspaceOptions::default())?;
    let written = db.keyspace("written", KeyspaceOptions::default())?;
    for n in 0..ROWS {
        rows.put(&key(n), &[7; 40])?;
    }
    rows.compact_range(&[], None)?;
    let counters: [Shard; THREAD_SHARDS] =
        array::from_fn(|_| Shard(array::from_fn(|_| AtomicU64::new(0))));
    let mut times: [Vec<f64>; 5] = array::from_fn(|_| Vec::new());
    let mut next = 0;
    // The first round is a warm-up.
    for round in 0..=ROUNDS {
        let measured = [
            update_ns(&counters),
            clock_ns(),
            get_ns(&rows)?,
            step_ns(&rows)?,
            put_ns(&written, &mut next)?,
        ];
        if round > 0 {
            times
                .iter_mut()
                .zip(measured)
                .for_each(|(all, ns)| all.push(ns));
        }
    }
    let [update, clock, get, step, put] = times.map(median);
    println!("what,ns,metrics_ns,metrics_percent");
    println!("one update,{update:.2},,");
    println!("one look at the clock,{clock:.2},,");
    let put_metrics = UPDATES_PER_PUT * update + CLOCKS_PER_PUT * clock;
    for (name, ns, metrics) in [
        ("cached get", get, UPDATES_PER_GET * update),
        ("cached next", step, UPDATES_PER_STEP * update),
        ("buffered put", put, put_metrics),
    ] {
        println!("{name},{ns:.1},{metrics:.2},{:.2}", 100.0 * metrics / ns);
    }
    Ok(())
}

fn key(n: u64) -> [u8; 8] {
    // Not in key order, and each key once: the factor is odd.
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// Returns the nanoseconds of each of `CALLS` calls.
fn timed(mut call: impl FnMut(u64) -> alluvium::Result<()>) -> alluvium::Result<f64> {
    let began = Instant::now();
    (0..CALLS).try_for_each(&mut call)?;
    Ok(began.elapsed().as_nanos() as f64 / CALLS as f64)
}

fn update_ns(counters: &[Shard; THREAD_SHARDS]) -> f64 {
    let began = Instant::now();
    for n in 0..CALLS {
        let shard = &counters[black_box(thread_shard())];
        shard.0[black_box(n as usize % 3)].fetch_add(1, Ordering::Relaxed);
    }
    began.elapsed().as_nanos() as f64 / CALLS as f64
}

fn clock_ns() -> f64 {
    let began = Instant::now();
    for _ in 0..CALLS {
        black_box(Instant::now());
    }
    began.elapsed().as_nanos() as f64 / CALLS as f64
}

fn get_ns(rows: &Keyspace) -> alluvium::Result<f64> {
    timed(|n| {
        black_box(rows.get(&key(n % ROWS))?);
        Ok(())
    })
}

fn step_ns(rows: &Keyspace) -> alluvium::Result<f64> {
    let mut cursor = rows.cursor(CursorOptions::default())?;
    cursor.seek_first()?;
    timed(|_| {
        if !cursor.next()? {
            cursor.seek_first()?;
        }
        black_box(cursor.value());
        Ok(())
    })
}

fn put_ns(written: &Keyspace, next: &mut u64) -> alluvium::Result<f64> {
    timed(|_| {
        *next += 1;
        written.put(&key(*next), &[7; 40])
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
