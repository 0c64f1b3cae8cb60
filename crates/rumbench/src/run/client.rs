//! Loop of one client: choose, wait for the intended start, execute, record. The only timed code of
//! the laboratory.
//!
//! A closed loop reads the clock twice for each operation, because choosing and generating between
//! two operations are not the engine's time. The loop allocates nothing after its first second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rumbench_core::engine::EngineError;
use rumbench_core::trial::{PhaseClient, PhaseEnd};

use super::intervals::Recorder;
use super::pacing::Schedule;
use crate::measure::latency::Latencies;
use crate::measure::process;

/// Calls per sampled call: the thread CPU clock is read around every n-th call.
const CPU_SAMPLE_EVERY: u64 = 64;
/// Operations taken from a shared budget at once: few enough that clients end together.
const BUDGET_BATCH: u64 = 16;
/// Consecutive errors after which a client gives up.
const MAX_ERRORS_IN_A_ROW: u32 = 1000;
/// Error messages kept by each client.
const ERROR_SAMPLES: usize = 3;

/// Time since the start of the phase. Tests replace it by a clock that operations advance.
pub trait Clock {
    /// Nanoseconds since the start of the phase.
    fn now_ns(&self) -> u64;
    /// Returns at `at_ns`, or early when `stop` is set.
    fn wait_until(&self, at_ns: u64, stop: &AtomicBool);
}

/// CLOCK_MONOTONIC from a common start.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    start: Instant,
    /// Final part of each wait that is spun instead of slept, in nanoseconds.
    spin_ns: u64,
}

impl MonotonicClock {
    /// Returns a clock that keeps intended starts to a few microseconds, at the cost of CPU.
    pub fn exact(start: Instant) -> MonotonicClock {
        const SPIN_NS: u64 = 60_000;
        MonotonicClock {
            start,
            spin_ns: SPIN_NS,
        }
    }

    /// Returns a clock for a background client: it only sleeps, to leave the CPU to the measured
    /// clients.
    pub fn frugal(start: Instant) -> MonotonicClock {
        MonotonicClock { start, spin_ns: 0 }
    }
}

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Sleeps until shortly before `at_ns`, because the kernel's timer slack wakes a sleeping
    /// thread late, then spins. Spinning yields, because on a small machine the engine's threads
    /// need this CPU.
    fn wait_until(&self, at_ns: u64, stop: &AtomicBool) {
        const LONGEST_SLEEP_NS: u64 = 100_000_000;
        while !stop.load(Ordering::Relaxed) {
            let left = at_ns.saturating_sub(self.now_ns());
            if left == 0 {
                return;
            }
            if left > self.spin_ns {
                let sleep = (left - self.spin_ns).min(LONGEST_SLEEP_NS);
                std::thread::sleep(Duration::from_nanos(sleep));
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// Conditions that stop the clients of a phase.
#[derive(Debug)]
pub struct Limit {
    /// Deadline in nanoseconds since the start of the phase. None: the phase does not end by time.
    pub deadline_ns: Option<u64>,
    /// Operations not yet taken by any client. None: the phase does not end by count.
    pub budget: Option<AtomicU64>,
    /// Set to end early: after an interruption or a wrong answer.
    pub stop: AtomicBool,
}

impl Limit {
    /// Returns the limit of a phase with this end.
    pub fn of(end: PhaseEnd) -> Limit {
        let (seconds, operations) = match end {
            PhaseEnd::Work => (None, None),
            PhaseEnd::Seconds(seconds) => (Some(seconds), None),
            PhaseEnd::Operations(operations) => (None, Some(operations)),
        };
        Limit {
            deadline_ns: seconds.map(|seconds| (seconds * 1e9) as u64),
            budget: operations.map(AtomicU64::new),
            stop: AtomicBool::new(false),
        }
    }

    /// Takes up to `batch` operations from the budget; 0 means that the budget is used up.
    fn take(&self, batch: u64) -> u64 {
        let Some(budget) = &self.budget else {
            return u64::MAX;
        };
        // Relaxed: the counter guards no other memory.
        let before = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(batch))
        });
        before.unwrap_or(0).min(batch)
    }

    /// Returns operations that a client without further work cannot use.
    fn give_back(&self, operations: u64) {
        if let Some(budget) = &self.budget {
            budget.fetch_add(operations, Ordering::Relaxed);
        }
    }

    fn passed(&self, now_ns: u64) -> bool {
        self.deadline_ns.is_some_and(|deadline| now_ns >= deadline)
    }
}

