//! Small inputs in the format of each program (`tests/import/`), and the reports made from them.

use super::*;
use crate::report::{ReportOptions, assert_snapshot, render, sample};
use crate::store::result::SuiteResult;

fn source(step: Option<&str>, file: &str) -> Source {
    Source {
        step: step.map(str::to_string),
        file: file.to_string(),
        text: std::fs::read_to_string(format!("tests/import/{file}")).unwrap(),
    }
}

fn text(file: &str, text: &str) -> Source {
    Source {
        step: None,
        file: file.to_string(),
        text: text.to_string(),
    }
}

/// Returns a result with only these files.
fn suite(program: Program, sources: &[Source]) -> SuiteResult {
    suite_of(program, sources, None)
}

fn suite_of(program: Program, sources: &[Source], clients: Option<usize>) -> SuiteResult {
    let command = "rumbench import ...".to_string();
    let mut suite = SuiteResult::empty(program.workload(), command, "then".to_string());
    for found in read(program, sources, clients).unwrap() {
        let name = found.engine.clone().unwrap_or("imported".to_string());
        suite
            .trials
            .push(trial(found, name, program, sources, Durability::Buffered));
    }
    suite
}

/// Returns the report of a result that was saved and read back.
fn report(suite: &SuiteResult, options: &ReportOptions) -> String {
    let saved = serde_json::to_string(suite).unwrap();
    assert!(!saved.contains("null"), "unknown is absent: {saved}");
    let back: SuiteResult = serde_json::from_str(&saved).unwrap();
    let page = crate::report::html::render(&back, options);
    let (shown, _) = page.split_once("<script>").unwrap();
    let place = shown
        .find("NaN")
        .map(|place| &shown[place.saturating_sub(200)..]);
    assert_eq!(place, None, "an unknown number is no text");
    render(&back, options)
}

fn refusal(program: Program, source: Source) -> String {
    read(program, &[source], None).unwrap_err().to_string()
}

#[test]
fn a_report_of_db_bench_becomes_steps_of_kv_sequence() {
    let suite = suite(Program::DbBench, &[source(None, "db_bench_report.tsv")]);
    let trial = &suite.trials[0];
    assert_eq!(trial.engine_version, "8.8.0");
    let names: Vec<&str> = trial.phases.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["fillseq", "readrandom", "overwriteandwait"]);
    let last = &trial.phases[2];
    assert_eq!(last.clients, Some(24));
    assert_eq!(last.engine_counters["db_bench.w_amp"], 11.9);
    assert!(
        last.amplification.is_none(),
        "published w_amp is another number"
    );
    assert!(last.latency_us["PUT"].p95.is_nan());
    assert_snapshot(
        "import_db_bench_report.txt",
        &report(&suite, &ReportOptions::default()),
    );
}

#[test]
fn what_db_bench_prints_becomes_the_same() {
    let suite = suite(Program::DbBench, &[source(None, "db_bench_output.txt")]);
    let trial = &suite.trials[0];
    assert_eq!(trial.engine_version, "10.10.0");
    let load = &trial.phases[0];
    assert_eq!((load.operations, load.rows), (1_000_000, 1_000_000));
    assert_eq!(load.latency_us["LOAD"].p9999, 14.90);
    // An old line has no number of operations, and the step is repeated.
    let again = &trial.phases[2];
    assert_eq!(again.name, "readrandom#2");
    assert!(again.lacks("operations") && again.latency_us.is_empty());
    assert_snapshot(
        "import_db_bench_output.txt",
        &report(&suite, &ReportOptions::default()),
    );
}

