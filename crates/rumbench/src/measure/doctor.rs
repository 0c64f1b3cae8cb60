//! Facts of a machine that influence or spoil a measurement: one finding for each fact, with
//! advice.
//!
//! [`Machine::look`] reads the facts; [`findings`] judges them and is pure.

mod device;
mod judged;
mod machine;

pub use judged::{PROFILE_ADVICE, findings};
pub use machine::Machine;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::finding::Verdict;

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
