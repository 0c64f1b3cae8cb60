//! One phase in the child: reads all counters, runs the threads of the phase, reads all counters
//! again and assembles the measurements.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rumbench_core::engine::{Engine, EngineError};
use rumbench_core::trial::{Background, Phase, PhaseEnd};

use super::client::{ClientReport, Limit};
use super::cross_check;
use super::intervals::Intervals;
use super::pacing::Rate;
use super::protocol::Emitter;
use super::sampler::{self, Samples, Snapshot, Watched};
use super::stuck;
use super::threads::{self, ClientOutcome, ThreadOutcomes, Threads};
use crate::measure::counters::{Counters, Counts};
use crate::measure::device::Device;
use crate::measure::latency::Latencies;
use crate::measure::server::ServerProcesses;
use crate::measure::{process, size, statistics};
use crate::store::result::{
    BackgroundResult, CpuSeconds, Interval, PacingError, PhaseResult, ProcessIo, RssBytes,
    SizeBytes,
};

/// Context shared by all phases of a trial.
pub struct PhaseContext<'a> {
    /// The open engine.
    pub engine: &'a dyn Engine,
    /// Data directory.
    pub directory: &'a Path,
    /// Device of the data directory, if known.
    pub device: Option<&'a Device>,
    /// Processes of the engine, if it is a server.
    pub server: Option<&'a ServerProcesses>,
    /// Rate of paced phases. None: they run as a closed loop.
    pub rate: Option<Rate>,
    /// Seed of the arrivals.
    pub seed: u64,
    /// Time without a completed request after which the trial is ended. None: no limit.
    pub stuck_after: Option<Duration>,
    /// Set when the parent asks to stop.
    pub interrupted: &'a AtomicBool,
    /// Destination of events.
    pub emitter: &'a Emitter,
    /// The processor's counters, if they are read.
    pub counters: Option<&'a RefCell<Counters>>,
}

impl PhaseContext<'_> {
    fn counts(&self) -> Counts {
        let counters = self.counters.map(|counters| counters.borrow_mut().read());
        counters.unwrap_or_default()
    }
}

/// Result of a phase, and the wrong answer if a client received one.
pub struct PhaseOutcome {
    /// Everything measured.
    pub result: PhaseResult,
    /// Wrong answer of the first client that received one.
    pub wrong: Option<String>,
    /// Numbers of the laboratory that contradict each other.
    pub contradictions: Vec<String>,
}

/// Runs the clients of a phase to their end.
pub fn run(context: &PhaseContext<'_>, phase: Phase) -> PhaseOutcome {
    let intervals = Intervals::new(phase.operations.len());
    let limit = Limit::of(phase.end);
    let rate = context.rate.filter(|_| phase.paced);
    let before = Snapshot::take(context.device, context.server);
    let counts = context.counts();
    let main_cpu = process::thread_cpu_ns();
    let watched = Watched {
        engine: context.engine,
        directory: context.directory,
        device: context.device,
        server: context.server,
        operations: phase.operations,
        intervals: &intervals,
        interrupted: context.interrupted,
        limit: &limit,
        emitter: context.emitter,
    };
    let background = phase.background.as_ref().map(BackgroundAsked::of);
    let stuck = stuck::limit(context.stuck_after, &phase, rate);
    let ends = threads::run(Threads {
        stuck: stuck.map(|limit| (phase.name.as_str(), limit)),
        clients: phase.clients,
        rate,
        background: phase.background,
        seed: context.seed,
        watched: &watched,
    });
    let main_cpu_seconds = process::thread_cpu_ns().saturating_sub(main_cpu) as f64 * 1e-9;
    let counted = context.counts();
    let after = Snapshot::take(context.device, context.server);
    let mut result = PhaseResult {
        name: phase.name,
        clients: Some(ends.clients.len()),
        rate: rate.map(|rate| rate.per_second),
        ..PhaseResult::default()
    };
    let all = || ends.clients.iter().chain(&ends.background);
    let wrong = all().find_map(|end| end.report.wrong.clone());
    fill_counts(&mut result, &ends.clients);
    result.counts_per_op = counted.per_op(counts, result.operations);
    if let Some(asked) = background {
        fill_background(&mut result, &ends.background, &asked);
    }
    if result.errors > 0 {
        tell_log(&mut result.error_samples, context.engine);
    }
    if phase.recorded {
        fill_latencies(&mut result, &ends.clients, phase.operations);
    }
    let laboratory = ends.samples.cpu_seconds + main_cpu_seconds;
    fill_cpu(&mut result, &ends, &before, &after, laboratory);
    fill_intervals(&mut result, &intervals, phase.operations, &ends.samples);
    attach_background(
        &mut result.intervals,
        &ends.background_seconds,
        &ends.background,
    );
    let switches = all().map(|end| end.switches).sum();
    fill_resources(&mut result, &before, &after, switches, context.device);
    fill_sizes(&mut result, context, &ends.samples);
    let contradictions = contradictions(&result, &ends.clients, &limit);
    PhaseOutcome {
        result,
        wrong,
        contradictions,
    }
}

