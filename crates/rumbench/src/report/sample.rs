//! Fixed suite results for the tests of reports and store: two engines, one repetition unless
//! stated.

use std::collections::BTreeMap;

use rumbench_core::engine::{Durability, DurabilityFacts};

use crate::run::pacing::Arrivals;
use crate::run::search::sla::Condition;
use crate::run::search::{Search, label};
use crate::store::result::*;
use crate::store::sweep::{Sweep, TURNOVER};

fn latency(us: f64) -> Latency {
    Latency {
        count: 1000,
        mean: us,
        p50: us,
        p95: us * 2.0,
        p99: us * 3.0,
        p999: us * 4.0,
        p9999: us * 5.0,
        max: us * 10.0,
    }
}

fn request(ops_per_s: f64) -> PhaseResult {
    PhaseResult {
        name: "request".to_string(),
        seconds: 10.0,
        operations: (ops_per_s * 10.0) as u64,
        rows: (ops_per_s * 70.0) as u64,
        clients: Some(2),
        ops_per_s: Some(ops_per_s),
        rows_per_s: Some(ops_per_s * 7.0),
        latency_us: [("GET_NODE", 10.0), ("ADD_LINK", 40.0)]
            .map(|(name, us)| (name.to_string(), latency(us)))
            .into(),
        cpu_us_per_op: Some(CpuPerOp {
            total: 30.0,
            client: Some(2.0),
            client_user: Some(1.5),
            engine_foreground: 20.0,
            engine_background: 8.0,
            machine: Some(40.0),
            ..CpuPerOp::default()
        }),
        context_switches_per_op: Some(0.25),
        reads_per_op: Some(0.0),
        kb_read_per_op: Some(0.0),
        writes_per_op: Some(0.02),
        kb_written_per_op: Some(1.5),
        kb_written_per_op_settled: Some(2.5),
        io_source: Some("device vda".to_string()),
        size_bytes: Some(SizeBytes {
            data: 1 << 30,
            directory: 3 << 29,
            peak: 2 << 30,
        }),
        rss_bytes: Some(RssBytes {
            peak: 1 << 28,
            anonymous: 1 << 27,
        }),
        stall_seconds: Some(0.0),
        longest_stall_ms: Some(12.0),
        ..PhaseResult::default()
    }
}

fn load() -> PhaseResult {
    PhaseResult {
        name: "load".to_string(),
        seconds: 4.0,
        operations: 80,
        rows: 80_000,
        ops_per_s: Some(20.0),
        rows_per_s: Some(20_000.0),
        kb_written_per_op: Some(1000.0),
        ..PhaseResult::default()
    }
}

fn settle() -> PhaseResult {
    PhaseResult {
        name: "settle".to_string(),
        seconds: 1.5,
        cpu_seconds: Some(CpuSeconds {
            process: 0.75,
            ..CpuSeconds::default()
        }),
        kb_written: Some(10_240.0),
        size_bytes: Some(SizeBytes {
            data: 1 << 30,
            directory: 1 << 30,
            peak: 2 << 30,
        }),
        amplification: Some(Amplification {
            space: Some(1.1),
            ..Amplification::default()
        }),
        ..PhaseResult::default()
    }
}

fn trial(engine: &str, ops_per_s: f64) -> TrialResult {
    TrialResult {
        engine: engine.to_string(),
        variant: None,
        engine_version: "1.0".to_string(),
        host: None,
        point: None,
        repetition: 1,
        seed: 1,
        durability: Durability::Buffered,
        durability_facts: Some(DurabilityFacts {
            process_kill: "all acknowledged commits".to_string(),
            power_cut: "a prefix no older than 1 s".to_string(),
        }),
        marks: Vec::new(),
        configuration: BTreeMap::new(),
        started_at: "2026-01-01T00:00:00Z".to_string(),
        ended_at: None,
        cache_state: "page cache dropped before the trial".to_string(),
        memory: None,
        verified: Some("counts match".to_string()),
        imported: None,
        phases: vec![load(), request(ops_per_s), settle()],
    }
}

