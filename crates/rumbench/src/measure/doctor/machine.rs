//! Facts of a machine: those that the kernel shows, and results of short tests.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;

use anyhow::Result;

use super::device;
use crate::measure::counters::Counters;
use crate::measure::{environment, size};
use crate::profile::Samplers;
use crate::run::cgroup::{Bound, Bounds};

/// Bounds for the test of control groups.
const GROUP_BYTES: u64 = 64 << 20;
const GROUP_OPERATIONS_PER_S: u64 = 1_000;

/// Facts of a machine; None means unknown.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    pub(super) facts: BTreeMap<String, String>,
    /// True if clock speed changes with heat and load.
    pub(super) turbo: Option<bool>,
    /// Kinds of events that the processor counts for this user.
    pub(super) counters: Vec<&'static str>,
    /// Result of the test of stack samples: the part that the kernel leaves out, or its refusal.
    pub(super) samples: Option<Result<Option<&'static str>, String>>,
    /// Processes that are running or waiting for a CPU, mean of the last minute.
    pub(super) load: Option<f64>,
    pub(super) free_bytes: Option<u64>,
    /// Result of the test of control groups, by the option that needs them.
    pub(super) groups: Vec<(&'static str, Result<(), String>)>,
    pub(super) may_drop_caches: bool,
    pub(super) fsync_us: Option<f64>,
    pub(super) fdatasync_us: Option<f64>,
    pub(super) reads_per_s: Option<Result<f64, String>>,
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

    /// Returns a fact of the environment by name.
    pub(super) fn fact(&self, name: &str) -> Option<&str> {
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