/// Returns the contradictions in the numbers of a phase. After a panic of a client there is nothing
/// to compare. Clients that found no work do not count, and nothing after the deadline does.
fn contradictions(result: &PhaseResult, ends: &[ClientOutcome], limit: &Limit) -> Vec<String> {
    if ends.iter().any(|end| end.panicked) {
        return Vec::new();
    }
    let reports = ends.iter().map(|end| &end.report);
    let worked = reports.filter(|report| report.end_ns > 0);
    let last_ns = worked.map(|report| report.left_ns).max();
    let last_ns = last_ns.map(|ns| ns.min(limit.deadline_ns.unwrap_or(u64::MAX)));
    let was_stopped = limit.stop.load(Ordering::Relaxed);
    let last_s = last_ns.filter(|_| !was_stopped).map(|ns| ns as f64 * 1e-9);
    cross_check::contradictions(result, last_s)
}

fn fill_counts(result: &mut PhaseResult, ends: &[ClientOutcome]) {
    let sum = |of: fn(&ClientReport) -> u64| ends.iter().map(|end| of(&end.report)).sum::<u64>();
    result.seconds = length_ns(ends) as f64 * 1e-9;
    result.operations = sum(|report| report.operations);
    result.rows = sum(|report| report.rows);
    result.errors = sum(|report| report.errors);
    result.retries = sum(|report| report.retries);
    let written_bytes = sum(|report| report.written_bytes);
    result.written_bytes = (written_bytes > 0).then_some(written_bytes);
    result.missed_arrivals = result.rate.map(|_| sum(|report| report.missed));
    if result.seconds > 0.0 {
        result.ops_per_s = Some(result.operations as f64 / result.seconds);
        result.rows_per_s = Some(result.rows as f64 / result.seconds);
    }
    let samples = ends
        .iter()
        .flat_map(|end| end.report.error_samples.iter().cloned());
    result.error_samples = samples.take(10).collect();
}

/// Returns the length of the phase: to the end of the last operation or, if all clients with a rate
/// have used up their operations, to the first intended start that was not taken any more.
fn length_ns(ends: &[ClientOutcome]) -> u64 {
    let last = ends.iter().map(|end| end.report.end_ns).max().unwrap_or(0);
    let next = ends.iter().map(|end| end.report.next_ns);
    let next: Option<Vec<u64>> = next.collect();
    let first = next.and_then(|next| next.into_iter().min());
    last.max(first.unwrap_or(0))
}

/// Adds the end of a server's log to the first error, which appears in a mark. Errors that clients
/// expect, such as conflicts, do not get it.
fn tell_log(samples: &mut [String], engine: &dyn Engine) {
    if let Some(first) = samples.first_mut()
        && !first.contains("its log ")
        && let Some(tail) = engine.log_tail()
    {
        *first = format!("{first}; {tail}");
    }
}

/// Operations and rates requested of the background clients.
struct BackgroundAsked {
    operations: &'static [&'static str],
    per_second: f64,
    rows_per_second: Option<f64>,
}

impl BackgroundAsked {
    fn of(background: &Background) -> BackgroundAsked {
        BackgroundAsked {
            operations: background.operations,
            per_second: background.per_second,
            rows_per_second: background.rows_per_second,
        }
    }
}

