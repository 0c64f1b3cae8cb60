//! Comparison with sysbench: do both clients request the same work from a server, and does this
//! work use the same CPU time?
//!
//! ```sh
//! cargo run --release -p rumbench-engines --features mariadb --example beside_sysbench \
//!     [-- ROUNDS [SECONDS [ROWS [SERVER [TEST,...]]]]]
//! ```
//!
//! In each round a private MariaDB gets two tables of equal size, one loaded by sysbench, the other
//! by oltp-range. Both clients then run each test that they have in common. The client that runs
//! first alternates from test to test and from round to round, so the number of rounds is even. The
//! server settles before each run, so that no run includes deferred work of another one. Server and
//! client share one core.
//!
//! The comparison is per event: the server's counts of statements and rows, its CPU time, and the
//! client's CPU time. For sysbench the latter includes process start and login, about 20 ms.

#[path = "../clients/mod.rs"]
mod clients;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use clients::{Outcome, TICKS, median, next, perform, place, run_folder};
use rumbench_core::engine::{Durability, Engine, OpenConfig};
use rumbench_core::oltp_range::{Config, OltpRange};
use rumbench_core::trial::Workload;

/// Tests that both clients have, in the order of published runs: sysbench name, oltp-range name.
const TESTS: [(&str, &str); 8] = [
    ("oltp_point_select", "point-query"),
    ("oltp_read_only", "read-only:100"),
    ("oltp_update_index", "update-index"),
    ("oltp_update_non_index", "update-nonindex"),
    ("oltp_write_only", "write-only"),
    ("oltp_read_write", "read-write:100"),
    ("oltp_delete", "delete"),
    ("oltp_insert", "insert"),
];
/// Database that holds the table of sysbench.
const DATABASE: &str = "sysbench";
const CACHE_BYTES: u64 = 1 << 30;

struct Asked {
    rounds: usize,
    seconds: u64,
    rows: u64,
    server: String,
    /// Selected entries of [`TESTS`].
    tests: Vec<(&'static str, &'static str)>,
}

/// Result of one test by one client. All fields but the rate are per event; CPU time is in
/// microseconds.
#[derive(Debug, Clone, Copy)]
struct Test {
    events_per_s: f64,
    statements: f64,
    rows_sent: f64,
    server: f64,
    client: f64,
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: u64| {
        let given = arguments.get(place);
        given.map_or(Ok(default), |text| text.parse())
    };
    let asked = Asked {
        rounds: number(0, 4)?.max(1).next_multiple_of(2) as usize,
        seconds: number(1, 4)?,
        rows: number(2, 1_000_000)?,
        server: arguments
            .get(3)
            .cloned()
            .unwrap_or("mariadb-innodb".to_string()),
        tests: tests(arguments.get(4).map(String::as_str))?,
    };
    let version = output(Command::new("sysbench").arg("--version"))?;
    // The server's processes inherit the core.
    place(0)?;
    let mut tests = vec![Vec::new(); asked.tests.len()];
    for of in 0..asked.rounds {
        for (test, pair) in round(&asked, of)?.into_iter().enumerate() {
            tests[test].push(pair);
        }
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{} and oltp-range on {}, {} rows, {} s a test, {} rounds, one core; medians\n",
        version.trim(),
        asked.server,
        asked.rows,
        asked.seconds,
        asked.rounds
    )?;
    writeln!(
        out,
        "| sysbench / rumbench | statements an event | rows sent | server, us of CPU | ratio (of each round) | events/s | client, us of CPU |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for ((name, _), rounds) in asked.tests.iter().zip(&tests) {
        writeln!(out, "{}", line(name, rounds))?;
    }
    Ok(())
}

/// Returns the tests with these comma-separated names of either client, or all tests for `None`.
fn tests(names: Option<&str>) -> Outcome<Vec<(&'static str, &'static str)>> {
    let Some(names) = names else {
        return Ok(TESTS.to_vec());
    };
    let find = |name: &str| {
        let found = TESTS.iter().find(|test| test.0 == name || test.1 == name);
        found
            .copied()
            .ok_or_else(|| format!("no test `{name}`; there are {TESTS:?}").into())
    };
    names.split(',').map(find).collect()
}

