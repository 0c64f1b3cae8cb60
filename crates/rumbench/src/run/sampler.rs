//! Samples once a second: CPU, memory, I/O, size and engine counters, and the progress event for
//! the parent.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rumbench_core::engine::Engine;

use super::client::Limit;
use super::intervals::Intervals;
use super::protocol::{Emitter, Event};
use crate::measure::device::{Device, DeviceIo};
use crate::measure::process::MachineCpu;
use crate::measure::server::ServerProcesses;
use crate::measure::{process, size};
use crate::store::result::{Interval, ProcessIo};

/// Directories with more files than this are walked only every tenth second.
const FILES_WALKED_EVERY_SECOND: u64 = 2000;

/// Kernel counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// CPU seconds of this process.
    pub process_cpu: f64,
    /// CPU seconds of the server's processes, if the engine is a server.
    pub server_cpu: Option<f64>,
    /// CPU of the machine, if known.
    pub machine_cpu: Option<MachineCpu>,
    /// Context switches of live threads, a server's included.
    pub switches: Option<u64>,
    /// I/O of this process and of a server's processes.
    pub process_io: Option<ProcessIo>,
    /// True if the engine is a server with processes that cannot be observed.
    pub server_unseen: bool,
    /// I/O of the device.
    pub device_io: Option<DeviceIo>,
}

impl Snapshot {
    /// Reads all counters. Context switches and I/O of a server's processes are added to those of
    /// this process.
    pub fn take(device: Option<&Device>, server: Option<&ServerProcesses>) -> Snapshot {
        let (mut switches, mut process_io) = (process::context_switches(), process::process_io());
        if let Some(server) = server {
            switches = sum(switches, server.context_switches(), |a, b| a + b);
            process_io = sum(process_io, server.io(), ProcessIo::and);
        }
        Snapshot {
            process_cpu: process::process_cpu_seconds(),
            server_cpu: server.and_then(ServerProcesses::cpu_seconds),
            machine_cpu: MachineCpu::read(),
            switches,
            process_io,
            server_unseen: server.is_some_and(ServerProcesses::are_unseen),
            device_io: device.and_then(Device::read),
        }
    }

    /// Returns the KiB read and written so far, of the device if known, otherwise of
    /// [`Snapshot::process_io`].
    pub fn kb(&self) -> Option<(f64, f64)> {
        let (read, written) = match (self.device_io, self.process_io) {
            (Some(io), _) => (io.read_bytes, io.write_bytes),
            (None, Some(io)) => (io.read_bytes, io.write_bytes),
            (None, None) => return None,
        };
        Some((read as f64 / 1024.0, written as f64 / 1024.0))
    }
}

/// Adds two values; None unless both are known.
fn sum<T>(a: Option<T>, b: Option<T>, add: fn(T, T) -> T) -> Option<T> {
    Some(add(a?, b?))
}

/// Returns the resident memory of this process and of a server's, in bytes: (all, anonymous part).
pub fn resident_bytes(server: Option<&ServerProcesses>) -> Option<(u64, u64)> {
    let (all, anonymous) = process::resident_bytes()?;
    match server {
        None => Some((all, anonymous)),
        Some(server) => {
            let memory = server.memory()?;
            Some((all + memory.all, anonymous + memory.anonymous))
        }
    }
}

/// Objects that the sampler reads and notifies.
pub struct Watched<'a> {
    /// Engine, for its counters and its data files.
    pub engine: &'a dyn Engine,
    /// Data directory.
    pub directory: &'a Path,
    /// Device of the data directory, if known.
    pub device: Option<&'a Device>,
    /// Processes of the engine, if it is a server.
    pub server: Option<&'a ServerProcesses>,
    /// Names of the operations.
    pub operations: &'a [&'a str],
    /// Completed operations of the phase by second; empty in a phase without clients.
    pub intervals: &'a Intervals,
    /// True once the parent has asked to stop.
    pub interrupted: &'a AtomicBool,
    /// Limit of the clients. The sampler sets its stop flag after an interruption.
    pub limit: &'a Limit,
    /// Destination of progress events.
    pub emitter: &'a Emitter,
}

