//! Clients of a server in an example: their placement on cores, and their CPU time.

#![allow(
    dead_code,
    reason = "each example is a program by itself and uses its part of this"
)]

use std::error::Error;
use std::hint::black_box;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::time::Instant;

use rumbench_core::engine::{Engine, EngineError};
use rumbench_core::trial::{Phase, PhaseClient, PhaseEnd, Step, Workload};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Clock ticks per second in /proc.
pub const TICKS: f64 = 100.0;

/// CPU time of clients, in microseconds.
#[derive(Debug, Default, Clone, Copy)]
pub struct Cost {
    pub user: f64,
    pub system: f64,
}

impl Cost {
    pub fn total(self) -> f64 {
        self.user + self.system
    }

    /// Returns the cost per request.
    pub fn per(self, requests: u64) -> Cost {
        Cost {
            user: self.user / requests as f64,
            system: self.system / requests as f64,
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, more: Cost) {
        self.user += more.user;
        self.system += more.system;
    }
}

/// Binds this thread to one core, and with it all threads and processes that it starts later.
pub fn place(core: usize) -> Outcome {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// Returns the folder that holds the sockets of a managed server.
pub fn run_folder(engine: &dyn Engine) -> Outcome<PathBuf> {
    let pid = engine
        .server_process()
        .ok_or("a server without a process")?
        .to_string();
    for entry in std::fs::read_dir(std::env::temp_dir())? {
        let folder = entry?.path();
        let note = std::fs::read_to_string(folder.join("server")).unwrap_or_default();
        if note.split(' ').next() == Some(&pid) {
            return Ok(folder);
        }
    }
    Err("the server's folder is gone".into())
}

/// Returns the next step of a workload, and fails if it is not a phase with clients.
pub fn next(workload: &mut dyn Workload, engine: &dyn Engine) -> Outcome<Phase> {
    match workload.next_step(engine)? {
        Some(Step::Phase(phase)) => Ok(phase),
        _ => Err("the workload has no further phase".into()),
    }
}

/// Runs each client of a phase in its own thread. Returns the number of operations and the CPU time
/// of these threads. An operation that fails with an `expected` error counts as done.
///
/// Nothing else may run in this process: the ratio of user to system time comes from the kernel's
/// totals for all its threads, including ended ones.
pub fn perform(phase: Phase, expected: fn(&EngineError) -> bool) -> Outcome<(u64, Cost)> {
    let end = match phase.end {
        PhaseEnd::Operations(all) => PhaseEnd::Operations(all / phase.clients.len() as u64),
        end => end,
    };
    let before = ticks()?;
    let ended: Vec<Outcome<(u64, f64)>> = std::thread::scope(|scope| {
        let start = |client| scope.spawn(move || measured(client, end, expected));
        let threads: Vec<_> = phase.clients.into_iter().map(start).collect();
        let ended = threads.into_iter().map(|thread| {
            let ended = thread.join().map_err(|_| "a client panicked");
            ended.unwrap_or_else(|error| Err(error.into()))
        });
        ended.collect()
    });
    let after = ticks()?;
    let (mut operations, mut cpu) = (0, 0.0);
    for client in ended {
        let (done, used) = client?;
        operations += done;
        cpu += used;
    }
    let (user, system) = (after.0 - before.0, after.1 - before.1);
    let share = user / (user + system).max(1.0 / TICKS);
    let cost = Cost {
        user: cpu * share,
        system: cpu * (1.0 - share),
    };
    Ok((operations, cost))
}

/// Runs a client in this thread until its end. Returns the number of operations and the thread's
/// CPU time for them in microseconds.
fn measured(
    mut client: Box<dyn PhaseClient>,
    end: PhaseEnd,
    expected: fn(&EngineError) -> bool,
) -> Outcome<(u64, f64)> {
    let cpu = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
    };
    let before = cpu();
    let begin = Instant::now();
    let mut done = 0;
    let is_done = |done| match end {
        PhaseEnd::Operations(most) => done >= most,
        PhaseEnd::Seconds(seconds) => begin.elapsed().as_secs_f64() >= seconds,
        PhaseEnd::Work => false,
    };
    while !is_done(done) && client.prepare().is_some() {
        let start = Instant::now();
        if let Err(error) = client.execute()
            && !expected(&error)
        {
            return Err(error.into());
        }
        black_box(start.elapsed());
        done += 1;
    }
    Ok((done, cpu() - before))
}

/// Returns the user and system time of this process in ticks. The kernel scales both from the exact
/// run time.
fn ticks() -> Outcome<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit(')').next().unwrap_or_default();
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut field =
        || -> Outcome<f64> { Ok(fields.next().ok_or("a short line in /proc")?.parse()?) };
    Ok((field()?, field()?))
}

/// Returns the median. For an even number of values it is the mean of the middle two.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
