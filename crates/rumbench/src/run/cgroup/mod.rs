//! Control groups of the kernel for one trial. They bound its memory, page cache included, and its
//! operations on a device.
//!
//! Versions 1 and 2 are supported. The next laboratory removes groups left by a killed one.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use self::hierarchy::Controller;
use self::hierarchy::{Hierarchy, PREFIX, Version};
use crate::measure::device::{Device, DeviceNumber};
use crate::store::result::MemoryUse;

mod hierarchy;

/// Number of attempts to remove a group, because a process leaves its group shortly after its end.
const REMOVALS: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

/// Upper limit for a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Memory in bytes, page cache included.
    Memory(u64),
    /// Reads per second of a device, and equally many writes.
    Operations(DeviceNumber, u64),
}

impl Bound {
    /// Returns a bound of `per_s` reads per second, and as many writes, for the disk under `dir`.
    ///
    /// # Errors
    /// When the folder is on no block device that the kernel shows.
    pub fn operations(dir: &Path, per_s: u64) -> Result<Bound> {
        let disk = Device::of(dir).and_then(|device| device.disk());
        let disk = disk.with_context(|| {
            format!(
                "--storage limits a block device, and {} is on none that the kernel shows; choose another folder",
                dir.display()
            )
        })?;
        Ok(Bound::Operations(disk, per_s))
    }

    fn controller(self) -> Controller {
        match self {
            Bound::Memory(_) => Controller::Memory,
            Bound::Operations(..) => Controller::Io,
        }
    }

    /// Returns the files that bound a group: name, contents, and true if a kernel may lack the
    /// file.
    fn files(self, version: Version) -> Vec<(&'static str, String, bool)> {
        match (self, version) {
            // Without a swap limit the group would swap memory above its bound. The limit of
            // version 1 counts memory and swap together.
            (Bound::Memory(bytes), Version::One) => vec![
                ("memory.limit_in_bytes", bytes.to_string(), false),
                ("memory.memsw.limit_in_bytes", bytes.to_string(), true),
            ],
            (Bound::Memory(bytes), Version::Two) => vec![
                ("memory.max", bytes.to_string(), false),
                ("memory.swap.max", "0".to_string(), true),
            ],
            (Bound::Operations(device, n), version) => {
                let files = operations(version, device, Some(n)).into_iter();
                files.map(|(file, text)| (file, text, false)).collect()
            }
        }
    }
}

/// Returns the files that bound a group's operations on a device, with their contents; without a
/// number the contents remove the bound.
fn operations(
    version: Version,
    device: DeviceNumber,
    per_s: Option<u64>,
) -> Vec<(&'static str, String)> {
    let number = |lifted: &str| per_s.map_or(lifted.to_string(), |n| n.to_string());
    match version {
        Version::One => {
            let limit = format!("{device} {}", number("0"));
            vec![
                ("blkio.throttle.read_iops_device", limit.clone()),
                ("blkio.throttle.write_iops_device", limit),
            ]
        }
        Version::Two => {
            let n = number("max");
            vec![("io.max", format!("{device} riops={n} wiops={n}"))]
        }
    }
}

/// Bounds of a suite's trials, with their hierarchies.
#[derive(Debug, Clone, Default)]
pub struct Bounds(Vec<(Hierarchy, Bound)>);

impl Bounds {
    /// Checks the bounds by creating one group, so that a refusal by the kernel is reported before
    /// anything runs. Also removes groups left by killed laboratories.
    ///
    /// # Errors
    /// When the kernel has no control groups for one of them, or refuses.
    pub fn new(bounds: impl IntoIterator<Item = Bound>) -> Result<Bounds> {
        let bounds = bounds.into_iter().map(|bound| {
            let hierarchy = Hierarchy::of_this_process(bound.controller())?;
            hierarchy.sweep();
            Ok((hierarchy, bound))
        });
        let bounds = Bounds(bounds.collect::<Result<_>>()?);
        bounds.group(0, 0)?;
        Ok(bounds)
    }

    /// Creates the groups for one trial; None without bounds. Each trial has its own, so that a
    /// leftover group does not count towards another trial. `laboratory_bytes` are added to the
    /// bound of memory: the trial's process needs them for the laboratory.
    ///
    /// # Errors
    /// When the kernel refuses: a plain user may create groups only in a delegated group.
    pub fn group(&self, trial: usize, laboratory_bytes: u64) -> Result<Option<Group>> {
        let mut group = Group {
            members: Vec::new(),
            memory: None,
            operations: None,
        };
        for (hierarchy, bound) in &self.0 {
            group.add(hierarchy, *bound, trial, laboratory_bytes)?;
        }
        Ok((!group.members.is_empty()).then_some(group))
    }
}

