//! Stacks of all threads during a long commit: the kernel functions in which they waited, if the
//! kernel shows them (to root). Also samples the steal time.

#![expect(
    clippy::print_stderr,
    reason = "its output is what it is for, and not part of the table"
)]

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::steal::Steal;
use crate::{Course, Failure};

/// Duration after which the stacks are printed, once for each commit.
const LONG: Duration = Duration::from_millis(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Functions printed of a stack, innermost first: the first few show the reason of a wait.
const FUNCTIONS: usize = 7;

/// Start of the client's current commit: microseconds since the beginning of the run plus 1, or 0
/// between two commits. Relaxed: the watcher may see it late.
#[derive(Default)]
pub struct InFlight(AtomicU64);

impl InFlight {
    pub fn begins(&self, at: Duration) {
        self.0.store(at.as_micros() as u64 + 1, Ordering::Relaxed);
    }

    pub fn ended(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Prints the stacks of all threads for each long commit until told to stop. Returns the steal
/// times.
pub fn watch(clients: &[InFlight], course: &Course) -> Result<Steal, Failure> {
    let mut steal = Steal::open()?;
    let mut told = vec![0; clients.len()];
    while !course.stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        let now = course.began.elapsed();
        steal.sample(now)?;
        let now = now.as_micros() as u64;
        for (client, (in_flight, told)) in clients.iter().zip(&mut told).enumerate() {
            let began = in_flight.0.load(Ordering::Relaxed);
            if began != 0 && began != *told && now.saturating_sub(began) > LONG.as_micros() as u64 {
                *told = began;
                eprintln!(
                    "client {client} is in a commit for {} ms:",
                    (now - began) / 1000
                );
                print_stacks();
            }
        }
    }
    Ok(steal)
}

fn print_stacks() {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return;
    };
    for task in tasks.flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let stack = read("stack");
        let functions = stack.lines().filter_map(|line| {
            let name = line.split_whitespace().nth(1)?;
            name.split('+').next()
        });
        let functions: Vec<&str> = functions.take(FUNCTIONS).collect();
        let stat = read("stat");
        let state = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().next());
        eprintln!(
            "  {} {}: {}",
            read("comm").trim(),
            state.unwrap_or("?"),
            functions.join(" < ")
        );
    }
}
