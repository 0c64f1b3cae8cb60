//! Time of the clients' threads, split into processor, device, the engine's own throttling, and
//! other waiting.
//!
//! In a closed loop `clients / throughput` is exactly the time of one operation on the thread of
//! its client. For embedded engines the processor's part of it is measured; the rest is waiting.
//! The device's part of the waiting is not measured. It is estimated from requests and bytes with
//! the two constants below, and sentences say "about".
//!
//! For a server only the processor time of all its processes is known. It may exceed the waiting
//! time of the clients, because it includes page-writing threads of the server and background
//! clients. So the processor gets at most the time that the device's estimate leaves.

use rumbench_core::engine::Durability;

use crate::report::throughput::{counts_rows, per_item, rate};
use crate::store::result::{PhaseResult, SuiteResult, TrialResult};

/// Time of one small request to a flash device in microseconds. NVMe and cloud disks answer a
/// random read in 60 to 200 us.
pub const REQUEST_US: f64 = 100.0;
/// Time of one KiB to or from a flash device in microseconds: 500 MB/s.
pub const KIB_US: f64 = 2.0;
/// Share of busy processors from which the whole machine counts as busy.
pub const MACHINE_BUSY: f64 = 0.85;
/// Share of an operation's time below which a cost explains nothing.
pub const MATERIAL: f64 = 0.1;

/// Use of an operation's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Wait for the next intended start: the phase reached its rate.
    Rate,
    /// Seconds in which almost nothing was done.
    Stalls,
    /// The laboratory's own work on the clients' threads.
    Client,
    /// The engine's work in the clients' calls, or a server's.
    Cpu,
    /// Wait for a processor: all were busy.
    Machine,
    /// Reads from the device.
    Reads,
    /// Writes to the device, and syncs.
    Writes,
    /// Delays that the engine imposes and counts itself.
    Throttle,
    /// Wait that no counter explains: locks, other clients, timers.
    Locks,
}

/// A resource and its share of an operation's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// Resource that the time went to.
    pub resource: Resource,
    /// Share, from 0 to 1.
    pub share: f64,
}

/// Split of the time of one phase's clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Usage {
    /// Time on a client's thread for one operation, or row, in microseconds.
    pub thread_us: f64,
    /// Part of `thread_us` on a processor. `None` if it is not measured, as for servers.
    pub cpu_us: Option<f64>,
    /// Share of the machine's processors that were busy. `None` if it is not measured.
    pub machine_busy: Option<f64>,
    /// Counter of the engine's own delays. `None` if it did not delay clients.
    pub throttle: Option<String>,
    /// Shares, largest first.
    pub parts: Vec<Part>,
}

impl Usage {
    /// Returns the bottleneck of the phase. `None` if no time could be assigned.
    pub fn first(&self) -> Option<Part> {
        self.parts.first().copied()
    }

    /// Splits the time of a trial's phase. `None` if its rate or the number of its clients is not
    /// known.
    pub fn of(suite: &SuiteResult, trial: &TrialResult, phase: &PhaseResult) -> Option<Usage> {
        let per_s = rate(phase).filter(|per_s| *per_s > 0.0)?;
        let thread_us = clients(trial, phase)? * 1e6 / per_s;
        let cpu_us = own_cpu(phase);
        let machine_busy = machine_busy(suite, phase, per_s);
        let throttled = throttled(trial, phase);
        let mut usage = Usage {
            thread_us,
            cpu_us,
            machine_busy,
            throttle: throttled.as_ref().map(|(name, _)| name.clone()),
            parts: Vec::new(),
        };
        match cpu_us {
            Some(cpu_us) => {
                let throttled_us = throttled.map_or(0.0, |(_, us)| us);
                usage.split(trial, phase, cpu_us, throttled_us);
            }
            None => usage.estimate(phase),
        }
        let met = phase.rate.is_some() && !crate::report::marks::rate_unmet(phase);
        let lost = phase.stall_seconds.unwrap_or(0.0) / phase.seconds.max(f64::MIN_POSITIVE);
        if met {
            usage.parts.insert(0, part(Resource::Rate, 1.0));
        } else if lost >= MATERIAL {
            usage.parts.insert(0, part(Resource::Stalls, lost));
        }
        Some(usage)
    }