/// Groups of one trial; in version 2 one group for all controllers. Removed when dropped.
#[derive(Debug)]
pub struct Group {
    members: Vec<(PathBuf, Version)>,
    /// Index of the group that bounds memory, the limit in bytes that was asked for, and what the
    /// laboratory may use above it.
    memory: Option<(usize, u64, u64)>,
    /// Index of the group that bounds operations, the device, and its limit per second.
    operations: Option<(usize, DeviceNumber, u64)>,
}

impl Group {
    fn add(
        &mut self,
        hierarchy: &Hierarchy,
        bound: Bound,
        trial: usize,
        laboratory_bytes: u64,
    ) -> Result<()> {
        let directory = hierarchy
            .directory
            .join(format!("{PREFIX}{}-{trial}", std::process::id()));
        let known = self.members.iter().position(|(d, _)| *d == directory);
        let member = match known {
            Some(member) => member,
            None => {
                make(&directory, bound.controller())?;
                self.members.push((directory.clone(), hierarchy.version));
                self.members.len() - 1
            }
        };
        let bound = match bound {
            Bound::Memory(bytes) => {
                self.memory = Some((member, bytes, laboratory_bytes));
                Bound::Memory(bytes.saturating_add(laboratory_bytes))
            }
            Bound::Operations(device, n) => {
                self.operations = Some((member, device, n));
                bound
            }
        };
        for (file, text, may_lack) in bound.files(hierarchy.version) {
            if directory.join(file).exists() {
                write(&directory.join(file), &text, bound.controller())?;
            } else if !may_lack {
                return Err(not_enabled(&hierarchy.directory, bound.controller()));
            }
        }
        Ok(())
    }

    /// Moves a process into the groups. Its earlier memory and operations are not counted.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self, pid: u32) -> Result<()> {
        self.members.iter().try_for_each(|(directory, _)| {
            let path = directory.join("cgroup.procs");
            fs::write(&path, pid.to_string())
                .with_context(|| format!("cannot move a trial to {}", path.display()))
        })
    }

    /// Removes the bound of operations: the final check reads the whole database and is not
    /// measured. If the kernel refuses, the check only takes longer.
    pub fn lift_operations(&self) {
        let _ = self.limit_operations(|_| None);
    }

    /// Sets the bound of operations again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn bound_operations(&self) -> Result<()> {
        self.limit_operations(Some)
    }

    fn limit_operations(&self, limit: impl Fn(u64) -> Option<u64>) -> Result<()> {
        let Some((member, device, per_s)) = self.operations else {
            return Ok(());
        };
        let (directory, version) = &self.members[member];
        // Continues after an error: version 1 has one file for reads and one for writes.
        let mut outcome = Ok(());
        for (file, text) in operations(*version, device, limit(per_s)) {
            outcome = outcome.and(write(&directory.join(file), &text, Controller::Io));
        }
        outcome
    }

    /// Returns the memory use so far; None if memory is not bounded.
    pub fn memory_use(&self) -> Option<MemoryUse> {
        let (member, limit_bytes, laboratory_bytes) = self.memory?;
        let (directory, version) = &self.members[member];
        // The second file has a line `oom_kill N`.
        let (peak, kills) = match version {
            Version::One => ("memory.max_usage_in_bytes", "memory.oom_control"),
            Version::Two => ("memory.peak", "memory.events"),
        };
        let text = |file| read(&directory.join(file)).unwrap_or_default();
        let kills = text(kills);
        let kills = kills
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "));
        Some(MemoryUse {
            limit_bytes,
            laboratory_bytes,
            peak_bytes: text(peak).trim().parse().ok(),
            killed: kills.is_some_and(|n| n.trim() != "0"),
        })
    }
}

fn make(directory: &Path, controller: Controller) -> Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            let own = directory.parent().unwrap_or(directory).display();
            bail!(
                "{} cannot make a control group in {own}: {error}; run as root, or with `systemd-run --user --scope -p Delegate=yes`",
                controller.option()
            );
        }
        _ => Ok(()),
    }
}

fn not_enabled(own: &Path, controller: Controller) -> anyhow::Error {
    anyhow::anyhow!(
        "{} cannot bound a group in {}: the controller `{}` is not enabled there (cgroup.subtree_control); run as root, or with `systemd-run --user --scope -p Delegate=yes`",
        controller.option(),
        own.display(),
        controller.name()
    )
}

fn write(path: &Path, text: &str, controller: Controller) -> Result<()> {
    fs::write(path, text).with_context(|| {
        let option = controller.option();
        format!("{option} cannot write {text} to {}", path.display())
    })
}

