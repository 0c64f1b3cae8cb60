//! Names for the parts of a sample: its thread, the functions of the program, and those of the
//! kernel.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::modules::{Kernel, Modules};
use super::process::Process;
use super::sampling::Sample;

/// Minimum time between two reads of a process's mappings.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Process with the time of the last read of its mappings.
struct Known {
    process: Process,
    looked: Instant,
    /// Names of its threads by thread number.
    threads: BTreeMap<u32, String>,
}

/// All processes of a trial seen so far.
pub struct Names {
    modules: Modules,
    kernel: Kernel,
    processes: BTreeMap<u32, Known>,
}

impl Names {
    /// Reads the binaries of an existing process in advance: the largest take a while.
    pub fn of(pid: u32) -> Names {
        let mut modules = Modules::default();
        drop(Process::of(pid, &mut modules));
        Names {
            modules,
            kernel: Kernel::read(),
            processes: BTreeMap::new(),
        }
    }

    /// Returns the names of the functions on the stack, the thread's name first.
    pub fn frames(&mut self, sample: &Sample) -> Vec<String> {
        let known = self.processes.entry(sample.pid).or_insert_with(|| Known {
            process: Process::of(sample.pid, &mut self.modules),
            looked: Instant::now(),
            threads: BTreeMap::new(),
        });
        let is_known = known.process.knows(sample.user.ip);
        // The process has mapped a binary since, or has become another program.
        if !is_known && known.looked.elapsed() >= LOOK_EVERY {
            let process = Process::of(sample.pid, &mut self.modules);
            // After the end of a process its old mappings are better than none.
            if !process.is_empty() {
                known.process = process;
                known.threads.clear();
            }
            known.looked = Instant::now();
        }
        let thread = known.threads.entry(sample.tid);
        let thread = thread.or_insert_with(|| thread_name(sample.pid, sample.tid));
        let mut frames = vec![thread.clone()];
        frames.extend(known.process.frames(sample.user, &sample.stack));
        let kernel = sample.kernel.iter().rev();
        frames.extend(kernel.map(|address| self.kernel.name(*address)));
        frames
    }
}

/// Returns the kernel's name of a thread without its number, so that threads of one kind are
/// counted together.
fn thread_name(pid: u32, tid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
    let name = name.unwrap_or_default();
    let kind = name.trim().trim_end_matches(|c: char| c.is_ascii_digit());
    match kind.trim_end_matches(['-', '_', '/', ':', '#', ' ']) {
        "" => "a thread that ended".to_string(),
        kind => kind.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_kind_have_one_name() {
        let own = std::process::id();
        for (name, kind) in [("client-17", "client"), ("rocksdb:low3", "rocksdb:low")] {
            let thread = std::thread::Builder::new().name(name.to_string());
            let tid = || u32::try_from(rustix::thread::gettid().as_raw_nonzero().get());
            let found = thread.spawn(move || thread_name(own, tid().expect("positive")));
            assert_eq!(found.expect("thread").join().expect("no panic"), kind);
        }
        assert_eq!(thread_name(own, u32::MAX), "a thread that ended");
    }
}
