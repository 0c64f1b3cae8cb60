//! Parts of replication that all servers need: clients, ports of the loopback address, random
//! passwords, and waits.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rumbench_core::engine::{EngineError, Result};

use super::session::Session;
use crate::error::failed;
use crate::replication::Client;

/// Limit for a replica that connects, applies what it has received, or is promoted.
const WITHIN: Duration = Duration::from_secs(60);

/// Interval between checks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl<S: Session> Client for S {
    fn execute(&mut self, text: &str) -> Result<Vec<Vec<String>>> {
        Session::query(self, text)
    }
}

/// Returns a port that is free now. Another program may take it before the server does; the
/// server's own error then says so.
pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener
        .map(|address| address.port())
        .map_err(failed("find a free port"))
}

/// Writes a file that only this user can read.
pub(super) fn write_secret(path: &Path, text: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(failed("write the passwords"))
}

/// Returns 128 random bits in hexadecimal.
pub(super) fn password() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(failed("read random bytes"))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Returns the rows of an answer as one line.
pub(super) fn words(rows: &[Vec<String>]) -> String {
    let rows: Vec<String> = rows.iter().map(|row| row.join(" ")).collect();
    rows.join(", ")
}

/// Waits until the check is true.
///
/// # Errors
/// The check's own, or that `what` did not happen within a minute.
pub(super) fn wait_for(what: &str, mut check: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !check()? {
        if start.elapsed() > WITHIN {
            let seconds = WITHIN.as_secs();
            return Err(EngineError::Wrong(format!("no {what} within {seconds} s")));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
