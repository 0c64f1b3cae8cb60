//! Process of a command: its exit code, standard output and command line.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

/// Outcome of a command. The numbers are a contract with scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Done = 0,
    /// A part failed; all measurements are saved.
    Failed = 1,
    /// The command line is invalid.
    Usage = 2,
    /// A check found a violation.
    Threshold = 3,
    /// The user interrupted the command; results are saved.
    Interrupted = 130,
}

/// Writes results to stdout. A reader that has gone away (`| head`) is not an error. A stdout that
/// was closed before the start is not either: Rust's runtime opens the null device in its place,
/// and callers that want no output open it the same way.
///
/// # Errors
/// If stdout cannot take the text, for example because its device is full.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}

/// Returns the command line as text, to run it again.
pub fn command_line() -> String {
    let words: Vec<String> = std::env::args()
        .enumerate()
        .map(|(i, word)| match (i, word.contains(char::is_whitespace)) {
            (0, _) => "rumbench".to_string(),
            (_, true) => format!("'{word}'"),
            (_, false) => word,
        })
        .collect();
    words.join(" ")
}
