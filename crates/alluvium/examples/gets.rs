//! Reads of data larger than the cache, from real files: throughput, CPU, cache misses, the 99.9th
//! percentile and the longest call of each phase, for each block size.
//!
//! ```text
//! cargo run --release -p alluvium --example gets -- --block-bytes 4096,8192 DIR
//! ```
//!
//! Each round makes a new database for every block size. It loads all rows in random order,
//! overwrites as many random rows, reads absent keys, rows and short ranges, then settles, and
//! reads rows and ranges again. Half of each value is random. Each read checks its row. The output
//! has the medians of the rounds; CPU is that of the whole process, so it includes background work.
//! `own_ms` is the longest call without the time in which its thread waited for a processor.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

#[path = "saturate/process.rs"]
#[expect(
    dead_code,
    reason = "shared; the size of the memory is not measured here"
)]
mod process;

use process::RunDelay;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use alluvium::{
    CursorOptions, Database, Durability, Keyspace, KeyspaceOptions, Options, WriteBatch,
};
use rustix::time::{ClockId, clock_gettime};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "usage: gets [--rows N] [--value-bytes N] [--memory-mib N] [--block-bytes N,N,...] [--threads N] [--rounds N] [--seconds N] [--idle-seconds N] DIR";
const KEY_BYTES: usize = 16;
/// Time of a call from which on its wait for a processor is subtracted.
const LONG_NS: u32 = 200_000;
const HEADER: &str =
    "block_bytes,phase,operations_per_s,cpu_us,misses,written_bytes,longest_ms,own_ms,p999_us";

struct Arguments {
    rows: u64,
    value_bytes: usize,
    memory_mib: usize,
    block_bytes: Vec<usize>,
    threads: u64,
    rounds: usize,
    /// Time of each read phase.
    read: Duration,
    /// `Options::idle_after`; 0 disables idle work.
    idle: Duration,
    dir: PathBuf,
}

/// Operation of a phase.
#[derive(Clone, Copy)]
enum Operation {
    Load,
    Overwrite,
    GetAbsent,
    Get,
    Scan(usize),
}

/// A phase: name and operation; `None` settles the database.
const PHASES: [(&str, Option<Operation>); 9] = [
    ("load", Some(Operation::Load)),
    ("overwrite", Some(Operation::Overwrite)),
    ("get absent", Some(Operation::GetAbsent)),
    ("get", Some(Operation::Get)),
    ("scan 10", Some(Operation::Scan(10))),
    ("settle", None),
    ("get settled", Some(Operation::Get)),
    ("scan 10 settled", Some(Operation::Scan(10))),
    ("scan 100 settled", Some(Operation::Scan(100))),
];

/// Measures of a phase, in the order of [`HEADER`].
type Measures = [f64; 7];

fn main() -> Result<(), Failure> {
    let arguments = parse(std::env::args().skip(1))?;
    let mut all = vec![vec![Vec::new(); PHASES.len()]; arguments.block_bytes.len()];
    for round in 0..arguments.rounds {
        for (at, &block_bytes) in arguments.block_bytes.iter().enumerate() {
            let dir = arguments.dir.join(format!("{block_bytes}"));
            let measured = run(&arguments, block_bytes, round as u64, &dir)?;
            std::fs::remove_dir_all(&dir)?;
            for (phase, measures) in all[at].iter_mut().zip(measured) {
                phase.push(measures);
            }
        }
    }
    println!("{HEADER}");
    for (block_bytes, phases) in arguments.block_bytes.iter().zip(all) {
        for ((name, _), rounds) in PHASES.iter().zip(phases) {
            let [rate, cpu, misses, written, longest, own, p999] = medians(&rounds);
            println!(
                "{block_bytes},{name},{rate:.0},{cpu:.2},{misses:.2},{written:.0},{longest:.1},{own:.1},{p999:.0}"
            );
        }
    }
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let mut found = Arguments {
        rows: 1_500_000,
        value_bytes: 200,
        memory_mib: 96,
        block_bytes: vec![KeyspaceOptions::default().block_bytes],
        threads: 2,
        rounds: 1,
        read: Duration::from_secs(5),
        idle: Options::default().idle_after.unwrap_or_default(),
        dir: PathBuf::new(),
    };
    while let Some(word) = words.next() {
        if word == "--block-bytes" {
            let list = words.next().ok_or(USAGE)?;
            let sizes = list.split(',').map(str::parse);
            found.block_bytes = sizes.collect::<Result<_, _>>()?;
            continue;
        }
        let mut number = || -> Result<u64, Failure> { Ok(words.next().ok_or(USAGE)?.parse()?) };
        match &word[..] {
            "--rows" => found.rows = number()?.max(1_000),
            "--value-bytes" => found.value_bytes = number()? as usize,
            "--memory-mib" => found.memory_mib = number()? as usize,
            "--threads" => found.threads = number()?.max(1),
            "--rounds" => found.rounds = number()?.max(1) as usize,
            "--seconds" => found.read = Duration::from_secs(number()?),
            "--idle-seconds" => found.idle = Duration::from_secs(number()?),
            option if option.starts_with("--") => return Err(USAGE.into()),
            dir => found.dir = dir.into(),
        }
    }
    if found.dir.as_os_str().is_empty() {
        Err(USAGE.into())
    } else {
        Ok(found)
    }
}