#[test]
fn imported_steps_stand_beside_ours_and_what_they_lack_is_missing() {
    let mut suite = sample::kv_sequence();
    let sources = [source(None, "db_bench_report.tsv")];
    let found = read(Program::DbBench, &sources, None).unwrap().remove(0);
    let mut imported = trial(
        found,
        "rocksdb-8.8".to_string(),
        Program::DbBench,
        &sources,
        Durability::Buffered,
    );
    let step = suite.trials[0].phases[1].name.clone();
    imported.phases[1].name = step;
    suite.trials.push(imported);
    let options = ReportOptions {
        mix_durability: true,
        ..ReportOptions::default()
    };
    let shown = report(&suite, &options);
    assert_snapshot("import_beside.txt", &shown);
    assert!(shown.contains("rocksdb-8.8 #1: imported (from db_bench: db_bench_report.tsv"));
}

#[test]
fn reports_of_sysbench_become_tests_of_oltp_range() {
    let sources = [
        source(None, "point-query.txt"),
        source(Some("update-index"), "update-index.txt"),
    ];
    let suite = suite(Program::Sysbench, &sources);
    let [points, updates] = &suite.trials[0].phases[..] else {
        panic!("two tests");
    };
    assert_eq!((points.operations, points.clients), (247_340, Some(8)));
    assert_eq!(points.ops_per_s, Some(24_731.912_7));
    assert_eq!(points.latency_us["EVENT"].p95, 430.0);
    assert_eq!((updates.errors, updates.seconds), (2, 10.0009));
    assert!(
        updates.latency_us["EVENT"].p95.is_nan(),
        "it was not asked for"
    );
    assert!(updates.lacks("retries") && !updates.lacks("errors"));
    assert_snapshot(
        "import_sysbench.txt",
        &report(&suite, &ReportOptions::default()),
    );
}

#[test]
fn records_of_the_insert_benchmark_come_out_as_they_went_in() {
    let sources = [source(None, "l.i1.tsv"), source(None, "qp1000.L6.tsv")];
    let suite = suite(Program::Iibench, &sources);
    let names: Vec<&str> = suite.trials.iter().map(|t| t.engine.as_str()).collect();
    assert_eq!(names, ["pg162_def.cx9a2a_bee", "my8036_rel.cz10a_bee"]);
    let shown = report(&suite, &ReportOptions::default());
    assert_snapshot("import_iibench_records.txt", &shown);
    // Costs per operation and per insert are those of the record.
    for cell in ["1.665", "25.0", "0.061", "22.280", "33.2", "357"] {
        assert!(shown.contains(cell), "{cell}: {shown}");
    }
}

#[test]
fn the_published_records_become_the_published_tables() {
    let steps = [
        "l.i0", "l.x", "l.i1", "l.i2", "qr100", "qp100", "qr1000", "qp1000",
    ];
    let sources = steps.map(|step| source(Some(step), &format!("2024-03/{step}.tsv")));
    let suite = suite_of(Program::Iibench, &sources, Some(1));
    let shown = report(&suite, &ReportOptions::default());
    let summaries = shown.find("\n\nSpread").unwrap();
    assert_snapshot("import_published.txt", &shown[..summaries]);
    assert!(shown.contains("924 !"), "{shown}");
}

#[test]
fn clients_of_the_insert_benchmark_are_added_up() {
    let sources = [
        source(Some("qr100"), "qr100.client1.txt"),
        source(Some("qr100"), "qr100.client2.txt"),
    ];
    let suite = suite(Program::Iibench, &sources);
    let [step] = &suite.trials[0].phases[..] else {
        panic!("one step");
    };
    assert_eq!((step.operations, step.retries), (16_032, 3));
    assert_eq!((step.seconds, step.clients), (2.0, Some(2)));
    assert_eq!(step.latency_us["RANGE"].max, 5000.0);
    let beside = step.background.as_ref().unwrap();
    assert_eq!(
        (beside.rows_rate, beside.rows_per_s),
        (Some(200.0), Some(200.0))
    );
    let seconds: Vec<u64> = step.intervals.iter().map(|second| second.ops).collect();
    assert_eq!(seconds, [8000, 8032]);
    report(&suite, &ReportOptions::default());
}

