//! Kill tests and power losses on engines that keep their promise.

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_keeps_every_acknowledged_commit_of_killed_processes() {
    use crate::{result, rumbench, text};

    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let output = rumbench(
        dir.path(),
        &[
            "durability",
            "--engine",
            "sqlite",
            "--kills",
            "3",
            "--seconds-per-kill",
            "0.4",
            "--out",
            out.to_str().unwrap(),
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&out);
    assert_eq!(result["kills"], 3);
    assert!(result["commits_acknowledged"].as_u64().unwrap() > 10);
    for name in [
        "acknowledged_lost",
        "seen_lost",
        "order_violations",
        "atomicity_violations",
        "power_losses",
    ] {
        assert_eq!(result[name], 0, "{name}");
    }
    assert!(result["recovery_ms"]["max"].as_f64().unwrap() > 0.0);
    assert!(text(&output.stdout).contains("commits acknowledged"));
}

/// Kills a server twice at the class that keeps every commit, and checks the errors of unsupported
/// tests.
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
fn killed_server(engine: &str) {
    use crate::{result, rumbench, text};

    let dir = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let always = ["durability", "--engine", engine, "--durability", "sync"];
        // Time for a commit on a machine with many other tests.
        let patient = ["--seconds-per-kill", "4"];
        rumbench(dir.path(), &[&always[..], &patient, more].concat())
    };
    let out = dir.path().join("out");
    let output = run(&["--kills", "2", "--out", out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&out);
    assert_eq!(result["kills"], 2);
    // How many depends on the speed of the machine.
    assert!(result["commits_acknowledged"].as_u64().unwrap() > 0);
    for name in [
        "acknowledged_lost",
        "order_violations",
        "atomicity_violations",
    ] {
        assert_eq!(result[name], 0, "{engine}: {name}");
    }
    assert_eq!(
        result["errors"].as_array().map(Vec::len),
        Some(0),
        "{engine}"
    );
    assert_eq!(result["shows_commits_early"], engine == "mariadb-innodb");
    assert!(!out.join("data").exists());
    for (asked, said) in [
        (&["--power-loss"][..], "the processes of a server"),
        (
            &["--set", &format!("{engine}.address=127.0.0.1:9")],
            "leave `address` out",
        ),
    ] {
        let output = run(asked);
        assert_eq!(output.status.code(), Some(2), "{engine} {asked:?}");
        assert!(
            text(&output.stderr).contains(said),
            "{}",
            text(&output.stderr)
        );
    }
}

#[cfg(feature = "mariadb")]
#[test]
fn mariadb_keeps_every_acknowledged_commit_of_killed_servers_in_each_engine() {
    killed_server("mariadb-alluvium");
    killed_server("mariadb-innodb");
    killed_server("mariadb-rocksdb");
}

#[cfg(feature = "postgresql")]
#[test]
fn postgresql_keeps_every_acknowledged_commit_of_killed_servers() {
    killed_server("postgresql");
}

/// Builds the library of power losses, next to the program. Cargo does not do it for a test,
/// because the library is no dependency. `.ci/steps.sh` has built it and sets the variable.
#[cfg(all(feature = "sqlite", target_os = "linux"))]
fn build_powercut() {
    if std::env::var_os("ALLUVIUM_BUILT").is_some() {
        return;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = std::process::Command::new(cargo);
    build.args(["build", "--locked", "--quiet", "-p", "rumbench-powercut"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().expect("cargo runs").success());
}

/// Runs three power losses on SQLite at this durability and returns the exit code and the result.
#[cfg(all(feature = "sqlite", target_os = "linux"))]
fn power_losses(durability: &str) -> (Option<i32>, serde_json::Value) {
    use crate::{result, rumbench};

    build_powercut();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let output = rumbench(
        dir.path(),
        &[
            "durability",
            "--engine",
            "sqlite",
            "--durability",
            durability,
            "--power-loss",
            "--kills",
            "3",
            "--seconds-per-kill",
            "0.8",
            "--out",
            out.to_str().unwrap(),
        ],
    );
    (output.status.code(), result(&out))
}

#[cfg(all(feature = "sqlite", target_os = "linux"))]
#[test]
fn sqlite_keeps_every_acknowledged_commit_of_a_power_loss_if_it_syncs() {
    let (code, result) = power_losses("sync");
    assert_eq!(code, Some(0), "{result}");
    assert_eq!(result["power_losses"], 3);
    assert_eq!(result["acknowledged_lost"], 0);
    assert!(result["commits_acknowledged"].as_u64().unwrap() > 0);
    let lost = &result["power_loss"];
    assert!(lost["bytes_seen"].as_u64().unwrap() > 1000, "{lost}");
    // Reports to the laboratory are not included. SQLite's shared memory is a mapped file, which
    // the kernel may write.
    let unseen = lost["unseen_files"]
        .as_array()
        .map_or(&[][..], |files| files);
    let is_shared = |file: &serde_json::Value| file.as_str().unwrap().ends_with("-shm");
    assert!(unseen.iter().all(is_shared), "{lost}");
    let below = if unseen.is_empty() {
        4096
    } else {
        (32 << 10) + 1
    };
    assert!(lost["bytes_unseen"].as_u64().unwrap() < below, "{lost}");
}

#[cfg(all(feature = "sqlite", target_os = "linux"))]
#[test]
fn power_losses_take_what_sqlite_has_not_synced() {
    let (code, result) = power_losses("buffered");
    // This class promises only a prefix of the commits.
    assert_eq!(code, Some(0), "{result}");
    assert!(
        result["acknowledged_lost"].as_u64().unwrap() > 0,
        "{result}"
    );
    assert!(result["power_loss"]["writes"].as_u64().unwrap() > 0);
    assert_eq!(result["order_violations"], 0);
    assert_eq!(result["atomicity_violations"], 0);
}