/// Formats a line of the table. Each round is a pair: sysbench's result and the laboratory's.
fn line(name: &str, rounds: &[(Test, Test)]) -> String {
    let both = |of: fn(&Test) -> f64, digits: usize| {
        let theirs = median(rounds.iter().map(|(theirs, _)| of(theirs)));
        let ours = median(rounds.iter().map(|(_, ours)| of(ours)));
        format!("{theirs:.digits$} / {ours:.digits$}")
    };
    let ratios: Vec<f64> = rounds
        .iter()
        .map(|(theirs, ours)| ours.server / theirs.server)
        .collect();
    let each: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    format!(
        "| `{name}` | {} | {} | {} | {:.2} ({}) | {} | {} |",
        both(|test| test.statements, 0),
        both(|test| test.rows_sent, 0),
        both(|test| test.server, 1),
        median(ratios.iter().copied()),
        each.join(", "),
        both(|test| test.events_per_s, 0),
        both(|test| test.client, 1)
    )
}

/// Runs all tests on a new server. Returns sysbench's and the laboratory's result for each test.
fn round(asked: &Asked, round: usize) -> Outcome<Vec<(Test, Test)>> {
    let scratch = tempfile::tempdir()?;
    let mut workload = workload(asked)?;
    let engine = start(asked, &workload, scratch.path())?;
    let sysbench = Sysbench {
        socket: run_folder(&*engine)?.join("socket"),
        asked,
    };
    sysbench.run("oltp_read_only", "prepare")?;
    for _ in ["load", "index"] {
        perform(next(&mut workload, &*engine)?, |_| false)?;
    }
    let mut tests = Vec::new();
    for (test, (name, _)) in asked.tests.iter().enumerate() {
        let theirs = || of_server(&*engine, || sysbench.test(name));
        let mut ours = || of_server(&*engine, || laboratory(&mut workload, &*engine));
        tests.push(if (round + test).is_multiple_of(2) {
            (theirs()?, ours()?)
        } else {
            let ours = ours()?;
            (theirs()?, ours)
        });
    }
    // Checks the tables, because a client that did less than requested would look cheap.
    workload.verify(&*engine)?;
    engine.close()?;
    Ok(tests)
}

fn workload(asked: &Asked) -> Outcome<OltpRange> {
    let steps: Vec<&str> = ["load", "index"]
        .into_iter()
        .chain(asked.tests.iter().map(|(_, name)| *name))
        .collect();
    let pairs = [
        ("rows", asked.rows.to_string()),
        ("seconds", asked.seconds.to_string()),
        ("steps", steps.join(",")),
    ];
    Ok(OltpRange::new(Config::from_pairs(pairs)?, |_| ())?)
}

/// Starts a private server that also has a database for sysbench.
fn start(asked: &Asked, workload: &OltpRange, scratch: &Path) -> Outcome<Box<dyn Engine>> {
    let (statements, options) = (scratch.join("init.sql"), scratch.join("options.cnf"));
    std::fs::write(&statements, format!("CREATE DATABASE {DATABASE};\n"))?;
    std::fs::write(
        &options,
        format!("[mariadbd]\ninit_file={}\n", statements.display()),
    )?;
    let dir = scratch.join("data");
    std::fs::create_dir(&dir)?;
    let options = options.display().to_string();
    let config = OpenConfig {
        dir,
        schema: workload.schema(),
        variant: None,
        cache_bytes: CACHE_BYTES,
        durability: Durability::Buffered,
        clients: 1,
        settings: BTreeMap::from([("options_file".to_string(), options)]),
    };
    Ok(rumbench_engines::find(&asked.server)?.entry.open(&config)?)
}

/// Events, seconds, and the client's CPU time in microseconds.
type Ran = (f64, f64, f64);

/// Runs the next step of the workload.
fn laboratory(workload: &mut OltpRange, engine: &dyn Engine) -> Outcome<Ran> {
    let phase = next(workload, engine)?;
    let start = Instant::now();
    let (events, cost) = perform(phase, |_| false)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((events as f64, seconds, cost.total()))
}