#[test]
fn what_is_of_no_such_program_is_refused_with_file_and_what_is_expected() {
    let said = refusal(Program::DbBench, text("a.txt", "nothing\n"));
    assert!(said.starts_with("a.txt: no result of db_bench"), "{said}");
    let said = refusal(Program::Sysbench, text("some.txt", ""));
    assert!(said.contains("`some` is no test of oltp-range"), "{said}");
    let said = refusal(Program::Sysbench, text("scan.txt", "sysbench 1.1.0\n"));
    assert!(said.contains("no report of sysbench"), "{said}");
    let said = refusal(Program::Iibench, text("q100.txt", ""));
    assert!(said.contains("`q100` is no step"), "{said}");
    let said = refusal(Program::Iibench, text("l.i0.txt", "1 2 3\n"));
    assert!(said.contains("neither 21-column records"), "{said}");
}

/// A report of sysbench with these lines in place of the usual ones.
fn sysbench_report(time: &str, eps: &str) -> String {
    format!(
        "sysbench 1.1.0\nThroughput:\n    events/s (eps): {eps}\n    time elapsed: {time}\n    total number of events: 20018\nLatency (ms):\n    avg: 0.4\n    max: 7.5\n"
    )
}

#[test]
fn a_decimal_comma_is_refused_with_its_line() {
    let report = text("scan.txt", &sysbench_report("2,0018s", "10000.00"));
    let said = refusal(Program::Sysbench, report);
    assert!(
        said.starts_with("scan.txt line 4: time elapsed: `2,0018`"),
        "{said}"
    );
    let report = "test\tops_sec\tp99\nreadrandom.t1\t1234567.5\t12,543\n";
    let said = refusal(Program::DbBench, text("r.tsv", report));
    assert!(
        said.starts_with("r.tsv line 2: column p99: `12,543`"),
        "{said}"
    );
}

#[test]
fn numbers_that_are_not_finite_are_refused_with_their_line() {
    let report = text("scan.txt", &sysbench_report("2.0018s", "inf"));
    let said = refusal(Program::Sysbench, report);
    assert!(
        said.contains("line 3: events/s (eps): `inf` is not finite"),
        "{said}"
    );
    let output = "readrandom : 1.5 micros/op nan ops/sec 2.0 seconds 100 operations;\n";
    let said = refusal(Program::DbBench, text("o.txt", output));
    assert!(
        said.starts_with("o.txt line 1: `nan` is not finite"),
        "{said}"
    );
    let record = "ips\tqps\twkbpi\ttag\n100\tinf\t1\tmy\n";
    let said = refusal(Program::Iibench, text("qr100.tsv", record));
    assert!(
        said.starts_with("qr100.tsv line 2: column qps: `inf`"),
        "{said}"
    );
    let negative = text("r.tsv", "test\tops_sec\nreadrandom.t1\t-5\n");
    let said = refusal(Program::DbBench, negative);
    assert!(
        said.ends_with("column ops_sec: `-5` is below zero"),
        "{said}"
    );
    let unknown = text("r.tsv", "test\tops_sec\tp99\nreadrandom.t1\t5\tna\n");
    let found = read(Program::DbBench, &[unknown], None).unwrap();
    assert!(found[0].phases[0].latency_us["GET"].p99.is_nan());
}

#[test]
fn records_that_were_cut_short_are_refused_with_their_line() {
    let record = "ips\tqps\twkbpi\ttag\n100\t7\t1\tmy\n100\t7\n";
    let said = refusal(Program::Iibench, text("qr100.tsv", record));
    assert_eq!(said, "qr100.tsv line 3: 2 of 4 columns");
    let lines = "1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n1 2 2 3 4\n";
    let said = refusal(Program::Iibench, text("qr100.txt", lines));
    assert_eq!(said, "qr100.txt line 2: 5 of 17 numbers");
    let said = refusal(
        Program::DbBench,
        text("o.txt", "fillseq : 0.9 micros/op 10\n"),
    );
    assert!(
        said.starts_with("o.txt line 1: no rate in ops/sec"),
        "{said}"
    );
    let report = text("scan.txt", &sysbench_report("2.0018s", ""));
    let said = refusal(Program::Sysbench, report);
    assert!(
        said.contains("line 3: events/s (eps): has no number"),
        "{said}"
    );
}

