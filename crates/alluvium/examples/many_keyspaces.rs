//! Cost of many small keyspaces: time and CPU of creations, device syncs, memory, descriptors, the
//! flush of all of them and the next opening. Runs with 100, 1,000 and 10,000 keyspaces of ten
//! 100-byte rows at a memory budget of 64 MiB and 1,024 descriptors.
//!
//! `cargo run --release -p alluvium --example many_keyspaces -- DIR [KEYSPACES...]`
//!
//! Each size runs in two processes: the first fills the database, the second opens it again. Their
//! resident memory is therefore measured separately.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alluvium::vfs::{FaultVfs, IoCall, RealVfs};
use alluvium::{Database, Keyspace, KeyspaceOptions, Options};
use alluvium_testkit::process::status_bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

const SIZES: [usize; 3] = [100, 1_000, 10_000];
const ROWS: usize = 10;
const VALUE_BYTES: usize = 100;
const MEMORY_BYTES: usize = 64 << 20;
const DESCRIPTORS: u64 = 1_024;
/// Number of creations over which the median is taken.
const SAMPLE: usize = 50;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [mode, dir, keyspaces] if mode == "fill" => fill(dir, keyspaces.parse()?),
        [mode, dir, keyspaces] if mode == "open" => open(dir, keyspaces.parse()?),
        [dir, sizes @ ..] => {
            let sizes: Result<Vec<usize>, _> = sizes.iter().map(|size| size.parse()).collect();
            let mut sizes = sizes?;
            if sizes.is_empty() {
                sizes.extend(SIZES);
            }
            println!("keyspaces,measure,value");
            sizes.into_iter().try_for_each(|size| run(dir, size))
        }
        [] => Err("usage: many_keyspaces DIR [KEYSPACES...]".into()),
    }
}

/// Fills and opens one database, each in its own process.
fn run(dir: &str, keyspaces: usize) -> Outcome<()> {
    let dir = format!("{dir}/{keyspaces}");
    for mode in ["fill", "open"] {
        let program = std::env::current_exe()?;
        let arguments = [mode, &dir, &keyspaces.to_string()];
        let status = Command::new(program).args(arguments).status()?;
        if !status.success() {
            println!("{keyspaces},{mode},failed");
        }
    }
    Ok(())
}

fn options() -> Options {
    Options {
        memory_bytes: MEMORY_BYTES,
        // The sync thread must not add to the syncs that are counted.
        sync_interval: Duration::from_secs(3_600),
        idle_after: None,
        ..Options::default()
    }
}

fn name(n: usize) -> String {
    format!("keyspace-{n:06}")
}

fn key(n: usize) -> [u8; 8] {
    (n as u64).to_be_bytes()
}

/// Lowers the process's descriptor limit to [`DESCRIPTORS`].
fn limit_descriptors() -> Outcome<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(DESCRIPTORS);
    Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
}

fn fill(dir: &str, keyspaces: usize) -> Outcome<()> {
    limit_descriptors()?;
    let show = |measure: &str, value: String| println!("{keyspaces},{measure},{value}");
    let vfs = FaultVfs::new(Arc::new(RealVfs::new()));
    let syncs = || vfs.calls(IoCall::Sync);
    let db = Database::open_on(Arc::new(vfs.clone()), dir, options())?;
    let before = resident_bytes()?;
    let mut cpu_us = Vec::with_capacity(keyspaces);
    let (began, synced) = (Instant::now(), syncs());
    let mut handles: Vec<Keyspace> = Vec::with_capacity(keyspaces);
    for n in 0..keyspaces {
        let began = cpu_time_us();
        handles.push(db.keyspace(&name(n), KeyspaceOptions::default())?);
        cpu_us.push(cpu_time_us() - began);
    }
    show("create_all_s", seconds(began));
    show("create_first_cpu_us", median(&cpu_us[..SAMPLE]));
    show("create_last_cpu_us", median(&cpu_us[keyspaces - SAMPLE..]));
    let synced = syncs() - synced;
    let per_creation = synced as f64 / keyspaces as f64;
    show("create_syncs_each", format!("{per_creation:.2}"));
    let resident = resident_bytes()?.saturating_sub(before);
    show("empty_resident_mib", mib(resident));
    show("empty_charged_mib", mib(db.stats()?.memory.total()));

    let value = [7; VALUE_BYTES];
    let began = Instant::now();
    for keyspace in &handles {
        for row in 0..ROWS {
            keyspace.put(&key(row), &value)?;
        }
    }
    show("fill_s", seconds(began));
    let began = Instant::now();
    db.flush()?;
    show("flush_s", seconds(began));
    show("descriptors", descriptors()?.to_string());
    show("flush_charged_mib", mib(db.stats()?.memory.total()));
    show("flush_peak_resident_mib", mib(peak_resident_bytes()?));
    // Writes a second table in each keyspace.
    let (began, synced) = (Instant::now(), syncs());
    for keyspace in &handles {
        keyspace.put(&key(0), &value)?;
    }
    db.flush()?;
    show("flush_one_row_each_s", seconds(began));
    show("flush_one_row_each_syncs", (syncs() - synced).to_string());
    show("charged_mib", mib(db.stats()?.memory.total()));
    show("peak_resident_mib", mib(peak_resident_bytes()?));
    db.close()?;
    drop(handles);
    show("disk_mib", mib(disk_bytes(dir)?));
    Ok(())
}

fn open(dir: &str, keyspaces: usize) -> Outcome<()> {
    limit_descriptors()?;
    let show = |measure: &str, value: String| println!("{keyspaces},{measure},{value}");
    let began = Instant::now();
    let db = Database::open(dir, options())?;
    show("open_s", seconds(began));
    show("open_resident_mib", mib(resident_bytes()?));
    show("open_charged_mib", mib(db.stats()?.memory.total()));
    show("open_descriptors", descriptors()?.to_string());
    let began = Instant::now();
    for n in 0..keyspaces {
        let keyspace = db
            .existing_keyspace(&name(n))?
            .ok_or("a keyspace is missing")?;
        for row in 0..ROWS {
            let value = keyspace.get(&key(row))?.ok_or("a row is missing")?;
            if value[..] != [7; VALUE_BYTES] {
                return Err("a row has another value".into());
            }
        }
    }
    show("read_all_s", seconds(began));
    show("read_descriptors", descriptors()?.to_string());
    show("read_peak_resident_mib", mib(peak_resident_bytes()?));
    Ok(db.close()?)
}

fn cpu_time_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

fn seconds(began: Instant) -> String {
    format!("{:.2}", began.elapsed().as_secs_f64())
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn median(numbers: &[u64]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2].to_string()
}

fn descriptors() -> Outcome<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

fn resident_bytes() -> Outcome<u64> {
    Ok(status_bytes("VmRSS")?)
}

fn peak_resident_bytes() -> Outcome<u64> {
    Ok(status_bytes("VmHWM")?)
}

fn disk_bytes(dir: &str) -> Outcome<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        bytes += entry?.metadata()?.blocks() * 512;
    }
    Ok(bytes)
}
