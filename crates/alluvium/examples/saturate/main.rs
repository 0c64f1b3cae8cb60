//! Writers at full speed over a key space several times the memory budget: commit latency, memory
//! and disk space, checked against the promised limits.
//!
//! ```text
//! cargo run --release -p alluvium --example saturate -- \
//!     --seconds 600 --clients 2 --memory-mib 256 --keys 4000000 --value-bytes 400 \
//!     --durability buffered DIR
//! ```
//!
//! Prints a line of CSV every ten seconds, then the sums and three limits. The exit code is 3 if a
//! limit was not met:
//!
//! - **Commits**: none takes longer than 100 ms, excluding time without a core. In that time its
//!   thread, or another client's thread that wrote for it, was ready and no core was free, or the
//!   hypervisor had taken a core away (see [`steal`]). The run delay of background threads is
//!   unknown: measure on a quiet machine.
//! - **Memory**: anonymous memory of the process is at most 1.05 times the memory budget plus 32
//!   MiB.
//! - **Space**: see [`space`].
//!
//! For a commit that lasts over 60 ms the kernel stacks of all threads go to stderr (see
//! [`watcher`]).
//!
//! `--readers` adds threads that read random rows, so that the cache fills its share of the memory
//! budget as well.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

mod arguments;
mod clients;
mod latency;
mod process;
mod space;
mod steal;
mod watcher;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alluvium::{Database, KeyspaceOptions, Options, Stats};

use arguments::Arguments;
use clients::{SlowCommit, read_rows, write_rows};
use latency::Latencies;
use process::rss_anon_bytes;
use steal::Steal;
use watcher::InFlight;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const MIB: f64 = (1 << 20) as f64;
/// Interval between samples of memory and space.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
const LINE_EVERY: Duration = Duration::from_secs(10);
/// A commit that takes longer than this is reported by itself.
const SLOW: Duration = Duration::from_millis(100);
/// Memory allowed on top of the memory budget: stacks, buffers of the process, allocator overhead.
const MEMORY_SLACK_BYTES: f64 = 32.0 * MIB;
const MEMORY_FACTOR: f64 = 1.05;

/// State shared by the threads of a run.
struct Course {
    began: Instant,
    stop: AtomicBool,
    /// Latencies of the interval that the next line reports.
    interval: Mutex<Latencies>,
    reads: AtomicU64,
}

/// Largest values seen.
#[derive(Default)]
struct Peaks {
    rss_anon_bytes: u64,
    disk_bytes: u64,
    charged_bytes: u64,
}

fn main() -> Result<ExitCode, Failure> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let options = Options {
        memory_bytes: arguments.memory_mib << 20,
        durability: arguments.durability,
        ..Options::default()
    };
    let db = Database::open(&arguments.dir, options.clone())?;
    let rows = db.keyspace("rows", KeyspaceOptions::default())?;
    let course = Course {
        began: Instant::now(),
        stop: AtomicBool::new(false),
        interval: Mutex::default(),
        reads: AtomicU64::new(0),
    };
    let began = course.began;
    let mut peaks = Peaks::default();
    let in_flight: Vec<InFlight> = (0..arguments.clients)
        .map(|_| InFlight::default())
        .collect();
    let (latencies, slow, steal) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..arguments.clients)
            .map(|n| {
                scope.spawn({
                    let (rows, course, arguments) = (&rows, &course, &arguments);
                    let in_flight = &in_flight[n as usize];
                    move || write_rows(rows, n, arguments, course, in_flight)
                })
            })
            .collect();
        for n in 0..arguments.readers {
            let (rows, course, arguments) = (&rows, &course, &arguments);
            scope.spawn(move || read_rows(rows, n, arguments, course));
        }
        let watcher = scope.spawn(|| watcher::watch(&in_flight, &course));
        let watched = watch(&db, &arguments, &course, began, &mut peaks);
        course.stop.store(true, Ordering::Relaxed);
        let mut all = (Latencies::default(), Vec::new());
        for client in clients {
            let (latencies, slow) = client.join().map_err(|_| "a client panicked")??;
            all.0.add(&latencies);
            all.1.extend(slow);
        }
        let steal = watcher.join().map_err(|_| "the watcher panicked")??;
        watched.map(|()| (all.0, all.1, steal))
    })?;
    let seconds = began.elapsed().as_secs_f64();
    report_commits(&latencies, seconds, &db.stats()?);
    let commits_met = report_slow(&slow, &steal);
    let memory_met = report_memory(&peaks, arguments.memory_mib);
    let space_met = space::report(&db, &rows, &arguments.dir, &options, peaks.disk_bytes)?;
    db.close()?;
    let met = commits_met && memory_met && space_met;
    Ok(if met {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    })
}