#[test]
fn a_report_of_sysbench_without_its_response_times_is_cut_short() {
    let report = sysbench_report("2.0s", "10000.00");
    for (end, missing) in [("Latency", "avg:"), ("    max:", "max:")] {
        let (cut, _) = report.split_once(end).unwrap();
        let said = refusal(Program::Sysbench, text("scan.txt", cut));
        let expected = format!("has no line `{missing}`: the file is cut short");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn each_kind_of_operation_of_a_db_bench_step_has_its_histogram() {
    let step = "readrandomwriterandom : 7.5 micros/op 132728 ops/sec 1.0 seconds 20 operations;\n";
    let of = |kind: &str, count: u64, max: u64| {
        format!(
            "Microseconds per {kind}:\nCount: {count} Average: 1.5 StdDev: 1\nMin: 0 Median: 1 Max: {max}\nPercentiles: P50: 1\n"
        )
    };
    let (reads, writes) = (of("read", 15, 9), of("write", 5, 7));
    let both = text("o.txt", &format!("{step}{writes}{reads}"));
    let found = read(Program::DbBench, &[both], None).unwrap();
    let latencies = &found[0].phases[0].latency_us;
    let figures = |name: &str| (latencies[name].count, latencies[name].max);
    assert_eq!((figures("GET"), figures("PUT")), ((15, 9.0), (5, 7.0)));
    let of_library = "** Level 0 read latency histogram (micros):\nCount: 3 Average: 9.9 StdDev: 1\nMin: 0 Median: 1 Max: 99\n";
    let with_statistics = format!("{step}{of_library}{}{of_library}", of("merge", 2, 4));
    let found = read(Program::DbBench, &[text("o.txt", &with_statistics)], None).unwrap();
    let latencies = &found[0].phases[0].latency_us;
    assert_eq!((latencies.len(), latencies["MERGE"].max), (1, 4.0));
    let twice = text("o.txt", &format!("{step}{reads}{reads}"));
    let said = refusal(Program::DbBench, twice);
    assert_eq!(said, "o.txt line 7: a second histogram of GET in one step");
}

#[test]
fn a_second_report_in_a_file_is_refused_with_its_line() {
    let report = sysbench_report("2.0s", "10000.00");
    let said = refusal(
        Program::Sysbench,
        text("scan.txt", &format!("{report}{report}")),
    );
    assert!(
        said.starts_with("scan.txt line 13: a second report"),
        "{said}"
    );
}

#[test]
fn every_phase_has_a_name_of_its_own() {
    let named = |step: &str| Source {
        step: Some(step.to_string()),
        ..text("o.txt", "a : 1.5 micros/op 7 ops/sec\n")
    };
    let sources = ["get#2", "get", "get", "get#2"].map(named);
    let found = read(Program::DbBench, &sources, None).unwrap();
    let names: Vec<&str> = found[0].phases.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["get#2", "get", "get#3", "get#4"]);
    let record = "ips\tqps\twkbpi\ttag\n100\t7\t1\tmy\n100\t8\t1\tmy\n";
    let found = read(Program::Iibench, &[text("qr100.tsv", record)], None).unwrap();
    let names: Vec<&str> = found[0].phases.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["qr100", "qr100#2"]);
}

#[test]
fn a_percentile_above_the_maximum_is_marked() {
    let report = "test\tops_sec\tp50\tp99.9\tpmax\nreadrandom.t1\t5\t10\t130.5\t120\n";
    let suite = suite(Program::DbBench, &[text("r.tsv", report)]);
    let marks = &suite.trials[0].marks;
    let expected = "percentile-above-maximum (GET of readrandom: 130.5 us, maximum 120 us)";
    assert!(marks.iter().any(|mark| mark == expected), "{marks:?}");
}
