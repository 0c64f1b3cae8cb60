//! A kill test on an engine that keeps its promise.

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