/// Counts and latencies of one client in one phase.
pub struct ClientReport {
    /// Response times.
    pub response: Latencies,
    /// Service times; empty without a rate, because they equal the response times then.
    pub service: Latencies,
    /// Lateness of starts after idling, as operation 0.
    pub lateness: Latencies,
    /// Successful operations.
    pub operations: u64,
    /// Rows that the successful operations returned or wrote.
    pub rows: u64,
    /// Failed operations.
    pub errors: u64,
    /// Retries within successful operations.
    pub retries: u64,
    /// Bytes of keys and values written; 0 if the workload does not count them.
    pub written_bytes: u64,
    /// Intended starts before the deadline that the client did not reach.
    pub missed: u64,
    /// First error messages, at most 3.
    pub error_samples: Vec<String>,
    /// Wrong answer, if the client received one; it ends the phase.
    pub wrong: Option<String>,
    /// Thread CPU spent waiting for intended starts, in nanoseconds.
    pub waiting_ns: u64,
    /// Thread CPU inside sampled calls, in nanoseconds.
    pub sampled_ns: u64,
    /// Number of sampled calls.
    pub samples: u64,
    /// End of the last operation, in nanoseconds since the start of the phase; the deadline if the
    /// client waited for it, because no intended start was left before it.
    pub end_ns: u64,
    /// When the client left its loop, in nanoseconds since the start of the phase, and the CPU of
    /// its thread then. What follows, such as counting the starts that were missed, is not of the
    /// phase.
    pub left_ns: u64,
    pub left_cpu_ns: u64,
    /// Next intended start of a client that ended before the deadline, because the operations or
    /// its work were used up.
    pub next_ns: Option<u64>,
}

impl ClientReport {
    pub(super) fn new(operations: usize) -> ClientReport {
        ClientReport {
            response: Latencies::new(operations),
            service: Latencies::new(operations),
            lateness: Latencies::new(1),
            operations: 0,
            rows: 0,
            errors: 0,
            retries: 0,
            written_bytes: 0,
            missed: 0,
            error_samples: Vec::new(),
            wrong: None,
            waiting_ns: 0,
            sampled_ns: 0,
            samples: 0,
            end_ns: 0,
            left_ns: 0,
            left_cpu_ns: 0,
            next_ns: None,
        }
    }
}

/// One client with everything that its loop needs.
pub struct ClientLoop<'a, C: Clock> {
    clock: C,
    schedule: Option<Schedule>,
    limit: &'a Limit,
    recorder: Recorder<'a>,
    report: ClientReport,
    errors_in_a_row: u32,
    cpu_clock_cost_ns: u64,
}

