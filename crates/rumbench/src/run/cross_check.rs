//! Cross-checks of a phase: what the laboratory counts in two ways must agree.
//!
//! Clients count their operations and keep histograms; the seconds of the phase are counted apart
//! from them, and each client reads its clock once more when it leaves its loop. A difference is a
//! fault of the laboratory, whatever the engine did, so the trial counts as failed.

use crate::store::result::{Latency, PhaseResult};

/// Part of a number by which sums of floating-point numbers may differ.
const ROUNDING: f64 = 1e-6;
/// Time from the end of the last operation to the clock's last reading that needs no explanation,
/// in seconds, besides [`LATE_SHARE`] of the phase: the thread may lose its core in between.
const LATE_S: f64 = 0.3;
const LATE_SHARE: f64 = 0.01;
/// CPU of a thread outside of its phase, in seconds: it allocates its histograms before it begins.
const THREAD_START_S: f64 = 0.2;

/// Returns the contradictions in the numbers of a phase, in words. `left_s` is when its last client
/// left its loop, in seconds since the start; `None` if the phase was stopped early.
pub fn contradictions(phase: &PhaseResult, left_s: Option<f64>) -> Vec<String> {
    let mut found = Vec::new();
    counts(phase, &mut found);
    rates(phase, &mut found);
    times(phase, left_s, &mut found);
    for (name, latency) in &phase.latency_us {
        distribution(phase, name, latency, &mut found);
    }
    found
}

fn counts(phase: &PhaseResult, found: &mut Vec<String>) {
    let operations = phase.operations;
    let mut compare = |what: &str, sum: u64| {
        if sum != operations {
            found.push(format!("{what} are {sum}, of all clients {operations}"));
        }
    };
    let seconds = &phase.intervals;
    compare(
        "operations of its seconds",
        seconds.iter().map(|s| s.ops).sum(),
    );
    let classes = seconds.iter().flat_map(|second| &second.response_counts);
    compare("responses by class of its seconds", classes.sum());
    if !phase.latency_us.is_empty() {
        let counts = phase.latency_us.values().map(|latency| latency.count);
        compare("responses in its histograms", counts.sum());
    }
}

fn rates(phase: &PhaseResult, found: &mut Vec<String>) {
    let rates = [
        ("operations", phase.operations, phase.ops_per_s),
        ("rows", phase.rows, phase.rows_per_s),
    ];
    for (what, count, rate) in rates {
        let product = rate.unwrap_or(0.0) * phase.seconds;
        if rate.is_some() && !is_near(product, count as f64) {
            found.push(format!(
                "{what} are {count}, rate times time is {product:.1}"
            ));
        }
    }
}

fn times(phase: &PhaseResult, left_s: Option<f64>, found: &mut Vec<String>) {
    let seconds = phase.seconds;
    if let Some(left) = left_s
        && seconds < left * (1.0 - LATE_SHARE) - LATE_S
    {
        found.push(format!(
            "it took {seconds:.3} s, its last client ended at {left:.3} s"
        ));
    }
    let last = phase.intervals.iter().rfind(|second| second.ops > 0);
    if let Some(last) = last.filter(|last| last.second as f64 > seconds) {
        let second = last.second;
        found.push(format!(
            "it took {seconds:.3} s, operations ended in second {second}"
        ));
    }
    let Some(clients) = phase.clients else { return };
    let available = clients as f64 * seconds;
    let service = phase.service_us.values();
    let busy = service.map(|own| own.mean * own.count as f64).sum::<f64>() / 1e6;
    if busy > available * (1.0 + ROUNDING) {
        found.push(format!(
            "its operations took {busy:.3} s together, its {clients} clients had {available:.3} s"
        ));
    }
    let cpu = phase.cpu_seconds.map_or(0.0, |cpu| cpu.client_threads);
    if cpu > available * (1.0 + LATE_SHARE) + THREAD_START_S * clients as f64 {
        found.push(format!(
            "its {clients} clients used {cpu:.3} s of CPU in {available:.3} s"
        ));
    }
}

