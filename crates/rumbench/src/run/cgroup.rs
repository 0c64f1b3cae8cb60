//! A control group of the kernel for one trial: what bounds its memory, page cache included.
//!
//! Version 1 and version 2 are known. The group is made below the laboratory's own, so what bounds the laboratory bounds
//! its trials too. A group that a killed laboratory left behind is removed by the next one.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::store::result::MemoryUse;

/// Groups are named with this and the laboratory's process number.
const PREFIX: &str = "rumbench-";

/// An ended process leaves its group a moment later.
const REMOVALS: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

/// Where groups that bound memory are made, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// The laboratory's own group.
    directory: PathBuf,
    files: &'static Files,
}

/// Names of a version's files.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    limit: &'static str,
    /// Without it a group would swap what it may not hold: its file, and whether that counts memory too.
    swap: (&'static str, bool),
    peak: &'static str,
    /// Has a line `oom_kill N`.
    kills: &'static str,
    /// Gives the page cache of the group back at its end.
    empty: Option<&'static str>,
}

static VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    swap: ("memory.memsw.limit_in_bytes", true),
    peak: "memory.max_usage_in_bytes",
    kills: "memory.oom_control",
    empty: Some("memory.force_empty"),
};

static VERSION_2: Files = Files {
    limit: "memory.max",
    swap: ("memory.swap.max", false),
    peak: "memory.peak",
    kills: "memory.events",
    empty: None,
};

impl Hierarchy {
    /// That of this process.
    ///
    /// # Errors
    /// When the kernel has none that bounds memory.
    pub fn of_this_process() -> Result<Hierarchy> {
        let mounts = read(Path::new("/proc/self/mounts"))?;
        let groups = read(Path::new("/proc/self/cgroup"))?;
        Hierarchy::parse(&mounts, &groups)
            .context("--memory needs control groups, and this system has none for memory")
    }

