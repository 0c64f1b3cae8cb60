//! Threads of one phase: clients, optional background clients, the sampler.
//!
//! All start together. Background clients end after the clients, or they lead, and then the clients
//! end after them. They share no counts with the clients. A wrong answer to a background client
//! ends the phase.

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

/// Report of a client and resource use of its thread.
pub struct ClientOutcome {
    /// Counts and latencies of the client.
    pub report: ClientReport,
    /// True if it panicked: its counts are lost.
    pub panicked: bool,
    /// CPU of its thread, in nanoseconds.
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
    /// Rate of the clients. None: they run as a closed loop.
    pub rate: Option<Rate>,
    /// Background clients, if the phase has any.
    pub background: Option<Background>,
    /// Seed of the arrivals.
    pub seed: u64,
    /// Name of the phase, and the time without a completed request after which it counts as stuck.
    /// None: it is not watched.
    pub stuck: Option<(&'a str, Duration)>,
    /// Objects for the sampler, including the limit and the counts of the clients.
    pub watched: &'a Watched<'a>,
}

/// Outcomes of all threads of a phase.
pub struct ThreadOutcomes {
    /// Outcomes of the clients.
    pub clients: Vec<ClientOutcome>,
    /// Outcomes of the background clients.
    pub background: Vec<ClientOutcome>,
    /// Operations of the background clients in each second.
    pub background_seconds: Vec<Interval>,
    /// Samples of the sampler.
    pub samples: Samples,
}

/// Runs the threads to their end. All clients leave one barrier together; the clock starts just
/// before it opens.
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

/// Limit and counts of the background clients, separate from those of the phase.
struct BackgroundClients {
    rate: Rate,
    /// Names of the operations.
    names: &'static [&'static str],
    limit: Limit,
    intervals: Intervals,
    clients: usize,
    /// Number of background clients that have not ended.
    left: AtomicUsize,
    /// The phase ends with the background clients, but not before this number of seconds. None:
    /// they do not lead.
    leads: Option<f64>,
}

impl BackgroundClients {
    fn new(background: &Background) -> BackgroundClients {
        BackgroundClients {
            rate: Rate {
                per_second: background.per_second,
                arrivals: if background.burst {
                    Arrivals::Burst
                } else {
                    Arrivals::Even
                },
            },
            names: background.operations,
            // They are stopped after the clients of the phase have ended.
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

    /// Returns the operations of the background clients in each second.
    fn seconds(&self) -> Vec<Interval> {
        self.intervals.export(self.names, 0, u64::MAX)
    }

    /// Notes that a background client has ended. If they lead and it was the last, the phase ends
    /// at its minimum duration.
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

/// Context of a client: its schedule, clock, limit and counts.
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
    // The default slack of 50 us would make every start late; if this fails, waits only spin
    // longer.
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
        cpu_ns: report.left_cpu_ns.saturating_sub(cpu),
        ticks: (
            ticks_after.0.saturating_sub(ticks.0),
            ticks_after.1.saturating_sub(ticks.1),
        ),
        switches: process::thread_context_switches(),
        panicked: false,
        report,
    }
}

/// Returns the outcome of a client that panicked: the message is on stderr, the phase counts an
/// error.
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
        panicked: true,
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
