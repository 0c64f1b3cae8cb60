//! When the machine below gave a processor to somebody else: the steal time that the kernel of a virtual machine reports.
//!
//! A thread that stood on such a processor was not waiting for a core, so its run delay does not show it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::Failure;

/// Of `/proc/stat`: a hundredth of a second.
const TICK: Duration = Duration::from_millis(10);
/// Where the steal time stands in a line, the processor's name counted.
const STEAL: usize = 8;
/// How late it may be booked: the processor that comes back does it at its next tick.
const LATE: Duration = Duration::from_millis(20);
/// The lines of so many processors are looked at, the first ones.
const BYTES: usize = 16 << 10;

/// Steal times in the course of a run.
pub struct Steal {
    stat: File,
    /// When, and the ticks of each processor until then.
    samples: Vec<(Duration, Vec<u64>)>,
}

impl Steal {
    pub fn open() -> Result<Steal, Failure> {
        Ok(Steal {
            stat: File::open("/proc/stat")?,
            samples: Vec::new(),
        })
    }

    /// To be called every few milliseconds, with the time since the beginning of the run.
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

    /// For how long the processor was away that was away longest between two moments.
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
