//! The threads of one phase: clients, background clients where there are some, the sampler.
//!
//! All start together. Background clients end when the others have ended, or lead: then the others end when they have. They
//! share no counts with the others; where one meets a wrong answer, it ends them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rumbench_core::engine::EngineError;
use rumbench_core::trial::{Background, PhaseClient, PhaseEnd};

use super::client::{ClientLoop, ClientReport, Clock, Limit, MonotonicClock};
use super::intervals::Intervals;
use super::pacing::{Arrivals, Rate, Schedule};
use super::sampler::{self, Samples, Watched};
use super::stuck;
use crate::measure::process;
use crate::store::result::Interval;

/// A client's report and what its thread used.
pub struct ClientOutcome {
    /// What it counted.
    pub report: ClientReport,
    /// CPU of its thread.
    pub cpu_ns: u64,
    /// Clock ticks of its thread in user and in system mode.
    pub ticks: (u64, u64),
    /// Context switches of its thread.
    pub switches: u64,
}

/// The threads of one phase.
pub struct Threads<'a> {
    /// The clients.
    pub clients: Vec<Box<dyn PhaseClient>>,
    /// Their rate.
    pub rate: Option<Rate>,
    /// Background clients.
    pub background: Option<Background>,
    /// Seed of the arrivals.
    pub seed: u64,
    /// The name of the phase, and without an end of any request for how long it counts as stuck, if ever.
    pub stuck: Option<(&'a str, Duration)>,
    /// What the sampler looks at, with what ends and counts the clients.
    pub watched: &'a Watched<'a>,
}

/// What all threads of a phase did.
pub struct ThreadOutcomes {
    /// The clients.
    pub clients: Vec<ClientOutcome>,
    /// The background clients.
    pub background: Vec<ClientOutcome>,
    /// What those did in each second.
    pub background_seconds: Vec<Interval>,
    /// The sampler.
    pub samples: Samples,
}

/// Runs them to their end. All clients leave one barrier together; the clock starts just before it opens.
pub fn run(threads: Threads<'_>) -> ThreadOutcomes {
    let watched = threads.watched;
    let count = threads.clients.len();
    let pool = threads.background.as_ref().map(BackgroundClients::new);
    let pool = pool.as_ref();
    let barrier = Barrier::new(count + 1 + pool.map_or(0, |pool| pool.clients));
    let start = OnceLock::new();
    let (barrier, start) = (&barrier, &start);
    thread::scope(|scope| {
        let clients: Vec<_> = threads
            .clients
            .into_iter()
            .enumerate()
            .map(|(i, client)| {
                let context = ClientContext {
                    schedule: threads
                        .rate
                        .map(|rate| Schedule::new(rate, i, count, threads.seed)),
                    clock: MonotonicClock::exact,
                    limit: watched.limit,
                    intervals: watched.intervals,
                    operations: watched.operations.len(),
                };
                scope.spawn(move || run_client(client, context, barrier, start))
            })
            .collect();
        let background = threads.background.into_iter();
        let background = background.flat_map(|background| background.clients);
        let background: Vec<_> = background
            .zip(pool.into_iter().cycle())
            .enumerate()
            .map(|(i, (client, pool))| {
                let context = pool.context(i, threads.seed);
                scope.spawn(move || {
                    let end = run_client(client, context, barrier, start);
                    if end.report.wrong.is_some() {
                        watched.limit.stop.store(true, Ordering::Relaxed);
                    }
                    pool.note_end(start, &watched.limit.stop);
                    end
                })
            })
            .collect();
        let (done, finished) = mpsc::channel::<()>();
        let now = *start.get_or_init(Instant::now);
        barrier.wait();
        let sampler = scope.spawn(move || sampler::sample(watched, now, &finished));
        let (watching, unwatched) = mpsc::channel::<()>();
        if let Some((name, limit)) = threads.stuck {
            scope.spawn(move || stuck::watch(watched, name, limit, &unwatched));
        }
        let clients = clients.into_iter();
        let clients = clients.map(|thread| joined(thread, watched.operations.len()));
        let clients = clients.collect();
        if let Some(pool) = pool {
            pool.limit.stop.store(true, Ordering::Relaxed);
        }
        let background = background
            .into_iter()
            .map(|thread| joined(thread, pool.map_or(0, |pool| pool.names.len())));
        let background = background.collect();
        drop((done, watching));
        ThreadOutcomes {
            clients,
            background,
            background_seconds: pool.map_or(Vec::new(), BackgroundClients::seconds),
            samples: sampler.join().unwrap_or_default(),
        }
    })
}

