//! What of a machine decides or spoils a measurement: one finding for each fact, with what to do about it.
//!
//! Facts are read in one place ([`Machine::look`]) and judged in another ([`findings`]), which is pure. The device is tried with
//! files of its own in the data folder: how long a sync of one written page takes, and how many pages it reads in a second.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::statistics::median;
use super::{environment, size};
use crate::profile::Samplers;
use crate::report::html::label_us;
use crate::report::table::count;
use crate::run::cgroup::{Bound, Bounds};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Syncs that are timed.
const SYNCS: usize = 50;
/// Bytes of the file that is read at random.
const FILE_BYTES: u64 = 64 << 20;
/// How long it is read.
const READING: Duration = Duration::from_millis(500);
/// Smallest free space that is no reason to worry, in GiB.
const FREE_GIB: f64 = 10.0;
/// Bounds for the trial of control groups.
const GROUP_BYTES: u64 = 64 << 20;
const GROUP_OPERATIONS_PER_S: u64 = 1_000;

/// What to do where the kernel refuses samples.
pub const PROFILE_ADVICE: &str =
    "run as root, or allow it with `sysctl kernel.perf_event_paranoid=1`";

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing to do.
    Good,
    /// To know; nothing is wrong.
    Note,
    /// Numbers may suffer.
    Warning,
}

/// One fact, judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub about: Cow<'static, str>,
    /// How serious it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it, or what follows from it; empty where nothing does.
    pub advice: String,
}

/// What was found on a machine; absent: it could not be told.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    facts: BTreeMap<String, String>,
    /// Whether clock speed changes with heat and load.
    turbo: Option<bool>,
    /// Kinds of events that the processor counts for this user.
    counters: Vec<&'static str>,
    /// Whether the kernel samples functions, and what it leaves out.
    samples: Option<Result<Option<&'static str>, String>>,
    /// Processes that want a CPU, mean of the last minute.
    load: Option<f64>,
    free_bytes: Option<u64>,
    /// What control groups can bound, by the option that needs them.
    groups: Vec<(&'static str, Result<(), String>)>,
    may_drop_caches: bool,
    fsync_us: Option<f64>,
    fdatasync_us: Option<f64>,
    reads_per_s: Option<Result<f64, String>>,
}

impl Machine {
    /// Looks at the machine, and tries the device of a folder where that is wanted, for about a second.
    ///
    /// # Errors
    /// When nothing can be written into the folder.
    pub fn look(dir: &Path, device: bool) -> Result<Machine> {
        let read = |path: &str| fs::read_to_string(path).ok();
        let number = |path: &str| read(path)?.split_whitespace().next()?.parse::<f64>().ok();
        let off = number("/sys/devices/system/cpu/intel_pstate/no_turbo").map(|off| off == 0.0);
        let on = number("/sys/devices/system/cpu/cpufreq/boost").map(|on| on == 1.0);
        let (fsync_us, fdatasync_us) = match device {
            true => syncs(dir)?,
            false => (None, None),
        };
        let reads = device.then(|| random_reads(dir));
        let caches = OpenOptions::new()
            .write(true)
            .open("/proc/sys/vm/drop_caches");
        Ok(Machine {
            facts: environment::describe(dir),
            turbo: off.or(on),
            counters: Counters::open().names(),
            samples: Some(samples()),
            load: number("/proc/loadavg"),
            free_bytes: size::free_bytes(dir).ok(),
            groups: groups(dir),
            may_drop_caches: caches.is_ok(),
            fsync_us,
            fdatasync_us,
            reads_per_s: reads.map(|reads| reads.map_err(|error| format!("{error:#}"))),
        })
    }

    fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }
}

