//! Facts of a machine that influence or spoil a measurement: one finding for each fact, with
//! advice.
//!
//! [`Machine::look`] reads the facts; [`findings`] judges them and is pure.

mod device;
mod judged;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::{environment, size};
use crate::profile::Samplers;
use crate::run::cgroup::{Bound, Bounds};

pub use judged::findings;

/// Bounds for the test of control groups.
const GROUP_BYTES: u64 = 64 << 20;
const GROUP_OPERATIONS_PER_S: u64 = 1_000;

/// Advice for a kernel that refuses samples.
pub const PROFILE_ADVICE: &str =
    "run as root, or allow it with `sysctl kernel.perf_event_paranoid=1`";

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing to do.
    Good,
    /// For information; nothing is wrong.
    Note,
    /// The machine may distort measurements.
    Warning,
}

/// One fact, judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Subject of the finding.
    pub about: Cow<'static, str>,
    /// Severity of the finding.
    pub verdict: Verdict,
    /// Observed fact.
    pub found: String,
    /// Advice or consequence; empty if there is none.
    pub advice: String,
}

/// Facts of a machine; None means unknown.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    facts: BTreeMap<String, String>,
    /// True if clock speed changes with heat and load.
    turbo: Option<bool>,
    /// Kinds of events that the processor counts for this user.
    counters: Vec<&'static str>,
    /// Result of the test of stack samples: the part that the kernel leaves out, or its refusal.
    samples: Option<Result<Option<&'static str>, String>>,
    /// Processes that are running or waiting for a CPU, mean of the last minute.
    load: Option<f64>,
    free_bytes: Option<u64>,
    /// Result of the test of control groups, by the option that needs them.
    groups: Vec<(&'static str, Result<(), String>)>,
    may_drop_caches: bool,
    fsync_us: Option<f64>,
    fdatasync_us: Option<f64>,
    reads_per_s: Option<Result<f64, String>>,
}

impl Machine {
    /// Reads the facts of the machine and, if `device` is set, tests the device of a folder for
    /// about a second.
    ///
    /// # Errors
    /// When the folder is not writable.
    pub fn look(dir: &Path, device: bool) -> Result<Machine> {
        let read = |path: &str| fs::read_to_string(path).ok();
        let number = |path: &str| read(path)?.split_whitespace().next()?.parse::<f64>().ok();
        let off = number("/sys/devices/system/cpu/intel_pstate/no_turbo").map(|off| off == 0.0);
        let on = number("/sys/devices/system/cpu/cpufreq/boost").map(|on| on == 1.0);
        let (fsync_us, fdatasync_us) = if device {
            device::syncs(dir)?
        } else {
            (None, None)
        };
        let reads = device.then(|| device::random_reads(dir));
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

/// Tests each kind of group once.
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

/// Tests if the kernel samples this process.
fn samples() -> Result<Option<&'static str>, String> {
    let attached = Samplers::attach(std::process::id());
    attached
        .map(|samplers| samplers.lacks())
        .map_err(|error| error.to_string())
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
