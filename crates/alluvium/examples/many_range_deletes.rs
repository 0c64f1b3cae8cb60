//! Cost of many range deletes: time, peak memory, bytes on disk, latency of gets, and the longest
//! wait of a put into another keyspace. Runs several shapes at three sizes, with a memory budget of
//! 256 MiB.
//!
//! `cargo run --release -p alluvium --example many_range_deletes -- DIR [SHAPE COUNT]`
//!
//! Each case runs in a child process, so that its peak memory is measured alone, and is stopped
//! after five minutes.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use alluvium::{Database, Keyspace, KeyspaceOptions, Options, Snapshot, WriteBatch};
use alluvium_testkit::process::status_bytes;

type Failure = Box<dyn std::error::Error>;

const MEMORY_BYTES: usize = 256 << 20;
const SIZES: [u64; 3] = [4_000, 16_000, 100_000];
/// `nested`: one first key, and ends that ascend. `shrinking`: one first key, and ends that
/// descend. `disjoint`: ranges with gaps between them. `snapshot`: disjoint ranges, then a
/// snapshot, then nested ranges over them. `batch-`: all in one batch.
const SHAPES: [&str; 6] = [
    "nested",
    "shrinking",
    "disjoint",
    "snapshot",
    "batch-nested",
    "batch-disjoint",
];
const TIME_LIMIT: Duration = Duration::from_secs(300);
const GETS: u64 = 20_000;

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [dir] => {
            println!("{}", Measured::HEADER);
            for shape in SHAPES {
                for count in SIZES {
                    run_child(Path::new(dir), shape, count)?;
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        [dir, shape, count] => {
            println!("{shape},{count},{}", measure(dir, shape, count.parse()?)?);
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("usage: many_range_deletes DIR [SHAPE COUNT]".into()),
    }
}

/// Measures one case in a child process.
fn run_child(dir: &Path, shape: &str, count: u64) -> Result<(), Failure> {
    let dir = dir.join(format!("{shape}-{count}"));
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command
        .arg(&dir)
        .args([shape, &count.to_string()])
        .spawn()?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > TIME_LIMIT {
            child.kill()?;
            child.wait()?;
            println!("{shape},{count},stopped after {} s", TIME_LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

#[derive(Default)]
struct Measured {
    commit: Duration,
    flush: Duration,
    reopen: Duration,
    settle: Duration,
    get_us: f64,
    longest_put: Duration,
    disk_bytes: u64,
    files: usize,
    peak_bytes: u64,
}

impl Measured {
    const HEADER: &str = "shape,range_deletes,commit_s,flush_s,reopen_s,settle_s,get_us,\
                          longest_put_ms,disk_mib_most,files_most,peak_memory_mib";
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.2},{:.2},{:.2},{:.2},{:.2},{:.1},{:.1},{},{:.0}",
            self.commit.as_secs_f64(),
            self.flush.as_secs_f64(),
            self.reopen.as_secs_f64(),
            self.settle.as_secs_f64(),
            self.get_us,
            self.longest_put.as_secs_f64() * 1e3,
            self.disk_bytes as f64 / f64::from(1 << 20),
            self.files,
            self.peak_bytes as f64 / f64::from(1 << 20),
        )
    }
}

/// Commits the range deletes, reads, flushes, opens the database again, and settles it.
fn measure(dir: &str, shape: &str, count: u64) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    let db = open(dir)?;
    let k = db.keyspace("deleted", KeyspaceOptions::default())?;
    let other = db.keyspace("other", KeyspaceOptions::default())?;
    for n in (0..count).step_by(100) {
        k.put(&key(2 * n), b"row")?;
    }
    db.flush()?;
    let stop = AtomicBool::new(false);
    measured.longest_put = std::thread::scope(|scope| -> Result<Duration, Failure> {
        let puts = scope.spawn(|| put_until(&other, &stop));
        let done = delete(&db, dir, &k, shape, count, &mut measured);
        stop.store(true, Ordering::Relaxed);
        let longest = puts.join().map_err(|_| "the thread of the puts panicked")?;
        done?;
        Ok(longest?)
    })?;
    drop((k, other));
    db.close()?;
    drop(db);
    let (db, took) = timed(|| open(dir))?;
    measured.reopen = took;
    measured.settle = timed(|| db.settle())?.1;
    measure_disk(dir, &mut measured)?;
    db.close()?;
    measured.peak_bytes = status_bytes("VmHWM")?;
    Ok(measured)
}

/// Commits the range deletes and flushes them. Meanwhile another thread puts a row into the other
/// keyspace every millisecond.
fn delete(
    db: &Database,
    dir: &str,
    k: &Keyspace,
    shape: &str,
    count: u64,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let (held, took) = timed(|| commit(db, k, shape, count))?;
    measured.commit = took;
    measure_disk(dir, measured)?;
    let began = Instant::now();
    for n in 0..GETS {
        std::hint::black_box(k.get(&key(n * 7919 % (4 * count)))?);
    }
    measured.get_us = began.elapsed().as_secs_f64() * 1e6 / GETS as f64;
    measured.flush = timed(|| db.flush())?.1;
    measure_disk(dir, measured)?;
    drop(held);
    Ok(())
}

fn commit(
    db: &Database,
    k: &Keyspace,
    shape: &str,
    count: u64,
) -> alluvium::Result<Option<Snapshot>> {
    let mut held = None;
    match shape.strip_prefix("batch-") {
        Some(shape) => {
            let mut batch = WriteBatch::new();
            for n in 0..count {
                let (start, end) = range(shape, n, count);
                batch.delete_range(k, &start, &end)?;
            }
            db.write(&batch)?;
        }
        None => {
            for n in 0..count {
                if shape == "snapshot" && n == count / 2 {
                    held = Some(db.snapshot()?);
                }
                let (start, end) = range(shape, n, count);
                k.delete_range(&start, &end)?;
            }
        }
    }
    Ok(held)
}

/// Returns the n-th range of a shape.
fn range(shape: &str, n: u64, count: u64) -> (Vec<u8>, Vec<u8>) {
    match shape {
        "nested" => (key(0), key(2 * n + 1)),
        "shrinking" => (key(0), key(2 * (count - n))),
        "snapshot" if n >= count / 2 => (key(0), key(2 * n + 1)),
        _ => (key(4 * n), key(4 * n + 2)),
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("customer/{n:012}").into_bytes()
}

fn open(dir: &str) -> alluvium::Result<Database> {
    let options = Options {
        memory_bytes: MEMORY_BYTES,
        ..Options::default()
    };
    Database::open(dir, options)
}

/// Puts a row every millisecond. Returns the longest put.
fn put_until(k: &Keyspace, stop: &AtomicBool) -> alluvium::Result<Duration> {
    let mut longest = Duration::ZERO;
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        k.put(&key(n), b"row")?;
        longest = longest.max(began.elapsed());
        n += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(longest)
}

fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, Duration), E> {
    let began = Instant::now();
    let done = work()?;
    Ok((done, began.elapsed()))
}

/// Records the size of the directory if it is the largest so far. A file counts with its allocated
/// space if that is more than its length.
fn measure_disk(dir: &str, measured: &mut Measured) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut files) = (0, 0);
    for entry in std::fs::read_dir(dir)? {
        let metadata = entry?.metadata()?;
        if metadata.is_file() {
            bytes += metadata.len().max(metadata.blocks() * 512);
            files += 1;
        }
    }
    if bytes > measured.disk_bytes {
        (measured.disk_bytes, measured.files) = (bytes, files);
    }
    Ok(())
}