    /// Splits a thread's time: the processor's share is measured, waiting is the rest.
    fn split(&mut self, trial: &TrialResult, phase: &PhaseResult, cpu_us: f64, throttled_us: f64) {
        let whole = self.thread_us;
        let mut left = (whole - cpu_us).max(0.0);
        let mut take = |us: f64| {
            let taken = us.clamp(0.0, left);
            left -= taken;
            taken / whole
        };
        let throttle = take(throttled_us);
        let reads = take(read_us(phase));
        // A synced commit waits only for the device.
        let writes = match trial.durability {
            Durability::Sync => take(f64::MAX),
            _ => take(write_us(phase)),
        };
        let rest = left / whole;
        let busy = self.machine_busy.is_some_and(|busy| busy >= MACHINE_BUSY);
        let own = if is_client_bound(phase) {
            Resource::Client
        } else {
            Resource::Cpu
        };
        self.parts = vec![
            part(own, (cpu_us / whole).min(1.0)),
            part(Resource::Throttle, throttle),
            part(Resource::Reads, reads),
            part(Resource::Writes, writes),
        ];
        self.parts.push(if busy {
            part(Resource::Machine, rest)
        } else {
            part(Resource::Locks, rest)
        });
        self.sort();
    }

    /// Splits the time if only the total processor time is known. A client waits for one thing at a
    /// time.
    fn estimate(&mut self, phase: &PhaseResult) {
        let whole = self.thread_us;
        let mut left = 1.0;
        let mut take = |us: f64| {
            let taken = (us / whole).clamp(0.0, left);
            left -= taken;
            taken
        };
        let reads = take(read_us(phase));
        let writes = take(write_us(phase));
        let cpu = take(all_cpu(phase).unwrap_or(0.0));
        self.parts = vec![
            part(Resource::Cpu, cpu),
            part(Resource::Reads, reads),
            part(Resource::Writes, writes),
        ];
        self.sort();
    }

    fn sort(&mut self) {
        self.parts.retain(|part| part.share > 0.0);
        self.parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    }
}

fn part(resource: Resource, share: f64) -> Part {
    Part { resource, share }
}

/// Returns the number of client threads of the phase. Results of older versions have only the
/// number of the workload, and a load may not have used it.
fn clients(trial: &TrialResult, phase: &PhaseResult) -> Option<f64> {
    let setting = || {
        let text = trial.configuration.get("workload.clients")?;
        text.parse::<usize>().ok()
    };
    let setting = || setting().filter(|_| !counts_rows(&phase.name));
    let clients = phase.clients.or_else(setting)?;
    (clients > 0).then_some(clients as f64)
}

/// Returns the processor time of the clients' threads per item. `None` for servers.
fn own_cpu(phase: &PhaseResult) -> Option<f64> {
    let cpu = phase.cpu_us_per_op.filter(|cpu| cpu.server.is_none())?;
    per_item(
        phase,
        Some(cpu.client.unwrap_or(0.0) + cpu.engine_foreground),
    )
}

/// Returns the processor time of all processes and threads of a trial, per item.
pub fn all_cpu(phase: &PhaseResult) -> Option<f64> {
    per_item(phase, phase.cpu_us_per_op.map(|cpu| cpu.total))
}

/// Returns true if the laboratory uses more than half of the processor time of the clients'
/// threads.
fn is_client_bound(phase: &PhaseResult) -> bool {
    let cpu = phase.cpu_us_per_op.unwrap_or_default();
    let client = cpu.client.unwrap_or(0.0);
    client > cpu.engine_foreground
}

