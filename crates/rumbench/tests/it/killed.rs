//! A laboratory that is killed while its own server works leaves no process and no socket: the
//! kernel ends the server, and the next start of any laboratory removes the rest. The data stays,
//! because it belongs to a result. A killed server affects its own trial and no other, and so does
//! a killed process of a trial.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::resume::{has_phase, kill};
use crate::waits::{pause, wait};
use crate::{SMALL_GRAPH, result};

/// Limit so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the servers of this build.
pub fn servers() -> impl Iterator<Item = &'static str> {
    let built = rumbench_engines::engines().iter();
    let built = built.filter(|entry| entry.is_server && entry.is_available());
    built.map(|entry| entry.name)
}

/// Returns the folder and the process of the server with this temporary folder.
fn noted(temporary: &Path) -> Option<(PathBuf, u32)> {
    let entries = fs::read_dir(temporary).ok()?.flatten();
    entries.map(|entry| entry.path()).find_map(|folder| {
        let note = fs::read_to_string(folder.join("server")).ok()?;
        Some((folder, note.split(' ').next()?.parse().ok()?))
    })
}

/// Folder with another one for temporary files, for one server.
struct Place {
    server: &'static str,
    dir: tempfile::TempDir,
    temporary: PathBuf,
    out: PathBuf,
}

impl Place {
    fn new(server: &'static str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let (temporary, out) = (dir.path().join("t"), dir.path().join("out"));
        fs::create_dir(&temporary).unwrap();
        // If root runs this test, PostgreSQL runs as another user and needs access to its socket.
        for folder in [dir.path(), &temporary] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Place {
            server,
            dir,
            temporary,
            out,
        }
    }

    fn laboratory(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rumbench"));
        command.args(arguments).env("TMPDIR", &self.temporary);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Starts a suite that lasts longer than any test, and waits until its server runs. Returns the
    /// suite, and the server's folder and process.
    fn begin(&self, more: &[&str]) -> (Child, PathBuf, u32) {
        // Relative to the suite's working directory, as a user would write it.
        let out = "out";
        let own = ["run", "linkbench", "--engine", self.server, "--no-store"];
        let arguments = [&own[..], &SMALL_GRAPH, &["--out", out], more].concat();
        let mut suite = self.laboratory(&arguments);
        let mut child = suite.current_dir(self.dir.path()).spawn().unwrap();
        wait(&mut child, &|| noted(&self.temporary).is_some());
        let (folder, server) = noted(&self.temporary).expect("the suite ended by itself");
        (child, folder, server)
    }

    /// As [`Place::begin`], followed by a small trial of another engine. Waits until requests run.
    fn begin_requests(&self, more: &[&str]) -> (Child, u32) {
        let usual = [
            "--engine",
            "null",
            "--set",
            "operations=200000",
            "--mix-durability",
        ];
        let (mut suite, _, server) = self.begin(&[&usual[..], more].concat());
        wait(&mut suite, &|| has_phase(&self.out, "request"));
        (suite, server)
    }

    /// Waits for the end of a suite with a failed first trial, and returns the marks of that trial.
    /// Checks that its measurements are kept, the second trial ran, and nothing is left of the
    /// server.
    fn marks_of_failed(&self, mut suite: Child) -> String {
        assert_eq!(suite.wait().unwrap().code(), Some(1));
        let result = result(&self.out);
        let trials = &result["trials"];
        let load = &trials[0]["phases"][0];
        assert_eq!(load["name"], "load", "what was measured stays");
        assert!(trials[1]["verified"].is_string(), "{}", trials[1]["marks"]);
        assert!(noted(&self.temporary).is_none(), "something is left");
        trials[0]["marks"].to_string()
    }
}

/// Returns a server and the processes that it started: a server may use one for each client.
pub fn processes(server: u32) -> Vec<u32> {
    let started = fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap();
    let started = started.split_whitespace().map(|pid| pid.parse().unwrap());
    std::iter::once(server).chain(started).collect()
}

/// Sends a signal, by its option of `kill`.
pub fn signal(signal: &str, process: u32) {
    let mut kill = Command::new("kill");
    kill.args([signal, &process.to_string()]);
    assert!(kill.status().unwrap().success());
}

#[test]
fn a_server_that_dies_in_a_phase_costs_its_own_trial_and_its_log_is_told() {
    for name in servers() {
        let place = Place::new(name);
        let (suite, server) = place.begin_requests(&[]);
        signal("-KILL", server);
        let marks = place.marks_of_failed(suite);
        assert!(marks.contains("failed"), "{name}: {marks}");
        assert!(marks.contains("the connection broke"), "{name}: {marks}");
        assert!(
            marks.contains("its log ends with") || marks.contains("its log is empty"),
            "{name}: {marks}"
        );
    }
}

#[test]
fn a_server_that_stands_still_costs_its_own_trial_and_is_ended() {
    for name in servers() {
        let place = Place::new(name);
        let (suite, server) = place.begin_requests(&["--stuck-after", "10"]);
        for process in processes(server) {
            signal("-STOP", process);
        }
        let marks = place.marks_of_failed(suite);
        let stuck = "stuck (no request of request ended for 10 s; its server was killed)";
        assert!(marks.contains(stuck), "{name}: {marks}");
        assert!(marks.contains("the connection broke"), "{name}: {marks}");
        assert!(!Path::new(&format!("/proc/{server}")).exists(), "{name}");
    }
}

#[test]
fn a_killed_trial_process_leaves_no_server_running_while_the_laboratory_goes_on() {
    for name in servers() {
        let place = Place::new(name);
        let (suite, server) = place.begin_requests(&[]);
        let (folder, _) = noted(&place.temporary).unwrap();
        let maker = folder.file_name().unwrap().to_str().unwrap();
        let process = maker.split('-').nth(1).unwrap().parse().unwrap();
        signal("-KILL", process);
        let marks = place.marks_of_failed(suite);
        assert!(marks.contains("signal 9"), "{name}: {marks}");
        assert!(!folder.exists(), "{name}");
        // The process that inherited the server still has to reap it.
        let start = Instant::now();
        while Path::new(&format!("/proc/{server}")).exists() {
            assert!(start.elapsed() < PATIENCE, "{name}: {server} is there");
            pause();
        }
    }
}

#[test]
fn a_killed_laboratory_leaves_no_server_running() {
    for name in servers() {
        let place = Place::new(name);
        let (killed, folder, server) = place.begin(&["--set", "seconds=600"]);
        let all = processes(server);
        kill(killed);
        let start = Instant::now();
        let is_there = |process: &u32| Path::new(&format!("/proc/{process}")).exists();
        let mut offered = String::new();
        // The trial's process first has to notice that its laboratory is gone.
        while folder.exists() || all.iter().any(is_there) {
            let left = folder.display();
            assert!(start.elapsed() < PATIENCE, "{name}: {left} is still there");
            let dir = place.dir.path().to_str().unwrap();
            let mut doctor = place.laboratory(&["doctor", "--dir", dir]);
            // Leftovers are offered by a path that is valid in any folder.
            let looked = doctor.stderr(Stdio::piped()).current_dir("/").output();
            let looked = looked.unwrap();
            assert!(looked.status.success());
            offered += &String::from_utf8_lossy(&looked.stderr);
        }
        let (_, command) = offered.split_once("rm -r '").expect("the data is offered");
        let (left, _) = command.split_once('\'').unwrap();
        assert!(Path::new(left).join("server").is_dir(), "{name}: {left}");
        let data = fs::read_dir(&place.out).unwrap().flatten();
        assert!(data.count() > 0, "what was measured stays");
    }
}
