//! Servers of a laboratory that does not run as root: its work with them needs no special rights.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::killed::servers;
use crate::{SMALL_GRAPH, result, text};

/// The user `nobody` of most systems; needs no entry among the users.
const NOBODY: u32 = 65534;

#[test]
fn servers_run_for_a_user_without_rights() {
    let dir = tempfile::tempdir().unwrap();
    // The folder of root's binaries may be inaccessible to others.
    let binary = dir.path().join("rumbench");
    fs::copy(env!("CARGO_BIN_EXE_rumbench"), &binary).unwrap();
    let is_root = fs::metadata(dir.path()).unwrap().uid() == 0;
    if is_root {
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // The plugin of this workspace and its server are in the cache of the user who built them. That
    // of root is closed to others, so only a user who built them can have this server.
    let is_open = |server: &&str| !is_root || *server != "mariadb-alluvium";
    for server in servers().filter(is_open) {
        let out = dir.path().join(server);
        let mut command = Command::new(&binary);
        command
            .args(["run", "linkbench", "--engine", server, "--no-store"])
            .args(SMALL_GRAPH)
            .args(["--set", "operations=200", "--out"])
            .arg(&out)
            .env("TMPDIR", dir.path())
            .env("HOME", dir.path())
            .current_dir(dir.path());
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success(), "{server}: {said}");
        let verified = &result(&out)["trials"][0]["verified"];
        assert!(verified.is_string(), "{server}: {said}");
    }
}