/// Fills in the results of the background clients. Their errors fail the phase like any other, and
/// their written bytes count as written.
fn fill_background(result: &mut PhaseResult, ends: &[ClientOutcome], asked: &BackgroundAsked) {
    let sum = |of: fn(&ClientReport) -> u64| ends.iter().map(|end| of(&end.report)).sum::<u64>();
    let operations = sum(|report| report.operations);
    let rows = sum(|report| report.rows);
    let cpu_ns: u64 = ends.iter().map(|end| end.cpu_ns).sum();
    let seconds = Some(result.seconds).filter(|seconds| *seconds > 0.0);
    let names = asked.operations;
    let response = merged(ends, |report| &report.response, names.len());
    result.background = Some(BackgroundResult {
        operations,
        rate: asked.per_second,
        ops_per_s: seconds.map(|seconds| operations as f64 / seconds),
        rows_rate: asked.rows_per_second,
        rows_per_s: seconds
            .filter(|_| asked.rows_per_second.is_some())
            .map(|seconds| rows as f64 / seconds),
        latency_us: response.summaries(names),
        response_buckets: response.buckets(names),
        cpu_us_per_op: (operations > 0).then(|| cpu_ns as f64 / 1e3 / operations as f64),
    });
    result.errors += sum(|report| report.errors);
    let samples = ends.iter().flat_map(|end| &end.report.error_samples);
    result.error_samples.extend(samples.take(10).cloned());
    let written_bytes = result.written_bytes.unwrap_or(0) + sum(|report| report.written_bytes);
    result.written_bytes = (written_bytes > 0).then_some(written_bytes);
}

fn merged(ends: &[ClientOutcome], of: fn(&ClientReport) -> &Latencies, count: usize) -> Latencies {
    let mut all = Latencies::new(count);
    for end in ends {
        all.merge(of(&end.report));
    }
    all
}

fn fill_latencies(result: &mut PhaseResult, ends: &[ClientOutcome], names: &[&str]) {
    let response = merged(ends, |report| &report.response, names.len());
    result.latency_us = response.summaries(names);
    result.response_buckets = response.buckets(names);
    result.service_us = match result.rate {
        Some(_) => merged(ends, |report| &report.service, names.len()).summaries(names),
        None => result.latency_us.clone(),
    };
    if result.rate.is_some() {
        let lateness = merged(ends, |report| &report.lateness, 1).summary(0);
        result.pacing_error_us = lateness.map(|late| PacingError {
            mean: late.mean,
            p99: late.p99,
            max: late.max,
        });
    }
}

fn fill_cpu(
    result: &mut PhaseResult,
    ends: &ThreadOutcomes,
    before: &Snapshot,
    after: &Snapshot,
    laboratory: f64,
) {
    let background: u64 = ends.background.iter().map(|end| end.cpu_ns).sum();
    let background = background as f64 * 1e-9;
    let ends = &ends.clients;
    let threads = ends.iter().map(|end| end.cpu_ns).sum::<u64>() as f64 * 1e-9;
    let user: u64 = ends.iter().map(|end| end.ticks.0).sum();
    let system: u64 = ends.iter().map(|end| end.ticks.1).sum();
    // Ticks are coarse, so only their ratio is used, to split the exact clock.
    let user_share = match user + system {
        0 => 1.0,
        all => user as f64 / all as f64,
    };
    let machine = before.machine_cpu.zip(after.machine_cpu);
    result.cpu_seconds = Some(CpuSeconds {
        process: (after.process_cpu - before.process_cpu - laboratory).max(threads + background),
        client_threads: threads,
        client_threads_user: threads * user_share,
        waiting: ends.iter().map(|end| end.report.waiting_ns).sum::<u64>() as f64 * 1e-9,
        background_client: background,
        sampler: laboratory,
        server: before
            .server_cpu
            .zip(after.server_cpu)
            .map(|(b, a)| (a - b).max(0.0)),
        server_unseen: before.server_unseen,
        machine: machine.map(|(before, after)| after.busy - before.busy),
        stolen: machine.map_or(0.0, |(before, after)| after.stolen - before.stolen),
    });
    let samples: u64 = ends.iter().map(|end| end.report.samples).sum();
    let sampled_ns: u64 = ends.iter().map(|end| end.report.sampled_ns).sum();
    // For a server, the sampled calls contain only client code.
    if samples > 0 && before.server_cpu.is_none() && !before.server_unseen {
        let us = sampled_ns as f64 / 1e3 / samples as f64;
        result.cpu_us_per_op = Some(crate::store::result::CpuPerOp {
            engine_foreground_sampled: Some(us),
            ..Default::default()
        });
    }
    super::split::apply(result, None);
}