/// Samples of one phase.
#[derive(Debug, Default)]
pub struct Samples {
    /// One entry a second, without operation counts.
    pub seconds: Vec<Interval>,
    /// Largest size of the directory in bytes.
    pub directory_peak: u64,
    /// Largest resident set in bytes, a server's included.
    pub rss_peak: u64,
    /// CPU seconds that the sampler used.
    pub cpu_seconds: f64,
}

/// Samples once a second from `start` until `done` is disconnected. Runs on its own thread.
pub fn sample(watched: &Watched<'_>, start: Instant, done: &Receiver<()>) -> Samples {
    let mut samples = Samples::default();
    let mut previous = Snapshot::take(watched.device, watched.server);
    let mut files = 0;
    for second in 0u64.. {
        let next = Duration::from_secs(second + 1);
        if matches!(
            done.recv_timeout(next.saturating_sub(start.elapsed())),
            Err(RecvTimeoutError::Disconnected)
        ) {
            break;
        }
        let now = Snapshot::take(watched.device, watched.server);
        let walk = files <= FILES_WALKED_EVERY_SECOND || second % 10 == 0;
        let directory_bytes = walk.then(|| {
            let allocated = size::of_engine(watched.engine, watched.directory, false);
            files = allocated.files;
            allocated.directory
        });
        let interval = observe(watched, second, &previous, &now, directory_bytes);
        samples.directory_peak = samples.directory_peak.max(directory_bytes.unwrap_or(0));
        samples.rss_peak = samples.rss_peak.max(interval.rss_bytes.unwrap_or(0));
        samples.seconds.push(interval);
        previous = now;
        report_progress(watched, start, second, &samples.seconds);
        if watched.interrupted.load(Ordering::Relaxed) {
            watched.limit.stop.store(true, Ordering::Relaxed);
        }
    }
    samples.cpu_seconds = process::thread_cpu_ns() as f64 * 1e-9;
    samples
}

fn observe(
    watched: &Watched<'_>,
    second: u64,
    before: &Snapshot,
    now: &Snapshot,
    directory_bytes: Option<u64>,
) -> Interval {
    let kb = before.kb().zip(now.kb());
    let server_cpu = before.server_cpu.zip(now.server_cpu);
    let server_cpu = server_cpu.map_or(0.0, |(before, now)| now - before);
    Interval {
        second,
        cpu_seconds: Some(now.process_cpu - before.process_cpu + server_cpu),
        rss_bytes: resident_bytes(watched.server).map(|(all, _)| all),
        kb_read: kb.map(|(before, now)| now.0 - before.0),
        kb_written: kb.map(|(before, now)| now.1 - before.1),
        directory_bytes,
        engine_counters: counters(watched.engine),
        ..Interval::default()
    }
}

/// Returns the engine's counters by name.
pub fn counters(engine: &dyn Engine) -> std::collections::BTreeMap<String, f64> {
    engine
        .counters()
        .into_iter()
        .map(|counter| (counter.name, counter.value))
        .collect()
}

/// Sends a progress event with the interval that ended a second ago. By then all clients have
/// handed over their counts of it, except clients inside a long call.
fn report_progress(watched: &Watched<'_>, start: Instant, second: u64, seconds: &[Interval]) {
    let intervals = match second.checked_sub(1) {
        Some(ready) => {
            let mut intervals = watched.intervals.export(watched.operations, ready, second);
            attach(&mut intervals, seconds);
            intervals
        }
        None => Vec::new(),
    };
    watched.emitter.emit(&Event::Progress {
        seconds: start.elapsed().as_secs_f64(),
        operations: watched.intervals.total(),
        note: String::new(),
        intervals,
    });
}

/// Adds the samples to the intervals of the same seconds.
pub fn attach(intervals: &mut [Interval], samples: &[Interval]) {
    for interval in intervals {
        if let Some(sample) = samples.get(interval.second as usize) {
            interval.cpu_seconds = sample.cpu_seconds;
            interval.rss_bytes = sample.rss_bytes;
            interval.kb_read = sample.kb_read;
            interval.kb_written = sample.kb_written;
            interval.directory_bytes = sample.directory_bytes;
            interval.engine_counters = sample.engine_counters.clone();
        }
    }
}