/// A file that goes with its value.
struct Scratch(std::path::PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Medians of the time that a sync of one written page takes, with all of the file's attributes and without.
fn syncs(dir: &Path) -> Result<(Option<f64>, Option<f64>)> {
    let path = Scratch(dir.join("rumbench-doctor-sync"));
    let mut file = File::create(&path.0)
        .with_context(|| format!("cannot write into {}; choose another --dir", dir.display()))?;
    let page = [1u8; PAGE];
    let mut timed = |sync: fn(&File) -> std::io::Result<()>| -> std::io::Result<Option<f64>> {
        let mut times = Vec::new();
        for _ in 0..SYNCS {
            file.write_all(&page)?;
            let start = Instant::now();
            sync(&file)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(&times))
    };
    Ok((timed(File::sync_all)?, timed(File::sync_data)?))
}

/// Pages read at random in a second by one thread, past the page cache.
fn random_reads(dir: &Path) -> Result<f64> {
    let path = Scratch(dir.join("rumbench-doctor-read"));
    let mut file = File::create(&path.0)?;
    // Bytes that do not compress: a device may store zeros as nothing.
    let mut chunk = vec![0u8; 1 << 20];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for _ in 0..FILE_BYTES >> 20 {
        for word in chunk.chunks_exact_mut(8) {
            word.copy_from_slice(&next(&mut state).to_le_bytes());
        }
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    drop(file);
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(direct)
        .open(&path.0)
        .context("the file system has no direct reads")?;
    // Direct reads want an aligned buffer: one of two pages always holds an aligned page.
    let mut buffer = vec![0u8; 2 * PAGE];
    let shift = buffer.as_ptr().align_offset(PAGE);
    let page = &mut buffer[shift..shift + PAGE];
    let (start, mut reads) = (Instant::now(), 0u32);
    while start.elapsed() < READING {
        let place = next(&mut state) % (FILE_BYTES / PAGE as u64);
        file.read_exact_at(page, place * PAGE as u64)
            .context("cannot read past the page cache")?;
        reads += 1;
    }
    Ok(f64::from(reads) / start.elapsed().as_secs_f64())
}

/// xorshift64.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Everything that was found, judged.
pub fn findings(machine: &Machine) -> Vec<Finding> {
    let mut all = processor(machine);
    all.extend(memory(machine));
    all.extend(storage(machine));
    all.extend(permissions(machine));
    all
}

fn finding(
    about: &'static str,
    verdict: Verdict,
    found: impl Into<String>,
    advice: &str,
) -> Finding {
    Finding {
        about: Cow::Borrowed(about),
        verdict,
        found: found.into(),
        advice: advice.to_string(),
    }
}

/// Good with its fact, or another verdict with advice.
fn judged(about: &'static str, good: bool, bad: Verdict, found: &str, advice: &str) -> Finding {
    match good {
        true => finding(about, Verdict::Good, found, ""),
        false => finding(about, bad, found, advice),
    }
}

fn processor(machine: &Machine) -> Vec<Finding> {
    let cpus: f64 = machine
        .fact("cpus")
        .and_then(|n| n.parse().ok())
        .unwrap_or(1.0);
    let mut all = vec![finding(
        "cpu",
        Verdict::Good,
        format!("{cpus} CPUs ({})", machine.fact("cpu").unwrap_or("unknown")),
        "",
    )];
    all.push(match machine.fact("cpu_governor") {
        Some(governor) => judged(
            "cpu governor", governor == "performance", Verdict::Warning, governor,
            "clock speed follows load, so short phases are slower: cpupower frequency-set -g performance",
        ),
        None => finding("cpu governor", Verdict::Note, "not visible", "usual on virtual machines; the host decides"),
    });
    all.extend(machine.turbo.map(|on| judged(
        "turbo", !on, Verdict::Note, if on { "on" } else { "off" },
        "clock speed depends on heat and on how many CPUs work: compare interleaved trials only, or switch it off",
    )));
    all.extend(machine.load.map(|load| {
        judged(
            "load",
            load < cpus * 0.25,
            Verdict::Warning,
            &format!("{load:.2} in the last minute"),
            "something else is running: end it, or numbers will scatter",
        )
    }));
    all.extend(machine.fact("clock_source").map(|source| judged(
        "clock source", matches!(source, "tsc" | "kvm-clock" | "arch_sys_counter"), Verdict::Warning, source,
        "reading this clock is slow, and every operation reads it twice: boot with clocksource=tsc where the CPU has it",
    )));
    all
}

fn memory(machine: &Machine) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    all.extend(
        machine
            .fact("memory")
            .map(|memory| finding("memory", Verdict::Good, memory, "")),
    );
    all.extend(machine.fact("swap").map(|swap| judged(
        "swap", swap.starts_with("0 "), Verdict::Warning, swap,
        "an engine that is swapped out measures the swap device: swapoff -a, or --memory, which does not swap",
    )));
    all.extend(machine.fact("transparent_huge_pages").map(|pages| judged(
        "transparent huge pages", !pages.contains("[always]"), Verdict::Note, pages,
        "engines with large caches may stall while pages are merged: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )));
    all
}

fn storage(machine: &Machine) -> Vec<Finding> {
    let mut all = Vec::new();
    let kind = machine.fact("file_system").unwrap_or("unknown");
    let options = machine.fact("mount_options").unwrap_or("unknown options");
    let found = format!("{kind} ({options})");
    let advice = match kind {
        "tmpfs" | "ramfs" => "data lie in memory and syncs cost nothing: choose a --out on a disk",
        "overlay" | "nfs" | "nfs4" | "fuse" | "9p" | "virtiofs" => {
            "not the disk itself: choose a --out on a local file system"
        }
        "btrfs" | "zfs" => "copies what is overwritten, which B-trees pay for; ext4 and xfs do not",
        _ => "",
    };
    all.push(judged(
        "file system",
        advice.is_empty(),
        Verdict::Warning,
        &found,
        advice,
    ));
    let device = machine.fact("device").unwrap_or("unknown");
    all.push(judged(
        "device",
        !device.starts_with("none"),
        Verdict::Note,
        device,
        "no counters of the device: what is read and written is counted for the process",
    ));
    all.extend(machine.free_bytes.map(|bytes| {
        let gib = bytes as f64 / f64::from(1 << 30);
        judged(
            "free space",
            gib >= FREE_GIB,
            Verdict::Warning,
            &format!("{gib:.1} GiB"),
            "full devices are slow, and a suite needs three times its data",
        )
    }));
    all.extend(tried(machine));
    all
}

/// What the device did when it was tried.
fn tried(machine: &Machine) -> Vec<Finding> {
    let mut all = Vec::new();
    let synced = |us: Option<f64>| us.map_or("unknown".to_string(), label_us);
    let fast = machine.fdatasync_us.is_some_and(|us| us < 20.0);
    let found = format!(
        "fsync {}, fdatasync {} for one page",
        synced(machine.fsync_us),
        synced(machine.fdatasync_us)
    );
    let syncs = judged(
        "syncs",
        !fast,
        Verdict::Warning,
        &found,
        "faster than devices are: a cache answers, and may lose what it has; --durability sync means little here",
    );
    all.extend(machine.fdatasync_us.map(|_| syncs));
    all.extend(machine.reads_per_s.as_ref().map(|reads| match reads {
        Ok(reads) => finding(
            "random reads",
            Verdict::Good,
            format!(
                "{} pages of 4 KiB a second by one thread, {} each",
                count(Some(*reads)),
                label_us(1e6 / reads)
            ),
            "",
        ),
        Err(why) => finding(
            "random reads",
            Verdict::Note,
            format!("not measured: {why}"),
            "",
        ),
    }));
    all
}

/// Tries each kind of group once.
fn groups(dir: &Path) -> Vec<(&'static str, Result<(), String>)> {
    let tried = |bound: Result<Bound>| {
        let bounds = bound.and_then(|bound| Bounds::new([bound]));
        bounds.map(drop).map_err(|error| format!("{error:#}"))
    };
    vec![
        ("--memory", tried(Ok(Bound::Memory(GROUP_BYTES)))),
        (
            "--storage",
            tried(Bound::operations(dir, GROUP_OPERATIONS_PER_S)),
        ),
    ]
}

fn permissions(machine: &Machine) -> Vec<Finding> {
    let mut all = vec![judged(
        "page cache",
        machine.may_drop_caches,
        Verdict::Note,
        if machine.may_drop_caches {
            "may be dropped before each trial"
        } else {
            "may not be dropped"
        },
        "trials begin with whatever is cached, which results say: run as root where cold reads matter",
    )];
    all.extend(machine.groups.iter().map(|(option, found)| {
        let (verdict, text) = match found {
            Ok(()) => (Verdict::Good, format!("{option} can bound trials")),
            Err(why) => (Verdict::Note, format!("{option} is not available: {why}")),
        };
        finding("control groups", verdict, text, "")
    }));
    all.extend(profiling(machine));
    all
}

/// Tries to sample this process.
fn samples() -> Result<Option<&'static str>, String> {
    let attached = Samplers::attach(std::process::id());
    attached
        .map(|samplers| samplers.lacks())
        .map_err(|error| error.to_string())
}

/// What `--profile` can do.
fn profiling(machine: &Machine) -> Vec<Finding> {
    let counters = match machine.counters.as_slice() {
        [] => "none".to_string(),
        some => some.join(", "),
    };
    let counts = judged(
        "hardware counters",
        !machine.counters.is_empty(),
        Verdict::Note,
        &counters,
        "results have no instructions and cycles for each operation: usual on virtual machines, whose host would have to pass them on",
    );
    let sampled = machine.samples.as_ref().map(|samples| match samples {
        Ok(None) => finding(
            "stack samples",
            Verdict::Good,
            "--profile can take them",
            "",
        ),
        Ok(Some(lacks)) => finding("stack samples", Verdict::Note, *lacks, PROFILE_ADVICE),
        Err(why) => finding("stack samples", Verdict::Note, why.as_str(), PROFILE_ADVICE),
    });
    std::iter::once(counts).chain(sampled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(pairs: &[(&str, &str)]) -> Machine {
        let pairs = pairs.iter();
        Machine {
            facts: pairs.map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            turbo: Some(false),
            counters: vec!["instructions"],
            samples: Some(Ok(None)),
            load: Some(0.1),
            free_bytes: Some(100 << 30),
            groups: vec![("--memory", Ok(()))],
            may_drop_caches: true,
            fsync_us: Some(900.0),
            fdatasync_us: Some(800.0),
            reads_per_s: Some(Ok(10_000.0)),
        }
    }

    const GOOD: &[(&str, &str)] = &[
        ("cpu", "A CPU"),
        ("cpus", "8"),
        ("cpu_governor", "performance"),
        ("clock_source", "tsc"),
        ("memory", "32 GB"),
        ("swap", "0 kB"),
        ("transparent_huge_pages", "always [madvise] never"),
        ("file_system", "ext4"),
        ("mount_options", "rw,noatime"),
        ("device", "nvme0n1"),
    ];

    fn worried(machine: &Machine) -> Vec<String> {
        let all = findings(machine);
        let bad = all.iter().filter(|of| of.verdict != Verdict::Good);
        bad.map(|of| {
            assert!(!of.advice.is_empty(), "{of:?} says what to do");
            of.about.to_string()
        })
        .collect()
    }

    #[test]
    fn a_good_machine_has_nothing_to_do() {
        assert!(worried(&machine(GOOD)).is_empty());
    }

    #[test]
    fn every_fault_is_found_and_says_what_to_do() {
        let mut bad = machine(&[
            ("cpus", "2"),
            ("cpu_governor", "powersave"),
            ("clock_source", "acpi_pm"),
            ("swap", "2097148 kB"),
            ("transparent_huge_pages", "[always] madvise never"),
            ("file_system", "tmpfs"),
            ("device", "none visible; I/O is counted by process"),
        ]);
        bad.turbo = Some(true);
        bad.load = Some(1.5);
        bad.free_bytes = Some(1 << 30);
        bad.fdatasync_us = Some(1.0);
        bad.may_drop_caches = false;
        bad.counters.clear();
        bad.samples = Some(Err("refused".to_string()));
        assert_eq!(
            worried(&bad),
            [
                "cpu governor",
                "turbo",
                "load",
                "clock source",
                "swap",
                "transparent huge pages",
                "file system",
                "device",
                "free space",
                "syncs",
                "page cache",
                "hardware counters",
                "stack samples"
            ]
        );
    }

    #[test]
    fn looking_at_this_machine_leaves_nothing_in_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let found = |device| findings(&Machine::look(dir.path(), device).unwrap());
        let tried = |device| found(device).iter().any(|of| of.about == "syncs");
        assert!(tried(true) && !tried(false));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let missing = dir.path().join("missing");
        let error = Machine::look(&missing, true).unwrap_err().to_string();
        assert!(error.contains("choose another --dir"), "{error}");
    }
}
