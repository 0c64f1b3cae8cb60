//! Locations of the kernel's control groups for memory and devices, in both versions.
//!
//! Version 1 has a hierarchy for each controller, version 2 one for all. Groups of trials are
//! created below the laboratory's own group, so the laboratory's limits also apply to its trials.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use procfs::process::Process;
use procfs::{MountEntry, ProcessCGroups};

/// Prefix of group names; the process id of the laboratory and the number of the trial follow.
pub(super) const PREFIX: &str = "rumbench-";

/// Controller of a control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Memory, page cache included.
    Memory,
    /// Operations of a block device.
    Io,
}

impl Controller {
    /// Returns the command-line option that needs this controller.
    pub(super) fn option(self) -> &'static str {
        match self {
            Controller::Memory => "--memory",
            Controller::Io => "--storage",
        }
    }

    /// Returns the name in version 2.
    pub(super) fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Io => "io",
        }
    }

    fn name_in_version_1(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Io => "blkio",
        }
    }

    /// Returns the name of the bounded resource, for error messages.
    fn subject(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Io => "block devices",
        }
    }
}

/// Version of the control group interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy.
    Two,
}

/// Hierarchy in which the groups of trials are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Directory of the laboratory's own group.
    pub(super) directory: PathBuf,
    pub(super) version: Version,
}

impl Hierarchy {
    /// Returns the hierarchy of this process for a controller.
    ///
    /// # Errors
    /// When the kernel has none for the controller.
    pub fn of_this_process(controller: Controller) -> Result<Hierarchy> {
        let mounts = procfs::mounts().context("cannot list file systems")?;
        let groups = Process::myself().and_then(|process| process.cgroups());
        let groups = groups.context("cannot list the own control groups")?;
        Hierarchy::find(controller, &mounts, &groups).with_context(|| {
            format!(
                "{} needs control groups, and this system has none for {}",
                controller.option(),
                controller.subject()
            )
        })
    }

    /// Finds the hierarchy in the kernel's lists of mounts and of the groups of a process.
    fn find(
        controller: Controller,
        mounts: &[MountEntry],
        groups: &ProcessCGroups,
    ) -> Option<Hierarchy> {
        let mounted = |fits: &dyn Fn(&MountEntry) -> bool| {
            let mount = mounts.iter().find(|mount| fits(mount));
            mount.map(|mount| PathBuf::from(&mount.fs_file))
        };
        let own = |fits: &dyn Fn(&[String]) -> bool| {
            let group = groups.0.iter().find(|group| fits(&group.controllers));
            group.map(|group| group.pathname.as_str())
        };
        let below = |root: PathBuf, group: &str| root.join(group.trim_start_matches('/'));
        let name = controller.name_in_version_1();
        let has =
            |mount: &MountEntry| mount.fs_vfstype == "cgroup" && mount.fs_mntops.contains_key(name);
        let first = mounted(&has).zip(own(&|all| all.iter().any(|one| one == name)));
        if let Some((root, group)) = first {
            return Some(Hierarchy {
                directory: below(root, group),
                version: Version::One,
            });
        }
        let unified = mounted(&|mount| mount.fs_vfstype == "cgroup2");
        let (root, group) = unified.zip(own(&<[String]>::is_empty))?;
        Some(Hierarchy {
            directory: below(root, group),
            version: Version::Two,
        })
    }

    /// Removes groups left by killed laboratories.
    pub fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            // Older releases have no trial number after the process id.
            let pid = owner.and_then(|owner| owner.split('-').next()?.parse::<u32>().ok());
            // This process has created no group yet, so a group with its id is from an earlier
            // laboratory.
            if let Some(pid) = pid
                && (pid == std::process::id() || !Path::new(&format!("/proc/{pid}")).exists())
            {
                // The kernel refuses to remove a group that still has processes.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use procfs::FromRead;

    use super::*;

    const BOTH: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
        cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";

    fn parse(controller: Controller, mounts: &str, groups: &str) -> Option<(String, Version)> {
        let mounts = Vec::<MountEntry>::from_read(mounts.as_bytes()).expect("mounts");
        let groups = ProcessCGroups::from_read(groups.as_bytes()).expect("groups");
        let found = Hierarchy::find(controller, &mounts, &groups)?;
        Some((found.directory.display().to_string(), found.version))
    }

    #[test]
    fn each_controller_is_in_the_version_that_has_it() {
        use Controller::{Io, Memory};
        let groups = "7:blkio:/\n4:cpu,memory:/a/b\n0::/\n";
        let memory = "/sys/fs/cgroup/memory/a/b".to_string();
        assert_eq!(parse(Memory, BOTH, groups), Some((memory, Version::One)));
        let blkio = "/sys/fs/cgroup/blkio/".to_string();
        assert_eq!(parse(Io, BOTH, groups), Some((blkio, Version::One)));
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        for controller in [Memory, Io] {
            let found = parse(controller, unified, "0::/user.slice/a:b.scope\n");
            let directory = "/sys/fs/cgroup/user.slice/a:b.scope".to_string();
            assert_eq!(found, Some((directory, Version::Two)));
            assert_eq!(
                parse(controller, "proc /proc proc rw 0 0\n", "0::/\n"),
                None
            );
        }
    }

    #[test]
    fn groups_of_killed_laboratories_are_removed() {
        let root = tempfile::tempdir().expect("temporary directory");
        let hierarchy = Hierarchy {
            directory: root.path().to_path_buf(),
            version: Version::Two,
        };
        let of = |pid: u32| root.path().join(format!("{PREFIX}{pid}"));
        // No process has an id this high; a group with the test's own id is from an earlier
        // laboratory.
        let (own, alive) = (std::process::id(), std::os::unix::process::parent_id());
        for path in [
            of(u32::MAX),
            of(own),
            of(alive),
            root.path().join("rumbench-x"),
        ] {
            fs::create_dir(path).expect("directory");
        }
        hierarchy.sweep();
        assert!(!of(u32::MAX).exists() && !of(own).exists() && of(alive).exists());
        assert!(root.path().join("rumbench-x").exists());
    }
}
