//! Help and exit codes.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mariadb-check"))
        .args(arguments)
        .output()
        .expect("the binary runs")
}

#[test]
fn every_subcommand_has_help_with_its_options() {
    for (command, option) in [
        ("statements", "--statements"),
        ("clients", "--transactions"),
        ("kills", "--rounds"),
    ] {
        let output = run(&[command, "--help"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{command}");
        for wanted in [option, "--seed", "--folder", "Usage"] {
            assert!(
                text.contains(wanted),
                "{command} --help lacks {wanted}: {text}"
            );
        }
    }
}

#[test]
fn wrong_usage_and_an_absent_server_have_codes_of_their_own() {
    assert_eq!(run(&["statements", "--nonsense"]).status.code(), Some(2));
    let output = run(&["statements", "--start", "/nonexistent/start.sh"]);
    assert_eq!(output.status.code(), Some(3));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("/nonexistent/start.sh"), "{told}");
}
