//! Kernel statistics of this process and its threads. Linux only, like the files it reads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::Failure;

/// Returns the resident bytes of heap and stacks, without mapped files.
pub fn rss_anon_bytes() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    let kib: u64 = kib.ok_or("no RssAnon in /proc/self/status")?.parse()?;
    Ok(kib * 1024)
}

/// Time in which a thread was ready to run while no core was free.
pub struct RunDelay {
    schedstat: File,
    last: Duration,
}

impl RunDelay {
    pub fn of_this_thread() -> Result<RunDelay, Failure> {
        let mut delay = RunDelay {
            schedstat: File::open("/proc/thread-self/schedstat")?,
            last: Duration::ZERO,
        };
        delay.since_last()?;
        Ok(delay)
    }

    /// Returns the delay since the last call.
    pub fn since_last(&mut self) -> Result<Duration, Failure> {
        let mut text = [0; 128];
        let length = self.schedstat.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(&text[..length])?;
        let ns = text.split_whitespace().nth(1).ok_or("a short schedstat")?;
        let now = Duration::from_nanos(ns.parse()?);
        let before = std::mem::replace(&mut self.last, now);
        Ok(now.saturating_sub(before))
    }
}
