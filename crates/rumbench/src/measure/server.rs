//! CPU, context switches, memory and I/O of a server's processes: the first one and all its
//! descendants.
//!
//! Times come from /proc in kernel clock ticks, which the kernel scales from the exact run time.
//! Times and I/O of a process that has ended are added to its parent when the parent waits for it.
//! Context switches are not, so the last observed count is kept.
//!
//! As everywhere in `measure`, values that the kernel does not provide are `None`; nothing fails a
//! trial.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use procfs::process::{Process, Stat, Task};
use rustix::process::{Pid, Signal, kill_process};

use super::process::{io_of, seconds_of, switches};
use crate::store::result::ProcessIo;

/// Maximum number of processes of one server; bounds the walk while processes start and end.
const PROCESSES_MAX: usize = 10_000;

/// Maximum wait for the end of killed processes, because a slow device can delay it.
const DEAD_WITHIN: Duration = Duration::from_secs(60);

/// Processes of one server.
#[derive(Debug)]
pub struct ServerProcesses {
    /// Process id of the first process. `None` for a server with invisible processes: then all
    /// values are unknown.
    first: Option<u32>,
    /// Context switches of each observed thread, by process, thread and start time. Innermost lock:
    /// no other lock is taken while it is held.
    switches: Mutex<BTreeMap<(i32, i32, u64), u64>>,
}

/// Memory of all processes in bytes; shared memory is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Anonymous memory of all processes, plus the largest share of shared memory and of mapped
    /// files in any one of them.
    pub all: u64,
    /// Anonymous part of `all`.
    pub anonymous: u64,
}

impl ServerProcesses {
    /// Returns the process `first` and its descendants.
    pub fn of(first: u32) -> ServerProcesses {
        ServerProcesses {
            first: Some(first),
            switches: Mutex::default(),
        }
    }

    /// Returns the processes of a server that cannot be observed.
    pub fn unseen() -> ServerProcesses {
        ServerProcesses {
            first: None,
            switches: Mutex::default(),
        }
    }

    /// Returns true if the processes cannot be observed.
    pub fn are_unseen(&self) -> bool {
        self.first.is_none()
    }