/// Runs a test on a settled server, and adds the server's counters and CPU time for it.
fn of_server(engine: &dyn Engine, test: impl FnOnce() -> Outcome<Ran>) -> Outcome<Test> {
    engine.settle(&mut |_| ())?;
    let pid = engine
        .server_process()
        .ok_or("a server without a process")?;
    let counter = |counters: &BTreeMap<String, f64>, name: &str| {
        let value = counters.get(name).copied();
        value.ok_or(format!("the server does not count {name}"))
    };
    let counters = || -> BTreeMap<String, f64> {
        let counters = engine.counters().into_iter();
        counters.map(|one| (one.name, one.value)).collect()
    };
    let (before, used) = (counters(), cpu_us(&pid.to_string(), 11)?);
    let (events, seconds, client) = test()?;
    let (after, used) = (counters(), cpu_us(&pid.to_string(), 11)? - used);
    let grown = |name: &str| -> Outcome<f64> {
        Ok((counter(&after, name)? - counter(&before, name)?) / events)
    };
    Ok(Test {
        events_per_s: events / seconds,
        statements: grown("statements")?,
        rows_sent: grown("rows_sent")?,
        server: used / events,
        client: client / events,
    })
}

/// Returns the user plus system time of a process in microseconds, from two adjacent fields of
/// `/proc/PROCESS/stat`. `field` is the number of fields between the process name and the first
/// one: 11 for the process itself, 13 for its children that have ended.
fn cpu_us(process: &str, field: usize) -> Outcome<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = text.rsplit(')').next().unwrap_or_default();
    let mut fields = fields.split_ascii_whitespace().skip(field);
    let mut ticks = 0.0;
    for _ in ["user", "system"] {
        ticks += fields
            .next()
            .ok_or("a short line in /proc")?
            .parse::<f64>()?;
    }
    Ok(ticks / TICKS * 1e6)
}

struct Sysbench<'a> {
    socket: PathBuf,
    asked: &'a Asked,
}

impl Sysbench<'_> {
    fn run(&self, test: &str, command: &str) -> Outcome<String> {
        let engine = match self.asked.server.as_str() {
            "mariadb-alluvium" => "alluvium",
            "mariadb-rocksdb" => "rocksdb",
            _ => "innodb",
        };
        output(Command::new("sysbench").args([
            test,
            "--db-driver=mysql",
            "--mysql-user=root",
            &format!("--mysql-socket={}", self.socket.display()),
            &format!("--mysql-db={DATABASE}"),
            &format!("--mysql-storage-engine={engine}"),
            "--tables=1",
            &format!("--table-size={}", self.asked.rows),
            "--rand-type=uniform",
            "--threads=1",
            &format!("--time={}", self.asked.seconds),
            "--db-ps-mode=auto",
            command,
        ]))
    }

    fn test(&self, name: &str) -> Outcome<Ran> {
        let before = cpu_us("self", 13)?;
        let text = self.run(name, "run")?;
        let client = cpu_us("self", 13)? - before;
        let after = |label: &str| -> Outcome<f64> {
            let found = text
                .lines()
                .find_map(|line| line.trim().strip_prefix(label));
            let value = found.ok_or(format!("sysbench does not say `{label}`:\n{text}"))?;
            Ok(value.trim().trim_end_matches('s').parse()?)
        };
        let events = after("total number of events:")?;
        Ok((events, after("total time:")?, client))
    }
}

/// Runs a program and returns its standard output.
fn output(command: &mut Command) -> Outcome<String> {
    let program = command.get_program().display().to_string();
    let ran = command.output();
    let Output {
        status,
        stdout,
        stderr,
    } = ran.map_err(|error| {
        format!("{program} cannot be run ({error}): install the package {program}")
    })?;
    if !status.success() {
        let (out, err) = (
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr),
        );
        return Err(format!("{program}: {status}\n{out}{err}").into());
    }
    Ok(String::from_utf8(stdout)?)
}