/// Returns the measures of each phase on a new database in `dir`.
fn run(
    arguments: &Arguments,
    block_bytes: usize,
    round: u64,
    dir: &Path,
) -> Result<Vec<Measures>, Failure> {
    let options = Options {
        memory_bytes: arguments.memory_mib << 20,
        durability: Durability::Buffered,
        idle_after: (!arguments.idle.is_zero()).then_some(arguments.idle),
        ..Options::default()
    };
    let db = Database::open(dir, options)?;
    let keyspace_options = KeyspaceOptions {
        block_bytes,
        ..KeyspaceOptions::default()
    };
    let rows = db.keyspace("rows", keyspace_options)?;
    let mut all = Vec::with_capacity(PHASES.len());
    for (number, (_, operation)) in PHASES.iter().enumerate() {
        let seed = round * PHASES.len() as u64 + number as u64 + 1;
        all.push(measure(arguments, &db, &rows, *operation, seed)?);
    }
    db.close()?;
    Ok(all)
}

fn measure(
    arguments: &Arguments,
    db: &Database,
    rows: &Keyspace,
    operation: Option<Operation>,
    seed: u64,
) -> Result<Measures, Failure> {
    let before = db.stats()?;
    let (cpu, start) = (process_cpu_us(), Instant::now());
    let (mut times, own) = match operation {
        None => {
            db.settle()?;
            let time = nanoseconds(start.elapsed());
            (vec![time], time)
        }
        Some(operation) => clients(arguments, db, rows, operation, seed)?,
    };
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), process_cpu_us() - cpu);
    let after = db.stats()?;
    times.sort_unstable();
    let operations = times.len() as f64;
    let each = |total: u64| total as f64 / operations;
    let ns = |at: usize| times.get(at).copied().map_or(0.0, f64::from);
    Ok([
        operations / seconds,
        cpu / operations,
        each(after.cache_misses - before.cache_misses),
        each(after.table_bytes_written - before.table_bytes_written),
        ns(times.len() - 1) / 1e6,
        f64::from(own) / 1e6,
        ns(times.len() * 999 / 1000) / 1e3,
    ])
}

/// Runs an operation on all threads. Returns the times of all calls, and the longest one without
/// waits for a processor, in nanoseconds.
fn clients(
    arguments: &Arguments,
    db: &Database,
    rows: &Keyspace,
    operation: Operation,
    seed: u64,
) -> Result<(Vec<u32>, u32), Failure> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.threads)
            .map(|n| {
                let client = Client {
                    arguments,
                    db,
                    rows,
                    random: Random::new(seed * arguments.threads + n),
                    n,
                };
                scope.spawn(move || client.run(operation))
            })
            .collect();
        let (mut times, mut own) = (Vec::new(), 0);
        for thread in threads {
            let mut client = thread.join().map_err(|_| "a client panicked")??;
            times.append(&mut client.0);
            own = own.max(client.1);
        }
        Ok((times, own))
    })
}

