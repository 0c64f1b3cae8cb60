//! CPU, context switches, memory and I/O of a server's processes: the first one and all that it started.
//!
//! Times are those of /proc, in kernel clock ticks, which the kernel scales from the exact run time; a process that has
//! ended and was waited for is in the times and the I/O of the one that waited. Its context switches are in nobody's: what
//! was last seen of them is kept.
//!
//! As everywhere in `measure`, what the kernel does not tell is `None`; nothing fails a trial.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::process::{TICKS_PER_SECOND, field, parse_process_io};
use crate::store::result::ProcessIo;

/// Processes that one server has at most; a bound for a walk over processes that come and go.
const PROCESSES_MAX: usize = 10_000;

/// A killed process that the device keeps from ending may take as long.
const DEAD_WITHIN: Duration = Duration::from_secs(60);

/// The processes of one server.
#[derive(Debug)]
pub struct ServerProcesses {
    /// `None` for a server whose processes cannot be seen from here: then nothing is known of them.
    first: Option<u32>,
    /// Context switches of each thread that was ever seen, by process, thread and start time. Innermost: nothing is locked
    /// while it is held.
    switches: Mutex<BTreeMap<(u32, u32, u64), u64>>,
}

/// Memory of all processes, what they share counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Anonymous memory of all of them, and the largest shares of shared memory and of files that one of them has mapped.
    pub all: u64,
    /// The anonymous part.
    pub anonymous: u64,
}

impl ServerProcesses {
    /// The processes that begin with this one.
    pub fn of(first: u32) -> ServerProcesses {
        ServerProcesses {
            first: Some(first),
            switches: Mutex::default(),
        }
    }

    /// Those of a server that runs where they cannot be seen.
    pub fn unseen() -> ServerProcesses {
        ServerProcesses {
            first: None,
            switches: Mutex::default(),
        }
    }

    /// Whether nothing is known of them.
    pub fn are_unseen(&self) -> bool {
        self.first.is_none()
    }

    /// The processes that live now.
    fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.first.into_iter().collect();
        let mut next = 0;
        while let Some(pid) = pids.get(next).copied().filter(|_| next < PROCESSES_MAX) {
            next += 1;
            // The children that the main thread has started; the servers start theirs there.
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.unwrap_or_default();
            pids.extend(
                children
                    .split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        pids
    }

    /// Kills all of them, and returns when none of them runs any more.
    ///
    /// # Errors
    /// When one still runs after a while.
    pub fn kill(&self) -> Result<()> {
        let signal = |pid: u32, signal| {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            // One that has ended meanwhile is not there to be signalled.
            pid.map(|pid| kill_process(pid, signal))
        };
        // The first one starts the others: stopped, it cannot start one that is not in the list.
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

    /// CPU seconds of all processes since the start of the server.
    pub fn cpu_seconds(&self) -> Option<f64> {
        let ticks = self.pids().into_iter().filter_map(|pid| {
            // A process that ends between the two reads is counted with the one that waits for it.
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some(parse_stat(&text)?.ticks)
        });
        ticks
            .reduce(|all, one| all + one)
            .map(|ticks| ticks as f64 / TICKS_PER_SECOND)
    }

    /// Context switches of all threads that were ever seen, as of now or as of when they were last seen.
    pub fn context_switches(&self) -> Option<u64> {
        let seen = self.switches.lock();
        let mut seen = seen.unwrap_or_else(PoisonError::into_inner);
        for pid in self.pids() {
            let threads = fs::read_dir(format!("/proc/{pid}/task"));
            for thread in threads.into_iter().flatten().flatten() {
                if let Some((key, switches)) = switches_of(pid, &thread) {
                    seen.insert(key, switches);
                }
            }
        }
        (!seen.is_empty()).then(|| seen.values().sum())
    }

    /// Input and output of all processes so far.
    pub fn io(&self) -> Option<ProcessIo> {
        let mut sum = None;
        for pid in self.pids() {
            let Ok(text) = fs::read_to_string(format!("/proc/{pid}/io")) else {
                continue;
            };
            let io = parse_process_io(&text)?;
            sum = Some(sum.map_or(io, |all: ProcessIo| all.and(io)));
        }
        sum
    }

    /// Resident memory.
    pub fn memory(&self) -> Option<Memory> {
        let statuses = self.pids().into_iter().filter_map(|pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            Some(["RssAnon:", "RssShmem:", "RssFile:"].map(|name| field(&text, name).unwrap_or(0)))
        });
        memory_of(statuses)
    }
}

/// Whether there is such a process that has not ended; one that nobody has waited for yet has.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.get(stat.rfind(')').map_or(0, |at| at + 1)..);
    state.is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
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

fn switches_of(pid: u32, thread: &fs::DirEntry) -> Option<((u32, u32, u64), u64)> {
    let tid: u32 = thread.file_name().to_str()?.parse().ok()?;
    let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
    let status = fs::read_to_string(thread.path().join("status")).ok()?;
    let switches = field(&status, "voluntary_ctxt_switches:")?
        .saturating_add(field(&status, "nonvoluntary_ctxt_switches:")?);
    Some(((pid, tid, parse_stat(&stat)?.start), switches))
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// User and system time, also of children that were waited for.
    ticks: u64,
    /// When it started, in ticks since boot.
    start: u64,
}

/// Fields 14 to 17 and 22; the name in field 2 may hold spaces and parentheses.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields = text.get(text.rfind(')')? + 1..)?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    Some(Stat {
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
        start: number(19)?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn times_include_those_of_children_that_were_waited_for() {
        let text = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 70 8 300 20 5 5 1 0 9999 1 1";
        let expected = Stat {
            ticks: 398,
            start: 9999,
        };
        assert_eq!(parse_stat(text), Some(expected));
        assert_eq!(parse_stat("12 (a) S 1 2"), None);
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