impl Drop for Group {
    fn drop(&mut self) {
        self.members.drain(..).for_each(|(directory, version)| {
            for _ in 0..REMOVALS {
                // Frees the page cache of the group. The kernel refuses while a process is ending.
                let empty = directory.join("memory.force_empty");
                if version == Version::One && empty.exists() {
                    let _ = fs::write(empty, "0");
                }
                match fs::remove_dir(&directory) {
                    Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                        std::thread::sleep(REMOVAL_PAUSE);
                    }
                    // The next laboratory removes remaining groups.
                    _ => return,
                }
            }
        });
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceNumber = DeviceNumber {
        major: 8,
        minor: 16,
    };

    /// Returns a directory that imitates a hierarchy, with the trial's group and these files in it.
    fn pretended(version: Version, files: &[&str]) -> (tempfile::TempDir, Hierarchy, PathBuf) {
        let root = tempfile::tempdir().expect("temporary directory");
        let directory = root.path().to_path_buf();
        let own = directory.join(format!("{PREFIX}{}-1", std::process::id()));
        fs::create_dir(&own).expect("directory");
        for file in files {
            fs::write(own.join(file), "max").expect("file");
        }
        (root, Hierarchy { directory, version }, own)
    }

    #[test]
    fn a_group_without_the_controller_is_refused_with_what_to_do() {
        let (_root, hierarchy, _) = pretended(Version::Two, &[]);
        for (bound, named) in [
            (Bound::Memory(1 << 20), "--memory"),
            (Bound::Operations(DEVICE, 1000), "--storage"),
        ] {
            let bounds = Bounds(vec![(hierarchy.clone(), bound)]);
            let error = bounds.group(1, 1 << 20).expect_err("no file").to_string();
            assert!(
                error.contains("Delegate=yes") && error.contains(named),
                "{error}"
            );
        }
    }

    #[test]
    fn limits_of_version_2_are_in_one_group() {
        let files = ["memory.max", "memory.swap.max", "io.max"];
        let (_root, hierarchy, own) = pretended(Version::Two, &files);
        let bounds = [Bound::Memory(5 << 20), Bound::Operations(DEVICE, 1000)];
        let bounds = Bounds(bounds.map(|bound| (hierarchy.clone(), bound)).to_vec());
        let group = bounds.group(1, 1 << 20).expect("allowed").expect("a group");
        group.enter(17).expect("entered");
        assert_eq!(group.members.len(), 1);
        let text = |file: &str| read(&own.join(file)).expect("file");
        assert_eq!(text("memory.max"), "6291456");
        assert_eq!(text("memory.swap.max"), "0");
        assert_eq!(text("io.max"), "8:16 riops=1000 wiops=1000");
        assert_eq!(text("cgroup.procs"), "17");
        group.lift_operations();
        assert_eq!(text("io.max"), "8:16 riops=max wiops=max");
        group.bound_operations().expect("allowed");
        assert_eq!(text("io.max"), "8:16 riops=1000 wiops=1000");
        assert_eq!(text("memory.max"), "6291456");
        fs::write(own.join("memory.peak"), "4000000\n").expect("file");
        fs::write(own.join("memory.events"), "oom 3\noom_kill 1\n").expect("file");
        let found = group.memory_use().expect("bounded");
        assert_eq!((found.peak_bytes, found.killed), (Some(4_000_000), true));
        assert_eq!(
            (found.limit_bytes, found.laboratory_bytes),
            (5 << 20, 1 << 20)
        );
    }

    #[test]
    fn limits_of_version_1_are_in_a_group_for_each_controller() {
        let memory = ["memory.limit_in_bytes"];
        let io = [
            "blkio.throttle.read_iops_device",
            "blkio.throttle.write_iops_device",
        ];
        let (_memory, in_memory, own_memory) = pretended(Version::One, &memory);
        let (_io, in_io, own) = pretended(Version::One, &io);
        let bounds = Bounds(vec![
            (in_memory, Bound::Memory(5 << 20)),
            (in_io, Bound::Operations(DEVICE, 10_000)),
        ]);
        let group = bounds.group(1, 1 << 20).expect("allowed").expect("a group");
        assert_eq!(group.members.len(), 2);
        for file in io {
            assert_eq!(read(&own.join(file)).expect("file"), "8:16 10000");
        }
        let limit = read(&own_memory.join("memory.limit_in_bytes")).expect("file");
        assert_eq!(limit, "6291456");
        assert!(group.memory_use().is_some());
        group.lift_operations();
        for file in io {
            assert_eq!(read(&own.join(file)).expect("file"), "8:16 0");
        }
        assert!(!own.join("io.max").exists());
        assert!(
            Bounds::default()
                .group(1, 0)
                .expect("nothing to do")
                .is_none()
        );
    }
}
