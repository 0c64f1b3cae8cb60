//! Environment of a suite: hardware, kernel, file system, device, build. Part of every result.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Instant;

use procfs::{Current, Meminfo};

use super::device::Device;

fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_string()).filter(|text| !text.is_empty())
}

/// Returns the value after `name` and a colon in a /proc file.
fn proc_field(path: &str, name: &str) -> Option<String> {
    let text = read(path)?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Returns file system and mount options of a directory: those of the longest mount point that
/// contains it.
fn mount_of(directory: &Path) -> Option<(String, String)> {
    let directory = fs::canonicalize(directory).ok()?;
    let text = fs::read_to_string("/proc/self/mounts").ok()?;
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
        .filter(|(point, ..)| directory.starts_with(point))
        .max_by_key(|(point, ..)| point.len())
        .map(|(_, kind, options)| (kind.to_string(), options.to_string()))
}

/// Measures the mean cost of one clock read in nanoseconds.
fn clock_cost_ns() -> f64 {
    const READS: u32 = 100_000;
    let start = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(Instant::now());
    }
    start.elapsed().as_nanos() as f64 / f64::from(READS)
}

/// Returns the memory of the machine in bytes.
pub fn memory_bytes() -> Option<u64> {
    Meminfo::current().ok().map(|memory| memory.mem_total)
}

/// Describes the allocator of the trials and of their servers, with the environment variables that
/// replace or configure it: trials and servers inherit them.
fn allocator(variables: impl Iterator<Item = (OsString, OsString)>) -> String {
    let mut text = String::from("system (the C library's, for every engine)");
    let mut set: Vec<String> = variables
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| {
            name == "LD_PRELOAD" || name == "GLIBC_TUNABLES" || name.starts_with("MALLOC_")
        })
        .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
        .collect();
    set.sort();
    for variable in set {
        text += "; ";
        text += &variable;
    }
    text
}

/// Returns all known facts about the machine and the build, for data in `directory`.
pub fn describe(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            found.insert(name.to_string(), value);
        }
    };
    put("cpu", proc_field("/proc/cpuinfo", "model name"));
    let cpus = std::thread::available_parallelism().ok();
    put("cpus", cpus.map(|n| n.to_string()));
    // The CPUs that `taskset` allows.
    put(
        "cpus_allowed",
        proc_field("/proc/self/status", "Cpus_allowed_list"),
    );
    put("memory", proc_field("/proc/meminfo", "MemTotal"));
    put("swap", proc_field("/proc/meminfo", "SwapTotal"));
    put("kernel", read("/proc/sys/kernel/osrelease"));
    put(
        "cpu_governor",
        read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    );
    put(
        "transparent_huge_pages",
        read("/sys/kernel/mm/transparent_hugepage/enabled"),
    );
    put(
        "clock_source",
        read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    );
    put("clock_read_ns", Some(format!("{:.0}", clock_cost_ns())));
    if let Some((kind, options)) = mount_of(directory) {
        put("file_system", Some(kind));
        put("mount_options", Some(options));
    }
    match Device::of(directory) {
        Some(device) => {
            put("device", Some(device.name().to_string()));
            if let Some(sys) = device.sys_directory() {
                put("device_scheduler", read(sys.join("queue/scheduler")));
                put("device_rotational", read(sys.join("queue/rotational")));
                put("device_write_cache", read(sys.join("queue/write_cache")));
                put(
                    "device_read_ahead_kb",
                    read(sys.join("queue/read_ahead_kb")),
                );
            }
        }
        None => put(
            "device",
            Some("none visible; I/O is counted by process".to_string()),
        ),
    }
    put("compiler", Some(env!("RUMBENCH_RUSTC").to_string()));
    put("compiler_flags", Some(env!("RUMBENCH_FLAGS").to_string()));
    put("commit", Some(env!("RUMBENCH_COMMIT").to_string()));
    put("allocator", Some(allocator(std::env::vars_os())));
    found
}

/// Drops the page cache, so that every trial starts with a cold one, and describes the outcome.
pub fn drop_page_cache() -> String {
    rustix::fs::sync();
    match fs::write("/proc/sys/vm/drop_caches", "3") {
        Ok(()) => "page cache dropped before the trial".to_string(),
        Err(error) => format!("page cache not dropped ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_names_kernel_compiler_and_file_system() {
        let found = describe(Path::new("/"));
        for name in [
            "kernel",
            "compiler",
            "file_system",
            "cpus",
            "cpus_allowed",
            "commit",
        ] {
            assert!(found.contains_key(name), "{name} is missing in {found:?}");
        }
    }

    #[test]
    fn what_replaces_the_allocator_is_told_and_nothing_else_of_the_environment() {
        let variables = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (name.into(), value.into()));
            pairs.collect::<Vec<(OsString, OsString)>>().into_iter()
        };
        let plain = variables(&[("HOME", "/root"), ("PASSWORD", "secret")]);
        assert_eq!(
            allocator(plain),
            "system (the C library's, for every engine)"
        );
        let set = variables(&[
            ("MALLOC_ARENA_MAX", "1"),
            ("PASSWORD", "secret"),
            ("LD_PRELOAD", "/lib/libjemalloc.so.2"),
        ]);
        assert_eq!(
            allocator(set),
            "system (the C library's, for every engine); LD_PRELOAD=/lib/libjemalloc.so.2; MALLOC_ARENA_MAX=1"
        );
    }
}
