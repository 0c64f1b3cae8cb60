//! The published Insert Benchmark of 2024-03 as a result (one client, 8 CPUs, 16 GB of memory, 800M
//! rows, larger than memory). The findings must include the causes that its author names:
//!
//! - Loads and index builds differ in CPU.
//! - Beyond memory each insert makes a B-tree read, change and write back secondary leaf pages,
//!   while an LSM tree reads nothing and writes far less.
//! - Postgres is slow in small transactions because of the CPU time of deletes and planning.
//! - MyRocks needs more CPU for range queries, and is fastest in point queries because it reads
//!   less. Its database is the smallest.
//! - At the highest rate Postgres does not reach the rate of its background inserts.

use std::collections::BTreeMap;

use rumbench_core::engine::{Durability, DurabilityFacts};

use super::*;
use crate::report::assert_snapshot;
use crate::store::result::{BackgroundResult, CpuPerOp, PhaseResult, SizeBytes, TrialResult};

const ENGINES: [&str; 3] = ["postgres", "innodb", "myrocks"];

/// A step: name, clients, background rate, and for each engine throughput, KB written per insert,
/// reads per operation, CPU us, longest pause in s.
type Step = (&'static str, usize, f64, [[f64; 5]; 3]);

#[rustfmt::skip]
const STEPS: [Step; 8] = [
    ("l.i0", 1, 0.0, [[74864.0, 0.420, 0.0, 25.0, 0.080], [55517.0, 0.389, 0.0, 29.0, 0.097], [57958.0, 0.234, 0.0, 31.0, 0.135]]),
    ("l.x", 1, 0.0, [[194_789.0, 0.382, 0.003, 5.0, 0.0], [105_291.0, 1.465, 0.017, 33.0, 0.0], [73455.0, 0.156, 0.001, 13.0, 0.0]]),
    ("l.i1", 2, 0.0, [[2068.0, 25.0, 1.665, 592.0, 0.061], [1720.0, 219.6, 5.156, 1070.0, 0.247], [23669.0, 2.69, 0.006, 165.0, 0.103]]),
    ("l.i2", 2, 0.0, [[103.0, 32.4, 1.606, 9640.0, 0.034], [1890.0, 172.1, 4.278, 1346.0, 0.103], [7576.0, 4.89, 0.006, 427.0, 0.064]]),
    ("qr100", 1, 100.0, [[8484.0, 15.4, 0.020, 120.0, 0.010], [3530.0, 169.3, 0.164, 317.0, 0.010], [565.0, 6.80, 0.014, 1756.0, 0.049]]),
    ("qp100", 1, 100.0, [[393.0, 45.8, 17.2, 793.0, 0.010], [615.0, 298.7, 9.9, 768.0, 0.041], [844.0, 5.34, 7.8, 721.0, 0.036]]),
    ("qr1000", 1, 1000.0, [[6980.0, 23.9, 0.241, 256.0, 0.133], [3870.0, 205.2, 1.434, 496.0, 0.032], [412.0, 7.70, 0.479, 3225.0, 0.192]]),
    ("qp1000", 1, 1000.0, [[357.0, 33.2, 22.3, 3872.0, 0.038], [513.0, 207.9, 20.8, 2497.0, 0.056], [790.0, 9.02, 9.0, 1468.0, 0.102]]),
];
/// Sizes of the data after `l.x`.
const SIZES_GB: [f64; 3] = [153.6, 120.7, 50.9];
/// Background inserts per second of Postgres in the last step, below the requested 1000.
const INSERTS_MISSED: f64 = 924.0;

fn phase(step: &Step, engine: usize) -> PhaseResult {
    const SECONDS: f64 = 1800.0;
    let (name, clients, background, engines) = step;
    let [per_s, kib_per_insert, reads, cpu, longest] = engines[engine];
    let writes = name.starts_with("l.");
    let inserts = match (*name, engine) {
        ("qp1000", 0) => INSERTS_MISSED,
        _ => *background,
    };
    let kib = if writes {
        kib_per_insert
    } else {
        kib_per_insert * inserts / per_s
    };
    let operations = (per_s * SECONDS) as u64;
    PhaseResult {
        name: (*name).to_string(),
        seconds: SECONDS,
        clients: Some(*clients),
        operations,
        rows: if writes { operations } else { operations * 10 },
        ops_per_s: Some(per_s),
        rows_per_s: writes.then_some(per_s),
        kb_written_per_op: Some(kib),
        reads_per_op: Some(reads),
        cpu_us_per_op: Some(CpuPerOp {
            total: cpu,
            server: Some(cpu),
            machine: Some(cpu),
            ..CpuPerOp::default()
        }),
        longest_stall_ms: Some(longest * 1e3).filter(|ms| *ms > 0.0),
        size_bytes: (*name == "l.x").then(|| SizeBytes {
            data: (SIZES_GB[engine] * f64::from(1 << 30)) as u64,
            ..SizeBytes::default()
        }),
        background: (!writes).then(|| BackgroundResult {
            rows_rate: Some(*background),
            rows_per_s: Some(inserts),
            ..BackgroundResult::default()
        }),
        ..PhaseResult::default()
    }
}

fn published() -> SuiteResult {
    let mut suite = crate::report::sample::insert_benchmark();
    suite.command = "published 2024-03: Postgres 16.2, InnoDB 8.0.36, MyRocks 8.0.28".to_string();
    let environment = [("cpus", "8"), ("memory", "16777216 kB")];
    suite.environment = environment
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .into();
    let like = suite.trials[0].clone();
    let trial = |(i, name): (usize, &&str)| {
        let mut trial = TrialResult {
            engine: (*name).to_string(),
            configuration: BTreeMap::new(),
            durability: Durability::Buffered,
            durability_facts: Some(DurabilityFacts {
                process_kill: "all acknowledged commits".to_string(),
                power_cut: "a prefix no older than 1 s".to_string(),
            }),
            phases: STEPS.iter().map(|step| phase(step, i)).collect(),
            ..like.clone()
        };
        crate::report::marks::judge(&mut trial);
        trial
    };
    suite.trials = ENGINES.iter().enumerate().map(trial).collect();
    suite
}

fn said() -> Vec<Finding> {
    explain(&published(), &ReportOptions::default())
}

/// Returns the sentence that compares an engine with Postgres in a step, and the metrics of its
/// causes, the largest difference first.
fn cause(engine: &str, phase: &str) -> (String, Vec<String>) {
    let found = said().into_iter().find(|finding| {
        let of = (finding.engine.as_deref(), finding.phase.as_deref());
        finding.kind == Kind::Cost && of == (Some(engine), Some(phase))
    });
    let found = found.unwrap_or_else(|| panic!("nothing is said of {engine} in {phase}"));
    let metrics = found.metrics().into_iter().map(str::to_string);
    let causes = metrics
        .filter(|metric| !metric.ends_with("_per_s"))
        .collect();
    (found.text, causes)
}

const CPU: &str = "cpu_us_per_op.total";
const READS: &str = "reads_per_op";
const WRITTEN: &str = "kb_written_per_op";

#[test]
fn loads_and_index_builds_differ_in_cpu() {
    for phase in ["l.i0", "l.x"] {
        for engine in ["innodb", "myrocks"] {
            assert_eq!(cause(engine, phase).1[0], CPU, "{engine} {phase}");
        }
    }
}

#[test]
fn beyond_memory_b_trees_read_and_write_pages_that_an_lsm_tree_does_not() {
    let (text, causes) = cause("myrocks", "l.i1");
    assert_eq!(causes[..2], [READS, WRITTEN], "{text}");
    assert!(
        text.contains("11.4 times the throughput") && text.contains("1.67 reads/row, 278"),
        "{text}"
    );
    let (text, causes) = cause("innodb", "l.i1");
    assert_eq!(causes[..2], [WRITTEN, READS], "{text}");
    assert!(text.contains("8.78 times as much"), "{text}");
}

#[test]
fn postgres_loses_small_transactions_to_cpu_on_one_processor() {
    let (text, causes) = cause("myrocks", "l.i2");
    assert_eq!(causes, [CPU], "{text}");
    assert!(text.contains("22.6 times less"), "{text}");
    let bound = bound("postgres", "l.i2");
    assert!(
        bound.starts_with(
            "was bounded by CPU: 9,640 us/row, which is 0.993 processors in use for 2 clients"
        ),
        "{bound}"
    );
}

/// Returns the sentence about the bottleneck of an engine in a phase.
fn bound(engine: &str, phase: &str) -> String {
    let found = said().into_iter().find(|finding| {
        let of = (finding.engine.as_deref(), finding.phase.as_deref());
        finding.kind == Kind::Bound && of == (Some(engine), Some(phase))
    });
    found.map_or_else(
        || panic!("nothing bounded {engine} in {phase}"),
        |found| found.text,
    )
}

#[test]
fn b_trees_and_point_queries_wait_for_the_device_and_the_rest_for_cpu() {
    let reads = [
        ("innodb", "l.i1"),
        ("innodb", "l.i2"),
        ("innodb", "qr1000"),
        ("postgres", "qp100"),
        ("postgres", "qp1000"),
        ("innodb", "qp1000"),
        ("myrocks", "qp1000"),
    ];
    for (engine, phase) in reads {
        let bound = bound(engine, phase);
        assert!(
            bound.starts_with("was bounded by device reads"),
            "{engine} {phase}: {bound}"
        );
    }
    for (engine, phase) in [
        ("myrocks", "l.i1"),
        ("myrocks", "qr100"),
        ("postgres", "qr1000"),
    ] {
        let bound = bound(engine, phase);
        assert!(
            bound.starts_with("was bounded by CPU"),
            "{engine} {phase}: {bound}"
        );
    }
}

#[test]
fn myrocks_pays_for_range_queries_with_cpu_and_wins_point_queries_by_reading_less() {
    for (phase, factor) in [("qr100", "14.6"), ("qr1000", "12.6")] {
        let (text, causes) = cause("myrocks", phase);
        assert_eq!(causes, [CPU], "{text}");
        assert!(text.contains(&format!("{factor} times as much")), "{text}");
    }
    let (text, causes) = cause("myrocks", "qp100");
    assert_eq!(causes[0], READS, "{text}");
    assert!(text.contains("account for all of the ratio"), "{text}");
    let (text, causes) = cause("myrocks", "qp1000");
    assert!(causes.iter().any(|cause| cause == READS), "{text}");
}

#[test]
fn space_and_the_missed_background_rate_are_told() {
    let found = said();
    let space = found
        .iter()
        .find(|finding| finding.metrics() == ["size_bytes.data"])
        .unwrap();
    assert_eq!(space.engine.as_deref(), Some("innodb"));
    let myrocks = "holds its data in 0.33 times the space of postgres (50.9 against 154 GiB).";
    assert!(found.iter().any(|finding| finding.text == myrocks));
    let warnings = found.iter().filter(|finding| finding.kind == Kind::Warning);
    let missed = |finding: &&Finding| {
        finding
            .text
            .starts_with("postgres #1 did not reach the rate of its background clients")
    };
    assert_eq!(warnings.filter(missed).count(), 1);
}

#[test]
fn explanation_of_the_published_table_is_unchanged() {
    let text = render(&published(), &ReportOptions::default());
    assert_snapshot("explain_published.txt", &text);
}