/// Returns a result of LinkBench: a load, requests and a settle on each engine.
pub fn suite() -> SuiteResult {
    let environment = [
        ("cpus", "2"),
        ("cpu", "Test CPU"),
        ("kernel", "6.1"),
        ("file_system", "ext4"),
        ("device", "vda"),
    ];
    SuiteResult {
        schema_version: 1,
        rumbench_version: "0.1.0".to_string(),
        command: "rumbench run linkbench --engine alluvium --engine sqlite".to_string(),
        started_at: "2026-01-01T00:00:00Z".to_string(),
        resumed_at: Vec::new(),
        seed: 1,
        workload: "linkbench".to_string(),
        workload_version: Some(1),
        settings: BTreeMap::new(),
        environment: environment
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .into(),
        machine: Vec::new(),
        calibration: None,
        calibrations: BTreeMap::new(),
        sweep: None,
        rate_search: None,
        trials: vec![trial("alluvium", 2000.0), trial("sqlite", 1000.0)],
        comparisons: Vec::new(),
        interrupted: false,
    }
}

/// Returns a result of kv-sequence: reads with a background writer, then overwrites, with a settle
/// after the load and at the end.
pub fn kv_sequence() -> SuiteResult {
    let mut suite = suite();
    suite.workload = "kv-sequence".to_string();
    suite.command = "rumbench run kv-sequence --engine alluvium --engine sqlite".to_string();
    for trial in &mut suite.trials {
        let settings = [
            ("workload.key_bytes", "20"),
            ("workload.value_bytes", "400"),
        ];
        trial.configuration = settings.map(|(k, v)| (k.to_string(), v.to_string())).into();
        let [load, request, settle] = &trial.phases[..] else {
            continue;
        };
        let one = |name: &str| [(name.to_string(), latency(8.0))].into();
        let reads = PhaseResult {
            name: "readwhilewriting".to_string(),
            latency_us: one("GET"),
            background: Some(BackgroundResult {
                operations: 49_930,
                rate: 4993.2,
                ops_per_s: Some(4993.0),
                latency_us: one("PUT"),
                cpu_us_per_op: Some(11.5),
                ..BackgroundResult::default()
            }),
            ..request.clone()
        };
        let overwrites = PhaseResult {
            name: "overwriteandwait".to_string(),
            latency_us: one("PUT"),
            amplification: Some(Amplification {
                write: Some(3.25),
                write_settled: Some(4.5),
                ..Amplification::default()
            }),
            ..request.clone()
        };
        let again = PhaseResult {
            name: "settle#2".to_string(),
            ..settle.clone()
        };
        trial.phases = vec![load.clone(), settle.clone(), reads, overwrites, again];
    }
    suite
}