/// Estimates the time of an item's reads in microseconds: by requests or by bytes, the larger one.
pub fn read_us(phase: &PhaseResult) -> f64 {
    device_us(phase, phase.reads_per_op, phase.kb_read_per_op)
}

/// Estimates the time of an item's writes in microseconds. 0 if background clients run, because the
/// writes of both cannot be separated.
pub fn write_us(phase: &PhaseResult) -> f64 {
    match phase.background {
        Some(_) => 0.0,
        None => device_us(phase, phase.writes_per_op, phase.kb_written_per_op),
    }
}

fn device_us(phase: &PhaseResult, requests: Option<f64>, kib: Option<f64>) -> f64 {
    let requests = requests.unwrap_or(0.0) * REQUEST_US;
    let bytes = kib.unwrap_or(0.0) * KIB_US;
    per_item(phase, Some(requests.max(bytes))).unwrap_or(0.0)
}

/// Returns the share of the machine's processors that were busy with any work. `None` if it is not
/// measured.
pub fn machine_busy(suite: &SuiteResult, phase: &PhaseResult, per_s: f64) -> Option<f64> {
    let cpus: f64 = suite.environment.get("cpus")?.parse().ok()?;
    let machine = per_item(phase, phase.cpu_us_per_op?.machine)?;
    (cpus > 0.0).then_some(machine * per_s / 1e6 / cpus)
}

/// Suffixes of time counters, with their units in microseconds.
const TIMES: &[(&str, f64)] = &[
    ("_us", 1.0),
    ("_micros", 1.0),
    ("_ms", 1e3),
    ("_seconds", 1e6),
];
/// Words in the names of counters for delays of clients.
const DELAYS: &[&str] = &["delay", "stall", "wait"];

