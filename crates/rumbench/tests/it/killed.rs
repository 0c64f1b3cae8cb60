//! A laboratory that is killed with a server of its own at work leaves no process and no socket: the kernel ends the server, and the
//! next start of any laboratory removes what remains. The data stay, for they belong to a result.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::external::SERVER;
use crate::resume::{kill, wait};

/// Only against a test that never ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// The folder of the server that was started with this folder for temporary files, and its process.
fn noted(temporary: &Path) -> Option<(PathBuf, u32)> {
    let entries = fs::read_dir(temporary).ok()?.flatten();
    entries.map(|entry| entry.path()).find_map(|folder| {
        let note = fs::read_to_string(folder.join("server")).ok()?;
        Some((folder, note.split(' ').next()?.parse().ok()?))
    })
}

#[test]
fn a_killed_laboratory_leaves_no_server_behind() {
    let dir = tempfile::tempdir().unwrap();
    let temporary = dir.path().join("t");
    fs::create_dir(&temporary).unwrap();
    // Root's PostgreSQL runs as another user, who has to get to its socket.
    for folder in [dir.path(), &temporary] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let laboratory = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rumbench"));
        command.args(arguments).env("TMPDIR", &temporary);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let out = dir.path().join("out");
    let arguments = ["run", "linkbench", "--engine", SERVER.0, "--no-store"];
    let settings = [
        "--set",
        "nodes=100",
        "--set",
        "numbers=2011",
        "--set",
        "seconds=600",
    ];
    let arguments = [&arguments[..], &settings, &["--out", out.to_str().unwrap()]].concat();
    let mut killed = laboratory(&arguments).spawn().unwrap();
    wait(&mut killed, &|| noted(&temporary).is_some());
    let (folder, server) = noted(&temporary).expect("the suite ended by itself");
    kill(killed);
    let start = Instant::now();
    let is_there = || Path::new(&format!("/proc/{server}")).exists();
    // The process of the trial has to see first that its laboratory is gone.
    while folder.exists() || is_there() {
        assert!(
            start.elapsed() < PATIENCE,
            "{} is still there",
            folder.display()
        );
        let looked = laboratory(&["doctor", "--dir", dir.path().to_str().unwrap()]).status();
        assert!(looked.unwrap().success());
    }
    let data = fs::read_dir(&out).unwrap().flatten();
    assert!(data.count() > 0, "what was measured stays");
}
