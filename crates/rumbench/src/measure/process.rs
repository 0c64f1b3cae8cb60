//! CPU, context switches, memory and I/O of this process and of the machine, from CPU clocks and
//! /proc.
//!
//! All functions return `None` or zero if the kernel does not provide a value; they never fail a
//! trial.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

use crate::store::result::ProcessIo;

/// Kernel clock ticks per second in /proc: 100 on every Linux that Rust supports.
pub(super) const TICKS_PER_SECOND: f64 = 100.0;

fn seconds(id: ClockId) -> f64 {
    let time = clock_gettime(id);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Returns the CPU seconds of all threads of this process since its start.
pub fn process_cpu_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// Returns the CPU nanoseconds of the calling thread since its start.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000) + time.tv_nsec as u64
}

/// Returns the user and system ticks of the calling thread.
pub fn thread_ticks() -> (u64, u64) {
    fs::read_to_string("/proc/thread-self/stat")
        .ok()
        .and_then(|text| parse_stat_ticks(&text))
        .unwrap_or((0, 0))
}

/// Parses utime and stime: fields 14 and 15; the name in field 2 may contain spaces and
/// parentheses.
fn parse_stat_ticks(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let user = fields.nth(11)?.parse().ok()?;
    let system = fields.next()?.parse().ok()?;
    Some((user, system))
}

/// Seconds of all CPUs of the machine since boot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineCpu {
    /// Busy, for any process.
    pub busy: f64,
    /// Stolen: the host of a virtual machine gave the processor to another guest.
    pub stolen: f64,
}

impl MachineCpu {
    /// Reads the current values; `None` if the kernel does not provide them.
    pub fn read() -> Option<MachineCpu> {
        parse_machine_cpu(&fs::read_to_string("/proc/stat").ok()?)
    }
}

/// Parses /proc/stat. Busy is user, nice, system, irq and softirq; not idle, iowait or steal, nor
/// guest (which user contains).
fn parse_machine_cpu(text: &str) -> Option<MachineCpu> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .skip(1)
        .map_while(|field| field.parse().ok())
        .collect();
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|&i| ticks.get(i)).sum();
    (ticks.len() >= 4).then_some(MachineCpu {
        busy: busy as f64 / TICKS_PER_SECOND,
        stolen: ticks.get(7).copied().unwrap_or(0) as f64 / TICKS_PER_SECOND,
    })
}

/// Returns the context switches of all live threads of this process.
pub fn context_switches() -> Option<u64> {
    let mut total = 0;
    for entry in fs::read_dir("/proc/self/task").ok()?.flatten() {
        // A thread that ends between the two reads is not an error; its switches are lost.
        if let Ok(text) = fs::read_to_string(entry.path().join("status")) {
            total += field(&text, "voluntary_ctxt_switches:")
                .unwrap_or(0)
                .saturating_add(field(&text, "nonvoluntary_ctxt_switches:").unwrap_or(0));
        }
    }
    Some(total)
}

/// Returns the context switches of the calling thread; for threads that end before
/// [`context_switches`] is called.
pub fn thread_context_switches() -> u64 {
    fs::read_to_string("/proc/thread-self/status").map_or(0, |text| {
        field(&text, "voluntary_ctxt_switches:").unwrap_or(0)
            + field(&text, "nonvoluntary_ctxt_switches:").unwrap_or(0)
    })
}

/// Returns the resident memory in bytes: (all, anonymous part).
pub fn resident_bytes() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let all = field(&text, "VmRSS:")?.saturating_mul(1024);
    let anonymous = field(&text, "RssAnon:")?.saturating_mul(1024);
    Some((all, anonymous))
}

/// Returns the input and output of this process so far.
pub fn process_io() -> Option<ProcessIo> {
    parse_process_io(&fs::read_to_string("/proc/self/io").ok()?)
}

pub(super) fn parse_process_io(text: &str) -> Option<ProcessIo> {
    Some(ProcessIo {
        read_bytes: field(text, "read_bytes:")?,
        write_bytes: field(text, "write_bytes:")?
            .saturating_sub(field(text, "canceled_write_bytes:").unwrap_or(0)),
        read_calls: field(text, "syscr:")?,
        write_calls: field(text, "syscw:")?,
    })
}

/// Returns the number after a name at the start of a line.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_ticks_are_found_after_a_name_with_parentheses() {
        let text = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 77 88 0 0";
        assert_eq!(parse_stat_ticks(text), Some((77, 88)));
    }

    #[test]
    fn busy_time_leaves_out_idle_iowait_steal_and_guest() {
        let text = "cpu  100 20 30 9999 8888 4 6 7777 50 0\ncpu0 1 1 1 1\n";
        let expected = MachineCpu {
            busy: 1.6,
            stolen: 77.77,
        };
        assert_eq!(parse_machine_cpu(text), Some(expected));
    }

    #[test]
    fn canceled_writes_are_subtracted() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 100\ncanceled_write_bytes: 40\n";
        let io = parse_process_io(text).unwrap();
        assert_eq!(
            (io.read_bytes, io.write_bytes, io.read_calls, io.write_calls),
            (5, 60, 3, 4)
        );
    }
}