impl<'a, C: Clock> ClientLoop<'a, C> {
    /// Allocates histograms; `operations` is the number of operation types.
    pub fn new(
        clock: C,
        schedule: Option<Schedule>,
        limit: &'a Limit,
        recorder: Recorder<'a>,
        operations: usize,
    ) -> ClientLoop<'a, C> {
        ClientLoop {
            clock,
            schedule,
            limit,
            recorder,
            report: ClientReport::new(operations),
            errors_in_a_row: 0,
            cpu_clock_cost_ns: cpu_clock_cost_ns(),
        }
    }

    /// Runs until the client has no more work or the phase ends.
    pub fn run(mut self, client: &mut dyn PhaseClient) -> ClientReport {
        // With a rate each client takes its operations in turn.
        let batch = if self.schedule.is_some() {
            1
        } else {
            BUDGET_BATCH
        };
        let mut quota = 0;
        let mut calls: u64 = 0;
        while !self.limit.stop.load(Ordering::Relaxed) && !self.limit.passed(self.report.end_ns) {
            if quota == 0 {
                quota = self.limit.take(batch);
                if quota == 0 {
                    break;
                }
            }
            let Some(operation) = client.prepare() else {
                break;
            };
            let Some(intended_ns) = self.await_start() else {
                break;
            };
            quota -= 1;
            let sample = calls.is_multiple_of(CPU_SAMPLE_EVERY);
            calls += 1;
            if !self.execute(client, operation, intended_ns, sample) {
                break;
            }
        }
        if quota != u64::MAX {
            self.limit.give_back(quota);
        }
        self.recorder.hand_over();
        self.wait_out();
        self.report.left_ns = self.clock.now_ns();
        self.report.left_cpu_ns = process::thread_cpu_ns();
        self.count_missed();
        self.report
    }

    /// Waits for the deadline if no intended start is left before it. Otherwise notes the next one.
    /// Operations that start in bursts would be divided by the time of the bursts alone.
    fn wait_out(&mut self) {
        let gave_up = self.errors_in_a_row >= MAX_ERRORS_IN_A_ROW;
        let next = self.schedule.as_ref().map(Schedule::peek_ns);
        let Some(next) = next.filter(|_| !gave_up && !self.is_stopped()) else {
            return;
        };
        match self.limit.deadline_ns.filter(|deadline| next >= *deadline) {
            None => self.report.next_ns = Some(next),
            Some(deadline) => {
                self.wait_until(deadline);
                if !self.is_stopped() {
                    self.report.end_ns = self.report.end_ns.max(deadline);
                }
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.limit.stop.load(Ordering::Relaxed)
    }

    /// Waits, and counts the CPU time of the wait.
    fn wait_until(&mut self, at_ns: u64) {
        let before = process::thread_cpu_ns();
        self.clock.wait_until(at_ns, &self.limit.stop);
        self.report.waiting_ns += process::thread_cpu_ns().saturating_sub(before);
    }

    /// Waits for the next intended start, if there is a rate. `Some(None)` is a closed loop; `None`
    /// means that the phase ends first.
    fn await_start(&mut self) -> Option<Option<u64>> {
        let Some(schedule) = &mut self.schedule else {
            return Some(None);
        };
        if self.limit.passed(schedule.peek_ns()) {
            return None;
        }
        let intended = schedule.next_ns();
        if self.clock.now_ns() < intended {
            self.wait_until(intended);
            if self.is_stopped() {
                return None;
            }
            let late = self.clock.now_ns().saturating_sub(intended);
            self.report.lateness.record(0, late);
        }
        Some(Some(intended))
    }

    /// Executes and records one operation. Returns true if the loop continues.
    fn execute(
        &mut self,
        client: &mut dyn PhaseClient,
        operation: usize,
        intended_ns: Option<u64>,
        sample: bool,
    ) -> bool {
        let cpu_before = if sample { process::thread_cpu_ns() } else { 0 };
        let start = self.clock.now_ns();
        let outcome = client.execute();
        let end = self.clock.now_ns();
        if sample {
            let spent = process::thread_cpu_ns().saturating_sub(cpu_before);
            self.report.sampled_ns += spent.saturating_sub(self.cpu_clock_cost_ns);
            self.report.samples += 1;
        }
        self.report.end_ns = end;
        match outcome {
            Ok(done) => {
                let response = end.saturating_sub(intended_ns.unwrap_or(start));
                self.report.response.record(operation, response);
                if intended_ns.is_some() {
                    self.report.service.record(operation, end - start);
                }
                self.recorder.record(operation, end, response);
                self.report.operations += 1;
                self.report.rows += done.rows;
                self.report.retries += done.retries;
                self.report.written_bytes += done.written_bytes;
                self.errors_in_a_row = 0;
                true
            }
            Err(error) => self.note_error(&error),
        }
    }

    /// Counts an error. Returns true if the loop continues.
    fn note_error(&mut self, error: &EngineError) -> bool {
        self.report.errors += 1;
        self.errors_in_a_row += 1;
        if self.report.error_samples.len() < ERROR_SAMPLES {
            self.report.error_samples.push(error_chain(error));
        }
        if let EngineError::Wrong(message) = error {
            self.report.wrong = Some(message.clone());
            self.limit.stop.store(true, Ordering::Relaxed);
            return false;
        }
        self.errors_in_a_row < MAX_ERRORS_IN_A_ROW
    }

    /// Counts the intended starts before the deadline that were not reached.
    fn count_missed(&mut self) {
        let (Some(schedule), Some(deadline)) = (&mut self.schedule, self.limit.deadline_ns) else {
            return;
        };
        let until = if self.limit.stop.load(Ordering::Relaxed) {
            self.report.end_ns.min(deadline)
        } else {
            deadline
        };
        while schedule.next_ns() < until {
            self.report.missed += 1;
        }
    }
}

/// Returns an error and its causes in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many errors already print their source.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Measures the CPU time that one pair of thread CPU clock reads adds to a sample.
fn cpu_clock_cost_ns() -> u64 {
    const READS: u64 = 64;
    let start = process::thread_cpu_ns();
    for _ in 0..READS {
        std::hint::black_box(process::thread_cpu_ns());
    }
    process::thread_cpu_ns().saturating_sub(start) / READS
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rumbench_core::trial::{Done, OpIndex};

    use super::*;
    use crate::run::intervals::Intervals;
    use crate::run::pacing::{Arrivals, Rate};

    const MS: u64 = 1_000_000;

    /// Clock that only operations and waits advance.
    #[derive(Clone, Default)]
    struct VirtualClock(Arc<AtomicU64>);

    impl Clock for VirtualClock {
        fn now_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
        fn wait_until(&self, at_ns: u64, _stop: &AtomicBool) {
            self.0.fetch_max(at_ns, Ordering::Relaxed);
        }
    }

    /// Client with operations of 0.1 ms, except that the first one in every ten seconds takes a
    /// second.
    struct Stalling {
        clock: VirtualClock,
        next_stall_ns: u64,
        left: u64,
    }

    impl PhaseClient for Stalling {
        fn prepare(&mut self) -> Option<OpIndex> {
            self.left = self.left.checked_sub(1)?;
            Some(0)
        }
        fn execute(&mut self) -> Result<Done, EngineError> {
            let mut ns = MS / 10;
            if self.clock.now_ns() >= self.next_stall_ns {
                self.next_stall_ns += 10_000 * MS;
                ns = 1000 * MS;
            }
            self.clock.0.fetch_add(ns, Ordering::Relaxed);
            Ok(Done {
                rows: 1,
                ..Done::default()
            })
        }
    }

    fn limit(seconds: Option<u64>, operations: Option<u64>) -> Limit {
        Limit {
            deadline_ns: seconds.map(|s| s * 1000 * MS),
            budget: operations.map(AtomicU64::new),
            stop: AtomicBool::new(false),
        }
    }

    fn run(schedule: Option<Schedule>, limit: &Limit, left: u64) -> ClientReport {
        let clock = VirtualClock::default();
        let mut client = Stalling {
            clock: clock.clone(),
            next_stall_ns: 5000 * MS,
            left,
        };
        let intervals = Intervals::new(1);
        ClientLoop::new(clock, schedule, limit, intervals.recorder(), 1).run(&mut client)
    }

    fn even(per_second: f64) -> Option<Schedule> {
        let rate = Rate {
            per_second,
            arrivals: Arrivals::Even,
        };
        Some(Schedule::new(rate, 0, 1, 1))
    }

    #[test]
    fn stalls_show_in_response_p99_and_not_in_service_p99() {
        let report = run(even(1000.0), &limit(Some(60), None), u64::MAX);
        let response = report.response.summary(0).unwrap();
        let service = report.service.summary(0).unwrap();
        assert!(response.p99 > 500_000.0, "{response:?}");
        assert!(service.p99 < 200.0, "{service:?}");
        assert!(
            (990_000.0..1_010_000.0).contains(&response.max),
            "{response:?}"
        );
        assert_eq!(report.missed, 0);
        assert_eq!(report.operations, 60_000);
    }

    #[test]
    fn rate_above_the_capacity_counts_missed_arrivals() {
        let report = run(even(20_000.0), &limit(Some(4), None), u64::MAX);
        // 10,000 operations a second are possible; nothing stalls in the first five seconds.
        assert_eq!(report.operations + report.missed, 80_000);
        assert!(
            (39_000..41_000).contains(&report.missed),
            "{}",
            report.missed
        );
    }

    #[test]
    fn a_phase_of_bursts_lasts_until_its_end_and_not_only_to_its_last_operation() {
        let bursts = || {
            let rate = Rate {
                per_second: 1000.0,
                arrivals: Arrivals::Burst,
            };
            Some(Schedule::new(rate, 0, 1, 1))
        };
        let second = 1000 * MS;
        let by_time = run(bursts(), &limit(Some(3), None), u64::MAX);
        assert_eq!((by_time.operations, by_time.end_ns), (3000, 3 * second));
        assert_eq!(by_time.missed, 0);
        let by_count = run(bursts(), &limit(None, Some(2000)), u64::MAX);
        assert_eq!(
            (by_count.operations, by_count.next_ns),
            (2000, Some(2 * second))
        );
        assert!(by_count.end_ns < 2 * second);
        let by_work = run(bursts(), &limit(Some(60), None), 4000);
        assert_eq!(
            (by_work.operations, by_work.next_ns),
            (4000, Some(4 * second))
        );
        assert!(
            by_work.end_ns < 4 * second,
            "it does not wait for the deadline"
        );
    }

    #[test]
    fn budget_is_executed_exactly_and_returned_when_work_runs_out() {
        let limit = limit(None, Some(100));
        let first = run(None, &limit, 37);
        let second = run(None, &limit, u64::MAX);
        assert_eq!((first.operations, second.operations), (37, 63));
        assert!(first.service.summary(0).is_none());
    }
}