/// Returns a result of the Insert Benchmark: a load and range queries. The second engine is slower
/// and misses its background rate.
pub fn insert_benchmark() -> SuiteResult {
    let mut suite = suite();
    suite.workload = "insert-benchmark".to_string();
    suite.command = "rumbench run insert-benchmark --engine alluvium --engine sqlite".to_string();
    for (place, trial) in suite.trials.iter_mut().enumerate() {
        let slower = if place == 0 { 1.0 } else { 0.5 };
        let settings = [("workload.rows", "200000"), ("workload.tables", "1")];
        trial.configuration = settings.map(|(k, v)| (k.to_string(), v.to_string())).into();
        let [load, request, settle] = &trial.phases[..] else {
            continue;
        };
        let seconds = |name: &'static str, ops: u64| {
            let second = move |second| Interval {
                second,
                ops,
                op_counts: [(name.to_string(), ops)].into(),
                ..Interval::default()
            };
            (0..12).map(second).collect::<Vec<_>>()
        };
        let one = |name: &str, us: f64| [(name.to_string(), latency(us))].into();
        let counts = |name: &str, counts| [(name.to_string(), counts)].into();
        let inserts = PhaseResult {
            name: "l.i0".to_string(),
            seconds: 12.0 / slower,
            operations: 2000,
            rows: 200_000,
            rows_per_s: Some(200_000.0 / 12.0 * slower),
            latency_us: one("INSERT", 90.0),
            response_buckets: counts("INSERT", [1990, 9, 1, 0, 0, 0, 0, 0, 0, 0]),
            intervals: seconds("INSERT", 166),
            cpu_seconds: Some(CpuSeconds {
                machine: Some(15.0),
                ..CpuSeconds::default()
            }),
            ..load.clone()
        };
        let ranges = PhaseResult {
            name: "qr100".to_string(),
            latency_us: one("PDC", 20.0),
            response_buckets: counts("PDC", [999_999, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
            background: Some(BackgroundResult {
                operations: 40,
                rate: 4.0,
                ops_per_s: Some(4.0),
                rows_rate: Some(100.0),
                rows_per_s: Some(if place == 0 { 100.0 } else { 80.0 }),
                latency_us: one("INSERT", 300.0),
                response_buckets: counts("INSERT", [0, 20, 0, 0, 0, 0, 0, 0, 0, 0]),
                ..BackgroundResult::default()
            }),
            ..request.clone()
        };
        trial.phases = vec![inserts, settle.clone(), ranges];
    }
    suite
}

/// Returns a result of large values: a load, its settle, queries with background inserts, another
/// settle.
pub fn large_values() -> SuiteResult {
    let mut suite = suite();
    suite.workload = "large-values".to_string();
    suite.command = "rumbench run large-values --engine alluvium --engine sqlite".to_string();
    for trial in &mut suite.trials {
        let settings = [
            ("workload.value_min", "10000"),
            ("workload.value_max", "20000"),
            ("workload.random_percent", "45"),
        ];
        trial.configuration = settings.map(|(k, v)| (k.to_string(), v.to_string())).into();
        let [load, request, settle] = &trial.phases[..] else {
            continue;
        };
        let one = |name: &str, us: f64| [(name.to_string(), latency(us))].into();
        let inserts = PhaseResult {
            written_bytes: Some(1_200_000_000),
            kb_written_per_op_settled: Some(1500.0),
            amplification: Some(Amplification {
                write_settled: Some(0.55),
                ..Amplification::default()
            }),
            ..load.clone()
        };
        let settled = PhaseResult {
            stored_bytes: Some(StoredBytes {
                raw: 1_200_000_000,
                compressed: 540_000_000,
            }),
            amplification: Some(Amplification {
                space: Some(0.5),
                space_compressed: Some(1.1),
                ..Amplification::default()
            }),
            ..settle.clone()
        };
        let queries = PhaseResult {
            name: "query".to_string(),
            latency_us: one("GET", 60.0),
            background: Some(BackgroundResult {
                rows_rate: Some(100.0),
                rows_per_s: Some(100.0),
                latency_us: one("INSERT", 300.0),
                ..BackgroundResult::default()
            }),
            ..request.clone()
        };
        let again = PhaseResult {
            name: "settle#2".to_string(),
            ..settled.clone()
        };
        trial.phases = vec![inserts, settled, queries, again];
    }
    suite
}

/// Returns a result of OLTP ranges: a load with its index, tests of several groups, a scan and a
/// warm-up.
pub fn oltp_range() -> SuiteResult {
    let mut suite = suite();
    suite.workload = "oltp-range".to_string();
    suite.command = "rumbench run oltp-range --engine alluvium --engine sqlite".to_string();
    for trial in &mut suite.trials {
        let [load, request, settle] = &trial.phases[..] else {
            continue;
        };
        let named = |name: &str| PhaseResult {
            name: name.to_string(),
            latency_us: [("EVENT".to_string(), latency(2000.0))].into(),
            ..request.clone()
        };
        let index = PhaseResult {
            name: "index".to_string(),
            seconds: 1.0,
            operations: 1,
            ..load.clone()
        };
        let warmup = PhaseResult {
            latency_us: BTreeMap::new(),
            ..named("warmup-scan")
        };
        let scan = PhaseResult {
            operations: 10,
            rows: 800_000,
            latency_us: [("EVENT".to_string(), latency(1_000_000.0))].into(),
            ..named("scan")
        };
        let mut phases = vec![load.clone(), index, warmup, scan];
        phases.extend(["read-only:100", "read-only:10", "read-write:10"].map(named));
        phases.extend(["point-query", "random-points:10", "point-query#2"].map(named));
        phases.push(settle.clone());
        trial.phases = phases;
    }
    suite
}

/// Returns a sweep over clients: one, two, four and eight, with two repetitions of both engines.
pub fn clients() -> SuiteResult {
    let mut suite = suite();
    suite.command += " --sweep clients=1..8*2 --repeat 2";
    let trials = std::mem::take(&mut suite.trials);
    let values = ["1", "2", "4", "8"];
    for repetition in 1..=2 {
        for value in values {
            for trial in &trials {
                let mut trial = trial.clone();
                let n: f64 = value.parse().expect("a number");
                let lambda = trial.phases[1].ops_per_s.expect("it has a rate");
                let noise = if repetition == 1 { 1.02 } else { 0.98 };
                let per_s = lambda * n / (1.0 + 0.1 * (n - 1.0) + 0.02 * n * (n - 1.0)) * noise;
                trial.point = Some(format!("clients={value}"));
                trial.repetition = repetition;
                trial.phases[1].ops_per_s = Some(per_s.round());
                trial.phases[1].clients = Some(n as usize);
                trial.phases[0].clients = Some(1);
                suite.trials.push(trial);
            }
        }
    }
    suite.sweep = Some(Sweep {
        key: "clients".to_string(),
        values: values.map(str::to_string).into(),
        ..Sweep::default()
    });
    super::sweep::conclude(&mut suite);
    suite
}

/// Returns the search parameters that [`rate_search`] uses.
pub fn search() -> Search {
    Search {
        conditions: vec![Condition::parse("p99=5ms").expect("a condition")],
        phase: "request".to_string(),
        precision: 0.05,
        share: 0.7,
        arrivals: Arrivals::Even,
    }
}

/// Returns the result of a `find-rate` run on two engines whose response times grow with the load
/// as in a queue.
pub fn rate_search() -> SuiteResult {
    let mut suite = suite();
    suite.command =
        "rumbench find-rate linkbench --engine alluvium --engine sqlite --sla p99=5ms".to_string();
    let samples = std::mem::take(&mut suite.trials);
    for (sample, most) in samples.iter().zip([50_000.0, 20_000.0]) {
        let mut ended: Vec<TrialResult> = Vec::new();
        loop {
            let own: Vec<&TrialResult> = ended.iter().collect();
            let Some((rate, _)) = search().state(&own, 1).next else {
                break;
            };
            let mut trial = sample.clone();
            trial.point = Some(label(rate));
            trial.ended_at = Some("2026-01-01T00:01:00Z".to_string());
            let busy = (rate / most).min(0.999);
            let phase = &mut trial.phases[1];
            phase.ops_per_s = Some(if rate > 0.0 { rate.min(most) } else { most });
            phase.rate = (rate > 0.0).then_some(rate);
            phase.missed_arrivals = phase
                .rate
                .map(|rate| ((rate - most).max(0.0) * 10.0) as u64);
            for of in phase.latency_us.values_mut() {
                *of = latency(of.mean / (1.0 - busy) * 10.0);
            }
            ended.push(trial);
        }
        suite.trials.extend(ended);
    }
    super::find_rate::conclude(&mut suite, &search(), 1);
    suite
}

/// Returns the result of a turnover sweep: three steps age a database of 1 GiB, each slower than
/// the one before.
pub fn aging() -> SuiteResult {
    let mut suite = suite();
    suite.command += " --sweep turnover=1.25";
    for trial in &mut suite.trials {
        let (request, settle) = (trial.phases[1].clone(), trial.phases[2].clone());
        trial.phases.truncate(1);
        trial.phases.push(settle.clone());
        for (i, mib) in [512.0, 512.0, 512.0].into_iter().enumerate() {
            let mut step = request.clone();
            if i > 0 {
                step.name = format!("request#{}", i + 1);
            }
            step.ops_per_s = step.ops_per_s.map(|rate| rate * (1.0 - 0.1 * i as f64));
            step.kb_written = Some(mib * 1024.0);
            if let (2, Some(size)) = (i, &mut step.size_bytes) {
                size.data = size.data / 5 * 6;
            }
            trial.phases.push(step);
        }
        let name = "settle#2".to_string();
        trial.phases.push(PhaseResult { name, ..settle });
    }
    suite.sweep = Some(Sweep {
        key: TURNOVER.to_string(),
        values: vec!["1.25".to_string()],
        ..Sweep::default()
    });
    super::sweep::conclude(&mut suite);
    suite
}

/// Adds the results of `--profile`: samples of the requests, on a machine with few counters.
pub fn profiled(suite: &mut SuiteResult) {
    for trial in &mut suite.trials {
        let name = trial.name();
        let phase = &mut trial.phases[1];
        phase.counts_per_op = Some(CountsPerOp {
            instructions: Some(54_321.0),
            page_faults: Some(0.25),
            ..CountsPerOp::default()
        });
        let functions = [
            (format!("{name}::table<u8>::lookup"), 0.4, 0.7),
            ("copy_user_[k]".to_string(), 0.2, 0.2),
        ];
        phase.profile = Some(Profile {
            samples: 1990,
            lost: 3,
            graph: format!("profile/{name}-1-request.svg"),
            functions: functions
                .map(|(name, own_share, share)| HotFunction {
                    name,
                    own_share,
                    share,
                })
                .into(),
        });
    }
}