/// Compares the histogram of an operation with its buckets and with the seconds of the phase.
fn distribution(phase: &PhaseResult, name: &str, own: &Latency, found: &mut Vec<String>) {
    let Latency {
        mean,
        p50,
        p95,
        p99,
        p999,
        p9999,
        max,
        count,
    } = *own;
    if !([p50, p95, p99, p999, p9999, max].is_sorted() && mean <= max * (1.0 + ROUNDING)) {
        found.push(format!(
            "percentiles of {name} do not ascend to their maximum"
        ));
    }
    let seconds = || phase.intervals.iter();
    let of_seconds: u64 = seconds()
        .filter_map(|second| second.op_counts.get(name))
        .sum();
    let buckets = phase.response_buckets.get(name);
    let of_buckets = buckets.map_or(count, |buckets| buckets.iter().sum());
    if of_seconds != count || of_buckets != count {
        found.push(format!(
            "responses of {name} are {count} in its histogram, {of_seconds} in its seconds, {of_buckets} in its buckets"
        ));
    }
    let longest = seconds().filter_map(|second| second.op_max_us.get(name).copied());
    let longest = longest.fold(0.0, f64::max);
    if !is_near(longest, max) {
        found.push(format!(
            "the longest response of {name} is {max:.1} us in its histogram, {longest:.1} us in its seconds"
        ));
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= ROUNDING * a.abs().max(b.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::result::{CpuSeconds, Interval};

    /// Two clients; one operation of 0.5 s in the first second, three of 0.1 s in the second one.
    fn phase() -> PhaseResult {
        let latency = Latency {
            count: 4,
            mean: 200_000.0,
            p50: 100_000.0,
            p95: 500_000.0,
            p99: 500_000.0,
            p999: 500_000.0,
            p9999: 500_000.0,
            max: 500_000.0,
        };
        let second = |second: u64, ops: u64, max_us: f64| Interval {
            second,
            ops,
            max_us,
            op_counts: [("GET".to_string(), ops)].into(),
            op_max_us: [("GET".to_string(), max_us)].into(),
            response_counts: vec![0, ops],
            ..Interval::default()
        };
        PhaseResult {
            seconds: 1.6,
            clients: Some(2),
            operations: 4,
            rows: 8,
            ops_per_s: Some(2.5),
            rows_per_s: Some(5.0),
            latency_us: [("GET".to_string(), latency)].into(),
            service_us: [("GET".to_string(), latency)].into(),
            response_buckets: [("GET".to_string(), [0, 0, 0, 0, 0, 3, 1, 0, 0, 0])].into(),
            cpu_seconds: Some(CpuSeconds {
                client_threads: 1.0,
                ..CpuSeconds::default()
            }),
            intervals: vec![second(0, 1, 500_000.0), second(1, 3, 100_000.0)],
            ..PhaseResult::default()
        }
    }

    fn found(change: impl FnOnce(&mut PhaseResult)) -> String {
        let mut phase = phase();
        change(&mut phase);
        contradictions(&phase, Some(1.61)).join("; ")
    }

    #[test]
    fn numbers_that_agree_have_no_contradiction() {
        assert_eq!(found(|_| {}), "");
        let mut early = phase();
        early.latency_us.clear();
        early.service_us.clear();
        early.response_buckets.clear();
        assert!(
            contradictions(&early, None).is_empty(),
            "a load has no histograms"
        );
    }

    #[test]
    fn every_number_that_is_changed_alone_is_found() {
        let latency = |change: fn(&mut Latency)| {
            found(|phase| change(phase.latency_us.get_mut("GET").unwrap()))
        };
        let all = [
            (
                found(|p| drop(p.intervals.remove(0))),
                "operations of its seconds are 3, of all clients 4",
            ),
            (
                found(|p| p.intervals[1].response_counts[1] = 2),
                "responses by class of its seconds are 3",
            ),
            (
                found(|p| p.ops_per_s = Some(3.0)),
                "operations are 4, rate times time is 4.8",
            ),
            (
                found(|p| p.rows_per_s = Some(4.0)),
                "rows are 8, rate times time is 6.4",
            ),
            (
                found(|p| p.seconds = 0.9),
                "its last client ended at 1.610 s",
            ),
            (found(|p| p.seconds = 0.9), "operations ended in second 1"),
            (found(|p| p.seconds = 0.3), "its 2 clients had 0.600 s"),
            (
                found(|p| p.cpu_seconds.as_mut().unwrap().client_threads = 4.0),
                "used 4.000 s of CPU in 3.200 s",
            ),
            (
                latency(|l| l.p99 = 90_000.0),
                "percentiles of GET do not ascend",
            ),
            (
                latency(|l| l.mean = 900_000.0),
                "percentiles of GET do not ascend",
            ),
            (
                latency(|l| l.count = 5),
                "responses of GET are 5 in its histogram, 4 in its seconds, 4 in its buckets",
            ),
            (
                latency(|l| l.max = 600_000.0),
                "600000.0 us in its histogram, 500000.0 us in its seconds",
            ),
        ];
        for (found, expected) in all {
            assert!(found.contains(expected), "`{found}` lacks `{expected}`");
        }
    }
}