    /// From the kernel's lists of mounts and of the groups of a process.
    fn parse(mounts: &str, groups: &str) -> Option<Hierarchy> {
        let mounted = |kind: &str, option: Option<&str>| {
            mounts.lines().find_map(|line| {
                let fields: Vec<&str> = line.split(' ').collect();
                let fits = *fields.get(2)? == kind
                    && option.is_none_or(|o| {
                        fields
                            .get(3)
                            .is_some_and(|all| all.split(',').any(|x| x == o))
                    });
                fits.then(|| PathBuf::from(fields[1]))
            })
        };
        // `4:memory:/a/b` in version 1, `0::/a/b` in version 2.
        let own = |fits: &dyn Fn(&str) -> bool| {
            groups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                fits(fields.next()?).then_some(fields.next()?)
            })
        };
        let below = |root: PathBuf, group: &str| root.join(group.trim_start_matches('/'));
        let first = mounted("cgroup", Some("memory")).zip(own(&|controllers| {
            controllers.split(',').any(|c| c == "memory")
        }));
        if let Some((root, group)) = first {
            return Some(Hierarchy {
                directory: below(root, group),
                files: &VERSION_1,
            });
        }
        let (root, group) = mounted("cgroup2", None).zip(own(&str::is_empty))?;
        Some(Hierarchy {
            directory: below(root, group),
            files: &VERSION_2,
        })
    }

    /// Removes what killed laboratories have left.
    pub fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            if let Some(pid) = owner.and_then(|pid| pid.parse::<u32>().ok())
                && !Path::new(&format!("/proc/{pid}")).exists()
            {
                // One that has processes stays: the kernel refuses.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

/// One trial's group. Removed when dropped.
#[derive(Debug)]
pub struct Group {
    directory: PathBuf,
    files: &'static Files,
    limit_bytes: u64,
}

impl Group {
    /// A group that may take `limit_bytes`, for one process of this laboratory at a time.
    ///
    /// # Errors
    /// When the kernel refuses: a plain user may make groups only where they were delegated.
    pub fn new(hierarchy: &Hierarchy, limit_bytes: u64) -> Result<Group> {
        let name = format!("{PREFIX}{}", std::process::id());
        let group = Group {
            directory: hierarchy.directory.join(name),
            files: hierarchy.files,
            limit_bytes,
        };
        match fs::create_dir(&group.directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                let own = hierarchy.directory.display();
                bail!(
                    "--memory cannot make a control group in {own}: {error}; run as root, or with `systemd-run --user --scope -p Delegate=yes`"
                );
            }
            _ => {}
        }
        group.bound()?;
        Ok(group)
    }

    fn bound(&self) -> Result<()> {
        let Files { limit, swap, .. } = self.files;
        if !self.directory.join(limit).exists() {
            let own = self.directory.parent().unwrap_or(&self.directory);
            bail!(
                "--memory cannot bound a group in {}: the controller `memory` is not enabled there (cgroup.subtree_control); run as root, or with `systemd-run --user --scope -p Delegate=yes`",
                own.display()
            );
        }
        self.write(limit, self.limit_bytes)?;
        let (file, counts_memory) = *swap;
        // Kernels without an account of swap lack it.
        if self.directory.join(file).exists() {
            self.write(file, if counts_memory { self.limit_bytes } else { 0 })?;
        }
        Ok(())
    }

    /// Moves a process in. What it had before is not counted.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self, pid: u32) -> Result<()> {
        self.write("cgroup.procs", u64::from(pid))
    }

    /// What it took so far.
    pub fn memory_use(&self) -> MemoryUse {
        let text = |file| read(&self.directory.join(file)).unwrap_or_default();
        let kills = text(self.files.kills);
        let kills = kills
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "));
        MemoryUse {
            limit_bytes: self.limit_bytes,
            peak_bytes: text(self.files.peak).trim().parse().ok(),
            killed: kills.is_some_and(|n| n.trim() != "0"),
        }
    }

    fn write(&self, file: &str, number: u64) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, number.to_string())
            .with_context(|| format!("--memory cannot write {number} to {}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            if let Some(file) = self.files.empty {
                // Refused while a process is ending.
                let _ = self.write(file, 0);
            }
            match fs::remove_dir(&self.directory) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                    std::thread::sleep(REMOVAL_PAUSE);
                }
                // What stays is removed by the next laboratory.
                _ => return,
            }
        }
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";

    fn parse(mounts: &str, groups: &str) -> Option<(String, &'static str)> {
        let found = Hierarchy::parse(mounts, groups)?;
        Some((found.directory.display().to_string(), found.files.limit))
    }

    #[test]
    fn memory_is_bounded_by_the_version_that_has_its_controller() {
        let found = parse(BOTH, "7:blkio:/\n4:cpu,memory:/a/b\n0::/\n");
        let directory = "/sys/fs/cgroup/memory/a/b".to_string();
        assert_eq!(found, Some((directory, "memory.limit_in_bytes")));
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let found = parse(unified, "0::/user.slice/a:b.scope\n");
        let directory = "/sys/fs/cgroup/user.slice/a:b.scope".to_string();
        assert_eq!(found, Some((directory, "memory.max")));
        assert_eq!(parse("proc /proc proc rw 0 0\n", "0::/\n"), None);
    }

    /// A directory that looks like a group to whoever reads and writes files.
    fn pretended(files: &'static Files) -> (tempfile::TempDir, Hierarchy) {
        let root = tempfile::tempdir().expect("temporary directory");
        let directory = root.path().to_path_buf();
        (root, Hierarchy { directory, files })
    }

    #[test]
    fn a_group_without_the_controller_is_refused_with_what_to_do() {
        let (_root, hierarchy) = pretended(&VERSION_2);
        let error = Group::new(&hierarchy, 1 << 20).expect_err("no file memory.max");
        assert!(error.to_string().contains("Delegate=yes"), "{error}");
    }

    #[test]
    fn limits_are_written_and_use_is_read() {
        let (root, hierarchy) = pretended(&VERSION_2);
        let own = root.path().join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&own).expect("directory");
        fs::write(own.join("memory.max"), "max").expect("file");
        fs::write(own.join("memory.swap.max"), "max").expect("file");
        let group = Group::new(&hierarchy, 5 << 20).expect("a group");
        group.enter(17).expect("entered");
        let text = |file: &str| read(&own.join(file)).expect("file");
        assert_eq!(text("memory.max"), "5242880");
        assert_eq!(
            (text("memory.swap.max"), text("cgroup.procs")),
            ("0".into(), "17".into())
        );
        fs::write(own.join("memory.peak"), "4000000\n").expect("file");
        fs::write(own.join("memory.events"), "oom 3\noom_kill 1\n").expect("file");
        let found = group.memory_use();
        assert_eq!((found.peak_bytes, found.killed), (Some(4_000_000), true));
    }

    #[test]
    fn what_killed_laboratories_left_is_removed() {
        let (root, hierarchy) = pretended(&VERSION_2);
        let of = |pid: u32| root.path().join(format!("{PREFIX}{pid}"));
        // No process has a number this high.
        for path in [
            of(u32::MAX),
            of(std::process::id()),
            root.path().join("rumbench-x"),
        ] {
            fs::create_dir(path).expect("directory");
        }
        hierarchy.sweep();
        assert!(!of(u32::MAX).exists() && of(std::process::id()).exists());
        assert!(root.path().join("rumbench-x").exists());
    }
}
