//! CPU, context switches, memory and I/O of this process and of the machine, from CPU clocks and
//! /proc.
//!
//! All functions return `None` or zero if the kernel does not provide a value; they never fail a
//! trial.

use procfs::process::{Io, Process, Stat, Status};
use procfs::{CurrentSI, FromRead, KernelStats};
use rustix::time::{ClockId, clock_gettime};

use crate::store::result::ProcessIo;

/// Converts the kernel's clock ticks to seconds.
pub(super) fn seconds_of(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second() as f64
}

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
    Stat::from_file("/proc/thread-self/stat").map_or((0, 0), |stat| (stat.utime, stat.stime))
}

/// Seconds of all CPUs of the machine since boot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineCpu {
    /// Busy, for any process: user, nice, system, irq and softirq; not idle, iowait or steal, nor
    /// guest (which user contains).
    pub busy: f64,
    /// Stolen: the host of a virtual machine gave the processor to another guest.
    pub stolen: f64,
}

impl MachineCpu {
    /// Reads the current values; `None` if the kernel does not provide them.
    pub fn read() -> Option<MachineCpu> {
        KernelStats::current()
            .ok()
            .map(|stats| MachineCpu::of(&stats))
    }

    fn of(stats: &KernelStats) -> MachineCpu {
        let all = &stats.total;
        let interrupts = all.irq.unwrap_or(0) + all.softirq.unwrap_or(0);
        MachineCpu {
            busy: seconds_of(all.user + all.nice + all.system + interrupts),
            stolen: seconds_of(all.steal.unwrap_or(0)),
        }
    }
}

/// Returns the context switches of all live threads of this process.
pub fn context_switches() -> Option<u64> {
    let tasks = Process::myself().ok()?.tasks().ok()?;
    // A thread that ends between the two reads is not an error; its switches are lost.
    let statuses = tasks.filter_map(|task| task.ok()?.status().ok());
    Some(statuses.filter_map(|status| switches(&status)).sum())
}

/// Returns the context switches of the calling thread; for threads that end before
/// [`context_switches`] is called.
pub fn thread_context_switches() -> u64 {
    let status = Status::from_file("/proc/thread-self/status").ok();
    status.as_ref().and_then(switches).unwrap_or(0)
}

/// Returns the voluntary and involuntary context switches of a thread.
pub(super) fn switches(status: &Status) -> Option<u64> {
    Some(status.voluntary_ctxt_switches? + status.nonvoluntary_ctxt_switches?)
}

/// Returns the resident memory in bytes: (all, anonymous part).
pub fn resident_bytes() -> Option<(u64, u64)> {
    let status = Process::myself().ok()?.status().ok()?;
    Some((status.vmrss? * 1024, status.rssanon? * 1024))
}

/// Returns the input and output of this process so far.
pub fn process_io() -> Option<ProcessIo> {
    Process::myself().ok()?.io().ok().map(io_of)
}

pub(super) fn io_of(io: Io) -> ProcessIo {
    ProcessIo {
        read_bytes: io.read_bytes,
        write_bytes: io.write_bytes.saturating_sub(io.cancelled_write_bytes),
        read_calls: io.syscr,
        write_calls: io.syscw,
    }
}

#[cfg(test)]
mod tests {
    use procfs::FromReadSI;

    use super::*;

    #[test]
    fn busy_time_leaves_out_idle_iowait_steal_and_guest() {
        let text =
            "cpu  100 20 30 9999 8888 4 6 7777 50 0\ncpu0 1 1 1 1\nctxt 5\nbtime 6\nprocesses 7\n";
        let stats = KernelStats::from_read(text.as_bytes(), procfs::current_system_info());
        let expected = MachineCpu {
            busy: 1.6,
            stolen: 77.77,
        };
        assert_eq!(MachineCpu::of(&stats.unwrap()), expected);
    }

    #[test]
    fn canceled_writes_are_subtracted() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 100\ncancelled_write_bytes: 40\n";
        let io = io_of(Io::from_read(text.as_bytes()).unwrap());
        assert_eq!(
            (io.read_bytes, io.write_bytes, io.read_calls, io.write_calls),
            (5, 60, 3, 4)
        );
    }

    #[test]
    fn the_own_process_and_thread_are_seen() {
        let (all, anonymous) = resident_bytes().unwrap();
        assert!(all >= anonymous && anonymous > 0);
        assert!(context_switches().is_some() && process_io().is_some());
        assert!(MachineCpu::read().unwrap().busy > 0.0);
    }
}
