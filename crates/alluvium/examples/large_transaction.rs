//! Cost of a transaction larger than memory: inserts rows in random key order in one transaction,
//! reads some of them, updates some, undoes the updates, and commits.
//!
//! Prints the time of each step, the peak of resident memory so far and the bytes of the directory.
//! Compare with the same rows in transactions of 1,000 (`small`).
//!
//! `cargo run --release -p alluvium --example large_transaction -- DIR [ROWS] [MEMORY_MIB] [small]`

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::time::Instant;

use alluvium::{CursorOptions, Database, Isolation, Keyspace, KeyspaceOptions, Options};
use alluvium_testkit::process::status_bytes;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const VALUE_BYTES: usize = 100;
/// Rows of each of the small transactions.
const SMALL_ROWS: u64 = 1_000;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: large_transaction DIR [ROWS] [MEMORY_MIB] [small]";
    let dir = arguments.first().ok_or(usage)?;
    let number = |at: usize, default: usize| {
        let argument = arguments.get(at).map(|argument| argument.parse());
        argument.transpose().map(|number| number.unwrap_or(default))
    };
    let (rows, memory_mib) = (number(1, 10_000_000)? as u64, number(2, 256)?);
    let db = Database::open(
        dir,
        Options {
            memory_bytes: memory_mib << 20,
            ..Options::default()
        },
    )?;
    let k = db.keyspace("k", KeyspaceOptions::default())?;
    println!("step,seconds,peak_resident_mib,directory_mib");
    if arguments.get(3).is_some_and(|kind| kind == "small") {
        small(&db, &k, rows, dir)?;
    } else {
        large(&db, &k, rows, dir)?;
    }
    let began = Instant::now();
    let mut cursor = k.cursor(CursorOptions::default())?;
    let (mut count, mut found) = (0, cursor.seek_first()?);
    while found {
        count += 1;
        found = cursor.next()?;
    }
    if count != rows {
        return Err(format!("{count} rows are there instead of {rows}").into());
    }
    step("scan", began, dir)?;
    db.close()?;
    Ok(())
}

fn small(db: &Database, k: &Keyspace, rows: u64, dir: &str) -> Outcome<()> {
    let began = Instant::now();
    for from in (0..rows).step_by(SMALL_ROWS as usize) {
        let txn = db.begin(Isolation::Snapshot)?;
        for n in from..(from + SMALL_ROWS).min(rows) {
            txn.insert(k, &key(n), &value(n))?;
        }
        txn.commit()?;
    }
    step("inserts and commits", began, dir)
}

fn large(db: &Database, k: &Keyspace, rows: u64, dir: &str) -> Outcome<()> {
    let txn = db.begin(Isolation::Snapshot)?;
    let began = Instant::now();
    for n in 0..rows {
        txn.insert(k, &key(n), &value(n))?;
    }
    step("inserts", began, dir)?;
    let began = Instant::now();
    for n in (0..rows).step_by(97) {
        txn.get(k, &key(n))?.ok_or("an own row is missing")?;
    }
    step("reads of every 97th own row", began, dir)?;
    let savepoint = txn.savepoint();
    let began = Instant::now();
    for n in (0..rows).step_by(10) {
        txn.put(k, &key(n), b"updated")?;
    }
    step("updates of every 10th row", began, dir)?;
    let began = Instant::now();
    txn.rollback_to(savepoint)?;
    step("rollback of the updates", began, dir)?;
    let began = Instant::now();
    txn.commit()?;
    step("commit", began, dir)
}

/// Returns the key of a row: numbers in an order without a pattern, each once.
fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// Returns a value of which half is random.
fn value(n: u64) -> [u8; VALUE_BYTES] {
    let mut value = [b'a'; VALUE_BYTES];
    let mut state = n.wrapping_add(1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    for piece in value[..VALUE_BYTES / 2].chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        piece.copy_from_slice(&state.to_le_bytes()[..piece.len()]);
    }
    value
}

fn step(name: &str, began: Instant, dir: &str) -> Outcome<()> {
    let seconds = began.elapsed().as_secs_f64();
    let peak = status_bytes("VmHWM")? >> 20;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        bytes += entry?.metadata()?.len();
    }
    println!("{name},{seconds:.2},{peak},{}", bytes >> 20);
    Ok(())
}