/// Returns the counter of the engine's own delays that grew most in a phase, and its growth per
/// item in microseconds.
fn throttled(trial: &TrialResult, phase: &PhaseResult) -> Option<(String, f64)> {
    let place = trial.phases.iter().position(|p| p.name == phase.name)?;
    let before = place.checked_sub(1).map(|before| &trial.phases[before]);
    let items = phase.seconds * rate(phase)?;
    let grown = |(name, value): (&String, &f64)| {
        let unit = TIMES.iter().find(|(end, _)| name.ends_with(end))?.1;
        if !DELAYS.iter().any(|word| name.contains(word)) {
            return None;
        }
        let start = before.map_or(0.0, |p| p.engine_counters.get(name).copied().unwrap_or(0.0));
        // The counters of a reopened database start again from 0.
        let start = if *value < start { 0.0 } else { start };
        let us = (value - start) * unit / items;
        (us > 0.0).then(|| (name.clone(), us))
    };
    let found = phase.engine_counters.iter().filter_map(grown);
    found.max_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// Returns the usage of a request phase with a thread time of 1000 us per operation.
    fn measured(change: impl Fn(&mut TrialResult)) -> Usage {
        let mut suite = sample::suite();
        let trial = &mut suite.trials[0];
        let phase = &mut trial.phases[1];
        (phase.clients, phase.ops_per_s) = (Some(2), Some(2000.0));
        change(trial);
        let trial = &suite.trials[0];
        Usage::of(&suite, trial, &trial.phases[1]).unwrap()
    }

    fn cpu(trial: &mut TrialResult, client: f64, foreground: f64, machine: f64) {
        let cpu = trial.phases[1].cpu_us_per_op.as_mut().unwrap();
        (cpu.client, cpu.engine_foreground, cpu.machine) =
            (Some(client), foreground, Some(machine));
    }

    fn share(usage: &Usage, resource: Resource) -> f64 {
        let found = usage.parts.iter().find(|part| part.resource == resource);
        found.map_or(0.0, |part| part.share)
    }

    fn first(usage: &Usage) -> Resource {
        usage.first().unwrap().resource
    }

    #[test]
    fn shares_of_a_threads_time_sum_to_one() {
        let usage = measured(|trial| {
            cpu(trial, 10.0, 290.0, 400.0);
            trial.phases[1].reads_per_op = Some(2.0);
        });
        assert_eq!((usage.thread_us, usage.cpu_us), (1000.0, Some(300.0)));
        let sum: f64 = usage.parts.iter().map(|part| part.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{usage:?}");
        assert!((share(&usage, Resource::Reads) - 0.2).abs() < 1e-9);
        assert_eq!(first(&usage), Resource::Locks, "{usage:?}");
    }

    #[test]
    fn the_largest_share_is_the_bottleneck() {
        let usage = measured(|trial| cpu(trial, 50.0, 900.0, 1000.0));
        assert_eq!(first(&usage), Resource::Cpu);
        let usage = measured(|trial| cpu(trial, 700.0, 200.0, 950.0));
        assert_eq!(first(&usage), Resource::Client);
        // The engine's own threads use the rest of two processors.
        let usage = measured(|trial| cpu(trial, 10.0, 290.0, 950.0));
        assert_eq!(first(&usage), Resource::Machine);
        let usage = measured(|trial| {
            cpu(trial, 10.0, 90.0, 110.0);
            trial.phases[1].reads_per_op = Some(7.0);
        });
        assert_eq!(first(&usage), Resource::Reads);
        let usage = measured(|trial| {
            cpu(trial, 10.0, 90.0, 110.0);
            trial.phases[1].kb_written_per_op = Some(400.0);
        });
        assert_eq!(first(&usage), Resource::Writes);
    }

    #[test]
    fn of_a_server_the_processor_has_at_most_what_the_device_leaves() {
        let usage = measured(|trial| {
            let phase = &mut trial.phases[1];
            let cpu = phase.cpu_us_per_op.as_mut().unwrap();
            // One and a half processors for each client, background threads included.
            (cpu.server, cpu.total) = (Some(1500.0), 1500.0);
            (phase.reads_per_op, phase.kb_written_per_op) = (Some(4.5), Some(100.0));
        });
        assert_eq!(first(&usage), Resource::Reads);
        assert!((share(&usage, Resource::Writes) - 0.2).abs() < 1e-9);
        assert!((share(&usage, Resource::Cpu) - 0.35).abs() < 1e-9);
        let usage = measured(|trial| {
            let phase = &mut trial.phases[1];
            phase.cpu_us_per_op.as_mut().unwrap().server = Some(900.0);
            phase.reads_per_op = Some(20.0);
        });
        assert_eq!((first(&usage), usage.parts.len()), (Resource::Reads, 1));
    }

    #[test]
    fn synced_commits_wait_for_the_device() {
        let usage = measured(|trial| {
            cpu(trial, 10.0, 90.0, 110.0);
            trial.durability = Durability::Sync;
        });
        assert_eq!(first(&usage), Resource::Writes);
    }

    #[test]
    fn delays_that_the_engine_counts_are_its_own() {
        let usage = measured(|trial| {
            cpu(trial, 10.0, 90.0, 110.0);
            let counter = |phase: &mut PhaseResult, us: f64| {
                phase.engine_counters.insert("delay_us".to_string(), us);
            };
            counter(&mut trial.phases[0], 4e6);
            let growth = 600.0 * trial.phases[1].seconds * 2000.0;
            counter(&mut trial.phases[1], 4e6 + growth);
        });
        assert_eq!(first(&usage), Resource::Throttle);
        assert!((share(&usage, Resource::Throttle) - 0.6).abs() < 1e-9);
        assert_eq!(usage.throttle.as_deref(), Some("delay_us"));
    }

    #[test]
    fn a_rate_that_is_met_and_lost_seconds_come_before_all_else() {
        let usage = measured(|trial| trial.phases[1].rate = Some(2000.0));
        assert_eq!(first(&usage), Resource::Rate);
        let usage = measured(|trial| trial.phases[1].stall_seconds = Some(2.0));
        assert_eq!(
            usage.first(),
            Some(Part {
                resource: Resource::Stalls,
                share: 0.2
            })
        );
    }
}
