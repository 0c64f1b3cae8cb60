//! Steal time: the time in which the hypervisor gave a virtual machine's processor to another
//! guest, as its kernel reports it.
//!
//! The run delay of a thread on such a processor does not include this time, because the thread was
//! not waiting for a core.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::Failure;

/// Unit of the times in `/proc/stat`: a hundredth of a second.
const TICK: Duration = Duration::from_millis(10);
/// Index of the steal time in a line of `/proc/stat`; the processor's name has index 0.
const STEAL: usize = 8;
/// Maximum delay of the accounting: the processor that comes back accounts for its steal time at
/// its next tick.
const LATE: Duration = Duration::from_millis(20);
/// Bytes read of `/proc/stat`: the lines of the first processors.
const BYTES: usize = 16 << 10;

/// Steal times over a run.
pub struct Steal {
    stat: File,
    /// Time of each sample since the beginning of the run, and the steal ticks of each processor up
    /// to then.
    samples: Vec<(Duration, Vec<u64>)>,
}

impl Steal {
    pub fn open() -> Result<Steal, Failure> {
        Ok(Steal {
            stat: File::open("/proc/stat")?,
            samples: Vec::new(),
        })
    }

    /// Records a sample. The caller calls this every few milliseconds, with the time since the
    /// beginning of the run.
    pub fn sample(&mut self, at: Duration) -> Result<(), Failure> {
        let mut text = [0; BYTES];
        let length = self.stat.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let processors = text
            .lines()
            .skip(1)
            .take_while(|line| line.starts_with("cpu"));
        let ticks = processors.map(|line| line.split_whitespace().nth(STEAL)?.parse().ok());
        let ticks: Option<Vec<u64>> = ticks.collect();
        let ticks = ticks.ok_or("no steal time in /proc/stat")?;
        self.samples.push((at, ticks));
        Ok(())
    }

    /// Returns the longest time for which a processor was away between two moments.
    pub fn between(&self, from: Duration, to: Duration) -> Duration {
        let first = self.samples.partition_point(|(at, _)| *at <= from);
        let last = self.samples.partition_point(|(at, _)| *at < to + LATE);
        let (Some((_, before)), Some((_, after))) = (
            self.samples.get(first.saturating_sub(1)),
            self.samples
                .get(last.min(self.samples.len().saturating_sub(1))),
        ) else {
            return Duration::ZERO;
        };
        let stolen = before.iter().zip(after).map(|(a, b)| b.saturating_sub(*a));
        TICK * stolen.max().unwrap_or(0) as u32
    }
}
