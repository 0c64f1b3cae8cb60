//! Cost of scans after writers have stopped: idle compactions should bring a scan to the cost it
//! has after a full compaction.
//!
//! ```text
//! cargo run --release -p alluvium --example idle_scan -- --keys 2000000 --idle-seconds 60 DIR
//! ```
//!
//! Loads rows, overwrites some of them so that upper tables exist, and stops writing. Reads
//! continue. Prints the cost of scans of 10 and 100 rows from random places immediately, after the
//! idle time, and after a full compaction. The limit applies to the ratio of the last two: if it is
//! over 1.1, the exit code is 3.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use alluvium::{CursorOptions, Database, Keyspace, KeyspaceOptions, Options, WriteBatch};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str =
    "usage: idle_scan [--keys N] [--value-bytes N] [--memory-mib N] [--idle-seconds N] DIR";
const SCANS: [usize; 2] = [10, 100];
const ROUNDS: usize = 15;
/// Time to run scans before they are measured, because the blocks of new tables are not in the
/// cache yet.
const WARM_UP: Duration = Duration::from_secs(5);
const RATIO_MAX: f64 = 1.1;
/// One row in this many is overwritten.
const OVERWRITTEN: u64 = 4;

struct Arguments {
    keys: u64,
    value_bytes: usize,
    memory_mib: usize,
    idle: Duration,
    dir: PathBuf,
}

fn main() -> Result<ExitCode, Failure> {
    let arguments = parse(std::env::args().skip(1))?;
    let options = Options {
        memory_bytes: arguments.memory_mib << 20,
        ..Options::default()
    };
    let db = Database::open(&arguments.dir, options)?;
    let rows = db.keyspace("rows", KeyspaceOptions::default())?;
    let mut random = Random(1);
    load(&db, &rows, &arguments, &mut random)?;
    println!("state,upper_tables,scan10_us,scan100_us");
    let scan = |state: &str, random: &mut Random| measure(&db, &rows, &arguments, state, random);
    scan("written", &mut random)?;
    let stopped = Instant::now();
    while stopped.elapsed() < arguments.idle {
        scan_at(&rows, &arguments, SCANS[0], &mut random)?;
        // A pause between reads, as a real reader makes.
        std::thread::sleep(Duration::from_micros(200));
    }
    let idle = scan("idle", &mut random)?;
    rows.compact_range(&[], None)?;
    let compacted = scan("compacted", &mut random)?;
    db.close()?;
    let mut met = true;
    for (at, rows) in SCANS.iter().enumerate() {
        let ratio = idle[at] / compacted[at];
        let verdict = if ratio <= RATIO_MAX { "met" } else { "NOT MET" };
        met &= ratio <= RATIO_MAX;
        println!(
            "# scan of {rows} rows: idle / compacted = {ratio:.3}, bar {RATIO_MAX}: {verdict}"
        );
    }
    Ok(if met {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    })
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let mut found = Arguments {
        keys: 2_000_000,
        value_bytes: 100,
        memory_mib: 256,
        idle: Duration::from_secs(60),
        dir: PathBuf::new(),
    };
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64, Failure> { Ok(words.next().ok_or(USAGE)?.parse()?) };
        match &word[..] {
            "--keys" => found.keys = number()?.max(1_000),
            "--value-bytes" => found.value_bytes = number()? as usize,
            "--memory-mib" => found.memory_mib = number()? as usize,
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

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % n
    }
}

/// Loads all rows in order and compacts them, then flushes updates spread over the range that stay
/// within the space budget.
fn load(
    db: &Database,
    rows: &Keyspace,
    arguments: &Arguments,
    random: &mut Random,
) -> Result<(), Failure> {
    let put = |keys: &mut dyn Iterator<Item = u64>, fill: u8| -> Result<(), Failure> {
        let mut value = vec![fill; arguments.value_bytes];
        let mut batch = WriteBatch::new();
        for key in keys {
            let head = value.len().min(8);
            value[..head].copy_from_slice(&key.to_le_bytes()[..head]);
            batch.put(rows, &key.to_be_bytes(), &value)?;
            if batch.len() >= 200 {
                db.write(&std::mem::take(&mut batch))?;
            }
        }
        Ok(db.write(&batch)?)
    };
    put(&mut (0..arguments.keys), b'a')?;
    rows.compact_range(&[], None)?;
    let updates = arguments.keys / OVERWRITTEN;
    for fill in [b'b', b'c', b'd'] {
        put(
            &mut (0..updates / 3).map(|_| random.below(arguments.keys)),
            fill,
        )?;
        db.flush()?;
    }
    Ok(())
}

/// Returns the microseconds of a scan of each length, as the median of the rounds.
fn measure(
    db: &Database,
    rows: &Keyspace,
    arguments: &Arguments,
    state: &str,
    random: &mut Random,
) -> Result<[f64; SCANS.len()], Failure> {
    let began = Instant::now();
    while began.elapsed() < WARM_UP {
        scan_at(rows, arguments, SCANS[1], random)?;
    }
    let mut medians = [0.0; SCANS.len()];
    for (median, length) in medians.iter_mut().zip(SCANS) {
        let scans = 200_000 / length as u32;
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for _ in 0..scans {
                scan_at(rows, arguments, length, random)?;
            }
            rounds.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(scans));
        }
        rounds.sort_by(f64::total_cmp);
        *median = rounds[ROUNDS / 2];
    }
    let upper: u64 = db.stats()?.keyspaces.iter().map(|k| k.upper_tables).sum();
    println!("{state},{upper},{:.2},{:.2}", medians[0], medians[1]);
    Ok(medians)
}

/// Reads this many rows, starting at a random place.
fn scan_at(
    rows: &Keyspace,
    arguments: &Arguments,
    length: usize,
    random: &mut Random,
) -> alluvium::Result<()> {
    let from = random.below(arguments.keys - length as u64);
    let mut cursor = rows.cursor(CursorOptions::default())?;
    let mut found = cursor.seek(&from.to_be_bytes())?;
    for _ in 1..length {
        assert!(found, "the range holds all keys");
        found = cursor.next()?;
    }
    assert!(found, "the range holds all keys");
    Ok(())
}
