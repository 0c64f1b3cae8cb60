//! Process of a command: its exit code, standard output and command line.

use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, bail};
use rustix::fs::{OFlags, fcntl_getfl, fstat, stat};

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

/// Writes results to stdout. A reader that has gone away (`| head`) is not an error.
///
/// # Errors
/// If stdout was closed or cannot take the text, for example because its device is full.
pub fn print(text: &str) -> Result<()> {
    const WHAT: &str =
        "cannot write the result to stdout; what was measured is saved in its folder";
    if was_closed() {
        bail!("{WHAT}: stdout is closed");
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context(WHAT),
        _ => Ok(()),
    }
}

/// Returns true if the process was started without stdout. Rust's runtime then opens the null
/// device for reading and writing in its place. A daemon, which has that in place of stderr too,
/// wants no output.
fn was_closed() -> bool {
    let is_null = |fd: BorrowedFd<'_>| {
        let mode = fcntl_getfl(fd).map(|flags| flags & OFlags::ACCMODE);
        let device = fstat(fd).map(|found| found.st_rdev);
        let null = stat("/dev/null").map(|found| found.st_rdev);
        mode == Ok(OFlags::RDWR) && device.is_ok() && device == null
    };
    is_null(std::io::stdout().as_fd()) && !is_null(std::io::stderr().as_fd())
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
