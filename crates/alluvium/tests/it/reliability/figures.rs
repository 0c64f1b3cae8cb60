//! Output of a run's counts, for people and for the results page: `cargo test NAME -- --nocapture`
//! shows it.

#[expect(clippy::print_stdout, reason = "figures of a test")]
pub fn report(line: &str) {
    println!("{line}");
}