struct Client<'a> {
    arguments: &'a Arguments,
    db: &'a Database,
    rows: &'a Keyspace,
    random: Random,
    /// Number of this client, below the number of threads.
    n: u64,
}

impl Client<'_> {
    fn run(mut self, operation: Operation) -> Result<(Vec<u32>, u32), Failure> {
        let share = self.arguments.rows / self.arguments.threads;
        let mut times = Vec::with_capacity(share as usize);
        let (mut run_delay, mut own) = (RunDelay::of_this_thread()?, 0);
        let start = Instant::now();
        let mut before = start;
        loop {
            let done = times.len() as u64;
            let ended = match operation {
                Operation::Load | Operation::Overwrite => done == share,
                _ => before - start >= self.arguments.read,
            };
            if ended {
                return Ok((times, own));
            }
            self.operate(operation, done)?;
            let now = Instant::now();
            let time = nanoseconds(now - before);
            times.push(time);
            // Reading the delay takes as long as a short call.
            if time >= LONG_NS || done.is_multiple_of(256) {
                own = own.max(time.saturating_sub(nanoseconds(run_delay.since_last()?)));
            }
            before = Instant::now();
        }
    }

    fn operate(&mut self, operation: Operation, done: u64) -> Result<(), Failure> {
        let rows = self.arguments.rows;
        match operation {
            Operation::Load => self.put(done * self.arguments.threads + self.n),
            Operation::Overwrite => {
                let row = self.random.next() % rows;
                self.put(row)
            }
            Operation::GetAbsent => {
                let row = rows + self.random.next() % rows;
                let found = self.rows.get(&key(row))?;
                if found.is_some() {
                    return Err(format!("row {row} exists").into());
                }
                Ok(())
            }
            Operation::Get => {
                let row = self.random.next() % rows;
                let value = self.rows.get(&key(row))?;
                let value = value.ok_or_else(|| format!("row {row} is missing"))?;
                check(row, &value)
            }
            Operation::Scan(length) => {
                let row = self.random.next() % rows;
                self.scan(row, length)
            }
        }
    }

    fn put(&mut self, row: u64) -> Result<(), Failure> {
        let value = value(row, self.arguments.value_bytes, &mut self.random);
        let mut batch = WriteBatch::new();
        batch.put(self.rows, &key(row), &value)?;
        Ok(self.db.write(&batch)?)
    }

    /// Reads up to `length` rows, beginning with `row`.
    fn scan(&mut self, row: u64, length: usize) -> Result<(), Failure> {
        let mut cursor = self.rows.cursor(CursorOptions::default())?;
        let from = key(row);
        let mut found = cursor.seek(&from)?;
        if !found || cursor.key() != from {
            return Err(format!("row {row} is missing").into());
        }
        check(row, cursor.value())?;
        for _ in 1..length {
            found = found && cursor.next()?;
            if found {
                std::hint::black_box(cursor.value());
            }
        }
        Ok(())
    }
}

fn nanoseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

/// Returns the key of a row. Neighbors in key order have unrelated numbers.
fn key(row: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let spread = row.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    key[..8].copy_from_slice(&spread.to_be_bytes());
    key[8..].copy_from_slice(&row.to_be_bytes());
    key
}

/// Returns a value: the row's number, random bytes up to the half, then one byte repeated.
fn value(row: u64, bytes: usize, random: &mut Random) -> Vec<u8> {
    let mut value = row.to_le_bytes().to_vec();
    while value.len() < bytes / 2 {
        value.extend_from_slice(&random.next().to_le_bytes());
    }
    value.resize(bytes.max(8), b'v');
    value
}

fn check(row: u64, value: &[u8]) -> Result<(), Failure> {
    if value.starts_with(&row.to_le_bytes()) {
        Ok(())
    } else {
        Err(format!("row {row} has the value of another row").into())
    }
}

fn medians(rounds: &[Measures]) -> Measures {
    std::array::from_fn(|at| {
        let mut sorted: Vec<f64> = rounds.iter().map(|measures| measures[at]).collect();
        sorted.sort_by(f64::total_cmp);
        f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
    })
}

/// Returns the processor time of the process in microseconds.
fn process_cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}