    /// Returns the ids of the live processes.
    fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.first.into_iter().collect();
        let mut next = 0;
        while let Some(pid) = pids.get(next).copied().filter(|_| next < PROCESSES_MAX) {
            next += 1;
            // Only children of the main thread; the servers start their processes there.
            let main = process(pid).and_then(|process| process.task_main_thread().ok());
            let children = main.and_then(|thread| thread.children().ok());
            pids.extend(children.unwrap_or_default());
        }
        pids
    }

    /// Returns the live processes.
    fn processes(&self) -> impl Iterator<Item = Process> {
        self.pids().into_iter().filter_map(process)
    }

    /// Kills all processes, and returns when none of them runs any more.
    ///
    /// # Errors
    /// When one still runs after 60 s.
    pub fn kill(&self) -> Result<()> {
        let signal = |pid: u32, signal| {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            // An error means that the process has already ended.
            pid.map(|pid| kill_process(pid, signal))
        };
        // The first process starts the others: once stopped, it cannot start one that is not in the
        // list.
        self.first.map(|pid| signal(pid, Signal::STOP));
        let pids = self.pids();
        for pid in &pids {
            signal(*pid, Signal::KILL);
        }
        let start = Instant::now();
        while let Some(pid) = pids.iter().find(|pid| is_running(**pid)) {
            if start.elapsed() > DEAD_WITHIN {
                bail!("process {pid} of the server still runs after it was killed");
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Returns the CPU seconds of all processes since the start of the server.
    pub fn cpu_seconds(&self) -> Option<f64> {
        // A process that ends between the two reads is counted with its parent.
        let stats = self.processes().filter_map(|process| process.stat().ok());
        let ticks = stats.map(|stat| ticks_of(&stat));
        ticks.reduce(|all, one| all + one).map(seconds_of)
    }

    /// Returns the context switches of all observed threads; for ended threads, the last observed
    /// count.
    pub fn context_switches(&self) -> Option<u64> {
        let seen = self.switches.lock();
        let mut seen = seen.unwrap_or_else(PoisonError::into_inner);
        for process in self.processes() {
            for thread in process.tasks().into_iter().flatten().flatten() {
                seen.extend(switches_of(&thread));
            }
        }
        (!seen.is_empty()).then(|| seen.values().sum())
    }

    /// Returns the input and output of all processes so far.
    pub fn io(&self) -> Option<ProcessIo> {
        let all = self.processes().filter_map(|process| process.io().ok());
        all.map(io_of).reduce(ProcessIo::and)
    }

    /// Returns the resident memory; None if no process lives.
    pub fn memory(&self) -> Option<Memory> {
        let statuses = self.processes().filter_map(|process| {
            let status = process.status().ok()?;
            let parts = [status.rssanon, status.rssshmem, status.rssfile];
            Some(parts.map(|part| part.unwrap_or(0)))
        });
        memory_of(statuses)
    }
}

fn process(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

/// Returns true if the process exists and has not ended; a zombie has ended.
fn is_running(pid: u32) -> bool {
    process(pid).is_some_and(|process| process.is_alive())
}

fn memory_of(statuses: impl Iterator<Item = [u64; 3]>) -> Option<Memory> {
    let (mut anonymous, mut shared, mut file, mut found) = (0, 0, 0, false);
    for [own, shmem, mapped] in statuses {
        found = true;
        anonymous += own;
        shared = shared.max(shmem);
        file = file.max(mapped);
    }
    found.then_some(Memory {
        all: (anonymous + shared + file) * 1024,
        anonymous: anonymous * 1024,
    })
}

/// Returns the identity of a thread and its context switches.
fn switches_of(thread: &Task) -> Option<((i32, i32, u64), u64)> {
    let start = thread.stat().ok()?.starttime;
    let switches = switches(&thread.status().ok()?)?;
    Some(((thread.pid, thread.tid, start), switches))
}

/// Returns user and system time, including children that were waited for, in ticks.
fn ticks_of(stat: &Stat) -> u64 {
    let children = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
    stat.utime + stat.stime + children
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use procfs::FromRead;

    use super::*;

    #[test]
    fn times_include_those_of_children_that_were_waited_for() {
        let text = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 70 8 300 20 5 5 1 0 9999 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let stat = Stat::from_read(text.as_bytes()).unwrap();
        assert_eq!((ticks_of(&stat), stat.starttime), (398, 9999));
        assert_eq!((stat.utime, stat.stime), (70, 8));
        assert!(Stat::from_read(&b"12 (a) S 1 2"[..]).is_err());
    }

    #[test]
    fn shared_memory_is_counted_once() {
        let statuses = [[10, 500, 7], [20, 400, 9]];
        let expected = Memory {
            all: (30 + 500 + 9) * 1024,
            anonymous: 30 * 1024,
        };
        assert_eq!(memory_of(statuses.into_iter()), Some(expected));
        assert_eq!(memory_of(std::iter::empty()), None);
    }

    #[test]
    fn a_killed_server_leaves_no_process() {
        let mut first = Command::new("sh")
            .args(["-c", "sleep 600 & sleep 600 & wait"])
            .spawn()
            .unwrap();
        let server = ServerProcesses::of(first.id());
        while server.pids().len() < 3 {
            thread::yield_now();
        }
        let pids = server.pids();
        server.kill().unwrap();
        assert!(pids.iter().all(|pid| !is_running(*pid)), "{pids:?}");
        first.wait().unwrap();
        server.kill().unwrap();
    }

    #[test]
    fn of_processes_that_cannot_be_seen_nothing_is_known() {
        let server = ServerProcesses::unseen();
        assert!(server.are_unseen() && server.cpu_seconds().is_none() && server.io().is_none());
        assert!(server.context_switches().is_none() && server.memory().is_none());
    }

    #[test]
    fn all_processes_of_a_tree_are_found_and_what_ended_stays_counted() {
        // A shell with a child of its own; both live until their input ends.
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'echo ready; read line'; echo over; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = shell.stdout.take().unwrap();
        let mut line = [0; 6];
        output.read_exact(&mut line).unwrap();
        let server = ServerProcesses::of(shell.id());
        assert_eq!(server.pids().len(), 2);
        let before = server.context_switches().unwrap();
        assert!(server.memory().unwrap().all > 0 && server.cpu_seconds().is_some());
        let mut input = shell.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"\n").unwrap();
        let mut line = [0; 5];
        output.read_exact(&mut line).unwrap();
        assert_eq!(server.pids().len(), 1);
        assert!(server.context_switches().unwrap() >= before);
        drop(input);
        shell.wait().unwrap();
        assert_eq!((server.cpu_seconds(), server.memory()), (None, None));
    }
}