fn fill_intervals(
    result: &mut PhaseResult,
    intervals: &Intervals,
    names: &[&str],
    samples: &Samples,
) {
    result.intervals = intervals.export(names, 0, u64::MAX);
    sampler::attach(&mut result.intervals, &samples.seconds);
    let stalled = statistics::stalled_intervals(&result.ops_of_seconds());
    result.stall_seconds = stalled.map(|n| n as f64);
    result.longest_stall_ms = Some(intervals.longest_gap_ms((result.seconds * 1e9) as u64));
}

/// Adds the work of the background clients to each second of the phase, up to the end of the last
/// of them.
fn attach_background(seconds: &mut [Interval], beside: &[Interval], ends: &[ClientOutcome]) {
    let end_ns = ends.iter().map(|end| end.report.end_ns).max().unwrap_or(0);
    let whole_seconds = (end_ns / 1_000_000_000) as usize;
    for (place, second) in seconds.iter_mut().enumerate() {
        match beside.get(place) {
            Some(theirs) => {
                second.background_ops = Some(theirs.ops);
                second.background_op_counts = theirs.op_counts.clone();
                second.background_max_us = Some(theirs.max_us);
            }
            // They were running, but completed nothing.
            None if place < whole_seconds => second.background_ops = Some(0),
            None => {}
        }
    }
}

/// Fills in device or process I/O and context switches; `thread_switches` are those of threads that
/// ended before `after`.
pub fn fill_resources(
    result: &mut PhaseResult,
    before: &Snapshot,
    after: &Snapshot,
    thread_switches: u64,
    device: Option<&Device>,
) {
    let ops = (result.operations > 0).then_some(result.operations as f64);
    let per_op = |amount: f64| ops.map(|ops| amount / ops);
    let switches = before.switches.zip(after.switches);
    result.context_switches_per_op = switches
        .and_then(|(b, a)| per_op(a.saturating_sub(b).saturating_add(thread_switches) as f64));
    if let Some((b, a)) = before.process_io.zip(after.process_io) {
        result.process_io = Some(ProcessIo {
            read_bytes: a.read_bytes.saturating_sub(b.read_bytes),
            write_bytes: a.write_bytes.saturating_sub(b.write_bytes),
            read_calls: a.read_calls.saturating_sub(b.read_calls),
            write_calls: a.write_calls.saturating_sub(b.write_calls),
        });
    }
    if let Some((b, a)) = before.kb().zip(after.kb()) {
        result.kb_read_per_op = per_op(a.0 - b.0);
        result.kb_written_per_op = per_op(a.1 - b.1);
        result.kb_written = Some(a.1 - b.1);
    }
    result.io_source = match (device, before.device_io.zip(after.device_io)) {
        (Some(device), Some((b, a))) => {
            result.reads_per_op = per_op(a.reads.saturating_sub(b.reads) as f64);
            result.writes_per_op = per_op(a.writes.saturating_sub(b.writes) as f64);
            Some(format!("device {}", device.name()))
        }
        _ => result.process_io.map(|_| "process".to_string()),
    };
}

fn fill_sizes(result: &mut PhaseResult, context: &PhaseContext<'_>, samples: &Samples) {
    let now = size::of_engine(context.engine, context.directory, true);
    result.size_bytes = Some(SizeBytes {
        data: now.data,
        directory: now.directory,
        peak: samples.directory_peak.max(now.directory),
    });
    result.rss_bytes = sampler::resident_bytes(context.server).map(|(all, anonymous)| RssBytes {
        peak: samples.rss_peak.max(all),
        anonymous,
    });
    result.engine_counters = sampler::counters(context.engine);
}

