//! Judges the facts of a machine.

use std::borrow::Cow;

use super::machine::Machine;
use crate::store::finding::{Finding, Verdict};
use crate::text::{count, microseconds};

/// Smallest free space without a warning, in GiB.
const FREE_GIB: f64 = 10.0;

/// Advice for a kernel that refuses samples.
pub const PROFILE_ADVICE: &str =
    "run as root, or allow it with `sysctl kernel.perf_event_paranoid=1`";

/// Returns the findings for all facts of a machine.
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

/// Returns a good finding, or another verdict with advice.
fn judged(about: &'static str, good: bool, bad: Verdict, found: &str, advice: &str) -> Finding {
    if good {
        finding(about, Verdict::Good, found, "")
    } else {
        finding(about, bad, found, advice)
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

/// Returns the findings from the test of the device.
fn tried(machine: &Machine) -> Vec<Finding> {
    let mut all = Vec::new();
    let synced = |us: Option<f64>| us.map_or("unknown".to_string(), microseconds);
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
                microseconds(1e6 / reads)
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

/// Returns the findings about the features that `--profile` needs.
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