/// Samples the process and the directory until the time is over, and prints the lines.
fn watch(
    db: &Database,
    arguments: &Arguments,
    course: &Course,
    began: Instant,
    peaks: &mut Peaks,
) -> Result<(), Failure> {
    println!(
        "second,commits_per_s,p50_us,p99_us,max_us,reads_per_s,rss_anon_mib,charged_mib,memtables_mib,cache_mib,tables_mib,jobs_mib,transactions_mib,disk_mib,delayed_commits,upper_tables"
    );
    let (mut line_at, mut reads) = (began, 0);
    while began.elapsed() < arguments.duration {
        std::thread::sleep(SAMPLE_EVERY);
        let rss = rss_anon_bytes()?;
        let disk = space::disk_bytes(&arguments.dir)?;
        let stats = db.stats()?;
        peaks.rss_anon_bytes = peaks.rss_anon_bytes.max(rss);
        peaks.disk_bytes = peaks.disk_bytes.max(disk);
        peaks.charged_bytes = peaks.charged_bytes.max(stats.memory.total());
        let elapsed = line_at.elapsed();
        if elapsed >= LINE_EVERY {
            line_at = Instant::now();
            let interval = std::mem::take(&mut *course.interval.lock().map_err(|_| "poisoned")?);
            let reads_now = course.reads.load(Ordering::Relaxed);
            let per_s = |n: u64| n as f64 / elapsed.as_secs_f64();
            let (commits_per_s, reads_per_s) = (per_s(interval.count()), per_s(reads_now - reads));
            reads = reads_now;
            print_line(
                began.elapsed(),
                commits_per_s,
                reads_per_s,
                &interval,
                &stats,
                (rss, disk),
            );
        }
    }
    Ok(())
}

fn print_line(
    at: Duration,
    commits_per_s: f64,
    reads_per_s: f64,
    interval: &Latencies,
    stats: &Stats,
    (rss, disk): (u64, u64),
) {
    let mib = |bytes: u64| bytes as f64 / MIB;
    let memory = &stats.memory;
    let upper: u64 = stats.keyspaces.iter().map(|k| k.upper_tables).sum();
    println!(
        "{:.0},{commits_per_s:.0},{},{},{},{reads_per_s:.0},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.0},{},{upper}",
        at.as_secs_f64(),
        interval.quantile_us(0.5),
        interval.quantile_us(0.99),
        interval.max_us(),
        mib(rss),
        mib(memory.total()),
        mib(memory.memtable_bytes),
        mib(memory.cache_bytes),
        mib(memory.table_bytes),
        mib(memory.job_bytes),
        mib(memory.transaction_bytes),
        mib(disk),
        stats.delayed_commits,
    );
}

fn report_commits(latencies: &Latencies, seconds: f64, stats: &Stats) {
    let commits = latencies.count();
    println!();
    println!(
        "commits: {commits} in {seconds:.1} s, {:.0} a second",
        commits as f64 / seconds
    );
    println!(
        "commit time in us: p50 {}, p99 {}, p99.9 {}, max {}",
        latencies.quantile_us(0.5),
        latencies.quantile_us(0.99),
        latencies.quantile_us(0.999),
        latencies.max_us(),
    );
    println!(
        "delayed commits: {}, {:.1} s in all; waits at the ceiling: {}; flushes: {}, merges: {}",
        stats.delayed_commits,
        stats.delay_us as f64 / 1e6,
        stats.ceiling_waits,
        stats.flushes,
        stats.compactions,
    );
}

/// Returns true if no commit took over [`SLOW`] after its time without a core is subtracted. That
/// time is the run delay of its own thread and of other clients' threads, which may have been
/// writing for both, or the steal time. The two may overlap, so only the larger one is subtracted.
fn report_slow(commits: &[SlowCommit], steal: &Steal) -> bool {
    let slow: Vec<_> = commits.iter().filter(|c| c.took > SLOW).collect();
    println!("commits over {} ms: {}", SLOW.as_millis(), slow.len());
    let mut own = 0;
    for commit in slow {
        let during = |c: &&SlowCommit| {
            c.client != commit.client && c.at < commit.at + commit.took && commit.at < c.at + c.took
        };
        let others = commits.iter().filter(during).map(|c| c.run_delay);
        let others: Duration = others.sum();
        let stolen = steal.between(commit.at, commit.at + commit.took);
        let delayed = stolen.max(commit.run_delay + others);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "  client {} at {:.3} s: {:.1} ms; ready without a core: itself {:.1} ms, other clients meanwhile {:.1} ms; a core away: {} ms",
            commit.client,
            commit.at.as_secs_f64(),
            ms(commit.took),
            ms(commit.run_delay),
            ms(others),
            stolen.as_millis(),
        );
        own += usize::from(commit.took.saturating_sub(delayed) > SLOW);
    }
    println!(
        "bar: no commit over {} ms of its own: {own}, {}",
        SLOW.as_millis(),
        verdict(own == 0)
    );
    own == 0
}

fn report_memory(peaks: &Peaks, memory_mib: usize) -> bool {
    let limit = MEMORY_FACTOR * memory_mib as f64 * MIB + MEMORY_SLACK_BYTES;
    let met = peaks.rss_anon_bytes as f64 <= limit;
    println!(
        "memory: at most {:.1} MiB charged by the engine to its number of {memory_mib}",
        peaks.charged_bytes as f64 / MIB,
    );
    println!(
        "bar: anonymous memory {:.1} MiB of 1.05 x {memory_mib} + 32 = {:.1} MiB, {}",
        peaks.rss_anon_bytes as f64 / MIB,
        limit / MIB,
        verdict(met),
    );
    met
}

/// Returns the words that report a limit as met or not.
fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "NOT MET" }
}
