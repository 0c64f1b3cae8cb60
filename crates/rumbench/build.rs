//! Gives the binary the facts of its own build: compiler, flags, commit.

use std::process::Command;

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn main() {
    let compiler = output(&variable("RUSTC"), &["--version"]).unwrap_or_default();
    let flags = format!(
        "profile {}, opt-level {}, debug {}, target {}, rustflags '{}'",
        variable("PROFILE"),
        variable("OPT_LEVEL"),
        variable("DEBUG"),
        variable("TARGET"),
        variable("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " "),
    );
    emit("RUMBENCH_RUSTC", &compiler);
    emit("RUMBENCH_FLAGS", &flags);
    directive("rerun-if-changed=build.rs");
    // A debug build gives no figures to publish, so a commit does not rebuild it.
    if variable("PROFILE") == "debug" {
        emit("RUMBENCH_COMMIT", "not recorded in a debug build");
        return;
    }
    emit("RUMBENCH_COMMIT", &commit());
    // All crates: a change of any of them is a change of what is measured.
    directive("rerun-if-changed=..");
    // A new commit moves HEAD's log, in a worktree as well.
    if let Some(path) = output("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        directive(&format!("rerun-if-changed={path}"));
    }
}

fn commit() -> String {
    let changes = output("git", &["status", "--porcelain", "--untracked-files=no"]);
    match output("git", &["rev-parse", "HEAD"]) {
        Some(commit) if changes.is_some_and(|changes| !changes.is_empty()) => {
            format!("{commit} with changes")
        }
        Some(commit) => commit,
        None => "unknown".to_string(),
    }
}

fn emit(name: &str, value: &str) {
    directive(&format!("rustc-env={name}={value}"));
}

fn directive(text: &str) {
    println!("cargo::{text}");
}
