//! Suites on a server that is already running.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rumbench_core::engine::{Durability, Engine, OpenConfig, Schema};

use crate::killed::{processes, signal};
use crate::resume::has_phase;
use crate::waits::wait;
use crate::{result, rumbench, text};

/// Engine of the server that this build tests, the superuser of its private servers, and the file
/// name of their socket.
#[cfg(feature = "mariadb")]
pub const SERVER: (&str, &str, &str) = ("mariadb-innodb", "root", "socket");
#[cfg(not(feature = "mariadb"))]
pub const SERVER: (&str, &str, &str) = ("postgresql", "rumbench", ".s.PGSQL.5432");

/// Some reads and some writes.
const STEPS: &str = "steps=load,index,point-query,settle,read-only:10,update-index";

fn start(dir: &Path) -> Box<dyn Engine> {
    start_with(SERVER.0, dir, BTreeMap::new())
}

fn start_with(name: &str, dir: &Path, settings: BTreeMap<String, String>) -> Box<dyn Engine> {
    let found = rumbench_engines::find(name).expect("a server");
    let config = OpenConfig {
        dir: dir.to_path_buf(),
        schema: Schema::LinkBench,
        variant: None,
        cache_bytes: 32 << 20,
        durability: Durability::Buffered,
        clients: 2,
        settings,
    };
    found.entry.open(&config).expect("it starts")
}

/// Returns the path of the socket of the server with this process id.
fn socket(pid: u32) -> PathBuf {
    let folders = std::fs::read_dir(std::env::temp_dir())
        .expect("a folder")
        .flatten();
    let noted = |folder: &PathBuf| {
        let note = std::fs::read_to_string(folder.join("server")).unwrap_or_default();
        note.split(' ').next() == Some(pid.to_string().as_str())
    };
    let folder = folders.map(|entry| entry.path()).find(noted);
    folder.expect("a run folder").join(SERVER.2)
}

#[test]
fn a_suite_on_a_running_server_measures_its_process_and_says_that_it_is_not_its_own() {
    let dir = tempfile::tempdir().expect("folder");
    std::fs::create_dir(dir.path().join("server")).expect("folder");
    let server = start(&dir.path().join("server"));
    let pid = server.server_process().expect("a process");
    let (name, user, _) = SERVER;
    let address = format!("{name}.address={}", socket(pid).display());
    let (user, out) = (format!("{name}.user={user}"), dir.path().join("out"));
    let database = format!("{name}.database=given");
    let run = |more: &[&str]| {
        let own = [
            "run",
            "oltp-range",
            "--engine",
            name,
            "--set",
            &address,
            "--set",
            &user,
        ];
        let small = [
            "--set",
            "rows=300",
            "--set",
            STEPS,
            "--set",
            "operations=20",
            "--set",
            "clients=2",
            "--no-store",
        ];
        let own = [&own[..], &["--set", &database], &small, more].concat();
        rumbench(dir.path(), &own)
    };
    let output = run(&["--repeat", "2", "--out", out.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result = result(&out);
    for trial in result["trials"].as_array().expect("trials") {
        let marks = trial["marks"].to_string();
        assert!(
            marks.contains("external (its cache and log are its own"),
            "{marks}"
        );
        let phases = trial["phases"].as_array().expect("phases");
        assert!(
            phases
                .iter()
                .any(|phase| phase["cpu_us_per_op"]["server"].is_number())
        );
        let settled = phases.last().expect("a phase");
        assert!(
            settled["size_bytes"]["data"].as_u64().expect("a size") > 10_000,
            "{settled}"
        );
    }
    let output = run(&["--memory", "1000000000"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("--memory cannot bound"),
        "{}",
        text(&output.stderr)
    );
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    server.close().expect("a server that was left as it was");
}

#[test]
fn a_running_server_that_stands_still_is_left_alone_and_costs_the_trial() {
    let dir = tempfile::tempdir().expect("folder");
    let data = dir.path().join("server");
    std::fs::create_dir(&data).expect("folder");
    let server = start(&data);
    let pid = server.server_process().expect("a process");
    let (name, user, _) = SERVER;
    let address = format!("{name}.address={}", socket(pid).display());
    let (user, out) = (format!("{name}.user={user}"), dir.path().join("out"));
    let database = format!("{name}.database=given");
    let mut suite = Command::new(env!("CARGO_BIN_EXE_rumbench"))
        .args(["run", "oltp-range", "--engine", name, "--set", &address])
        .args(["--set", &user, "--set", &database])
        .args(["--set", "rows=300", "--set", "seconds=600"])
        .args(["--set", "steps=load,index,point-query", "--no-store"])
        .args(["--stuck-after", "4", "--out"])
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary can be started");
    wait(&mut suite, &|| has_phase(&out, "point-query"));
    let stopped = processes(pid);
    stopped.iter().for_each(|pid| signal("-STOP", *pid));
    let code = suite.wait().expect("it ends").code();
    stopped.iter().for_each(|pid| signal("-CONT", *pid));
    assert_eq!(code, Some(1));
    let marks = result(&out)["trials"][0]["marks"].to_string();
    let stuck = "stuck (no request of point-query ended for 4 s; the trial was killed)";
    assert!(marks.contains(stuck), "{marks}");
    assert!(!marks.contains("child-died"), "{marks}");
    server.close().expect("a server that was left as it was");
}

/// Runs one suite with all engines of MariaDB, to compare them on the same server.
#[cfg(feature = "mariadb")]
#[test]
fn all_engines_of_one_server_stand_in_one_suite() {
    let dir = tempfile::tempdir().expect("folder");
    let data = dir.path().join("server");
    std::fs::create_dir(&data).expect("folder");
    // A server started for Alluvium leaves the others' durability class at its default.
    let options = dir.path().join("my.cnf");
    let lines = "[mariadbd]\nplugin_load_add=ha_rocksdb\n\
                 innodb_flush_log_at_trx_commit=2\nrocksdb_flush_log_at_trx_commit=2\n";
    std::fs::write(&options, lines).expect("a file");
    let options = options.to_str().expect("UTF-8").to_string();
    let settings = BTreeMap::from([("options_file".to_string(), options)]);
    let server = start_with("mariadb-alluvium", &data, settings);
    let socket = socket(server.server_process().expect("a process"));
    let engines = ["mariadb-alluvium", "mariadb-innodb", "mariadb-rocksdb"];
    let addresses = engines.map(|name| format!("{name}.address={}", socket.display()));
    let databases = engines.map(|name| format!("{name}.database=given"));
    let out = dir.path().join("out");
    let mut arguments = vec!["run", "oltp-range", "--no-store", "--mix-durability"];
    for place in 0..engines.len() {
        arguments.extend(["--engine", engines[place]]);
        arguments.extend(["--set", &addresses[place], "--set", &databases[place]]);
    }
    let small = ["rows=300", STEPS, "operations=20", "clients=2"];
    arguments.extend(small.iter().flat_map(|setting| ["--set", *setting]));
    arguments.extend(["--repeat", "2", "--out", out.to_str().expect("UTF-8")]);
    let output = rumbench(dir.path(), &arguments);
    let result = result(&out);
    let trials = result["trials"].as_array().expect("trials");
    for trial in trials {
        assert!(trial["verified"].is_string(), "{}", trial["marks"]);
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let ran = |name: &str| {
        trials
            .iter()
            .filter(|trial| trial["engine"] == name)
            .count()
    };
    assert_eq!(engines.map(ran), [2, 2, 2], "{}", result["trials"]);
    server.close().expect("a server that was left as it was");
}
