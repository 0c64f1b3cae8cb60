//! Cost of the largest value: a value of 1 GiB is written, flushed and read back, and a value of
//! one byte more is refused.
//!
//! Prints the time of each step and the process's peak anonymous memory since the previous step,
//! including the caller's own copy of the value. Takes 5 GiB of memory and 6 GiB of disk.
//!
//! `cargo run --release -p alluvium --example large_value -- DIR`

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alluvium::{Database, Error, KeyspaceOptions, Options, VALUE_BYTES_MAX};
use alluvium_testkit::process::status_bytes;

/// Interval between samples of the process's memory.
const LOOK: Duration = Duration::from_millis(2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: large_value DIR")?;
    let memory = Memory::watch();
    println!("step,seconds,anonymous_mib_max");
    for (name, separate) in [("in rows", None), ("apart", Some(1 << 20))] {
        run(&format!("{dir}/{name}"), name, separate, &memory)?;
    }
    Ok(())
}

fn run(
    dir: &str,
    name: &str,
    value_separation_bytes: Option<usize>,
    memory: &Memory,
) -> Result<(), Box<dyn std::error::Error>> {
    let options = Options {
        // The value, its key, and the overhead of a row in a batch.
        transaction_bytes: Some(VALUE_BYTES_MAX + (1 << 20)),
        ..Options::default()
    };
    let db = Database::open(dir, options.clone())?;
    let keyspace_options = KeyspaceOptions {
        value_separation_bytes,
        ..KeyspaceOptions::default()
    };
    let k = db.keyspace("k", keyspace_options.clone())?;
    let mut value = random(VALUE_BYTES_MAX + 1);
    match k.put(b"too large", &value) {
        Err(error @ Error::InvalidArgument(_)) => println!("# one byte more: {error}"),
        other => return Err(format!("1 GiB + 1 was not refused: {other:?}").into()),
    }
    value.pop();
    memory.step(&format!("{name}: value made"), Instant::now());
    let began = Instant::now();
    k.put(b"large", &value)?;
    memory.step(&format!("{name}: put"), began);
    let began = Instant::now();
    let read = k.get(b"large")?.ok_or("the value is gone")?;
    if read[..] != value[..] {
        return Err("the value in memory is another one".into());
    }
    drop(read);
    memory.step(&format!("{name}: get from memory"), began);
    let began = Instant::now();
    db.flush()?;
    memory.step(&format!("{name}: flush"), began);
    db.close()?;
    drop((k, db));
    let db = Database::open(dir, options)?;
    let k = db.keyspace("k", keyspace_options)?;
    let began = Instant::now();
    let read = k.get(b"large")?.ok_or("the value is gone")?;
    if read[..] != value[..] {
        return Err("the value in its file is another one".into());
    }
    memory.step(&format!("{name}: get from its file"), began);
    Ok(())
}

/// Returns bytes that no codec compresses.
fn random(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut out = vec![0; bytes];
    for piece in out.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        piece.copy_from_slice(&state.to_le_bytes()[..piece.len()]);
    }
    out
}

/// Peak anonymous memory of the process.
struct Memory {
    bytes_max: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Memory {
    fn watch() -> Memory {
        let (bytes_max, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (max, stopped) = (Arc::clone(&bytes_max), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                max.fetch_max(anonymous_bytes(), Ordering::Relaxed);
                std::thread::sleep(LOOK);
            }
        });
        Memory { bytes_max, stop }
    }

    /// Prints the time and memory of a step that began at `began`.
    fn step(&self, name: &str, began: Instant) {
        let seconds = began.elapsed().as_secs_f64();
        let bytes = self
            .bytes_max
            .swap(0, Ordering::Relaxed)
            .max(anonymous_bytes());
        println!("{name},{seconds:.2},{}", bytes >> 20);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn anonymous_bytes() -> u64 {
    status_bytes("RssAnon").unwrap_or(0)
}