/// Runs the settle phase: the engine finishes its backlog, then the file system is synced. If that
/// took less than `at_least`, the engine stays idle for the rest of the time and is synced again.
///
/// # Errors
/// When the engine cannot settle or the directory cannot be synced.
pub fn settle(
    context: &PhaseContext<'_>,
    name: String,
    at_least: Duration,
) -> Result<PhaseResult, EngineError> {
    let intervals = Intervals::new(0);
    let limit = Limit::of(PhaseEnd::Work);
    let watched = Watched {
        engine: context.engine,
        directory: context.directory,
        device: context.device,
        server: context.server,
        operations: &[],
        intervals: &intervals,
        interrupted: context.interrupted,
        limit: &limit,
        emitter: context.emitter,
    };
    let before = Snapshot::take(context.device, context.server);
    let start = Instant::now();
    let (settled, samples) = thread::scope(|scope| {
        let (done, finished) = mpsc::channel::<()>();
        let watched = &watched;
        let sampler = scope.spawn(move || sampler::sample(watched, start, &finished));
        let mut progress = |note: &str| note_progress(context.emitter, start, note);
        let settled = context
            .engine
            .settle(&mut progress)
            .and_then(|()| sync(context.directory))
            .and_then(|()| {
                if leave_alone(context, start, at_least) {
                    sync(context.directory)
                } else {
                    Ok(())
                }
            });
        drop(done);
        (settled, sampler.join().unwrap_or_default())
    });
    settled?;
    let mut result = PhaseResult {
        name,
        seconds: start.elapsed().as_secs_f64(),
        ..PhaseResult::default()
    };
    let after = Snapshot::take(context.device, context.server);
    let laboratory = samples.cpu_seconds;
    let ends = ThreadOutcomes {
        clients: Vec::new(),
        background: Vec::new(),
        background_seconds: Vec::new(),
        samples,
    };
    fill_cpu(&mut result, &ends, &before, &after, laboratory);
    fill_resources(&mut result, &before, &after, 0, context.device);
    fill_sizes(&mut result, context, &ends.samples);
    result.intervals = ends.samples.seconds;
    Ok(result)
}

fn note_progress(emitter: &Emitter, start: Instant, note: &str) {
    emitter.emit(&super::protocol::Event::Progress {
        seconds: start.elapsed().as_secs_f64(),
        operations: 0,
        note: note.to_string(),
        intervals: Vec::<Interval>::new(),
    });
}

/// Waits until `at_least` has passed since `start`, or the user interrupts the trial. Returns true
/// if it waited.
fn leave_alone(context: &PhaseContext<'_>, start: Instant, at_least: Duration) -> bool {
    /// Interval between progress events and interrupt checks.
    const TURN: Duration = Duration::from_millis(500);
    let left = || at_least.saturating_sub(start.elapsed());
    let waits = !left().is_zero();
    while !left().is_zero() && !context.interrupted.load(Ordering::Relaxed) {
        let note = format!("nothing is asked for, {} s more", left().as_secs());
        note_progress(context.emitter, start, &note);
        thread::sleep(left().min(TURN));
    }
    waits
}

fn sync(directory: &Path) -> Result<(), EngineError> {
    let failed = |error: std::io::Error| {
        EngineError::failed(format!("cannot sync {}", directory.display()), error)
    };
    let handle = std::fs::File::open(directory).map_err(failed)?;
    rustix::fs::syncfs(&handle).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Client that did one operation until 2 s and left its loop at 3 s.
    fn client() -> ClientOutcome {
        let mut report = ClientReport::new(1);
        report.operations = 1;
        report.end_ns = 2_000_000_000;
        report.left_ns = 3_000_000_000;
        ClientOutcome {
            report,
            panicked: false,
            cpu_ns: 0,
            ticks: (0, 0),
            switches: 0,
        }
    }

    /// Returns the contradictions of a phase of 1 s, which is too short for the client's clock.
    fn found(client: ClientOutcome, limit: &Limit) -> Vec<String> {
        let result = PhaseResult {
            seconds: 1.0,
            ..PhaseResult::default()
        };
        contradictions(&result, &[client], limit)
    }

    #[test]
    fn clocks_are_compared_unless_the_client_did_nothing_or_was_stopped() {
        let endless = || Limit::of(PhaseEnd::Work);
        let expected = ["it took 1.000 s, its last client ended at 3.000 s"];
        assert_eq!(found(client(), &endless()), expected);
        let mut idle = client();
        idle.report.end_ns = 0;
        assert!(found(idle, &endless()).is_empty());
        let mut panicked = client();
        panicked.panicked = true;
        assert!(found(panicked, &endless()).is_empty());
        let stopped = endless();
        stopped.stop.store(true, Ordering::Relaxed);
        assert!(found(client(), &stopped).is_empty());
        // The time after the deadline is not the phase's.
        assert!(found(client(), &Limit::of(PhaseEnd::Seconds(1.0))).is_empty());
    }
}