fn joined(thread: thread::ScopedJoinHandle<'_, ClientOutcome>, operations: usize) -> ClientOutcome {
    thread.join().unwrap_or_else(|_| panicked(operations))
}

/// What ends and counts background clients: nothing of the phase's own.
struct BackgroundClients {
    rate: Rate,
    /// Of its operations.
    names: &'static [&'static str],
    limit: Limit,
    intervals: Intervals,
    clients: usize,
    /// How many have not ended.
    left: AtomicUsize,
    /// The phase ends with them, and not before so many seconds.
    leads: Option<f64>,
}

impl BackgroundClients {
    fn new(background: &Background) -> BackgroundClients {
        BackgroundClients {
            rate: Rate {
                per_second: background.per_second,
                arrivals: match background.burst {
                    true => Arrivals::Burst,
                    false => Arrivals::Even,
                },
            },
            names: background.operations,
            // They are stopped when the clients of the phase have ended.
            limit: Limit::of(PhaseEnd::Work),
            intervals: Intervals::new(background.operations.len()),
            clients: background.clients.len(),
            left: AtomicUsize::new(background.clients.len()),
            leads: background.leads,
        }
    }

    fn context(&self, client: usize, seed: u64) -> ClientContext<'_> {
        ClientContext {
            schedule: Some(Schedule::new(self.rate, client, self.clients, seed)),
            clock: MonotonicClock::frugal,
            limit: &self.limit,
            intervals: &self.intervals,
            operations: self.names.len(),
        }
    }

    /// What they did in each second.
    fn seconds(&self) -> Vec<Interval> {
        self.intervals.export(self.names, 0, u64::MAX)
    }

    /// One has ended. If they lead and it was the last one, the phase ends when its time has come.
    fn note_end(&self, start: &OnceLock<Instant>, phase_ends: &AtomicBool) {
        let others = self.left.fetch_sub(1, Ordering::Relaxed) - 1;
        let Some(seconds) = self.leads.filter(|_| others == 0) else {
            return;
        };
        let clock = MonotonicClock::frugal(*start.get_or_init(Instant::now));
        clock.wait_until((seconds * 1e9) as u64, phase_ends);
        phase_ends.store(true, Ordering::Relaxed);
    }
}

/// Where a client stands: what ends it, what counts it, how it waits.
struct ClientContext<'a> {
    schedule: Option<Schedule>,
    clock: fn(Instant) -> MonotonicClock,
    limit: &'a Limit,
    intervals: &'a Intervals,
    operations: usize,
}

fn run_client(
    mut client: Box<dyn PhaseClient>,
    context: ClientContext<'_>,
    barrier: &Barrier,
    start: &OnceLock<Instant>,
) -> ClientOutcome {
    // The default slack of 50 us would make every intended start late; without permission waits only spin longer.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
    let recorder = context.intervals.recorder();
    barrier.wait();
    let clock = (context.clock)(*start.get_or_init(Instant::now));
    let cpu = process::thread_cpu_ns();
    let ticks = process::thread_ticks();
    let client_loop = ClientLoop::new(
        clock,
        context.schedule,
        context.limit,
        recorder,
        context.operations,
    );
    let report = client_loop.run(client.as_mut());
    let ticks_after = process::thread_ticks();
    ClientOutcome {
        cpu_ns: process::thread_cpu_ns().saturating_sub(cpu),
        ticks: (
            ticks_after.0.saturating_sub(ticks.0),
            ticks_after.1.saturating_sub(ticks.1),
        ),
        switches: process::thread_context_switches(),
        report,
    }
}

/// The report of a client that panicked: the panic message is on stderr, the phase counts an error.
fn panicked(operations: usize) -> ClientOutcome {
    let limit = Limit::of(PhaseEnd::Operations(0));
    let intervals = Intervals::new(operations);
    let clock = MonotonicClock::exact(Instant::now());
    let mut nothing = NoWork;
    let mut report =
        ClientLoop::new(clock, None, &limit, intervals.recorder(), operations).run(&mut nothing);
    report.errors = 1;
    report
        .error_samples
        .push("a client thread panicked".to_string());
    ClientOutcome {
        report,
        cpu_ns: 0,
        ticks: (0, 0),
        switches: 0,
    }
}

/// A client without work.
struct NoWork;

impl PhaseClient for NoWork {
    fn prepare(&mut self) -> Option<usize> {
        None
    }
    fn execute(&mut self) -> Result<rumbench_core::trial::Done, EngineError> {
        Ok(rumbench_core::trial::Done::default())
    }
}
